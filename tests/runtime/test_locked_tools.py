"""The thirteen tools whose names and shapes never change are there."""

from __future__ import annotations

from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.policy.action import canonical_tool
from pyagentd.policy.profiles import BUILTIN, may_pass
from pyagentd.runtime import run, run_setup
from pyagentd.runtime.system_prompt import NAME as SKILL
from pyagentd.store.document.text import Settings
from pyagentd.tools.builtin import builtin_tools
from tests.runtime.test_approvals import results, talking
from tests.runtime.world import World
from tests.server import answer, tool_use
from tests.tools.test_web import page, serving

LOCKED = (
    "read", "write", "edit", "glob", "grep", "bash", "todo", "task", "question", "web_search", "web_fetch", "skill",
    "tool_search",
)  # fmt: skip
ALL = "Read, Write, Edit, Glob, Grep, Bash, todo, task, question, web_search, web_fetch, tool_search, PersistentAgent"


@pytest.fixture
def service(world: World) -> Service:
    world.preset("main", tools=ALL)
    return world.service()


def test_every_locked_id_is_a_tool_of_ours() -> None:
    there = {*builtin_tools(), *run_setup.NAMES, SKILL, run.NAME}
    assert len(LOCKED) == 13 and {canonical_tool(each) for each in LOCKED} <= there
    assert len({canonical_tool(each) for each in LOCKED}) == 13


async def test_each_feature_names_the_tools_that_it_has(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say("Hi.")
        await talk.watcher.finished(talk.branch)
        builder = run_setup.RunBuilder(world.kernel, talk.branch, "run_1", world.options)
        await builder.settings(Settings())
        for each in world.kernel.features_with("tools_for"):
            names = {spec.name for spec in each.tools_for(builder)}
            assert names == set(each.tool_names) or not names, type(each).__name__


async def test_a_preset_may_name_them_by_their_ids_and_they_have_the_guides_shapes(
    world: World, service: Service
) -> None:
    async with talking(world, service) as talk:
        await talk.say("Hi.")
        await talk.watcher.finished(talk.branch)
        tools = {tool["name"]: tool["input_schema"] for tool in world.server.last.body["tools"]}
    assert set(tools) >= {canonical_tool(each) for each in LOCKED} - {"skill", "tool_search"}

    def shape(name: str) -> tuple[set[str], set[str]]:
        return set(tools[name]["properties"]), set(tools[name]["required"])

    assert shape("task") == ({"subagent_type", "prompt", "background", "metadata"}, {"subagent_type", "prompt"})
    assert shape("question") == ({"questions"}, {"questions"})
    asked = tools["question"]["properties"]["questions"]["items"]
    assert set(asked["properties"]) == {"question", "header", "options", "multi_select"}
    assert set(asked["properties"]["options"]["items"]["properties"]) == {"label", "description"}
    assert shape("WebSearch") == ({"query", "max_results"}, {"query"})
    assert shape("WebFetch") == ({"url"}, {"url"})
    assert set(tools["TodoWrite"]["properties"]["todos"]["items"]["properties"]) == {
        "content", "status", "activeForm",
    }  # fmt: skip


@pytest.mark.parametrize("profile", ["locked", "standard"])
def test_locked_has_no_network_and_every_profile_has_what_touches_nothing(profile: str) -> None:
    web = [may_pass(BUILTIN[profile], tool) for tool in ("web_search", "web_fetch")]
    assert web == [profile == "standard"] * 2  # which asks: ``test_profiles``
    assert all(may_pass(BUILTIN[profile], tool) for tool in ("todo", "task", "question", "skill", "tool_search"))


async def test_a_page_is_asked_about_and_its_site_can_be_remembered(world: World, service: Service) -> None:
    async def handler(request: Any) -> Any:
        return page("<p>tea")

    (world.home / "config.toml").write_text("[web]\nallow_private = true\n")
    world.start()
    async with serving(handler) as url, talking(world, world.service()) as talk:
        fetches = [answer(tool_use("WebFetch", url=f"{url}/{name}")) for name in ("a", "b")]
        talk.service = world.service()
        await talk.say(*fetches, "Done.")
        ask = await talk.ask()
        assert ask["action"] == f"tool:WebFetch:{url}/a"
        assert ask["remember"] == [f"tool:WebFetch:{url.replace('.', chr(92) + '.')}/.*"]
        await talk.answer("session")
        assert await talk.end() == f"{url}/b\n\ntea"
        assert len(talk.branch.conversation.asks) == 1


async def test_without_a_human_nothing_is_fetched(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(tool_use("WebFetch", url="https://example.org/")), "Oh.", interactive=False)
        assert "needs a human's approval" in await talk.end()
        assert len(results(world.server.last)) == 1
