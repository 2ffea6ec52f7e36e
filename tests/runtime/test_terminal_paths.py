"""However an agent ends, its parent gets exactly one result, no overlay is left, and nothing goes on.

One table of every way to end; ``tests/e2e/test_terminal_paths.py`` has those that need processes to kill, with a real
Emacs. What Emacs would show is told from the events a client gets, by the same three rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pyagentd.errors import StoreError
from pyagentd.events import Event
from pyagentd.features.agents import AgentSpawner
from pyagentd.llm.backend import RetryPolicy
from pyagentd.runtime import run_setup
from pyagentd.runtime.approvals import Answer as Answered
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import RunEnded
from pyagentd.runtime.recorder import Recorder
from pyagentd.runtime.run import AnswerRecorder, RunPhase
from pyagentd.store.paths import BranchRef
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.spec import ToolSpec
from tests.runtime.delegation import GRANT, agent_of, ends, results, spawn
from tests.runtime.world import OVERLOADED, Watcher, World, assert_closed, attached, rows
from tests.server import answer, refusal, text, tool_use

Fault = Callable[[World, pytest.MonkeyPatch], None]

LOOK = answer("I look.", tool_use("Read", file_path="a.txt"))
HANGS = answer(text("Hello", chunks=2), hang_after=4)
ASKS = answer(tool_use("Bash", command="true"))


def nothing(world: World, patch: pytest.MonkeyPatch) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Ending:
    """A way an agent ends.

    Attributes:
        name: What happens.
        result: What the parent is told, a regular expression.
        says: What the agent's model says.
        fault: Brings it about.
        parent: How the parent's run ends.
        preset: Lines of the agent's preset.
        act: What a person does while the agent hangs, see ``ACTS``.
    """

    name: str
    result: str
    says: Sequence[Any] = ("found",)
    fault: Fault = nothing
    parent: str = "done"
    preset: str = ""
    act: str = ""


# -- how things go wrong -------------------------------------------------------------------------------------------


def _is_agent(branch: Any, *_: Any) -> bool:
    return isinstance(branch, LiveBranch) and branch.ref.is_agent


def _of_agent(recorder: Recorder) -> bool:
    return bool(recorder.conversation.session.get("parent_id"))


def _of_its_run(recorder: Recorder, kind: str, *_: Any) -> bool:
    return _of_agent(recorder) and kind == "part" and bool(recorder.conversation.runs)


def _is_typing(branch: LiveBranch, event: Event) -> bool:
    return _is_agent(branch) and event.kind == "status" and _state_of(event) is RunPhase.TYPE


def _is_helper(recorded: AnswerRecorder, *_: Any) -> bool:
    return "model-helper" in str(recorded.model)


def stopped_at(state: RunPhase, who: str) -> Fault:
    """The agent, or its parent, is stopped at the moment the agent gets into ``state``."""

    def fault(world: World, patch: pytest.MonkeyPatch) -> None:
        publish = LiveBranch.publish
        done: list[bool] = []

        def stopping(self: LiveBranch, event: Event) -> None:
            publish(self, event)
            if not _is_agent(self) or done or _state_of(event) != state:
                return
            done.append(True)
            assert isinstance(self, LiveBranch)
            stopped = self if who == "agent" else world.kernel.opened(str(self.ref.branch_dir.parent.parent))
            assert stopped is not None
            stopped.stop()

        patch.setattr(LiveBranch, "publish", stopping)

    return fault


def _state_of(event: Event) -> RunPhase | None:
    told = event.args[0] if event.args else None
    if not isinstance(told, Mapping):
        return None
    if event.kind == "run" and told.get("phase") == "started":
        return RunPhase.INIT
    if event.kind == "run" and told.get("phase") == "finished":
        return RunPhase.DONE
    return RunPhase(told["phase"]) if event.kind == "status" and "phase" in told else None


def raising(owner: type, name: str, error: Exception, when: Callable[..., bool]) -> Fault:
    """A method raises for the agent."""

    def fault(world: World, patch: pytest.MonkeyPatch) -> None:
        whole = getattr(owner, name)

        def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
            if when(self, *args):
                raise error
            return whole(self, *args, **kwargs)

        patch.setattr(owner, name, broken)

    return fault


def tool_raises(world: World, patch: pytest.MonkeyPatch) -> None:
    async def run(*args: Any) -> str:
        raise RuntimeError("no such luck")

    def tools() -> dict[str, ToolSpec]:
        return {name: replace(spec, run=run) if name == "Read" else spec for name, spec in builtin_tools().items()}

    patch.setattr(run_setup, "builtin_tools", tools)


def listener_raises(world: World, patch: pytest.MonkeyPatch) -> None:
    def fail(ended: RunEnded) -> None:
        raise RuntimeError("no such luck")

    world.kernel.bus.on(RunEnded, fail)


DISK, BUG = StoreError("no space left on device"), RuntimeError("no such luck")

_ABORTED = r"Error: User aborted agent\Z"
_FAILED = r"Error: Agent failed\n.*no such luck"
_STORE = r"Error: Agent failed\n.*no space left"

ENDINGS = [
    Ending("success", r"I look\.\n\nfound\Z", (LOOK, "found")),
    Ending("empty answer", r"\(the agent finished without saying anything\)\Z", (answer(),)),
    Ending("refusal of the model", r"half", (answer("half", stop_reason="refusal"),)),
    Ending("provider refuses", r"Error: API failure\n.*no such model", (refusal(400, "x", "no such model"),)),
    Ending("provider overloaded for good", r"Error: Network failure\n", (OVERLOADED,) * 12),
    Ending("cut before the answer", r"Error: Network failure\n", (answer("found", cut_after=1),) * 12),
    Ending("cut in the middle", r"Error: Network failure\n", (answer(text("found", chunks=3), cut_after=5),) * 12),
    Ending("end without a stop", r"Error: Network failure\n", (answer(text("found", chunks=3), end_after=5),) * 12),
    Ending("out of turns", r"Error: .*turn limit", (LOOK, LOOK), preset="max-turns: 1"),
    *(
        Ending(f"agent stopped in {state}", _ABORTED, (LOOK, "found"), stopped_at(state, "agent"))
        for state in (RunPhase.INIT, RunPhase.WAIT, RunPhase.TYPE, RunPhase.TOOL, RunPhase.TRET)
    ),
    Ending("agent stopped when it is done", r"found\Z", ("found",), stopped_at(RunPhase.DONE, "agent")),
    *(
        Ending(
            f"parent stopped while the agent is in {state}",
            "abort",
            (LOOK, "found"),
            stopped_at(state, "parent"),
            "aborted",
        )
        for state in (RunPhase.INIT, RunPhase.WAIT, RunPhase.TYPE, RunPhase.TOOL, RunPhase.TRET, RunPhase.DONE)
    ),
    Ending("agent stopped while it asks", _ABORTED, (ASKS,), act="abort agent"),
    Ending("agent stopped while its model is silent", _ABORTED, (HANGS,), act="abort agent"),
    Ending("parent stopped while its agent asks", "abort", (ASKS,), parent="aborted", act="abort parent"),
    Ending("exception in a tool", r"I look\.\n\nfound\Z", (LOOK, "found"), tool_raises),
    Ending(
        "exception where answers are taken",
        _FAILED,
        (LOOK, "found"),
        raising(AnswerRecorder, "take", BUG, _is_helper),
    ),
    Ending(
        "exception where progress is told", _FAILED, (LOOK, "found"), raising(LiveBranch, "publish", BUG, _is_typing)
    ),
    Ending("exception in a listener", r"found\Z", ("found",), listener_raises),
    Ending("the disk refuses the answer", _STORE, (LOOK, "found"), raising(Recorder, "record", DISK, _of_its_run)),
    Ending("the disk refuses to make it safe", _STORE, (LOOK, "found"), raising(Recorder, "commit", DISK, _of_agent)),
    Ending(
        "the disk refuses the end",
        r"Error: Agent failed\n.*no space left",
        ("found",),
        raising(LiveBranch, "finish_run", DISK, _is_agent),
    ),
    Ending("exception in the recorder", _FAILED, (LOOK, "found"), raising(Recorder, "record", BUG, _of_its_run)),
    Ending(
        "exception where the end is recorded", _FAILED, ("found",), raising(LiveBranch, "finish_run", BUG, _is_agent)
    ),
    Ending("the daemon is stopped", "The daemon ended", (HANGS,), parent="aborted", act="stop daemon"),
    Ending("the parent's buffer is killed", r"found\Z", (ASKS, "found"), act="detach"),
    Ending("Emacs is gone", r"found\Z", (ASKS, "found"), act="forget"),
]


# -- the test ------------------------------------------------------------------------------------------------------


class Overlays(Watcher):
    """A client that keeps the agents it shows, as Emacs does."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: set[str] = set()
        self.ever: set[str] = set()

    def push(self, event: Event) -> None:
        told = event.args[0] if event.args else {}
        if event.kind == "agent" and told["state"] == "finished":
            self.shown.discard(told["id"])
        elif event.kind == "agent":
            self.shown.add(told["id"])
            self.ever.add(told["id"])
        elif event.kind == "run" and told["phase"] == "finished":
            self.shown.clear()
        super().push(event)


@pytest.mark.spec("000", "Overlay always cleaned up")
@pytest.mark.spec("000", "Overlay deleted on all completion paths")
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
async def test_every_end_is_one_result_and_no_overlay(
    world: World, monkeypatch: pytest.MonkeyPatch, ending: Ending
) -> None:
    world.preset("helper", model="model-helper", temperature=f"0.1\n{ending.preset}", tools="Read, Bash")
    said = iter([answer(each) if isinstance(each, str) else each for each in ending.says])
    world.server.rule = lambda request: (
        next(said, answer("found")) if request.body["model"] == "model-helper" else answer("Done")
    )
    world.server.say(answer(spawn()))
    ref, watcher = world.session(), Overlays()
    monkeypatch.setattr(RetryPolicy, "delay", lambda *_: 0.0)
    ending.fault(world, monkeypatch)
    await play(world, ref, watcher, ending)
    monkeypatch.undo()

    assert one_result(ref, ending), "exactly one, and what it should say"
    assert_closed(ref)
    assert (
        world.kernel.feature(AgentSpawner).running(ref.key) == []
        and not world.kernel.runs
        and not world.kernel.asks.all()
    )
    if ending.act not in ("detach", "forget"):
        assert watcher.ever and not watcher.shown
        assert [event.args[0]["state"] for event in watcher.of("agent", ref.key)].count("finished") == 1
    if ending.parent == "done":
        assert len(results(world.server.last)) == 1 and re.match(ending.result, results(world.server.last)[0])
    await opened_later(world, ref)


async def play(world: World, ref: BranchRef, watcher: Overlays, ending: Ending) -> None:
    """Have the parent delegate, the agent end, and wait until nothing goes on."""
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Delegate.", options=world.granted(GRANT))
        if ending.act:
            await act(world, branch, watcher, ending)
            return
        await watcher.until(lambda: ends(watcher, ref))
        assert [each["reason"] for each in ends(watcher, ref)] == [ending.parent]
        branch.detach(watcher)


async def act(world: World, branch: LiveBranch, watcher: Overlays, ending: Ending) -> None:
    """Do what a person, or the system, does while the agent hangs."""
    await watcher.until(lambda: watcher.of("agent"))
    agent = world.kernel.opened(watcher.of("agent")[0].args[0]["branch_dir"])
    assert agent is not None
    await attached(agent, watcher)
    await watcher.until(lambda: agent.status["state"] == "waiting" or "Hel" in watcher.text(agent.key))
    parent = branch.task
    assert parent is not None
    match ending.act:
        case "abort agent":
            await world.kernel.abort(agent)
        case "abort parent":
            await world.kernel.abort(branch)
        case "stop daemon":
            await world.kernel.shutdown()
        case "detach" | "forget":
            watcher.shown.clear()  # its buffer, or its Emacs, is gone
            world.kernel.forget(watcher) if ending.act == "forget" else branch.detach(watcher)
            (ask,) = world.kernel.asks.open_for(agent.key)
            world.kernel.asks.answer(ask["id"], Answered(decision="allow"))
    outcome = await parent
    assert outcome.reason == ending.parent


def one_result(ref: BranchRef, ending: Ending) -> bool:
    """Whether the parent's log has one end of its call, and the one that is wanted."""
    calls = [row.data for row in rows(ref) if row.type == "part" and row.data["type"] == "tool-PersistentAgent"]
    ended = [call["data_json"] for call in calls if call["data_json"]["state"].startswith("output-")]
    assert len(ended) == 1, ended
    told = ended[0].get("output") or ended[0].get("errorText")
    assert re.search(ending.result, str(told), re.DOTALL), told
    return True


async def opened_later(world: World, ref: BranchRef) -> None:
    """Whoever opens both next finds every run ended and nothing doubled."""
    await world.kernel.shutdown()
    kernel = world.start()
    async with kernel.using(ref):
        pass
    agent = agent_of(ref)
    async with kernel.using(agent):
        pass
    if any(row.type == "run" for row in rows(agent)):
        assert_closed(agent)
    assert_closed(ref)
