"""Carrying out a plan: step by step, with its state on disk after each (SPEC 004 Plan Persistence).

A step that failed stops the plan; the same call on the plan it returned, or on the file, goes on from there. A step
that was running when the process ended is done again: tools of plans should stand being called twice.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd import lisp
from pyagentd.lisp import values
from pyagentd.lisp.errors import LispError
from pyagentd.mission.bridge import run_here
from pyagentd.mission.callbacks import called as calling
from pyagentd.mission.callbacks import words_of
from pyagentd.mission.delegation import delegate
from pyagentd.mission.outcome import fail_of
from pyagentd.mission.plan import REFERENCE, Plan, PlanError, PlanStep
from pyagentd.mission.step import Fail, MissionFailed, Step
from pyagentd.mission.tools import Tool, normalize
from pyagentd.spelling import did_you_mean


def run_plan(
    plan: Plan,
    *,
    tools: Mapping[str, Any] | None = None,
    save_to: str | Path | None = None,
    on_step: Callable[[PlanStep], None] = lambda step: None,
    clock: Callable[[], float] = time.monotonic,
    **options: Any,
) -> Plan:
    """Do what is left of ``plan`` and return it with the results.

    Args:
        plan: Steps that are done stay so; those that failed are tried again.
        tools: What its steps may call.
        save_to: A file that has the state of the plan before and after every step.
        on_step: Told of every step that begins and ends.
        clock: Seconds, for durations.
        options: Of ``delegate``, for the steps that are prompts: ``llm`` above all.

    Raises:
        PlanError: A step needs a tool that is not there; nothing was done.
        ToolsError: One of ``tools`` is no tool.
        StoreError: The disk refused the state.
    """
    known = normalize(tools or {})
    if missing := missing_tools(plan, known):
        raise PlanError(missing)
    plan = plan.again()

    def note(step: PlanStep) -> Plan:
        noted = plan.updated(step)
        if save_to is not None:
            noted.save(save_to)
        on_step(step)
        return noted

    while (ready := plan.ready()) and plan.failed is None:
        step = replace(ready[0], status="running")
        plan = note(step)
        began = clock()
        ended = _ended(step, plan, known, options)
        plan = note(replace(ended, duration_ms=round((clock() - began) * 1000)))
    return plan


def missing_tools(plan: Plan, known: Mapping[str, Any]) -> list[str]:
    """Return a sentence for every tool that a step names and ``known`` has not."""
    found = []
    for step in plan.steps:
        for name in (*((step.tool,) if step.tool else ()), *step.tools):
            if name not in known:
                hint = did_you_mean(name, known, inside=True) or f"there are {', '.join(sorted(known)) or 'none'}"
                found.append(f'Step "{step.id}": there is no tool "{name}"; {hint}')
    return found


def _ended(step: PlanStep, plan: Plan, tools: Mapping[str, Tool], options: Mapping[str, Any]) -> PlanStep:
    results = {name: plan.results[name] for name in step.before}
    try:
        result = values.to_python(values.from_python(_result(step, results, tools, options)))
    except MissionFailed as error:
        return _failed(step, error.fail)
    except LispError as error:
        return _failed(step, Fail(reason=error.reason, message=str(error), op=step.tool))
    except Exception as error:  # a tool is anybody's code
        return _failed(step, Fail(reason="tool_error", message=words_of(error) or type(error).__name__, op=step.tool))
    return replace(step, status="done", result=result)


def _failed(step: PlanStep, fail: Fail) -> PlanStep:
    failure = {"reason": fail.reason, "message": fail.message}
    return replace(step, status="failed", failure=failure | ({"op": fail.op} if fail.op else {}))


def _result(step: PlanStep, results: Mapping[str, Any], tools: Mapping[str, Tool], options: Mapping[str, Any]) -> Any:
    offered = {name: tools[name] for name in step.tools}
    if step.tool is not None:
        return called(tools[step.tool], filled(step.args, results))
    if step.prompt is not None:
        own = {"signature": step.signature} if step.signature else {}
        more = {**options, **own}
        context = {**(more.pop("context", None) or {}), **results}
        return delegate(step.prompt, tools=offered, context=context, **more).unwrap()
    ended = lisp.run(step.program or "", context=results, tools=_caller(offered))
    if ended.signal == "fail":
        raise MissionFailed(Step(ok=False, fail=fail_of(ended.value)))
    return values.to_python(ended.value)


def called(tool: Tool, args: Any) -> Any:
    """Call ``tool`` as a program would.

    Raises:
        LispError: ``validation_error``: the arguments do not fit its signature.
    """
    prepared = tool.prepare(args)
    if prepared.problems:
        listed = "; ".join(map(str, prepared.problems))
        raise LispError("validation_error", f'The arguments of "{tool.name}" do not fit {tool.schema()}: {listed}')
    result = calling(tool.call, prepared.args)
    if inspect.isawaitable(result):
        result = calling(run_here, result, float("inf"))
    result = values.from_python(result)
    if problems := tool.check(result, "enabled"):
        listed = "; ".join(map(str, problems))
        raise LispError("validation_error", f'What "{tool.name}" gave does not fit {tool.schema()}: {listed}')
    return result


def _caller(tools: Mapping[str, Tool]) -> Callable[[str, dict[Any, Any]], Any]:
    def call(name: str, args: dict[Any, Any]) -> Any:
        if name not in tools:
            raise LispError("tool_not_found", f'There is no tool "{name}"')
        try:
            return values.from_python(called(tools[name], args))
        except LispError:
            raise
        except Exception as error:
            raise LispError("tool_error", f'Tool "{name}" failed: {words_of(error)}') from error

    return call


def filled(value: Any, results: Mapping[str, Any]) -> Any:
    """Return ``value`` with every ``{{id.field}}`` replaced: alone by the value itself, within text by its text.

    Raises:
        LispError: ``eval_error``: a result has no such field.
    """
    if isinstance(value, str):
        if whole := REFERENCE.fullmatch(value):
            return _at(whole[1], results)
        return REFERENCE.sub(lambda found: _text(_at(found[1], results)), value)
    if isinstance(value, Mapping):
        return {key: filled(each, results) for key, each in value.items()}
    return [filled(each, results) for each in value] if isinstance(value, list | tuple) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value is not None else ""


def _at(path: str, results: Mapping[str, Any]) -> Any:
    found: Any = results
    for name in path.split("."):
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise LispError("eval_error", f'{{{{{path}}}}} refers to "{name}", which is not in the result')
    return found
