"""How an agent stands, in the words of SPEC 003 Viewing Tasks (``/status``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyagentd.agent.tasks.telling import ago, one_line
from pyagentd.store.db.tasks import Task

_STAND_IN = "none: the offline stand-in answers (PYAGENTD_BACKEND=offline)"


def standing(facts: Mapping[str, Any], running: Sequence[Task], now: datetime) -> str:
    """Return the lines that ``/status`` shows.

    Args:
        facts: ``agent``, ``title`` (of a session that is no named agent, "" without one; absent of an agent),
            ``model``, ``stand_in`` (whether none is asked), ``permissions``, ``status``, ``messages`` (how many the
            conversation has), ``last_at`` (ISO 8601, of the last one, or None), ``saved`` ({saved_at, description} or
            None), ``git`` ({branch, uncommitted}, of the repository it works in, or None), ``asks`` (questions that
            wait).
        running: The tasks that run.
        now: The time.
    """
    idle = f", idle {_for(facts['last_at'], now)}" if facts["last_at"] else ""
    count = facts["messages"]
    title, said = facts.get("title"), f"active ({count} message{'' if count == 1 else 's'}{idle})"
    model = facts["model"] or "the default of its backend"
    lines = [
        f"Agent: {facts['agent']}" if title is None else f"Session: {_called(title, facts['agent'])}",
        f"Model: {_STAND_IN if facts.get('stand_in') else model}",
        f"Permissions: {facts['permissions'] or 'those of its preset'}",
        f"Status: {facts['status']}",
        f"{'Session' if title is None else 'Conversation'}: {said if count else 'none'}",
        *_asks(facts.get("asks") or 0),
        *_git(facts.get("git")),
        "",
        "Running tasks:" if running else "No running tasks.",
        *(f"  [{task.id}] {one_line(task.command, 60)} (running, {_for(task.started_at, now)})" for task in running),
    ]
    if (saved := facts["saved"]) is not None:
        at = datetime.fromisoformat(saved["saved_at"])
        lines += ["", f"Last session saved: {at:%Y-%m-%d %H:%M} - {saved['description']}"]
    return "\n".join(lines)


def _called(title: str, session_id: str) -> str:
    return f"{title} ({session_id})" if title else session_id


def _asks(count: int) -> list[str]:
    if not count:
        return []
    return [f"Waiting: {count} question{'' if count == 1 else 's'}; `pyagentd asks` lists what to answer"]


def _git(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    count = found["uncommitted"]
    return [f"Git: {found['branch'] or 'no branch'} ({count} uncommitted file{'' if count == 1 else 's'})"]


def _for(at: str, now: datetime) -> str:
    return ago(at, now).removesuffix(" ago")
