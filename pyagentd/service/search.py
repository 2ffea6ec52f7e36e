"""Full-text search over all sessions, and its index."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pyagentd.errors import BadRequest
from pyagentd.events import Event
from pyagentd.service.group import Client, Group
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.db.projection import Finder, parse
from pyagentd.store.db.search import Hit, Scope
from pyagentd.store.document import text as document
from pyagentd.store.document.reconcile import placed
from pyagentd.store.journal import read_rows
from pyagentd.store.paths import BranchRef

MAX_HITS = 1000
PROGRESS_S = 0.1


class Search(Group):
    """Full-text search over all sessions, and its index."""

    async def search(
        self,
        client: Client,
        *,
        query: str,
        limit: int = 20,
        archived: bool = False,
        hidden: bool = False,
        session: str | None = None,
    ) -> dict[str, Any]:
        """Return what sessions and agents have of QUERY, best first.

        Words are all wanted, ``"…"`` is a phrase, a leading ``-`` excludes, the last word may be a beginning.
        ``session`` (an id, or ID/BRANCH) limits where; ``hidden`` finds also what was removed from a document.
        The answer is ``{hits, more, indexing, problem}``: ``more`` says that there are further hits, ``indexing``
        that the index is still being built, ``problem`` why it cannot be. A hit has the names and places of its
        branch, ``title``, ``message_id`` and ``part_id`` (nil: a title, or text that only the document has),
        ``role``, ``kind`` (text, reasoning, tool, title…), ``created_at`` in epoch ms, ``preview`` with ``matches``
        as pairs of offsets from 0, and ``copies``, how many other branches have the message too.
        """
        wanted = parse(query)
        if not 1 <= limit <= MAX_HITS:
            raise BadRequest(f"{limit} is no limit", mend=f"Give 1 to {MAX_HITS}")
        # Who names a session wants to look there, archived or not.
        scope = Scope(
            archived=archived or bool(session), hidden=hidden, within=self._within(session) if session else ""
        )
        found = await self._index.search(wanted, limit=limit, scope=scope)
        return {
            "hits": [_told(hit) for hit in found.hits],
            "more": found.more,
            "indexing": found.indexing,
            "problem": found.problem or None,
        }

    async def reindex(self, client: Client) -> dict[str, Any]:
        """Build the index from nothing; ``progress`` events ("reindex") tell the caller how far it is."""
        started, told_at = time.monotonic(), 0.0

        def tell(done: int, total: int) -> None:
            nonlocal told_at
            now = time.monotonic()
            if now - told_at >= PROGRESS_S or done == total:
                told_at = now
                client.push(Event("progress", "", 0, ({"id": "reindex", "done": done, "total": total},)))

        branches, messages = await self._index.reindex(tell)
        return {"branches": branches, "messages": messages, "seconds": round(time.monotonic() - started, 3)}

    async def locate(
        self,
        client: Client,
        *,
        branch: str,
        message: str | None = None,
        part: str | None = None,
        query: str | None = None,
    ) -> dict[str, Any]:
        """Return where a message, or a part of it, stands in the saved document; nil when it does not.

        Without a message it is the first place where words of ``query`` stand.
        """
        ref = self._ref(branch)
        if message is None:
            finder = parse(query or "").finder()
            start, end = await asyncio.to_thread(_first, ref, finder)
        else:
            start, end = await asyncio.to_thread(_place, ref, message, part)
        return {"position": None if start is None else start + 1, "end": None if end is None else end + 1}

    def _within(self, session: str) -> str:
        ref = self._registry.resolve(session)
        directory = ref.branch_dir if "/" in session and not session.startswith(("/", "~", ".")) else ref.session_dir
        return self._index.projection.key(directory)


def _place(ref: BranchRef, message: str, part: str | None) -> tuple[int | None, int | None]:
    """Return where the pieces of a message, or of one of its parts, begin and end in the document."""
    conversation = Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    _, pieces = placed(document.read(paths.session_file(ref.branch_dir)), conversation)
    own = [piece for piece in pieces if piece.message is not None and piece.message.id == message]
    exact = [piece for piece in own if piece.part is not None and piece.part.id == part]
    found = [piece.found for piece in exact or own]
    return (min(piece.start for piece in found), max(piece.end for piece in found)) if found else (None, None)


def _first(ref: BranchRef, finder: Finder) -> tuple[int | None, int | None]:
    return next(finder.spans(document.read(paths.session_file(ref.branch_dir)).body), (None, None))


def _told(hit: Hit) -> dict[str, Any]:
    return {
        "session_id": hit.session_id,
        "branch_name": hit.branch_name,
        "branch": str(hit.branch_dir),
        "branch_dir": str(hit.branch_dir),
        "file": str(paths.session_file(hit.branch_dir)),
        "agent": hit.is_agent,
        "title": hit.title or None,
        "message_id": hit.message_id,
        "part_id": hit.part_id,
        "role": hit.role,
        "kind": hit.kind,
        "created_at": hit.created_at,
        "hidden": hit.hidden,
        "preview": hit.preview,
        "matches": hit.matches,
        "copies": hit.copies,
    }
