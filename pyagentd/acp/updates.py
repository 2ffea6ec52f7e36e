"""From the rows of a log to what an editor is told: the one fold for what was and for what comes; pure.

A part is told by its growth: whether its text came in deltas, whole, or as it stands when a session is loaded, an
editor gets each character once. What this editor sent itself it shows itself, and is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from acp import (
    plan_entry,
    schema,
    text_block,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_user_message_text,
)

from pyagentd.acp import calls
from pyagentd.policy.action import canonical_tool
from pyagentd.store.conversation import COMPACTION
from pyagentd.store.document.hidden import COMMAND
from pyagentd.store.journal import Row

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

PLAN_TOOL: Final = "TodoWrite"  # its list is a plan, which ``todo`` events tell


class Updates:
    """What one editor was told of one conversation.

    Args:
        root: The session's workspace root.
        is_own: Whether the message with an id was sent by this editor.

    Attributes:
        stop_reason: Of the last request to the model, as the provider gave it.
    """

    def __init__(self, root: str, is_own: Callable[[str], bool] = lambda message_id: False) -> None:
        self.stop_reason = ""
        self._root = root
        self._is_own = is_own
        self._users: dict[str, bool] = {}  # the user's messages: whether they were told
        self._texts: dict[str, list[str]] = {}  # of users' messages that were not
        self._messages: dict[str, str] = {}  # part → its message
        self._shown: dict[str, int] = {}  # how much of each text is told
        self._reasoning: set[str] = set()
        self._calls: dict[str, str] = {}  # calls that were told, and the state they were told in

    def history(self, shown: Mapping[str, Any]) -> Iterator[Update]:
        """Yield a whole conversation, canonical as ``show`` returns it; what was taken back is left out."""
        for each in shown["messages"]:
            message, parts = each["message"], each["parts"]
            metadata = message.get("metadata_json") or {}
            is_gone = (metadata.get("hidden") or metadata.get("hidden_at")) and metadata.get("hidden_by") != COMMAND
            is_told = not is_gone and not metadata.get("queued_at") and not metadata.get("queue_canceled_at")
            updates = [*self.feed(Row(0, "message", message))]
            for part in parts:
                updates += self.feed(Row(0, "part", part))
            if message["role"] == "user" and is_told:
                updates += self._told(str(message["id"]))
            if is_told:
                yield from updates

    def feed(self, row: Row) -> Iterator[Update]:
        """Yield what ``row`` adds."""
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
                yield from self._told(message)

    def agent(self, moved: Mapping[str, Any]) -> schema.ToolCallProgress | None:
        """Return how far an agent is, as news of the call that made it; None when no open call here did."""
        call = str(moved.get("call_id") or "")
        if moved.get("state") == "finished" or self._calls.get(call) not in calls.GOING:
            return None
        return calls.agent_moved(call, moved)

    def _told(self, message: str) -> Iterator[Update]:
        """Yield what somebody else said, when its turn comes."""
        if not self._users.get(message, True):
            self._users[message] = True
            for text in self._texts.pop(message, []):
                yield _named(update_user_message_text(text), message)

    def _part(self, row: Mapping[str, Any]) -> Iterator[Update]:
        part, type, data = str(row["id"]), str(row["type"]), row["data_json"]
        if type in ("text", "reasoning"):
            self._messages[part] = str(row["message_id"])
            if type == "reasoning":
                self._reasoning.add(part)
            yield from self._grown(part, str(data.get("text", ""))[self._shown.setdefault(part, 0) :])
        elif type.startswith("tool-") and canonical_tool(calls.tool_name(data)) != PLAN_TOOL:
            yield from self._call(data)
        elif type == COMPACTION and part not in self._calls:
            self._calls[part] = type
            yield update_agent_thought_text("The conversation so far was summarised.")

    def _grown(self, part: str, text: str) -> Iterator[Update]:
        if not text:
            return
        self._shown[part] += len(text)
        made = update_agent_thought_text(text) if part in self._reasoning else update_agent_message_text(text)
        yield _named(made, self._messages[part])

    def _call(self, data: Mapping[str, Any]) -> Iterator[Update]:
        call, state = str(data["toolCallId"]), str(data.get("state"))
        known = self._calls.get(call)
        self._calls[call] = state
        if known is None:
            yield calls.started(data, self._root)
        elif known != state:
            yield calls.progressed(data, self._root)


def plan(items: Iterable[Mapping[str, Any]]) -> schema.AgentPlanUpdate:
    """Return the plan that an agent's list of steps is; the list has no priorities."""
    return update_plan(plan_entry(str(each["content"]), status=each["status"]) for each in items)


def usage(context: Mapping[str, Any]) -> schema.UsageUpdate | None:
    """Return how full the context is and what the session cost, from a ``context`` event; None when not known."""
    if not context.get("window") or context.get("used") is None:
        return None
    used, size = int(context["used"]), int(context["window"])
    update = schema.UsageUpdate(session_update="usage_update", used=used, size=size)
    if (spent := context.get("cost_usd")) is not None:
        update.cost = schema.Cost(amount=float(spent), currency="USD")
    return update


def said(text: str) -> schema.AgentMessageChunk:
    """Return words of ours, not the model's, as an editor shows them."""
    return schema.AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))


def _named(
    update: schema.UserMessageChunk | schema.AgentMessageChunk | schema.AgentThoughtChunk, message: str
) -> schema.UserMessageChunk | schema.AgentMessageChunk | schema.AgentThoughtChunk:
    update.message_id = message
    return update
