"""Sub-agents: the tools that create them, their runs, their results, and which agents a session has.

An agent is a session of its own below its parent's branch. ``PersistentAgent`` and ``task`` create one; its progress
is sent to its clients and its parent's. If the parent does not wait for it, its result comes as a message.
"""

import asyncio
import contextlib
import json
import logging
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from pyagentd.errors import (
    BadRequest,
    BudgetSpent,
    PresetError,
    ProviderError,
    PyagentdError,
    StoreError,
    ToolError,
    TransientProviderError,
    UserError,
)
from pyagentd.events import Event
from pyagentd.messages import ToolCall
from pyagentd.policy.action import Target, validate_pattern
from pyagentd.policy.presets import Commands, Preset, Result, WantedServers
from pyagentd.policy.shell import ANY
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchOpened, Feature, RunEnded, RunMoved, RunStarted
from pyagentd.runtime.opening import RESTARTED
from pyagentd.runtime.presets import ProjectPresets, answers_next, inherited_metadata
from pyagentd.runtime.queue import QueueStopped, Submission
from pyagentd.runtime.settings import SendOptions, backend_for, provider_of
from pyagentd.runtime.status import BY_PARENT, Outcome
from pyagentd.store import paths, presetfile, sessions
from pyagentd.store.conversation import Conversation, Message, RunState, read_conversation
from pyagentd.store.metadata import agents_by_call, child_agents
from pyagentd.store.paths import BranchRef
from pyagentd.store.presetfile import DEFAULT_WRITE
from pyagentd.tools.spec import DAY_S, Args, Output, ToolContext, ToolSpec, object_schema
from pyagentd.wire.sexp import encode
from pyagentd.words import quantity

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder


# The PersistentAgent tool: a sub-agent with a session of its own; ``task`` is the same tool with another schema.
#
# Everything is validated before the first side effect; the agent's ``preset.md`` is the only source of its
# configuration; its answer is the tool's result. The tool needs the loop, so it lives here and not in ``tools``.


log = logging.getLogger(__name__)

MAX_DEPTH = 5
_KINDS = {TransientProviderError.code: "Network failure", ProviderError.code: "API failure"}  # by an error's code

_LATER = "comes as a message when the agent has finished"
_WILD = re.compile(r"[*?\[{]")

DESCRIPTION = """\
Delegate a self-contained task to a sub-agent. It works in its own session with its own preset, tools and scope, \
sees nothing of this conversation, and its answer comes back as this tool's result. Give it everything it needs to \
know in `prompt`. Several calls in one answer run in parallel. Presets:
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The arguments of a call that spawns an agent."""

    preset: str
    description: str
    prompt: str
    read: tuple[str, ...] | None = None  # paths that the agent may read; None: its parent's
    deny: tuple[str, ...] = ()
    background: bool = False  # the parent does not wait for it
    call_id: str = ""  # the call that spawns it, for the child's session row
    metadata: Mapping[str, Any] = field(default_factory=dict)  # the caller's own, for the child's session row
    values: Mapping[str, Any] = field(default_factory=dict)  # keys that replace those of the template's preset.md
    message: Mapping[str, Any] = field(default_factory=dict)  # metadata of the message with the prompt


def validate(wanted: Assignment, known: Collection[str]) -> None:
    """Check an assignment before anything is created; ``known`` are names of presets.

    Raises:
        BadRequest: An argument is invalid; the message begins with its name in PersistentAgent's schema.
    """
    for name, text in (("prompt", wanted.prompt), ("description", wanted.description)):
        if not text.strip():
            raise BadRequest(f"{name} is empty", hint="Say what the agent is to do")
    if wanted.preset not in known:
        raise PresetError(
            f"preset: there is none called {wanted.preset!r} for agents",
            hint=f"Known: {', '.join(sorted(known)) or 'none'}",
        )
    for name, patterns in (("allowed_paths", wanted.read or ()), ("denied_paths", wanted.deny)):
        for pattern in patterns:
            try:
                validate_pattern(pattern)
            except BadRequest as error:
                raise BadRequest(f"{name}: {error.message}", hint=error.hint) from None


def _agent_tool(
    spawner: "ParentSpawner",
    presets: Mapping[str, Preset],
    *,
    depth: int,
    name: str,
    schema: Callable[[Sequence[str]], Mapping[str, Any]],
    wanted: Callable[[Args, str], Assignment],
    output_of: Callable[[Outcome], Output],
) -> ToolSpec:
    """Return a tool that spawns agents, for one run of a branch that is ``depth`` agents below its root.

    ``schema`` makes the input schema from the names of the ``presets``, ``wanted`` reads a call's arguments and id,
    ``output_of`` turns the agent's outcome into the call's result.
    """
    listing = "\n".join(f"- {each}: {preset.description}" for each, preset in sorted(presets.items()))

    async def run(args: Args, ctx: ToolContext) -> Output:
        assignment = wanted(args, ctx.call_id)
        try:
            if not assignment.background:
                return output_of(await spawner.run_agent(assignment))
            ref, _ = await spawner.launch(assignment)
            started = {"session_id": ref.session_id, "state": "running", "result": _LATER}
            return Output(text=json.dumps(started), brief="→ in the background")
        except PyagentdError as error:  # it could not be made or started
            log.error("agent %s: %s", assignment.preset, error)
            raise ToolError(f"Error: {error}") from error

    def describe(args: Args, ctx: ToolContext) -> Target:
        if depth >= MAX_DEPTH:
            raise ToolError(f"Agents may be nested {MAX_DEPTH} deep; do this task yourself")
        assignment = wanted(args, "")
        try:
            validate(assignment, presets)
        except UserError as error:
            raise ToolError(str(error)) from None
        # A permission that is remembered for this text must not let another agent read more than the user approved.
        widened = _beyond(assignment.read, spawner.reads())
        return Target(detail=" reading ".join(filter(None, (assignment.preset, widened))))

    def preview(args: Args, ctx: ToolContext) -> str:
        assignment = wanted(args, "")
        return _preview(assignment, presets.get(assignment.preset))

    return ToolSpec(
        name=name,
        description=DESCRIPTION + listing,
        input_schema=schema(sorted(presets)),
        kind="meta",
        confirm=True,
        parallel_safe=True,
        timeout_s=DAY_S,
        run=run,
        describe=describe,
        preview=preview,
    )


def _assignment(args: Args, call_id: str) -> Assignment:
    read = args.get("allowed_paths")
    return Assignment(
        preset=args["preset"],
        description=args["description"],
        prompt=args["prompt"],
        read=None if read is None else tuple(read),
        deny=tuple(args.get("denied_paths") or ()),
        background=bool(args.get("background")),
        call_id=call_id,
    )


def _beyond(wanted: Sequence[str] | None, own: Sequence[str]) -> str:
    """Return the patterns of ``wanted`` that may match outside ``own``, as text for people; "" if none does."""
    if wanted is None:
        return ""
    if not wanted:
        return "everything"
    return ", ".join(pattern for pattern in wanted if not _within(pattern, own))


def _within(pattern: str, own: Sequence[str]) -> bool:
    trees = (place.removesuffix("**") for place in own if place.endswith("/**") and not _WILD.search(place[:-3]))
    return pattern in own or (".." not in pattern.split("/") and any(map(pattern.startswith, trees)))


def result_of(outcome: Outcome) -> Output:
    """Return an agent's outcome as the tool's result."""
    match outcome.reason:
        case "done":
            text = outcome.text or "(the agent finished without saying anything)"
            return Output(
                text=text, brief=f"· done, {quantity(outcome.tools, 'tool')}" if outcome.tools else "· done"
            )
        case "aborted":
            who = BY_PARENT if outcome.message == BY_PARENT else "User aborted agent"
            return Output(text=f"Error: {who}", ok=False)
        case "error" if outcome.code == BudgetSpent.code:
            return Output(text=f"Error: {outcome.message}\n{outcome.text}".rstrip(), ok=False)
        case "error":
            kind = _KINDS.get(outcome.code, "Agent failed")
            return Output(text=f"Error: {kind}\n{_plist(outcome)}", ok=False)


def _plist(outcome: Outcome) -> str:
    """Return an error as a Lisp plist in one line: ``(:error (:code CODE :message TEXT))``."""
    return encode({"error": {"code": outcome.code, "message": outcome.message}}).decode().replace("\n", "\\n")


def _preview(wanted: Assignment, preset: Preset | None) -> str:
    """Return what a human should know before the agent starts, its permissions first."""
    lines = ["Runs in the background: its result comes as a message"] if wanted.background else []
    match wanted.read:
        case None:
            lines.append("May read: what this session may read")
        case ():
            lines.append("May read: EVERYTHING (the model asked for no restriction)")
        case patterns:
            lines.append(f"May read: {', '.join(patterns)}")
    if preset is not None:
        # A preset without write paths gets the default; here it looks the same as one that allows no writes.
        writes = ", ".join(preset.paths.write) or f"{', '.join(DEFAULT_WRITE)} at most"
        lines += [f"May write: {writes}", f"May run: {_runs(preset.shell)}"]
        lines.append(f"Tools: {', '.join(preset.tools) or 'none'}")
        lines += _servers(preset.mcp)
    return "\n".join([*lines, "", wanted.prompt])


def _servers(wanted: WantedServers | None) -> list[str]:
    """Return the agent's MCP servers: their tools can act outside its scope."""
    if wanted is None or wanted == WantedServers():
        return []
    own = (f"{each.name} ({shlex.join(each.command) or each.url})" for each in wanted.own)
    return [f"MCP servers: {', '.join(('all', *own) if wanted.all else (*wanted.names, *wanted.only, *own))}"]


def _runs(shell: Commands) -> str:
    """Return which commands an agent may run, and whether they have the network and are confined."""
    if not shell.allow:
        return "nothing"
    what = "ANY COMMAND" if ANY in shell.allow else ", ".join(shell.allow)
    return what + (", with the NETWORK" if shell.network else "") + ("" if shell.confine else ", NOT CONFINED")


_BACKGROUND = {
    "type": "boolean",
    "description": "Do not wait: you get its session_id now and its result later, as a message",
}


def _schema(names: Sequence[str]) -> dict[str, Any]:
    patterns = {"type": "array", "items": {"type": "string"}}
    return object_schema(
        {
            "preset": {"type": "string", "enum": list(names), "description": "Which kind of agent"},
            "description": {"type": "string", "description": "The task in three to five words"},
            "prompt": {"type": "string", "description": "The whole task, for a reader who knows nothing else"},
        },
        {
            "allowed_paths": patterns | {"description": "Absolute glob patterns it may read; default: yours"},
            "denied_paths": patterns | {"description": "Absolute glob patterns it may never touch"},
            "background": _BACKGROUND,
        },
    )


# The ``task`` tool: models know it from other agent programs; it spawns the same agents as PersistentAgent.
#
# ``task({subagent_type, prompt, background?, metadata?})`` returns ``{output}``, or ``{session_id}`` of an agent in
# the background. The agent may read what its parent may; everything else comes from the preset, as for any agent.

NAME = "task"

_DESCRIBED = 60  # characters of a prompt in a title


def as_output(outcome: Outcome) -> Output:
    """Return an agent's outcome as the result of ``task``; an error is not wrapped in JSON."""
    output = result_of(outcome)
    return replace(output, text=json.dumps({"output": output.text}, ensure_ascii=False)) if output.ok else output


def short_title(prompt: str) -> str:
    """Return a title for a prompt: the beginning of its first line."""
    line = " ".join(next(filter(str.strip, prompt.splitlines()), "").lstrip("#").split())
    if len(line) <= _DESCRIBED:
        return line or "task"
    return line[:_DESCRIBED].rsplit(" ", 1)[0]


def _task_assignment(args: Args, call_id: str) -> Assignment:
    return Assignment(
        preset=args["subagent_type"],
        description=short_title(args["prompt"]),
        prompt=args["prompt"],
        background=bool(args.get("background")),
        call_id=call_id,
        metadata=args.get("metadata") or {},
    )


def _task_schema(names: Sequence[str]) -> dict[str, Any]:
    return object_schema(
        {
            "subagent_type": {"type": "string", "enum": list(names), "description": "Which kind of agent"},
            "prompt": {
                "type": "string",
                "minLength": 1,
                "description": "The whole task, for a reader who knows nothing else",
            },
        },
        {
            "background": _BACKGROUND,
            "metadata": {"type": "object", "description": "Kept with the agent's session; nobody acts on it"},
        },
    )


persistent_agent = partial(
    _agent_tool, name="PersistentAgent", schema=_schema, wanted=_assignment, output_of=result_of
)
task = partial(_agent_tool, name=NAME, schema=_task_schema, wanted=_task_assignment, output_of=as_output)


# The outcome of an agent's run, read from its log: what its parent gets.


def outcome_of(conversation: Conversation, run: RunState | None, wanted: Result) -> Outcome | None:
    """Return how a recorded run ended and its ``answer_text``; None for no run, or one that has not finished."""
    if run is None or not run.is_finished:
        return None
    text = answer_text(conversation, run, wanted)
    error: Mapping[str, Any] = run.data.get("error") or {}
    if run.data.get("reason") == "aborted":
        return Outcome(reason="aborted", text=text, message=BY_PARENT if error.get("message") == BY_PARENT else "")
    if not error:  # also if the document has its end and the log has not
        return Outcome(reason="done", text=text)
    return Outcome(
        reason="error", text=text, code=str(error.get("code") or ""), message=str(error.get("message") or "")
    )


def answer_text(conversation: Conversation, run: RunState, wanted: Result) -> str:
    """Return the model's text in a run: all of it, or, for "last", what followed its last tool call."""
    texts: list[str] = []
    for message in answers_of(conversation, run):
        for part in message.parts:
            if part.is_tool and wanted == "last":
                texts = []
            elif part.type == "text" and part.text:
                texts.append(part.text)
    return "\n\n".join(texts)


def answers_of(conversation: Conversation, run: RunState) -> list[Message]:
    """Return the model's messages between a run's prompt and the next one; steering messages are no prompts."""
    found: list[Message] = []
    inside = False
    for message in conversation.messages.values():
        if message.role == "user":
            steered = inside and message.metadata.get("steered") == run.data["id"]
            inside = steered or message.id == run.data["message_id"]
        elif inside:
            found.append(message)
    return found


def agents_in(message: Message) -> tuple[str, ...]:
    """Return the agents whose results a message reports."""
    found = message.metadata.get("agents")
    return tuple(found) if isinstance(found, list) else ()


# The agents below a branch, at any depth, with their states; reads their logs, blocks.

AgentState = Literal["running", "waiting", "finished", "aborted", "error", "idle"]

_ENDED: Mapping[str, AgentState] = {"done": "finished", "aborted": "aborted", "error": "error"}


class AgentNode(TypedDict):
    """An agent of a branch, with those below it."""

    id: str
    branch: str
    branch_dir: str
    preset: str | None
    description: str | None
    state: AgentState
    background: bool  # its parent does not wait for the result
    call_id: str | None  # the tool call that spawned it
    tokens: int  # sum of all its runs
    result: str | None  # of its last run, as its parent gets it
    agents: "list[AgentNode]"


def agents_below(
    ref: BranchRef, opened: Mapping[str, tuple[str, Conversation]], wanted: Callable[[BranchRef], Result]
) -> list[AgentNode]:
    """Return the agents of a branch by name, each with its own agents in ``agents``.

    ``opened`` maps the keys of open branches to their state and conversation; ``wanted`` returns which text of an
    agent is its result.
    """
    found: list[AgentNode] = []
    for child in child_agents(ref):
        state, conversation = opened.get(child.key) or ("idle", read_conversation(child))
        session = conversation.session
        outcome = outcome_of(conversation, conversation.last_run, wanted(child))
        usages = (message.metadata.get("usage") for message in conversation.messages.values())
        found.append(
            {
                "id": child.session_id,
                "branch": child.key,
                "branch_dir": str(child.branch_dir),
                "preset": session.get("agent") or None,
                "description": session.get("description") or None,
                "state": _state(state, conversation, outcome),
                "background": bool(session.get("background")),
                "call_id": session.get("parent_call_id") or None,
                "tokens": sum(sum(usage.values()) for usage in usages if usage),
                "result": None if outcome is None else result_of(outcome).text,
                "agents": agents_below(child, opened, wanted),
            }
        )
    return found


def _state(status: str, conversation: Conversation, outcome: Outcome | None) -> AgentState:
    match status:
        case "busy" | "retrying":
            return "running"
        case "waiting":
            return "waiting"
    if outcome is not None:
        return _ENDED[outcome.reason]
    # A run without an end that is not in flight: its daemon stopped, and it resumes when the branch is opened.
    return "waiting" if any(ask["decision"] is None for ask in conversation.asks.values()) else "idle"


# Background agents: their parents do not wait for them, and get each result as a message, exactly once.
#
# The parent's log records which results are still owed (``agent`` rows, ``Conversation.agents``), so none is lost
# when the daemon stops in between. A result is submitted like any other message, and queued while the parent is busy;
# consecutive results in the queue become one message. A parent gets no result of agents that its user stopped with
# it: the message would start it again.

Debt = Literal["running", "delivered", "dropped"]


@dataclass(slots=True, kw_only=True, eq=False)
class _Settling:
    """A waiter for the end of all work below an agent."""

    woken: list[asyncio.Task[Outcome]]  # runs that answer results and began after the agent's run
    moved: asyncio.Event = field(default_factory=asyncio.Event)


def _answering(branch: LiveBranch) -> list[asyncio.Task[Outcome]]:
    """Return the run in flight of a branch if it answers the results of agents."""
    run, task = branch.conversation.last_run, branch.task
    message = branch.conversation.messages.get(run.data["message_id"]) if run else None
    return [task] if task is not None and not task.done() and message is not None and agents_in(message) else []


class Background:
    """The background agents of all branches."""

    def __init__(self, kernel: "Kernel", agents: "AgentSpawner") -> None:
        self._agents = agents
        self._kernel = kernel
        kernel.bus.on(BranchOpened, self.recover)
        kernel.bus.on(RunEnded, self._run_ended)
        kernel.bus.on(QueueStopped, lambda stopped: self.moved(stopped.branch.key))
        # By the parent's key:
        self._alive: dict[str, set[str]] = {}  # ids of running background agents
        self._options: dict[str, SendOptions] = {}  # of the last run that spawned an agent
        # By the agent's key:
        self._dropped: set[str] = set()  # agents that are being stopped with their parent
        self._settling: dict[str, list[_Settling]] = {}  # agents whose result waits for agents below them
        kernel.bus.on(RunStarted, self._run_started, of=self._settling)

    def begin(
        self, parent: LiveBranch, child: BranchRef, wanted: Assignment, run_id: str, options: SendOptions
    ) -> None:
        """Record that a result is owed, before the agent's run begins.

        Raises:
            StoreError: The disk refused.
        """
        facts = {"call_id": wanted.call_id, "run_id": run_id, "description": wanted.description}
        parent.recorder.record("agent", {"id": child.session_id, "state": "running", **facts})
        self._alive.setdefault(parent.key, set()).add(child.session_id)
        self._options[parent.key] = options
        self._kernel.hints.note(parent.ref, "background", child.session_id)

    def cancel(self, parent: LiveBranch, child: BranchRef) -> None:
        """Take back ``begin``: the agent could not be started, and its call reports that."""
        self._forget(parent.key, child.session_id)
        with contextlib.suppress(StoreError):
            self._note(parent, child.session_id, "dropped")

    def has(self, branch: LiveBranch) -> bool:
        """Return whether results that are owed to a branch can still arrive."""
        queued = not branch.paused and any(agents_in(message) for message in branch.queue.waiting)
        return queued or bool(self._alive.get(branch.key))

    async def settled(self, branch: LiveBranch, outcome: Outcome) -> Outcome:
        """Return the outcome of an agent's run once its own background agents have ended too."""
        own = _Settling(woken=_answering(branch))  # the next run may have begun already
        self._settling.setdefault(branch.key, []).append(own)
        try:
            while outcome.reason == "done" and not self._kernel.closing and (own.woken or self.has(branch)):
                if own.woken:
                    later = await asyncio.shield(own.woken.pop(0))
                    outcome = replace(later, text="\n\n".join(filter(None, (outcome.text, later.text))))
                else:
                    own.moved.clear()
                    await own.moved.wait()
            return outcome
        finally:
            self._settling[branch.key].remove(own)
            if not self._settling[branch.key]:
                del self._settling[branch.key]

    async def abort(self, parent: LiveBranch) -> bool:
        """Stop the background agents of a branch and deliver none of their results; return whether there were any."""
        alive = sorted(self._alive.get(parent.key, ()))
        children = [_child(parent.ref, agent).key for agent in alive]
        for agent, key in zip(alive, children, strict=True):
            if key not in self._dropped:
                self._dropped.add(key)
                with contextlib.suppress(StoreError):
                    self._note(parent, agent, "dropped")
        branches = [branch for branch in map(self._kernel.opened, children) if branch is not None]
        stopped = (self._kernel.abort(branch, why=BY_PARENT) for branch in branches)
        await asyncio.gather(*stopped)  # agents that are being stopped already are awaited too
        for agent, key in zip(alive, children, strict=True):
            self._forget(parent.key, agent)
            self._dropped.discard(key)
        return bool(alive)

    def recover(self, opened: BranchOpened) -> None:
        """Find the results that were owed to a branch when the daemon stopped."""
        parent = opened.branch
        if parent.refusal:
            return
        conversation, alive = parent.conversation, self._alive.get(parent.key, ())
        owed = {id: row for id, row in conversation.agents.items() if row["state"] == "running" and id not in alive}
        messages = (*conversation.messages.values(), *conversation.queued.values()) if owed else ()
        known = {agent for message in messages for agent in agents_in(message)}
        for agent, row in owed.items():
            if agent in known:  # the message was recorded, but not the delivery
                self._note(parent, agent, "delivered")
                continue
            self._alive.setdefault(parent.key, set()).add(agent)
            self._kernel.spawn(self._recover(parent.ref, agent, str(row.get("description") or "")))

    def close(self) -> None:
        """Wake all waiters: running agents are stopped, and found again when the branch is opened."""
        for key in self._settling:
            self.moved(key)

    # -- events of the runtime ------------------------------------------------------------------------------------

    def _run_started(self, started: RunStarted) -> None:
        """Note a run that answers a result; the agent ends only after that run."""
        for waiter in self._settling[started.branch.key]:
            waiter.woken += _answering(started.branch)
            waiter.moved.set()

    def moved(self, key: str) -> None:
        """Wake the waiters for the results of a branch, to check again."""
        for waiter in self._settling.get(key, ()):
            waiter.moved.set()

    def _run_ended(self, ended: RunEnded) -> None:
        """Deliver the result of a background agent, and stop the agents of a run that was aborted."""
        branch, outcome = ended.branch, ended.outcome
        if self._kernel.closing:
            return
        session = branch.conversation.session
        if session.get("background") and len(branch.conversation.runs) == 1:  # later ones are the user's
            self._kernel.spawn(self._complete(branch.ref, str(session.get("description") or ""), outcome))
        if outcome.reason == "aborted" and self._alive.get(branch.key):
            self._kernel.spawn(self._abort(branch.ref))

    # -- inside ------------------------------------------------------------------------------------------------

    async def _abort(self, ref: BranchRef) -> None:
        async with self._kernel.using(ref) as parent:
            await self.abort(parent)

    async def _complete(self, ref: BranchRef, description: str, outcome: Outcome) -> None:
        """Report the outcome of an agent's run to its parent when nothing below the agent runs any more."""
        with contextlib.suppress(PyagentdError):  # it cannot be opened: the outcome is known anyway
            async with self._kernel.using(ref) as branch:
                outcome = await self.settled(branch, outcome)
        parent = paths.parent_of(ref)
        if parent is not None and not self._kernel.closing:
            await self._owe(parent, ref.session_id, description, outcome)

    async def _recover(self, parent: BranchRef, agent: str, description: str) -> None:
        """Report the outcome of an agent that ran when the daemon stopped; watch it if its run was resumed."""
        outcome: Outcome | None = Outcome(reason="error", text="", code="restart", message=RESTARTED)
        ref = _child(parent, agent)
        try:
            async with self._kernel.using(ref) as child:
                if child.task is not None:
                    await self._watch(parent, child, child.task)
                    return
                run = next(iter(child.conversation.runs.values()), None)
                if run is not None:
                    outcome = outcome_of(child.conversation, run, self._kernel.presets.of_branch(ref).result)
        except PyagentdError as error:
            outcome = Outcome(reason="error", text="", code=error.code, message=str(error))
        if outcome is not None and outcome.reason == "aborted":  # only the daemon's stop can have aborted it
            outcome = replace(outcome, reason="error", code="restart", message=RESTARTED)
        if outcome is not None:
            await self._owe(parent, agent, description, outcome)

    async def _watch(self, parent: BranchRef, child: LiveBranch, run: asyncio.Task[Outcome]) -> None:
        """Show a resumed agent to its parent's clients until its run ends; its result is delivered as usual."""
        async with self._kernel.using(parent) as shown:
            self._agents.begin(shown, child)
            try:
                await asyncio.wait([run])
            finally:
                self._agents.end(child)

    async def _owe(self, parent: BranchRef, agent: str, description: str, outcome: Outcome) -> None:
        """Report an agent's result to its parent."""
        if agent not in self._alive.get(parent.key, ()) or _child(parent, agent).key in self._dropped:
            return  # it was stopped with its parent
        state = {"done": "finished", "aborted": "was aborted", "error": "failed"}[outcome.reason]
        text = f"Background agent {agent} ({description}) {state}:\n\n{result_of(outcome).text}"
        try:
            async with self._kernel.using(parent) as branch:
                await self._deliver(branch, agent, text)
        except PyagentdError as error:  # its row stays "running": the next opening of the parent finds it
            log.warning("agent %s: its end is not told yet: %s", agent, error)
        finally:
            self._forget(parent.key, agent)

    async def _deliver(self, parent: LiveBranch, agent: str, text: str) -> None:
        """Submit a result, or append it to the queue's last message if that reports results too."""
        async with parent.starting:
            last = parent.queue.waiting[-1:]
            if last and (agents := agents_in(last[0])):
                parent.queue.edit(last[0].id, f"{last[0].text}\n\n{text}", {"agents": [*agents, agent]})
                self._kernel.queue.tell(parent)
                self._note(parent, agent, "delivered")
                return
        metadata = {"origin": "agent", "agents": [agent]}
        options = self._options.get(parent.key, SendOptions())
        await self._kernel.submit(parent, Submission(text=text, options=options, metadata=metadata))
        self._note(parent, agent, "delivered")

    def _note(self, parent: LiveBranch, agent: str, state: Debt) -> None:
        known = parent.conversation.agents.get(agent, {"id": agent})
        parent.recorder.record("agent", {**known, "state": state})
        if state != "running":
            self._kernel.hints.note(parent.ref, "background", agent, waits=False)

    def _forget(self, parent: str, agent: str) -> None:
        if (alive := self._alive.get(parent)) is not None:
            alive.discard(agent)
            if not alive:
                del self._alive[parent]
        self.moved(parent)


def _child(parent: BranchRef, agent: str) -> BranchRef:
    return paths.agent_ref(paths.agents_dir(parent.branch_dir) / agent)


# Spawning of agents: created under the parent's branch, run to their end, watched from the parent.
#
# The parent's clients get an ``agent`` event whenever a child's run moves, and one with state ``finished`` on every
# path that ends it; Emacs draws its overlay from these.


class AgentSpawner(Feature):
    """The running agents of all branches.

    Attributes:
        background: The background agents.
        outputs: Functions that turn an agent's outcome into a call's result, by the tool's name.
    """

    tool_names = ("PersistentAgent", "task")

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._children: dict[str, tuple[str, dict[str, Any]]] = {}  # by the agent's key: its parent's, and its facts
        kernel.bus.on(RunMoved, self._run_moved, of=self._children)
        self.background = Background(kernel, self)
        self.outputs: dict[str, Callable[[Outcome], Output]] = {NAME: as_output}

    def spawner(self, parent: LiveBranch, options: SendOptions, run_id: str) -> "ParentSpawner":
        """Return the spawner for the tools of the run ``run_id``."""
        return ParentSpawner(self, self.kernel, parent, options, run_id)

    def running(self, parent: str) -> list[dict[str, Any]]:
        """Return the running agents of a branch, for a client that attaches to draw."""
        return [dict(facts) for above, facts in self._children.values() if above == parent]

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return the tools that spawn agents."""
        spawner, depth = self.spawner(run.branch, run.options, run.run_id), len(run.ancestors)
        presets = spawner.templates()
        return [make(spawner, presets, depth=depth) for make in (persistent_agent, task)]

    async def rejoin(self, branch: LiveBranch, options: SendOptions, run_id: str, call: ToolCall) -> Output | None:
        """Return the result of a call made before the daemon restarted; None if it spawned no agent."""
        outcome = await self.spawner(branch, options, run_id).rejoin(call.id)
        return None if outcome is None else self.outputs.get(call.name, result_of)(outcome)

    async def aborted(self, branch: LiveBranch) -> bool:
        """Stop the background agents of a branch."""
        return await self.background.abort(branch)

    async def stop(self) -> None:
        """Wake all that wait for background agents."""
        self.background.close()

    def _run_moved(self, moved: RunMoved) -> None:
        """Publish the progress of an agent's run to its parent's clients."""
        _, facts = child = self._children[moved.branch.key]
        match moved.status.get("phase"):
            case "WAIT":
                facts["state"] = "wait"
            case "TOOL":
                tools = moved.status.get("tools") or []
                facts |= {"state": "tool", "count": facts["count"] + len(tools), "calls": list(tools)}
            case _:
                return
        self._tell(child)

    def begin(self, parent: LiveBranch, branch: LiveBranch) -> None:
        """Start showing an agent, whose session row is recorded, to its parent's clients."""
        session = branch.conversation.session
        facts = {
            "id": branch.ref.session_id,
            "branch_dir": str(branch.ref.branch_dir),
            "preset": str(session.get("agent") or ""),
            "description": str(session.get("description") or ""),
            "background": bool(session.get("background")),
            "call_id": str(session.get("parent_call_id") or ""),
            "state": "wait",
            "count": 0,
            "calls": [],
        }
        self._children[branch.key] = child = parent.key, facts
        self._tell(child)

    def tools_of(self, branch: LiveBranch) -> int:
        """Return how many tool calls an agent has made; 0 for one that is not shown."""
        child = self._children.get(branch.key)
        return int(child[1]["count"]) if child is not None else 0

    def end(self, branch: LiveBranch) -> None:
        """Stop showing an agent."""
        child = self._children.pop(branch.key, None)
        if child is not None:
            child[1]["state"] = "finished"
            self._tell(child)

    def _tell(self, child: tuple[str, Mapping[str, Any]]) -> None:
        self.kernel.publish(Event("agent", child[0], 0, (dict(child[1]),)))


@dataclass(frozen=True, slots=True)
class ParentSpawner:
    """Spawns agents for one run of ``parent``."""

    _agents: "AgentSpawner"
    _kernel: "Kernel"
    parent: LiveBranch
    options: SendOptions
    run_id: str

    def templates(self) -> Mapping[str, Preset]:
        """Return the presets that agents may have."""
        return self._presets().for_agents()

    def _presets(self) -> ProjectPresets:
        return self._kernel.presets.for_project(self.parent.conversation.session.get("workspace_root"))

    def reads(self) -> tuple[str, ...]:
        """Return the paths that the parent may read."""
        return self._kernel.presets.of_branch(self.parent.ref).paths.read

    async def run_agent(self, wanted: Assignment) -> Outcome:
        """Create an agent under the parent's branch and run it to its end."""
        return await self._result(*await self.launch(wanted))

    async def rejoin(self, call_id: str) -> Outcome | None:
        """Return the outcome of the agent that a call spawned before the daemon restarted; waits for it."""
        ref = (await asyncio.to_thread(agents_by_call, self.parent.ref)).get(call_id)
        if ref is None:
            return None
        stack = contextlib.AsyncExitStack()
        branch = await stack.enter_async_context(self._kernel.using(ref))
        run = branch.conversation.last_run
        if branch.task is None:
            async with stack:
                outcome = outcome_of(branch.conversation, run, self._kernel.presets.of_branch(ref).result)
            # Had a human aborted it, its parent would have its result: the daemon's stop aborted this one.
            return None if outcome is not None and outcome.reason == "aborted" else outcome
        self._show(stack, branch)
        return await self._result(ref, self._kernel.spawn(self._finish(stack, branch, branch.task)))

    async def launch(self, wanted: Assignment) -> tuple[BranchRef, asyncio.Task[Outcome]]:
        """Create an agent and start its run; return it and the task that resolves to its outcome.

        Raises:
            PyagentdError: It could not be created or started; no run was begun.
        """
        ref = await self._create(wanted)
        stack = contextlib.AsyncExitStack()
        try:
            await stack.enter_async_context(self._kernel.using(self.parent.ref))
            branch = await stack.enter_async_context(self._kernel.using(ref))
            self._show(stack, branch)
            if wanted.background:
                self._agents.background.begin(self.parent, ref, wanted, self.run_id, self.options)
            await self._kernel.prompt(branch, text=wanted.prompt, options=self.options, metadata=wanted.message)
        except BaseException:
            if wanted.background:
                self._agents.background.cancel(self.parent, ref)
            await stack.aclose()
            await self._discard(ref)
            raise
        assert branch.task is not None, "nothing was awaited since the run began"
        return ref, self._kernel.spawn(self._finish(stack, branch, branch.task))

    async def _discard(self, ref: BranchRef) -> None:
        """Remove an agent that could not be started, unless it has runs or queued messages; errors are ignored."""
        with contextlib.suppress(PyagentdError):
            async with self._kernel.using(ref) as branch:
                if branch.conversation.runs or branch.conversation.queued:
                    return
            async with self._kernel.removing(ref.branch_dir):
                await asyncio.to_thread(sessions.discard, ref.branch_dir)

    def _show(self, stack: contextlib.AsyncExitStack, branch: LiveBranch) -> None:
        self._agents.begin(self.parent, branch)
        stack.callback(self._agents.end, branch)

    async def _finish(
        self, stack: contextlib.AsyncExitStack, branch: LiveBranch, run: asyncio.Task[Outcome]
    ) -> Outcome:
        async with stack:
            outcome = await self._agents.background.settled(branch, await run)
            return replace(outcome, tools=self._agents.tools_of(branch))

    async def _result(self, ref: BranchRef, task: asyncio.Task[Outcome]) -> Outcome:
        """Wait for an agent; when the parent is stopped, stop the agent and wait until it has closed its files."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if (branch := self._kernel.opened(ref.key)) is not None:
                await self._kernel.abort(branch, why=BY_PARENT)
            await asyncio.wait([task])
            raise

    async def _create(self, wanted: Assignment) -> BranchRef:
        """Create the agent's directory after all arguments were checked."""
        presets = self._presets()
        # A mission may use a preset that is not offered to agents.
        validate(wanted, (wanted.preset,) if wanted.values else presets.for_agents())
        if wanted.read is not None and not wanted.read and not self.options.interactive:
            raise ToolError("An agent without path limits needs a human to confirm it; name allowed_paths")
        template, text = presets.template(wanted.preset)
        shipped = presets.usable[wanted.preset].origin == "shipped"
        if values := {**(self._parent_backend(template) if shipped else {}), **wanted.values}:
            text = presetfile.with_values(presetfile.parse(text, Path(f"{wanted.preset}.md")), values)
            template = self._kernel.presets.of_content(text.encode(), Path(f"{wanted.preset}.md"), wanted.preset)
        backend_for(template, self._kernel.config, self.options)  # raises before anything is made
        own = self.reads()
        making = asyncio.ensure_future(
            asyncio.to_thread(
                sessions.create_agent,
                self.parent.ref,
                preset_name=wanted.preset,
                preset_text=text,
                description=wanted.description,
                read=own if wanted.read is None else (wanted.read or ["/**"]),
                deny=wanted.deny,
                clock=self._kernel.clock,
                facts=self._facts(wanted),
            )
        )
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:  # the thread completes all the same
            await asyncio.wait([making])
            if making.exception() is None:
                await self._discard(making.result())
            raise

    def _parent_backend(self, template: Preset) -> dict[str, str]:
        """Return the parent's backend and model if a shipped preset names another backend; {} otherwise."""
        config, own = self._kernel.config, answers_next(self._kernel, self.parent, self.options)
        known = provider_of(own, config, self.options)
        if provider_of(template, config, self.options) == known:
            return {}
        return {"backend": own.backend, "model": own.model}

    def _facts(self, wanted: Assignment) -> dict[str, Any]:
        """Return the agent's metadata: who spawned it, and for what; a restart finds its waiting parent by these."""
        conversation = self.parent.conversation
        run = conversation.runs.get(self.run_id)
        metadata = conversation.session["metadata_json"]
        return {
            "workspace_root": conversation.session["workspace_root"],
            "agent": wanted.preset,
            "parent_run_id": self.run_id,
            "parent_call_id": wanted.call_id,
            "parent_message_id": run.data["message_id"] if run else None,
            "background": wanted.background,
            "description": wanted.description,
            "metadata_json": {
                **inherited_metadata(self._kernel.presets, self.parent),
                **({"environment": metadata["environment"]} if "environment" in metadata else {}),
                **({"task": dict(wanted.metadata)} if wanted.metadata else {}),
            },
        }
