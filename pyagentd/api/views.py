"""Lists as every client shows them: columns, rows and what can be done with a row, made by one operation ``view``.

A client lays a view out and knows nothing of its subject: Emacs in a buffer of ``pyagentd-list.el``, the command line
with ``print_view``. Rows come from the operations that programs use; a view says how people read them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from pyagentd.api.agents import ContextOperations, TaskOperations, agent_tree
from pyagentd.api.approvals import Approvals
from pyagentd.api.group import Client, Group, Process
from pyagentd.api.history import SnapshotOperations
from pyagentd.api.mcp import Env, McpOperations
from pyagentd.api.models import Spending
from pyagentd.api.schedules import Scheduling
from pyagentd.api.sessions import Branches, Sessions
from pyagentd.errors import BadRequest, NotFound, did_you_mean
from pyagentd.features.indexer import Indexer
from pyagentd.features.overview import Overview
from pyagentd.policy.guard import explain_pattern
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.usage import By
from pyagentd.store import paths
from pyagentd.store.registry import Registry
from pyagentd.wire.operations import Operation, operation
from pyagentd.wire.sexp import SexpError, plist_to_dict

LIMIT = 500  # rows, where the client does not say
LONGEST_CELL = 400  # characters

Face = Literal[
    "", "strong", "title", "agent", "dim", "detail", "good", "warn", "bad", "code", "heading", "added", "removed"
]
Followed = Literal["sessions", "tasks"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: Its heading.
        width: How many characters it should have; 0 for the last one, which has the rest.
        right: Whether its cells are aligned to the right.
        sorts: Whether rows can be sorted by it.
    """

    title: str
    width: int = 0
    right: bool = False
    sorts: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in one column of a row; ``sort`` is what it is sorted by, where that is not its text."""

    text: str
    face: Face = ""
    sort: str | float | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return it as it travels; the text is one line."""
        text = " ".join(self.text.split("\n"))
        if len(text) > LONGEST_CELL:
            text = f"{text[: LONGEST_CELL - 1]}…"
        return {"text": text, "face": self.face or None, "sort": self.sort}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a view.

    Attributes:
        id: Names it among the rows, also when the view is made again.
        cells: One for each column.
        label: What a question or message calls it.
        facts: The arguments that actions take from it.
        visit: The place that visiting it opens, see ``session_place``; None where there is none.
    """

    id: str
    cells: Sequence[Cell | str]
    label: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    visit: Mapping[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return it as it travels."""
        cells = [each if isinstance(each, Cell) else Cell(each) for each in self.cells]
        return {
            "id": self.id,
            "cells": [each.to_wire() for each in cells],
            "label": self.label,
            "facts": dict(self.facts),
            "visit": self.visit,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a key does: call an operation for a row, open a place, or show the view with other arguments.

    Attributes:
        key: As Emacs writes it.
        label: What it does, in a word or two.
        operation: The operation it calls.
        takes: The facts of the row that are arguments of it, or of the view to show.
        arguments: Its other arguments, or those of the view to show when ``operation`` and ``place`` are "".
        place: The fact that holds the place to open.
        several: Whether it is done to all marked rows.
        question: The question to confirm, with ``%s`` for the row, or for how many there are.
        noun: What several rows are, in the singular.
        asks: Whether one row is confirmed too, or only several.
        needs: The fact that must be true of a row.
        done: The message afterwards, with ``%s`` for the row; a ``note`` of the reply goes before it.
        env: Whether the operation also takes the client's environment and API key, as ``env`` and ``key``.
        reads: What the client asks the user for: ``argument``, ``prompt``, and ``number`` if it is one.
        saves: Whether the client first saves what it shows of the ``branch`` it takes.
        patience_s: How long the reply may take; 0 for as long as any.
    """

    key: str
    label: str
    operation: str = ""
    takes: Sequence[str] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    several: bool = False
    question: str = ""
    noun: str = ""
    asks: Literal["always", "several"] = "always"
    needs: str = ""
    done: str = ""
    env: bool = False
    reads: Mapping[str, Any] | None = None
    saves: bool = False
    patience_s: int = 0

    def to_wire(self) -> dict[str, Any]:
        """Return it as it travels; what is "" is nil."""
        return {
            "key": self.key,
            "label": self.label,
            "operation": self.operation or None,
            "takes": [name.replace("_", "-") for name in self.takes],
            "arguments": dict(self.arguments),
            "place": self.place.replace("_", "-") or None,
            "several": self.several,
            "question": self.question or None,
            "noun": self.noun or None,
            "asks": self.asks,
            "needs": self.needs.replace("_", "-") or None,
            "done": self.done or None,
            "env": self.env,
            "reads": self.reads,
            "saves": self.saves,
            "patience": self.patience_s or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A list.

    Attributes:
        title: What it lists.
        columns: Its columns.
        rows: Its rows, in order.
        actions: What can be done with them.
        empty: What to say where there are none.
        note: What to say of all of them.
        follows: What has it made again when it changes.
        more: Whether there are rows beyond these.
        current: The id of the row to begin at.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    actions: Sequence[Action] = ()
    empty: str = "Nothing."
    note: str = ""
    follows: Sequence[Followed] = ()
    more: bool = False
    current: str = ""


def session_place(branch: str, title: str = "") -> dict[str, Any]:
    """Return the place that is a branch's conversation; ``title`` is what its session is called."""
    return {"kind": "session", "branch": branch, "title": title or None}


def report_place(name: str, **arguments: Any) -> dict[str, Any]:
    """Return the place that is a report."""
    return {"kind": "report", "name": name, "arguments": arguments}


def view_place(name: str, **arguments: Any) -> dict[str, Any]:
    """Return the place that is a view."""
    return {"kind": "view", "name": name, "arguments": arguments}


# How people read numbers and times.


def moment(value: object) -> datetime | None:
    """Return a time of a reply, milliseconds or ISO 8601, in local time; None where there is none."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value / 1000).astimezone()
    try:
        return datetime.fromisoformat(str(value or "")).astimezone()
    except ValueError:
        return None


def local_time(value: object, form: str = "%Y-%m-%d %H:%M") -> Cell:
    """Return the cell of a time of a reply."""
    at = moment(value)
    return Cell(at.strftime(form), sort=at.timestamp()) if at else Cell("", sort=0)


def age(value: object, now: datetime) -> Cell:
    """Return the cell that says how long ago a time of a reply was: "3h"."""
    at = moment(value)
    if at is None:
        return Cell("", sort=0)
    seconds = max(0, int((now.astimezone(UTC) - at).total_seconds()))
    sizes = (("y", 31557600), ("w", 604800), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    unit, size = next(((unit, size) for unit, size in sizes if seconds >= size), ("s", 1))
    return Cell(f"{seconds // size}{unit}", sort=seconds)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 run", "3 branches"."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def tokens(number: int | None) -> Cell:
    """Return the cell of a number of tokens in a few characters: 950, 1.2k, 12k, 1.2M."""
    known = number or 0
    if known < 1000:
        text = str(known)
    elif known < 9950:
        text = f"{known / 1000:.1f}k"
    else:
        text = f"{known / 1000:.0f}k" if known < 999_500 else f"{known / 1e6:.1f}M"
    return Cell(text, sort=known)


def title_of(row: Mapping[str, Any]) -> str:
    """Return what people call a session as operations tell it: its title, of an agent without one its subject."""
    if row.get("title"):
        return str(row["title"])
    name = str(row.get("session_id") or "")
    return name.partition("-")[2].replace("-", " ") or name if row.get("agent") else name


class Views(Group):
    """The lists, each a method that takes typed arguments, as an operation does, and returns a ``View``.

    The first line of its docstring is the summary that ``views`` tells.
    """

    def __init__(self, kernel: Kernel, registry: Registry, indexer: Indexer | None, process: Process) -> None:
        super().__init__(kernel, registry, indexer, process)
        parts = kernel, registry, indexer, process
        self._sessions = Sessions(*parts)
        self._scheduling = Scheduling(*parts)
        self._tasks = TaskOperations(*parts)
        self._approvals = Approvals(*parts)
        self._contexts = ContextOperations(*parts)
        self._branches = Branches(*parts)
        self._spending = Spending(*parts)
        self._mcp = McpOperations(*parts)
        self._snapshots = SnapshotOperations(*parts)
        self._views: dict[str, Operation] = {
            each.name: each
            for each in (
                operation("running", self._running),
                operation("schedules", self._schedules),
                operation("tasks", self._task_list),
                operation("agents", self._agent_tree),
                operation("branches", self._branch_tree),
                operation("grants", self._grants),
                operation("audit", self._audit),
                operation("contexts", self._saved),
                operation("usage", self._usage),
                operation("mcp", self._servers),
                operation("changes", self._changes),
            )
        }

    async def view(
        self,
        client: Client,
        *,
        name: str,
        arguments: Mapping[str, Any] | Sequence[Any] = (),
        limit: int = LIMIT,
        watch: bool = False,
    ) -> dict[str, Any]:
        """Return the list ``name``, ready to be shown: columns, rows, actions.

        ``arguments`` are those that ``views`` tells of it, at most ``limit`` rows are returned, and ``more`` is true
        where there are others. With ``watch`` the client is told what changes of what the list ``follows``, as by
        ``sessions`` and ``tasks``.

        The reply is ``{name, title, columns, rows, actions, empty, note, follows, more,
        current}``. A column is ``{title,
        width, right, sorts}``; a row ``{id, cells, label, facts, visit}`` with cells ``{text, face, sort}``.
        An action is ``{key, label, operation, takes, arguments, place, several, question, noun, asks, needs, done,
        env, reads, saves,
        patience}``:
        a client calls ``operation`` with ``arguments`` and those ``facts`` of the row that ``takes`` names, opens the
        place that is the fact ``place``, or, with neither, shows the same view with ``arguments``.
        """
        found = self._views.get(name)
        if found is None:
            raise NotFound(f"There is no view {name[:60]!r}", hint=did_you_mean(name, self._views))
        try:
            given = dict(arguments) if isinstance(arguments, Mapping) else plist_to_dict(list(arguments))
        except SexpError as error:
            raise BadRequest(f"arguments is no plist: {error}") from None
        if "limit" in found.parameters:
            given["limit"] = limit
        view: View = await found.run(client, **found.bind_named(given))
        if watch:
            self._watch(client, view.follows)
        return {
            "name": name,
            "title": view.title,
            "columns": [
                {"title": each.title, "width": each.width, "right": each.right, "sorts": each.sorts}
                for each in view.columns
            ],
            "rows": [row.to_wire() for row in view.rows[:limit]],
            "actions": [action.to_wire() for action in view.actions],
            "empty": view.empty,
            "note": view.note or None,
            "follows": list(view.follows),
            "more": view.more or len(view.rows) > limit,
            "current": view.current or None,
        }

    async def views(self, client: Client) -> dict[str, Any]:
        """Return what ``view`` can list: ``{views: (V…)}``, V being ``{name, summary, arguments, session}``.

        ``session`` says whether a session's branch is an argument: "required", "optional", or nil.
        """
        return {"views": [_told(each) for each in self._views.values()]}

    def _watch(self, client: Client, follows: Iterable[Followed]) -> None:
        if "sessions" in follows and (overview := self._kernel.find(Overview)) is not None:
            overview.watchers.add(client)
        if "tasks" in follows:
            self._kernel.overseers.add(client)

    async def _running(self, client: Client) -> View:
        """List running and waiting turns of all sessions, and their agents."""
        found = (await self._sessions.running(client))["running"]
        rows = [_running_row(row) for row in _below(found)]
        waiting = sum(row["state"] == "waiting" for row in found)
        return View(
            title="Running",
            columns=(
                Column("Who", 22),
                Column("State", 8),
                Column("Since", 8),
                Column("Tokens", 6, right=True),
                Column("Session", 26),
                Column("Does", sorts=False),
            ),
            rows=rows,
            actions=(
                Action(
                    key="k",
                    label="stop",
                    operation="abort",
                    takes=("branch",),
                    several=True,
                    question="Stop %s?",
                    noun="run",
                    asks="several",
                    done="Stopped %s",
                ),
            ),
            empty="Nothing is running.",
            note=f"{len(rows) - waiting} running{f', {waiting} waiting' if waiting else ''}" if rows else "",
            follows=("sessions",),
        )

    async def _schedules(self, client: Client, *, branch: str | None = None) -> View:
        """List messages that sessions are sent later or repeatedly."""
        found = (await self._scheduling.schedules(client, branch=branch))["schedules"]
        return View(
            title="Schedules",
            columns=(
                Column("Next", 16),
                Column("When", 18),
                Column("Session", 22),
                Column("By", 9),
                Column("Message", 30, sorts=False),
                Column("Until", 16),
                Column("Id"),
            ),
            rows=[
                Row(
                    id=row["id"],
                    cells=(
                        local_time(row["next_at"]),
                        row["when"],
                        row["session"],
                        Cell("the agent" if row["source"] == "self-schedule" else "you", "dim"),
                        Cell(f"! {row['last_error']}", "bad") if row["last_error"] else Cell(row["text"]),
                        local_time(row["expires_at"]) if row["expires_at"] else Cell("-", "dim", 0),
                        Cell(row["id"], "dim"),
                    ),
                    label=f"“{_cut(row['text'], 40)}”, {row['when']}",
                    facts={"id": row["id"]},
                    visit=session_place(row["branch"]),
                )
                for row in found
            ],
            actions=(
                Action(
                    key="k",
                    label="cancel",
                    operation="schedule-cancel",
                    takes=("id",),
                    several=True,
                    question="Cancel %s?",
                    noun="schedule",
                    done="Cancelled %s",
                ),
                Action(key="x", label="send now", operation="schedule-run", takes=("id",), done="Sent %s"),
            ),
            empty="Nothing is scheduled.",
            follows=("sessions",),
        )

    async def _task_list(self, client: Client, *, branch: str | None = None) -> View:
        """List commands that agents run in the background, the latest first."""
        found = (await self._tasks.tasks(client, branch=branch))["tasks"]
        now = self._kernel.clock.now()
        return View(
            title="Tasks",
            columns=(
                Column("Id", 9),
                Column("Agent", 20),
                Column("Status", 14),
                Column("Since", 6),
                Column("PID", 8),
                Column("Command", sorts=False),
            ),
            rows=[
                Row(
                    id=f"{row['agent']}/{row['id']}",
                    cells=(
                        row["id"],
                        row["agent"],
                        Cell(
                            f"{row['status']} ({row['exit_code']})" if row["exit_code"] else row["status"],
                            {"running": "good", "completed": "dim"}.get(row["status"], "bad"),  # type: ignore[arg-type]
                        ),
                        age(row["ended_at"] or row["started_at"], now),
                        Cell(str(row["pid"]), sort=row["pid"]) if row["status"] == "running" else Cell("", sort=0),
                        row["command"],
                    ),
                    label=f"{row['id']} ({_cut(row['command'], 40)})",
                    facts={
                        "branch": row["branch"],
                        "id": row["id"],
                        "running": row["status"] == "running",
                        "conversation": session_place(row["branch"]),
                    },
                    visit={"kind": "task", "task": row},
                )
                for row in reversed(found)
            ],
            actions=(
                Action(
                    key="k",
                    label="end it",
                    operation="task-kill",
                    takes=("branch", "id"),
                    several=True,
                    question="End %s?",
                    noun="task",
                    needs="running",
                    done="Ended %s",
                ),
                Action(key="v", label="conversation", place="conversation"),
            ),
            empty="Nothing runs in the background, and nothing did.",
            follows=("tasks",),
        )

    async def _agent_tree(self, client: Client, *, branch: str) -> View:
        """List the agents of a session as a tree."""
        root = paths.root_of(self._ref(branch))
        found = list(_with_stems(await agent_tree(self._kernel, root)))
        return View(
            title="Agents",
            columns=(
                Column("Agent", 48, sorts=False),
                Column("State", 12, sorts=False),
                Column("Tokens", 12, sorts=False),
                Column("Id", 30, sorts=False),
                Column("Result", sorts=False),
            ),
            rows=[
                Row(
                    id=row["id"],
                    cells=(
                        Cell(f"{stem}{row['preset'] or 'agent'}  {row['description'] or ''}".rstrip()),
                        Cell(
                            f"{row['state']} bg" if row["background"] else row["state"],
                            {"running": "good", "waiting": "warn", "error": "bad"}.get(row["state"], "dim"),  # type: ignore[arg-type]
                        ),
                        tokens(row["tokens"]),
                        Cell(row["id"], "dim"),
                        Cell(row["result"] or "", "detail"),
                    ),
                    label=row["id"],
                    facts={"branch": row["branch_dir"]},
                    visit=session_place(row["branch_dir"]),
                )
                for stem, row in found
            ],
            actions=(
                Action(
                    key="k",
                    label="stop",
                    operation="abort",
                    takes=("branch",),
                    several=True,
                    question="Stop %s?",
                    noun="agent",
                    asks="several",
                    done="Stopped %s",
                ),
                Action(
                    key="K",
                    label="stop all",
                    operation="abort-all",
                    arguments={"branch": root.key},
                    question="Stop this session with all its agents?",
                    done="Stopped",
                ),
            ),
            empty="This session has no agents.",
            follows=("sessions",),
        )

    async def _branch_tree(self, client: Client, *, branch: str, at: str | None = None) -> View:
        """List the branches of a session as a tree, the active one with a star.

        ``branch`` may be the session's directory; ``at`` is the branch to begin at.
        """
        ref = self._ref(branch)
        if ref.is_agent:
            raise BadRequest("An agent has no branches")
        found = (await self._branches.branches(client, branch=branch))["branches"]
        stems: list[str] = [""]
        rows = []
        for row in found:
            stems[row["depth"] :] = [_stem(stems[row["depth"] - 1], last=row["last"])] if row["depth"] else [""]
            rows.append(
                Row(
                    id=row["branch"],
                    cells=(
                        Cell(
                            f"{'* ' if row['current'] else '  '}{stems[-1]}{row['name']}",
                            "strong" if row["current"] else "",
                        ),
                        Cell(local_time(row["created"]).text, "dim"),
                        str(row["agents"] or ""),
                        Cell(_lineage(row), "dim"),
                    ),
                    label=row["name"],
                    facts={name: row[name] for name in ("branch", "name", "parent", "file")},
                    visit=session_place(row["branch"], self._title(ref)),
                )
            )
        return View(
            title="Branches",
            columns=(
                Column("Branch", 44, sorts=False),
                Column("Created", 17, sorts=False),
                Column("Agents", 7, right=True, sorts=False),
                Column("Comes from", sorts=False),
            ),
            rows=rows,
            actions=(
                Action(
                    key="s",
                    label="make it current",
                    operation="switch",
                    takes=("branch",),
                    done="Current branch: %s",
                ),
            ),
            current=at or ref.key,
            follows=("sessions",),
        )

    def _title(self, ref: paths.BranchRef) -> str:
        live = self._kernel.opened(ref.key)
        return str(live.conversation.session.get("title") or "") if live is not None else ""

    async def _grants(self, client: Client, *, branch: str) -> View:
        """List what you allowed for a session and for its project."""
        answer = await self._approvals.grants(client, branch=branch)
        rows = []
        for row in answer["grants"]:
            where = f"in all sessions of {answer['root']}" if row["kind"] == "project" else "in this session"
            rows.append(
                Row(
                    id=f"{row['kind']} {row['action']}",
                    cells=(
                        row["kind"],
                        Cell(row["action"], "code"),
                        local_time(row["at"]),
                        Cell(row.get("by") or "", "dim"),
                        Cell(explain_pattern(row["action"]), "detail"),
                    ),
                    label=f"{row['action']} {where}",
                    facts={"branch": branch, "action": row["action"], "kind": row["kind"]},
                )
            )
        return View(
            title="Grants",
            columns=(
                Column("For", 8),
                Column("Actions that match", 60),
                Column("Given", 17),
                Column("By", 12),
                Column("Covers"),
            ),
            rows=rows,
            actions=(
                Action(
                    key="r",
                    label="revoke",
                    operation="revoke",
                    takes=("branch", "action", "kind"),
                    several=True,
                    question="Revoke %s?",
                    noun="grant",
                    done="Revoked %s",
                ),
            ),
            empty="No grants.",
            follows=("sessions",),
        )

    async def _audit(
        self, client: Client, *, branch: str | None = None, session: str | None = None, limit: int = LIMIT
    ) -> View:
        """List decisions about tool calls of a session, or of all, the latest first."""
        wanted = session or (self._ref(branch).session_id if branch else None)
        answer = await self._approvals.audit(client, session=wanted, limit=limit)
        return View(
            title="Decisions",
            columns=(
                Column("When", 14),
                Column("Decision", 9),
                Column("Action", 56),
                Column("By", 24),
                Column("Agent", 24),
                Column("Reason"),
            ),
            rows=[
                Row(
                    id=str(row["id"]),
                    cells=(
                        local_time(row["at"], "%m-%d %H:%M:%S"),
                        Cell(*DECISIONS.get(row["decision"], (row["decision"], ""))),
                        (row["action"] or row["tool"] or "").removeprefix("tool:"),
                        f"{row['rule']} ({row['by']})"
                        if row["by"] and row["rule"]
                        else row["by"] or row["rule"] or "",
                        Cell(agent_words(row["agent"] or "") or ("" if wanted else row["session"] or ""), "dim"),
                        Cell(row["reason"] or "", "detail"),
                    ),
                    label=row["action"] or row["tool"] or "",
                    facts={"session": row["session"]},
                    visit=report_place("decision", id=row["id"]),
                )
                for row in answer["decisions"]
            ],
            actions=(
                Action(key="s", label="its session", takes=("session",), arguments={"branch": None}),
                Action(key="a", label="all sessions", arguments={"branch": None, "session": None}),
            ),
            empty="No decisions are recorded.",
            note=answer["problem"] or wanted or "all sessions",
            follows=("sessions",),
            more=answer["more"],
        )

    async def _saved(self, client: Client, *, branch: str | None = None, agent: str | None = None) -> View:
        """List the saved conversations of a session or named agent, the latest first."""
        answer = await self._contexts.context_history(client, branch=branch, agent=agent)
        return View(
            title="Contexts",
            columns=(
                Column("Id", 9),
                Column("Saved", 17),
                Column("Why", 9),
                Column("Messages", 9, right=True),
                Column("Description", sorts=False),
            ),
            rows=[
                Row(
                    id=row["id"],
                    cells=(
                        Cell(row["id"][:8], "dim"),
                        local_time(row["saved_at"]),
                        SAVED_BY.get(row["trigger"], row["trigger"]),
                        Cell(str(row["message_count"]), sort=row["message_count"]),
                        Cell(row["description"], "dim" if row["gone"] else ""),
                    ),
                    label=f"“{_cut(row['description'], 50)}”",
                    facts={"branch": branch, "id": row["id"], "file": {"kind": "file", "file": row["file"]}},
                )
                for row in answer["contexts"]
            ],
            actions=(
                Action(
                    key="RET",
                    label="restore",
                    operation="context-restore",
                    takes=("branch", "id"),
                    needs="branch",
                    question="Restore %s without saving the present conversation?",
                    done="Restored %s",
                    saves=True,
                    patience_s=300,
                ),
                Action(key="o", label="view", place="file"),
            ),
            empty="No saved conversations.",
            note="" if branch else f"{agent} no longer exists",
            follows=("sessions",),
        )

    async def _usage(self, client: Client, *, by: By = "day", days: int = 30) -> View:
        """List what all sessions cost, by day, model, session or preset."""
        answer = await self._spending.usage_report(client, by=by, days=days)
        lines, rest = answer["lines"], answer["rest"]
        measure = "known_usd" if any(line["known_usd"] for line in lines) else "total"
        most = max((line[measure] for line in lines), default=0)
        rows = [
            Row(
                id=line["key"],
                cells=(_spent_name(line, by), *_spent_counts(line), Cell(bar(line[measure], most), "good")),
                label=line["key"],
                visit=(session_place(str(Path(line["file"]).parent)) if line.get("file") else None)
                if by == "session"
                else view_place("usage", by="session", days=days),
            )
            for line in lines
        ]
        for name, line in (
            (f"{rest['number']} others", rest) if rest else ("", None),
            ("Together", answer["together"]),
        ):
            if line is not None and lines:
                rows.append(Row(id=name, cells=(Cell(name, "heading"), *_spent_counts(line), ""), label=name))
        period = f"last {count(days, 'day')}" if days else "always"
        return View(
            title="Usage",
            columns=(
                Column(by.capitalize(), 26, sorts=False),
                Column("Requests", 8, right=True, sorts=False),
                Column("In", 6, right=True, sorts=False),
                Column("Cached", 6, right=True, sorts=False),
                Column("Out", 6, right=True, sorts=False),
                Column("Cost", 9, right=True, sorts=False),
                Column("", sorts=False),
            ),
            rows=rows,
            actions=(
                *(
                    Action(key=what[0], label="by day" if what == "day" else what, arguments={"by": what})
                    for what in get_args(By)
                ),
                Action(
                    key="t",
                    label="how long",
                    reads={"argument": "days", "prompt": "Days (0 is always): ", "number": True},
                ),
            ),
            empty=f"Nothing was spent in the {period}." if days else "Nothing was spent yet.",
            note=f"by {by}, {period}"
            + (", still reading sessions" if answer["indexing"] else "")
            + (f", {answer['problem']}" if answer["problem"] else ""),
            follows=("sessions",),
        )

    async def _servers(
        self, client: Client, *, branch: str | None = None, root: str | None = None, env: Env = ()
    ) -> View:
        """List the MCP servers of a session or project, and your own."""
        answer = await self._mcp.mcp(client, branch=branch, root=root, env=env)
        return View(
            title="MCP",
            columns=(
                Column("Server", 18),
                Column("State", 12),
                Column("Tools", 6, right=True),
                Column("From", 12),
                Column("Reached by", sorts=False),
            ),
            rows=[
                Row(
                    id=f"{row['origin']} {row['name']}",
                    cells=(
                        row["name"],
                        _server_state(row),
                        Cell(str(row["tools"] or ""), sort=row["tools"] or 0),
                        "you" if row["origin"] == "user" else "the project",
                        Cell(f"! {row['problem']}", "bad")
                        if row["problem"]
                        else Cell(row["url"] or " ".join(row["command"])),
                    ),
                    label=row["name"],
                    facts={"name": row["name"], "root": answer["root"], "trusted": row["trusted"]},
                )
                for row in answer["servers"]
            ],
            empty="No MCP servers: add [mcp.NAME] to config.toml.",
            note=f"of the project's servers cannot be used: {answer['error']}" if answer["error"] else "",
            follows=("sessions",),
        )

    async def _changes(self, client: Client, *, branch: str, message: str | None = None) -> View:
        """List the files that agents of a session changed."""
        answer = await self._snapshots.changes(client, branch=branch, message=message)
        return View(
            title="Changes",
            columns=(Column("What", 9), Column("File", 60), Column("Why", sorts=False)),
            rows=[
                Row(
                    id=row["path"],
                    cells=(
                        Cell(*CHANGES.get(row["change"], (row["change"], ""))),
                        row["path"],
                        Cell(row["reason"] or "", "dim"),
                    ),
                    label=row["path"],
                    facts={name: row[name] for name in ("path", "change", "reason", "diff")},
                )
                for row in answer["files"]
            ],
            empty="No file is another than it was.",
            note={None: "whole session", "last": "since the last prompt"}.get(message, "since a prompt"),
        )


def _server_state(row: Mapping[str, Any]) -> Cell:
    if not row["trusted"]:
        return Cell("not trusted", "warn")
    if not row["enabled"]:
        return Cell("disabled", "dim")
    return Cell(row["state"], "bad" if row["state"] == "failed" else "")


CHANGES: Mapping[str, tuple[str, Face]] = {
    "restore": ("changed", ""),
    "create": ("deleted", "warn"),
    "delete": ("created", "good"),
    "conflict": ("conflict", "bad"),
    "unkept": ("not kept", "dim"),
}
"""What became of a file that restoring would put back, and its face."""


def _spent_name(line: Mapping[str, Any], by: By) -> Cell:
    key = str(line["key"])
    if by == "day":
        return Cell(f"{key} {datetime.fromisoformat(key):%a}")
    if by == "session":
        return Cell(str(line.get("title") or line.get("session_id") or Path(key).name), "title")
    return Cell(key)


def _spent_counts(line: Mapping[str, Any]) -> tuple[Cell, ...]:
    used = line["tokens"]
    return (
        Cell(f"{line['requests']:,}"),
        tokens(used["input"] + used["cache_read"] + used["cache_write"]),
        tokens(used["cache_read"]),
        tokens(used["output"] + used["reasoning"]),
        Cell(cost(line["known_usd"], unpriced=bool(line["unpriced"]))),
    )


def dollars(amount: float) -> str:
    """Return an amount of US dollars; below a cent with more places."""
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"


def cost(known: float, *, unpriced: bool) -> str:
    """Return a cost of which ``known`` US dollars are known: an unknown price is a question mark, never nothing."""
    if not unpriced:
        return dollars(known)
    return f"{dollars(known)}+?" if known else "$?"


def bar(value: float, most: float, width: int = 16) -> str:
    """Return a bar of at most ``width`` characters for ``most``; what is more than nothing is seen."""
    eighths = max(1, round(8 * width * value / most)) if value > 0 and most > 0 else 0
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


DECISIONS: Mapping[str, tuple[str, Face]] = {
    "allow": ("allowed", "good"),
    "ask_approved": ("approved", "good"),
    "ask_denied": ("refused", "warn"),
    "deny": ("denied", "bad"),
}
"""What decisions of the audit are called, and their faces."""

SAVED_BY = {"manual_save": "by hand", "idle_timeout": "idle", "context_clear": "clear"}
"""Why a conversation was saved, in words."""


def decided_by(row: Mapping[str, Any]) -> str:
    """Return which rule decided a row of the audit, and who."""
    rule, by = row["rule"] or "", row["by"] or ""
    return f"{rule} ({by})" if rule and by else rule or by


def agent_words(id: str) -> str:
    """Return what to call an agent, PRESET-TIMESTAMP-SLUG: "PRESET (SLUG)"."""
    found = re.fullmatch(r"(.+?)-[0-9]{14}(?:-(.+))?", id)
    if found is None:
        return id
    return f"{found[1]} ({found[2]})" if found[2] else found[1]


def _stem(above: str, *, last: bool) -> str:
    """Return the stem of a line of a tree below one with the stem ``above``."""
    return above.replace("├", "│").replace("└", " ") + ("└ " if last else "├ ")


def _with_stems(agents: Sequence[Mapping[str, Any]], above: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, agent in enumerate(agents, 1):
        stem = _stem(above, last=number == len(agents))
        yield stem, agent
        yield from _with_stems(agent["agents"], stem)


def _lineage(row: Mapping[str, Any]) -> str:
    if not row["parent"]:
        return ""
    return f"{row['parent']}, character {row['position']}" if row["position"] else str(row["parent"])


def _told(view: Operation) -> dict[str, Any]:
    branch = view.parameters.get("branch")
    return {
        "name": view.name,
        "summary": view.doc.partition("\n")[0].removeprefix("List ").removesuffix("."),
        "arguments": [each.key for each in view.parameters.values()],
        "session": None if branch is None else "required" if branch.is_required else "optional",
    }


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


# What runs.


def _below(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows in order: the first is the one that began first, agents stand below who waits for them."""
    keys = {row["branch"] for row in rows}
    below: dict[str | None, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["started_at"] or 0):
        parent = row["parent"] if row["agent"] and row["parent"] in keys else None
        below.setdefault(parent, []).append(row)

    def walk(parent: str | None) -> list[Mapping[str, Any]]:
        return [each for row in below.get(parent, ()) for each in (row, *walk(row["branch"]))]

    return walk(None)


def _running_row(row: Mapping[str, Any]) -> Row:
    preset = str(row.get("preset") or "")
    title = title_of(row)
    return Row(
        id=row["branch"],
        cells=(
            Cell(f"└ {preset or 'agent'}", "agent") if row["agent"] else Cell(preset, "strong"),
            Cell(row["state"], "good" if row["state"] == "busy" else "warn"),
            local_time(row["started_at"], "%H:%M:%S"),
            tokens(row["tokens"]),
            Cell(title, "title"),
            Cell(_doing(row), "detail"),
        ),
        label=title,
        facts={"branch": row["branch"]},
        visit=session_place(row["branch"]),
    )


def _doing(row: Mapping[str, Any]) -> str:
    """Return what a run does."""
    if row["state"] == "retrying":
        return f"try {row['attempt']} of {row['max_attempts']}: {row['message']}"
    if row["tools"]:
        return ", ".join(row["tools"])
    return {"WAIT": "waits for the model", "TYPE": "answers"}.get(str(row["phase"]), "")
