"""The view of a run that goes on after a restart and had compacted the conversation before; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyagentd.agent.compacting.compactor import with_summary
from pyagentd.agent.compacting.marking import marker_of
from pyagentd.agent.compacting.pruning import pruned
from pyagentd.agent.compacting.tail import cuts
from pyagentd.llm.prompts import previous_summary
from pyagentd.messages import Message
from pyagentd.store.conversation import Conversation


def compacted_view(view: Sequence[Message], conversation: Conversation, run_id: str) -> tuple[Message, ...]:
    """Return what a run sees whose ``view`` was put together without regard to its own compactions.

    Its blocks stand below the prompt up to which the document is read.
    """
    marker = marker_of(conversation, run_id)
    if marker is None or marker.hidden:
        return tuple(view)
    facts: Mapping[str, Any] = marker.data.get("metadata") or {}
    wanted = marker.data.get("tail_start_id"), facts.get("tail_start_part_id") or ""
    place = next((cut for cut in cuts(view, conversation) if (cut.message_id, cut.part_id) == wanted), None)
    left = previous_summary(view)[1] if place is None else tuple(view[place.index :])
    gone = facts.get("pruned") or ()
    parts = (part for part in conversation.parts.values() if part.is_tool and part.id in gone)
    left = pruned(left, {str(part.data["toolCallId"]): part.id for part in parts})
    summary = str(marker.data.get("summary") or "")
    return with_summary(summary, left) if summary else left
