"""Whether the last mission of a session was cut off, so that it can go on."""

from __future__ import annotations

from pyagentd.store.conversation import Conversation


def unfinished(conversation: Conversation) -> str:
    """Return the id of the last run if that is a mission which neither fulfilled its task nor gave up, else ""."""
    run = conversation.last_run
    if run is None or not run.is_finished:
        return ""
    rows = conversation.missions.get(run.data["id"], {})
    return str(run.data["id"]) if "turn" in rows and "end" not in rows else ""
