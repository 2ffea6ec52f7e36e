"""Plans: ``make_plan`` runs a mission that writes a plan, ``run_plan`` runs the steps of the plan.

A plan is a value; its steps contain their status and result, so a saved plan continues where it stopped. A step calls
a tool, delegates a prompt, or runs a program. It can use the results of the steps it needs: in arguments and prompts
as ``{{id.field}}``, in programs as ``ctx/id``.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pyagentd import lisp
from pyagentd.errors import ToolError, UserError, did_you_mean
from pyagentd.lisp import serialization, values
from pyagentd.lisp.errors import LispError
from pyagentd.mission import signature
from pyagentd.mission.budget import Budget, Scope
from pyagentd.mission.delegation import delegate
from pyagentd.mission.firewall import Firewall
from pyagentd.mission.step import Fail, MissionFailed, Step, failed_step
from pyagentd.mission.tools import Tool, Toolbox, ToolsError, normalize
from pyagentd.mission.turn import fail_of
from pyagentd.store import atomic

VERSION = 1
SIGNATURE = (
    "{steps [{id :string, tool :string?, args :map?, prompt :string?, signature :string?, tools [:string]?,"
    " program :string?, needs [:string]?, description :string?}]}"
)

Status = Literal["pending", "running", "done", "failed"]

REFERENCE = re.compile(r"\{\{\s*([A-Za-z_][\w-]*(?:\.[\w-]+)*)\s*\}\}")
_ID = re.compile(r"[A-Za-z_][\w-]*")
_KINDS = ("tool", "prompt", "program")


class PlanError(UserError):
    """A plan cannot be run, or a file does not contain one; the message lists every problem.

    Attributes:
        problems: One sentence each.
    """

    code = "plan-error"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One step of a plan, with its status and result.

    Attributes:
        id: The name that other steps use for its result.
        tool: The tool it calls. A step has exactly one of ``tool``, ``prompt`` and ``program``.
        args: The tool's arguments; strings may refer to results.
        prompt: The prompt it delegates, a template over the results.
        signature: The type of the result of the prompt.
        tools: The tools that the prompt's mission or the program may call, by name.
        program: The program it runs.
        needs: Steps that must be done first; those it refers to need not be listed.
        description: For people.
        status: In a file, "running" means that the process ended during the step.
        result: Its result as plain Python.
        failure: ``{"reason", "message"}`` and, of a tool, ``"op"``; None unless it failed.
        duration_ms: Wall time.
    """

    id: str
    tool: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    prompt: str | None = None
    signature: str | None = None
    tools: tuple[str, ...] = ()
    program: str | None = None
    needs: tuple[str, ...] = ()
    description: str = ""
    status: Status = "pending"
    result: Any = None
    failure: Mapping[str, Any] | None = None
    duration_ms: int = 0

    @property
    def predecessors(self) -> tuple[str, ...]:
        """The ids of the steps that must be done first: those in ``needs`` and those it refers to."""
        referred = [
            name.split(".")[0] for text in _texts((self.args, self.prompt)) for name in REFERENCE.findall(text)
        ]
        return tuple(dict.fromkeys((*self.needs, *referred)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps towards a goal, in the order they were written; immutable: ``run_plan`` returns a new plan."""

    steps: tuple[PlanStep, ...]
    goal: str = ""  # a description

    @property
    def done(self) -> bool:
        """Whether every step is done."""
        return all(step.status == "done" for step in self.steps)

    @property
    def failed(self) -> PlanStep | None:
        """The first step that failed, if any."""
        return next((step for step in self.steps if step.status == "failed"), None)

    @property
    def results(self) -> dict[str, Any]:
        """The results of the steps that are done, by id."""
        return {step.id: step.result for step in self.steps if step.status == "done"}

    def ready(self) -> tuple[PlanStep, ...]:
        """Return the pending steps whose predecessors are all done."""
        done = {step.id for step in self.steps if step.status == "done"}
        return tuple(step for step in self.steps if step.status == "pending" and done.issuperset(step.predecessors))

    def updated(self, step: PlanStep) -> "Plan":
        """Return the plan with ``step`` replacing the step of the same id."""
        return replace(self, steps=tuple(step if each.id == step.id else each for each in self.steps))

    def reset_failed(self) -> "Plan":
        """Return the plan with failed and interrupted steps pending again."""
        kept = ("pending", "done")
        reset = (
            each if each.status in kept else replace(each, status="pending", failure=None, duration_ms=0)
            for each in self.steps
        )
        return replace(self, steps=tuple(reset))

    @classmethod
    def of(cls, source: Any, goal: str = "") -> "Plan":
        """Return the plan described by the value of a planning mission, or by data of the same shape.

        Args:
            source: A ``Step``, ``{"steps": […]}``, or the list of steps.
            goal: A description of the goal, or "".

        Raises:
            MissionFailed: The step failed.
            PlanError: It is not a plan; lists every problem.
        """
        data = values.to_python(source.unwrap() if isinstance(source, Step) else source)
        listed = data.get("steps") if isinstance(data, Mapping) else data
        if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
            raise PlanError(["A plan is a map with a vector of steps, and each step is a map"])
        stated = data.get("goal") if isinstance(data, Mapping) else ""
        plan = cls(steps=tuple(_step(each, index) for index, each in enumerate(listed)), goal=goal or stated or "")
        if found := problems(plan):
            raise PlanError(found)
        return plan

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON with the version of the format."""
        return {"version": VERSION, "goal": self.goal, "steps": [_json(step) for step in self.steps]}

    def save(self, path: str | Path) -> Path:
        """Write the plan with status and results, atomically.

        Raises:
            StoreError: The file cannot be written.
        """
        target = Path(path).expanduser()
        atomic.make_dirs(target.parent)
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=2) + "\n"
        atomic.write_bytes(target, text.encode("utf-8", "replace"))  # a result may have half a surrogate pair
        return target

    @classmethod
    def load(cls, path: str | Path) -> "Plan":
        """Return the plan in a file.

        Raises:
            PlanError: The file cannot be read, or is not a plan of this version.
        """
        try:
            data = json.loads(Path(path).expanduser().read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise PlanError([f"{path} cannot be read: {error}"]) from error
        if not isinstance(data, Mapping) or data.get("version") != VERSION:
            raise PlanError([f"{path} is not a plan of version {VERSION}"])
        try:
            return cls.of(data)
        except PlanError as error:
            raise PlanError([f"{path}: {problem}" for problem in error.problems]) from error


def problems(plan: Plan) -> list[str]:
    """Return the problems of a plan that do not depend on the tools, a sentence each."""
    ids = [step.id for step in plan.steps]
    found = [f'Two steps are called "{name}"' for name in dict.fromkeys(ids) if ids.count(name) > 1]
    for step in plan.steps:
        given = [kind for kind in _KINDS if getattr(step, kind)]
        if not _ID.fullmatch(step.id):
            found.append(f'Step "{step.id}": an id is letters, digits, - and _, and begins with a letter')
        if len(given) != 1:
            found.append(f'Step "{step.id}" has {" and ".join(given) or "nothing to do"}: give one of {_LISTED}')
        missing = [name for name in step.predecessors if name not in ids]
        found += [f'Step "{step.id}" needs "{name}", which is not a step' for name in missing]
    return found or _circles(plan)


_LISTED = ", ".join(_KINDS)


def _circles(plan: Plan) -> list[str]:
    left = {step.id: set(step.predecessors) for step in plan.steps}
    while ready := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in ready:
            del left[name]
    return [f"These steps wait for each other: {', '.join(left)}"] if left else []


def _step(data: Mapping[str, Any], index: int) -> PlanStep:
    known = {each.name: data[each.name] for each in fields(PlanStep) if data.get(each.name) is not None}
    known["id"] = str(known.get("id") or f"step-{index + 1}")
    for name, kind in _SHAPES.items():
        found = known.get(name)
        if name in known and not (isinstance(found, kind) and (kind is not list or set(map(type, found)) <= {str})):
            raise PlanError([f'Step "{known["id"]}": {name} is not a {_WORDS[kind]}'])
    if known.get("status", "pending") not in get_args(Status):
        raise PlanError([f'Step "{known["id"]}": its status is none of {", ".join(get_args(Status))}'])
    with suppress(LispError, ValueError, TypeError):  # a result that is not encoded as in a file is kept unchanged
        known["result"] = values.to_python(serialization.decode(known.get("result")))
    known.update({name: tuple(known[name]) for name in ("tools", "needs") if name in known})
    return PlanStep(**known)


_SHAPES: dict[str, Any] = {
    "description": str,
    "tool": str,
    "args": Mapping,
    "prompt": str,
    "signature": str,
    "tools": list,
    "program": str,
    "needs": list,
    "failure": Mapping,
}
_WORDS: dict[Any, str] = {str: "string", Mapping: "map", list: "vector of names"}


def _json(step: PlanStep) -> dict[str, Any]:
    stated = {name: getattr(step, name) for name in ("id", *_SHAPES) if getattr(step, name)}
    made = {name: list(value) if isinstance(value, tuple) else value for name, value in stated.items()}
    if step.status == "pending":
        return made
    result = {} if step.result is None else {"result": serialization.encode(values.from_python(step.result))}
    return {**made, "status": step.status, **result, "duration_ms": step.duration_ms}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


# Running a plan, step by step; the plan can be saved after each.
#
# A failed step stops the plan; the same call on the returned plan, or on the file, continues from there. A step that
# was running when the process ended is run again, so tools of plans should be idempotent.


def run_plan(
    plan: Plan,
    *,
    tools: Mapping[str, Any] | None = None,
    save_to: str | Path | None = None,
    on_step: Callable[[PlanStep], None] = lambda step: None,
    **options: Any,
) -> Plan:
    """Run the remaining steps of ``plan`` and return it with the results.

    Args:
        plan: The plan; failed steps are run again.
        tools: The tools that its steps may call.
        save_to: A file to which the plan is written before and after each step.
        on_step: Called with each step when it starts and when it ends.
        options: Options of ``delegate`` for the steps with prompts, most of all ``llm``.

    Raises:
        PlanError: A step names a tool that does not exist; nothing was run.
        ToolsError: One of ``tools`` is not a tool.
        StoreError: The plan cannot be saved.
    """
    known = normalize(tools or {})
    if missing := missing_tools(plan, known):
        raise PlanError(missing)
    plan = plan.reset_failed()

    def note(step: PlanStep) -> Plan:
        noted = plan.updated(step)
        if save_to is not None:
            noted.save(save_to)
        on_step(step)
        return noted

    while (ready := plan.ready()) and plan.failed is None:
        step = replace(ready[0], status="running")
        plan = note(step)
        started = time.monotonic()
        ended = _run_step(step, plan, known, options)
        plan = note(replace(ended, duration_ms=round((time.monotonic() - started) * 1000)))
    return plan


def missing_tools(plan: Plan, known: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each tool that a step names and that is not in ``known``."""
    found = []
    for step in plan.steps:
        for name in (*((step.tool,) if step.tool else ()), *step.tools):
            if name not in known:
                hint = did_you_mean(name, known, inside=True) or f"there are {', '.join(sorted(known)) or 'none'}"
                found.append(f'Step "{step.id}": there is no tool "{name}"; {hint}')
    return found


def _run_step(step: PlanStep, plan: Plan, tools: Mapping[str, Tool], options: Mapping[str, Any]) -> PlanStep:
    results = {name: plan.results[name] for name in step.predecessors}
    try:
        result = values.to_python(values.from_python(_result(step, results, tools, options)))
    except MissionFailed as error:
        return _fail_step(step, error.fail)
    except LispError as error:
        return _fail_step(step, Fail(reason=error.reason, message=str(error), op=step.tool))
    return replace(step, status="done", result=result)


def _fail_step(step: PlanStep, fail: Fail) -> PlanStep:
    failure = {"reason": fail.reason, "message": fail.message}
    return replace(step, status="failed", failure=failure | ({"op": fail.op} if fail.op else {}))


def _result(step: PlanStep, results: Mapping[str, Any], tools: Mapping[str, Tool], options: Mapping[str, Any]) -> Any:
    offered = {name: tools[name] for name in (*step.tools, *([step.tool] if step.tool else []))}
    box = Toolbox(
        tools=offered, catalog={}, validation="enabled", firewall=Firewall(), scope=Scope(budget=Budget()), span=""
    )
    if step.tool is not None:
        return box.call(step.tool, values.from_python(fill(step.args, results)))
    if step.prompt is not None:
        own = {"signature": step.signature} if step.signature else {}
        more = {**options, **own}
        context = {**(more.pop("context", None) or {}), **results}
        return delegate(step.prompt, **{"llm": None, **more, "tools": offered, "context": context}).unwrap()
    ended = lisp.run(step.program or "", context=results, tools=box.call)
    if ended.signal == "fail":
        raise MissionFailed(Step(ok=False, fail=fail_of(ended.value)))
    return values.to_python(ended.value)


def fill(value: Any, results: Mapping[str, Any]) -> Any:
    """Return ``value`` with every ``{{id.field}}`` replaced: alone by the value itself, within text by its text.

    Raises:
        LispError: ``eval_error``: a result has no such field.
    """

    def text(found: re.Match[str]) -> str:
        result = _look_up(found[1], results)
        return result if isinstance(result, str) else "" if result is None else json.dumps(result, ensure_ascii=False)

    if isinstance(value, str):
        if whole := REFERENCE.fullmatch(value):
            return _look_up(whole[1], results)
        return REFERENCE.sub(text, value)
    if isinstance(value, Mapping):
        return {key: fill(each, results) for key, each in value.items()}
    return [fill(each, results) for each in value] if isinstance(value, list | tuple) else value


def _look_up(path: str, results: Mapping[str, Any]) -> Any:
    found: Any = results
    for name in path.split("."):
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise LispError("eval_error", f'{{{{{path}}}}} refers to "{name}", which is not in the result')
    return found


# Missions that write plans.
#
# The model is shown the tools with their types and cannot call them. It can call ``create_plan``, which checks a plan
# and returns it, so that the model can correct mistakes.

_PROMPT = """{prompt}

Do not do this now: make a plan for it. Call create_plan with the steps and return what it gives:
(call "return" (call "create_plan" {{:steps […]}}))"""

_DESCRIPTION = (
    "Looks a plan over and gives it back. A step has an id and one of: tool with args (a map), prompt with signature "
    "and tools (for what needs judgment), or program. A string {{id.field}} in args or prompt stands for the result "
    "of an earlier step; a program reads it as ctx/id. needs lists steps that come first without being referred to."
)


def create_plan(catalog: Mapping[str, Any]) -> Tool:
    """Return the tool ``create_plan``, which checks plans over the tools of ``catalog``."""
    known = normalize(catalog, catalog=True)

    def check_plan(steps: list[Any]) -> dict[str, Any]:
        try:
            plan = Plan.of({"steps": steps})
        except PlanError as error:
            raise ToolError(error.message) from error
        if missing := missing_tools(plan, known):
            raise ToolError("; ".join(missing))
        return {"steps": plan.reset_failed().to_json()["steps"]}

    contract = signature.parse(f"(steps {SIGNATURE.removeprefix('{steps ').removesuffix('}')}) -> :map")
    return Tool(name="create_plan", function=check_plan, signature=contract, description=_DESCRIPTION)


def make_plan(prompt: str, *, tool_catalog: Mapping[str, Any], llm: Any, **options: Any) -> Step[Any]:
    """Run a mission that writes a plan and return its step; ``Plan.of(step)`` is the plan.

    Args:
        prompt: The task.
        tool_catalog: The tools that the plan's steps may call.
        llm: The model that writes the plan.
        options: Further options of ``delegate``.
    """
    try:
        tools = {**normalize(options.pop("tools", None)), "create_plan": create_plan(tool_catalog)}
    except ToolsError as error:
        return failed_step(error.reason, str(error))
    arguments = {"signature": SIGNATURE, **options}
    step = delegate(_PROMPT.format(prompt=prompt), llm=llm, tools=tools, tool_catalog=tool_catalog, **arguments)
    if not step.ok:
        return step
    try:
        missing = missing_tools(Plan.of(step), normalize(tool_catalog, catalog=True))
    except PlanError as error:
        missing = list(error.problems)
    return (
        failed_step("validation_error", f"The plan cannot be carried out: {'; '.join(missing)}") if missing else step
    )
