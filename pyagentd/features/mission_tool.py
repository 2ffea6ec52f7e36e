"""The tool ``mission``: a typed task for a model that answers it with programs; its value is the tool's result.

A mission is an agent: a session of its own below its parent's branch, made from the preset ``mission`` (or another
that promises a signature), with the caller's own model and at most the caller's own tools and rights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyagentd.errors import PyagentdError, ToolError
from pyagentd.features.agents import AgentSpawner
from pyagentd.features.spawning import MAX_DEPTH, Assignment, Spawner, described, result_of
from pyagentd.policy.presets import Preset
from pyagentd.runtime.feature import Feature
from pyagentd.runtime.run import RunSettings
from pyagentd.runtime.status import Outcome
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec

if TYPE_CHECKING:
    from pyagentd.mission.budget import Budget
    from pyagentd.mission.signature import Signature
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder


# A mission's value as people and other models read it, and read back.
#
# The answer of a mission is the last text of its run: a string as it is, anything else as JSON in a fence,
# firewalled fields hidden. Whoever spawned it gets the same as JSON.

_FENCED = re.compile(r"```json\n(.*)\n```", re.DOTALL)


def shown(public: Any) -> str:
    """Return the answer that a value is, of which everybody may see all."""
    if isinstance(public, str) and public.strip() and not _FENCED.fullmatch(public):
        return public
    return f"```json\n{dumped(public, indent=2)}\n```"


def as_json(answer: str) -> str:
    """Return as JSON what ``shown`` made of a value."""
    fenced = _FENCED.fullmatch(answer.strip())
    return dumped(json.loads(fenced[1])) if fenced else dumped(answer)


def dumped(value: Any, *, indent: int | None = None) -> str:
    """Return a plain value as JSON; what JSON does not know, a date say, as its text."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def plain(value: Any) -> Any:
    """Return a plain value as it is when it has been JSON."""
    return json.loads(dumped(value))


NAME = "mission"
PRESET = "mission"
"""The preset that a mission is made from."""

_NEVER = frozenset({"question", "TodoWrite", "skill", "tool_search", "request_scope_expansion"})
"""Tools that are about a conversation, which a mission is none."""

_CHANGING = frozenset({"Write", "Edit"})
_MISSIONS_DEEP = 3  # as ``mission.options.MAX_DEPTH``, whose room is not loaded here
_DAY_S = 24 * 60 * 60.0

DESCRIPTION = """\
Delegate a task whose answer has a type. A model that sees nothing of this conversation answers it with small \
programs that call tools, filter, join and count, so that large intermediate data never passes through anybody's \
context; you get the value as JSON, checked against `signature`. Use it to collect structured facts from many files, \
pages or agents. `signature` says what comes back: `{count :int, files [{path :string, lines :int}]}`; types are \
:string :int :float :bool :any, [type] for lists, {name type} for maps, a ? after a type for what may be absent. \
`context` is data that its programs see. Several calls in one answer run in parallel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lending:
    """What a mission may be given.

    Attributes:
        preset: The caller's, as it holds now.
        tools: Names of the caller's tools, in their order.
        above: Returns how many missions a mission of the caller would have above it.
    """

    preset: Preset
    tools: tuple[str, ...]
    above: Callable[[], int] = lambda: 0

    def lendable(self) -> tuple[str, ...]:
        """Return those tools that make sense in a program."""
        return tuple(name for name in self.tools if name not in _NEVER)

    def values(self, args: Args) -> dict[str, Any]:
        """Return what the mission's ``preset.md`` says in place of its template's."""
        own, tools = self.preset, self.chosen(args)
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

    def chosen(self, args: Args) -> tuple[str, ...]:
        """Return the tools that a call wants; all of them where it does not say.

        Raises:
            ToolError: One of them is not the caller's to give.
        """
        able, wanted = self.lendable(), args.get("tools")
        if wanted is None:
            return able
        if unknown := [name for name in wanted if name not in able]:
            raise ToolError(
                f"A mission can be given your own tools only, and {', '.join(unknown)} is none of them. "
                f"You can give: {', '.join(able) or 'none'}"
            )
        return tuple(dict.fromkeys(wanted))


class Missions(Feature):
    """Runs that answer with a value of a type, and the tool that starts them."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._kindred = Kindred()
        if (agents := kernel.find(AgentSpawner)) is not None:
            agents.outputs[NAME] = as_value

    def tools_for(self, run: RunBuilder) -> Sequence[ToolSpec]:
        """Return the tool, where there are agents."""
        agents, ref = self.kernel.find(AgentSpawner), run.branch.ref
        if agents is None:
            return ()
        lending = Lending(
            preset=run.preset,
            tools=tuple(run.permitted(run.preset.tools)),
            above=lambda: self._kindred.above(ref),
        )
        spawner = agents.spawner(run.branch, run.options, run.run_id)
        return (mission_tool(spawner, depth=len(run.ancestors), lending=lending),)

    def settings_for(self, run: RunBuilder, settings: RunSettings) -> RunSettings:
        """Have the run of a preset that promises a signature be a mission."""
        if not run.preset.signature:
            return settings
        from pyagentd.features.missions import MissionRun, mission_of  # the language is loaded with the first one

        given = run.message.get("mission") or {}
        mission = mission_of(run.run_id, run.preset, run.branch.conversation, given)
        make = partial(MissionRun, mission=mission, ref=run.branch.ref, kindred=self._kindred)
        return replace(settings, make=make)


def mission_tool(spawner: Spawner, *, depth: int, lending: Lending) -> ToolSpec:
    """Return the tool for a run of a branch that is ``depth`` agents below its root."""

    async def run(args: Args, ctx: ToolContext) -> Output:
        try:
            return as_value(await spawner.run_agent(_assignment(args, ctx.call_id, lending)))
        except PyagentdError as error:  # it could not be made or started
            raise ToolError(f"The mission could not be started: {error}") from error

    def describe(args: Args, ctx: ToolContext) -> Target:
        if depth >= MAX_DEPTH:
            raise ToolError(f"Agents may be nested {MAX_DEPTH} deep; do this task yourself")
        if lending.above() > _MISSIONS_DEEP:
            raise ToolError(f"Missions may be nested {_MISSIONS_DEEP} deep; do this task yourself")
        try:
            readable(args["signature"], "`signature`")
        except PyagentdError as error:
            raise ToolError(str(error)) from None
        return Target(detail=f"with {', '.join(lending.chosen(args)) or 'no tools'}")

    return ToolSpec(
        name=NAME,
        description=DESCRIPTION,
        input_schema=_schema(lending.lendable()),
        kind="meta",
        confirm=True,
        parallel_safe=True,
        timeout_s=_DAY_S,
        run=run,
        describe=describe,
        preview=lambda args, ctx: _preview(args, lending),
    )


def readable(text: str, source: str) -> Signature:
    """Return the signature that a person or a model wrote; see ``contract.readable``."""
    from pyagentd.features import missions as contract  # the language is loaded when the first mission comes

    return contract.readable(text, source)


def promised(preset: Preset) -> str:
    """Return the signature of a preset as it is understood; raises as ``contract.contract_of``."""
    from pyagentd.features import missions as contract

    return contract.contract_of(preset).signature.render()


def as_value(outcome: Outcome) -> Output:
    """Return what a mission came to as the tool gives it: its value as JSON, or why there is none."""
    output = result_of(outcome)
    if output.ok:
        return replace(output, text=as_json(output.text))
    failed = output.text.startswith("Error: Agent failed\n")
    return Output(text=outcome.message if failed else output.text, ok=False)


def _assignment(args: Args, call_id: str, lending: Lending) -> Assignment:
    context: Mapping[str, Any] = args.get("context") or {}
    return Assignment(
        preset=PRESET,
        description=described(args["prompt"]),
        prompt=args["prompt"],
        call_id=call_id,
        values=lending.values(args),
        message={"mission": {"context": dict(context)}},
    )


def _preview(args: Args, lending: Lending) -> str:
    """Return what a human should know before the mission starts, its rights first."""
    own, tools = lending.preset, lending.chosen(args)
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
    return {
        "type": "object",
        "properties": {
            "prompt": {"type": "string", "minLength": 1, "description": "The whole task, for one who knows nothing"},
            "signature": {"type": "string", "minLength": 1, "description": "What comes back, as {count :int}"},
            "context": {"type": "object", "description": "Data for its programs, by name"},
            "tools": {"type": "array", "items": names, "description": "Which of your tools it may use; default: all"},
            "max_turns": {"type": "integer", "minimum": 1, "maximum": 20, "description": "Programs it may write"},
        },
        "required": ["prompt", "signature"],
        "additionalProperties": False,
    }


# Which missions run now, so that those below one share its budget of turns and know how deep they are.
#
# Between a mission and one below it may be any number of chats: an agent of a mission that itself starts a mission.


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the tree a mission is: whose budget it spends, and how many missions are above it."""

    budget: Budget
    depth: int


class Kindred:
    """The missions of all branches that run now."""

    def __init__(self) -> None:
        self._running: dict[str, Place] = {}  # by branch key

    def above(self, ref: BranchRef) -> int:
        """Return how many missions a mission that is started from ``ref`` would have above it."""
        around = (ref, *paths.ancestors_of(ref))
        return next((place.depth + 1 for each in around if (place := self._running.get(each.key))), 0)

    @contextmanager
    def running(self, ref: BranchRef, max_turns: int) -> Iterator[Place]:
        """Have missions below ``ref`` know, as long as the block lasts, that one runs there; say where that is."""
        above = next((place for each in paths.ancestors_of(ref) if (place := self._running.get(each.key))), None)
        if above is None:
            from pyagentd.mission.budget import Budget  # the language is loaded when the first mission comes
            from pyagentd.mission.options import TURN_BUDGET

            place = Place(Budget(turns=max(TURN_BUDGET, max_turns)), 0)
        else:
            place = Place(above.budget, above.depth + 1)
        self._running[ref.key] = place
        try:
            yield place
        finally:
            del self._running[ref.key]
