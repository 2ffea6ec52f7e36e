"""Facts of one branch on their way to disk and to whoever watches: recorded first, then shown.

Everything goes through ``record`` (one line of ``messages.jsonl``, written before the call returns) or ``delta``
(text of a part, merged until the next beat and written with one ``write``). What a row adds to the document is
decided by the store's renderer and handed to ``show`` together with the row's number, so a replay of the file shows
what was shown live.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyagentd.agent.branches.syncing import syncing
from pyagentd.clock import Clock, Pulse, epoch_ms
from pyagentd.errors import StoreError
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.render import Insert, Renderer
from pyagentd.store.journal import Journal, Row


class Recorder:
    """The one writer of a branch's ``messages.jsonl``."""

    def __init__(
        self,
        *,
        journal: Journal,
        conversation: Conversation,
        renderer: Renderer,
        pulse: Pulse,
        clock: Clock,
        show: Callable[[Row, list[Insert]], None],
    ) -> None:
        self.journal = journal
        self.conversation = conversation
        self._renderer = renderer
        self._pulse = pulse
        self._clock = clock
        self._show = show
        self._pending: dict[str, list[str]] = {}
        self._refused = False  # the disk refused the last beat
        self._held: list[tuple[str, Mapping[str, Any]]] | None = None  # rows of a block that is written at its end

    @property
    def last_seq(self) -> int:
        """The number of the last recorded line."""
        return self.journal.last_seq

    def now_ms(self) -> int:
        """Return the time for a row's ``created_at``, in epoch milliseconds."""
        return epoch_ms(self._clock.now())

    def record(self, kind: str, data: Mapping[str, Any]) -> int:
        """Write one row, show what it adds, and return its number; inside ``together`` both come at its end.

        Raises:
            StoreError: The disk refused; nothing was shown.
        """
        self.flush()
        if self._held is not None:
            self._held.append((kind, dict(data)))
            return self.last_seq + len(self._held)
        row = self.journal.append(kind, dict(data))
        self._take(row)
        return row.seq

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write the rows of the block, which awaits nothing, with one write, then show them.

        Raises:
            StoreError: The disk refused; none of them was shown.
        """
        self.flush()
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            self._write(held)

    def _write(self, held: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        try:
            rows = self.journal.append_many(held)
        except StoreError:
            for kind, data in held:
                if kind == "delta":  # text that was said keeps waiting
                    self._pending.setdefault(data["part_id"], []).append(data["text"])
            raise
        for row in rows:
            self._take(row)

    def adopt(self, facts: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Write rows of what the document shows already.

        Raises:
            StoreError: The disk refused; nothing was added.
        """
        self.flush()
        for row in self.journal.append_many(facts):
            self.conversation.apply(row)

    def delta(self, part_id: str, text: str) -> None:
        """Add streamed text to a part; written and shown at the next beat.

        Raises:
            StoreError: The disk refused at the last beat and refuses still.
        """
        self._pending.setdefault(part_id, []).append(text)
        if self._refused:
            self.flush()
        self._pulse.request("record", self._beat)

    def flush(self) -> None:
        """Write and show the text that waits, now.

        Raises:
            StoreError: The disk refused; the text keeps waiting and nothing was shown.
        """
        if not self._pending:
            return
        deltas = [("delta", {"part_id": part, "text": "".join(texts)}) for part, texts in self._pending.items()]
        if self._held is not None:
            self._held += deltas
            self._pending = {}
            return
        rows = self.journal.append_many(deltas)
        self._pending, self._refused = {}, False
        for row in rows:
            self._take(row)

    async def commit(self, also: Callable[[], None] | None = None) -> None:
        """Return when everything recorded so far survives a power failure, and ``also`` was done in that thread."""
        self.flush()

        def work() -> None:
            self.journal.sync()
            if also is not None:
                also()

        await syncing().do(work)

    def close(self) -> None:
        """Write what waits and close the file."""
        try:
            self.flush()
        finally:
            self.journal.close()

    def _beat(self) -> None:
        try:
            self.flush()
        except StoreError:  # nobody to tell here: the run's next word tries again and fails visibly
            self._refused = True

    def _take(self, row: Row) -> None:
        self.conversation.apply(row)
        self._show(row, self._renderer.feed(row))
