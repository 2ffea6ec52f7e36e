"""Creates a branch of a session on disk, completely or not at all.

A branch gets the document and the log up to a prompt of its parent, the configuration byte for byte, and copies of
the parent's agents and files. ``session.md`` is written last, because a directory without it is not a branch, and the
link ``current`` is moved after that.
"""

import logging
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any

from pyagentd import regularfile
from pyagentd.clock import Clock, epoch_ms, iso8601, new_id, stamp
from pyagentd.errors import BadRequest, Busy, NotFound, StoreError
from pyagentd.log import of_session
from pyagentd.reader import with_texts
from pyagentd.store import atomic, metadata, paths
from pyagentd.store.conversation import COMPACTION, Conversation, Message, Part, RunState
from pyagentd.store.document import hidden, text
from pyagentd.store.document.reconcile import Piece, recognise
from pyagentd.store.document.text import BLANK, Document, regions
from pyagentd.store.journal import Row, read_rows, session_row, write_rows
from pyagentd.store.paths import BranchRef
from pyagentd.store.sessions import build_directory

# The points where a branch can begin, and the part of document and log before such a point.
#
# Pure. A branch begins at a prompt of the user, before it or right behind it. What the document
# keeps is decided by position, what the log keeps by message: one that stands in the document goes with the text,
# one that does not (removed by the user, empty) goes with its prompt, or with its time.

_NEVER = 1 << 62  # a row's number that comes after all others

Fact = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPoint:
    """A prompt at which a branch can begin.

    Attributes:
        number: Its number among the prompts, from 1.
        message_id: The recorded message, or None if it was never sent.
        start: The offset (code points from 0) of its beginning, with its heading ``###`` if it has one.
        end: The offset behind its last character that is not blank.
        text: The prompt without heading.
        reach: The range of offsets that mean this prompt, including the blanks around it.
    """

    number: int
    message_id: str | None
    start: int
    end: int
    text: str
    reach: tuple[int, int]

    def cut(self, *, include: bool) -> int:
        """Return the offset up to which a branch keeps the document."""
        return self.end if include else self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A document with its branch points; lost roles of ``document`` are recovered."""

    document: Document
    rows: Sequence[Row]
    conversation: Conversation
    pieces: Sequence[Piece]
    points: Sequence[BranchPoint]


def outline(document: Document, rows: Sequence[Row]) -> Outline:
    """Return the branch points of ``document``; ``rows`` are its log as returned by ``read_rows``."""
    conversation = Conversation(rows)
    alignment = recognise(document, conversation)
    document, pieces = alignment.document, alignment.pieces
    points = tuple(_points(document, pieces))
    return Outline(document=document, rows=rows, conversation=conversation, pieces=pieces, points=points)


def cut(document: Document, offset: int) -> Document:
    """Return the document up to ``offset`` (code points from 0), exactly.

    A span is kept if it begins before the offset, and clipped at the offset: bounds beyond the end of the text would
    be taken for shifted, and all roles with them. An empty result has no settings either, as in a new session.
    """
    if offset <= 0:
        return Document()
    spans = tuple(span._replace(end=min(span.end, offset)) for span in document.spans if span.start < offset)
    return replace(document, body=document.body[:offset], spans=spans)


class LogBefore:
    """The part of a log before a branch point; ``include``: with the prompt itself."""

    def __init__(self, outline: Outline, point: BranchPoint, *, include: bool) -> None:
        self._rows = outline.rows
        self._conversation = outline.conversation
        self._point = point.message_id
        self._pieces = outline.pieces
        self._cut = point.cut(include=include)
        self._placed = {piece.message.id for piece in self._pieces if piece.message}
        self._above = {piece.message.id for piece in self._pieces if piece.message and self._is_above(piece)}
        self._first: dict[str, int] = {}
        for row in self._rows:
            if row.type == "message":
                self._first.setdefault(row.data["id"], row.seq)
        answers = [id for id, message in self._conversation.messages.items() if message.role != "user"]
        places = sorted((self._first[id], id) for id in answers)
        self._answers: dict[str, list[str]] = {}  # by run, what was told while it went on
        for run_id, run in self._conversation.runs.items():
            end = bisect_left(places, (run.last_seq or _NEVER, ""))
            self._answers[run_id] = [id for _, id in places[bisect_left(places, (run.first_seq, "")) : end]]
        self._prompt_of = {
            answer: self._conversation.runs[run_id].data["message_id"]
            for run_id, answers in self._answers.items()
            for answer in answers
        }
        self._answered = {prompt for answer, prompt in self._prompt_of.items() if answer in self._above}
        self._time = self._time_of_point()

    def open_run(self) -> RunState | None:
        """Return a run before the point that has not ended, if there is one."""
        return next((run for run in self._kept_runs() if not run.is_finished), None)

    def facts(self) -> list[Fact]:
        """Return the rows of the new log, type and data each, such that opening it inserts no text."""
        kept: list[Fact] = [(row.type, _without_grants(row)) for row in self._rows if self._keeps_row(row)]
        hidden: list[Fact] = [("edit", {"part_id": part, "hidden": True}) for part in self._cut_off()]
        ends: list[Fact] = [("run", {**run.data, "state": "kept"}) for run in self._kept_runs() if not run.is_kept]
        return [*kept, *hidden, *ends]

    def keeps(self, message_id: str) -> bool:
        """Return whether a message is before the point."""
        if message_id in self._placed:
            return message_id in self._above
        prompt = self._prompt_of.get(message_id)
        if prompt is not None:
            return prompt != self._point and self.keeps(prompt)
        return message_id in self._answered or self._first.get(message_id, _NEVER) < self._time

    def keeps_run(self, run_id: str) -> bool:
        """Return whether a run is before the point: its prompt and, if it has one, its answer."""
        run = self._conversation.runs.get(run_id)
        if run is None or run.data["message_id"] == self._point or not self.keeps(run.data["message_id"]):
            return False
        answers = self._answers[run_id]
        return not answers or any(map(self.keeps, answers))

    def _is_above(self, piece: Piece) -> bool:
        return piece.found.start < self._cut

    def _time_of_point(self) -> int:
        """Return the row before which messages without a place in the document are before the point."""
        if self._point is not None:
            return self._first[self._point]
        below = self._placed - self._above  # the prompt was never sent; what stands behind it is later
        return min((self._first[message] for message in below), default=_NEVER)

    def _kept_runs(self) -> Iterator[RunState]:
        return (run for run_id, run in self._conversation.runs.items() if self.keeps_run(run_id))

    def _keeps_row(self, row: Row) -> bool:
        data = row.data
        match row.type:
            case "session":
                return True
            case "message":
                return self.keeps(data["id"])
            case "run":
                return self.keeps_run(data["id"])
            case "ask":
                return self.keeps_run(data.get("run_id", ""))
        if (part_id := data.get("part_id")) is not None:
            part = self._conversation.parts.get(part_id)
            return part is not None and self.keeps(part.row["message_id"])
        if (message_id := data.get("message_id")) is not None:
            return self.keeps(message_id)
        return row.seq < self._time  # of a later version

    def _cut_off(self) -> Iterator[str]:
        """Yield the parts of kept messages whose text was cut off completely."""
        above = {piece.part.id for piece in self._pieces if piece.part and self._is_above(piece)}
        for piece in self._pieces:
            if piece.part and piece.message and piece.message.id in self._above and piece.part.id not in above:
                above.add(piece.part.id)
                yield piece.part.id


def _without_grants(row: Row) -> Mapping[str, Any]:
    """Return the data of a row, without grants: those of a session do not hold in its branches."""
    if row.type == "session" and row.data.get("permissions_json"):
        return {**row.data, "permissions_json": []}
    return row.data


def _points(document: Document, pieces: Sequence[Piece]) -> Iterator[BranchPoint]:
    prompts = list(_prompts(pieces))
    homes = regions(document)
    for index, prompt in enumerate(prompts):
        first, last = prompt[0].found, prompt[-1].found
        home = homes[first.region]
        before = prompts[index - 1][-1].found.end if index else 0
        after = prompts[index + 1][0].found.start if index + 1 < len(prompts) else home.end
        start = first.start - len(document.body[max(before, home.start) : first.start].lstrip(BLANK))
        yield BranchPoint(
            number=index + 1,
            message_id=prompt[0].message.id if prompt[0].message else None,
            start=start if index or document.body[:start].strip(BLANK) else 0,
            end=last.end,
            text=document.body[first.start : last.end],
            reach=(max(before, home.start), min(after, home.end)),
        )


def _prompts(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield the user's pieces in groups: those of one message, or of one region that was never sent."""
    prompt: list[Piece] = []
    for piece in pieces:
        if prompt and (piece.found.region != prompt[-1].found.region or piece.message is not prompt[-1].message):
            yield prompt
            prompt = []
        if piece.found.key[0] == "user":
            prompt.append(piece)
    if prompt:
        yield prompt


# Copies of branches, agents and whole sessions, while others may be writing in the originals.
#
# A copied session has a new id, which replaces the old one in its metadata and logs. Messages and agents keep their
# ids; messages name their originals, so that their cost counts once, where it was spent.

_ATTEMPTS = 5
_STAMP = re.compile(r"-\d{8,14}(-\d+)?$")


def duplicate_session(source: BranchRef, *, root: Path, name: str | None = None, clock: Clock) -> BranchRef:
    """Copy the session of ``source``: all branches, agents and files, lineage, active branch.

    Without a ``name`` it is called "<title> copy".

    Returns:
        The copy of the active branch, or of ``source`` if none is active.

    Raises:
        StoreError: The disk refused; nothing is left behind.
    """
    now = clock.now()
    titles = [row.data.get("title") for row in _rows(source.branch_dir) if row.type == "session"]
    title = name or (f"{titles[-1]} copy" if titles and titles[-1] else "")
    wanted = paths.session_id(title or f"{_STAMP.sub('', source.session_id)} copy", stamp(now))
    with build_directory(root, wanted) as (draft, place):
        home = paths.branches_dir(draft)
        atomic.make_dirs(home)
        copied = [ref.branch_name for ref in metadata.branches(source.session_dir)]
        for branch in copied:
            copy_when_stable(paths.branch_dir(source.session_dir, branch), home / branch)
            _rename(home / branch, old=source.session_id, new=place.name, title=title, now=now)
        active = metadata.active(source.session_dir) or source.branch_name
        atomic.replace_link(paths.current_link(draft), f"{paths.BRANCHES_DIR}/{active}")
    _log.info("Created session directory: %s", place, extra=of_session(place))
    return paths.ref_of(paths.branch_dir(place, active))


def copy_when_stable(source: Path, target: Path) -> None:
    """Copy an agent or a branch; if its documents change meanwhile, again, so that document and log agree.

    Raises:
        StoreError: The disk refused.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        known = _states(source)
        atomic.copy_tree(source, target, last=paths.JOURNAL_FILE)
        if _states(source) == known or attempt == _ATTEMPTS:
            return
        atomic.discard(target)


def _states(directory: Path) -> list[tuple[Path, int, int]]:
    """Return the documents below ``directory``, each with inode and modification time."""
    found = []
    for file in sorted(directory.rglob(paths.SESSION_FILE)):
        try:
            status = file.stat()
        except OSError:
            continue
        found.append((file, status.st_ino, status.st_mtime_ns))
    return found


def _rename(branch_dir: Path, *, old: str, new: str, title: str, now: datetime) -> None:
    """Rewrite the ids of a copied branch, and of its agents, to session ``new``."""
    times = {"created": iso8601(now), "updated": iso8601(now)}
    metadata.set_scope_plan_values(branch_dir, {"session_id": new, **times})
    facts = [(row.type, _with_new_ids(row, old, new)) for row in _rows(branch_dir)]
    sessions = [data for type, data in facts if type == "session"]
    if sessions:
        at = epoch_ms(now)
        # Grants of a session do not hold in its copy.
        changed: dict[str, Any] = {"title": title, "archived_at": None, "permissions_json": []}
        facts.append(("session", {**sessions[-1], **changed, "created_at": at, "updated_at": at}))
    _write(branch_dir, facts)
    _adopt_all(branch_dir, old=old, new=new)


def _adopt_all(parent_dir: Path, *, old: str, new: str) -> None:
    for agent in metadata.agents(parent_dir):
        if paths.scope_plan_file(agent).exists():
            _adopt(agent, old=old, new=new)
            _adopt_all(agent, old=old, new=new)


def _adopt(agent_dir: Path, *, old: str, new: str) -> None:
    """Set the parent of an agent; agents below it keep theirs, which is an agent."""
    if (metadata.read_session_metadata(agent_dir) or {}).get("parent_session_id") == old:
        metadata.set_scope_plan_values(agent_dir, {"parent_session_id": new})
    rows = _rows(agent_dir)
    _write(agent_dir, [(row.type, _with_new_ids(row, old, new)) for row in rows])


def _with_new_ids(row: Row, old: str, new: str) -> Mapping[str, Any]:
    keys = ("id", "session_id", "parent_id") if row.type == "session" else ("session_id",)
    data = {key: new if key in keys and value == old else value for key, value in row.data.items()}
    known = data.get("metadata_json") or {}
    if row.type == "message" and isinstance(known, Mapping):
        data["metadata_json"] = {"copied_from": data.get("id"), **known}  # the first one, of a copy of a copy
    return data


def _rows(branch_dir: Path) -> list[Row]:
    return read_rows(paths.journal_file(branch_dir))


def _write(branch_dir: Path, facts: list[tuple[str, Mapping[str, Any]]]) -> None:
    """Replace a copied log."""
    file = paths.journal_file(branch_dir)
    if not facts:
        return
    atomic.write_bytes(file, b"")
    write_rows(file, facts)


DEFAULT_NAME = "branch"

_CONFIGURATION = (paths.SCOPE_PLAN_FILE, paths.PRESET_FILE)
_NAME_BYTES = 200  # with time and suffix below what a file system allows
_UNFIT = ("Cc", "Cs", "Zl", "Zp")  # NUL, escapes for terminals, halves of surrogate pairs, line ends

_log = logging.getLogger(__name__)


def read_outline(branch: BranchRef) -> Outline:
    """Return the branch points of the saved document of ``branch``.

    Raises:
        StoreError: The disk refused.
    """
    # The document is read first: its text is already in the log, which is written before it.
    saved = text.read(paths.session_file(branch.branch_dir))
    return outline(saved, read_rows(paths.journal_file(branch.branch_dir)))


def difference(old: BranchRef, new: BranchRef) -> str:
    """Return a unified diff of the saved conversations of ``old`` and ``new``, or a sentence if they are equal.

    Raises:
        StoreError: The disk refused.
    """
    before, after = (text.read(paths.session_file(each.branch_dir)).body.splitlines() for each in (old, new))
    diff = "\n".join(unified_diff(before, after, old.branch_name, new.branch_name, lineterm=""))
    return diff or f"{old.branch_name} and {new.branch_name} are identical"


def choose(found: Outline, *, message_id: str | None = None, offset: int | None = None) -> BranchPoint:
    """Return the prompt with this message, or at this offset, or else the last one.

    Raises:
        NotFound: There is no such prompt, or none at all.
    """
    if not found.points:
        raise NotFound("There is no prompt to branch at", hint="Write and send one first")
    if message_id is not None:
        chosen = [point for point in found.points if point.message_id == message_id]
    elif offset is not None:
        chosen = [point for point in found.points if point.reach[0] <= offset <= point.reach[1]]
        chosen.sort(key=lambda point: not point.start <= offset <= point.end)
    else:
        chosen = [found.points[-1]]
    if chosen:
        return chosen[0]
    if message_id is not None:
        what = "is no prompt of the user" if message_id in found.conversation.messages else "is not in this branch"
        raise NotFound(f"Message {message_id} {what}", hint="Only prompts that stand in the document can be chosen")
    raise NotFound(f"There is no prompt at position {(offset or 0) + 1}", hint="Put point into a prompt of yours")


def create_branch(
    parent: BranchRef,
    *,
    message_id: str | None = None,
    offset: int | None = None,
    include: bool = True,
    name: str = DEFAULT_NAME,
    missing_run: str | None = None,
    clock: Clock,
) -> BranchRef:
    """Make a branch of ``parent`` that begins at one of its prompts, and make it the active one.

    Args:
        parent: A branch of a session, as saved in its files.
        message_id: The prompt, by its recorded message.
        offset: The prompt, by an offset (code points from 0) inside it; without either the last prompt.
        include: Whether the branch keeps the prompt itself.
        name: The end of the branch's name ``<YYYYMMDDHHMMSS>-<name>``.
        missing_run: The id of a run whose text is not in the saved document yet.
        clock: For the name and the metadata.

    Raises:
        BadRequest: ``name`` cannot be part of a file name, or ``parent`` is an agent.
        NotFound: There is no such prompt, or the parent lacks ``scope-plan.yml`` or ``preset.md``.
        Busy: A run of the parent that would be copied has not ended, or is missing from the document.
        StoreError: The disk refused. As with all errors, nothing was made.
    """
    if parent.is_agent:
        raise BadRequest(f"{parent.session_id} is an agent, which has no branches", hint="Branch its session")
    now = clock.now()
    wanted = f"{stamp(now)}-{validate_name(name)}"
    configuration = _configuration(parent)
    found = read_outline(parent)
    point = choose(found, message_id=message_id, offset=offset)
    before = LogBefore(found, point, include=include)
    if before.open_run() is not None:
        raise Busy(
            f"{parent.name} is answering a prompt before that point", hint="Wait for the answer, or abort it first"
        )
    if missing_run is not None and before.keeps_run(missing_run):
        raise Busy(f"The editor of {parent.name} has not saved the last answer", hint="Save it there, then branch")
    end = point.cut(include=include)
    about = of_session(parent.session_dir)
    try:
        with build_directory(paths.branches_dir(parent.session_dir), wanted) as (draft, place):
            _log.info("Creating branch: %s from parent: %s", place.name, parent.branch_name, extra=about)
            _log.info("Created branch directory: %s", place, extra=about)
            _fill(draft, parent, configuration, before.facts())
            if agents := metadata.agents(parent.branch_dir):
                atomic.make_dirs(paths.agents_dir(draft))
            for agent in agents:
                copy_when_stable(agent, paths.agents_dir(draft) / agent.name)
                _log.debug("Copied agent directory: %s", agent.name, extra=about)
            _log.info("Copied %d agent directories to branch", len(agents), extra=about)
            metadata.write_branch_metadata(
                draft, parent_branch=parent.branch_name, created=iso8601(now), position=end + 1
            )
            kept = cut(found.document, end)
            text.write(paths.session_file(draft), kept)
            _log.info(
                "Copied truncated context: %d -> %d chars, bounds: %d types",
                len(found.document.body),
                end + 1,
                len({span.kind for span in kept.spans}),
                extra=about,
            )
        try:
            point_current(parent.session_dir, place.name)
        except BaseException:
            atomic.discard(place)
            raise
    except StoreError as error:
        _log.error("Failed to create branch %s: %s", wanted, error, extra=about)
        raise
    _log.info("Branch created successfully: %s", place.name, extra=about)
    return paths.ref_of(place)


def switch(branch: BranchRef) -> None:
    """Make ``branch`` the active one of its session.

    Raises:
        BadRequest: It is an agent.
        StoreError: The disk failed; the active branch is unchanged.
    """
    if branch.is_agent:
        raise BadRequest(f"{branch.session_id} is an agent, which has no branches", hint="Name a branch of a session")
    point_current(branch.session_dir, branch.branch_name)


def point_current(session_dir: Path, branch_name: str) -> None:
    """Point the link ``current`` at a branch, relatively.

    Raises:
        StoreError: The disk failed; the link is unchanged.
    """
    link = paths.current_link(session_dir)
    old = str(link.readlink()) if link.is_symlink() else None
    target = f"{paths.BRANCHES_DIR}/{branch_name}"
    try:
        atomic.replace_link(link, target)
    except StoreError:
        if old is not None and link.is_symlink() and str(link.readlink()) != old:  # moved, but not synced
            with suppress(StoreError):
                atomic.replace_link(link, old)
        raise
    _log.debug("Updated current symlink: %s", branch_name, extra=of_session(session_dir))


def validate_name(name: str) -> str:
    """Return ``name`` if the name of a branch may end in it.

    Raises:
        BadRequest: It cannot.
    """
    problem = _name_problem(name)
    if problem:
        raise BadRequest(f"{name[:40]!r} cannot name a branch: it {problem}", hint="Take a short plain name")
    return name


def _name_problem(name: str) -> str:
    if not name.strip():
        return "is empty"
    if name.startswith("."):
        return "begins with a dot"
    if "/" in name:
        return "has a slash"
    if any(unicodedata.category(char) in _UNFIT for char in name):
        return "has a character that cannot be printed"
    return "is too long" if len(name.encode()) > _NAME_BYTES else ""


def _configuration(parent: BranchRef) -> Mapping[str, bytes]:
    """Return the content of the files that a branch inherits unchanged."""
    content: dict[str, bytes] = {}
    for name in _CONFIGURATION:
        file = parent.branch_dir / name
        try:
            content[name] = regularfile.read_bytes(file)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"cannot read {file}: {error.strerror}") from error
    missing = [name for name in _CONFIGURATION if name not in content]
    if missing:
        listed = " and ".join(missing)
        _log.error("Cannot branch %s: missing %s", parent.branch_dir, listed, extra=of_session(parent.session_dir))
        raise NotFound(f"{parent.branch_dir} has no {listed}", hint="Copy it there from another branch, then go on")
    return content


def _fill(place: Path, parent: BranchRef, configuration: Mapping[str, bytes], facts: Sequence[Fact]) -> None:
    """Write everything but document and agents into the branch."""
    for name, content in configuration.items():
        atomic.write_bytes(place / name, content)
    write_rows(paths.journal_file(place), facts)
    files = paths.files_dir(parent.branch_dir)
    if files.is_dir() and not files.is_symlink():
        atomic.copy_tree(files, paths.files_dir(place))


# Forks: sessions made from the beginning of another one.
#
# A fork has every visible message up to the chosen one, with new ids, parts verbatim and the user's edits, and the
# configuration and files byte for byte. It has no agents, runs, questions or grants, which belong to the parent. Its
# session row names the parent and the message, so that each can be found from the other.

_OWN = ("settings", "noted")  # metadata of a session that is about its own document


def fork_session(
    source: BranchRef,
    conversation: Conversation,
    messages: Sequence[Message],
    *,
    root: Path,
    title: str | None,
    clock: Clock,
) -> BranchRef:
    """Make a session of the first visible ``messages`` of ``source``; without a ``title`` it has its parent's.

    Raises:
        NotFound: ``source`` lacks ``scope-plan.yml`` or ``preset.md``.
        StoreError: The disk refused; nothing is left behind.
    """
    configuration = _configuration(source)
    now, anchor = clock.now(), messages[-1].id
    own = conversation.session.get("title")
    called = title if title is not None else f"{own} (copy)" if own else ""
    wanted = paths.session_id(called or f"{_STAMP.sub('', source.session_id)} copy", stamp(now))
    with build_directory(root, wanted) as (draft, place):
        ref = paths.branch_dir(draft, paths.MAIN_BRANCH)
        session = _session(conversation, source, place.name, anchor, called, epoch_ms(now))
        facts = [("session", session), *_Copy(place.name, messages).facts()]
        atomic.make_dirs(ref)
        _fill(ref, source, configuration, facts)
        times = {"created": iso8601(now), "updated": iso8601(now)}
        metadata.set_scope_plan_values(ref, {"session_id": place.name, **times})
        atomic.replace_link(paths.current_link(draft), f"{paths.BRANCHES_DIR}/{paths.MAIN_BRANCH}")
        settings = text.read(paths.session_file(source.branch_dir)).settings
        copied = Conversation(Row(number, kind, dict(data)) for number, (kind, data) in enumerate(facts, 1))
        text.write(paths.session_file(ref), replace(hidden.rebuild(copied), settings=settings))
    _log.info("Forked session %s at %s: %s", source.session_id, anchor, place.name, extra=of_session(place))
    return paths.ref_of(place)


class _Copy:
    """The rows of copied messages, with new ids."""

    def __init__(self, session_id: str, messages: Sequence[Message]) -> None:
        self._session_id = session_id
        self._messages = messages
        self._ids = {message.id: new_id("msg") for message in messages}
        self._ids |= {part.id: new_id("prt") for message in messages for part in message.parts}

    def facts(self) -> Iterator[Fact]:
        for message in self._messages:
            yield "message", self._message(message)
            for part in message.parts:
                yield "part", self._part(part)
            yield from self._edits(message)

    def _message(self, message: Message) -> dict[str, Any]:
        known = {
            key: self._ids.get(value, value) if key == "after" else value for key, value in message.metadata.items()
        }
        known = {"copied_from": message.id, **known}  # the first one, of a copy of a copy
        own = {"id": self._ids[message.id], "session_id": self._session_id, "metadata_json": known}
        return {**message.row, **own}

    def _part(self, part: Part) -> dict[str, Any]:
        data = dict(part.data)
        if part.deltas:
            data["text"] = part.text
        if part.type == COMPACTION:  # where its tail begins, which calls it pruned
            data = with_texts(data, lambda text: self._ids.get(text, text))
        own = {"id": self._ids[part.id], "message_id": self._ids[part.row["message_id"]]}
        return {**part.row, **own, "session_id": self._session_id, "data_json": data}

    def _edits(self, message: Message) -> Iterator[Fact]:
        if message.role == "user" and message.is_edited:
            yield "edit", {"message_id": self._ids[message.id], "text": message.text}
        for part in message.parts if message.role != "user" else ():
            if part.hidden or part.edited is not None:
                text = {} if part.edited is None else {"text": part.edited}
                gone = {"hidden": True} if part.hidden else {}
                yield "edit", {"part_id": self._ids[part.id], **text, **gone}


def _session(
    conversation: Conversation, source: BranchRef, session_id: str, anchor: str, title: str, now_ms: int
) -> dict[str, Any]:
    known = conversation.session
    about = {key: value for key, value in known.get("metadata_json", {}).items() if key not in _OWN}
    return session_row(
        id=session_id,
        now_ms=now_ms,
        agent=known.get("agent", ""),
        workspace_root=known.get("workspace_root"),
        **({"model_json": known["model_json"]} if "model_json" in known else {}),
        parent_id=source.session_id,
        parent_branch=source.branch_name,
        parent_message_id=anchor,
        title=title,
        metadata_json=about,
    )
