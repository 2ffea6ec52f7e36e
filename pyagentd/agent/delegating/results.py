"""What an agent's run came to, read from its log: the same that its parent was or would be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyagentd.agent.running.outcome import BY_PARENT, Outcome
from pyagentd.policy.presets import Result
from pyagentd.store.conversation import Conversation, Message, RunState


def outcome_of(conversation: Conversation, run: RunState | None, wanted: Result) -> Outcome | None:
    """Return how a recorded run ended and what it said (``said``); None while it goes on, and of none."""
    if run is None or not run.is_finished:
        return None
    text = said(conversation, run, wanted)
    error: Mapping[str, Any] = run.data.get("error") or {}
    if run.data.get("reason") == "aborted":
        return Outcome(reason="aborted", text=text, message=BY_PARENT if error.get("message") == BY_PARENT else "")
    if not error:  # also when its end was in the document and not in the log
        return Outcome(reason="done", text=text)
    return Outcome(
        reason="error", text=text, code=str(error.get("code") or ""), message=str(error.get("message") or "")
    )


def said(conversation: Conversation, run: RunState, wanted: Result) -> str:
    """Return what the model said in a run: all its text, or what followed its last tool call (DD-15)."""
    texts: list[str] = []
    for message in _answers(conversation, run):
        for part in message.parts:
            if part.is_tool and wanted == "last":
                texts = []
            elif part.type == "text" and part.text:
                texts.append(part.text)
    return "\n\n".join(texts)


def _answers(conversation: Conversation, run: RunState) -> list[Message]:
    """Return the model's messages between the prompt of a run and the next one; what steered it is none."""
    found: list[Message] = []
    inside = False
    for message in conversation.messages.values():
        if message.role == "user":
            steered = inside and message.row.get("metadata_json", {}).get("steered") == run.data["id"]
            inside = steered or message.id == run.data["message_id"]
        elif inside:
            found.append(message)
    return found
