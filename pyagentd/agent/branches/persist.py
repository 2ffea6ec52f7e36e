"""One write of ``session.md`` by the daemon: what is in the file, what it lacks, and where that goes.

Runs in a thread, on values that nobody else changes meanwhile. Text that was not read is never overwritten: a file
that changed on disk is read again and the insertion point is found anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyagentd.agent.branches.override import merged
from pyagentd.store.document.files import DocumentWriter
from pyagentd.store.document.reconcile import locate
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import PROMPT_PREFIX, Settings, Span
from pyagentd.wire.sexp import tagged

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One known state of the file's body.

    ``marker`` is the offset (code points from 0) where the run's next insert goes, or None when no run was active.
    Versions of the same ``edition`` differ by inserts alone: nobody edited in between.
    """

    sha256: str
    seq: int
    marker: int | None
    edition: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Recovered roles of the body with hash ``sha256``."""

    sha256: str
    spans: tuple[Span, ...]

    def told(self) -> list[tuple[int, int, object]]:
        """Return them as clients are told: first position (from 1), position behind the last, role."""
        return [
            (start + 1, end + 1, tagged(("tool", call_id) if kind == "tool" else kind))
            for start, end, kind, call_id in self.spans
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write led to."""

    writer: DocumentWriter
    version: Version
    foreign: bool  # the file held what nobody had reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """What a file, whose body has hash ``sha256``, lacks of a run: it goes to ``marker``."""

    sha256: str
    marker: int
    inserts: tuple[Insert, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """What is to be written.

    Attributes:
        path: The file.
        writer: Who wrote it last, or None when the file is to be read.
        waiting: The inserts that ``writer`` does not have yet.
        inserts: All inserts of the run.
        versions: States of the file that are known to hold some of them.
        prompt: The prompt's text.
        inserted_prompt: Whether the first insert is the prompt; else the user wrote it into the document.
        anchor: Where the first insert went, in the document as it was when the run began.
        settings: For the Local Variables; None keeps what is there.
        seen: What these said when that was decided.
        roles: Recovered ones, for the file if it still holds the text they are of.
        renew: Write even if the file lacks nothing.
    """

    path: Path
    writer: DocumentWriter | None
    waiting: Sequence[Insert]
    inserts: Sequence[Insert]
    versions: Sequence[Version]
    prompt: str
    inserted_prompt: bool
    anchor: int
    settings: Settings | None
    seen: Settings | None = None
    roles: Roles | None = None
    renew: bool = False

    def perform(self) -> Written:
        """Write what is missing.

        Raises:
            StoreError: The disk refused.
        """
        writer, missing, foreign = self.writer, self.waiting, False
        if writer is None or writer.changed_on_disk():
            writer, missing, foreign = self._reopened()
            if self.settings is not None:
                writer.set_settings(merged(writer.document.settings, self.seen, self.settings))
        writer.insert(*missing)
        if self.renew:
            writer.renew()
        sha256 = writer.persist()
        seq = self.inserts[-1].seq if self.inserts else 0
        return Written(writer=writer, version=Version(sha256=sha256, seq=seq, marker=writer.marker), foreign=foreign)

    def survey(self) -> Lacking:
        """Return what the file lacks, without writing.

        Raises:
            StoreError: The disk refused.
        """
        writer, missing, _ = self._reopened()
        return Lacking(sha256=writer.sha256, marker=writer.marker, inserts=tuple(missing))

    def _reopened(self) -> tuple[DocumentWriter, Sequence[Insert], bool]:
        """Read the file and find out which inserts it lacks, where they go, and whether its text is a surprise."""
        writer = DocumentWriter.load(self.path)
        sha256 = writer.sha256
        if self.roles is not None and self.roles.sha256 == sha256:
            writer.set_spans(self.roles.spans)
        for version in reversed(self.versions):
            if version.sha256 == sha256 and version.marker is not None:
                writer.marker = version.marker
                return writer, [insert for insert in self.inserts if insert.seq > version.seq], False
        writer.marker, missing = self._located(writer)
        foreign = all(version.sha256 != sha256 for version in self.versions)
        if foreign and self.inserts:
            log.info("%s changed outside; %d inserts of the run go on at %d", self.path, len(missing), writer.marker)
        return writer, missing, foreign

    def _located(self, writer: DocumentWriter) -> tuple[int, Sequence[Insert]]:
        body, inserts = writer.body, self.inserts
        inserted = ""
        if self.inserted_prompt:
            first, *inserts = inserts
            inserted = first.text
            if _start_of(inserted, self.prompt, body, self.anchor) is None:  # so nothing of the run is there
                return self._place_of_prompt(writer), self.inserts
        anchor = after_prompt(body, self.prompt, inserted=inserted, anchor=self.anchor)
        found = locate(body, writer.spans, anchor, inserts)
        written = max((version.seq for version in self.versions), default=0)
        if found[1] and (not self.versions or found[1][0].seq <= written):
            # It was, or may have been, there once: either it was removed, or what changed the text shifted the roles.
            by_roles = locate(body, writer.spans, anchor, inserts, written=written)
            by_text = locate(body, (), anchor, inserts, written=written)
            return max(by_roles, by_text, key=lambda place: place[0])
        return found

    def _place_of_prompt(self, writer: DocumentWriter) -> int:
        """Return where a prompt goes that the text lacks: where it went, if that is below the last answer still."""
        answered = max((span.end for span in writer.spans), default=0)
        stands = answered <= self.anchor and writer.body.endswith(PROMPT_PREFIX, 0, self.anchor)
        return self.anchor if stands and self.anchor <= len(writer.body) else len(writer.body)


def after_prompt(body: str, prompt: str, *, inserted: str, anchor: int) -> int:
    """Return where a run's prompt ends in a text that may have been edited since the run began.

    Args:
        body: The text.
        prompt: The prompt as the user wrote it.
        inserted: It as we inserted it, "" when it stood in the document already.
        anchor: Where the run's first insert went, in the document as it was.
    """
    if inserted:
        start = _start_of(inserted, prompt, body, anchor)
        return len(body) if start is None else start + len(inserted)
    if body.endswith(prompt, 0, anchor):
        return anchor
    found = body.rfind(prompt)
    return anchor if found < 0 else found + len(prompt)


def _start_of(inserted: str, prompt: str, body: str, anchor: int) -> int | None:
    """Return where the prompt that we inserted stands in such a text, or None."""
    if body.startswith(inserted, anchor):
        return anchor
    heading = PROMPT_PREFIX + prompt
    found = body.rfind(heading)
    start = found + len(heading) - len(inserted)
    return start if found >= 0 and body.startswith(inserted, start) else None
