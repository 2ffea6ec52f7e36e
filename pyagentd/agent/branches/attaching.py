"""What a client is told when it attaches: what its text lacks, whether it edits, what is wrong (DESIGN §3 rule 5).

A client names the text it has by its hash. If that is a known state of the document it is told the inserts that
came since; if not, it reads the file again. Who is to edit must have the document as it is: a text that somebody
edited since is read again as well.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Literal

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.branches.persist import Lacking, Roles, Version
from pyagentd.agent.branches.reading import Reading
from pyagentd.errors import StoreError
from pyagentd.events import Sink
from pyagentd.store.document.render import Insert
from pyagentd.wire.sexp import tagged

_ATTEMPTS = 5  # a run that is written once a second leaves time to read in between

Mode = Literal["edit", "view"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """Where a client is: what it lacks, and where that goes."""

    marker: int | None
    inserts: tuple[Insert, ...]
    version: Version | None = None  # its text, when that is a state of the file
    behind: bool = False  # it is attached already and lost events


async def attach(
    branch: LiveBranch, sink: Sink, *, sha256: str | None, seq: int | None, mode: Mode
) -> dict[str, Any] | None:
    """Let ``sink`` watch ``branch``, or also edit it; see ``Attaching``."""
    return await Attaching(branch, sink, sha256=sha256, seq=seq).perform(mode)


class Attaching:
    """One client on its way into one branch.

    Args:
        branch: What it attaches to.
        sink: Where its events go.
        sha256: Of the text it has, or None.
        seq: The last event that a client which is attached already saw, or None.
    """

    def __init__(self, branch: LiveBranch, sink: Sink, *, sha256: str | None, seq: int | None) -> None:
        self._branch = branch
        self._keeper = branch.keeper
        self._sink = sink
        self._sha256 = sha256 or ""
        self._seq = seq
        self._trouble = ""

    async def perform(self, mode: Mode) -> dict[str, Any] | None:
        """Let the client watch, or also edit; return what it is told, None when it must read the file again.

        Raises:
            NotFound: The client left meanwhile.
            StoreError: The file cannot be read.
        """
        branch, sink = self._branch, self._sink
        reading, lacking = await branch.while_attaching(sink, self._look())
        standing = self._standing(reading, lacking)
        if standing is None:
            return None
        # No await from here on: the answer and the events after it are in one order.
        branch.sinks[sink] = None
        sink.reset(branch.key, branch.recorder.last_seq)
        editor = mode == "edit" and self._may_edit(standing) and branch.lease.offer(sink, standing.version)
        roles = None
        if reading.spans is not None and reading.sha256 == self._sha256:
            roles = Roles(sha256=reading.sha256, spans=reading.spans)
            self._keeper.heal(roles.sha256, roles.spans)
        return {
            "branch": branch.key,
            "seq": branch.recorder.last_seq,
            "editor": editor,
            "free": not branch.refusal and self._keeper.editor is None,
            "marker": None if standing.marker is None else standing.marker + 1,
            "inserts": [(i.seq, i.text, tagged(i.role)) for i in standing.inserts],
            "status": branch.status,
            "roles": None if roles is None else roles.told(),
            "notes": self._notes(reading),
            "read_only": branch.refusal or None,
            "title": branch.conversation.session.get("title") or None,
            "written": reading.sha256 if self._keeper.version(reading.sha256) is not None else None,
        }

    async def _look(self) -> tuple[Reading, Lacking | None]:
        """Bring the document up to date and read it."""
        branch = self._branch
        try:
            branch.recorder.flush()
            await self._keeper.flush()
        except StoreError as error:  # what cannot be written can be shown
            self._trouble = str(error)
        run = branch.conversation.last_run
        settled = branch.run is None and (run is None or run.is_kept)
        for _ in range(_ATTEMPTS):
            writes = self._keeper.writes
            reading = await branch.reader.look(compare=settled)
            if self._keeper.writes == writes:
                break
            with contextlib.suppress(StoreError):  # whoever edits from now on must find the file as it was read
                await self._keeper.flush()
        # Its editor may be waiting for us: it cannot save where somebody else changed the file.
        unknown = not self._keeper.complete and self._keeper.version(reading.sha256) is None
        return reading, await self._keeper.survey() if unknown else None

    def _standing(self, reading: Reading, lacking: Lacking | None) -> _Standing | None:
        keeper, sha256 = self._keeper, self._sha256
        if self._seq is not None and self._sink in self._branch.sinks and keeper.knows_since(self._seq):
            # It fell behind; its own marker goes on.
            fallen = Version(sha256=sha256, seq=self._seq, marker=None)
            return _Standing(marker=None, inserts=tuple(keeper.missing(fallen)), behind=True)
        version = keeper.version(sha256)
        if version is not None and (keeper.is_latest(version) or sha256 == reading.sha256):
            return self._at(version)
        if sha256 != reading.sha256:
            return None
        if keeper.complete:
            return self._at(keeper.on_disk(sha256))
        if lacking is not None and lacking.sha256 == sha256:
            return _Standing(marker=lacking.marker, inserts=lacking.inserts)
        return None

    def _may_edit(self, standing: _Standing) -> bool:
        # Who fell behind knows nothing of what others edited meanwhile.
        return not self._branch.refusal and (not standing.behind or self._keeper.editor is self._sink)

    def _at(self, version: Version) -> _Standing:
        inserts = tuple(self._keeper.missing(version))
        return _Standing(marker=version.marker, inserts=inserts, version=version)

    def _notes(self, reading: Reading) -> list[str]:
        trouble = (self._trouble,) if self._trouble else ()
        return list(dict.fromkeys([*self._branch.notes, *reading.notes, *trouble]))
