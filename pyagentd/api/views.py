"""Lists with columns, rows and row actions, ready for every client to show: the operation ``view``.

A client shows any view without knowing its subject: Emacs in a buffer of ``pyagentd-list.el``, the command line with
``print_view``. Rows come from the operations that programs use; a view makes them readable for people.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast, get_args

from pyagentd.api.agents import Agents, agent_tree, profile_word
from pyagentd.api.approvals import Approvals, AskRow
from pyagentd.api.background import Background
from pyagentd.api.conversations import Conversations
from pyagentd.api.group import NOTHING, Client, Env, Followed, Group, operations_of, reply_of
from pyagentd.api.history import Histories
from pyagentd.api.inspection import MAX_HITS, Inspection
from pyagentd.api.mcp import McpOperations
from pyagentd.api.models import ModelOperations
from pyagentd.api.sessions import Sessions
from pyagentd.errors import BadRequest, NotFound, did_you_mean
from pyagentd.events import Face, FilePlace, Place, ReportPlace, SessionPlace, ViewPlace, one_line, truncate
from pyagentd.features.named_agents import profile_names
from pyagentd.features.snapshots import Snapshots
from pyagentd.features.usage import By
from pyagentd.policy.guard import explain_pattern
from pyagentd.runtime.approvals import agent_words
from pyagentd.runtime.usage import cost
from pyagentd.store import paths
from pyagentd.store.db.projection import HitFacts
from pyagentd.wire.connection import Operation
from pyagentd.words import quantity, short_tokens

LIMIT = 500  # rows, where the client does not say
LONGEST_CELL = 400  # characters


class ColumnReply(TypedDict):
    """A column of a list."""

    title: str
    width: int  # characters; 0 for the last column, which gets the rest
    most: int | None  # maximum width in characters, where there is room
    least: int | None  # minimum width in characters; without room for them the column is left out
    right: bool  # aligned to the right
    sorts: bool  # rows can be sorted by it


class CellReply(TypedDict):
    """A cell: one column of a row."""

    text: str  # one line
    face: str | None
    sort: str | float | None  # the sort key, where that is not the text
    matches: NotRequired[list[list[int]]]  # search matches in the text: pairs of offsets from 0


class MessagePlace(HitFacts):
    """A message that a search found."""

    kind: Literal["message"]
    query: str  # the search query


Fact = str | bool | None | list[str] | Place | AskRow


class RowReply(TypedDict):
    """A row of a list."""

    id: str
    cells: list[CellReply]
    label: str  # its name in questions and messages
    facts: Mapping[str, Fact]  # the arguments that actions take
    visit: Place | MessagePlace | None  # the place to open when it is visited
    level: int  # depth in the tree: its parent is the nearest row above with a smaller level


class PromptReply(TypedDict):
    """An argument that the client reads from the user before it calls an operation."""

    argument: str  # its name
    prompt: str
    number: NotRequired[bool]  # the value is a number


class ActionReply(TypedDict):
    """What a key does: copy a text, call an operation, open a place, or show the list with other arguments."""

    key: str  # in the notation of Emacs
    label: str
    operation: str | None
    takes: list[str]  # the facts of the row that are arguments
    arguments: Mapping[str, Any]
    place: str | None  # the fact that holds the place to open
    several: bool  # it applies to all marked rows
    question: str | None  # to confirm; %s is the row's label, or the number of rows
    noun: str | None  # what a row is, in the singular, to count several
    asks: Literal["always", "several"]
    needs: str | None  # the fact that must be true of a row
    done: str | None  # the message afterwards
    env: bool  # the operation also takes the client's environment
    reads: PromptReply | None
    saves: bool  # the client first saves its buffer of the branch
    patience: int | None  # timeout of the call in seconds
    copies: str | None


class ViewReply(TypedDict):
    """A list, ready to be shown."""

    name: str
    title: str
    columns: list[ColumnReply]
    rows: list[RowReply]
    actions: list[ActionReply]
    empty: str  # the text to show when there are no rows
    note: str | None  # a remark on the whole list
    follows: list[str]  # its sources, such as sessions or tasks: the client reloads it when they change
    more: bool  # there are more rows
    current: str | None  # the id of the row to start at
    filters: bool  # it takes ``words``: the daemon filters, so that rows beyond these are found too


class ViewSummary(TypedDict):
    """A list that ``view`` can make."""

    name: str
    summary: str
    arguments: list[str]
    session: Literal["required", "optional"] | None  # whether a session's branch is an argument


class ViewsReply(TypedDict):
    """The available lists."""

    views: list[ViewSummary]


Value = Callable[[Any], CellReply]  # makes the cell for an item


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the fields of ``ColumnReply``, and the function that makes its cells."""

    title: str
    width: int
    value: Value
    most: int | None = None
    least: int | None = None
    right: bool = False
    sorts: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the item that the columns show, and the other fields of ``RowReply``."""

    item: Any
    id: str
    label: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    visit: Place | MessagePlace | None = None
    level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A list: its columns, its rows in order, and the other fields of ``ViewReply``."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    actions: Sequence[ActionReply] = ()
    empty: str = "Nothing."
    note: str = ""
    follows: Sequence[Followed] = ()
    more: bool = False
    current: str = ""
    filters: bool = False
    sorts: bool = True  # false: no column can be sorted by

    def to_wire(self, name: str, limit: int) -> ViewReply:
        """Return the list as a reply, with at most ``limit`` rows."""
        return reply_of(
            ViewReply,
            self,
            name=name,
            columns=[reply_of(ColumnReply, each, sorts=each.sorts and self.sorts) for each in self.columns],
            rows=[
                reply_of(RowReply, row, cells=[column.value(row.item) for column in self.columns])
                for row in self.rows[:limit]
            ],
            actions=list(self.actions),
            note=self.note or None,
            follows=list(self.follows),
            more=self.more or len(self.rows) > limit,
            current=self.current or None,
        )


def action(
    key: str, label: str, operation: str | None = None, *takes: str, verb: tuple[str, str] | None = None, **more: Any
) -> ActionReply:
    """Return the action of a key; ``more`` are further fields of ``ActionReply``.

    Without an operation it shows the list with other arguments. With a noun it also applies to marked rows. With a
    ``verb``, such as ("Stop", "Stopped"), the user confirms first.
    """
    given = {"key": key, "label": label, "operation": operation, "takes": list(takes), "several": "noun" in more}
    if verb is not None:
        given |= {"question": f"{verb[0]} %s?", "done": f"{verb[1]} %s"}
    others = {"arguments": {}, "asks": "always", "env": False, "saves": False}
    return cast(ActionReply, dict.fromkeys(ActionReply.__annotations__) | others | given | more)


_STOP = action("k", "stop", "abort", "branch", verb=("Stop", "Stopped"), noun="run", asks="several")


def _clear(which: str, *takes: str, **more: Any) -> ActionReply:
    """Return the action that clears the conversation that ``which`` names."""
    question = f"Clear the {which} without saving it?"
    return action("C", "clear", "context-clear", *takes, question=question, saves=True, **more)


_RESET = "%s: the default again"  # the message after a reset


def toggle(name: str, *, shown: bool) -> ActionReply:
    """Return the action that shows or hides the rows that are left out by default."""
    return action("A", f"without {name}" if shown else name, arguments={name: not shown})


# Cells: numbers and times in a readable form.


def cell(
    text: str, face: Face = "", sort: str | float | None = None, matches: Sequence[Sequence[int]] = ()
) -> CellReply:
    """Return a cell with ``text`` on one line, cut where it is long."""
    line = truncate(text.replace("\n", " ").replace("\t", " "), LONGEST_CELL)
    made: CellReply = {"text": line, "face": face or None, "sort": sort}
    return {**made, "matches": [list(each) for each in matches]} if matches else made


def of(key: str, face: Face = "") -> Value:
    """Return a function that makes the cell for the value under ``key``."""
    return lambda item: cell(str(item[key] or ""), face)


def number_of(key: str) -> Value:
    """Return a function that makes the cell for the number under ``key``; empty for 0 or None."""
    return lambda item: cell(str(item[key] or ""), sort=item[key] or 0)


def unless(problem: str, value: Value) -> Value:
    """Return a function that shows the item's problem under this key, or without a problem its ``value``."""
    return lambda item: cell(f"! {item[problem]}", "bad") if item[problem] else value(item)


def time_of(key: str, form: str = "%Y-%m-%d %H:%M") -> Value:
    """Return a function that makes the cell for the time under ``key``."""
    return lambda item: local_time(item[key], form)


def local_datetime(value: object) -> datetime | None:
    """Return a time of a reply, milliseconds or ISO 8601, in local time; None if it is not a time."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value / 1000).astimezone()
    try:
        return datetime.fromisoformat(str(value or "")).astimezone()
    except ValueError:
        return None


def local_time(value: object, form: str = "%Y-%m-%d %H:%M") -> CellReply:
    """Return the cell for a time of a reply."""
    at = local_datetime(value)
    return cell(at.strftime(form), sort=at.timestamp()) if at else cell("", sort=0)


def age(value: object, now: datetime) -> CellReply:
    """Return the cell for the age of a time of a reply, such as "3h"."""
    at = local_datetime(value)
    if at is None:
        return cell("", sort=0)
    seconds = max(0, int((now.astimezone(UTC) - at).total_seconds()))
    sizes = (("y", 31557600), ("w", 604800), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    unit, size = next(((unit, size) for unit, size in sizes if seconds >= size), ("s", 1))
    return cell(f"{seconds // size}{unit}", sort=seconds)


def tokens(number: int | None, none: str = "0") -> CellReply:
    """Return the cell for a number of tokens in a few characters: 950, 1.2k, 12k, 1.2M."""
    return cell(short_tokens(number) if number else none, sort=number or 0)


def decision(value: str) -> tuple[str, Face]:
    """Return the word for a decision in the audit, and its face."""
    known: Mapping[str, tuple[str, Face]] = {
        "allow": ("allowed", "good"),
        "ask_approved": ("approved", "good"),
        "ask_denied": ("refused", "warn"),
        "deny": ("denied", "bad"),
    }
    return known.get(value, (value, ""))


def bar(value: float, most: float, width: int = 16) -> str:
    """Return a bar for ``value``, ``width`` characters long for ``most``; any value above 0 is visible."""
    eighths = max(1, round(8 * width * value / most)) if value > 0 and most > 0 else 0
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def span(seconds: float) -> str:
    """Return a time span in the form that settings accept: "45min", "2h", "never"."""
    whole = int(seconds)
    if not whole:
        return "never"
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("min", 60), ("s", 1)) if not whole % size)
    return f"{whole // size}{unit}"


def title_of(row: Mapping[str, Any]) -> str:
    """Return the displayed name of a session row: its title, or without one its id (of an agent, its subject)."""
    if row.get("title"):
        return str(row["title"])
    name = str(row.get("session_id") or "")
    return agent_words(name) if row.get("agent") else name


def _stem(above: str, *, last: bool) -> str:
    """Return the tree-drawing prefix of a line whose parent has the prefix ``above``."""
    return above.replace("├", "│").replace("└", " ") + ("└ " if last else "├ ")


# Places.


def session_place(branch: str, title: str = "") -> SessionPlace:
    """Return a place that opens a branch's conversation; ``title`` is its session's."""
    return {"kind": "session", "branch": branch, "title": title or None}


def report_place(report: str, /, *, env: bool = False, called: str = "", **arguments: Any) -> ReportPlace:
    """Return a place that opens a report, see ``ReportPlace``."""
    return {"kind": "report", "name": report, "arguments": arguments, "env": env, "called": called}


def view_place(name: str, **arguments: Any) -> ViewPlace:
    """Return a place that opens a view."""
    return {"kind": "view", "name": name, "arguments": arguments}


def file_place(path: Path | str) -> FilePlace:
    """Return a place that opens a file or directory."""
    return {"kind": "file", "file": str(path)}


# The lists.


class Lists(Group):
    """The lists, each a method that takes typed arguments, as an operation does, and returns a ``View``.

    The first line of a method's docstring is its summary in ``views``.
    """

    async def sessions(self, client: Client, *, archived: bool = False, words: str = "", limit: int = LIMIT) -> View:
        """List sessions with their branches and agents, the latest first."""
        nodes = session_forest(await self._group(Sessions).session_rows(archived=archived))
        wanted = words.lower().split()
        found = [line for node in nodes if (kept := node.matching(wanted)) for line in kept.lines()]
        now = self._kernel.clock.now()
        return View(
            title="Sessions",
            columns=(
                Column("Title", 24, _session_cell, most=64),
                Column("Age", 5, lambda row: age(row["updated"] or row["created"], now), right=True),
                Column("State", 8, _state_cell),
                Column("Tokens", 6, lambda row: tokens(row["tokens"], none=""), right=True),
                Column("Cost", 8, _price_cell, right=True),
                Column("Preset", 21, of("preset", "dim")),
                Column("Id", 0, of("shown_id", "dim"), least=16, sorts=False),
            ),
            rows=[_session_row(*line) for line in found[:limit]],
            actions=(
                _STOP,
                action(
                    "a",
                    "archive",
                    "archive",
                    "branch",
                    "undo",
                    question="Archive %s, or list it again?",
                    noun="session",
                    asks="several",
                    done="Archived, or listed again: %s",
                ),
                toggle("archived", shown=archived),
            ),
            empty=f"No session has all of “{words}”." if wanted else "No sessions; M-x pyagentd-session makes one.",
            note="archived too" if archived else "",
            follows=("sessions",),
            more=len(found) > limit,
            filters=True,
        )

    async def search(self, client: Client, *, query: str, archived: bool = False, limit: int = LIMIT) -> View:
        """List the messages of all sessions that match a query, by session."""
        found = await self._group(Inspection).search(
            client, query=query, limit=min(limit, MAX_HITS), archived=archived
        )
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for hit in found["hits"]:
            groups.setdefault(hit["branch"], []).append(hit)
        rows = [row for hits in groups.values() for row in _found_in(hits, query)]
        hits = sum(row.level for row in rows)
        notes = [
            f"{'first ' if found['more'] else ''}{quantity(hits, 'message')} with {query}",
            *(["archived too"] if archived else []),
            *([found["problem"]] if found["problem"] else []),
            *(["indexing is not finished; g searches again"] if found["indexing"] else []),
        ]
        return View(
            title="Search",
            sorts=False,
            columns=(
                Column("From", 14, itemgetter(0), most=30),
                Column("Message", 0, itemgetter(1)),
            ),
            rows=rows,
            actions=(
                action("s", "search", reads={"argument": "query", "prompt": "Search sessions: "}),
                toggle("archived", shown=archived),
            ),
            empty=f"No matches for {query}{'' if archived else '; A includes archived sessions'}.",
            note="; ".join(notes),
            more=found["more"],
            current=rows[1].id if rows else "",
        )

    async def running(self, client: Client) -> View:
        """List running and waiting turns of all sessions, and their agents."""
        found = _below((await self._group(Sessions).running(client))["running"])
        waiting = sum(row["state"] == "waiting" for row in found)
        return View(
            title="Running",
            columns=(
                Column("Who", 22, _runner_cell),
                Column("State", 8, lambda row: cell(row["state"], "good" if row["state"] == "busy" else "warn")),
                Column("Since", 8, time_of("started_at", "%H:%M:%S")),
                Column("Tokens", 6, lambda row: tokens(row["tokens"]), right=True),
                Column("Session", 26, lambda row: cell(title_of(row), "title")),
                Column("Does", 0, lambda row: cell(_activity_of(row), "detail"), sorts=False),
            ),
            rows=[
                Row(row, row["branch"], title_of(row), {"branch": row["branch"]}, session_place(row["branch"]))
                for row in found
            ],
            actions=(_STOP,),
            empty="Nothing is running.",
            note=f"{len(found) - waiting} running{f', {waiting} waiting' if waiting else ''}" if found else "",
            follows=("sessions",),
        )

    async def asks(self, client: Client) -> View:
        """List pending approvals and questions of all sessions."""
        return View(
            title="Asks",
            columns=(
                Column("Asked", 11, time_of("created_at", "%m-%d %H:%M")),
                Column("Agent", 24, of("who", "strong")),
                Column("What", 60, of("what", "heading")),
                Column("Session", 0, lambda row: cell(self._session_of(row["branch"]), "dim")),
            ),
            rows=[
                Row(row, row["id"], row["what"], {"ask": row, "branch": row["branch"]}, session_place(row["branch"]))
                for row in (await self._group(Approvals).asks(client))["asks"]
            ],
            empty="No pending approvals.",
            follows=("asks",),
        )

    async def queue(self, client: Client, *, branch: str) -> View:
        """List the queued messages of a session."""
        answer = await self._group(Conversations).queue(client, branch=branch)
        return View(
            title="Queue",
            columns=(
                Column("Sent", 6, time_of("queued_at", "%H:%M")),
                Column(
                    "From",
                    9,
                    lambda row: cell(
                        "steers" if row["steer"] else "trigger" if row.get("trigger") else row["origin"]
                    ),
                ),
                Column("Text", 0, of("text"), sorts=False),
            ),
            rows=[
                Row(
                    item=row,
                    id=row["id"],
                    label=f"“{one_line(row['text'], 40)}”",
                    facts={"branch": branch, "id": row["id"], "text": row["text"], "origin": row["origin"]},
                )
                for row in answer["items"]
            ],
            actions=(
                action("!", "resume", "queue-resume", arguments={"branch": branch}, env=True),
                action("r", "retry now", "retry-now", arguments={"branch": branch}),
            ),
            empty="No queued messages.",
            note="paused" if answer["paused"] else "",
            follows=("queue",),
        )

    async def named(self, client: Client, *, destroyed: bool = False) -> View:
        """List named agents."""
        found = (await self._group(Agents).agent_list(client, destroyed=destroyed))["agents"]
        return View(
            title="Named agents",
            columns=(
                Column("Name", 22, of("name", "strong")),
                Column("Status", 10, _status_cell),
                Column("Model", 22, lambda row: cell(row["model"] or row["effective_model"] or "")),
                Column("Permissions", 12, lambda row: cell(profile_word(row["permissions"]))),
                Column("Made", 17, time_of("created_at")),
                Column("Directory", 0, unless("error", of("dir", "dim")), sorts=False),
            ),
            rows=[_named_row(row) for row in found],
            actions=(
                action("c", "configure", place="config"),
                action("t", "tasks", place="tasks"),
                action("H", "history", place="contexts"),
                action("w", "workspace", place="workspace"),
                action("W", "documents", place="docs"),
                _clear("conversation of %s", "branch", needs="branch"),
                toggle("destroyed", shown=destroyed),
            ),
            empty="No named agents; + makes one.",
            note="destroyed too" if destroyed else "",
            follows=("agents",),
        )

    async def agent(self, client: Client, *, agent: str) -> View:
        """List the settings of a named agent: name, system prompt, model, permissions."""
        answer = await self._group(Agents).agent_config(client, name=agent)
        config: Mapping[str, Any] = answer["config"]

        def facts(key: str) -> Mapping[str, Fact]:
            value = config[key]
            return {
                "name": agent,
                "key": key,
                "value": value if isinstance(value, str | None) else json.dumps(value),
                "custom": isinstance(value, Mapping),
                "choices": profile_names(self._kernel) if key == "permissions" else None,
                "default": key in ("model", "permissions"),
                "docs": file_place(Path(answer["dir"]) / "docs"),
            }

        again: dict[str, Any] = {"arguments": {"reset": True}, "needs": "default", "done": _RESET}
        actions = (
            action("D", "default", "agent-config", "name", "key", **again),
            action("W", "its documents", place="docs"),
        )
        values = {key: _value_cell(config[key], "(default)") for key in AGENT_KEYS}
        return _keys_view(f"Agent {agent}", "Key", AGENT_KEYS, values, facts, actions)

    async def settings(self, client: Client) -> View:
        """List the defaults of named agents."""
        answer = await self._group(Agents).settings(client)
        held: Mapping[str, Any] = answer["settings"]
        defaults: Mapping[str, Any] = answer["defaults"]

        def value(key: str, default: str) -> str:
            return span(held[key]) if key == "idle_timeout" else _value_cell(held[key], default)["text"]

        def facts(key: str) -> Mapping[str, Fact]:
            return {"key": key, "value": value(key, "") or None, "choices": choices.get(key)}

        choices = {"default_permissions": answer["profiles"], "idle_timeout": ["10min", "30min", "2h", "never"]}
        actions = (action("D", "default", "settings", "key", arguments={"reset": True}, done=_RESET),)
        values = {
            key: cell(value(key, "the preset's"), "dim" if held[key] == defaults[key] else "") for key in SETTINGS
        }
        return _keys_view("Defaults of named agents", "Setting", SETTINGS, values, facts, actions)

    async def schedules(self, client: Client, *, branch: str | None = None) -> View:
        """List the scheduled messages of a session, or of all."""
        found = (await self._group(Background).schedules(client, branch=branch))["schedules"]
        return View(
            title="Schedules",
            columns=(
                Column("Next", 16, time_of("next_at")),
                Column("When", 18, of("when")),
                Column("Session", 22, of("session")),
                Column("By", 9, lambda row: cell("the agent" if row["source"] == "self-schedule" else "you", "dim")),
                Column("Message", 30, unless("last_error", of("text")), sorts=False),
                Column(
                    "Until",
                    16,
                    lambda row: local_time(row["expires_at"]) if row["expires_at"] else cell("-", "dim", 0),
                ),
                Column("Id", 0, of("id", "dim")),
            ),
            rows=[
                Row(
                    item=row,
                    id=row["id"],
                    label=f"“{one_line(row['text'], 40)}”, {row['when']}",
                    facts={"id": row["id"]},
                    visit=session_place(row["branch"]),
                )
                for row in found
            ],
            actions=(
                action("k", "cancel", "schedule-cancel", "id", verb=("Cancel", "Cancelled"), noun="schedule"),
                action("x", "send now", "schedule-run", "id", done="Sent %s"),
            ),
            empty="Nothing is scheduled.",
            follows=("sessions",),
        )

    async def tasks(self, client: Client, *, branch: str | None = None) -> View:
        """List the background commands of a session, or of all, the latest first."""
        found = (await self._group(Background).tasks(client, branch=branch))["tasks"]
        now = self._kernel.clock.now()
        return View(
            title="Tasks",
            columns=(
                Column("Id", 9, of("id")),
                Column("Agent", 20, of("agent")),
                Column("Status", 14, lambda row: cell(*task_status(row))),
                Column("Since", 6, lambda row: age(row["ended_at"] or row["started_at"], now)),
                Column("PID", 8, number_of("pid")),
                Column("Command", 0, of("command"), sorts=False),
            ),
            rows=[
                Row(
                    item={**row, "pid": row["pid"] if row["status"] == "running" else None},
                    id=f"{row['agent']}/{row['id']}",
                    label=f"{row['id']} ({one_line(row['command'], 40)})",
                    facts={
                        "branch": row["branch"],
                        "id": row["id"],
                        "running": row["status"] == "running",
                        "conversation": session_place(row["branch"]),
                    },
                    visit=report_place(
                        "task", called=f"{row['id']} of {row['agent']}", branch=row["branch"], id=row["id"]
                    ),
                )
                for row in reversed(found)
            ],
            actions=(
                action(
                    "k", "end it", "task-kill", "branch", "id", verb=("End", "Ended"), noun="task", needs="running"
                ),
                action("v", "conversation", place="conversation"),
            ),
            empty="Nothing runs in the background, and nothing did.",
            follows=("tasks",),
        )

    async def agents(self, client: Client, *, branch: str) -> View:
        """List the agents of a session as a tree."""
        root = paths.root_of(self._ref(branch))
        return View(
            title="Agents",
            sorts=False,
            columns=(
                Column("Agent", 48, of("name")),
                Column("State", 12, _agent_state_cell),
                Column("Tokens", 12, lambda row: tokens(row["tokens"])),
                Column("Id", 30, of("id", "dim")),
                Column("Result", 0, of("result", "detail")),
            ),
            rows=[
                Row(
                    item={**row, "name": f"{stem}{row['preset'] or 'agent'}  {row['description'] or ''}".rstrip()},
                    id=row["id"],
                    label=row["id"],
                    facts={"branch": row["branch_dir"]},
                    visit=session_place(row["branch_dir"]),
                )
                for stem, row in _with_stems(await agent_tree(self._kernel, root))
            ],
            actions=(
                {**_STOP, "noun": "agent"},
                action(
                    "K",
                    "stop all",
                    "abort-all",
                    arguments={"branch": root.key},
                    question="Stop this session with all its agents?",
                    done="Stopped",
                ),
            ),
            empty="This session has no agents.",
            follows=("sessions",),
        )

    async def branches(self, client: Client, *, branch: str, at: str | None = None) -> View:
        """List the branches of a session as a tree, the active one with a star.

        ``branch`` may be the session's directory; ``at`` is the branch to begin at.
        """
        ref = self._ref(branch)
        if ref.is_agent:
            raise BadRequest("An agent has no branches")
        stems, rows = [""], []
        for row in (await self._group(Sessions).branches(client, branch=branch))["branches"]:
            depth = row["depth"]
            stems[depth:] = [_stem(stems[depth - 1], last=row["last"]) if depth else ""]
            rows.append(
                Row(
                    item={**row, "stem": stems[-1]},
                    id=row["branch"],
                    label=row["name"],
                    facts={name: row[name] for name in ("branch", "name", "parent", "file")},
                    visit=session_place(row["branch"], self._title(ref)),
                )
            )
        return View(
            title="Branches",
            sorts=False,
            columns=(
                Column("Branch", 44, _branch_cell),
                Column("Created", 17, lambda row: cell(local_time(row["created"])["text"], "dim")),
                Column("Agents", 7, number_of("agents"), right=True),
                Column("Comes from", 0, of("parent", "dim")),
            ),
            rows=rows,
            actions=(action("s", "make it current", "switch", "branch", done="Current branch: %s"),),
            current=at or ref.key,
            follows=("sessions",),
        )

    async def grants(self, client: Client, *, branch: str) -> View:
        """List your grants for a session and for its project."""
        answer = await self._group(Approvals).grants(client, branch=branch)
        where = {"project": f"in all sessions of {answer['root']}"}
        return View(
            title="Grants",
            columns=(
                Column("For", 8, of("kind")),
                Column("Actions that match", 60, of("action", "code")),
                Column("Given", 17, time_of("at")),
                Column("By", 12, of("by", "dim")),
                Column("Covers", 0, lambda row: cell(explain_pattern(row["action"]), "detail")),
            ),
            rows=[
                Row(
                    item=row,
                    id=f"{row['kind']} {row['action']}",
                    label=f"{row['action']} {where.get(row['kind'], 'in this session')}",
                    facts={"branch": branch, "action": row["action"], "kind": row["kind"]},
                )
                for row in answer["grants"]
            ],
            actions=(
                action("r", "revoke", "revoke", "branch", "action", "kind", verb=("Revoke", "Revoked"), noun="grant"),
            ),
            empty="No grants.",
            follows=("sessions",),
        )

    async def audit(
        self, client: Client, *, branch: str | None = None, session: str | None = None, limit: int = LIMIT
    ) -> View:
        """List decisions about tool calls of a session, or of all, the latest first."""
        wanted = session or (self._ref(branch).session_id if branch else None)
        answer = await self._group(Approvals).audit(client, session=wanted, limit=limit)
        return View(
            title="Decisions",
            columns=(
                Column("When", 14, time_of("at", "%m-%d %H:%M:%S")),
                Column("Decision", 9, lambda row: cell(*decision(row["decision"]))),
                Column("Action", 56, lambda row: cell((row["action"] or row["tool"] or "").removeprefix("tool:"))),
                Column("By", 24, _decider_cell),
                Column(
                    "Agent",
                    24,
                    lambda row: cell(agent_words(row["agent"] or "") or (not wanted and row["session"]) or "", "dim"),
                ),
                Column("Reason", 0, of("reason", "detail")),
            ),
            rows=[
                Row(
                    item=row,
                    id=str(row["id"]),
                    label=row["action"] or row["tool"] or "",
                    facts={"session": row["session"]},
                    visit=report_place("decision", id=row["id"]),
                )
                for row in answer["decisions"]
            ],
            actions=(
                action("s", "its session", None, "session", arguments={"branch": None}),
                action("a", "all sessions", arguments={"branch": None, "session": None}),
            ),
            empty="No decisions are recorded.",
            note=answer["problem"] or wanted or "all sessions",
            follows=("sessions",),
            more=answer["more"],
        )

    async def contexts(self, client: Client, *, branch: str | None = None, agent: str | None = None) -> View:
        """List the saved conversations of a session or named agent, the latest first."""
        answer = await self._group(Histories).context_history(client, branch=branch, agent=agent)
        return View(
            title="Contexts",
            columns=(
                Column("Id", 9, lambda row: cell(row["id"][:8], "dim")),
                Column("Saved", 17, time_of("saved_at")),
                Column("Why", 9, lambda row: cell(SAVED_BY.get(row["trigger"], row["trigger"]))),
                Column("Messages", 9, number_of("message_count"), right=True),
                Column(
                    "Description", 0, lambda row: cell(row["description"], "dim" if row["gone"] else ""), sorts=False
                ),
            ),
            rows=[
                Row(
                    item=row,
                    id=row["id"],
                    label=f"“{one_line(row['description'], 50)}”",
                    facts={"branch": branch, "id": row["id"], "file": file_place(row["file"])},
                )
                for row in answer["contexts"]
            ],
            actions=(
                action(
                    "RET",
                    "restore",
                    "context-restore",
                    "branch",
                    "id",
                    needs="branch",
                    question="Restore %s without saving the present conversation?",
                    done="Restored %s",
                    saves=True,
                    patience=300,
                ),
                action("o", "view", place="file"),
                *([_clear("present conversation", arguments={"branch": branch})] if branch else ()),
            ),
            empty="No saved conversations.",
            note="" if branch else f"{agent} no longer exists",
            follows=("sessions",),
        )

    async def usage(self, client: Client, *, by: By = "day", days: int = 30) -> View:
        """List the cost of all sessions, by day, model, session or preset."""
        answer = await self._group(ModelOperations).usage_report(client, by=by, days=days)
        lines, rest = answer["lines"], answer["rest"]
        measure: Literal["known_usd", "total"] = "known_usd" if any(line["known_usd"] for line in lines) else "total"
        most = max((line[measure] for line in lines), default=0)
        rows = [
            Row(
                item={**line, "name": _spender_cell(line, by), "bar": cell(bar(line[measure], most), "good")},
                id=line["key"],
                label=line["key"],
                facts={"charts": report_place("usage", called="charts", days=days)},
                visit=(session_place(str(Path(file).parent)) if (file := line.get("file")) else None)
                if by == "session"
                else view_place("usage", by="session", days=days),
            )
            for line in lines
        ]
        sums = [(f"{rest['number']} others", rest)] if rest else []
        for name, line in [*sums, ("Together", answer["together"])] if lines else []:
            rows.append(Row(item={**line, "name": cell(name, "heading"), "bar": cell("")}, id=name, label=name))
        period = f"last {quantity(days, 'day')}" if days else "always"
        return View(
            title="Usage",
            sorts=False,
            columns=(
                Column(by.capitalize(), 26, itemgetter("name")),
                Column("Requests", 8, lambda line: cell(f"{line['requests']:,}"), right=True),
                Column("In", 6, _tokens_of("input", "cache_read", "cache_write"), right=True),
                Column("Cached", 6, _tokens_of("cache_read"), right=True),
                Column("Out", 6, _tokens_of("output", "reasoning"), right=True),
                Column(
                    "Cost",
                    9,
                    lambda line: cell(cost(line["known_usd"], unpriced=bool(line["unpriced"]))),
                    right=True,
                ),
                Column("", 0, itemgetter("bar")),
            ),
            rows=rows,
            actions=(
                *(
                    action(what[0], "by day" if what == "day" else what, arguments={"by": what})
                    for what in get_args(By)
                ),
                action("t", "how long", reads={"argument": "days", "prompt": "Days (0 is always): ", "number": True}),
                action("c", "charts", place="charts"),
            ),
            empty=f"Nothing was spent in the {period}." if days else "Nothing was spent yet.",
            note=f"by {by}, {period}"
            + (", still reading sessions" if answer["indexing"] else "")
            + (f", {answer['problem']}" if answer["problem"] else ""),
            follows=("sessions",),
        )

    async def mcp(
        self, client: Client, *, branch: str | None = None, root: str | None = None, env: Env = NOTHING
    ) -> View:
        """List the MCP servers of a session or project, and your own."""
        answer = await self._group(McpOperations).mcp(client, branch=branch, root=root, env=env)
        project = report_place("servers", root=answer["root"])
        notes = [f"of the project's servers cannot be used: {answer['error']}"] if answer["error"] else []
        if not all(row["trusted"] for row in answer["servers"]):
            notes.append("the project's servers are not trusted: read them, then T or pyagentd mcp trust")
        return View(
            title="MCP",
            columns=(
                Column("Server", 18, of("name")),
                Column("State", 12, _server_state_cell),
                Column("Tools", 6, number_of("tools"), right=True),
                Column("From", 12, lambda row: cell("you" if row["origin"] == "user" else "the project")),
                Column(
                    "Reached by",
                    0,
                    unless("problem", lambda row: cell(row["url"] or " ".join(row["command"]))),
                    sorts=False,
                ),
            ),
            rows=[
                Row(
                    item=row,
                    id=f"{row['origin']} {row['name']}",
                    label=row["name"],
                    visit=report_place("server", name=row["name"], root=answer["root"], env=True)
                    if row["trusted"]
                    else project,
                    facts={"project": project},
                )
                for row in answer["servers"]
            ],
            actions=(action("T", "read and trust the project's", place="project"),),
            empty="No MCP servers: add [mcp.NAME] to config.toml.",
            note="; ".join(notes),
            follows=("sessions",),
        )

    async def changes(self, client: Client, *, branch: str, message: str | None = None) -> View:
        """List the files that agents of a session changed."""
        answer = await self._group(Histories).changes(client, branch=branch, message=message)
        restorable = [row["path"] for row in answer["files"] if row["change"] in _RESTORABLE]
        given = {"branch": branch, "message": message}

        def restore(key: str, label: str, question: str, needs: str, conflicts: str = "keep") -> ActionReply:
            arguments = {**given, "conflicts": conflicts}
            more: dict[str, Any] = {
                "arguments": arguments,
                "question": question,
                "needs": needs,
                "patience": _PATIENCE,
            }
            return action(key, label, "restore", "paths", **more)

        actions = [
            restore("r", "restore", "Restore %s?", "restorable"),
            restore("c", "copy", "Put the old version of %s beside it?", "conflict", "copy"),
            restore("O", "overwrite", "Overwrite %s, which somebody else changed, too?", "conflict", "overwrite"),
        ]
        if restorable:
            question = f"Restore {quantity(len(restorable), 'file')} (new files are deleted)?"
            arguments = {**given, "paths": restorable}
            actions.append(
                action("R", "restore all", "restore", arguments=arguments, question=question, patience=_PATIENCE)
            )
        changes = await self._kernel.feature(Snapshots).changes(self._ref(branch), None)
        if restores := [change.id for change in changes if change.kind == "restore"]:
            arguments = {"branch": branch, "id": restores[-1]}
            question = "Undo the last restore?"
            actions.append(
                action("u", "undo", "undo-restore", arguments=arguments, question=question, patience=_PATIENCE)
            )
        return View(
            title="Changes",
            columns=(
                Column("What", 9, lambda row: cell(*CHANGES.get(row["change"], (row["change"], "")))),
                Column("File", 60, of("path")),
                Column("Why", 0, of("reason", "dim"), sorts=False),
            ),
            rows=[
                Row(
                    row,
                    row["path"],
                    row["path"],
                    {
                        "reason": row["reason"],
                        "diff": row["diff"],
                        "paths": [row["path"]],
                        "restorable": row["change"] in _RESTORABLE,
                        "conflict": row["change"] == "conflict",
                    },
                    file_place(row["path"]),
                )
                for row in answer["files"]
            ],
            actions=actions,
            empty="No changed files.",
            note={None: "whole session", "last": "since the last prompt"}.get(message, "since a prompt"),
        )

    def _session_of(self, branch: str) -> str:
        root = paths.root_of(self._ref(branch))
        return self._title(root) or root.session_id

    def _title(self, ref: paths.BranchRef) -> str:
        live = self._kernel.opened(ref.key)
        return str(live.conversation.session.get("title") or "") if live is not None else ""


async def make(
    makers: Mapping[str, Operation],
    what: str,
    client: Client,
    name: str,
    arguments: Mapping[str, Any],
    **more: Any,
) -> Any:
    """Call the maker of the list or page ``name`` with ``arguments``, and with those of ``more`` that it accepts."""
    maker = makers.get(name)
    if maker is None:
        known = did_you_mean(name, makers) or f"There are: {', '.join(sorted(makers))}"
        raise NotFound(f"There is no {what} {name[:60]!r}", hint=known)
    given = {key: value for key, value in more.items() if key in maker.parameters}
    return await maker.run(client, **maker.bind_named({**arguments, **given}))


class Views(Group):
    """The operations that show lists."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._lists = operations_of(Lists(*parts))

    async def view(
        self,
        client: Client,
        *,
        name: str,
        arguments: Mapping[str, Any] = NOTHING,
        limit: int = LIMIT,
        watch: bool = False,
    ) -> ViewReply:
        """Return the list ``name``, ready to be shown: columns, rows, actions.

        ``views`` names the ``arguments`` of each list. At most ``limit`` rows are returned; ``more`` is true if there
        are others. With ``watch`` the client receives events about what the list ``follows``, as with ``sessions``
        and ``tasks``.
        """
        view: View = await make(self._lists, "list", client, name, arguments, limit=limit)
        if watch:
            self._follow(client, *view.follows)
        return view.to_wire(name, limit)

    async def views(self, client: Client) -> ViewsReply:
        """Return the lists that ``view`` can make.

        Lists that need another argument than a session, such as "agent", are left out.
        """
        found: list[ViewSummary] = []
        for each in self._lists.values():
            if all(name == "branch" for name in each.required):
                summary = each.doc.partition("\n")[0].removeprefix("List ").removesuffix(".")
                found.append(
                    {
                        "name": each.name,
                        "summary": summary,
                        "arguments": [value.key for value in each.parameters.values()],
                        "session": "required"
                        if "branch" in each.required
                        else ("optional" if "branch" in each.parameters else None),
                    }
                )
        return {"views": found}


# Sessions, with what belongs to them.


@dataclass(slots=True)
class Node:
    """A branch or agent with its children; ``spent``: tokens, dollars, whether a price is unknown."""

    row: Mapping[str, Any]
    below: list["Node"] = field(default_factory=list)
    spent: tuple[int, float, bool] = (0, 0.0, False)

    def matching(self, words: Sequence[str]) -> "Node | None":
        """Return the node with the descendants that contain all ``words``, and their parents; None if none does."""
        if not words:
            return self
        below = [found for each in self.below if (found := each.matching(words))]
        names = ("title", "session_id", "branch_name", "preset", "state")
        text = " ".join(str(self.row[name] or "") for name in names).lower()
        return Node(self.row, below, self.spent) if below or all(word in text for word in words) else None

    def lines(self, stem: str = "", level: int = 0) -> Iterator[tuple["Node", str, int]]:
        """Yield the node and its descendants, each with its tree-drawing prefix and level."""
        yield self, stem, level
        for number, each in enumerate(self.below, 1):
            yield from each.lines(_stem(stem, last=number == len(self.below)), level + 1)


def session_forest(rows: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Return the sessions as trees, the latest first: the current branch on top, other branches and agents below it.

    Args:
        rows: The rows of ``sessions``; agents come after their parents.
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
    """Set the cost of a node to the sum with its agents, without other branches; sort its children by time."""
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
"""Rank and face of each state; sessions that wait for a human sort first."""


def _session_row(node: Node, stem: str, level: int) -> Row:
    row, (used, usd, unpriced) = node.row, node.spent
    what = "agent" if row["agent"] else "branch" if level else "session"
    name = title_of(row) if what != "branch" else row["branch_name"]
    archived = row["archived_at"] is not None
    return Row(
        item={
            **row,
            "what": what,
            "name": name,
            "shown_id": "" if what == "branch" else row["session_id"],
            "stem": stem,
            "archived": archived,
            "tokens": used,
            "usd": usd,
            "unpriced": unpriced,
        },
        id=row["branch"],
        label=name if what != "branch" else f"branch {name}",
        facts={
            "branch": row["branch"],
            "what": what,
            "undo": archived,
            "running": row["state"] in ("busy", "retrying"),
        },
        visit=session_place(row["branch"], title_of(row) if row["title"] else ""),
        level=level,
    )


def _session_cell(row: Mapping[str, Any]) -> CellReply:
    faces: Mapping[str, Face] = {"agent": "agent", "session": "title"}
    other = row["what"] == "session" and row["branch_name"] != paths.MAIN_BRANCH
    text = f"{row['stem']}{row['name']}{'  ' + row['branch_name'] if other else ''}"
    return cell(text, "dim" if row["archived"] else faces.get(row["what"], ""), row["name"].lower())


def _state_cell(row: Mapping[str, Any]) -> CellReply:
    rank, face = _STATES.get(row["state"], (9, "dim"))
    return cell("archived" if row["archived"] and rank == 9 else row["state"], face, rank)


def _price_cell(row: Mapping[str, Any]) -> CellReply:
    price = cost(row["usd"], unpriced=row["unpriced"]) if row["tokens"] else ""
    return cell(price, "" if row["usd"] or row["unpriced"] else "dim", row["usd"])


def _found_in(hits: Sequence[Mapping[str, Any]], query: str) -> Iterator[Row]:
    """Yield a row that names the branch, then the rows of its hits."""
    first = hits[0]
    shown = [hit for hit in hits if hit["kind"] != "title"] or hits  # show the title only if nothing else matches
    title, branch = title_of(first), first["branch_name"]
    where = "agent" if first["agent"] else "" if branch in (None, "main") else branch
    about = "  ".join(filter(None, (where, local_time(first["created_at"])["text"])))
    yield Row(
        item=(cell(title, "title"), cell(about, "dim")),
        id=first["branch"],
        label=title,
        visit=cast(MessagePlace, {**shown[0], "kind": "message", "query": query}),
    )
    for hit in shown:
        kind, copies = str(hit["kind"] or ""), hit["copies"] or 0
        who = kind.capitalize() if kind in ("tool", "reasoning", "title") else ""
        also = f"  (also in {quantity(copies, 'branch', 'branches')})" if copies else ""
        yield Row(
            item=(
                cell(f"  {who or ('You' if hit['role'] == 'user' else 'Model')}", "dim"),
                cell(f"{hit['preview']}{also}", matches=hit["matches"]),
            ),
            id=f"{hit['branch']} {hit['message_id']} {hit['part_id']} {kind}",
            label=title,
            visit=cast(MessagePlace, {**hit, "kind": "message", "query": query}),
            level=1,
        )


def _below(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows by start time, each agent below the parent that waits for it."""
    keys = {row["branch"] for row in rows}
    below: dict[str | None, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["started_at"] or 0):
        parent = row["parent"] if row["agent"] and row["parent"] in keys else None
        below.setdefault(parent, []).append(row)

    def walk(parent: str | None) -> list[Mapping[str, Any]]:
        return [each for row in below.get(parent, ()) for each in (row, *walk(row["branch"]))]

    return walk(None)


def _runner_cell(row: Mapping[str, Any]) -> CellReply:
    preset = str(row.get("preset") or "")
    return cell(f"└ {preset or 'agent'}", "agent") if row["agent"] else cell(preset, "strong")


def _activity_of(row: Mapping[str, Any]) -> str:
    if row["state"] == "retrying":
        return f"try {row['attempt']} of {row['max_attempts']}: {row['message']}"
    if row["tools"]:
        return ", ".join(row["tools"])
    return {"WAIT": "waits for the model", "TYPE": "answers"}.get(str(row["phase"]), "")


# Named agents and their defaults.

AGENT_KEYS = {
    "name": "its name and that of its directory",
    "system_prompt": "its system prompt",
    "model": "its model",
    "permissions": "which actions need no approval",
}
"""The settings of a named agent."""

SETTINGS = {
    "default_model": "model of new agents",
    "default_permissions": "permissions of new agents",
    "idle_timeout": "when a conversation is saved and cleared",
}
"""The defaults of all named agents."""


def _keys_view(
    title: str,
    heading: str,
    keys: Mapping[str, str],
    values: Mapping[str, CellReply],
    facts: Callable[[str], Mapping[str, Fact]],
    actions: Sequence[ActionReply],
) -> View:
    """Return the list of settings: each of ``keys`` with its value and description."""
    return View(
        title=title,
        columns=(
            Column(heading, 20, lambda key: cell(key, "strong")),
            Column("Value", 44, values.__getitem__, most=80),
            Column("What it is", 0, lambda key: cell(keys[key], "dim")),
        ),
        rows=[Row(key, key, key, facts(key)) for key in keys],
        actions=actions,
        follows=("agents",),
        sorts=False,
    )


def _value_cell(value: object, default: str) -> CellReply:
    if value is None:
        return cell(default, "dim")
    return cell(" ".join(value.split()) if isinstance(value, str) else json.dumps(value))


def _named_row(row: Mapping[str, Any]) -> Row:
    place, branch = Path(row["dir"]), row["branch"]
    return Row(
        item=row,
        id=row["name"],
        label=row["name"],
        facts={
            "name": row["name"],
            "branch": branch,
            "config": view_place("agent", agent=row["name"]),
            "tasks": view_place("tasks", branch=branch) if branch else None,
            "contexts": view_place("contexts", **({"branch": branch} if branch else {"agent": row["name"]})),
            "workspace": file_place(place / "workspace"),
            "docs": file_place(place / "docs"),
        },
        visit=session_place(branch, row["name"]) if branch else None,
    )


def _status_cell(row: Mapping[str, Any]) -> CellReply:
    state = row["state"] if row["state"] not in (None, "idle") else row["status"]
    faces: Mapping[str, Face] = {"busy": "good", "waiting": "warn", "retrying": "warn", "error": "bad", "active": ""}
    return cell(state, faces.get(state, "dim"))


# Tasks, agents and branches.


def task_status(row: Mapping[str, Any]) -> tuple[str, Face]:
    """Return the status of a background command, and its face."""
    faces: Mapping[str, Face] = {"running": "good", "completed": "dim"}
    text = f"{row['status']} ({row['exit_code']})" if row["exit_code"] else row["status"]
    return text, faces.get(row["status"], "bad")


def _agent_state_cell(row: Mapping[str, Any]) -> CellReply:
    faces: Mapping[str, Face] = {"running": "good", "waiting": "warn", "error": "bad"}
    return cell(f"{row['state']} bg" if row["background"] else row["state"], faces.get(row["state"], "dim"))


def _with_stems(agents: Sequence[Mapping[str, Any]], above: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, agent in enumerate(agents, 1):
        stem = _stem(above, last=number == len(agents))
        yield stem, agent
        yield from _with_stems(agent["agents"], stem)


def _branch_cell(row: Mapping[str, Any]) -> CellReply:
    text = f"{row['stem']}{row['name']}"
    return cell(f"* {text}", "strong") if row["current"] else cell(f"  {text}")


# Decisions, usage, servers, files.


def _decider_cell(row: Mapping[str, Any]) -> CellReply:
    by, rule = row["by"], row["rule"]
    return cell(f"{rule} ({by})" if by and rule else by or rule or "")


SAVED_BY = {"manual_save": "by hand", "idle_timeout": "idle", "context_clear": "clear"}
"""Words for the reasons why a conversation was saved."""


def _spender_cell(line: Mapping[str, Any], by: By) -> CellReply:
    key = str(line["key"])
    if by == "day":
        return cell(f"{key} {datetime.fromisoformat(key):%a}")
    if by == "session":
        return cell(str(line.get("title") or line.get("session_id") or Path(key).name), "title")
    return cell(key)


def _tokens_of(*buckets: str) -> Value:
    return lambda line: tokens(sum(line["tokens"][bucket] for bucket in buckets))


def _server_state_cell(row: Mapping[str, Any]) -> CellReply:
    if not row["trusted"]:
        return cell("not trusted", "warn")
    if not row["enabled"]:
        return cell("disabled", "dim")
    return cell(row["state"], "bad" if row["state"] == "failed" else "")


CHANGES: Mapping[str, tuple[str, Face]] = {
    "restore": ("changed", ""),
    "create": ("deleted", "warn"),
    "delete": ("created", "good"),
    "conflict": ("conflict", "bad"),
    "unkept": ("not kept", "dim"),
}
"""Words and faces for the kinds of change that restoring would undo."""

_RESTORABLE = ("restore", "create", "delete")
_PATIENCE = 60  # seconds: many files are compared
