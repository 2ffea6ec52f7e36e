"""Which clients offer buffers and tools, and the questions to them that are open.

A question goes to one client as an event and has one answer, a JSON object. Who asks says how long it may take; a
client that goes has not answered. What is too long for a frame goes through a private file beside the socket, which
the reader removes (DESIGN §5 Sizes). docs/emacs-tools.md has the whole of it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyagentd.agent.emacs.offered import OfferedTool
from pyagentd.clock import new_id
from pyagentd.errors import BadRequest, ToolError
from pyagentd.events import Event, Sink
from pyagentd.jsontext import object_in
from pyagentd.store.atomic import write_text
from pyagentd.tools.files import read_bytes

What = Literal["look", "change", "call", "confirm"]

_INLINE_BYTES = 200_000


class NoAnswer(Exception):
    """A client was asked and has gone, or has not answered in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What one client offers."""

    buffers: bool = False
    tools: tuple[OfferedTool, ...] = ()


class EmacsClients:
    """The clients of one daemon that offer something.

    Args:
        spill: A private directory for what is too long for a frame.
    """

    def __init__(self, spill: Path) -> None:
        self._spill = spill
        self._offers: dict[Sink, Offered] = {}
        self._open: dict[str, tuple[Sink, asyncio.Future[dict[str, Any]]]] = {}
        self._silent: set[Sink] = set()

    def offer(self, client: Sink, offered: Offered) -> None:
        """Take what ``client`` offers from now on, in place of what it offered before."""
        self._offers[client] = offered

    def forget(self, client: Sink) -> None:
        """Let a client go that has gone; what it was asked it has not answered."""
        self._offers.pop(client, None)
        self._silent.discard(client)
        for asked, answer in self._open.values():
            if asked is client and not answer.done():
                answer.set_exception(NoAnswer("the user's Emacs has gone"))

    def with_buffers(self, first: Iterable[Sink] = ()) -> list[Sink]:
        """Return the clients that show buffers and answer, those of ``first`` before the others."""
        every = dict.fromkeys((*first, *self._offers))
        return [one for one in every if self._offers.get(one, Offered()).buffers and one not in self._silent]

    def tools(self, watching: Iterable[Sink]) -> dict[str, tuple[Sink, OfferedTool]]:
        """Return the tools of the clients ``watching``, by name, with who has each; the first one's counts."""
        found: dict[str, tuple[Sink, OfferedTool]] = {}
        for client in dict.fromkeys(watching):
            for tool in self._offers.get(client, Offered()).tools:
                found.setdefault(tool.name, (client, tool))
        return found

    def names(self) -> set[str]:
        """Return the names of all tools that any client offers."""
        return {tool.name for offered in self._offers.values() for tool in offered.tools}

    async def ask(
        self, client: Sink, what: What, facts: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Ask one client and return its answer.

        Args:
            client: Who is asked.
            what: About what.
            facts: As JSON can say them.
            timeout_s: None waits until the caller is cancelled.

        Raises:
            NoAnswer: It has gone, or did not answer in time.
        """
        if client not in self._offers:
            raise NoAnswer("the user's Emacs has gone")
        number = new_id("ema")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[number] = client, answer
        done, sent = False, dict[str, str]()
        try:
            sent = await self._sent(facts)
            client.push(Event("emacs", "", 0, ({"id": number, "what": what, **sent},)))
            async with asyncio.timeout(timeout_s):
                told = await answer
            done = True
            return told
        except TimeoutError:
            self._silent.add(client)
            raise NoAnswer(f"the user's Emacs did not answer within {timeout_s:g} s") from None
        finally:
            del self._open[number]
            if "path" in sent and not done:  # else the client has removed it
                Path(sent["path"]).unlink(missing_ok=True)  # noqa: ASYNC240 - one name, also when cancelled
            if not done:
                client.push(Event("emacs", "", 0, ({"id": number, "what": "stop", "facts": "{}"},)))

    async def answer(self, client: Sink, number: str, said: str | None, path: str | None) -> bool:
        """Take a client's answer, a JSON object or the file with it; return whether anybody still waited for it.

        Raises:
            BadRequest: It is no JSON object.
        """
        self._silent.discard(client)
        text = said if path is None else await asyncio.to_thread(self._taken, path)
        told = object_in(text, "The answer")
        asked, waiting = self._open.get(number, (None, None))
        if waiting is None or asked is not client or waiting.done():
            return False
        waiting.set_result(told)
        return True

    async def _sent(self, facts: Mapping[str, Any]) -> dict[str, str]:
        text = json.dumps(facts, ensure_ascii=False)
        if len(text) * 4 < _INLINE_BYTES or len(text.encode(errors="replace")) < _INLINE_BYTES:
            return {"facts": text}
        path = self._spill / f"emacs-{secrets.token_hex(8)}.json"
        await asyncio.to_thread(write_text, path, text, fsync=False)
        return {"path": str(path)}

    def _taken(self, path: str) -> str:
        """Return what is in a file of a client's, and remove it."""
        file = Path(path)
        if file.parent.resolve() != self._spill.resolve() or not file.name.startswith("emacs-"):
            raise BadRequest(f"{path} is no place for an answer", mend=f"Put it into {self._spill}")
        try:
            data = read_bytes(str(file.resolve()))
            file.unlink()
        except (OSError, ToolError) as error:
            raise BadRequest(f"The answer in {path} cannot be read: {error}") from error
        return data.decode(errors="replace")
