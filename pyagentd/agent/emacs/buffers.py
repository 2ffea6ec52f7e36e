"""The buffers of the user's Emacsen, as the tools of one run see and change them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import cast

from pyagentd.agent.emacs.clients import EmacsClients, NoAnswer
from pyagentd.events import Sink
from pyagentd.tools.spec import Made, Replacement, Seen

log = logging.getLogger(__name__)

LOOK_S = 1.0
CHANGE_S = 20.0  # saving runs the user's hooks, formatters among them


class RunBuffers:
    """Asks on behalf of one run; see ``tools.buffers.Buffers``.

    Args:
        clients: Who can be asked.
        watching: Returns the clients that show the run's session.
    """

    def __init__(self, clients: EmacsClients, watching: Callable[[], Iterable[Sink]]) -> None:
        self._clients = clients
        self._watching = watching
        self._loop = asyncio.get_running_loop()

    async def look(self, path: str, *, whole: bool) -> Seen:
        """Return what the Emacsen show of a file, all asked at once: one with unsaved text comes first."""
        asked = self._clients.with_buffers(self._watching())
        if not asked:
            return Seen()
        seen = await asyncio.gather(*(self._look(client, path, whole) for client in asked))
        showing = [one for one in seen if one.is_open]
        changed = [one for one in showing if one.modified]
        if len(changed) > 1:
            return replace(changed[0], trouble=f"{len(changed)} Emacsen have unsaved changes of it")
        if found := changed or showing:
            return found[0]
        return Seen(silent=any(one.silent for one in seen))

    def look_now(self, path: str, *, whole: bool) -> Seen:
        """Do as ``look``, called from a thread."""
        if not self._clients.with_buffers():
            return Seen()
        return asyncio.run_coroutine_threadsafe(self.look(path, whole=whole), self._loop).result()

    async def change(self, path: str, seen: Seen, edits: Sequence[Replacement]) -> Made:
        """Have the Emacs that showed the text change and save it; one that went in between may have done so."""
        facts = {"path": path, "version": seen.version, "edits": [list(edit) for edit in edits]}
        try:
            said = await self._clients.ask(cast(Sink, seen.source), "change", facts, timeout_s=CHANGE_S)
        except NoAnswer as error:
            return Made(outcome="unknown", reason=str(error))
        reason = str(said.get("reason") or "")
        match said.get("outcome"):
            case "done":
                return Made(outcome="done", reason=reason, saved=bool(said.get("saved")))
            case "outdated":
                return Made(outcome="outdated")
            case _:
                return Made(outcome="refused", reason=reason or "it does not say why")

    async def _look(self, client: Sink, path: str, whole: bool) -> Seen:
        try:
            said = await self._clients.ask(client, "look", {"path": path, "whole": whole}, timeout_s=LOOK_S)
        except NoAnswer as error:
            log.info("%s: %s", path, error)
            return Seen(silent=True)
        text = said.get("text")
        return Seen(
            buffer=str(said.get("buffer") or ""),
            version=str(said.get("version") or ""),
            modified=bool(said.get("modified")),
            text=text if isinstance(text, str) else None,
            crlf=bool(said.get("crlf")),
            trouble=str(said.get("trouble") or ""),
            source=client,
        )
