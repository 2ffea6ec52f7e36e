"""Saved conversations in words, for people (SPEC 003 Context History)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyagentd.store.conversation import Conversation
from pyagentd.store.document import hidden

ID = 8  # characters of an id that are shown


def left(conversation: Conversation) -> list[str]:
    """Return what whoever opens a branch is told of the conversation that was put behind there, if none goes on."""
    if hidden.visible(conversation):
        return []
    last = next((each for each in reversed(hidden.groups(conversation)) if each.by == hidden.CONTEXT), None)
    notice = last.messages[0].metadata.get("notice") if last else None
    return [str(notice)] if notice else []


def listing(name: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Return the lines that ``/context history`` shows.

    Args:
        name: The agent's, or the session's.
        found: The conversations, ``{id, agent_name, description, saved_at, message_count}``, the last one first.
    """
    if not found:
        return f"No saved sessions for {name}"
    return "\n".join([f"Sessions for {found[0]['agent_name']}:", *map(_line, found)])


def span(seconds: float) -> str:
    """Return a span of time in its largest even unit: ``30 minutes``, ``90 seconds``, ``1 hour``."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if (seconds >= size and seconds % size == 0) or size == 1:
            return f"{seconds / size:g} {unit}{'' if seconds == size else 's'}"
    raise AssertionError(seconds)


def _line(row: Mapping[str, Any]) -> str:
    count = row["message_count"]
    gone = ", its file is gone" if row.get("gone") else ""
    said = f"{row['description']} ({count} message{'' if count == 1 else 's'}{gone})"
    return f"  [{row['id'][:ID]}] {_local(row['saved_at'])} - {said}"


def _local(saved_at: str) -> str:
    try:
        return datetime.fromisoformat(saved_at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return saved_at
