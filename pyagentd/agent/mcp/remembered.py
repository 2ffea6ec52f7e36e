"""Which prompts and resources servers last said they have: kept, so that none is started only to complete a word."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from pyagentd.config.tables import ServerSettings
from pyagentd.errors import StoreError
from pyagentd.store.db.state import State
from pyagentd.tools.mcp.connection import Connection, Launch, ServerPrompt, ServerResource

_KEY = "mcp-offers"
_MOST = 200  # servers
_LISTED = 300  # prompts, and resources, of one

log = logging.getLogger(__name__)


class Remembered:
    """What servers said, by how they are started.

    Args:
        state: Where it is kept; losing it loses nothing that a server would not say again.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[str, Any] | None = None
        self._marks: dict[Launch, str] = {}
        self._lock = threading.Lock()

    def recall(self, connection: Connection, settings: ServerSettings) -> None:
        """Have a server that has not run yet offer what it last said, in whatever workspace that was."""
        self._marks[connection.launch] = _mark(settings)
        if connection.catalog is None and not (connection.prompts or connection.resources):
            said = self._all().get(_mark(settings), {})
            try:
                connection.prompts = tuple(_prompt(each) for each in said.get("prompts", ()))
                connection.resources = tuple(ServerResource(**each) for each in said.get("resources", ()))
            except (TypeError, ValueError, KeyError):  # written by another version
                log.info("what the MCP server %s said is forgotten", connection.name)

    def keep(self, connection: Connection) -> None:
        """Keep what a server says now; blocks."""
        with self._lock:  # several may say something at once
            self._keep(connection, dict(self._all()), self._marks[connection.launch])

    def _keep(self, connection: Connection, known: dict[str, Any], mark: str) -> None:
        said = {"prompts": _rows(connection.prompts), "resources": _rows(connection.resources)}
        if json.loads(json.dumps(said)) == known.get(mark, {"prompts": [], "resources": []}):
            return
        known.pop(mark, None)
        known[mark] = json.loads(json.dumps(said))
        for old in list(known)[:-_MOST]:
            del known[old]
        self._known = known
        try:
            self._state.put(_KEY, known)
        except StoreError as error:
            log.warning("%s", error)

    def _all(self) -> dict[str, Any]:
        if self._known is None:
            try:
                kept = self._state.get(_KEY, {})
            except StoreError as error:
                log.warning("%s", error)
                return {}
            self._known = kept if isinstance(kept, dict) else {}
        return self._known


def _mark(settings: ServerSettings) -> str:
    """Return what tells a server from others: its name, and how it is reached."""
    said = json.dumps([settings.name, settings.command, settings.url])
    return hashlib.sha256(said.encode(errors="replace")).hexdigest()


def _rows(offers: Iterable[ServerPrompt | ServerResource]) -> list[dict[str, Any]]:
    return [asdict(each) for each in list(offers)[:_LISTED]]


def _prompt(row: dict[str, Any]) -> ServerPrompt:
    arguments = tuple((str(name), bool(required)) for name, required in row["arguments"])
    return ServerPrompt(name=row["name"], description=row["description"], arguments=arguments)
