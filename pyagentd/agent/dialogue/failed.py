"""Which calls of tools have failed: the document does not say so, and whoever shows it wants to.

A call failed when the model got its result as an error: it could not be made, was denied, or was cut off. What a tool
itself says of its success, such as the exit code of a command, is in its result. Clients are told by ``failed``
events, each before the text of the call, and when they attach.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from pyagentd.store.conversation import Conversation

MOST = 1000  # calls that are told when a client attaches, the latest


def of_part(row: Mapping[str, Any]) -> str | None:
    """Return the id of the call in a ``part`` row if it has failed."""
    data = row.get("data_json", {})
    return str(data["toolCallId"]) if data.get("state") == "output-error" else None


def current(conversation: Conversation) -> list[str]:
    """Return the ids of the calls in the conversation that have failed, the latest first."""
    found = (
        call
        for message in reversed(conversation.messages.values())
        for part in reversed(message.parts)
        if part.is_tool and (call := of_part(part.row)) is not None
    )
    return list(islice(found, MOST))
