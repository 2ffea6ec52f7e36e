"""Turns rows of a log into updates for an editor, in the same way for replay and for live events; pure.

An editor gets each character of a part once, whether the text arrived in deltas, as a whole, or with the loaded
session. It does not get the messages that it sent itself, since it shows them already.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from acp import (
    plan_entry,
    schema,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)

from pyagentd.policy.action import canonical_tool
from pyagentd.store.conversation import COMPACTION
from pyagentd.store.document.hidden import COMMAND
from pyagentd.store.journal import Row
from pyagentd.tools.spec import summary
from pyagentd.words import quantity

# Tool calls for editors: title, kind, file locations and changes; pure.
#
# Made from the part of the log that records the call, in the AI SDK's form (``data_json``).

KINDS: Final[Mapping[str, schema.ToolKind]] = {
    "Read": "read", "Glob": "search", "Grep": "search", "Edit": "edit", "Write": "edit", "Bash": "execute",
    "WebFetch": "fetch", "WebSearch": "fetch", "PersistentAgent": "think", "task": "think", "mission": "think",
}  # fmt: skip

_LONGEST: Final = 20_000  # characters of a result; the log has the whole result

_STATUS: Final[Mapping[str, schema.ToolCallStatus]] = {
    "input-streaming": "pending",
    "input-available": "in_progress",
    "output-available": "completed",
    "output-error": "failed",
}

GOING: Final = ("input-streaming", "input-available")  # the states of a call without a result

Content = schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent


def call_update(
    data: Mapping[str, Any], root: str, *, is_new: bool
) -> schema.ToolCallStart | schema.ToolCallProgress:
    """Return the update for a call: a start if it ``is_new``, else progress, with its result if it has one."""
    name, given = tool_name(data), data.get("input")
    arguments = given if isinstance(given, Mapping) else {}
    shown: dict[str, Any] = {
        "tool_call_id": str(data["toolCallId"]),
        "title": summary(name, arguments, root=root),
        "status": _STATUS.get(str(data.get("state")), "pending"),
        "content": changes(name, arguments, root) + result(data),
        "locations": locations(arguments, root),
        "raw_input": arguments,
    }
    return start_tool_call(**shown, kind=kind(name)) if is_new else update_tool_call(**shown)


def tool_name(data: Mapping[str, Any]) -> str:
    """Return the name of the tool that a part calls."""
    return str(data["type"]).removeprefix("tool-")


def kind(tool: str) -> schema.ToolKind:
    """Return the protocol's kind of ``tool``."""
    return KINDS.get(canonical_tool(tool), "other")


def locations(arguments: Mapping[str, Any], root: str) -> list[schema.ToolCallLocation]:
    """Return the location of the file that a call uses, so that an editor can follow it."""
    given = arguments.get("file_path") or arguments.get("path")
    if not isinstance(given, str) or not given:
        return []
    line = arguments.get("offset")
    known: dict[str, Any] = {"line": line} if isinstance(line, int) and line > 0 else {}
    return [schema.ToolCallLocation(path=_absolute(given, root), **known)]


def changes(tool: str, arguments: Mapping[str, Any], root: str) -> list[Content]:
    """Return a call's changes to a file as diffs, from its arguments."""
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
    """Return the result of a call, or its error; empty for a successful edit, which is shown as a diff."""
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


Update = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
    | schema.AgentPlanUpdate
    | schema.AvailableCommandsUpdate
    | schema.CurrentModeUpdate
    | schema.SessionInfoUpdate
    | schema.UsageUpdate
)

PLAN_TOOL: Final = "TodoWrite"  # its list is shown as a plan, from ``todo`` events


class Updates:
    """Makes one editor's updates of one conversation, and remembers what was sent.

    Args:
        root: The session's workspace root.
        is_own: Returns whether this editor sent the message with an id.

    Attributes:
        stop_reason: The provider's stop reason of the last request to the model.
    """

    def __init__(self, root: str, is_own: Callable[[str], bool] = lambda message_id: False) -> None:
        self.stop_reason = ""
        self._root = root
        self._is_own = is_own
        self._users: dict[str, bool] = {}  # the user's messages → whether they were sent
        self._texts: dict[str, list[str]] = {}  # texts of the user's messages that were not sent
        self._messages: dict[str, str] = {}  # part → its message
        self._shown: dict[str, int] = {}  # part → number of characters that were sent
        self._reasoning: set[str] = set()
        self._calls: dict[str, str] = {}  # calls that were sent → their state then

    def history(self, shown: Mapping[str, Any]) -> Iterator[Update]:
        """Yield the updates of a whole conversation from the reply of ``show``, without hidden messages."""
        for each in shown["messages"]:
            message, parts = each["message"], each["parts"]
            metadata = message.get("metadata_json") or {}
            is_gone = (metadata.get("hidden") or metadata.get("hidden_at")) and metadata.get("hidden_by") != COMMAND
            is_told = not is_gone and not metadata.get("queued_at") and not metadata.get("queue_canceled_at")
            updates = [*self.feed(Row(0, "message", message))]
            for part in parts:
                updates += self.feed(Row(0, "part", part))
            if message["role"] == "user" and is_told:
                updates += self._user_message(str(message["id"]))
            if is_told:
                yield from updates

    def feed(self, row: Row) -> Iterator[Update]:
        """Yield the updates for ``row``."""
        match row.type, row.data:
            case "message", {"id": str(id), "role": role, **rest}:
                metadata = rest.get("metadata_json") or {}
                if role == "user":
                    self._users.setdefault(id, self._is_own(id))
                elif metadata.get("stop_reason"):
                    self.stop_reason = str(metadata["stop_reason"])
            case "part", {"message_id": str(message), "data_json": {"text": str(text)}} if message in self._users:
                if not self._users[message]:
                    self._texts.setdefault(message, []).append(text)
            case "part", {"message_id": str(message)} if message not in self._users:
                yield from self._part(row.data)
            case "delta", {"part_id": str(part), "text": str(text)} if part in self._shown:
                yield from self._grown(part, text)
            case "run", {"state": "started", "message_id": str(message)}:
                yield from self._user_message(message)

    def agent(self, moved: Mapping[str, Any]) -> schema.ToolCallProgress | None:
        """Return an agent's progress as an update of the call that spawned it; None without such an open call."""
        call = str(moved.get("call_id") or "")
        if moved.get("state") == "finished" or self._calls.get(call) not in GOING:
            return None
        count, using = int(moved.get("count") or 0), ", ".join(map(str, moved.get("calls") or ()))
        does = f"Calling {using}" if moved.get("state") == "tool" and using else "Thinking"
        so_far = f" ({quantity(count, 'tool call')} so far)" if count else ""
        name = " ".join(filter(None, (str(moved.get("preset") or ""), str(moved.get("id") or ""))))
        content = tool_content(text_block(f"{name}: {does}{so_far}"))
        return update_tool_call(call, status="in_progress", content=[content])

    def _user_message(self, message: str) -> Iterator[Update]:
        """Yield the message of another client when its turn begins."""
        if not self._users.get(message, True):
            self._users[message] = True
            for text in self._texts.pop(message, []):
                yield _with_message_id(update_user_message_text(text), message)

    def _part(self, row: Mapping[str, Any]) -> Iterator[Update]:
        part, type, data = str(row["id"]), str(row["type"]), row["data_json"]
        if type in ("text", "reasoning"):
            self._messages[part] = str(row["message_id"])
            if type == "reasoning":
                self._reasoning.add(part)
            yield from self._grown(part, str(data.get("text", ""))[self._shown.setdefault(part, 0) :])
        elif type.startswith("tool-") and canonical_tool(tool_name(data)) != PLAN_TOOL:
            yield from self._call(data)
        elif type == COMPACTION and part not in self._calls:
            self._calls[part] = type
            yield update_agent_thought_text("The conversation so far was summarised.")

    def _grown(self, part: str, text: str) -> Iterator[Update]:
        if not text:
            return
        self._shown[part] += len(text)
        made = update_agent_thought_text(text) if part in self._reasoning else update_agent_message_text(text)
        yield _with_message_id(made, self._messages[part])

    def _call(self, data: Mapping[str, Any]) -> Iterator[Update]:
        call, state = str(data["toolCallId"]), str(data.get("state"))
        known = self._calls.get(call)
        self._calls[call] = state
        if known != state:
            yield call_update(data, self._root, is_new=known is None)


def plan(items: Iterable[Mapping[str, Any]]) -> schema.AgentPlanUpdate:
    """Return an agent's list of steps as a plan; the list has no priorities."""
    return update_plan(plan_entry(str(each["content"]), status=each["status"]) for each in items)


def usage(context: Mapping[str, Any]) -> schema.UsageUpdate | None:
    """Return the context's size and the session's cost from a ``context`` event; None if unknown."""
    if not context.get("window") or context.get("used") is None:
        return None
    used, size = int(context["used"]), int(context["window"])
    update = schema.UsageUpdate(session_update="usage_update", used=used, size=size)
    if (spent := context.get("cost_usd")) is not None:
        update.cost = schema.Cost(amount=float(spent), currency="USD")
    return update


def notice_chunk(text: str) -> schema.AgentMessageChunk:
    """Return a text from the daemon, not the model, as a chunk of the conversation."""
    return schema.AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))


def _with_message_id(
    update: schema.UserMessageChunk | schema.AgentMessageChunk | schema.AgentThoughtChunk, message: str
) -> schema.UserMessageChunk | schema.AgentMessageChunk | schema.AgentThoughtChunk:
    update.message_id = message
    return update
