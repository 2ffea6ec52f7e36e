"""Commands typed into conversations: answered there, recorded, and never sent to the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.errors import BadRequest
from pyagentd.features.slash_commands import Answer, Call, Command, NoHuman
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.runtime.feature import Feature
from pyagentd.store import paths, presetfile
from pyagentd.store.document import text as document
from pyagentd.store.paths import BranchRef
from pyagentd.wire.connection import operation
from tests.runtime.world import Watcher, World, attached, body, rows, type_
from tests.server import answer, tool_use


def env(world: World) -> dict[str, str]:
    return dict(world.options.env)


async def said(world: World, service: Service, ref: BranchRef, text: str, **wishes: Any) -> dict[str, Any]:
    """Send text and return what became of it, when its run has ended."""
    told = await service.prompt(Watcher(), branch=ref.key, text=text, env=env(world), **wishes)
    if (live := world.kernel.opened(ref.key)) is not None and live.task is not None:
        await live.task
    return told


async def asked(world: World, service: Service, ref: BranchRef, text: str) -> str:
    """Type a command and return its answer."""
    command = (await said(world, service, ref, text))["command"]
    assert command["recorded"]
    return str(command["text"])


async def test_a_command_is_answered_in_the_document_and_the_model_never_sees_it(world: World) -> None:
    ref, service = world.session(), world.service()
    world.server.say("Hello", "Again")
    await said(world, service, ref, "Hi")
    told = await said(world, service, ref, "/status")
    assert told["ended"] == "done" and told["command"]["name"] == "status" and told["command"]["code"] is None
    await said(world, service, ref, "Go on")
    text = body(ref)
    assert (
        text.index("Hello") < text.index("/status") < text.index(f"Session: {ref.session_id}") < text.index("Go on")
    )
    assert [message["content"] for message in world.server.requests[-1].body["messages"]][::2] != []
    assert "/status" not in json.dumps(world.server.requests[-1].body)
    assert "Permissions" not in json.dumps(world.server.requests[-1].body)


async def test_the_text_of_a_command_has_the_role_that_stock_gptel_skips(world: World) -> None:
    ref, service = world.session(), world.service()
    await asked(world, service, ref, "/status")
    doc = document.read(ref.branch_dir / "session.md")
    (span,) = doc.spans
    assert span.kind == "ignore"
    shown = doc.body[span.start : span.end]
    assert shown.startswith("### /status\n\n``` text\nSession: ") and shown.endswith("\n```")


async def test_what_is_recorded_of_a_command_is_hidden_from_the_first_row_on(world: World) -> None:
    ref, service = world.session(), world.service()
    await asked(world, service, ref, "/tasks")
    recorded = [row.data for row in rows(ref) if row.type == "message"]
    assert [(each["role"], each["metadata_json"]["hidden_by"]) for each in recorded] == [
        ("user", "command"),
        ("assistant", "command"),
    ]


@pytest.mark.parametrize("text", ["/etc/passwd is what?", "/unheard-of"])
async def test_what_is_no_command_goes_to_the_model(world: World, text: str) -> None:
    ref, service = world.session(), world.service()
    world.server.say("It is a file")
    told = await said(world, service, ref, text)
    assert "command" not in told
    assert text in json.dumps(world.server.requests[-1].body)


async def test_whoever_mistypes_a_command_is_told(world: World) -> None:
    ref, service, watcher = world.session(), world.service(), Watcher()
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await said(world, service, ref, "/staus")
    assert [event.args[0]["text"] for event in watcher.of("notice")] == [
        "/staus is not a command, and was sent as it is. Did you mean /status?"
    ]


async def test_a_command_stands_in_no_history(world: World) -> None:
    ref, service = world.session(), world.service()
    world.server.say("Hello")
    await said(world, service, ref, "Hi")
    await asked(world, service, ref, "/tasks")
    found = await service.history(Watcher(), branch=ref.key)
    assert [each["text"] for each in found["prompts"]] == ["Hi"]
    assert list(found["hidden"]) == [] and list(found["variants"]) == []
    saved = await asked(world, service, ref, "/context save first")
    assert saved.endswith("first")
    (context,) = (await service.context_history(Watcher(), branch=ref.key))["contexts"]
    assert context["message_count"] == 2


async def test_a_rewound_turn_beside_a_command_is_folded_without_it(world: World) -> None:
    ref, service = world.session(), world.service()
    world.server.say("One", "Two")
    await said(world, service, ref, "First")
    await said(world, service, ref, "Second")
    await asked(world, service, ref, "/tasks")
    first = (await service.history(Watcher(), branch=ref.key))["prompts"][0]
    async with world.kernel.using(ref):
        message = first["message_id"]
        hidden = await service.rewind(Watcher(), branch=ref.key, message=message)
        assert len(hidden["hidden"]) == 3  # an answer, a prompt, an answer
        found = await service.history(Watcher(), branch=ref.key)
    text = body(ref)
    (region,) = found["hidden"]
    folded = text[region[0] - 1 : region[1] - 1]
    assert "Second" in folded and "/tasks" not in folded and region[3] == "rewind"
    await service.unrewind(Watcher(), branch=ref.key)
    assert not (await service.history(Watcher(), branch=ref.key))["hidden"]


async def test_what_is_wrong_is_answered_too(world: World) -> None:
    ref, service = world.session(), world.service()
    told = await said(world, service, ref, "/agent config nobody")
    assert told["command"]["code"] == "not-found" and "nobody" in body(ref)
    assert (await said(world, service, ref, "/agent inti"))["command"]["code"] == "bad-request"


async def test_a_command_that_is_sent_twice_is_done_once(world: World) -> None:
    ref, service = world.session(), world.service()
    await said(world, service, ref, "/tasks", id="one")
    again = await said(world, service, ref, "/tasks", id="one")
    assert again["ended"] == "done" and body(ref).count("/tasks") == 1


async def test_a_command_of_an_editor_is_read_in_its_document(world: World) -> None:
    ref, service, editor = world.session(), world.service(), Watcher()
    world.server.say("Hello")
    await said(world, service, ref, "Hi")
    async with world.kernel.using(ref) as branch:
        await attached(branch, editor)
        at = await type_(branch, "/context history\n")
        told = await service.send(
            editor, branch=ref.key, revision=at.revision, end=(at.marker or 0) + 1, env=env(world)
        )
        assert told["command"]["recorded"] and told["command"]["text"].startswith("No saved sessions")
        assert editor.text(ref.key) == f"\n\n{told['command']['text']}\n\n### "
        assert [event.args[0]["phase"] for event in editor.of("run")] == ["started", "finished"]
        new = branch.document.live.document.body
        roles = editor.of("roles")[-1].args[0]["spans"]
        ((beg, end, _),) = [span for span in roles if str(span[2]) == "ignore"]
    assert "/context history" in new[beg - 1 : end - 1] and told["command"]["text"] in new[beg - 1 : end - 1]


async def test_a_draft_with_a_slash_in_it_goes_to_the_model(world: World) -> None:
    ref, service, editor = world.session(), world.service(), Watcher()
    async with world.kernel.using(ref) as branch:
        at = await type_(branch, "### Look at\n/status and say what it is")
        end = (at.marker or 0) + 1
        told = await service.send(editor, branch=ref.key, revision=at.revision, end=end, env=env(world))
        assert "command" not in told
        if branch.task is not None:
            await branch.task


async def test_while_a_run_goes_on_only_the_client_is_answered(world: World) -> None:
    ref, service, watcher = world.session(), world.service(), Watcher()
    world.server.say(answer(tool_use("Bash", command="true")), "Done")
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await service.prompt(watcher, branch=ref.key, text="Hi", env=env(world))
        await watcher.until(lambda: watcher.of("ask"))
        told = await service.prompt(watcher, branch=ref.key, text="/tasks")
        assert told["run"] is None and not told["command"]["recorded"]
        assert told["command"]["text"].startswith("No running tasks")
        await service.answer(watcher, ask=watcher.of("ask")[0].args[0]["id"], decision="allow")
        await watcher.finished(branch)
    assert "/tasks" not in body(ref)


async def test_a_command_can_send_a_message(world: World) -> None:
    ref, service = world.session(), world.service()

    class Prompts(Feature):
        async def commands(self, ref: BranchRef | None) -> Sequence[Command]:
            return [Command(name="docs:review", summary="Review", run=self.review, origin="docs")]

        async def review(self, call: Call) -> Answer:
            return Answer(text="The prompt review of docs", prompt="Review the documents.")

    world.kernel.features.append(Prompts(world.kernel))
    assert (await service.commands(Watcher()))["commands"][-1]["name"] == "docs:review"
    world.server.say("They are fine")
    told = await said(world, service, ref, "/docs:review")
    assert told["run"] and told["command"]["recorded"]
    text = body(ref)
    assert text.index("/docs:review") < text.index("Review the documents.") < text.index("They are fine")
    assert world.server.requests[-1].body["messages"][-1]["role"] == "user"
    assert "docs:review" not in json.dumps(world.server.requests[-1].body)


@pytest.mark.spec("003", "Viewing Tasks: /status")
@pytest.mark.spec("003", "Viewing Tasks: /tasks")
async def test_an_agent_says_how_it_stands_and_what_it_runs(world: World) -> None:
    world.preset(DEFAULT_PRESET)
    service = world.service()
    made = await service.agent_init(Watcher(), name="web", model="claude-haiku-4-5")
    ref = paths.ref_of(Path(made["dir"]))
    (Path(made["dir"]) / "workspace/new.txt").write_text("new")
    assert (await asked(world, service, ref, "/status")).split("\n") == [
        "Agent: web",
        "Model: claude-haiku-4-5",
        "Permissions: standard",
        "Status: idle",
        "Session: none",
        "Git: main (1 uncommitted file)",
        "",
        "No running tasks.",
    ]
    assert await asked(world, service, ref, "/tasks") == "No running tasks for web."
    world.server.say("Hello")
    await said(world, service, ref, "Hi")
    await asked(world, service, ref, "/context save first")
    lines = (await asked(world, service, ref, "/status")).split("\n")
    assert "Session: active (2 messages, idle 0 sec)" in lines
    assert lines[-1] == "Last session saved: 2026-03-04 05:06 - first"


async def test_the_defaults_of_agents_are_shown_and_set(world: World) -> None:
    ref, service = world.session(), world.service()
    assert "default_permissions  standard" in await asked(world, service, ref, "/settings")
    assert await asked(world, service, ref, "/settings idle_timeout 2h") == "idle_timeout is 7200 now"
    assert await asked(world, service, ref, "/settings idle_timeout") == "idle_timeout is 7200"
    assert await asked(world, service, ref, "/settings idle_timeout --reset") == "idle_timeout is 1800 now"


async def test_an_agent_is_destroyed_only_when_what_is_lost_was_shown(world: World) -> None:
    world.preset(DEFAULT_PRESET)
    ref, service = world.session(), world.service()
    assert "web is in" in await asked(world, service, ref, "/agent init web 'You look after pages.' \"\" locked")
    told = await asked(world, service, ref, "/agent destroy web --keep-files")
    assert told.startswith("The agent web is not destroyed yet.")
    assert told.endswith("To destroy it: /agent destroy web --keep-files --yes")
    assert "web  idle" in await asked(world, service, ref, "/agent list")
    assert "Destroyed the agent web" in await asked(world, service, ref, "/agent destroy web --keep-files --yes")
    assert "no named agent" in await asked(world, service, ref, "/agent list")


async def test_an_agent_that_ends_itself_answers_its_client_alone(world: World) -> None:
    world.preset(DEFAULT_PRESET)
    service = world.service()
    made = await service.agent_init(Watcher(), name="web")
    ref = paths.ref_of(Path(made["dir"]))
    told = await said(world, service, ref, "/agent destroy web --keep-files --yes")
    assert told["command"]["text"].startswith("Destroyed") and not told["command"]["recorded"]


@pytest.mark.spec("003", "Context History")
async def test_saved_conversations_go_on_and_those_of_others_are_listed(world: World) -> None:
    ref, other, service = world.session(), world.session("other"), world.service()
    world.server.say("Hello", "New", "Again")
    await said(world, service, ref, "Hi")
    saved = await asked(world, service, ref, "/context save the first")
    id = saved.split("[")[1].split("]")[0]
    listed = await asked(world, service, other, f"/context history {ref.session_id}")
    assert listed.startswith(f"Sessions for {ref.session_id}:\n  [{id}] ") and "the first (2 messages)" in listed
    await asked(world, service, ref, "/context clear")
    assert (await said(world, service, ref, "/context clear"))["command"]["code"] == "bad-request"
    await said(world, service, ref, "Something else")
    await asked(world, service, ref, f"/context restore {id}")
    await said(world, service, ref, "Go on")
    seen = json.dumps(world.server.requests[-1].body["messages"])
    assert "Hi" in seen and "Go on" in seen and "Something else" not in seen and "/context" not in seen


class Program(Watcher):
    """A client that no human is at."""

    human = False


@pytest.mark.parametrize(
    "text",
    [
        "/agent destroy web --yes",
        "/agent config web permissions open",
        "/agent init other",
        "/settings idle_timeout 2h",
        "/settings idle_timeout --reset",
        "/context clear",
        "/model model-one",
        "/set temperature 0.5",
        "/compact",
    ],
)
async def test_what_changes_something_needs_a_human_or_to_be_meant_as_a_command(world: World, text: str) -> None:
    ref, service = world.session(), world.service()
    before = body(ref)
    with pytest.raises(NoHuman, match=r"changes something.*--command"):
        await service.prompt(Program(), branch=ref.key, text=text, env=env(world))
    assert body(ref) == before and not world.server.requests
    told = await service.prompt(Program(), branch=ref.key, text=text, env=env(world), command="always")
    assert told["command"]["name"] in text


async def test_what_only_looks_is_answered_to_programs_too(world: World) -> None:
    ref, service = world.session(), world.service()
    for text in ("/help", "/status", "/tasks", "/agent list", "/settings idle_timeout", "/context history", "/model"):
        told = await service.prompt(Program(), branch=ref.key, text=text, env=env(world))
        assert told["command"]["code"] is None, text


def sent(world: World) -> dict[str, Any]:
    return world.server.requests[-1].body


async def test_settings_are_set_for_the_conversation_and_for_one_message(world: World) -> None:
    ref, service = world.session(), world.service()
    world.server.rule = lambda request: answer("ok")
    assert await asked(world, service, ref, "/set temperature 0.3") == "temperature is 0.3 from now on"
    assert await asked(world, service, ref, "/set max-tokens 900 --next") == "max-tokens is 900 for the next message"
    assert (
        await asked(world, service, ref, "/set system Be terse. --next") == "system is Be terse. for the next message"
    )
    shown = await asked(world, service, ref, "/set")
    assert "temperature" in shown and "next message: 900" in shown and "next message: Be terse." in shown
    await said(world, service, ref, "Hi")
    assert (sent(world)["temperature"], sent(world)["max_tokens"]) == (0.3, 900)
    assert json.dumps(sent(world)["system"]).count("Be terse.") == 1
    await said(world, service, ref, "Again")
    assert sent(world)["temperature"] == 0.3 and sent(world)["max_tokens"] != 900
    assert "Be terse." not in json.dumps(sent(world)["system"])
    assert "next message" not in await asked(world, service, ref, "/set")
    assert await asked(world, service, ref, "/set temperature default") == "temperature is default from now on"
    await said(world, service, ref, "Once more")
    assert "temperature" not in sent(world)


async def test_a_setting_is_set_where_the_preset_has_it(world: World) -> None:
    ref, service = world.session(), world.service()
    world.server.rule = lambda request: answer("ok")
    presetfile.change(
        paths.preset_file(ref.branch_dir), lambda preset: presetfile.with_values(preset, {"max-tokens": 777})
    )
    await asked(world, service, ref, "/set max-tokens 900")
    assert paths.preset_file(ref.branch_dir).read_text().count("max") == 1
    await asked(world, service, ref, "/set max-tokens default")
    await said(world, service, ref, "Hi")
    assert sent(world)["max_tokens"] not in (777, 900)


async def test_tools_are_switched_by_name_or_one_by_one(world: World) -> None:
    ref, service = world.session(), world.service()
    world.server.rule = lambda request: answer("ok")

    async def names() -> list[str]:
        await said(world, service, ref, "Hi")
        return [tool["name"] for tool in sent(world).get("tools", ())]

    await asked(world, service, ref, "/set tools Read Grep")
    assert await names() == ["Read", "Grep"]
    await asked(world, service, ref, "/set tools -Read +glob")
    assert await names() == ["Grep", "Glob"]
    await asked(world, service, ref, "/set tools none --next")
    assert (await names(), await names()) == ([], ["Grep", "Glob"])


@pytest.mark.parametrize(
    ("text", "said_then"),
    [
        ("/set temperature warm", "'warm' is not a value of temperature"),
        ("/set temperature 7", "temperature"),
        ("/set max-tokens 0", "max"),
        (f"/set max-tokens {2**64}", "whole number from 1 to 1000000000"),
        ("/set thinking hard", "thinking"),
        ("/set colour red", "not a value of key"),
        ("/set tools +Read Grep", "a sign"),
        ("/set tools Read Gerp", "There is no tool 'Gerp'. Did you mean \"Grep\"?"),
        ("/set tools -Gerp", "There is no tool 'Gerp'"),
        ("/set system default", "no default"),
        ("/set tools default", "no default"),
    ],
)
async def test_what_is_no_setting_is_said_and_nothing_changes(world: World, text: str, said_then: str) -> None:
    ref, service = world.session(), world.service()
    before = paths.preset_file(ref.branch_dir).read_text()
    told = (await said(world, service, ref, text))["command"]
    assert told["code"] is not None and said_then in told["text"], told["text"]
    assert paths.preset_file(ref.branch_dir).read_text() == before


async def test_what_is_never_a_command_is_a_message(world: World) -> None:
    ref, service = world.session(), world.service()
    world.server.say("A strange thing to say.")
    assert "command" not in await said(world, service, ref, "/context clear", command="never")
    assert "/context clear" in json.dumps(world.server.requests[-1].body)
    with pytest.raises(BadRequest, match="maybe"):
        operation("prompt", service.prompt).bind_named({"branch": ref.key, "text": "/tasks", "command": "maybe"})
