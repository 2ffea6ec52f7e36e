"""Functions of an Emacs as hooks: asked by an event, answered by an operation, never waited for beyond their time.

A client says which events it has functions for. It is asked about branches it watches and about their agents. A
client that goes, or does not answer in time, has said nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pyagentd.agent.hooking.hookprocess import Word
from pyagentd.clock import new_id
from pyagentd.config.tables import EVENTS
from pyagentd.errors import BadRequest
from pyagentd.events import Event, Sink
from pyagentd.jsontext import object_in

TIMEOUT_S = 3.0
_MOST_BYTES = 200_000  # of what an event carries (DESIGN §5 Sizes)


class HookClients:
    """Which clients have functions, and the questions that are open."""

    def __init__(self) -> None:
        self._events: dict[Sink, frozenset[str]] = {}
        self._open: dict[str, tuple[Sink, asyncio.Future[Word]]] = {}

    def offer(self, client: Sink, events: Collection[str]) -> None:
        """Have ``client`` asked about ``events`` from now on, and about nothing else.

        Raises:
            BadRequest: There is no such event.
        """
        if unknown := set(events) - set(EVENTS):
            raise BadRequest(f"There is no event {min(unknown)!r} for hooks", mend=f"Known: {', '.join(EVENTS)}")
        if events:
            self._events[client] = frozenset(events)
        else:
            self._events.pop(client, None)

    def forget(self, client: Sink) -> None:
        """Let a client go that has gone; what it was asked it has not answered."""
        self._events.pop(client, None)
        for asked, answer in self._open.values():
            if asked is client and not answer.done():
                answer.set_result(Word(problem="its Emacs has gone"))

    def of(self, event: str, watching: Iterable[Sink]) -> list[Sink]:
        """Return those of the clients ``watching`` that have functions for ``event``."""
        return [client for client in dict.fromkeys(watching) if event in self._events.get(client, ())]

    async def ask(self, client: Sink, branch: str, event: str, facts: Mapping[str, Any]) -> Word:
        """Ask one client and return its word."""
        text = json.dumps(facts, ensure_ascii=False, default=str)
        if len(text.encode(errors="replace")) > _MOST_BYTES:
            return Word(problem="what it would have been told is too long for Emacs")
        number = new_id("hok")
        answer: asyncio.Future[Word] = asyncio.get_running_loop().create_future()
        self._open[number] = client, answer
        client.push(Event("hook", branch, 0, ({"id": number, "event": event, "facts": text},)))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await answer
        except TimeoutError:
            return Word(problem=f"Emacs did not answer within {TIMEOUT_S:g} s")
        finally:
            del self._open[number]

    def answer(self, client: Sink, number: str, said: str) -> bool:
        """Take a client's answer, a JSON object; return whether anybody still waited for it.

        ``{"block": REASON}`` forbids, ``{"error": TEXT}`` says that a function failed; all else are changes.

        Raises:
            BadRequest: It is no JSON object.
        """
        changes = object_in(said, "The answer of a hook")
        asked, waiting = self._open.get(number, (None, None))
        if waiting is None or asked is not client or waiting.done():
            return False
        error = str(changes.pop("error", "") or "")
        blocks = changes.pop("block", None)
        waiting.set_result(
            Word(changes=changes, blocks=None if blocks in (None, False, "") else str(blocks), problem=error)
        )
        return True
