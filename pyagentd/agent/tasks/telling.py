"""Tasks in words: for the model that began them, for people, and as ``agent.json`` has them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pyagentd import regularfile
from pyagentd.store.db.tasks import Task

SHOWN_BYTES = 30_000  # of the output, to a model that asks
TOLD_BYTES = 4_000  # to one that is woken
RECENT = 5  # ended tasks that a list shows

_LONGEST = 120  # characters of a command in a line


def recorded(task: Task) -> dict[str, Any]:
    """Return a task as an element of ``running_tasks`` (SPEC 003 Task Tracking)."""
    facts = {"id": task.id, "command": task.command, "started_at": task.started_at, "pid": task.pid}
    ended = {} if task.status == "running" else {"exit_code": task.exit_code, "ended_at": task.ended_at}
    return {**facts, "status": task.status, **ended}


def ended(task: Task) -> str:
    """Return how a task stands, in a few words."""
    match task.status:
        case "completed":
            return "completed (exit 0)"
        case "failed":
            return f"failed (exit {task.exit_code})"
        case "lost":
            return "lost: it ended while nobody saw it, and how is not known"
    return task.status


def shown(task: Task) -> str:
    """Return a task and the end of its output, for the model."""
    head = f"{task.id} ({one_line(task.command)}): {ended(task)}"
    text, whole = tail(Path(task.output_path), SHOWN_BYTES)
    if not text:
        return f"{head}\n[no output{' yet' if task.status == 'running' else ''}]"
    more = "" if whole else f"[Only the end is shown. The whole output is in {task.output_path}.]\n"
    return f"{head}\n{more}{text}"


def completion(task: Task) -> str:
    """Return the message that wakes the agent when its task has ended."""
    text, whole = tail(Path(task.output_path), TOLD_BYTES)
    said = f"Background task {task.id} ({one_line(task.command)}): {ended(task)}."
    if not text:
        return f"{said} It printed nothing."
    return f"{said} {'Its output' if whole else f'The end of its output (all of it: {task.output_path})'}:\n\n{text}"


def tail(file: Path, most: int) -> tuple[str, bool]:
    """Return the last whole lines of a file that fit into ``most`` bytes, and whether that is all of it; blocks."""
    try:
        with regularfile.opened(file, limit=sys.maxsize) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - most))
            data = stream.read(most)
    except OSError:
        return "", True
    if size > most:
        data = data[data.find(b"\n") + 1 :] if b"\n" in data[:-1] else data
    return data.decode(errors="replace"), size <= most


def listing(name: str | None, tasks: Sequence[Task], now: datetime) -> str:
    """Return what ``/tasks`` shows (SPEC 003 Viewing Tasks); without a name tasks of all, each with its agent's."""
    whose = max((len(task.agent_name) for task in tasks), default=0) if name is None else 0
    running = [task for task in tasks if task.status == "running"]
    over = sorted((task for task in tasks if task.status != "running"), key=lambda task: task.ended_at or "")
    of = f" for {name}" if name else ""
    lines = [f"Running tasks{of}:", *(_line(task, now, whose) for task in running)]
    if not running:
        lines = [f"No running tasks{of}."]
    if over:
        lines += ["", "Recently completed:", *(_line(task, now, whose) for task in reversed(over[-RECENT:]))]
    return "\n".join(lines)


def _line(task: Task, now: datetime, whose: int) -> str:
    agent = f"{task.agent_name:<{whose}} " if whose else ""
    head = f"  {agent}[{task.id}] {one_line(task.command, 40):<20} {task.status:<9}"
    if task.status == "running":
        return f"{head} (started {ago(task.started_at, now)}, PID {task.pid})"
    exit_code = f"exit {task.exit_code}, " if task.exit_code is not None else ""
    return f"{head} ({exit_code}{ago(task.ended_at, now)})"


def ago(at: str | None, now: datetime) -> str:
    """Return how long ago a moment was: ``30 sec ago``, ``5 min ago``."""
    try:
        seconds = max(0, int((now - datetime.fromisoformat(at or "")).total_seconds()))
    except ValueError:
        return "some time ago"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} sec ago"


def one_line(command: str, most: int = _LONGEST) -> str:
    """Return a command in one line."""
    text = " ".join(command.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
