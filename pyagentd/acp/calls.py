"""A tool call as editors show it: title, kind, the files it is about, what it changes; pure.

From the part of the log that records it, in the AI SDK's form (``data_json``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from acp import schema, start_tool_call, text_block, tool_content, tool_diff_content, update_tool_call

from pyagentd.policy.action import canonical_tool

KINDS: Final[Mapping[str, schema.ToolKind]] = {
    "Read": "read", "Glob": "search", "Grep": "search", "Edit": "edit", "Write": "edit", "Bash": "execute",
    "WebFetch": "fetch", "WebSearch": "fetch", "PersistentAgent": "think", "task": "think", "mission": "think",
}  # fmt: skip

_TOLD_BY: Final = ("file_path", "path", "command", "pattern", "url", "query", "description", "prompt", "name")
_TITLE: Final = 120  # characters
_LONGEST: Final = 20_000  # characters of a result; the log has all of it

_STATUS: Final[Mapping[str, schema.ToolCallStatus]] = {
    "input-streaming": "pending",
    "input-available": "in_progress",
    "output-available": "completed",
    "output-error": "failed",
}

GOING: Final = ("input-streaming", "input-available")  # the states of a call without a result

Content = schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent


def started(data: Mapping[str, Any], root: str) -> schema.ToolCallStart:
    """Return the update that shows a call for the first time, with its result if it has one."""
    name, arguments = tool_name(data), arguments_of(data)
    return start_tool_call(
        str(data["toolCallId"]),
        title(name, arguments, root),
        kind=kind(name),
        status=status(data),
        content=changes(name, arguments, root) + result(data),
        locations=locations(arguments, root),
        raw_input=arguments,
    )


def progressed(data: Mapping[str, Any], root: str) -> schema.ToolCallProgress:
    """Return the update that shows what became of a call."""
    name, arguments = tool_name(data), arguments_of(data)
    return update_tool_call(
        str(data["toolCallId"]),
        status=status(data),
        title=title(name, arguments, root),
        content=changes(name, arguments, root) + result(data),
        locations=locations(arguments, root),
        raw_input=arguments,
    )


def agent_moved(call: str, moved: Mapping[str, Any]) -> schema.ToolCallProgress:
    """Return the update that shows at a call what the agent that it made does, as an ``agent`` event tells it."""
    count, using = int(moved.get("count") or 0), ", ".join(map(str, moved.get("calls") or ()))
    does = f"Calling {using}" if moved.get("state") == "tool" and using else "Thinking"
    so_far = f" ({count} tool call{'' if count == 1 else 's'} so far)" if count else ""
    name = " ".join(filter(None, (str(moved.get("preset") or ""), str(moved.get("id") or ""))))
    content = tool_content(text_block(f"{name}: {does}{so_far}"))
    return update_tool_call(call, status="in_progress", content=[content])


def tool_name(data: Mapping[str, Any]) -> str:
    """Return the name of the tool that a part calls."""
    return str(data["type"]).removeprefix("tool-")


def arguments_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of the call, {} while they are no object."""
    given = data.get("input")
    return given if isinstance(given, Mapping) else {}


def kind(tool: str) -> schema.ToolKind:
    """Return what the protocol calls the work of ``tool``."""
    return KINDS.get(canonical_tool(tool), "other")


def status(data: Mapping[str, Any]) -> schema.ToolCallStatus:
    """Return how far a call is."""
    return _STATUS.get(str(data.get("state")), "pending")


def title(tool: str, arguments: Mapping[str, Any], root: str) -> str:
    """Return the line that names a call: the tool, and what it is about."""
    about = next((str(arguments[key]) for key in _TOLD_BY if isinstance(arguments.get(key), str)), "")
    line = f"{tool} {_relative(about, root)}" if about else tool
    line = " ".join(line.split())
    return line if len(line) <= _TITLE else f"{line[: _TITLE - 1]}…"


def locations(arguments: Mapping[str, Any], root: str) -> list[schema.ToolCallLocation]:
    """Return the file that a call is about, so that an editor can follow it."""
    given = arguments.get("file_path") or arguments.get("path")
    if not isinstance(given, str) or not given:
        return []
    line = arguments.get("offset")
    place = schema.ToolCallLocation(path=_absolute(given, root))
    if isinstance(line, int) and line > 0:
        place = schema.ToolCallLocation(path=place.path, line=line)
    return [place]


def changes(tool: str, arguments: Mapping[str, Any], root: str) -> list[Content]:
    """Return what a call changes in a file, as the arguments say it."""
    path = arguments.get("file_path")
    if not isinstance(path, str):
        return []
    match canonical_tool(tool), arguments:
        case "Edit", {"old_string": str(old), "new_string": str(new)}:
            return [tool_diff_content(_absolute(path, root), new, old)]
        case "Write", {"content": str(content)}:
            return [tool_diff_content(_absolute(path, root), content)]
    return []


def result(data: Mapping[str, Any]) -> list[Content]:
    """Return what a call gave, or why it failed; of a change that was made the change says it all."""
    match data:
        case {"state": "output-error", **rest}:
            text = str(rest.get("errorText") or "It failed")
        case {"state": "output-available", **rest} if kind(tool_name(data)) != "edit":
            text = str(rest.get("output") or "")
        case _:
            return []
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}\n… {len(text) - _LONGEST} more characters"
    return [tool_content(text_block(text))] if text else []


def _absolute(path: str, root: str) -> str:
    return str(Path(root) / path) if root else path


def _relative(text: str, root: str) -> str:
    return text.removeprefix(f"{root.rstrip('/')}/") if root else text
