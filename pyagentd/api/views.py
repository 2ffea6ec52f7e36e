"""Lists as every client shows them: columns, rows and actions on a row, made by the operation ``view``.

A client shows any view without knowing its subject: Emacs in a buffer of ``pyagentd-list.el``, the command line with
``print_view``. Rows come from the operations that programs use; a view makes them readable for people.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast, get_args

from pyagentd.api.agents import NamedAgents, Settings, agent_tree
from pyagentd.api.approvals import Approvals
from pyagentd.api.conversations import Queue
from pyagentd.api.group import Client, Group, Process
from pyagentd.api.history import ContextOperations, SnapshotOperations
from pyagentd.api.inspection import MAX_HITS, HitFacts, Search
from pyagentd.api.mcp import Env, McpOperations
from pyagentd.api.models import UsageOperations
from pyagentd.api.schedules import ScheduleOperations
from pyagentd.api.sessions import Branches, Sessions, session_rows
from pyagentd.api.tasks import TaskOperations, TaskReply
from pyagentd.errors import BadRequest, NotFound, did_you_mean
from pyagentd.events import Face, Place, ReportPlace, SessionPlace, ViewPlace
from pyagentd.features.indexer import Indexer
from pyagentd.features.overview import Overview
from pyagentd.policy.guard import explain_pattern
from pyagentd.runtime.approvals import agent_words
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.usage import By
from pyagentd.store import paths
from pyagentd.store.registry import Registry
from pyagentd.wire.operations import Operation, command_line, operation
from pyagentd.wire.sexp import SexpError, plist_to_dict

LIMIT = 500  # rows, where the client does not say
LONGEST_CELL = 400  # characters

Followed = Literal["sessions", "tasks", "agents", "queue", "asks"]


class ColumnReply(TypedDict):
    """A column of a list."""

    title: str
    width: int  # characters; 0 for the last one, which has the rest
    most: int | None  # characters it may have where there is room
    least: int | None  # characters it must have: without room for them the column is left out
    right: bool  # aligned to the right
    sorts: bool  # rows can be sorted by it


class CellReply(TypedDict):
    """What stands in one column of a row."""

    text: str  # one line
    face: str | None
    sort: str | float | None  # what it is sorted by, where that is not its text
    matches: NotRequired[list[list[int]]]  # what of it was searched for: pairs of offsets from 0


class TaskPlace(TypedDict):
    """The output of a background command."""

    kind: Literal["task"]
    task: TaskReply


class MessagePlace(HitFacts):
    """A message that was found."""

    kind: Literal["message"]
    query: str  # what was searched for


class RowReply(TypedDict):
    """One line of a list."""

    id: str
    cells: list[CellReply]
    label: str  # what a question or message calls it
    facts: Mapping[str, Any]  # the arguments that actions take
    visit: Place | TaskPlace | MessagePlace | None  # what visiting it opens
    level: int  # more than 0: it belongs to the next one above with a smaller level


class PromptReply(TypedDict):
    """What the client asks the user for, before it calls an operation."""

    argument: str  # whose value it is
    prompt: str
    number: NotRequired[bool]  # it is one


class ActionReply(TypedDict):
    """What a key does: copy a text, call an operation, open a place, or show the list with other arguments."""

    key: str  # as Emacs writes it
    label: str
    operation: str | None
    takes: list[str]  # the facts of the row that are arguments
    arguments: Mapping[str, Any]
    place: str | None  # the fact that holds the place to open
    several: bool  # it is done to all marked rows
    question: str | None  # to confirm; %s is the row, or how many there are
    noun: str | None  # what several rows are, in the singular
    asks: Literal["always", "several"]
    needs: str | None  # the fact that must be true of a row
    done: str | None  # the message afterwards
    env: bool  # the operation also takes the client's environment and key
    reads: PromptReply | None
    saves: bool  # the client first saves what it shows of the branch
    patience: int | None  # seconds that the reply may take
    copies: str | None


class ViewReply(TypedDict):
    """A list, ready to be shown."""

    name: str
    title: str
    columns: list[ColumnReply]
    rows: list[RowReply]
    actions: list[ActionReply]
    empty: str  # what to say where there are no rows
    note: str | None  # what to say of all of them
    follows: list[str]  # what has it made again when it changes
    more: bool  # there are further rows
    current: str | None  # the row to begin at
    filters: bool  # it takes ``words``, so that a filter also finds what is beyond these rows


class ViewSummary(TypedDict):
    """A list that there is."""

    name: str
    summary: str
    arguments: list[str]
    session: Literal["required", "optional"] | None  # whether a session's branch is an argument


class ViewsReply(TypedDict):
    """The lists that there are."""

    views: list[ViewSummary]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: Its heading.
        width: How many characters it should have; 0 for the last one, which has the rest.
        most: How many it may have where there is room.
        least: How many the last one must have; without room for them it is left out.
        right: Whether its cells are aligned to the right.
        sorts: Whether rows can be sorted by it.
    """

    title: str
    width: int = 0
    most: int = 0
    least: int = 0
    right: bool = False
    sorts: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in one column of a row.

    Attributes:
        text: That.
        face: How it looks.
        sort: What it is sorted by, where that is not its text.
        matches: What of it was searched for: pairs of offsets.
    """

    text: str
    face: Face = ""
    sort: str | float | None = None
    matches: Sequence[Sequence[int]] = ()

    def to_wire(self) -> CellReply:
        """Return it as it travels; the text is one line."""
        text = self.text.replace("\n", " ").replace("\t", " ")
        if len(text) > LONGEST_CELL:
            text = f"{text[: LONGEST_CELL - 1]}…"
        cell: CellReply = {"text": text, "face": self.face or None, "sort": self.sort}
        return {**cell, "matches": [list(each) for each in self.matches]} if self.matches else cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a view.

    Attributes:
        id: Names it among the rows, also when the view is made again.
        cells: One for each column.
        label: What a question or message calls it.
        facts: The arguments that actions take from it.
        visit: The place that visiting it opens, see ``session_place``; None where there is none.
        level: 0, or more for a row that belongs to the next one above it with a smaller level.
    """

    id: str
    cells: Sequence[Cell | str]
    label: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    visit: Place | TaskPlace | MessagePlace | None = None
    level: int = 0

    def to_wire(self) -> RowReply:
        """Return it as it travels."""
        cells = [each if isinstance(each, Cell) else Cell(each) for each in self.cells]
        return {
            "id": self.id,
            "cells": [each.to_wire() for each in cells],
            "label": self.label,
            "facts": dict(self.facts),
            "visit": self.visit,
            "level": self.level,
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
        reads: What the client asks the user for.
        saves: Whether the client first saves what it shows of the ``branch`` it takes.
        patience_s: How long the reply may take; 0 for as long as any.
        copies: The text that the client copies, in place of calling an operation.
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
    reads: PromptReply | None = None
    saves: bool = False
    patience_s: int = 0
    copies: str = ""

    def to_wire(self) -> ActionReply:
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
            "copies": self.copies or None,
        }


_STOP = Action(
    key="k",
    label="stop",
    operation="abort",
    takes=("branch",),
    several=True,
    question="Stop %s?",
    noun="run",
    asks="several",
    done="Stopped %s",
)


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
        filters: Whether it takes ``words``, so that a filter also finds what is beyond these rows.
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
    filters: bool = False


def session_place(branch: str, title: str = "") -> SessionPlace:
    """Return the place that is a branch's conversation; ``title`` is what its session is called."""
    return {"kind": "session", "branch": branch, "title": title or None}


def report_place(report: str, /, *, env: bool = False, **arguments: Any) -> ReportPlace:
    """Return the place that is a report; with ``env`` the client's environment is one of its arguments."""
    return {"kind": "report", "name": report, "arguments": arguments, "env": env}


def view_place(name: str, **arguments: Any) -> ViewPlace:
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
    return agent_words(name) if row.get("agent") else name


def follow(kernel: Kernel, client: Client, follows: Iterable[Followed]) -> None:
    """Have a client told what changes of what it shows."""
    if "sessions" in follows and (overview := kernel.find(Overview)) is not None:
        overview.watchers.add(client)
    if {"tasks", "agents"} & set(follows):
        kernel.overseers.add(client)


class Views(Group):
    """The lists, each a method that takes typed arguments, as an operation does, and returns a ``View``.

    The first line of its docstring is the summary that ``views`` tells.
    """

    def __init__(self, kernel: Kernel, registry: Registry, indexer: Indexer | None, process: Process) -> None:
        super().__init__(kernel, registry, indexer, process)
        parts = kernel, registry, indexer, process
        self._sessions = Sessions(*parts)
        self._scheduling = ScheduleOperations(*parts)
        self._tasks = TaskOperations(*parts)
        self._approvals = Approvals(*parts)
        self._contexts = ContextOperations(*parts)
        self._branches = Branches(*parts)
        self._spending = UsageOperations(*parts)
        self._mcp = McpOperations(*parts)
        self._snapshots = SnapshotOperations(*parts)
        self._named = NamedAgents(*parts)
        self._settings = Settings(*parts)
        self._search = Search(*parts)
        self._queue = Queue(*parts)
        self._views: dict[str, Operation] = {
            each.name: each
            for each in (
                operation("sessions", self._session_tree),
                operation("search", self._found),
                operation("running", self._running),
                operation("asks", self._asks),
                operation("queue", self._queued),
                operation("named", self._named_agents),
                operation("agent", self._agent),
                operation("settings", self._defaults),
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

    @command_line("grants", "list", "schedule list", "tasks")
    async def view(
        self,
        client: Client,
        *,
        name: str,
        arguments: Mapping[str, Any] | Sequence[Any] = (),
        limit: int = LIMIT,
        watch: bool = False,
    ) -> ViewReply:
        """Return the list ``name``, ready to be shown: columns, rows, actions.

        ``arguments`` are those that ``views`` tells of it, at most ``limit`` rows are returned, and ``more`` is true
        where there are others. With ``watch`` the client is told what changes of what the list ``follows``, as by
        ``sessions`` and ``tasks``.
        """
        found = self._views.get(name)
        if found is None:
            raise NotFound(f"There is no view {name[:60]!r}", hint=did_you_mean(name, self._views))
        try:
            given = dict(arguments) if isinstance(arguments, Mapping) else plist_to_dict(list(arguments))
        except SexpError as error:
            raise BadRequest(f"arguments is not a plist: {error}") from None
        if "limit" in found.parameters:
            given["limit"] = limit
        view: View = await found.run(client, **found.bind_named(given))
        if watch:
            follow(self._kernel, client, view.follows)
        return {
            "name": name,
            "title": view.title,
            "columns": [
                {
                    "title": each.title,
                    "width": each.width,
                    "most": each.most or None,
                    "least": each.least or None,
                    "right": each.right,
                    "sorts": each.sorts,
                }
                for each in view.columns
            ],
            "rows": [row.to_wire() for row in view.rows[:limit]],
            "actions": [action.to_wire() for action in view.actions],
            "empty": view.empty,
            "note": view.note or None,
            "follows": list(view.follows),
            "more": view.more or len(view.rows) > limit,
            "current": view.current or None,
            "filters": view.filters,
        }

    @command_line("list")
    async def views(self, client: Client) -> ViewsReply:
        """Return what ``view`` can list.

        Left out are those that need another argument than a session, such as "agent".
        """
        return {
            "views": [
                _summary(each)
                for each in self._views.values()
                if all(not value.is_required or name == "branch" for name, value in each.parameters.items())
            ]
        }

    async def _session_tree(
        self, client: Client, *, archived: bool = False, words: str = "", limit: int = LIMIT
    ) -> View:
        """List sessions with their branches and agents, the latest first."""
        nodes = session_forest(await session_rows(self._sessions, archived=archived))
        wanted = words.lower().split()
        found = [line for node in nodes if (kept := node.matching(wanted)) for line in kept.lines()]
        now = self._kernel.clock.now()
        return View(
            title="Sessions",
            columns=(
                Column("Title", 24, most=64),
                Column("Age", 5, right=True),
                Column("State", 8),
                Column("Tokens", 6, right=True),
                Column("Cost", 8, right=True),
                Column("Preset", 21),
                Column("Id", least=16, sorts=False),
            ),
            rows=[_session_row(*line, now) for line in found[:limit]],
            actions=(
                _STOP,
                Action(
                    key="a",
                    label="archive",
                    operation="archive",
                    takes=("branch", "undo"),
                    several=True,
                    question="Archive %s, or list it again?",
                    noun="session",
                    asks="several",
                    done="Archived, or listed again: %s",
                ),
                Action(
                    key="A",
                    label="without archived" if archived else "archived",
                    arguments={"archived": not archived},
                ),
            ),
            empty=f"No session has all of “{words}”." if wanted else "No sessions; M-x pyagentd-session makes one.",
            note="archived too" if archived else "",
            follows=("sessions",),
            more=len(found) > limit,
            filters=True,
        )

    async def _found(self, client: Client, *, query: str, archived: bool = False, limit: int = LIMIT) -> View:
        """List the messages of all sessions that have what is searched for, by session."""
        found = await self._search.search(client, query=query, limit=min(limit, MAX_HITS), archived=archived)
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for hit in found["hits"]:
            groups.setdefault(hit["branch"], []).append(hit)
        rows = [row for hits in groups.values() for row in _found_in(hits, query)]
        hits = sum(row.level for row in rows)
        notes = [
            f"{'first ' if found['more'] else ''}{count(hits, 'message')} with {query}",
            *(["archived too"] if archived else []),
            *([found["problem"]] if found["problem"] else []),
            *(["indexing is not finished; g searches again"] if found["indexing"] else []),
        ]
        return View(
            title="Search",
            columns=(Column("From", 14, most=30, sorts=False), Column("Message", sorts=False)),
            rows=rows,
            actions=(
                Action(key="s", label="search", reads={"argument": "query", "prompt": "Search sessions: "}),
                Action(
                    key="A",
                    label="without archived" if archived else "archived",
                    arguments={"archived": not archived},
                ),
            ),
            empty=f"No matches for {query}{'' if archived else '; A includes archived sessions'}.",
            note="; ".join(notes),
            more=found["more"],
            current=rows[1].id if rows else "",
        )

    async def _asks(self, client: Client) -> View:
        """List pending approvals and questions of all sessions."""
        found = (await self._approvals.asks(client))["asks"]
        return View(
            title="Asks",
            columns=(Column("Asked", 11), Column("Agent", 24), Column("What", 60), Column("Session")),
            rows=[
                Row(
                    id=row["id"],
                    cells=(
                        local_time(row["created_at"], "%m-%d %H:%M"),
                        Cell(row["who"], "strong"),
                        Cell(row["what"], "heading"),
                        Cell(self._session_of(row["branch"]), "dim"),
                    ),
                    label=row["what"],
                    facts={"ask": dict(row), "branch": row["branch"]},
                    visit=session_place(row["branch"]),
                )
                for row in found
            ],
            empty="No pending approvals.",
            follows=("asks",),
        )

    async def _queued(self, client: Client, *, branch: str) -> View:
        """List the queued messages of a session."""
        told = await self._queue.queue(client, branch=branch)
        return View(
            title="Queue",
            columns=(Column("Sent", 6), Column("From", 9), Column("Text", sorts=False)),
            rows=[
                Row(
                    id=row["id"],
                    cells=(
                        local_time(row["queued_at"], "%H:%M"),
                        "steers" if row["steer"] else "trigger" if row.get("trigger") else row["origin"] or "",
                        row["text"],
                    ),
                    label=f"“{_cut(row['text'], 40)}”",
                    facts={"branch": branch, "id": row["id"], "text": row["text"], "origin": row["origin"]},
                )
                for row in told["items"]
            ],
            empty="No queued messages.",
            note="paused" if told["paused"] else "",
            follows=("queue",),
        )

    async def _named_agents(self, client: Client, *, destroyed: bool = False) -> View:
        """List named agents."""
        found = (await self._named.agent_list(client, destroyed=destroyed))["agents"]
        return View(
            title="Named agents",
            columns=(
                Column("Name", 22),
                Column("Status", 10),
                Column("Model", 22),
                Column("Permissions", 12),
                Column("Made", 17),
                Column("Directory", sorts=False),
            ),
            rows=[_named_row(row) for row in found],
            actions=(
                Action(key="c", label="configure", place="config"),
                Action(key="t", label="tasks", place="tasks"),
                Action(key="H", label="history", place="contexts"),
                Action(key="w", label="workspace", place="workspace"),
                Action(key="W", label="documents", place="docs"),
                Action(
                    key="A",
                    label="without destroyed" if destroyed else "destroyed",
                    arguments={"destroyed": not destroyed},
                ),
            ),
            empty="No named agents; + makes one.",
            note="destroyed too" if destroyed else "",
            follows=("agents",),
        )

    async def _agent(self, client: Client, *, agent: str) -> View:
        """List what a named agent is: name, system prompt, model, permissions."""
        told = await self._named.agent_config(client, name=agent)
        config: Mapping[str, Any] = told["config"]
        place = Path(told["dir"])
        return View(
            title=f"Agent {agent}",
            columns=(
                Column("Key", 14, sorts=False),
                Column("Value", 44, most=80, sorts=False),
                Column("What it is", sorts=False),
            ),
            rows=[
                Row(
                    id=key,
                    cells=(
                        Cell(key, "strong"),
                        _value(value := config[key], "(default)"),
                        Cell(about, "dim"),
                    ),
                    label=key,
                    facts={
                        "name": agent,
                        "key": key,
                        "value": value if isinstance(value, str | None) else json.dumps(value),
                        "custom": isinstance(value, Mapping),
                        "default": key in ("model", "permissions"),
                        "docs": {"kind": "file", "file": str(place / "docs")},
                    },
                )
                for key, about in AGENT_KEYS.items()
            ],
            actions=(
                Action(
                    key="D",
                    label="default",
                    operation="agent-config",
                    takes=("name", "key"),
                    arguments={"reset": True},
                    needs="default",
                    done="%s: the default again",
                ),
                Action(key="W", label="its documents", place="docs"),
            ),
            follows=("agents",),
        )

    async def _defaults(self, client: Client) -> View:
        """List the defaults of named agents."""
        told = await self._settings.settings(client)
        held: Mapping[str, Any] = told["settings"]
        defaults: Mapping[str, Any] = told["defaults"]
        return View(
            title="Defaults of named agents",
            columns=(
                Column("Setting", 20, sorts=False),
                Column("Value", 30, sorts=False),
                Column("What it is", sorts=False),
            ),
            rows=[
                Row(
                    id=key,
                    cells=(
                        Cell(key, "strong"),
                        Cell(
                            span(held[key]) if key == "idle_timeout" else _value(held[key], "the preset's").text,
                            "dim" if held[key] == defaults[key] else "",
                        ),
                        Cell(about, "dim"),
                    ),
                    label=key,
                    facts={
                        "key": key,
                        "value": span(held[key]) if key == "idle_timeout" else _value(held[key], "").text or None,
                    },
                )
                for key, about in SETTINGS.items()
            ],
            actions=(
                Action(
                    key="D",
                    label="default",
                    operation="settings",
                    takes=("key",),
                    arguments={"reset": True},
                    done="%s: the default again",
                ),
            ),
            follows=("agents",),
        )

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
            actions=(_STOP,),
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

    def _session_of(self, branch: str) -> str:
        root = paths.root_of(self._ref(branch))
        return self._title(root) or root.session_id

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
        measure: Literal["known_usd", "total"] = "known_usd" if any(line["known_usd"] for line in lines) else "total"
        most = max((line[measure] for line in lines), default=0)
        rows = [
            Row(
                id=line["key"],
                cells=(_spent_name(line, by), *_spent_counts(line), Cell(bar(line[measure], most), "good")),
                label=line["key"],
                facts={"charts": report_place("usage", days=days)},
                visit=(session_place(str(Path(file).parent)) if (file := line.get("file")) else None)
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
                Action(key="c", label="charts", place="charts"),
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
        project = report_place("servers", root=answer["root"])
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
                    visit=report_place("server", name=row["name"], root=answer["root"], env=True)
                    if row["trusted"]
                    else project,
                    facts={"project": project},
                )
                for row in answer["servers"]
            ],
            actions=(Action(key="T", label="read and trust the project's", place="project"),),
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


def _summary(view: Operation) -> ViewSummary:
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


# Sessions, with what belongs to them.


@dataclass(slots=True)
class Node:
    """A branch or an agent with what stands below it; ``spent``: tokens, dollars, whether a price is unknown."""

    row: Mapping[str, Any]
    below: list["Node"] = field(default_factory=list)
    spent: tuple[int, float, bool] = (0, 0.0, False)

    def matching(self, words: Sequence[str]) -> "Node | None":
        """Return it with those below it that have all ``words``, or lead to one; None where nothing has."""
        if not words:
            return self
        below = [found for each in self.below if (found := each.matching(words))]
        names = ("title", "session_id", "branch_name", "preset", "state")
        text = " ".join(str(self.row[name] or "") for name in names).lower()
        return Node(self.row, below, self.spent) if below or all(word in text for word in words) else None

    def lines(self, stem: str = "", level: int = 0) -> Iterator[tuple["Node", str, int]]:
        """Yield it and all below it, with the stem and the level of each."""
        yield self, stem, level
        for number, each in enumerate(self.below, 1):
            yield from each.lines(_stem(stem, last=number == len(self.below)), level + 1)


def session_forest(rows: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Return the sessions as trees, the latest first; other branches and agents stand below the current branch.

    Args:
        rows: As ``sessions`` has them, agents after what they belong to.
    """
    heads: list[Node] = []
    known: dict[str, Node] = {}
    branches: dict[str, list[Node]] = {}
    for row in rows:
        node = known[row["branch"]] = Node(row)
        if not row["agent"]:
            branches.setdefault(row["session_dir"], []).append(node)
        elif (above := known.get(row["parent"])) is not None:
            above.below.append(node)
        else:
            heads.append(node)
    for group in branches.values():
        head = next((each for each in group if each.row["current"]), None) or next(
            (each for each in group if each.row["branch_name"] == paths.MAIN_BRANCH), group[0]
        )
        head.below += [each for each in group if each is not head]
        heads.append(head)
    for head in heads:
        _add_up(head)
    return sorted(heads, key=lambda node: _stamp(node.row), reverse=True)


def _stamp(row: Mapping[str, Any]) -> str:
    return str(row["updated"] or row["created"] or "")


def _add_up(node: Node) -> None:
    """Note what a node cost with its agents, but not other branches; order those below as they were made."""
    node.below.sort(key=lambda each: _stamp(each.row))
    used, usd, unpriced = node.row["tokens"] or 0, node.row["usd"] or 0.0, bool(node.row["unpriced"])
    for each in node.below:
        _add_up(each)
        if each.row["agent"]:
            used, usd, unpriced = used + each.spent[0], usd + each.spent[1], unpriced or each.spent[2]
    node.spent = used, usd, unpriced


_STATES: Mapping[str, tuple[int, Face]] = {
    "waiting": (0, "warn"),
    "error": (1, "bad"),
    "busy": (2, "good"),
    "retrying": (3, "warn"),
}
"""Where states sort, first what waits for somebody, and their faces."""


def _session_row(node: Node, stem: str, level: int, now: datetime) -> Row:
    row, (used, usd, unpriced) = node.row, node.spent
    what = "agent" if row["agent"] else "branch" if level else "session"
    archived = row["archived_at"] is not None
    name = title_of(row) if what != "branch" else row["branch_name"]
    branch = row["branch_name"] if what == "session" and row["branch_name"] != paths.MAIN_BRANCH else ""
    rank, face = _STATES.get(row["state"], (9, "dim"))
    state = "archived" if archived and rank == 9 else row["state"]
    price = cost(usd, unpriced=unpriced) if used else ""
    return Row(
        id=row["branch"],
        cells=(
            Cell(
                f"{stem}{name}{f'  {branch}' if branch else ''}",
                "dim" if archived else {"agent": "agent", "branch": "", "session": "title"}[what],  # type: ignore[arg-type]
                name.lower(),
            ),
            age(row["updated"] or row["created"], now),
            Cell(state, face, rank),
            tokens(used) if used else Cell("", sort=0),
            Cell(price, "" if usd or unpriced else "dim", usd),
            Cell(row["preset"] or "", "dim"),
            Cell("" if what == "branch" else row["session_id"], "dim"),
        ),
        label=title_of(row) if what != "branch" else f"branch {name}",
        facts={
            "branch": row["branch"],
            "what": what,
            "undo": archived,
            "running": row["state"] in ("busy", "retrying"),
        },
        visit=session_place(row["branch"], title_of(row) if row["title"] else ""),
        level=level,
    )


# Named agents, and what holds for all of them.

AGENT_KEYS = {
    "name": "its name and that of its directory",
    "system_prompt": "its system prompt",
    "model": "its model",
    "permissions": "which actions need no approval",
}
"""What can be set of a named agent."""

SETTINGS = {
    "default_model": "model of new agents",
    "default_permissions": "permissions of new agents",
    "idle_timeout": "when a conversation is saved and cleared",
}
"""What can be set for all named agents."""


def span(seconds: float) -> str:
    """Return a time as people write it, in a form that can be set: "45min", "2h", "never"."""
    whole = int(seconds)
    if not whole:
        return "never"
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("min", 60), ("s", 1)) if not whole % size)
    return f"{whole // size}{unit}"


def _value(value: object, default: str) -> Cell:
    if value is None:
        return Cell(default, "dim")
    return Cell(" ".join(value.split()) if isinstance(value, str) else json.dumps(value))


def _named_row(row: Mapping[str, Any]) -> Row:
    state = row["state"] if row["state"] not in (None, "idle") else row["status"]
    faces: Mapping[str, Face] = {"busy": "good", "waiting": "warn", "retrying": "warn", "error": "bad", "active": ""}
    rights = row["permissions"] or ""
    place, branch = Path(row["dir"]), row["branch"]
    return Row(
        id=row["name"],
        cells=(
            Cell(row["name"], "strong"),
            Cell(state, faces.get(state, "dim")),
            row["model"] or "",
            "custom" if not isinstance(rights, str) or rights.startswith("{") else rights,
            local_time(row["created_at"]),
            Cell(f"! {row['error']}", "bad") if row["error"] else Cell(str(place), "dim"),
        ),
        label=row["name"],
        facts={
            "name": row["name"],
            "branch": branch,
            "config": view_place("agent", agent=row["name"]),
            "tasks": view_place("tasks", branch=branch) if branch else None,
            "contexts": view_place("contexts", branch=branch, agent=row["name"]),
            "workspace": {"kind": "file", "file": str(place / "workspace")},
            "docs": {"kind": "file", "file": str(place / "docs")},
        },
        visit=session_place(branch, row["name"]) if branch else None,
    )


# What runs.


def _found_in(hits: Sequence[Mapping[str, Any]], query: str) -> Iterator[Row]:
    """Return the rows of the hits in one branch, below one that names it."""
    first = hits[0]
    shown = [hit for hit in hits if hit["kind"] != "title"] or hits  # a title matters where nothing else was found
    title, branch = title_of(first), first["branch_name"]
    where = "agent" if first["agent"] else "" if branch in (None, "main") else branch
    about = "  ".join(filter(None, (where, local_time(first["created_at"]).text)))
    yield Row(
        id=first["branch"],
        cells=(Cell(title, "title"), Cell(about, "dim")),
        label=title,
        visit=cast(MessagePlace, {**shown[0], "kind": "message", "query": query}),
    )
    for hit in shown:
        kind, copies = str(hit["kind"] or ""), hit["copies"] or 0
        who = kind.capitalize() if kind in ("tool", "reasoning", "title") else ""
        also = f"  (also in {count(copies, 'branch')})" if copies else ""
        yield Row(
            id=f"{hit['branch']} {hit['message_id']} {hit['part_id']} {kind}",
            cells=(
                Cell(f"  {who or ('You' if hit['role'] == 'user' else 'Model')}", "dim"),
                Cell(f"{hit['preview']}{also}", matches=hit["matches"]),
            ),
            label=title,
            visit=cast(MessagePlace, {**hit, "kind": "message", "query": query}),
            level=1,
        )


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
