"""The live document of a branch, and the one writer of its ``session.md``.

While a client is attached and while a run writes, only the daemon writes the file. ``LiveDocument`` is the text with
its roles and a revision number; model output and the edits of clients are applied to it in one order, and a client
that is behind gets the edits since its revision. ``DocumentSync`` loads and writes it. A change of the file by
another program becomes an edit: the difference to what the daemon had written, rebased over the edits since.
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from pyagentd.errors import Stale, StoreError
from pyagentd.events import Sink
from pyagentd.policy.action import canonical_tool, is_ours
from pyagentd.policy.presets import Preset
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import adopt
from pyagentd.store.document.files import (
    CachedDocument,
    DocumentChanged,
    Edit,
    Hunk,
    apply,
    apply_edit,
    clash,
    cut_spans,
    difference,
    document_cache,
    lacks_end,
    offset_after,
    spans_after,
    transform,
    write_document,
)
from pyagentd.store.document.reconcile import ModelView, locate, recognise
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import (
    PROMPT_PREFIX,
    Document,
    Settings,
    Span,
    Stamp,
    body_sha256,
    stamp_of,
)
from pyagentd.wire.sexp import to_symbols

log = logging.getLogger(__name__)

# Local Variables that the user changed: an override of the preset for that branch.
#
# The block at the end of a document holds the settings of gptel: model, backend, tools, temperature, maximum tokens.
# The values that the daemon wrote last are recorded; a value that differs was changed by the user and overrides the
# preset for the branch's runs until it is kept (written to ``preset.md``) or dropped. A missing value is no override.

FIELDS = ("model", "backend", "tools", "temperature", "max_tokens")

_GPTELS = re.compile(r"(?!mcp__)[^:*\s]+")  # neither an MCP server's tool nor a pattern

Override = Mapping[str, Any]
"""Values that the user set, by the names in ``FIELDS``."""


def settings_of(preset: Preset) -> Settings:
    """Return a preset's settings in gptel's terms; ``settings_in_document`` selects those that the document shows."""
    return Settings(
        model=preset.model or None,
        backend=preset.backend,
        tools=preset.tools,
        temperature=preset.temperature,
        max_tokens=preset.max_tokens,
    )


def settings_in_document(settings: Settings) -> Settings:
    """Return a preset's ``settings`` as the document's Local Variables hold them: only tools that gptel can have.

    Stock gptel warns about each tool that it does not know, and it cannot have ours. Without a tool left, the tools
    are None.
    """
    if settings.tools is None:
        return settings
    tools = tuple(name for name in settings.tools if not is_ours(name) and _GPTELS.fullmatch(name))
    return replace(settings, tools=tools or None)


def find_override(block: Settings, written: Settings | None, preset: Preset) -> Override:
    """Return the values that the user set in the document.

    Args:
        block: The document's Local Variables.
        written: Those that the daemon wrote last; None if it never did.
        preset: The branch's preset; a value equal to the preset's is no override.
    """
    own = settings_of(preset)
    known = (own, settings_in_document(own) if written is None else written)
    found = {}
    for name in FIELDS:
        said, told = getattr(block, name), [getattr(settings, name) for settings in known]
        is_nil = said == () and None in told  # gptel writes nil if none of its own tools is enabled
        if said is not None and said not in told and not is_nil:
            found[name] = said
    return found


def effective_settings(preset: Preset, override: Override) -> Settings:
    """Return the Local Variables for the document of a branch with this override."""
    holds = settings_of(preset_with_overrides(preset, override))
    return holds if "tools" in override else settings_in_document(holds)


def preset_with_overrides(preset: Preset, override: Override) -> Preset:
    """Return the preset with the override applied."""
    if not override:
        return preset
    values = dict(override)
    if "tools" in values:
        values["tools"] = tuple(canonical_tool(name) for name in values["tools"])
    return replace(preset, **values)


def merged_settings(found: Settings, seen: Settings | None, wanted: Settings) -> Settings:
    """Return ``wanted``, but keep the values of ``found`` that were changed in the file since ``seen``."""
    if seen is None:
        return wanted
    changed = {
        name: getattr(found, name)
        for name in FIELDS
        if getattr(found, name) is not None and getattr(found, name) != getattr(seen, name)
    }
    return replace(wanted, **changed)


def to_json(settings: Settings) -> dict[str, Any]:
    """Return the settings as JSON for the session's metadata."""
    values = {name: getattr(settings, name) for name in FIELDS}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def from_json(data: Mapping[str, Any] | None) -> Settings | None:
    """Return the settings from what ``to_json`` returned; None for None."""
    if data is None:
        return None
    values: dict[str, Any] = {name: data.get(name) for name in FIELDS}
    return Settings(**values | {"tools": None if values["tools"] is None else tuple(values["tools"])})


# The live text.

_REMEMBERED = 4096  # edits that a client may be behind
_REMEMBERED_CHARACTERS = 4 << 20  # ... and their total length
_KNOWN = 16  # versions of the file, by hash


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentVersion:
    """A version of the body, by its ``revision`` or, if it was read from the file, by its hash.

    ``marker`` is the offset (code points from 0) where the run's next insert goes, None when no run was active. With
    ``after``, it is the text after the edit with that id, which a client made at ``revision``.
    """

    sha256: str = ""
    seq: int = 0
    marker: int | None = None
    revision: int = 0
    after: str = ""


def roles_to_wire(spans: Sequence[Span]) -> list[tuple[int, int, object]]:
    """Return roles in wire format: first position (from 1), position after the last, role."""
    return [
        (start + 1, end + 1, to_symbols(("tool", call_id) if kind == "tool" else kind))
        for start, end, kind, call_id in spans
    ]


def edit_to_wire(edit: Sequence[Hunk]) -> list[tuple[int, int, str, object]]:
    """Return an edit in wire format: hunks of positions from 1, text, and the roles of the text."""
    return [(begin + 1, end + 1, text, roles_to_wire(spans)) for begin, end, text, spans in edit]


class _LoggedEdit(NamedTuple):
    """An edit from revision ``first`` to ``last``: an insert of n characters counts n revisions, another edit one."""

    first: int
    last: int
    edit: Edit
    id: str = ""  # given by its client
    made: Edit = ()  # as its client sent it


class LiveDocument:
    """The text of a branch, with its roles.

    Args:
        document: The current document.
        marker: Where a run continues.
        file: The file's content.

    Attributes:
        revision: Counts changes; larger than any revision that a client can have of an earlier copy of the document,
            loaded by an earlier daemon or by this one.
        marker: Where the next insert of the run goes.
        file: The file's content; the document is this with ``unsaved`` applied.
        heading: The prompt heading that stands for the content of an empty file, else "".
        unsaved: The edits that the file lacks.
        is_dirty: Whether the file lacks roles or settings.
        is_compared: Whether the roles were checked against the log.
        seen: The model's view above the prompt of the last turn, as long as nothing but the daemon changed the text
            up to the marker; else None.
        roles_at: The revision of the last change of roles alone.
    """

    _latest: ClassVar[int] = 0  # the largest revision of any document of this daemon

    def __init__(self, document: Document, marker: int | None, file: CachedDocument) -> None:
        # A document may be reloaded faster than the clock ticks: a client's old revision must not match the new copy.
        self.revision = max(time.time_ns() // _REVISION_NS, LiveDocument._latest + 1)
        self.marker = marker
        self.file = file
        self.heading = ""
        self.unsaved: list[tuple[Edit, bool]] = []  # each with whether it is a run's
        self.is_dirty = False
        self.is_compared = False
        self.seen: ModelView | None = None
        self.roles_at = 0
        self._document = document
        self._waiting: list[Insert] = []  # applied at ``_place`` when ``document`` is read
        self._place = marker or 0
        self._log: deque[_LoggedEdit] = deque()
        self._logged = 0
        self._oldest = self.revision
        self._known: dict[str, int] = {}
        self.know(file.formatted.sha256, self.revision)

    @property
    def document(self) -> Document:
        """The text and its roles."""
        if self._waiting:
            self._document, _ = apply(self._document, self._place, *self._waiting)
            self._waiting = []
        return self._document

    def know(self, sha256: str, revision: int) -> None:
        """Note the hash that the text had at a revision."""
        self._known.pop(sha256, None)
        self._known[sha256] = revision
        while len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]

    def at(self, version: DocumentVersion) -> int:
        """Return the revision of a version of the text.

        Raises:
            Stale: It is too old, or unknown.
        """
        revision = version.revision or self._known.get(version.sha256, -1)
        if not self._oldest <= revision <= self.revision:
            raise Stale("The document changed too much since", hint="Attach the session again")
        return revision

    def since(self, revision: int) -> list[Edit]:
        """Return the edits after a revision that ``at`` accepted."""
        return [edit for _, edit in self.named_since(revision)]

    def named_since(self, revision: int) -> list[tuple[str, Edit]]:
        """Return the edits after a revision, with the ids that their clients gave them."""
        found: list[tuple[str, Edit]] = []
        for first, last, edit, id, _ in reversed(self._log):
            if last <= revision:
                break
            if first < revision:  # the revision includes the beginning of this insert
                ((begin, _, text, spans),) = edit
                seen = revision - first
                place, rest = begin + seen, text[seen:]
                edit = (Hunk(place, place, rest, cut_spans(spans, seen, len(text))),)
            found.append((id, edit))
        return found[::-1]

    def later(self, version: DocumentVersion) -> list[Edit]:
        """Return the edits since a version, transformed to apply to the text that its client had then.

        Raises:
            Stale: The version is too old, or unknown.
        """
        if version.revision == self.revision and not version.after:  # the usual case
            return []
        found: list[Edit] = []
        mine: Edit = ()
        later, own = self.named_since(self.at(version)), version.after
        if own:
            if own not in [id for id, _ in later]:
                raise Stale("An edit did not come in", hint="Attach the session again")
            mine = next(each.made for each in reversed(self._log) if each.id == own)
        for id, edit in later:
            if own and id == own:
                own = ""
                continue
            found.append(transform(edit, mine, first=True) if own else edit)
            mine = transform(mine, edit, first=False) if own else ()
        return found

    def place(self, version: DocumentVersion) -> int:
        """Return where the marker of a version is now; raises like ``later``."""
        offset = version.marker or 0
        for edit in self.later(version):
            offset = offset_after(offset, edit, before=True)
        return offset

    def go_to(self, marker: int | None, *, seen: ModelView | None = None, revision: int = 0) -> None:
        """Set the offset of the next insert; ``seen`` is the model's view above the prompt at ``revision``."""
        self._document, self.marker, self._place = self.document, marker, marker or 0
        is_known = seen is not None and max(self._oldest, self.roles_at) <= revision
        later = self.since(revision) if is_known and revision < self.revision else ()
        if later and any(hunk.begin < self._place for edit in later for hunk in edit):
            is_known = False  # the text above was edited since
        self.seen = seen if is_known else None

    def insert(self, insert: Insert) -> None:
        """Insert text of a run at the marker, and move the marker after it."""
        if self.marker is None:
            self.go_to(len(self.document.body))
        marker = self.marker or 0
        if not self._waiting:
            self._place = marker
        self._waiting.append(insert)
        length = len(insert.text)
        match insert.role:
            case None:
                roles: tuple[Span, ...] = ()
            case (_, call_id):
                roles = (Span(0, length, "tool", call_id),)
            case role:
                roles = (Span(0, length, role),)
        self._record((Hunk(marker, marker, insert.text, roles),), length, is_runs=True)
        self.marker = marker + length

    def edit(self, edit: Edit, *, id: str = "", made: Edit = (), unsaved: bool = True) -> None:
        """Apply an edit; ``unsaved`` if the file does not have it yet."""
        if any(hunk.begin < (self.marker or 0) for hunk in edit):
            self.seen = None
        self._document = apply_edit(self.document, edit)
        self._record(edit, 1, unsaved=unsaved, id=id, made=made)
        if self.marker is not None:
            self.marker = offset_after(self.marker, edit, before=True)

    def open_prompt(self) -> None:
        """Put the heading of a prompt into an empty text; an empty file counts as if it held the heading."""
        is_files = not (self.unsaved or self.file.document.body)
        self.edit((Hunk(0, 0, PROMPT_PREFIX),), unsaved=not is_files)
        self.heading = PROMPT_PREFIX if is_files else ""
        self.know(_OPENED, self.revision)

    def set_spans(self, spans: tuple[Span, ...]) -> None:
        """Replace the roles."""
        self._document = replace(self.document, spans=spans, stale=False)
        self._record((), 1, unsaved=False)
        self.roles_at, self.is_dirty, self.seen = self.revision, True, None

    def set_settings(self, settings: Settings) -> None:
        """Replace the known Local Variables; unknown ones stay."""
        before = self.document.settings
        made = replace(settings, other=before.other)
        if made != before:
            self._document, self.is_dirty = replace(self._document, settings=made), True

    def take_in(self, found: CachedDocument) -> Edit:
        """Accept the file that another program wrote; return its edit, rebased over the unsaved edits."""
        doc = found.document
        if doc.body and doc.body == self.document.body:  # an editor saved edits that it had sent before
            self.file, self.unsaved, self.heading = found, [], ""
            return ()
        edit = difference(
            self.file.document.body or self.heading, doc if doc.body else replace(doc, body=self.heading)
        )
        unsaved = []
        # At the same place, a run's text goes first and drafts stay below; a prompt with a heading below is no draft.
        closed = self._document.body.endswith(f"\n{PROMPT_PREFIX}")
        for ours, is_runs in self.unsaved:
            first = is_runs or closed
            unsaved.append((transform(ours, edit, first=first), is_runs))
            edit = transform(edit, ours, first=not first)
        self.file, self.unsaved = found, unsaved
        if doc.body:
            self.heading = ""
        return edit

    def _record(
        self, edit: Edit, count: int, *, unsaved: bool = True, id: str = "", made: Edit = (), is_runs: bool = False
    ) -> None:
        self._log.append(_LoggedEdit(self.revision, self.revision + count, edit, id, made))
        self.revision += count
        LiveDocument._latest = max(LiveDocument._latest, self.revision)
        for hunk in edit:
            self._logged += len(hunk.text)
        if unsaved:
            self.unsaved.append((edit, is_runs))
        while len(self._log) > _REMEMBERED or (self._logged > _REMEMBERED_CHARACTERS and len(self._log) > 1):
            _, self._oldest, oldest, _, _ = self._log.popleft()
            self._logged -= sum(len(hunk.text) for hunk in oldest)


# Finding a run's text in a document that was just read from the file: after a restart, or because the document was
# dropped from memory while many are written at once.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunText:
    """The text that a run inserted into the document.

    Attributes:
        prompt: The text right above the run's text: the prompt, or a hidden answer to it, see ``turns.Prompt``.
        asked: The prompt of a run that an earlier daemon began.
        inserted_prompt: Whether the first insert is the prompt; else the user wrote it into the document.
        anchor: Where the first insert went, in the document at the start of the run.
        inserts: All inserts of the run.
        versions: Versions of the file that are known to hold some of the inserts.
    """

    prompt: str = ""
    asked: str = ""
    inserted_prompt: bool = False
    anchor: int = 0
    inserts: Sequence[Insert] = ()
    versions: Sequence[DocumentVersion] = ()

    def prompt_end(self, body: str) -> int:
        """Return where the prompt ends in a text that may have been edited since the run began."""
        prompt, anchor = self.prompt, self.anchor
        if self.inserted_prompt and self.inserts:
            start = self._prompt_start(body)
            return len(body) if start is None else start + len(self.inserts[0].text)
        if body.endswith(prompt, 0, anchor):
            return anchor
        found = body.rfind(prompt)
        return anchor if found < 0 else found + len(prompt)

    def _prompt_start(self, body: str) -> int | None:
        """Return where the inserted prompt begins in such a text, or None."""
        inserted = self.inserts[0].text
        if body.startswith(inserted, self.anchor):
            return self.anchor
        heading = PROMPT_PREFIX + self.prompt
        found = body.rfind(heading)
        start = found + len(heading) - len(inserted)
        return start if found >= 0 and body.startswith(inserted, start) else None

    def missing_inserts(self, doc: Document, sha256: str) -> tuple[int, Sequence[Insert]]:
        """Return where the run continues in a document, and the inserts that the document lacks."""
        for version in reversed(self.versions):
            if version.sha256 == sha256 and version.marker is not None:
                return version.marker, [insert for insert in self.inserts if insert.seq > version.seq]
        place, missing = self._locate_inserts(doc)
        if self.inserts and all(version.sha256 != sha256 for version in self.versions):
            log.info(
                "the document was changed by another program: %d later inserts of a run go to position %d",
                len(missing),
                place,
            )
        return place, missing

    def _locate_inserts(self, doc: Document) -> tuple[int, Sequence[Insert]]:
        body, inserts = doc.body, self.inserts
        if self.inserted_prompt and inserts:  # else the disk refused its rows
            if self._prompt_start(body) is None:  # so nothing of the run is in the document
                # Insert the prompt at its old place, if that is still below the last answer.
                answered = max((span.end for span in doc.spans), default=0)
                stands = answered <= self.anchor <= len(body) and body.endswith(PROMPT_PREFIX, 0, self.anchor)
                return self.anchor if stands else len(body), inserts
            inserts = inserts[1:]
        anchor = self.prompt_end(body)
        found = locate(body, doc.spans, anchor, inserts)
        written = max((version.seq for version in self.versions), default=0)
        if found[1] and (not self.versions or found[1][0].seq <= written):
            # The missing text was, or may have been, in the file: it was removed, or the roles were shifted.
            by_roles = locate(body, doc.spans, anchor, inserts, written=written)
            by_text = locate(body, (), anchor, inserts, written=written)
            return max(by_roles, by_text, key=lambda place: place[0])
        return found


_OPENED = body_sha256(PROMPT_PREFIX)
_REVISION_NS = 10  # unit of the clock in which the first revision counts: text comes slower than 100 MB a second
PERSIST_EVERY_S = 1.0  # pause between writes of a document
PERSIST_PAUSE_S = 16.0  # longest pause while the disk refuses
PERSIST_S_PER_BYTE = 1 / 800_000  # pause by size, since the file is written whole
PERSIST_LARGE_S = 5.0  # ... at most
PERSIST_TOGETHER_S = 0.05  # pause by number of documents with unwritten changes
_SETTLED_S = 0.05  # a file that was changed this long ago is hardly being written
_WRITING_S = 0.2  # how long to wait for the writer of a file that was just changed
_PIECE_S = 1.5  # ... of a file that lacks its end, since its last change
_PIECES_S = 4.0  # ... at most
_SMALL = 1 << 16  # bytes of a file that is read without a thread
_KEPT = 20  # documents with unwritten changes above which unwatched ones are dropped from memory
_WRITTEN_TOGETHER = 8  # documents that are written at the same time
_VERSIONS = 8  # of the file that are remembered


class _Write(NamedTuple):
    """The content of one write."""

    document: Document
    revision: int
    marker: int | None
    edits: int  # how many of ``unsaved``, the first ones
    has_heading: bool
    inserts: list[Insert]  # of the run
    seq: int  # of the last one


class DocumentSync:
    """Keeps one branch's document in memory and in its ``session.md``.

    Args:
        path: The file.
        written: Called after every write with the revision that the file holds and its stamp.
        changed: Called with every edit by a client or another program: the new revision, the edit, its client, and
            the id that the client gave it.
        is_watched: Returns whether any client is attached.
        refused: Called with the cause when the file could not be written, if the cause is new.
        replay: Returns the run's inserts from the log; None without a log. With it, the inserts are not kept while
            the document is not in memory.

    Attributes:
        inserts: The inserts of the current or last run that are in memory; all of them while the document is.
        settings: The Local Variables to write; None keeps those of the file.
        seen: The Local Variables when ``settings`` was decided; values that were changed since are kept.
        refusal: Why nothing may be written, or "".
    """

    def __init__(
        self,
        path: Path,
        *,
        written: Callable[[int, Stamp | None], None],
        changed: Callable[[int, Edit, Sink | None, str], None] = lambda *_: None,
        is_watched: Callable[[], bool] = lambda: False,
        refused: Callable[[str], None] = lambda _: None,
        replay: Callable[[], Iterable[Insert]] | None = None,
    ) -> None:
        self._path = path
        self._written = written
        self._changed_spans = changed
        self._is_watched = is_watched
        self._refused = refused
        self._replay = replay
        self.inserts: list[Insert] = []
        self.settings: Settings | None = None
        self.seen: Settings | None = None
        self.refusal = ""
        self.trouble = ""  # why the last write failed
        self.cause = ""  # ... in the operating system's words
        self._live: LiveDocument | None = None
        self._run = RunText()
        self._last = 0  # number of the run's last row with an insert
        self._forgotten = 0  # ... up to which inserts are not in memory, except for the prompt
        self._kept = 0  # ... up to which the file holds the inserts
        self._versions: tuple[DocumentVersion, ...] = ()  # the last ones
        self._busy = asyncio.Lock()  # held while the file is read or written
        self._writing: asyncio.Task[None] | None = None
        self._later: asyncio.Task[None] | None = None
        self._last_persist = 0.0
        self._failed_write: _Write | None = None  # the last one, which may have reached the file

    # -- inserts of a run --------------------------------------------------------------------------------------

    def begin(
        self, *, prompt: str, inserted_prompt: bool, anchor: int, seen: ModelView | None = None, revision: int = 0
    ) -> None:
        """Start a run whose first insert goes to ``anchor`` of the document.

        ``inserted_prompt`` says that the first insert is the prompt; else the document holds it already. ``seen`` is
        the model's view above it at ``revision``, if it holds all that the log shows.
        """
        self.inserts, self._last, self._forgotten, self._kept = [], 0, 0, 0
        file = self._versions[-1] if self._versions and self._live is None else None
        # The document may have been dropped from memory.
        self._versions = () if file is None else (replace(file, marker=anchor),)
        self._run = RunText(prompt=prompt, inserted_prompt=inserted_prompt, anchor=anchor)
        if self._live is not None:
            self._live.go_to(anchor, seen=seen, revision=revision)

    def add(self, insert: Insert) -> None:
        """Insert text of the run into the document."""
        self._last = insert.seq
        is_prompt = self._run.inserted_prompt and not self.inserts
        if self._replay is None or self._live is not None or self._busy.locked() or is_prompt:
            self.inserts.append(insert)
        else:
            self._forgotten = insert.seq
        if self._live is not None:
            self._live.insert(insert)
        self._schedule()

    @property
    def complete(self) -> bool:
        """Whether the file holds everything that the run inserted so far."""
        return self._kept >= self._last

    def recall(self, run: RunText) -> None:
        """Set the run of an earlier daemon, of which the file may hold any part; ``flush`` writes the rest."""
        self.inserts, self._run = list(run.inserts), run
        self._last = self.inserts[-1].seq if self.inserts else 0

    def _forget(self) -> None:
        """Drop the document and the run's inserts from memory; the file and the log have them."""
        self._live = None
        if self._replay is not None:
            self._forgotten = self._last
            del self.inserts[1 if self._run.inserted_prompt else 0 :]

    def _run_inserts(self, kept: Sequence[Insert], forgotten: int) -> tuple[Insert, ...]:
        """Return all inserts of a run; those up to row ``forgotten`` are read from the log; blocks."""
        if self._replay is None or not forgotten:
            return tuple(kept)
        prompt = 1 if self._run.inserted_prompt else 0
        replayed = (insert for insert in self._replay() if insert.seq <= forgotten)
        return (*kept[:prompt], *replayed, *kept[prompt:])

    # -- the text ----------------------------------------------------------------------------------------------

    @property
    def live(self) -> LiveDocument:
        """The document; ``look`` loads it.

        Raises:
            Stale: It is not in memory.
        """
        if self._live is None:
            raise Stale(f"{self._path} was not read yet", hint="Attach the session again")
        return self._live

    async def look(self) -> LiveDocument:
        """Return the document, with changes that another program made to its file.

        Raises:
            StoreError: The file cannot be read.
        """
        async with self._busy:
            return await self._look_live()

    def edit(self, sink: Sink | None, revision: int, edit: Edit, *, id: str = "", after: str = "") -> list[str]:
        """Apply a client's edit of the text at ``revision``; return its texts that conflict with other edits.

        With ``after``, the edit applies to the text after the client's edit with that id.

        Raises:
            Stale: Too much changed since.
        """
        live, met, made = self.live, [], edit
        for other in live.later(DocumentVersion(revision=revision, after=after)):
            met += clash(edit, other)
            edit = transform(edit, other, first=False)
        live.edit(edit, id=id, made=made)
        self._changed_spans(live.revision, edit, sink, id)
        self._schedule()
        return met

    def set_roles(self, version: DocumentVersion, spans: tuple[Span, ...]) -> bool:
        """Set the roles, given for ``version`` of the text; return whether any changed.

        Raises:
            Stale: The version is not known any more.
        """
        live = self.live
        for edit in live.since(live.at(version)):
            spans = spans_after(spans, edit)
        if spans == live.document.spans and not live.document.stale:
            return False
        live.set_spans(spans)
        self._schedule()
        return True

    @property
    def settings_now(self) -> Settings:
        """The Local Variables; empty before the document was read."""
        return Settings() if self._live is None else self._live.document.settings

    def set_settings(self, settings: Settings) -> None:
        """Set the Local Variables to those of a client."""
        self.live.set_settings(settings)
        self._schedule()

    def place(self, version: DocumentVersion) -> int:
        """Return where the marker of a version is now."""
        try:
            return self.live.place(version)
        except Stale:  # the version was read from a file that has not changed
            return version.marker or 0

    def open_prompt(self) -> None:
        """Put the heading of a prompt into an empty document, for the user to type there."""
        if not self.live.document.body and not self.inserts:
            self.live.open_prompt()
            self._schedule()

    # -- the file ----------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Accept changes of the file and write all edits to it, so that other programs can read it.

        Raises:
            StoreError: The disk refused.
        """
        await self.look()
        await self.flush()

    async def flush(self) -> None:
        """Write until the file holds all edits.

        Raises:
            StoreError: The disk refused.
        """
        while self._is_due or (self._writing is not None and not self._writing.done()):
            await self._write()

    async def write_prompt(self) -> None:
        """Write the file before a model sees the prompt, if it lacks more than the blank lines before an answer.

        Raises:
            StoreError: The disk refused.
        """
        lacks_text = self._live is None and not self.complete
        for edit, _ in self._live.unsaved if self._live is not None else ():
            for hunk in edit:
                lacks_text |= hunk.end > hunk.begin or bool(hunk.text.strip())
        if lacks_text:
            await self.flush()

    @property
    def is_current(self) -> bool:
        """Whether the document is in memory and equals the file."""
        live = self._live
        return live is not None and not self._is_due and stamp_of(self._path) == live.file.stamp

    def close(self) -> None:
        """Cancel the scheduled write."""
        if self._later is not None:
            self._later.cancel()

    @property
    def _is_due(self) -> bool:
        if self.refusal:
            return False
        live = self._live
        if self.settings not in (None, self.seen) and (live is None or live.document.body):
            return True  # settings are not written into an empty document
        return not self.complete or (live is not None and (bool(live.unsaved) or live.is_dirty))

    def set_block(self, settings: Settings, seen: Settings) -> None:
        """Set the Local Variables to ``settings``, except for values that differ from ``seen`` by now."""
        self.settings, self.seen = settings, seen
        self._schedule()

    def _schedule(self) -> None:
        if (self._later is None or self._later.done()) and self._is_due:
            self._later = asyncio.create_task(self._write_later())

    async def _write_later(self) -> None:
        _by_and_by.add(self)
        pause_s = PERSIST_EVERY_S
        try:
            while self._is_due:
                size = len(self._live.file.formatted.data) if self._live is not None else 0
                large_s = min(PERSIST_S_PER_BYTE * size, PERSIST_LARGE_S)  # later changes are written with it
                every_s = max(pause_s, PERSIST_TOGETHER_S * len(_by_and_by), large_s)
                before = self._last_persist
                await asyncio.sleep(max(large_s, before + every_s - time.monotonic()))
                if self._last_persist != before:  # it was written meanwhile: later changes wait as long
                    continue
                try:
                    await self._write()
                except StoreError as error:  # the disk may work again
                    if pause_s == PERSIST_EVERY_S:
                        log.error("%s", error)
                    pause_s = min(2 * pause_s, PERSIST_PAUSE_S)
                else:
                    pause_s = PERSIST_EVERY_S
        finally:
            _by_and_by.discard(self)
            self._later = None

    async def _write(self) -> None:
        """Write once, or wait for the write in progress; a cancelled caller does not cancel the write."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._persist())
            self._writing.add_done_callback(self._end_write)
        await asyncio.shield(self._writing)

    def _end_write(self, writing: asyncio.Task[None]) -> None:
        if self._writing is writing:
            self._writing = None
        if not writing.cancelled():
            writing.exception()  # its waiters may have been cancelled; the next write fails again

    async def _persist(self) -> None:
        async with self._busy, _room():
            self._last_persist = time.monotonic()
            while self._is_due:
                live = await self._look_live()
                if self.settings is not None and self.seen != self.settings:
                    live.set_settings(merged_settings(live.document.settings, self.seen, self.settings))
                    self.seen = self.settings
                if not self._is_due:
                    return
                inserts, seq = self.inserts, self.inserts[-1].seq if self.inserts else 0
                write = _Write(
                    live.document, live.revision, live.marker, len(live.unsaved), bool(live.heading), inserts, seq
                )
                dirty, live.is_dirty = live.is_dirty, False
                # The file and the document share at least this many characters at the beginning.
                begins = [0] if live.heading else [edit[0].begin for edit, _ in live.unsaved if edit]
                same = min(begins, default=len(live.file.document.body))
                try:
                    file = await asyncio.to_thread(write_document, self._path, write.document, live.file, same)
                except DocumentChanged:
                    live.is_dirty |= dirty
                    continue
                except BaseException as error:
                    live.is_dirty |= dirty
                    self._failed_write = write
                    self._note_refusal(error)
                    raise
                self.trouble = self.cause = ""
                self._note_written(live, write, file)
                return

    def _note_written(self, live: LiveDocument, write: _Write, file: CachedDocument) -> None:
        live.file, self._failed_write = file, None
        if write.has_heading:  # it was written with the text, unless it was removed
            live.heading = ""
        del live.unsaved[: write.edits]
        sha256 = file.formatted.sha256
        live.know(sha256, write.revision)
        if self.inserts is write.inserts:  # else another run began, with its own marker
            self._kept = write.seq
            version = DocumentVersion(sha256=sha256, seq=write.seq, marker=write.marker)
            self._versions = (*self._versions, version)[-_VERSIONS:]
            may_be_forgotten = len(_by_and_by) > _KEPT and not self._is_watched() and not live.is_dirty
            if may_be_forgotten and all(is_runs for _, is_runs in live.unsaved):
                self._forget()
        self._written(write.revision, file.stamp)

    def _note_refusal(self, error: BaseException) -> None:
        said = error.__cause__
        cause = (said.strerror or str(said)) if isinstance(said, OSError) else str(error)
        is_known, self.trouble, self.cause = cause == self.cause, str(error), cause
        if not is_known:
            self._refused(cause)

    async def _look_live(self) -> LiveDocument:
        live = self._live
        if live is None:
            self._failed_write = None
            return await self._load()
        if stamp_of(self._path) == live.file.stamp:
            return live
        found = await self._wait_for_writer(live.file)
        if found is live.file:
            return live
        failed = self._failed_write
        if failed is not None and failed.document.body == found.document.body:
            self._note_written(live, failed, found)  # the write failed after the file was replaced
            return live
        self._failed_write = None
        if found.stamp is None:  # it was removed, and is written again
            live.file, live.is_dirty = replace(live.file, stamp=None), True
            self._schedule()
            return live
        if found.formatted.data == live.file.formatted.data:
            live.file = found
            return live
        edit = live.take_in(found)
        spans, settings = found.document.spans, found.document.settings
        if settings != live.document.settings:
            live.set_settings(settings)
            live.is_dirty = False
        live.is_compared = False
        if edit:
            live.edit(edit, unsaved=False)
            live.is_dirty |= live.document.spans != spans
            self._changed_spans(live.revision, edit, None, "")
        elif not live.unsaved and spans != live.document.spans:
            live.set_spans(spans)
            live.is_dirty = False
        if not live.unsaved and not live.heading:
            live.know(found.formatted.sha256, live.revision)
        self._schedule()
        return live

    async def _wait_for_writer(self, known: CachedDocument) -> CachedDocument:
        """Return the file once no other program is writing it; ``known`` if it did not change.

        An editor empties or moves a file before it writes it, and a program may write it in pieces: the missing half
        would be taken for deleted. The wait is longer for a file without its end, but bounded.
        """
        began_s = time.monotonic()
        while (stamp := stamp_of(self._path)) != known.stamp:
            waited_s = time.monotonic() - began_s
            age_s = (time.time_ns() - stamp.mtime_ns) / 1e9 if stamp else 0.0
            if waited_s > _WRITING_S or not 0 <= age_s < _SETTLED_S:
                found = await asyncio.to_thread(document_cache.read, self._path)
                is_fresh = found.stamp is not None and 0 <= age_s < _PIECE_S and waited_s < _PIECES_S
                if not (is_fresh and lacks_end(found.formatted, known.formatted)):
                    return found
            await asyncio.sleep(_SETTLED_S)
        return known

    async def _load(self) -> LiveDocument:
        inserts, known, forgotten = self.inserts, tuple(self.inserts), self._forgotten
        begun = replace(self._run, versions=self._versions)

        def read() -> tuple[CachedDocument, RunText, int, Sequence[Insert]]:
            run = replace(begun, inserts=self._run_inserts(known, forgotten))
            found = document_cache.read(self._path)
            return (found, run, *run.missing_inserts(found.document, found.formatted.sha256))

        stamp = stamp_of(self._path)
        is_small = not forgotten and (stamp is None or stamp.size <= _SMALL)  # a thread takes longer to wake
        found, run, marker, missing = read() if is_small else await asyncio.to_thread(read)
        live = LiveDocument(found.document, marker if run.inserts else None, found)
        if self.inserts is inserts:
            self.inserts, self._forgotten = [*run.inserts, *inserts[len(known) :]], 0
            for insert in (*missing, *inserts[len(known) :]):
                live.insert(insert)
            if not missing and run.inserts:
                self._kept = max(self._kept, run.inserts[-1].seq)
        else:
            live.go_to(self._run.anchor)
            for insert in self.inserts:
                live.insert(insert)
        self._live = live
        return live


_by_and_by: WeakSet[DocumentSync] = WeakSet()  # documents with a scheduled write


def _room() -> asyncio.Semaphore:
    """Return the semaphore that limits how many documents are written, and loaded for that, at a time."""
    loop = asyncio.get_running_loop()
    if (room := _rooms.get(loop)) is None:
        room = _rooms[loop] = asyncio.Semaphore(_WRITTEN_TOGETHER)
    return room


_rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


# Comparing the document with the log: recovered roles, lost messages, notes. Aligning megabytes blocks, so it runs
# in a thread, and only after the document was opened or another program changed it.


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentReading:
    """The result of comparing a document with the log.

    Attributes:
        spans: The recovered roles; None when the document's own were right.
        facts: Rows for text of the document that the log lacks.
        notes: Problems found, one line each, for people.
    """

    spans: tuple[Span, ...] | None = None
    facts: tuple[adopt.Fact, ...] = ()
    notes: tuple[str, ...] = ()


def compare(doc: Document, conversation: Conversation, *, session_id: str, now_ms: int) -> DocumentReading:
    """Compare a document with the log: return recovered roles and rows that the log lacks.

    Args:
        doc: The document.
        conversation: The recorded messages.
        session_id: The session of new rows.
        now_ms: The time of new rows, in epoch milliseconds.
    """
    as_found = DocumentReading(notes=doc.damage)
    answered = any(message.role == "assistant" for message in conversation.messages.values())
    if not answered and not doc.spans:
        return as_found
    alignment = recognise(doc, conversation)
    notes = list(doc.damage)
    if alignment.lost is not None:
        notes += [note for note in alignment.align().notes if note not in notes]
    if all(piece.message or piece.found.key[0] not in ("response", "tool") for piece in alignment.pieces):
        return replace(as_found, spans=_changed_spans(doc, alignment.document), notes=tuple(notes))
    adopted = adopt.adopt(alignment, conversation, session_id=session_id, now_ms=now_ms)
    return replace(
        as_found, spans=_changed_spans(doc, adopted.document), facts=adopted.facts, notes=(*notes, *adopted.notes)
    )


def _changed_spans(before: Document, after: Document) -> tuple[Span, ...] | None:
    return None if after.spans == before.spans and not before.stale else after.spans
