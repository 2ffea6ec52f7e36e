"""Missions as tools of other missions, and as plain Python functions (SPEC 004 as_tool, Execution Behavior).

A child spends the budget of the mission that calls it, at any depth, since ``delegate`` finds that mission by
itself. On success its value comes back whole, firewalled fields included: a program may use what no model may read.
On failure ``SubAgentError`` holds the step; a mission around makes a ``tool_error`` of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyagentd.errors import UserError
from pyagentd.mission import judgment, llmtool, registry
from pyagentd.mission.budget import Scope, current
from pyagentd.mission.delegation import delegate
from pyagentd.mission.llmtool import LLMTool, ToolsError
from pyagentd.mission.step import MissionFailed, Step, failed

SubAgentError = MissionFailed  # the specification's name for it

JUDGMENT_TURNS = 3  # the answer, and two more if it does not fit its signature


def as_tool(config: Mapping[str, Any] | None = None, /, **named: Any) -> LLMTool:
    """Return a mission as a function and as a tool.

    Args:
        config: The same as the named arguments, as a dict.
        named: ``prompt`` and ``signature``; ``llm`` unless it is only called by missions, whose model it takes then;
            ``tools`` for a mission of several turns; ``description``; further options of ``delegate``.

    Raises:
        ToolsError: The prompt or the signature is missing or they do not fit each other; an option is unknown.

    Example:
        >>> from pyagentd.mission import Scripted, as_tool
        >>> shout = as_tool(
        ...     prompt="Shout {{text}}",
        ...     signature="(text :string) -> {loud :string}",
        ...     llm=Scripted(['(call "return" {:loud (upcase ctx/text)})']),
        ... )
        >>> shout(text="hello")
        {'loud': 'HELLO'}
    """
    return llmtool.of_mapping({**(config or {}), **named})


def step_of(tool: LLMTool, args: Mapping[str, Any]) -> Step:
    """Run ``tool`` with ``args`` and return how it ended."""
    around = current()
    try:
        llm = _callback(tool, around)
    except registry.ModelNotFound as error:
        return failed(error.reason, str(error))
    except UserError as error:
        return failed("validation_error", str(error))
    options = {"models": _models(tool, around), **tool.options}
    context = {**(options.pop("context", None) or {}), **args}
    if tool.judges:
        options = {"max_turns": JUDGMENT_TURNS, "system_prompt": judgment.instructions(tool.contract)} | options
        llm = judgment.judging(llm, tool.contract)
    return delegate(tool.prompt, llm=llm, signature=tool.contract, tools=tool.tools or {}, context=context, **options)


def _models(tool: LLMTool, around: Scope | None) -> Mapping[str, Any]:
    return tool.options.get("models") or (around.models if around else {})


def _callback(tool: LLMTool, around: Scope | None) -> Callable[..., Any]:
    return registry.resolve(tool.llm, _models(tool, around), around.llm if around else None)


__all__ = ["SubAgentError", "ToolsError", "as_tool", "step_of"]
