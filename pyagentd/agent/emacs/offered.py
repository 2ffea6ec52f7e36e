"""What a client says of a tool it has: gptel's definition as JSON, read into what a run needs.

The keys are those of ``gptel-make-tool``; an argument has ``name``, ``type``, ``description``, ``optional`` and what
JSON Schema knows. Two keys are ours, so that the decision sees what a tool touches: an argument with
``path`` ("read" or "write") is a file's name, and one with ``command`` is a command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pyagentd.errors import BadRequest

Confirms = Literal["never", "ask", "always", "function"]
Right = Literal["read", "write"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OURS = ("name", "optional", "path", "command")
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_LONGEST_S = 24 * 3600.0
DEFAULT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """One tool of a client's."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    category: str = "misc"
    confirms: Confirms = "never"  # "function": it depends on the call, and the client knows
    timeout_s: float = DEFAULT_S
    paths: Mapping[str, Right] = field(default_factory=dict)  # by argument
    command: str = ""  # the argument that is a command line


def offered_tool(said: object) -> OfferedTool:
    """Return the tool that a definition describes.

    Raises:
        BadRequest: It cannot be used; says why.
    """
    if not isinstance(said, Mapping):
        raise BadRequest("The definition of a tool is no object")
    name, description = said.get("name"), said.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRequest(f"{name!r} is no name of a tool", mend="Letters, digits, - and _, at most 64")
    if not isinstance(description, str) or not description.strip():
        raise BadRequest(f"The tool {name} has no :description", mend="Say for the model what it does")
    args = _arguments(name, said.get("args"))
    commands = [str(arg["name"]) for arg in args if arg.get("command")]
    confirm = said.get("confirm")
    return OfferedTool(
        name=name,
        description=description,
        input_schema=_schema(args),
        category=str(said.get("category") or "misc"),
        confirms=cast(Confirms, confirm) if confirm in ("always", "function") else "ask" if confirm else "never",
        timeout_s=_seconds(said.get("timeout")),
        paths={str(arg["name"]): "write" if arg["path"] == "write" else "read" for arg in args if arg.get("path")},
        command=commands[0] if commands else "",
    )


def _arguments(tool: str, said: object) -> list[Mapping[str, Any]]:
    if said is None:
        return []
    if not isinstance(said, Sequence) or isinstance(said, str):
        raise BadRequest(f"The :args of the tool {tool} are no list", mend="A list of plists, one for each argument")
    for arg in said:
        if not isinstance(arg, Mapping) or not isinstance(arg.get("name"), str) or not arg["name"]:
            raise BadRequest(f"An argument of the tool {tool} has no :name", mend="A string")
        if arg.get("type") is not None and arg["type"] not in _TYPES:
            raise BadRequest(
                f"The argument {arg['name']} of the tool {tool} is of no :type that there is: {arg['type']!r}",
                mend=f"One of {', '.join(_TYPES)}",
            )
    return list(said)


def _schema(args: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            str(arg["name"]): {key: value for key, value in arg.items() if key not in _OURS} for arg in args
        },
        "required": [str(arg["name"]) for arg in args if not arg.get("optional")],
        "additionalProperties": False,
    }


def _seconds(said: object) -> float:
    if isinstance(said, int | float) and not isinstance(said, bool) and said > 0:
        return min(float(said), _LONGEST_S)
    return DEFAULT_S
