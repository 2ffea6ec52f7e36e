"""Somebody who edits a document as Emacs does: types below everything, and sends what was typed.

What the daemon inserts goes to the run's marker, and what was typed stays below; text that waits in the queue keeps
its place until it fires, wherever the text around it went.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.store.document.files import Edit, Hunk, offset_after
from pyagentd.store.document.render import RUN_CLOSE
from pyagentd.store.document.text import PROMPT_PREFIX
from tests.simulation.client import Client

Call = Callable[..., Awaitable[Any]]
"""Calls an operation of the daemon for the branch: its name, then its arguments."""


class Editor(Client):
    """A client that edits a branch.

    Args:
        call: Calls the daemon.

    Attributes:
        is_gone: Whether it does nothing any more.
    """

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.is_gone = False
        self._call = call
        self._waiting: dict[str, tuple[int, int]] = {}  # where queued text stands, by its message's id
        self._sending = ""  # the id of what was sent and not answered yet

    async def open(self) -> None:
        """Attach."""
        self.watch(await self._call("attach", client=self, text=""))

    async def type(self, text: str, id: str) -> Mapping[str, Any]:
        """Write below everything and send it; return what the daemon answered.

        Raises:
            PyagentdError: It was refused; the text is removed again.
        """
        before = len(self.text)
        heading = RUN_CLOSE if self.text else PROMPT_PREFIX
        await self._edit(Hunk(before, before, text if self.text.endswith(PROMPT_PREFIX) else heading + text))
        end = len(self.text)
        self._waiting[id], self._sending = (end - len(text), end), id
        try:
            made: Mapping[str, Any] = await self._call(
                "send", client=self, revision=self.revision, end=end + 1, id=id
            )
        except PyagentdError:
            start, end = self._waiting.pop(id)
            await self._edit(Hunk(start, end, ""))
            raise
        if made["queued"] and id in self._waiting and not self.text[self._waiting[id][1] :].strip():
            await self._edit(Hunk(self._waiting[id][1], len(self.text), RUN_CLOSE))
        return made

    def leave(self) -> None:
        """Do nothing any more."""
        self.is_gone = True

    def push(self, event: Event) -> None:
        """Take one event, unless it is gone."""
        if not self.is_gone:
            super().push(event)

    async def _edit(self, hunk: Hunk) -> None:
        self.own = (hunk,)
        hunks = [[hunk.begin + 1, hunk.end + 1, hunk.text]]
        await self._call("edit_document", client=self, revision=self.revision, hunks=hunks, id="own")

    def _show(self, event: Event) -> None:
        super()._show(event)
        match event.kind, event.args:
            case "fired", (fired,):
                known = self._waiting.pop(fired["id"], None)
                assert known is None or known[1] == self.marker, "text that fires is where it was typed"
            case "queue", (queue,):
                kept = {self._sending, *(item["id"] for item in queue["items"])}
                self._waiting = {id: place for id, place in self._waiting.items() if id in kept}

    def _change(self, edit: Edit) -> None:
        super()._change(edit)
        self._waiting = {
            id: (offset_after(start, edit, before=False), offset_after(end, edit, before=True))
            for id, (start, end) in self._waiting.items()
        }

    def _insert(self, text: str, role: Any) -> None:
        at = self.marker
        super()._insert(text, role)
        self._waiting = {
            id: (start + len(text), end + len(text)) if start >= at else (start, end)
            for id, (start, end) in self._waiting.items()
        }
