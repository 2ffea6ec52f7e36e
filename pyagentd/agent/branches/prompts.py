"""What a run is asked: the prompts of one branch, from its document, from clients and from what waits there."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

from pyagentd.agent.branches.keeper import Keeper
from pyagentd.agent.branches.recorder import Recorder
from pyagentd.agent.turns import firing, turn
from pyagentd.agent.turns.turn import Prompt
from pyagentd.agent.turns.waitlist import Waitlist
from pyagentd.store.conversation import Message
from pyagentd.store.document.reconcile import Continued


class Prompts:
    """The prompts of a branch.

    Args:
        file: Its document.
        recorder: Its log.
        keeper: Who writes the document.
        queue: The messages that wait.
        is_agent: Whether it is an agent's.

    Attributes:
        continued: Aligns the document turn after turn.
    """

    def __init__(self, file: Path, recorder: Recorder, keeper: Keeper, queue: Waitlist, *, is_agent: bool) -> None:
        self.continued = Continued()
        self._file = file
        self._recorder = recorder
        self._keeper = keeper
        self._queue = queue
        self._is_agent = is_agent

    async def from_document(self, *, sha256: str, end: int) -> Prompt:
        """Read the prompt that ends at offset ``end`` of the saved document; see ``turn.from_document``."""
        conversation = self._recorder.conversation.snapshot()
        aligning = self.continued.align
        return await asyncio.to_thread(
            turn.from_document, self._file, conversation, sha256=sha256, end=end, aligning=aligning
        )

    async def from_client(self, text: str) -> Prompt:
        """Take the prompt that a client sent as text, which goes above what waits in the document."""
        conversation = self._recorder.conversation.snapshot()
        at = functools.partial(firing.above_drafts, conversation, self._marker) if self._typed_waits else None
        aligning, is_agent = self.continued.align, self._is_agent
        return await asyncio.to_thread(
            turn.from_client, self._file, conversation, text, is_agent=is_agent, aligning=aligning, at=at
        )

    async def waits_above(self, *, sha256: str, end: int) -> bool:
        """Return whether queued text stands above an offset of the saved document; see ``firing.waits_above``."""
        if not self._typed_waits:
            return False
        return await asyncio.to_thread(firing.waits_above, self._file, self._queue.waiting, sha256=sha256, end=end)

    @property
    def _typed_waits(self) -> bool:
        return any(message.metadata.get("origin") == "document" for message in self._queue.waiting)

    async def text_to_queue(self, *, sha256: str, end: int) -> str:
        """Return the new text that ends at offset ``end`` of the saved document; see ``firing.text_to_queue``."""
        given, waiting = self._recorder.conversation.snapshot(), self._queue.waiting
        return await asyncio.to_thread(
            firing.text_to_queue, self._file, given, waiting, self._marker, sha256=sha256, end=end
        )

    async def of_queued(self, message: Message) -> Prompt:
        """Return the prompt that a queued message is now; see ``firing.prompt_of_queued``."""
        given = self._recorder.conversation.snapshot()
        return await asyncio.to_thread(
            firing.prompt_of_queued, self._file, given, message, self._marker, is_agent=self._is_agent
        )

    def _marker(self, sha256: str) -> int | None:
        """Return where the last run is, or ended, in the document with this hash; None when that is not known."""
        return version.marker if (version := self._keeper.version(sha256)) is not None else None
