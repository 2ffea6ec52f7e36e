"""Missions over more tools than a prompt should hold (SPEC 004 Tool Discovery).

A first mission looks through the registry by words and names the tools it wants; the mission proper gets those and no
others. Both spend one budget. The first one starts with what the prompt's own words find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyagentd.errors import UserError
from pyagentd.mission.budget import Budget, current
from pyagentd.mission.delegation import delegate
from pyagentd.mission.ranking import ranked
from pyagentd.mission.step import Step, failed
from pyagentd.mission.tools import Tool, normalize

LIMIT = 10
_FOUND = 8  # tools that one search shows

_PROMPT = """Choose the tools that are needed for the task below; do not carry it out.

Task: {prompt}

{found}
find_tools looks for others by words. Return the names of the tools that are needed, {limit} at most, no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What a look through a registry found.

    Attributes:
        tools: The tools that were chosen, by name.
        step: The mission that chose.
    """

    tools: Mapping[str, Tool] = field(default_factory=dict)
    step: Step


def find_tools(registry: Mapping[str, Tool]) -> Tool:
    """Return the tool that finds tools of ``registry`` by words."""

    def find_tools(query: str, limit: int = _FOUND) -> list[dict[str, str]]:
        """Find tools by words of their names, parameters and descriptions; the best first."""
        return [
            {"name": tool.name, "call": tool.schema(), "description": tool.description}
            for tool in ranked(query, registry, min(limit, 50))
        ]

    return normalize({"find_tools": find_tools})["find_tools"]


def discover(prompt: str, *, registry: Mapping[str, Any], llm: Any, limit: int = LIMIT, **options: Any) -> Discovery:
    """Choose the tools of ``registry`` that ``prompt`` needs.

    Args:
        prompt: The task, its placeholders filled or not.
        registry: All tools, as ``delegate`` takes them.
        llm: Who chooses.
        limit: How many at most.
        options: Further options of ``delegate`` for the choosing.

    Raises:
        ToolsError: Something in the registry is no tool.
    """
    known = normalize(registry)
    first = ranked(prompt, known, limit)
    found = "\n".join(f"- {tool.schema()}  {tool.description}".rstrip() for tool in first)
    step = delegate(
        _escaped(_PROMPT.format(prompt=prompt, found=f"It may need these:\n{found}\n" if found else "", limit=limit)),
        llm=llm,
        signature="{tools [:string]}",
        tools={"find_tools": find_tools(known)},
        **options,
    )
    if not step.ok:
        return Discovery(step=step)
    chosen = {name: known[name] for name in step.value["tools"][:limit] if name in known}
    if chosen or not step.value["tools"]:
        return Discovery(tools=chosen, step=step)
    names = ", ".join(map(str, step.value["tools"]))
    return Discovery(step=failed("tool_not_found", f"None of the tools that were chosen exists: {names}"))


def delegate_discovering(
    prompt: str,
    *,
    registry: Mapping[str, Any],
    llm: Any,
    limit: int = LIMIT,
    discovery_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Step:
    """Run a mission with those tools of ``registry`` that it needs.

    Args:
        prompt: The mission.
        registry: All tools there are.
        llm: Who chooses the tools and then works.
        limit: How many tools the mission gets at most.
        discovery_options: Options of ``delegate`` for the choosing; another ``llm`` for instance.
        options: Of the mission; ``tools`` are there besides those that were chosen.
    """
    if current() is None and "budget" not in options:
        options["budget"] = Budget()
    try:
        choosing = {"llm": llm, "budget": options.get("budget"), **(discovery_options or {})}
        found = discover(prompt, registry=registry, limit=limit, **choosing)
    except UserError as error:
        return failed(getattr(error, "reason", "validation_error"), str(error))
    if not found.step.ok:
        return found.step
    return delegate(prompt, llm=llm, tools={**options.pop("tools", {}), **found.tools}, **options)


def _escaped(text: str) -> str:
    """Return a prompt whose braces are text: the task's placeholders belong to the mission proper."""
    return text.replace("{{", "{ {").replace("}}", "} }")
