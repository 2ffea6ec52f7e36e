"""Missions of a session: the ``mission`` tool, the log's record of each mission, budgets, and resuming.

Nothing here loads the mission language: ``features/missions.py`` does, when a mission starts.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyagentd import features
from pyagentd.errors import PyagentdError, ToolError
from pyagentd.features.agents import (
    MAX_DEPTH,
    AgentSpawner,
    Assignment,
    ParentSpawner,
    answers_of,
    result_of,
    short_title,
)
from pyagentd.messages import Usage
from pyagentd.policy.action import Target
from pyagentd.policy.presets import Preset
from pyagentd.runtime.feature import Feature
from pyagentd.runtime.run import RunSettings
from pyagentd.runtime.status import Outcome
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation, Part
from pyagentd.store.metadata import agents_by_call
from pyagentd.store.paths import BranchRef
from pyagentd.tools.spec import DAY_S, Args, Output, ToolContext, ToolSpec, object_schema

if TYPE_CHECKING:
    from pyagentd.mission.budget import Budget
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder


# The tool ``mission``: a typed task for a model that solves it with programs; the value is the tool's result.
#
# A mission is an agent: a session of its own below its parent's branch, made from the preset ``mission`` (or another
# with a signature), with the caller's own model and at most the caller's own tools and permissions.


# A mission's value as text for people and other models, and parsed back.
#
# The answer of a mission is the last text of its run: a string unchanged, anything else as JSON in a fence,
# firewalled fields hidden. The caller gets the same as JSON.

_FENCED = re.compile(r"```json\n(.*)\n```", re.DOTALL)


def answer_of_value(public: Any) -> str:
    """Return the answer text for a value without firewalled fields."""
    if isinstance(public, str) and public.strip() and not _FENCED.fullmatch(public):
        return public
    return f"```json\n{dump_json(public, indent=2)}\n```"


def as_json(answer: str) -> str:
    """Return as JSON the value of which ``answer_of_value`` made ``answer``."""
    fenced = _FENCED.fullmatch(answer.strip())
    return dump_json(json.loads(fenced[1])) if fenced else dump_json(answer)


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """Return a plain value as JSON; what JSON cannot hold, such as a date, as its text."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


NAME = "mission"
PRESET = "mission"
"""The preset of missions."""

_NEVER = frozenset({"question", "TodoWrite", "skill", "tool_search", "request_scope_expansion"})
"""Tools that need a conversation, which a mission is not."""

_CHANGING = frozenset({"Write", "Edit"})
_MISSIONS_DEEP = 3  # as ``mission.options.MAX_DEPTH``, whose package is not loaded here

DESCRIPTION = """\
Delegate a task whose answer has a type. A model that sees nothing of this conversation answers it with small \
programs that call tools, filter, join and count, so that large intermediate data never passes through anybody's \
context; you get the value as JSON, checked against `signature`. Use it to collect structured facts from many files, \
pages or agents. `signature` says what comes back: `{count :int, files [{path :string, lines :int}]}`; types are \
:string :int :float :bool :any, [type] for lists, {name type} for maps, a ? after a type for what may be absent. \
`context` is data that its programs see. Several calls in one answer run in parallel."""


class Missions(Feature):
    """Mission runs, and the tool that starts them."""

    tool_names = (NAME,)

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._kindred = RunningMissions()
        if (agents := kernel.find(AgentSpawner)) is not None:
            agents.outputs[NAME] = as_value

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return the tool, if agents are enabled."""
        agents, ref = self.kernel.find(AgentSpawner), run.branch.ref
        if agents is None:
            return ()
        spawner, tools = agents.spawner(run.branch, run.options, run.run_id), run.permitted(run.preset.tools)
        tool = mission_tool(
            spawner, run.preset, tools, depth=len(run.ancestors), above=lambda: self._kindred.above(ref)
        )
        return (tool,)

    def adjusts(self, preset: Preset) -> bool:
        """Return whether the runs of the preset are missions: it has a signature."""
        return bool(preset.signature)

    def settings_for(self, run: "RunBuilder", settings: RunSettings) -> RunSettings:
        """Make the run of a preset with a signature a mission."""
        given = run.message.get("mission") or {}
        mission = features.missions.mission_of(run.run_id, run.preset, run.branch.conversation, given)
        make = partial(
            features.missions.MissionRun,
            mission=mission,
            ref=run.branch.ref,
            kindred=self._kindred,
            facts_of=self.kernel.model_facts,
        )
        return replace(settings, make=make)


def mission_tool(
    spawner: ParentSpawner, own: Preset, tools: Sequence[str], *, depth: int, above: Callable[[], int]
) -> ToolSpec:
    """Return the tool for a run of a branch that is ``depth`` agents below its root.

    A mission gets at most the caller's own: values of its current preset, and its tools. ``above`` returns how many
    missions a mission of the caller would have above it.
    """
    able = tuple(name for name in tools if name not in _NEVER)

    def chosen(args: Args) -> tuple[str, ...]:
        """Return the tools that a call names; all if it names none."""
        wanted = args.get("tools")
        if unknown := [name for name in wanted or () if name not in able]:
            raise ToolError(
                f"A mission can be given your own tools only, and {', '.join(unknown)} is none of them. "
                f"You can give: {', '.join(able) or 'none'}"
            )
        return able if wanted is None else tuple(dict.fromkeys(wanted))

    async def run(args: Args, ctx: ToolContext) -> Output:
        wanted = Assignment(
            preset=PRESET,
            description=short_title(args["prompt"]),
            prompt=args["prompt"],
            call_id=ctx.call_id,
            values=_values(own, args, chosen(args)),
            message={"mission": {"context": dict(args.get("context") or {})}},
        )
        try:
            return as_value(await spawner.run_agent(wanted))
        except PyagentdError as error:  # it could not be made or started
            raise ToolError(f"The mission could not be started: {error}") from error

    def describe(args: Args, ctx: ToolContext) -> Target:
        if depth >= MAX_DEPTH:
            raise ToolError(f"Agents may be nested {MAX_DEPTH} deep; do this task yourself")
        if above() > _MISSIONS_DEEP:
            raise ToolError(f"Missions may be nested {_MISSIONS_DEEP} deep; do this task yourself")
        try:
            features.missions.parse_readable(args["signature"], "`signature`")
        except PyagentdError as error:
            raise ToolError(str(error)) from None
        return Target(detail=f"with {', '.join(chosen(args)) or 'no tools'}")

    return ToolSpec(
        name=NAME,
        description=DESCRIPTION,
        input_schema=_schema(able),
        kind="meta",
        confirm=True,
        parallel_safe=True,
        timeout_s=DAY_S,
        run=run,
        describe=describe,
        preview=lambda args, ctx: _preview(own, args, chosen(args)),
    )


def as_value(outcome: Outcome) -> Output:
    """Return a mission's outcome as the tool's result: its value as JSON, or its error."""
    output = result_of(outcome)
    if output.ok:
        return replace(output, text=as_json(output.text))
    failed = output.text.startswith("Error: Agent failed\n")
    return Output(text=outcome.message if failed else output.text, ok=False)


def _values(own: Preset, args: Args, tools: Sequence[str]) -> dict[str, Any]:
    """Return the values of the mission's ``preset.md`` that replace its template's."""
    lent: dict[str, Any] = {"backend": own.backend, "model": own.model}  # "": the backend's own
    lent |= {"signature": args["signature"], "tools": list(tools)}
    if turns := args.get("max_turns"):
        lent["max-turns"] = turns
    lent["paths"] = {"write": list(own.paths.write) if _CHANGING.intersection(tools) else []}
    shell = own.shell
    lent["shell_commands"] = {
        "allow": list(shell.allow) if "Bash" in tools else [],
        "deny": list(shell.deny),
        "network": shell.network,
        "confine": shell.confine,
    }
    return lent


def _preview(own: Preset, args: Args, tools: Sequence[str]) -> str:
    """Return what a human should know before the mission starts, its permissions first."""
    lines = ["May read: what this session may read"]
    if _CHANGING.intersection(tools):
        lines.append(f"May write: {', '.join(own.paths.write) or 'nothing'}")
    if "Bash" in tools:
        lines.append(f"May run: what this session may run ({', '.join(own.shell.allow) or 'nothing'})")
    lines += [f"Tools: {', '.join(tools) or 'none'}", f"Returns: {args['signature']}"]
    if context := args.get("context"):
        lines.append(f"Is given: {', '.join(context)}")
    return "\n".join([*lines, "", args["prompt"]])


def _schema(tools: Sequence[str]) -> dict[str, Any]:
    names = {"type": "string", "enum": list(tools)} if tools else {"type": "string"}
    return object_schema(
        {
            "prompt": {"type": "string", "minLength": 1, "description": "The whole task, for one who knows nothing"},
            "signature": {"type": "string", "minLength": 1, "description": "What comes back, as {count :int}"},
        },
        {
            "context": {"type": "object", "description": "Data for its programs, by name"},
            "tools": {"type": "array", "items": names, "description": "Which of your tools it may use; default: all"},
            "max_turns": {"type": "integer", "minimum": 1, "maximum": 20, "description": "Programs it may write"},
        },
    )


# The running missions, so that nested ones share a budget of turns and know their depth.
#
# Between a mission and a nested one may be any number of chats: an agent of a mission may itself start a mission.


class Place(NamedTuple):
    """A mission's place in the tree."""

    budget: "Budget"  # that it spends
    depth: int  # how many missions are above it


class RunningMissions:
    """The running missions of all branches."""

    def __init__(self) -> None:
        self._running: dict[str, Place] = {}  # by branch key

    def above(self, ref: BranchRef) -> int:
        """Return how many missions a mission started from ``ref`` would have above it."""
        place = self._nearest((ref, *paths.ancestors_of(ref)))
        return 0 if place is None else place.depth + 1

    def _nearest(self, refs: Iterable[BranchRef]) -> Place | None:
        return next((place for each in refs if (place := self._running.get(each.key))), None)

    @contextmanager
    def running(self, ref: BranchRef, new: "Callable[[], Budget]") -> Iterator[Place]:
        """Register the mission of ``ref`` during the block; yield its place.

        ``new`` makes its budget if no mission above has one to share.
        """
        above = self._nearest(paths.ancestors_of(ref))
        place = Place(new(), 0) if above is None else Place(above.budget, above.depth + 1)
        self._running[ref.key] = place
        try:
            yield place
        finally:
            del self._running[ref.key]


PROGRAM = "program"
"""A program is recorded as a call of this tool, which is not offered to models: its argument is ``program``, its
result the feedback to the model."""

_SHOWN = 4000  # characters of one result

Report = dict[str, Any]


# Resuming a mission that was cut off: it continues after the last finished turn, whichever run had that. If a resumed
# mission was cut off before a turn of its own, the state of the run before counts; without any finished turn it
# begins anew.

_NO_ANSWER = frozenset({"error", "aborted"})


def unfinished_mission(conversation: Conversation) -> str:
    """Return the id of the last mission's run if it ended without result or failure of its own, else "".

    Runs after it that failed before they began a mission are ignored.
    """
    for run in reversed(conversation.runs.values()):
        if not run.is_finished:
            return ""
        rows = conversation.missions.get(run.data["id"], {})
        if "start" in rows:
            return str(run.data["id"]) if "end" not in rows else ""
        if run.data.get("reason") not in _NO_ANSWER:
            return ""
    return ""


def last_progress(conversation: Conversation, run_id: str) -> Mapping[str, Any] | None:
    """Return the row with the last recorded state of a run's mission; None if no turn of it has ended."""
    return next((rows["turn"] for rows in _chain(conversation, run_id) if "turn" in rows), None)


def first_request(conversation: Conversation, run_id: str) -> Mapping[str, Any] | None:
    """Return the row with the original request of a run's mission."""
    return next((rows["start"] for rows in reversed(_chain(conversation, run_id)) if "start" in rows), None)


def _chain(conversation: Conversation, run_id: str) -> list[Mapping[str, Mapping[str, Any]]]:
    """Return the rows of a mission by phase, for each of its runs, the last one first."""
    chain: list[Mapping[str, Mapping[str, Any]]] = []
    seen: set[str] = set()
    while run_id and run_id not in seen:
        seen.add(run_id)
        chain.append(rows := conversation.missions.get(run_id, {}))
        run_id = str(rows.get("start", {}).get("resumed") or "")
    return chain


# The missions in the log of a branch: the task, the turns, and how each ended.
#
# Plain values for programs and clients, the same while a mission runs and afterwards.


def missions(conversation: Conversation, ref: BranchRef) -> list[Report]:
    """Return the missions of a branch, the first one first.

    Each is ``{run, state, prompt, signature, inputs, tools, max_turns, resumed, can_resume, started_at, duration_ms,
    ok, value, text, fail, usage, turns}``; state is "running", "done", "error", "aborted" or "restart", ``text`` the
    value as JSON. A turn is ``{number, said, program, result, ok, state, duration_ms, usage, calls}``, its calls are
    ``{id, name, input, result, state, duration_ms, branch}``: ``branch`` is the agent or mission that the call
    started.
    """
    below = {call_id: child.key for call_id, child in agents_by_call(ref).items()}
    resumable = unfinished_mission(conversation)
    return [
        _mission(conversation, run_id, rows, below) | {"can_resume": run_id == resumable}
        for run_id, rows in conversation.missions.items()
        if "start" in rows and run_id in conversation.runs
    ]


def _mission(
    conversation: Conversation, run_id: str, rows: Mapping[str, Mapping[str, Any]], below: Mapping[str, str]
) -> Report:
    run, start, end = conversation.runs[run_id], rows["start"], rows.get("end") or {}
    prompt = conversation.messages.get(run.data["message_id"])
    parts = [part for message in answers_of(conversation, run) for part in message.parts]
    stood = last_progress(conversation, str(start.get("resumed") or ""))  # the state it continues from, if any
    names = ("signature", "inputs", "tools", "max_turns", "resumed")
    return {
        "run": run_id,
        "state": str(run.data.get("reason") or "done") if run.is_finished else "running",
        "prompt": start.get("message") or start.get("prompt"),
        **{name: start.get(name) for name in names},
        "started_at": prompt.row.get("created_at") if prompt else None,
        "duration_ms": (end.get("usage") or {}).get("duration_ms"),
        "ok": end.get("ok"),
        "value": end.get("value"),
        "text": dump_json(end["value"], indent=2) if end.get("ok") else None,
        "fail": end.get("fail") or run.data.get("error"),
        "usage": end.get("usage"),
        "turns": list(_turns(parts, below, int(stood["turn"]) if stood else 0)),
    }


def _turns(parts: Sequence[Part], below: Mapping[str, str], number: int) -> Iterator[Report]:
    """Yield the turns after turn ``number``.

    Each begins with a request to the model, and has a program or text that asks for one.
    """
    step: list[Part] = []
    for part in [*parts, None]:
        if part is not None and part.type != "step-start":
            step.append(part)
            continue
        if any(each.is_tool or each.type == "reasoning" or _cost(each) for each in step):
            number += 1
            yield _turn(number, step, below)
        step = [part] if part is not None else []


def _turn(number: int, step: Sequence[Part], below: Mapping[str, str]) -> Report:
    program = next((part for part in step if part.type == f"tool-{PROGRAM}"), None)
    texts = [part.text for part in step if part.type in ("text", "reasoning") and part.text]
    usage = next((cost for part in step if (cost := _cost(part))), None)
    turn: Report = {"number": number, "said": "\n\n".join(texts), "program": None, "result": None, "usage": usage}
    if program is not None:
        turn |= _outcome(program) | {"program": str(program.data["input"].get("program", ""))}
    calls = [part for part in step if part.is_tool and part is not program]
    return turn | {"calls": [_call(part, below) for part in calls]}


def _call(part: Part, below: Mapping[str, str]) -> Report:
    call_id = str(part.data["toolCallId"])
    name = part.type.removeprefix("tool-")
    report = {"id": call_id, "name": name, "input": part.data["input"], "branch": below.get(call_id)}
    return report | _outcome(part)


def _outcome(part: Part) -> Report:
    result = part.result
    state = "running" if result is None else "failed" if result[1] else "done"
    text = None if result is None else result[0]
    cut = text if text is None or len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"
    return {"state": state, "result": cut, "duration_ms": (part.data.get("metadata") or {}).get("duration_ms")}


def _cost(part: Part) -> dict[str, int] | None:
    """Return the token usage of the request that a part begins."""
    known = part.data.get("usage") if part.type == "step-start" else None
    return asdict(Usage(**known)) if isinstance(known, Mapping) else None
