"""How calls of tools came out: the document does not say so, and whoever shows it wants to.

A call failed when the model got its result as an error: it could not be made, was denied, or was cut off. What a
tool itself says of its success, such as the exit code of a command, is in its result. Clients are told by
``failed`` and ``tool`` events, each before the text of the call, and when they attach.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from pyagentd.store.conversation import Conversation
from pyagentd.tools.summary import summary

FAILED_MOST = 1000  # calls that are told when a client attaches, the latest


def failed_call(row: Mapping[str, Any]) -> str | None:
    """Return the id of the call in a ``part`` row if it has failed."""
    data = row.get("data_json", {})
    return str(data["toolCallId"]) if data.get("state") == "output-error" else None


def told(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a ``tool`` event says of a call in a ``part`` row; None when it has no result yet, or is none."""
    data = row.get("data_json", {})
    if data.get("state") not in ("output-available", "output-error"):
        return None
    metadata, name = data.get("metadata") or {}, str(data["type"]).removeprefix("tool-")
    said = metadata.get("summary") or summary(name, data.get("input") or {}, error=str(data.get("errorText") or ""))
    return {
        "id": str(data["toolCallId"]),
        "name": name,
        "summary": str(said),
        "state": "failed" if data["state"] == "output-error" else "done",
        "denied": str(metadata.get("denied") or ""),
    }


def summaries(conversation: Conversation) -> list[tuple[str, str]]:
    """Return ids and summaries of the calls in the conversation that have their result, the latest first."""
    found = (
        (call["id"], call["summary"])
        for message in reversed(conversation.messages.values())
        for part in reversed(message.parts)
        if part.is_tool and (call := told(part.row)) is not None
    )
    return list(islice(found, FAILED_MOST))


def failed_calls(conversation: Conversation) -> list[str]:
    """Return the ids of the calls in the conversation that have failed, the latest first."""
    found = (
        call
        for message in reversed(conversation.messages.values())
        for part in reversed(message.parts)
        if part.is_tool and (call := failed_call(part.row)) is not None
    )
    return list(islice(found, FAILED_MOST))
