"""A compaction on its way into the log: one synthetic message with one part, see ``store.compaction``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyagentd.agent.branches.recorder import Recorder
from pyagentd.store.conversation import COMPACTION, Conversation, Part
from pyagentd.store.journal import message_row, part_row

ORIGIN = "compaction"


def record_marker(
    recorder: Recorder, *, session_id: str, data: Mapping[str, Any], run_id: str, facts: Mapping[str, Any]
) -> None:
    """Record a marker and show it where the run is now.

    Args:
        recorder: Of the branch.
        session_id: Whose message it is.
        data: Of the part, see ``store.compaction``.
        run_id: The run that compacts.
        facts: Further metadata of the message: ``model`` and ``usage`` of the summary.

    Raises:
        StoreError: The disk refused; nothing was shown.
    """
    now = recorder.now_ms()
    after = _standing(recorder.conversation)
    metadata = {
        "origin": ORIGIN,
        "synthetic": True,
        "run_id": run_id,
        **facts,
        **({"after": after} if after else {}),
    }
    message = message_row(role="assistant", session_id=session_id, metadata=metadata, now_ms=now)
    part = part_row(message_id=message["id"], session_id=session_id, index=0, kind=COMPACTION, data=data, now_ms=now)
    with recorder.together():
        recorder.record("message", message)
        recorder.record("part", part)


def last_marker(conversation: Conversation) -> Part | None:
    """Return the compaction that holds, None when there is none."""
    for message in reversed(conversation.messages.values()):
        for part in () if message.is_hidden else message.parts[:1]:
            if part.type == COMPACTION and not part.hidden:
                return part
    return None


def _standing(conversation: Conversation) -> str:
    """Return the part of an answer that goes on behind which the marker stands, "" when no answer goes on."""
    run = conversation.last_run
    if run is None or run.is_finished or run.data.get("kind") == ORIGIN:
        return ""
    for message in reversed(conversation.messages.values()):
        if message.role == "user":
            return ""
        if not message.parts or message.is_hidden:  # of a prompt that is asked again, the answer before
            continue
        if message.parts[0].type == COMPACTION:
            return str(message.row["metadata_json"].get("after") or "")
        return message.parts[-1].id
    return ""


def marker_of(conversation: Conversation, run_id: str) -> Part | None:
    """Return the last compaction that a run made, None when it made none."""
    for message in reversed(conversation.messages.values()):
        if (
            message.parts
            and message.parts[0].type == COMPACTION
            and message.row["metadata_json"].get("run_id") == run_id
        ):
            return message.parts[0]
    return None
