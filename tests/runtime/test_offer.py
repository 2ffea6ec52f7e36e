"""Many tools: the usual ones are offered, the others once they were searched for, and the list only grows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pyagentd.runtime.run import CORE, NAME, ToolOffer, best_matching_tools
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.spec import ToolSpec
from tests.runtime.test_approvals import results, talking
from tests.runtime.world import World
from tests.server import answer, tool_use


def made(name: str, description: str = "") -> ToolSpec:
    async def run(args: Any, ctx: Any) -> str:
        return f"{name} ran"

    schema = {"type": "object", "properties": {}}
    return replace(
        builtin_tools()["Read"], name=name, description=description, kind="meta", input_schema=schema, run=run,
        describe=lambda args, ctx: __import__("pyagentd.tools.spec").tools.spec.Target(detail=""),
    )  # fmt: skip


MANY = {
    each.name: each
    for each in (
        made("github_create_issue", "Open a new issue in a repository"),
        made("github_list_issues", "List the issues of a repository"),
        made("mail_send", "Send a mail"),
        *(made(f"other_{number}", "Something else") for number in range(18)),
    )
}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("create an issue", ["github_create_issue", "github_list_issues"]),
        ("list the issues", ["github_list_issues"]),
        ("send mail", ["mail_send"]),
        ("GitHub", ["github_create_issue", "github_list_issues"]),
        ("quantum", []),
        ("", []),
    ],
)
def test_a_search(query: str, first: list[str]) -> None:
    assert best_matching_tools(query, MANY)[: len(first) or None] == first


def test_ten_are_found_at_most() -> None:
    assert len(best_matching_tools("something", MANY)) == 10


def test_many_small_tools_are_all_offered_and_few_large_ones_are_not() -> None:
    assert [told.name for told in ToolOffer(MANY).schemas()] == list(MANY) and NAME not in ToolOffer(MANY).tools
    large = {name: replace(spec, description="word " * 2000) for name, spec in list(MANY.items())[:6]}
    assert [told.name for told in ToolOffer(large).schemas()] == [NAME]


def test_a_small_window_holds_fewer() -> None:
    assert NAME in ToolOffer(MANY, window=4_000).tools and NAME not in ToolOffer(MANY, window=200_000).tools


def test_the_search_names_the_servers_whose_tools_it_finds() -> None:
    offer = ToolOffer(builtin_tools(), window=4_000)
    offer.add(MANY, servers=["github", "mail"])
    assert "of the servers github, mail" in offer.tools[NAME].description


def test_of_more_the_usual_ones_and_a_search_are_offered() -> None:
    offer = ToolOffer(builtin_tools() | MANY, window=4_000)
    assert [told.name for told in offer.schemas()] == ["Read", "Write", "Edit", "Glob", "Grep", "Bash", NAME]
    assert set(CORE) >= set(builtin_tools())
    again = ToolOffer(builtin_tools() | MANY, lambda: ["mail_send", "gone"], window=4_000)
    assert [told.name for told in again.schemas()][-2:] == [NAME, "mail_send"]


async def test_what_is_found_is_offered_from_the_next_request_on_and_in_later_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "object", "properties": {}, "description": ". " * 5000}
    large = {name: replace(spec, input_schema=schema) for name, spec in MANY.items()}
    feature = world.kernel.features_with("further_tools")[0]
    further = feature.further_tools
    monkeypatch.setattr(feature, "further_tools", lambda *given: {**further(*given), **large})

    def offered(number: int) -> list[str]:
        return [tool["name"] for tool in world.server.requests[number].body["tools"]]

    world.preset("main", tools="Read, Glob")
    async with talking(world, world.service()) as talk:
        await talk.say(
            answer(tool_use(NAME, query="send a mail")), answer(tool_use("mail_send")), "Sent.", interactive=False
        )
        await talk.watcher.finished(talk.branch)
        assert offered(0) == ["Read", "Glob", NAME] and offered(1) == [*offered(0), "mail_send"] == offered(2)
        assert json.loads(results(world.server.requests[1])[0]) == {
            "matches": [{"id": "mail_send", "description": "Send a mail"}]
        }
        assert results(world.server.requests[2]) == ["mail_send ran"]
        await talk.say("Hello.", text="Again.")
        await talk.watcher.finished(talk.branch)
        assert offered(3) == offered(2)
