"""One write of ``session.md`` by the daemon: what is in the file, what it lacks, and where that goes.

Runs in a thread, on values that nobody else changes meanwhile. Text that was not read is never overwritten: a file
that changed on disk is read again and the insertion point is found anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyagentd.errors import StoreError
from pyagentd.store import document
from pyagentd.store.document import PROMPT_PREFIX
from pyagentd.store.local_variables import Settings
from pyagentd.store.locate import locate
from pyagentd.store.render import Insert
from pyagentd.store.writer import DocumentWriter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One known state of the file's body.

    ``marker`` is the offset (code points from 0) where the run's next insert goes, or None when no run was active.
    """

    sha256: str
    seq: int
    marker: int | None


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

    def perform(self) -> tuple[DocumentWriter, Version, float]:
        """Write, and return the writer, the state of the file, and its modification time.

        Raises:
            StoreError: The disk refused.
        """
        writer, missing = self.writer, self.waiting
        if writer is None or writer.changed_on_disk():
            writer, missing = self._reopened()
            if self.settings is not None:
                writer.set_settings(self.settings)
        for insert in missing:
            writer.insert(insert)
        sha256 = writer.persist()
        seq = self.inserts[-1].seq if self.inserts else 0
        return writer, Version(sha256=sha256, seq=seq, marker=writer.marker), _mtime(self.path)

    def _reopened(self) -> tuple[DocumentWriter, Sequence[Insert]]:
        """Read the file and find out which inserts it lacks and where they go."""
        writer = DocumentWriter.load(self.path)
        sha256 = document.body_sha256(writer.body)
        for version in reversed(self.versions):
            if version.sha256 == sha256 and version.marker is not None:
                writer.marker = version.marker
                return writer, [insert for insert in self.inserts if insert.seq > version.seq]
        writer.marker, missing = self._located(writer)
        log.info("%s changed outside; %d inserts of the run go on at %d", self.path, len(missing), writer.marker)
        return writer, missing

    def _located(self, writer: DocumentWriter) -> tuple[int, Sequence[Insert]]:
        body, inserts = writer.body, self.inserts
        if not self.inserted_prompt:
            anchor = self._after_prompt(body)
        else:
            prompt, *inserts = inserts
            start = self._start_of(prompt.text, body)
            if start is None:  # the prompt is not there, so nothing of the run is
                return len(body), self.inserts
            anchor = start + len(prompt.text)
        position, missing = locate(body, writer.spans, anchor, inserts)
        written = max((version.seq for version in self.versions), default=0)
        if missing and missing[0].seq <= written:
            # It was there once: either it was removed, or what changed the text shifted the roles.
            by_text = locate(body, (), anchor, inserts)
            if _length(by_text[1]) < _length(missing):
                return by_text
        return position, missing

    def _after_prompt(self, body: str) -> int:
        """Return where the user's prompt ends in a text that may have been edited since the run began."""
        if body.endswith(self.prompt, 0, self.anchor):
            return self.anchor
        found = body.rfind(self.prompt)
        return self.anchor if found < 0 else found + len(self.prompt)

    def _start_of(self, inserted: str, body: str) -> int | None:
        """Return where the prompt that we inserted stands in such a text, or None."""
        if body.startswith(inserted, self.anchor):
            return self.anchor
        heading = PROMPT_PREFIX + self.prompt
        found = body.rfind(heading)
        start = found + len(heading) - len(inserted)
        return start if found >= 0 and body.startswith(inserted, start) else None


def _length(inserts: Sequence[Insert]) -> int:
    return sum(len(insert.text) for insert in inserts)


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
