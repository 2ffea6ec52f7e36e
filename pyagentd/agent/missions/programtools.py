"""The tools of a run as a mission's programs call them: ``(call "Read" {:file_path …})``.

A call of a program is a call of the run: it has an id, is recorded, decided, asked about, audited and kept in
snapshots like one that the model makes in a chat (``running.calling``). What the program gets is the tool's text, or
data where the tool answers in JSON, with the firewalled fields that a mission below gave; a call that fails ends the
program with the tool's words.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pyagentd.agent.missions.missiontool import NAME as MISSION
from pyagentd.agent.missions.tooltypes import signature_of
from pyagentd.errors import ToolError
from pyagentd.messages import ToolResult
from pyagentd.mission.tools import Tool
from pyagentd.policy.guard import EXPAND
from pyagentd.tools.spec import ToolSpec

_AS_DATA = {"mission": ":any", "task": ":map"}
"""Tools whose text is JSON, and the type of it."""

EXPANSION = "request_scope_expansion"
_WITHIN = "Work within what you may reach, or end with `fail` and say what is missing."

Made = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
"""Makes one call of the run, given name and arguments."""

Whole = Callable[[ToolResult], Awaitable[Any]]
"""Returns the value that a result of the tool ``mission`` does not say all of; None where it does."""


def program_tools(tools: Mapping[str, ToolSpec], make: Made, whole: Whole) -> dict[str, Tool]:
    """Return the tools of a run for its programs, by name."""
    advice = "" if EXPANSION in tools else _WITHIN
    return {name: _tool(name, spec, make, whole, advice) for name, spec in tools.items()}


def _tool(name: str, spec: ToolSpec, make: Made, whole: Whole, advice: str) -> Tool:
    async def call(args: dict[str, Any]) -> Any:
        given = {key: value for key, value in args.items() if value is not None}
        result = await make(name, given)
        if result.is_error:
            raise ToolError(result.text.replace(EXPAND, advice) if advice else result.text)
        if name == MISSION and (value := await whole(result)) is not None:
            return value
        return _data(result.text) if name in _AS_DATA else result.text

    signature = signature_of(spec.input_schema, _AS_DATA.get(name, ":string"))
    return Tool(name=name, function=call, signature=signature, description=spec.description)


def _data(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # a hook added words
        return text
