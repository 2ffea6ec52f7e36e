"""Missions that make plans instead of acting (SPEC 004 tools vs tool_catalog).

The model sees the tools with their types and cannot call them; what it can call is ``create_plan``, which looks a
plan over and gives it back, so that what is wrong with it is told while it can be mended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyagentd.errors import ToolError
from pyagentd.mission import signature as signatures
from pyagentd.mission.carrying import missing_tools
from pyagentd.mission.delegation import delegate
from pyagentd.mission.plan import SIGNATURE, Plan, PlanError
from pyagentd.mission.step import Step, failed
from pyagentd.mission.tools import Tool, normalize

_PROMPT = """{prompt}

Do not do this now: make a plan for it. Call create_plan with the steps and return what it gives:
(call "return" (call "create_plan" {{:steps […]}}))"""

_DESCRIPTION = (
    "Looks a plan over and gives it back. A step has an id and one of: tool with args (a map), prompt with signature "
    "and tools (for what needs judgment), or program. A string {{id.field}} in args or prompt stands for the result "
    "of an earlier step; a program reads it as ctx/id. needs lists steps that come first without being referred to."
)


def create_plan(catalog: Mapping[str, Any]) -> Tool:
    """Return the tool by which a mission states a plan over the tools of ``catalog``."""
    known = normalize(catalog, catalog=True)

    def checked(steps: list[Any]) -> dict[str, Any]:
        try:
            plan = Plan.of({"steps": steps})
        except PlanError as error:
            raise ToolError(error.message) from error
        if missing := missing_tools(plan, known):
            raise ToolError("; ".join(missing))
        return _stated(plan)

    contract = signatures.parse(f"(steps {SIGNATURE.removeprefix('{steps ').removesuffix('}')}) -> :map")
    return Tool(name="create_plan", function=checked, signature=contract, description=_DESCRIPTION)


def make_plan(prompt: str, *, tool_catalog: Mapping[str, Any], llm: Any, **options: Any) -> Step:
    """Have a plan made and return the step whose value it is; ``Plan.of(step)`` reads it.

    Args:
        prompt: What is to be done.
        tool_catalog: What the plan's steps may call.
        llm: Whose plan it is.
        options: Further options of ``delegate``.
    """
    tools = {**options.pop("tools", {}), "create_plan": create_plan(tool_catalog)}
    asked = {"signature": SIGNATURE, **options}
    step = delegate(_PROMPT.format(prompt=prompt), llm=llm, tools=tools, tool_catalog=tool_catalog, **asked)
    if not step.ok:
        return step
    try:
        missing = missing_tools(Plan.of(step), normalize(tool_catalog, catalog=True))
    except PlanError as error:
        missing = list(error.problems)
    return failed("validation_error", f"The plan cannot be carried out: {'; '.join(missing)}") if missing else step


def _stated(plan: Plan) -> dict[str, Any]:
    """Return a plan as its author wrote it, without state."""
    return {"steps": plan.again().to_json()["steps"]}
