"""Whether the last mission of a session was cut off, so that it can go on, and from where.

A mission goes on behind the last turn that came to its end, whichever run that was of: one that was resumed and cut
off again before it had a turn stands where the run stood that it went on from. One that never had a turn begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyagentd.store.conversation import Conversation

_NO_ANSWER = frozenset({"error", "aborted"})


def unfinished(conversation: Conversation) -> str:
    """Return the id of the last mission's run if that neither fulfilled its task nor gave up, else "".

    Messages behind it that failed before they began anything change nothing.
    """
    for run in reversed(conversation.runs.values()):
        if not run.is_finished:
            return ""
        rows = conversation.missions.get(run.data["id"], {})
        if "start" in rows:
            return str(run.data["id"]) if "end" not in rows else ""
        if run.data.get("reason") not in _NO_ANSWER:
            return ""
    return ""


def standing(conversation: Conversation, run_id: str) -> Mapping[str, Any] | None:
    """Return the last row that says where the mission of a run stands; None while no turn of it has ended."""
    return next((rows["turn"] for rows in _chain(conversation, run_id) if "turn" in rows), None)


def begun(conversation: Conversation, run_id: str) -> Mapping[str, Any] | None:
    """Return the row that says what the mission of a run was asked first."""
    return next((rows["start"] for rows in reversed(_chain(conversation, run_id)) if "start" in rows), None)


def _chain(conversation: Conversation, run_id: str) -> list[Mapping[str, Mapping[str, Any]]]:
    """Return the rows of a mission by phase, run by run, the last one first."""
    chain: list[Mapping[str, Mapping[str, Any]]] = []
    seen: set[str] = set()
    while run_id and run_id not in seen:
        seen.add(run_id)
        chain.append(rows := conversation.missions.get(run_id, {}))
        run_id = str(rows.get("start", {}).get("resumed") or "")
    return chain
