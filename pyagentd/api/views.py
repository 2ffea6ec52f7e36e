"""Lists as every client shows them: columns, rows and what can be done with a row, made by one operation ``view``.

A client lays a view out and knows nothing of its subject: Emacs in a buffer of ``pyagentd-list.el``, the command line
with ``print_view``. Rows come from the operations that programs use; a view says how people read them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pyagentd.api.agents import TaskOperations
from pyagentd.api.group import Client, Group, Process
from pyagentd.api.schedules import Scheduling
from pyagentd.api.sessions import Sessions
from pyagentd.errors import BadRequest, NotFound, did_you_mean
from pyagentd.features.indexer import Indexer
from pyagentd.features.overview import Overview
from pyagentd.runtime.kernel import Kernel
from pyagentd.store.registry import Registry
from pyagentd.wire.operations import Operation, operation
from pyagentd.wire.sexp import SexpError, plist_to_dict

LIMIT = 500  # rows, where the client does not say
LONGEST_CELL = 400  # characters

Face = Literal["", "strong", "title", "agent", "dim", "detail", "good", "warn", "bad"]
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
        return {"text": text[:LONGEST_CELL], "face": self.face or None, "sort": self.sort}


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
        takes: The facts of the row that are arguments of it.
        arguments: Its other arguments, or those of the view to show when ``operation`` and ``place`` are "".
        place: The fact that holds the place to open.
        several: Whether it is done to all marked rows.
        question: The question to confirm, with ``%s`` for the row, or for how many there are.
        noun: What several rows are, in the singular.
        asks: Whether one row is confirmed too, or only several.
        needs: The fact that must be true of a row.
        done: The message afterwards, with ``%s`` for the row; a ``note`` of the reply goes before it.
        env: Whether the operation also takes the client's environment and API key, as ``env`` and ``key``.
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
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    actions: Sequence[Action] = ()
    empty: str = "Nothing."
    note: str = ""
    follows: Sequence[Followed] = ()
    more: bool = False


def session_place(branch: str) -> dict[str, Any]:
    """Return the place that is a branch's conversation."""
    return {"kind": "session", "branch": branch}


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
        self._views: dict[str, Operation] = {
            each.name: each
            for each in (
                operation("running", self._running),
                operation("schedules", self._schedules),
                operation("tasks", self._task_list),
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

        The reply is ``{name, title, columns, rows, actions, empty, note, follows, more}``. A column is ``{title,
        width, right, sorts}``; a row ``{id, cells, label, facts, visit}`` with cells ``{text, face, sort}``.
        An action is ``{key, label, operation, takes, arguments, place, several, question, noun, asks, needs, done,
        env, patience}``:
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
                Column("Id", 10),
                Column("Next", 17),
                Column("When", 26),
                Column("Until", 17),
                Column("Session", 26),
                Column("By", 9),
                Column("Message", sorts=False),
            ),
            rows=[
                Row(
                    id=row["id"],
                    cells=(
                        Cell(row["id"], "dim"),
                        local_time(row["next_at"]),
                        row["when"],
                        local_time(row["expires_at"]) if row["expires_at"] else Cell("-", "dim", 0),
                        row["session"],
                        Cell("the agent" if row["source"] == "self-schedule" else "you", "dim"),
                        Cell(f"! {row['last_error']}", "bad") if row["last_error"] else Cell(row["text"]),
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
