"""Whether the last mission of a session was cut off, so that it can go on."""

from __future__ import annotations

from pyagentd.store.conversation import Conversation


def unfinished(conversation: Conversation) -> str:
    """Return the id of the last run if that was a mission which can go on, else ""."""
    run = conversation.last_run
    if run is None or not run.is_finished:
        return ""
    rows = conversation.missions.get(run.data["id"], {})
    ended = rows.get("end")
    if "turn" not in rows or (ended is not None and ended.get("ok")):
        return ""
    return str(run.data["id"])
