"""New ``message`` and ``part`` rows, in the guide's shape (neighbours B.2, chat_messages and chat_parts)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyagentd.clock import new_id


class Served(NamedTuple):
    """Who answered, or was to: a backend's name, "" when it is not known, and a model's."""

    provider: str
    model: str


def served_by(row: Mapping[str, Any]) -> Served:
    """Return what a message's row says of its model; in older logs that is only a name."""
    named = (row.get("metadata_json") or {}).get("model")
    if isinstance(named, Mapping):
        return Served(str(named.get("provider_id") or ""), str(named.get("model_id") or ""))
    return Served("", str(named or ""))


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
