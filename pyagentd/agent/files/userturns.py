"""Which messages of the user's a change belongs to: those are the turns that files go back by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyagentd.errors import NotFound
from pyagentd.store.conversation import Conversation


def last_turn(conversation: Conversation) -> str:
    """Return the last message of the user's, "" when there is none."""
    return next((each.id for each in reversed(conversation.messages.values()) if _is_turn(each.row)), "")


def turns_from(conversation: Conversation, message_id: str) -> frozenset[str]:
    """Return the messages of the user's from ``message_id`` on.

    Raises:
        NotFound: There is none with this id.
    """
    messages = list(conversation.messages.values())
    at = next((index for index, each in enumerate(messages) if each.id == message_id), None)
    if at is None:
        raise NotFound(f"There is no message {message_id}", mend="`pyagentd show SESSION --json` has their ids")
    if messages[at].role != "user":
        raise NotFound(f"{message_id} is no message of yours", mend="Name one of yours: files go back to before it")
    return frozenset(each.id for each in messages[at:] if each.role == "user")


def _is_turn(row: Mapping[str, Any]) -> bool:
    metadata = row.get("metadata_json", {})
    return row.get("role") == "user" and not metadata.get("queued_at") and not metadata.get("queue_canceled_at")
