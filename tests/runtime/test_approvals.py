"""What a human decides: answers, edited arguments, grants and taking them back; the audit; what the guard says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api import Service
from pyagentd.errors import BadRequest, NotFound
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.status import failed_calls
from pyagentd.store import branching, paths
from pyagentd.store.paths import BranchRef
from pyagentd.tools.spec import Target
from pyagentd.wire.connection import operation
from tests.runtime.test_run import meeting
from tests.runtime.world import Watcher, World, attached, last_of, rows
from tests.server import Request, answer, tool_use


def results(request: Request) -> list[str]:
    """The tool results that a request brings the model."""
    content = request.messages[-1]["content"]
    found = [] if isinstance(content, str) else [block for block in content if block["type"] == "tool_result"]
    return [block["content"] if isinstance(block["content"], str) else block["content"][0]["text"] for block in found]


def prompt_of(request: Request) -> str:
    content = request.messages[0]["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


TOOLS = "Read, Write, Edit, Bash, PersistentAgent, request_scope_expansion"


@pytest.fixture
def service(world: World) -> Service:
    world.preset("main", tools=TOOLS)
    world.preset("helper", tools="Bash")
    return world.service()


async def session(world: World, service: Service) -> BranchRef:
    made = await service.create_session(Watcher(), name="test", preset="main", root=str(world.project))
    return paths.ref_of(Path(made["branch"]))


class Talk:
    """A conversation that a human watches."""

    def __init__(self, world: World, service: Service, branch: LiveBranch) -> None:
        self.world, self.service, self.branch, self.watcher = world, service, branch, Watcher()

    async def say(self, *answers: Any, text: str = "Go.", **options: Any) -> None:
        self.world.server.say(*answers)
        await self.world.kernel.prompt(self.branch, text=text, options=replace(self.world.options, **options))

    async def asks(self, number: int = 1) -> list[dict[str, Any]]:
        await self.watcher.until(lambda: len(self.watcher.of("ask", self.branch.key)) >= number)
        return [event.args[0] for event in self.watcher.of("ask", self.branch.key)]

    async def ask(self) -> dict[str, Any]:
        return (await self.asks())[0]

    async def answer(self, decision: str, **fields: Any) -> None:
        ask = await self.ask()
        assert await self.service.answer(self.watcher, ask=ask["id"], decision=decision, **fields) == {
            "accepted": True
        }

    async def end(self) -> str:
        """Wait for the end and return the last result that the model got."""
        await self.watcher.finished(self.branch)
        return results(self.world.server.last)[-1]

    async def decisions(self) -> list[tuple[str, str, str | None]]:
        found = (await self.service.audit(self.watcher, session=self.branch.key))["decisions"]
        return [(row["decision"], row["rule"], row["by"]) for row in reversed(found)]


@asynccontextmanager
async def talking(world: World, service: Service, ref: BranchRef | None = None) -> AsyncIterator[Talk]:
    async with world.kernel.using(ref or await session(world, service)) as branch:
        talk = Talk(world, service, branch)
        await attached(branch, talk.watcher)
        yield talk


def bash(command: str) -> Any:
    return answer(tool_use("Bash", command=command))


async def test_who_watches_all_questions_is_told_of_those_of_conversations_it_does_not_watch(
    world: World, service: Service
) -> None:
    overseer, other = Watcher(), Watcher()
    assert (await service.asks(overseer, watch=True), await service.asks(other)) == ({"asks": []}, {"asks": []})
    async with talking(world, service) as talk:
        await talk.say(bash("make"), "Done")
        ask = await talk.ask()
        await talk.answer("deny")
        await talk.end()
    assert [event.args[0] for event in overseer.of("ask", talk.branch.key)] == [ask]
    assert [event.args[0]["id"] for event in overseer.of("answered", talk.branch.key)] == [ask["id"]]
    assert not other.events


async def test_who_is_asked_about_a_command_is_told_that_it_goes_on_in_the_background(
    world: World, service: Service
) -> None:
    async with talking(world, service) as talk:
        behind = tool_use("Bash", command="make", run_in_background=True, wake=True)
        await talk.say(answer(behind), bash("make"), "Done")
        await talk.answer("deny")
        first, here = await talk.asks(2)
        assert "goes on in the background" in first["warning"] and "begins a turn" in first["warning"]
        assert "background" not in here["warning"]
        await service.answer(talk.watcher, ask=here["id"], decision="deny")
        await talk.end()


async def test_clients_are_told_which_calls_failed_before_their_text_and_when_they_attach(
    world: World, service: Service
) -> None:
    async with talking(world, service) as talk:
        other = Watcher()
        await attached(talk.branch, other)
        await talk.say(bash("make"), "Done")
        await talk.answer("deny")
        await talk.end()
        (told,) = other.of("tool", talk.branch.key)
        assert told.args[0]["state"] == "failed"
        call = told.args[0]["id"]
        shown = [event for event in other.of("insert") if event.args[1] == ("tool", call)]
        assert other.events.index(told) < other.events.index(shown[0])
        assert failed_calls(talk.branch.conversation) == [call]


async def test_an_ask_says_everything_that_an_answer_needs(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(bash("git log | head -5"), "Done")
        ask = await talk.ask()
        assert ask["kind"] == "tool" and ask["choices"] == ["allow", "session", "always", "deny", "abort"]
        assert ask["commands"] == ["git log", "head -5"] and len(ask["remember"]) == 2
        assert ask["covers"] == ["Bash `git log` with any arguments", "Bash `head` with any options"]
        assert ask["project"] == talk.branch.conversation.session["workspace_root"]
        assert json.loads(ask["input"]) == {"command": "git log | head -5"} and ask["path"] is None
        assert (await service.asks(talk.watcher))["asks"] == [ask]
        assert (await service.asks(talk.watcher, session="test"))["asks"] == [ask]
        await talk.answer("deny", reason="use the other one")
        assert await talk.end() == "The user denied Bash: use the other one."
        recorded = last_of(rows(talk.branch.ref), "ask")[ask["id"]]
        assert (recorded["decision"], recorded["decided_by"]) == ("deny", "a test") and recorded["decided_at"]
        assert await talk.decisions() == [("ask_denied", "human: deny", "a test")]


async def test_questions_of_one_answer_come_in_the_order_of_its_calls_whichever_is_ready_first(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_is_ready, all_are_asked = threading.Event(), asyncio.Event()

    def preview(args: Any, context: object) -> str:
        if args["who"] == "c":
            last_is_ready.set()
        assert last_is_ready.wait(10)
        return ""

    async def look(args: Any, context: object) -> str:
        async with asyncio.timeout(10):
            await all_are_asked.wait()
        return args["who"]

    free = replace(meeting("Free", True, [], None), run=look, describe=lambda args, context: Target(detail="free"))
    asked = replace(free, name="Look", confirm=True, preview=preview)
    asked = replace(asked, describe=lambda args, context: Target(detail=args["who"]))
    monkeypatch.setattr("pyagentd.runtime.run_setup.builtin_tools", lambda: {"Look": asked, "Free": free})
    world.preset("main", tools="Look, Free")
    async with talking(world, service) as talk:
        calls = [tool_use("Free", who="x"), *(tool_use("Look", who=who) for who in "abc")]
        await talk.say(answer(*calls), "Done")
        assert [ask["detail"] for ask in await talk.asks(3)] == ["a", "b", "c"]
        assert [ask["detail"] for ask in (await service.asks(talk.watcher))["asks"]] == ["a", "b", "c"]
        all_are_asked.set()
        for ask in reversed(await talk.asks(3)):
            await service.answer(talk.watcher, ask=ask["id"], decision="allow")
        assert "c" in await talk.end()


async def test_an_edit_of_a_file_names_the_file_and_shows_the_change(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(tool_use("Write", file_path="a.txt", content="new\n")), "Done")
        ask = await talk.ask()
        assert ask["path"] == str(world.project / "a.txt") and "+new" in ask["preview"]
        await talk.answer("allow")
        await talk.end()
        assert (world.project / "a.txt").read_text() == "new\n"
        assert await talk.decisions() == [("ask_approved", "human: allow", "a test")]


async def test_reads_and_denials_are_in_the_audit_too(world: World, service: Service) -> None:
    (world.project / "a.txt").write_text("alpha")
    async with talking(world, service) as talk:
        calls = answer(tool_use("Read", file_path="a.txt"), tool_use("Read", file_path="/etc/hostname"))
        await talk.say(calls, bash("ls; sudo x"), "Done")
        await talk.answer("deny")
        await talk.end()
        assert await talk.decisions() == [
            ("allow", "scope", None), ("deny", "scope", None), ("ask_denied", "human: deny", "a test"),
        ]  # fmt: skip
        found = (await service.audit(talk.watcher, limit=2))["decisions"]
        assert [row["tool"] for row in found] == ["Bash", "Read"] and "/etc/hostname" in found[1]["reason"]
        (oldest,) = (await service.audit(talk.watcher, before=found[-1]["id"]))["decisions"]
        with pytest.raises(NotFound, match="nosuch"):
            await service.audit(talk.watcher, session="nosuch")
        assert (oldest["session"], oldest["agent"]) == (talk.branch.ref.session_id, None) and oldest["run_id"]


async def test_session_holds_for_the_session_and_nowhere_else(world: World, service: Service) -> None:
    ref = await session(world, service)
    async with talking(world, service, ref) as talk:
        await talk.say(bash("make -v"), bash("make -v"), bash("make -v; make x"), "Done")
        await talk.answer("session")
        await talk.asks(2)
        assert [each["detail"] for each in await talk.asks(2)] == ["make -v", "make -v; make x"]
        await service.answer(talk.watcher, ask=(await talk.asks(2))[1]["id"], decision="deny")
        await talk.end()
        assert await talk.decisions() == [
            ("ask_approved", "human: session", "a test"),
            ("allow", "grant tool:Bash:make -v", None),
            ("ask_denied", "human: deny", "a test"),
        ]
        (grant,) = (await service.grants(talk.watcher, branch=ref.key))["grants"]
        assert (grant["action"], grant["kind"], grant["by"]) == ("tool:Bash:make -v", "session", "a test")
        assert talk.branch.conversation.session["permissions_json"] == [
            {key: value for key, value in grant.items() if key != "kind"}
        ]
    other = await session(world, service)
    assert (await service.grants(Watcher(), branch=other.key))["grants"] == []


async def test_a_grant_of_the_session_outlives_the_daemon_and_is_not_copied(world: World, service: Service) -> None:
    ref = await session(world, service)
    async with talking(world, service, ref) as talk:
        await talk.say(bash("make -v"), "Done")
        await talk.answer("session")
        await talk.end()
    await world.kernel.shutdown()
    world.start()
    service = world.service()
    async with talking(world, service, ref) as talk:
        await talk.say(bash("make -v"), "Done")
        await talk.end()
        assert (await talk.decisions())[-1] == ("allow", "grant tool:Bash:make -v", None)
    made = branching.create_branch(ref, name="b", clock=world.kernel.clock)
    copied = (await service.duplicate(Watcher(), branch=ref.key))["branch"]
    for place in (made.key, copied):
        assert (await service.grants(Watcher(), branch=place))["grants"] == []


async def test_always_holds_for_the_project_for_good(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(bash("make -v"), "Done")
        await talk.answer("always")
        await talk.end()
    await world.kernel.shutdown()
    world.start()
    service = world.service()
    async with talking(world, service) as talk:
        await talk.say(bash("make -v"), "Done")
        await talk.end()
        assert await talk.decisions() == [("allow", "grant tool:Bash:make -v", None)]
        listed = await service.grants(talk.watcher, branch=talk.branch.key)
        assert listed["root"] == str(world.project) and listed["grants"][0]["kind"] == "project"
    elsewhere = world.home / "other"
    elsewhere.mkdir()
    made = await service.create_session(Watcher(), name="x", preset="main", root=str(elsewhere))
    assert (await service.grants(Watcher(), branch=made["branch"]))["grants"] == []


async def test_what_is_revoked_is_asked_again(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(bash("make -v"), "Done")
        await talk.answer("session")
        await talk.end()
        with pytest.raises(NotFound, match="pyagentd grants"):
            await service.revoke(talk.watcher, branch=talk.branch.key, action="tool:.*")
        with pytest.raises(BadRequest, match="session, project"):
            operation("revoke", service.revoke).bind_named({"branch": "b", "action": "a", "kind": "x"})
        revoked = await service.revoke(talk.watcher, branch=talk.branch.key, action="tool:Bash:make -v")
        assert revoked == {"revoked": 1}
        await talk.say(bash("make -v"), "Done")
        await talk.answer("deny")
        await talk.end()


async def test_a_grant_answers_the_open_questions_that_it_covers(world: World, service: Service) -> None:
    world.preset("main", tools=TOOLS)
    async with talking(world, service) as talk:
        spawn = [tool_use("PersistentAgent", preset="helper", description=f"n {i}", prompt=f"{i}") for i in range(3)]
        world.server.say(answer(*spawn))
        commands = {"0": "make -v", "1": "make -v", "2": "make other"}

        def helper(request: Any) -> Any:
            if results(request):
                return "ok"
            return bash(commands[prompt_of(request)])

        world.server.say(helper, helper, helper, helper, helper, helper, "Done")
        await talk.say(grants=world.granted("tool:PersistentAgent:.*").grants)
        first, second, third = sorted(await talk.asks(3), key=lambda ask: ask["detail"])
        assert [third["detail"], second["detail"]] == ["make other", "make -v"][0:2]
        await service.answer(talk.watcher, ask=first["id"], decision="session")
        await talk.watcher.until(lambda: len(talk.watcher.of("answered", talk.branch.key)) == 2)
        told = {event.args[0]["id"]: event.args[0] for event in talk.watcher.of("answered", talk.branch.key)}
        assert told[second["id"]] == {"id": second["id"], "decision": "allow", "by": "a test"}
        assert [ask["id"] for ask in (await service.asks(talk.watcher))["asks"]] == [third["id"]]
        await service.answer(talk.watcher, ask=third["id"], decision="deny")
        await talk.end()
        made = [each for each in await talk.decisions() if each[0] != "allow"]
        assert sorted(made) == [
            ("ask_approved", "grant tool:Bash:make -v", "a test"),
            ("ask_approved", "human: session", "a test"),
            ("ask_denied", "human: deny", "a test"),
        ]


async def test_what_an_agent_may_do_in_this_session_its_parent_may_too(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        spawn = answer(tool_use("PersistentAgent", preset="helper", description="x", prompt="Make it."))
        await talk.say(
            spawn, bash("make -v"), "made", bash("make -v"), "Done", grants=world.granted("tool:Pers.*").grants
        )
        ask = await talk.ask()
        assert ask["agent"].startswith("helper-") and ask["description"] == "x"
        await service.answer(talk.watcher, ask=ask["id"], decision="session")
        await talk.end()
        agent = paths.ref_of(Path(ask["branch"]))
        (grant,) = (await service.grants(talk.watcher, branch=agent.key))["grants"]
        assert grant["ask"] == ask["id"] and talk.branch.conversation.session["permissions_json"]
        decisions = await talk.decisions()
        assert decisions[1:] == [
            ("ask_approved", "human: session", "a test"), ("allow", "grant tool:Bash:make -v", None),
        ]  # fmt: skip
        rows_of_agent = (await service.audit(talk.watcher, session=agent.key))["decisions"]
        assert [row["agent"] for row in rows_of_agent] == [agent.session_id]
        assert rows_of_agent[0]["session"] == talk.branch.ref.session_id


async def test_an_answer_that_comes_too_late_grants_nothing(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(bash("make -v"), "Done")
        ask = await talk.ask()
        both = await asyncio.gather(
            service.answer(talk.watcher, ask=ask["id"], decision="session"),
            service.answer(talk.watcher, ask=ask["id"], decision="deny"),
            return_exceptions=True,
        )
        await talk.end()
        assert both[1] == {"accepted": True} and isinstance(both[0], NotFound)
        assert (await service.grants(talk.watcher, branch=talk.branch.key))["grants"] == []


async def test_edited_arguments_are_what_happens_and_the_model_is_told(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(bash("echo one"), "Done")
        await talk.answer("allow", input='{"command": "echo two"}')
        said = await talk.end()
        assert (
            "two" in said and "one" not in said and 'changed the arguments before allowing this: {"command"' in said
        )
        assert await talk.decisions() == [("ask_approved", "human: allow, edited", "a test")]


WRONG_EDITS = [
    ("{", "not JSON"),
    ("[]", "must be an object"),
    ('{"command": 1}', "command"),
    ('{"file": "x"}', "command"),
    ('{"command": "cat < /etc/shadow"}', "No answer can allow this"),
]


@pytest.mark.parametrize(("text", "said"), WRONG_EDITS)
async def test_edited_arguments_are_checked_and_decided_anew(
    world: World, service: Service, text: str, said: str
) -> None:
    async with talking(world, service) as talk:
        await talk.say(bash("echo one"), "Done")
        ask = await talk.ask()
        with pytest.raises(BadRequest, match=said):
            await service.answer(talk.watcher, ask=ask["id"], decision="allow", input=text)
        assert (await service.asks(talk.watcher))["asks"], "the question stays open"
        with pytest.raises(BadRequest, match="allowed once"):
            await service.answer(talk.watcher, ask=ask["id"], decision="always", input='{"command": "echo"}')
        await talk.answer("deny")
        await talk.end()


async def test_an_answer_does_not_overrule_a_rule_that_was_made_meanwhile(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(answer(tool_use("Write", file_path="a.txt", content="x")), "Done")
        await talk.ask()
        preset = talk.branch.ref.branch_dir / "preset.md"
        preset.write_text(preset.read_text().replace("  deny:\n", '  deny:\n    - "**/a.txt"\n', 1))
        await talk.answer("allow")
        assert (await talk.end()).startswith("The user allowed this, but: Write may not touch")
        assert not (world.project / "a.txt").exists()
        assert await talk.decisions() == [("deny", "deny", None)]


@pytest.mark.parametrize(
    ("now", "after"), [("mine\n", "mine\n"), ("one\nmine\n", "one\nmine\n")], ids=["another", "with more"]
)
async def test_a_file_that_changed_while_its_change_was_asked_about_is_left(
    world: World, service: Service, now: str, after: str
) -> None:
    async with talking(world, service) as talk:
        file = world.project / "a.txt"
        file.write_text("one\n")
        await talk.say(answer(tool_use("Write", file_path="a.txt", content="new\n")), "Done")
        await talk.ask()
        file.write_text(now)
        await talk.answer("allow")
        assert "no longer what they were shown" in await talk.end()
        assert file.read_text() == after
        assert [(decided, rule) for decided, rule, _ in await talk.decisions()] == [("deny", "changed")]


async def test_a_passage_that_is_as_it_was_shown_is_replaced_whatever_else_changed(
    world: World, service: Service
) -> None:
    async with talking(world, service) as talk:
        file = world.project / "a.txt"
        file.write_text("one\n")
        await talk.say(answer(tool_use("Edit", file_path="a.txt", old_string="one", new_string="two")), "Done")
        await talk.ask()
        file.write_text("mine\none\nmine\n")
        await talk.answer("allow")
        await talk.end()
        assert file.read_text() == "mine\ntwo\nmine\n"


async def test_while_the_rules_cannot_be_read_nothing_is_allowed(world: World, service: Service) -> None:
    (world.project / "a.txt").write_text("alpha")
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"

        def break_it(request: Any) -> Any:
            preset.write_text("---\npaths: [\n---\n")
            return answer(tool_use("Read", file_path="a.txt"))

        await talk.say(break_it, "Done")
        assert "preset.md:" in (said := await talk.end()) and "cannot be read" in said
        assert await talk.decisions() == [("deny", "scope", None)]


async def test_the_scope_is_read_again_at_every_call(world: World, service: Service) -> None:
    outside = world.home / "outside.txt"
    outside.write_text("far")
    async with talking(world, service) as talk:
        preset = talk.branch.ref.branch_dir / "preset.md"
        before = preset.read_text()

        def widen(request: Any) -> Any:
            assert "outside `paths.read`" in results(request)[-1]
            preset.write_text(before.replace('read: ["', f'read: ["{outside}", "', 1))
            return answer(tool_use("Read", file_path=str(outside)))

        def narrow(request: Any) -> Any:
            assert "far" in results(request)[-1]
            preset.write_text(before)
            return answer(tool_use("Read", file_path=str(outside)))

        await talk.say(answer(tool_use("Read", file_path=str(outside))), widen, narrow, "Done")
        assert "outside `paths.read`" in await talk.end()


async def test_aborting_with_a_question_open_is_noted(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(bash("make"))
        await talk.ask()
        await service.abort(talk.watcher, branch=talk.branch.key)
        await talk.watcher.finished(talk.branch)
        assert await talk.decisions() == [("ask_denied", "abort", None)]


async def test_who_is_not_there_is_not_asked(world: World, service: Service) -> None:
    async with talking(world, service) as talk:
        await talk.say(bash("make"), "Done", interactive=False)
        assert "needs a human's approval" in await talk.end()
        assert await talk.decisions() == [("deny", "headless", None)]


@pytest.mark.parametrize(
    ("kind", "resource", "decision", "said"),
    [
        ("read", "a.txt", "allow", "inside the scope"),
        ("read", "/etc/hostname", "deny", "outside `paths.read`"),
        ("write", "a.txt", "ask", "approval"),
        ("write", "../x", "deny", "outside `paths.write`"),
        ("command", "ls | wc", "ask", "approval"),
        ("command", "make", "allow", "A grant covers it: tool:Bash:make"),
        ("command", "", "deny", "no command"),
    ],
)
async def test_what_the_guard_would_say(
    world: World, service: Service, kind: str, resource: str, decision: str, said: str
) -> None:
    ref = await session(world, service)
    await world.kernel.grants.remember("project", ref, world.project, ["tool:Bash:make"], ask="", by="")
    told = await service.scope_check(Watcher(), branch=ref.key, kind=kind, resource=resource)
    assert told["decision"] == decision and said in told["reason"]


async def test_a_wrong_check_says_what_is_wrong(world: World, service: Service) -> None:
    ref = await session(world, service)
    with pytest.raises(BadRequest, match="read, write, command"):
        operation("scope-check", service.scope_check).bind_named({"branch": "b", "kind": "eat", "resource": "x"})
    with pytest.raises(BadRequest, match="NUL"):
        await service.scope_check(Watcher(), branch=ref.key, kind="read", resource="a\0b")
