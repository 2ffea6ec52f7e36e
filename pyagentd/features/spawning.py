"""The PersistentAgent tool: a sub-agent that is a session of its own; ``task`` is another schema of it.

Everything is validated before the first side effect; the agent's ``preset.md`` is the only source of its
configuration; its answer is the tool's result. The tool needs the loop, so it lives here and not in ``tools``.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

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
from pyagentd.policy.patterns import validate_pattern
from pyagentd.policy.presets import Commands, Preset, Result, WantedServers
from pyagentd.policy.shell import ANY
from pyagentd.runtime.status import BY_PARENT, Outcome
from pyagentd.store import atomic, paths
from pyagentd.store.conversation import Conversation, Message, RunState
from pyagentd.store.journal import read_rows, row_of
from pyagentd.store.paths import BranchRef
from pyagentd.store.presetfile import DEFAULT_WRITE
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec
from pyagentd.wire.sexp import encode

log = logging.getLogger(__name__)

MAX_DEPTH = 5
_KINDS = {TransientProviderError.code: "Network failure", ProviderError.code: "API failure"}  # by an error's code
_DAY_S = 24 * 60 * 60.0

_WILD = re.compile(r"[*?\[{]")

DESCRIPTION = """\
Delegate a self-contained task to a sub-agent. It works in its own session with its own preset, tools and scope, \
sees nothing of this conversation, and its answer comes back as this tool's result. Give it everything it needs to \
know in `prompt`. Several calls in one answer run in parallel. Presets:
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a call of the tool wants."""

    preset: str
    description: str
    prompt: str
    read: tuple[str, ...] | None = None  # what the agent may read; None: what its parent may
    deny: tuple[str, ...] = ()
    background: bool = False  # the parent does not wait for it
    call_id: str = ""  # of the call, which the child's session row names
    metadata: Mapping[str, Any] = field(default_factory=dict)  # the caller's own, for the child's session row
    values: Mapping[str, Any] = field(default_factory=dict)  # keys of its preset.md in place of the template's
    message: Mapping[str, Any] = field(default_factory=dict)  # metadata of the message with the prompt


def validate(wanted: Assignment, known: Collection[str]) -> None:
    """Check what an agent is to be made of, whoever wants it, before anything is made.

    Args:
        wanted: What is asked for.
        known: Names of the presets that agents may have.

    Raises:
        BadRequest: An argument is no good; the message begins with its name as PersistentAgent calls it.
    """
    for name, text in (("prompt", wanted.prompt), ("description", wanted.description)):
        if not text.strip():
            raise BadRequest(f"{name} is empty", mend="Say what the agent is to do")
    if wanted.preset not in known:
        raise PresetError(
            f"preset: there is none called {wanted.preset!r} for agents",
            mend=f"Known: {', '.join(sorted(known)) or 'none'}",
        )
    for name, patterns in (("allowed_paths", wanted.read or ()), ("denied_paths", wanted.deny)):
        for pattern in patterns:
            try:
                validate_pattern(pattern)
            except BadRequest as error:
                raise BadRequest(f"{name}: {error.message}", mend=error.mend) from None


class Spawner(Protocol):
    """What the tool needs from the kernel."""

    def templates(self) -> Mapping[str, Preset]:
        """Return the presets an agent may have (mode ``subagent`` or ``all``), by name."""
        ...

    def reads(self) -> Sequence[str]:
        """Return the patterns of what the parent may read."""
        ...

    async def run_agent(self, wanted: Assignment) -> Outcome:
        """Create the agent under the parent's branch, run it to its end and return the outcome."""
        ...

    async def start_agent(self, wanted: Assignment) -> str:
        """Create the agent and start it; return its session's id. Its outcome reaches the parent as a message."""
        ...


def persistent_agent(spawner: Spawner, *, depth: int) -> ToolSpec:
    """Return the tool for a run of a branch that is ``depth`` agents below its root."""
    return agent_tool(
        spawner, depth=depth, name="PersistentAgent", schema=_schema, wanted=_assignment, told=result_of
    )


def agent_tool(
    spawner: Spawner,
    *,
    depth: int,
    name: str,
    schema: Callable[[Sequence[str]], Mapping[str, Any]],
    wanted: Callable[[Args, str], Assignment],
    told: Callable[[Outcome], Output],
) -> ToolSpec:
    """Return a tool that spawns agents; PersistentAgent and ``task`` are this with a schema each.

    Args:
        spawner: What makes and runs them.
        depth: How many agents the run's branch is below its root.
        name: The tool's.
        schema: Returns its arguments' schema, given the names of the presets.
        wanted: Returns what a call wants, given its arguments and id.
        told: Returns what an agent came to as the tool gives it.
    """
    presets = spawner.templates()
    listing = "\n".join(f"- {each}: {preset.description}" for each, preset in sorted(presets.items()))

    async def run(args: Args, ctx: ToolContext) -> Output:
        assignment = wanted(args, ctx.call_id)
        try:
            if assignment.background:
                return _started(await spawner.start_agent(assignment))
            return told(await spawner.run_agent(assignment))
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
        # A permission that is remembered for this text must not let an agent read more than was shown.
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
        timeout_s=_DAY_S,
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


def _started(session_id: str) -> Output:
    told = {"session_id": session_id, "state": "running", "result": "comes as a message when the agent has finished"}
    return Output(text=json.dumps(told), brief="→ in the background")


def _beyond(wanted: Sequence[str] | None, own: Sequence[str]) -> str:
    """Return which patterns of ``wanted`` are not surely within ``own``, for people; "" when all are."""
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
            return Output(text=text, brief=_brief(outcome.tools))
        case "aborted":
            who = BY_PARENT if outcome.message == BY_PARENT else "User aborted agent"
            return Output(text=f"Error: {who}", ok=False)
        case "error" if outcome.code == BudgetSpent.code:
            return Output(text=f"Error: {outcome.message}\n{outcome.text}".rstrip(), ok=False)
        case "error":
            kind = _KINDS.get(outcome.code, "Agent failed")
            return Output(text=f"Error: {kind}\n{_plist(outcome)}", ok=False)


def _plist(outcome: Outcome) -> str:
    """Return an error as Lisp prints it: ``(:error (:code CODE :message TEXT))``, in one line."""
    return encode({"error": {"code": outcome.code, "message": outcome.message}}).decode().replace("\n", "\\n")


def _brief(tools: int) -> str:
    return f"· done, {tools} tool{'' if tools == 1 else 's'}" if tools else "· done"


def _preview(wanted: Assignment, preset: Preset | None) -> str:
    """Return what a human should know before the agent starts, its rights first."""
    lines = ["Runs in the background: its result comes as a message"] if wanted.background else []
    match wanted.read:
        case None:
            lines.append("May read: what this session may read")
        case ():
            lines.append("May read: EVERYTHING (the model asked for no restriction)")
        case patterns:
            lines.append(f"May read: {', '.join(patterns)}")
    if preset is not None:
        lines += [f"May write: {_writes(preset)}", f"May run: {_runs(preset.shell)}"]
        lines.append(f"Tools: {', '.join(preset.tools) or 'none'}")
        lines += _servers(preset.mcp)
    return "\n".join([*lines, "", wanted.prompt])


def _servers(wanted: WantedServers | None) -> list[str]:
    """Return which servers of tools an agent has, for what they may do is beyond its scope."""
    if wanted is None or wanted == WantedServers():
        return []
    own = (f"{each.name} ({shlex.join(each.command) or each.url})" for each in wanted.own)
    return [f"MCP servers: {', '.join(('all', *own) if wanted.all else (*wanted.names, *wanted.only, *own))}"]


def _writes(preset: Preset) -> str:
    # One that does not say gets the default; one that says "nothing" cannot be told from it here.
    return ", ".join(preset.paths.write) or f"{', '.join(DEFAULT_WRITE)} at most"


def _runs(shell: Commands) -> str:
    """Return which commands an agent may run, and what they can reach beyond its scope."""
    if not shell.allow:
        return "nothing"
    what = "ANY COMMAND" if ANY in shell.allow else ", ".join(shell.allow)
    return what + (", with the NETWORK" if shell.network else "") + ("" if shell.confine else ", NOT CONFINED")


def _schema(names: Sequence[str]) -> dict[str, Any]:
    patterns = {"type": "array", "items": {"type": "string"}}
    return {
        "type": "object",
        "properties": {
            "preset": {"type": "string", "enum": list(names), "description": "Which kind of agent"},
            "description": {"type": "string", "description": "The task in three to five words"},
            "prompt": {"type": "string", "description": "The whole task, for a reader who knows nothing else"},
            "allowed_paths": patterns | {"description": "Absolute glob patterns it may read; default: yours"},
            "denied_paths": patterns | {"description": "Absolute glob patterns it may never touch"},
            "background": {
                "type": "boolean",
                "description": "Do not wait: you get its session_id now and its result later, as a message",
            },
        },
        "required": ["preset", "description", "prompt"],
        "additionalProperties": False,
    }


# The ``task`` tool: how models of other hosts delegate; it makes the same agents as PersistentAgent.
#
# ``task({subagent_type, prompt, background?, metadata?})`` gives ``{output}``, or ``{session_id}`` of an agent in
# the background. What it may read is what its parent may; everything else is the preset's, as for any agent.

NAME = "task"

_DESCRIBED = 60  # characters of a prompt that name its task


def task(spawner: Spawner, *, depth: int) -> ToolSpec:
    """Return the tool for a run of a branch that is ``depth`` agents below its root."""
    return agent_tool(spawner, depth=depth, name=NAME, schema=_task_schema, wanted=_task_assignment, told=as_output)


def as_output(outcome: Outcome) -> Output:
    """Return what an agent came to as this tool's result; an error stays as it is."""
    output = result_of(outcome)
    return replace(output, text=json.dumps({"output": output.text}, ensure_ascii=False)) if output.ok else output


def described(prompt: str) -> str:
    """Return a few words that say what a prompt is about: the beginning of its first line."""
    line = " ".join(next(filter(str.strip, prompt.splitlines()), "").lstrip("#").split())
    if len(line) <= _DESCRIBED:
        return line or "task"
    return line[:_DESCRIBED].rsplit(" ", 1)[0]


def _task_assignment(args: Args, call_id: str) -> Assignment:
    return Assignment(
        preset=args["subagent_type"],
        description=described(args["prompt"]),
        prompt=args["prompt"],
        background=bool(args.get("background")),
        call_id=call_id,
        metadata=args.get("metadata") or {},
    )


def _task_schema(names: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "subagent_type": {"type": "string", "enum": list(names), "description": "Which kind of agent"},
            "prompt": {
                "type": "string",
                "minLength": 1,
                "description": "The whole task, for a reader who knows nothing else",
            },
            "background": {
                "type": "boolean",
                "description": "Do not wait: you get its session_id now and its result later, as a message",
            },
            "metadata": {"type": "object", "description": "Kept with the agent's session; nobody acts on it"},
        },
        "required": ["subagent_type", "prompt"],
        "additionalProperties": False,
    }


# What an agent's run came to, read from its log: the same that its parent was or would be told.


def outcome_of(conversation: Conversation, run: RunState | None, wanted: Result) -> Outcome | None:
    """Return how a recorded run ended and what it said (``said``); None while it goes on, and of none."""
    if run is None or not run.is_finished:
        return None
    text = said(conversation, run, wanted)
    error: Mapping[str, Any] = run.data.get("error") or {}
    if run.data.get("reason") == "aborted":
        return Outcome(reason="aborted", text=text, message=BY_PARENT if error.get("message") == BY_PARENT else "")
    if not error:  # also when its end was in the document and not in the log
        return Outcome(reason="done", text=text)
    return Outcome(
        reason="error", text=text, code=str(error.get("code") or ""), message=str(error.get("message") or "")
    )


def said(conversation: Conversation, run: RunState, wanted: Result) -> str:
    """Return what the model said in a run: all its text, or what followed its last tool call."""
    texts: list[str] = []
    for message in _answers(conversation, run):
        for part in message.parts:
            if part.is_tool and wanted == "last":
                texts = []
            elif part.type == "text" and part.text:
                texts.append(part.text)
    return "\n\n".join(texts)


def _answers(conversation: Conversation, run: RunState) -> list[Message]:
    """Return the model's messages between the prompt of a run and the next one; what steered it is none."""
    found: list[Message] = []
    inside = False
    for message in conversation.messages.values():
        if message.role == "user":
            steered = inside and message.row.get("metadata_json", {}).get("steered") == run.data["id"]
            inside = steered or message.id == run.data["message_id"]
        elif inside:
            found.append(message)
    return found


# The end of a background agent, as its parent is told.


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The end of an agent, for its parent."""

    id: str
    description: str
    outcome: Outcome

    @property
    def text(self) -> str:
        """What the parent's model reads."""
        state = {"done": "finished", "aborted": "was aborted", "error": "failed"}[self.outcome.reason]
        return f"Background agent {self.id} ({self.description}) {state}:\n\n{result_of(self.outcome).text}"


def agents_in(row: dict[str, object]) -> tuple[str, ...]:
    """Return the agents whose ends a message tells, from its row."""
    metadata = row.get("metadata_json")
    found = metadata.get("agents") if isinstance(metadata, dict) else None
    return tuple(found) if isinstance(found, list) else ()


# Which agents live under a branch, and what their logs say of where they come from; reads, blocks.

_HEAD = 64 * 1024  # bytes; the session's row is among the first


def children(ref: BranchRef) -> list[BranchRef]:
    """Return the agents right under a branch, by name."""
    home = paths.agents_dir(ref.branch_dir)
    try:
        places = sorted(home.iterdir())
    except OSError:  # none
        return []
    return [paths.agent_ref(place) for place in places if paths.session_file(place).is_file()]


def child_of_call(ref: BranchRef, call_id: str) -> BranchRef | None:
    """Return the agent that the tool call ``call_id`` of a branch spawned."""
    return next((child for child in children(ref) if session_row(child).get("parent_call_id") == call_id), None)


def session_row(ref: BranchRef) -> Mapping[str, Any]:
    """Return the first ``session`` row of an agent's log: how it was made; {} when there is none."""
    return next(_session_rows(ref), {})


def _session_rows(ref: BranchRef) -> Iterator[Mapping[str, Any]]:
    log = paths.journal_file(ref.branch_dir)
    try:
        fd = atomic.open_read(log)
    except (FileNotFoundError, StoreError):
        return
    try:
        head = atomic.read_fd(fd, _HEAD, 0, log)
    finally:
        atomic.close_fd(fd)
    for line in head.split(b"\n"):
        if (row := row_of(line)) is not None and row.type == "session":
            yield row.data


# The agents below a branch, at any depth, and what became of each; reads their logs, blocks.

AgentState = Literal["running", "waiting", "finished", "aborted", "error", "idle"]

_ENDED: Mapping[str, AgentState] = {"done": "finished", "aborted": "aborted", "error": "error"}


class Open(NamedTuple):
    """A branch that is open: what it is doing (the status clients see), and what is recorded."""

    state: str
    conversation: Conversation


def agents_below(
    ref: BranchRef, opened: Mapping[str, Open], wanted: Callable[[BranchRef], Result]
) -> list[dict[str, Any]]:
    """Return the agents of a branch by name, each with its own in ``agents``.

    Args:
        ref: The branch.
        opened: What of it is open, by key.
        wanted: Returns what of an agent's text is its result.

    Returns:
        ``id``, ``branch``, ``branch_dir``, ``preset``, ``description``, ``state``, ``background``, ``call_id`` (of
        the call that made it), ``tokens`` (all of its runs), ``result`` (what its last run came to, as a parent is
        told; None while there is none).
    """
    return [_described(child, opened, wanted) for child in children(ref)]


def _described(ref: BranchRef, opened: Mapping[str, Open], wanted: Callable[[BranchRef], Result]) -> dict[str, Any]:
    known = opened.get(ref.key) or Open("idle", _read(ref))
    conversation = known.conversation
    outcome = outcome_of(conversation, conversation.last_run, wanted(ref))
    return {
        "id": ref.session_id,
        "branch": ref.key,
        "branch_dir": str(ref.branch_dir),
        "preset": conversation.session.get("agent") or None,
        "description": conversation.session.get("description") or None,
        "state": _state(known.state, conversation, outcome),
        "background": bool(conversation.session.get("background")),
        "call_id": conversation.session.get("parent_call_id") or None,
        "tokens": _tokens(conversation),
        "result": None if outcome is None else result_of(outcome).text,
        "agents": agents_below(ref, opened, wanted),
    }


def _read(ref: BranchRef) -> Conversation:
    try:
        return Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    except StoreError:  # it is told where somebody opens it
        return Conversation()


def _state(status: str, conversation: Conversation, outcome: Outcome | None) -> AgentState:
    match status:
        case "busy" | "retrying":
            return "running"
        case "waiting":
            return "waiting"
    if outcome is not None:
        return _ENDED[outcome.reason]
    # A run without its end that nobody executes waits for somebody to open it after its daemon ended.
    return "waiting" if any(ask["decision"] is None for ask in conversation.asks.values()) else "idle"


def _tokens(conversation: Conversation) -> int:
    usages = (message.row.get("metadata_json", {}).get("usage") for message in conversation.messages.values())
    return sum(sum(usage.values()) for usage in usages if usage)
