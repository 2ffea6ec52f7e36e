"""New ``message`` and ``part`` rows, in the guide's shape (neighbours B.2, chat_messages and chat_parts)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyagentd.ids import new_id


def message_row(
    *, role: str, session_id: str, metadata: Mapping[str, Any], now_ms: int, id: str | None = None
) -> dict[str, Any]:
    """Return a new ``message`` row, with an id of its own or the one its client made."""
    return {
        "id": id or new_id("msg"),
        "session_id": session_id,
        "role": role,
        "metadata_json": dict(metadata),
        "created_at": now_ms,
        "updated_at": now_ms,
    }


def part_row(
    *, message_id: str, session_id: str, index: int, kind: str, data: Mapping[str, Any], now_ms: int
) -> dict[str, Any]:
    """Return a new ``part`` row; ``data`` is the part as the AI SDK writes it."""
    return {
        "id": new_id("prt"),
        "message_id": message_id,
        "session_id": session_id,
        "index": index,
        "type": kind,
        "data_json": dict(data),
        "created_at": now_ms,
        "updated_at": now_ms,
    }
