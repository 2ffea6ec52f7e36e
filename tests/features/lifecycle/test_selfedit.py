"""A named agent changes itself: what it may, how it is asked about, and what its next request says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import Busy
from pyagentd.features.named_agents import create
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.runtime.grants import local_user
from pyagentd.store.paths import BranchRef
from tests.runtime.test_approvals import Talk, results
from tests.runtime.world import World, attached
from tests.server import answer, tool_use


async def made(world: World, **wanted: Any) -> BranchRef:
    world.preset(DEFAULT_PRESET)
    world.kernel.config.sessions_dir.mkdir(exist_ok=True)
    return await create(world.kernel, "bob", **wanted)


def config(ref: BranchRef) -> dict[str, Any]:
    return dict(json.loads((ref.session_dir / "agent.json").read_text()))


@pytest.fixture
async def talk(world: World) -> AsyncIterator[Talk]:
    ref = await made(world)
    async with world.kernel.using(ref) as branch:
        talk = Talk(world, world.service(), branch)
        await attached(branch, talk.watcher)
        yield talk


def call(name: str, arguments: dict[str, Any]) -> Any:
    return answer(tool_use(name, **arguments))


def system(world: World, number: int = -1) -> str:
    return "".join(block["text"] for block in world.server.requests[number].body["system"])


async def audited(talk: Talk) -> dict[str, Any]:
    (row,) = (await talk.service.audit(talk.watcher, session=talk.branch.key))["decisions"]
    return dict(row)


@pytest.mark.spec("003", "System Prompt")
@pytest.mark.spec("003", "Self-Edit Audit Trail")
async def test_a_new_prompt_holds_from_the_next_request_on(world: World, talk: Talk) -> None:
    old = config(talk.branch.ref)
    await talk.say(call("self_edit_system_prompt", {"new_prompt": "You are terse."}), "Done.")
    ask = await talk.ask()
    assert ask["action"] == "tool:self_edit:system_prompt"
    assert "+You are terse." in ask["preview"]
    await talk.answer("allow")
    assert await talk.end() == "system_prompt was changed. It holds from your next step on."
    assert config(talk.branch.ref) == {**old, "system_prompt": "You are terse."}
    assert "You are terse." not in system(world, -2)
    assert system(world).startswith("You are terse.")
    row = await audited(talk)
    assert (row["action"], row["decision"], row["user"]) == (ask["action"], "ask_approved", local_user())
    assert json.loads(row["detail"]) == {"old": old["system_prompt"], "new": "You are terse."}


@pytest.mark.spec("003", "Documentation")
async def test_documents_are_in_the_prompt_and_change_with_the_next_request(world: World, talk: Talk) -> None:
    await talk.say(call("self_edit_docs", {"path": "notes/style.md", "content": "Use tabs."}), "Done.")
    assert (await talk.ask())["action"] == "tool:self_edit:docs:notes/style.md"
    await talk.answer("allow")
    await talk.end()
    assert (talk.branch.ref.session_dir / "docs" / "notes" / "style.md").read_text() == "Use tabs."
    assert "# docs/notes/style.md" not in system(world, -2)
    told = system(world)
    assert told.index("# docs/README.md") < told.index("# docs/notes/style.md\n\nUse tabs.")
    assert json.loads((await audited(talk))["detail"]) == {"old": None, "new": "Use tabs."}


@pytest.mark.spec("003", "Documentation: path traversal")
@pytest.mark.parametrize("path", ["../agent.json", "docs/../../x", "/etc/passwd", "away/x.md", ".", "a\n.md", ".x"])
async def test_no_path_leads_out_of_docs(world: World, talk: Talk, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (talk.branch.ref.session_dir / "docs" / "away").symlink_to(outside)
    before = config(talk.branch.ref)
    await talk.say(call("self_edit_docs", {"path": path, "content": "x"}), "Oh.")
    told = await talk.end()
    assert "document" in told
    assert not list(outside.iterdir())
    assert config(talk.branch.ref) == before
    row = await audited(talk)
    assert (row["decision"], row["rule"]) == ("deny", "impossible") and told.startswith(row["reason"][:20])
    assert row["action"].startswith(f"tool:self_edit:{path}".replace("\n", " "))


@pytest.mark.spec("003", "Permission Profile")
async def test_permissions_need_a_persons_word_even_under_open(world: World, talk: Talk) -> None:
    path = talk.branch.ref.session_dir / "agent.json"
    path.write_text(json.dumps({**config(talk.branch.ref), "permissions": "open"}))
    await talk.say(call("self_edit_permissions", {"new_profile": "locked"}), "Done.")
    ask = await talk.ask()
    assert (ask["action"], ask["choices"]) == ("tool:self_edit:permissions:locked", ["allow", "deny", "abort"])
    assert config(talk.branch.ref)["permissions"] == "open"
    await talk.answer("allow")
    await talk.end()
    assert config(talk.branch.ref)["permissions"] == "locked"
    row = await audited(talk)
    assert (row["decision"], row["user"]) == ("ask_approved", local_user())
    assert json.loads(row["detail"]) == {"old": "open", "new": "locked"}


async def test_a_denied_change_changes_nothing(world: World, talk: Talk) -> None:
    before = config(talk.branch.ref)
    wider = {"allow": ["tool:.*"], "ask": []}
    await talk.say(call("self_edit_permissions", {"new_profile": wider}), "Oh.")
    assert (await talk.ask())["action"] == "tool:self_edit:permissions:custom"
    await talk.answer("deny", reason="no")
    assert await talk.end() == "The user denied self_edit_permissions: no."
    assert config(talk.branch.ref) == before
    assert (await audited(talk))["decision"] == "ask_denied"


@pytest.mark.spec("003", "Permission Profile: an invalid one is rejected")
@pytest.mark.parametrize("profile", ["root", {"allow": ["("]}, {"allow": "x"}, {"deny": ["x"]}, ""])
async def test_what_is_no_profile_is_not_even_asked_about(world: World, talk: Talk, profile: Any) -> None:
    before = config(talk.branch.ref)
    await talk.say(call("self_edit_permissions", {"new_profile": profile}), "Oh.")
    told = await talk.end()
    assert "profile" in told.lower()
    assert config(talk.branch.ref) == before


@pytest.mark.spec("003", "Model")
async def test_another_model_answers_from_the_next_request_on(world: World, talk: Talk) -> None:
    calls = (
        call("self_edit_model", {"new_model": "gpt-99"}),
        call("self_edit_model", {"new_model": "claude-haiku-4-5"}),
    )
    await talk.say(*calls, "Done.")
    assert (await talk.ask())["action"] == "tool:self_edit:model:claude-haiku-4-5"
    assert results(world.server.last)[0].startswith('Model "gpt-99" not found in available models.')
    row = await audited(talk)
    assert (row["action"], row["decision"], row["rule"]) == ("tool:self_edit:gpt-99", "deny", "impossible")
    await talk.answer("allow")
    await talk.end()
    assert config(talk.branch.ref)["model"] == "claude-haiku-4-5"
    assert [request.body["model"] for request in world.server.requests][-2:] == ["model-main", "claude-haiku-4-5"]


async def test_locked_agents_and_sessions_without_a_name_have_no_such_tools(world: World) -> None:
    ref = await made(world, permissions="locked")
    plain = world.session()
    for each in (ref, plain):
        async with world.kernel.using(each) as branch:
            talk = Talk(world, world.service(), branch)
            await attached(branch, talk.watcher)
            await talk.say("Hello.")
            await talk.watcher.finished(branch)
        tools = world.server.last.body.get("tools") or []
        assert not [tool["name"] for tool in tools if tool["name"].startswith("self_edit")]


@pytest.mark.spec("003", "Self-Edit Audit Trail")
async def test_what_a_locked_agent_tries_all_the_same_is_audited(world: World) -> None:
    async with world.kernel.using(await made(world, permissions="locked")) as branch:
        talk = Talk(world, world.service(), branch)
        await attached(branch, talk.watcher)
        await talk.say(call("self_edit_model", {"new_model": "claude-haiku-4-5"}), "Oh.")
        assert "There is no tool" in await talk.end()
        row = await audited(talk)
        assert (row["tool"], row["decision"], row["rule"]) == ("self_edit_model", "deny", "no such tool")


STALE: list[tuple[str, dict[str, Any], str, str]] = [
    ("self_edit_system_prompt", {"new_prompt": "Mine."}, "system_prompt", "The user's."),
    ("self_edit_model", {"new_model": "claude-haiku-4-5"}, "model", "model-users"),
    ("self_edit_permissions", {"new_profile": "open"}, "permissions", "locked"),
]


@pytest.mark.parametrize(("name", "arguments", "key", "users"), STALE)
async def test_an_approval_is_never_for_more_than_was_shown(
    world: World, talk: Talk, name: str, arguments: dict[str, Any], key: str, users: str
) -> None:
    await talk.say(call(name, arguments), "Oh.")
    await talk.ask()
    path = talk.branch.ref.session_dir / "agent.json"
    path.write_text(json.dumps({**config(talk.branch.ref), key: users}))
    await talk.answer("allow")
    told = await talk.end()
    assert users in told or "neither allows" in told
    assert config(talk.branch.ref)[key] == users
    assert (await audited(talk))["decision"] == "deny"


async def test_a_document_that_was_changed_meanwhile_is_not_overwritten(world: World, talk: Talk) -> None:
    await talk.say(call("self_edit_docs", {"path": "a.md", "content": "Mine."}), "Oh.")
    await talk.ask()
    document = talk.branch.ref.session_dir / "docs" / "a.md"
    document.write_text("The user's.")
    await talk.answer("allow", input=json.dumps({"path": "a.md", "content": "Mine, edited."}))
    assert (await talk.end()).endswith("It is now:\n\nThe user's.")
    assert document.read_text() == "The user's."


async def test_a_question_that_waits_is_told(talk: Talk) -> None:
    await talk.say(call("self_edit_system_prompt", {"new_prompt": "Mine."}), "Oh.")
    await talk.ask()
    told = (await talk.service.agent_status(talk.watcher, branch=talk.branch.key))["text"]
    assert "Waiting: 1 question; `pyagentd asks`" in told
    with pytest.raises(Busy, match="waits for an answer to its question"):
        await talk.service.context_clear(talk.watcher, branch=talk.branch.key)
    await talk.answer("deny")
    await talk.end()
    status = await talk.service.agent_status(talk.watcher, branch=talk.branch.key)
    saved = await talk.service.context_save(talk.watcher, branch=talk.branch.key, description="x")
    assert status["messages"] == saved["message_count"]
