"""Background commands in ``state.db``.

The rows are the only copy. A running process is found again by process id and start time.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pyagentd.errors import StoreError
from pyagentd.store.db.state import State, Table

Status = Literal["running", "completed", "failed", "killed", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task; the fields are the columns of ``tasks``."""

    branch_dir: str  # of the branch or agent that began it, below the sessions root or absolute
    id: str  # task_001, counted for each agent_name
    agent_name: str  # or the session's id
    command: str
    cwd: str
    started_at: str  # ISO 8601, as 2026-02-12T10:00:00Z
    pid: int
    pid_started: int  # ticks since boot; 0 where the system does not tell
    status: Status = "running"
    exit_code: int | None = None
    ended_at: str | None = None
    output_path: str
    wake: bool = False  # its end begins a turn
    tool_call_id: str | None = None


_TASKS = Table("tasks", Task)


class TooMany(StoreError):
    """The limit of running tasks is reached."""


def put(state: State, task: Task, *, most: int) -> Task:
    """Add a task under the next free id, and return it with that id; raises as ``State.writing``.

    Raises:
        TooMany: Its agent runs ``most`` tasks already.
    """
    with state.writing() as db:
        known = db.execute("SELECT id, status FROM tasks WHERE agent_name = ?", (task.agent_name,)).fetchall()
        if sum(status == "running" for _, status in known) >= most:
            raise TooMany(f"{most} tasks run, which is the limit", hint="Wait for one to end, or kill one")
        task = dataclasses.replace(task, id=f"task_{max((_number(id) for id, _ in known), default=0) + 1:03}")
        _TASKS.insert(db, [task])
    return task


def end(state: State, task: Task) -> None:
    """Record the end of a task; raises as ``State.writing``."""
    with state.writing() as db:
        db.execute(
            "UPDATE tasks SET status = ?, exit_code = ?, ended_at = ? WHERE agent_name = ? AND id = ?",
            (task.status, task.exit_code, task.ended_at, task.agent_name, task.id),
        )


def find(state: State, *, agent_name: str | None = None, status: Status | None = None) -> list[Task]:
    """Return tasks in the order in which they began; raises as ``State.reading``."""
    where = "WHERE (?1 IS NULL OR agent_name = ?1) AND (?2 IS NULL OR status = ?2)"
    return _TASKS.select(state, f"{where} ORDER BY started_at, id", (agent_name, status))


def get(state: State, agent_name: str, id: str) -> Task | None:
    """Return one task; raises as ``State.reading``."""
    return next(iter(_TASKS.select(state, "WHERE agent_name = ? AND id = ?", (agent_name, id))), None)


def remove_ended(state: State, agent_name: str, *, keep: int) -> None:
    """Remove all but the last ``keep`` ended tasks of an agent; raises as ``State.writing``."""
    with state.writing() as db:
        db.execute(
            "DELETE FROM tasks WHERE agent_name = ?1 AND status <> 'running' AND id NOT IN (SELECT id FROM tasks "
            "WHERE agent_name = ?1 AND status <> 'running' ORDER BY ended_at DESC, id DESC LIMIT ?2)",
            (agent_name, keep),
        )


def _number(id: str) -> int:
    digits = id.rpartition("_")[2]
    return int(digits) if digits.isdecimal() else 0


# Hints in ``state.db`` that tell a daemon which branches to open when it starts, because work waits there.
#
# The logs own these facts. A superfluous hint costs one look; without a hint waiting work is found when its branch is
# opened, or when all branches are searched.


class Hint(NamedTuple):
    """A branch with waiting work."""

    branch_dir: str  # as chat_sessions.id
    kind: str  # "ask", "background" or "queue"
    id: str  # of the ask, of the agent, or of the message


def change(state: State, noted: Iterable[Hint], forgotten: Iterable[Hint], *, now_ms: int) -> None:
    """Add hints and remove others; raises as ``State.writing``."""
    with state.writing() as db:
        db.executemany("DELETE FROM pending WHERE branch_dir = ? AND kind = ? AND id = ?", list(forgotten))
        db.executemany(
            "INSERT OR IGNORE INTO pending (branch_dir, kind, id, created_at) VALUES (?, ?, ?, ?)",
            [(*hint, now_ms) for hint in noted],
        )


def found(state: State) -> list[Hint]:
    """Return all hints, the oldest first; raises as ``State.reading``."""
    with state.reading() as db:
        rows = db.execute("SELECT branch_dir, kind, id FROM pending ORDER BY created_at, id")
        return [Hint(*row) for row in rows]


def forget_branch(state: State, branch_dir: str) -> None:
    """Remove the hints of a branch without waiting work; raises as ``State.writing``."""
    with state.writing() as db:
        db.execute("DELETE FROM pending WHERE branch_dir = ?", (branch_dir,))
