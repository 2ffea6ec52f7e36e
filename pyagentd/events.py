"""The events that clients receive: facts about a branch, sent after they were recorded.

An event is ``(kind, branch, seq, args)``. ``seq`` is the number of the last line of ``messages.jsonl`` the event
covers, or 0 for what is only true now (spinners, countdowns, progress of agents) and is therefore never replayed.
Where one row became several events only the last carries its number: with it, everything up to that row is shown.
Order is exact per branch; of ``status`` and ``context`` a client gets the last of those that one frame would hold.

===========  =========================================================================================
kind         args
===========  =========================================================================================
insert       text, role — put ``text`` at the run's marker; role is ``None`` (user text or separator),
             ``"response"``, ``"ignore"`` or ``("tool", call_id)``: the value of gptel's text property
edit         {revision, id, hunks: ((beg end text ((beg end role)…))…), own}: the text changed, and the document is
             at ``revision``: ``text`` replaces what is between two positions (from 1), with roles; the client that
             made the edit gets ``own`` in place of ``hunks`` (seq 0)
prompt       text, {position, insert}: a message sent by another client: ``insert`` goes to that position (from
             1), and its answer behind it
compacting   {position, behind}: the conversation is compacted on request, and the summary goes to that position
             (from 1), where the text ``behind`` ends (seq 0)
fired        {id, text, position}: the run of a message in the document begins; the run's marker is behind the
             message, at that position (from 1), which a replay leaves out (seq 0)
queue        {items: ({id, text, queued_at, steer, origin, …}…), gone: {id, why, run}}: the messages that wait, the
             next one first; ``gone``: one that left the queue, why "fired"|"steered"|"canceled" (seq 0)
run          {id, phase: "started"|"finished", reason, message}; reason: "done"|"error"|"aborted"|
             "restart" (the daemon's end cut it off)
status       {state: "idle"|"busy"|"retrying"|"waiting"|"error", queued, phase, tools, turn, run, message_id,
             started_at, attempt, max_attempts, retry_at, message, code}: see ``status.py``; ``turn`` is that of a
             mission (seq 0)
ask          {id, branch, agent, action, tool, detail, reason, preview, kind, choices, remember, covers,
             allows, project, commands, input, path, who, what, lines, keys}: a question to a human; ``who`` asks and
             ``what``, in words, ``lines`` and ``keys`` what it looks like; ``kind`` "tool" or "scope", ``remember``
             the patterns that "session" and "always" would remember, ``covers`` what each of them lets happen, in
             words, ``allows`` {session, always} the sentence that says what each of the two answers allows,
             ``project`` the root of the project for which "always" holds, ``commands`` all those in a command,
             ``input`` the arguments as JSON text; of kind "question" with ``questions`` [{question, header,
             options: [{label, description}], multi_select}]
answered     {id, decision, by}: the ask with that id is settled; the first answer wins. Both are told to clients that
             oversee all questions too
agent        {id, branch_dir, preset, description, background, call_id, state: "wait"|"tool"|"finished", count, calls}
             (seq 0)
context      {used, estimated, window, window_known, usable, model, tokens, last, cost_usd, known_usd, own_usd,
             agents, agents_total, compactions}: after every step, what the next request holds before what is new in
             it, of how many tokens; ``tokens`` of the session and ``last`` of the last request by bucket;
             ``cost_usd`` with the agents below, nil when a price is unknown (seq 0)
persisted    {revision, mtime}: ``session.md`` holds the document at that revision, and has that modification time
             in nanoseconds (seq 0)
unsaved      {cause}: ``session.md`` cannot be written, with the operating system's reason; the daemon tries again,
             and ``persisted`` follows when it worked (seq 0)
roles        {revision, spans: ((beg end role)…), marker}: the roles of the whole text, after they were recovered or
             turns were taken back; the next answer goes to ``marker``, if given; positions from 1 (seq 0)
reply-options {options: [{label, text}], several}: the replies that the finished answer offers to the user (seq 0)
todo         {items: [{content, status, active_form}]}: the agent's list of steps, as a whole (seq 0)
tool         {id, name, summary, state: "done"|"failed", denied: ""|"rule"|"user"|"nobody"}: a call of a tool has its
             result, and its text follows; ``summary`` says it in a line, ``denied`` who did not let it happen: see
             ``tools/spec.py`` (seq 0)
denied       {asker, agent, tool, action}: here or in an agent below (``asker`` is its branch) a call was denied
             because nobody could be asked (seq 0)
files        {paths, call_id, more}: changed files, absolute: by a tool call or, with ``call_id`` "", by restoring;
             ``more`` says that there are further ones (seq 0)
emacs        {id, what: "look"|"change"|"call"|"confirm"|"hook"|"stop", facts}: what this Emacs is asked about its
             buffers, tools and hooks, in JSON; ``emacs-answer`` answers it (branch "", seq 0)
notice       {text}: one line for the user (seq 0)
task         {id, agent, command, status, started_at, pid, exit_code, ended_at, output}: a command in the background
             began, printed something (``output`` is the end of it) or ended; see ``features/tasks.py`` (seq 0)
agents       (): named agents were made, removed or changed, or began or ended an answer; for clients that oversee
             them (branch "", seq 0)
sessions     {rows, gone}: branches and agents that are new or changed, with the keys of ``sessions``, and the state
             of their runs, with the keys of ``running`` (a key that a row lacks is unchanged); ``gone`` are the names
             of removed branches; for clients that watch all sessions (branch "", seq 0)
session      {title, archived_at}: facts of the session changed (seq 0)
deleted      {to}: the branch was moved to the trash; or its agent was renamed, and ``to`` is its file now (seq 0)
progress     {id, done, total}: how far a long operation is; only for the client that asked (branch "", seq 0)
log          {level, text, session_dir}: a record of the session log, for the client that caused it (seq 0)
resync       (): the client was too slow and lost events after ``seq``; it attaches anew from there
===========  =========================================================================================
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

Kind = Literal[
    "insert", "edit", "prompt", "compacting", "fired", "queue", "run", "status", "ask", "answered", "agent",
    "persisted", "unsaved", "roles", "todo", "files", "emacs", "notice", "session", "deleted",
    "progress", "log", "task", "context", "resync", "agents",
    "reply-options", "sessions", "tool", "denied",
]  # fmt: skip
InsertRole = Literal["response", "ignore"] | tuple[Literal["tool"], str] | None


class Event(NamedTuple):
    """One fact for clients; see the module's table for ``args`` of each kind."""

    kind: Kind
    branch: str
    seq: int
    args: tuple[Any, ...] = ()


class Sink(Protocol):
    """Where events of a client go; neither method blocks or raises."""

    def push(self, event: Event) -> None:
        """Queue ``event`` for delivery."""
        ...

    def reset(self, branch: str, seq: int) -> None:
        """Drop what is queued for ``branch``: the client learns everything up to ``seq`` in another way."""
        ...


# Text that every client shows, as a page or as a question: lines with faces and buttons.

Face = Literal[
    "", "strong", "title", "agent", "dim", "detail", "good", "warn", "bad", "code", "heading", "added", "removed"
]


class SessionPlace(TypedDict):
    """A conversation."""

    kind: Literal["session"]
    branch: str
    title: str | None  # of its session


class ReportPlace(TypedDict):
    """A page, as the operation ``report`` makes it."""

    kind: Literal["report"]
    name: str
    arguments: Mapping[str, Any]
    env: bool  # the client's environment is one of the arguments
    called: str  # a name for the client's window; "": the page's name


class ViewPlace(TypedDict):
    """A list, as the operation ``view`` makes it."""

    kind: Literal["view"]
    name: str
    arguments: Mapping[str, Any]


class FilePlace(TypedDict):
    """A file or directory."""

    kind: Literal["file"]
    file: str


Place = SessionPlace | ReportPlace | ViewPlace | FilePlace


class TextReply(TypedDict):
    """A piece of a line."""

    text: str
    face: str | None
    visit: Place | None  # what it opens
    svg: str | None  # a picture to show in its place
    more: int  # how many lines of it are left out


class LineReply(TypedDict):
    """A line of a page."""

    level: int  # above 0: a heading
    folded: bool  # shown folded at first
    id: str | None  # of a heading whose text changes
    parts: list[str | TextReply]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a line.

    Attributes:
        text: One line; with face "lisp", "diff", "preview" or "output" several, with "output" also escape sequences.
        face: How it looks.
        visit: The place that it opens as a button.
        svg: A picture that a graphical client can show instead of the text.
        more: The number of lines of a diff or preview that are left out.
    """

    text: str
    face: Face | Literal["lisp", "diff", "preview", "output"] = ""
    visit: Place | None = None
    svg: str = ""
    more: int = 0

    def to_wire(self) -> TextReply:
        """Return it as it travels."""
        return {
            "text": self.text,
            "face": self.face or None,
            "visit": self.visit,
            "svg": self.svg or None,
            "more": self.more,
        }


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a heading of ``level`` 1 or more, which folds what stands below it, or one of the body.

    Attributes:
        parts: Its pieces, in order.
        level: 0 in the body.
        folded: Whether a heading is folded at first.
        id: Identifies a heading whose text changes, so that folds and point stay.
    """

    parts: Sequence[Text | str]
    level: int = 0
    folded: bool = False
    id: str = ""

    def to_wire(self) -> LineReply:
        """Return it as it travels."""
        return {
            "level": self.level,
            "folded": self.folded,
            "id": self.id or None,
            "parts": [part if isinstance(part, str) else part.to_wire() for part in self.parts],
        }


def truncate(text: str, most: int) -> str:
    """Return ``text`` if it has at most ``most`` characters, else its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def one_line(text: str | None, most: int) -> str:
    """Return ``text`` on one line of at most ``most`` characters."""
    return truncate(" ".join((text or "").split()), most)
