"""An asyncio client of the daemon: awaitable calls, and a callback for events.

A call connects if there is no connection, also after the daemon has ended.
"""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from pyagentd.cli.link import daemon
from pyagentd.errors import PyagentdError, Unreachable, WireError
from pyagentd.events import Event
from pyagentd.wire.client import CALL_TIMEOUT_S, event_of, result_of
from pyagentd.wire.frames import MAX_FRAME, FrameReader, IncomingMessage, call, parse

_READ: Final = 1 << 18  # bytes per read
_ENDED: Final = Unreachable("The daemon has ended", hint="The next call starts it again")


class Daemon:
    """A connection to the daemon.

    Args:
        name: The name of this client for the daemon.
        on_event: Called with each event, in order.
        on_lost: Called when the connection has ended.
    """

    def __init__(self, name: str, on_event: Callable[[Event], None], on_lost: Callable[[], None]) -> None:
        self.name = name
        self._on_event = on_event
        self._on_lost = on_lost
        self._connecting = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_json = False
        self._uids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[IncomingMessage]] = {}

    async def call(self, method: str, /, timeout: float = CALL_TIMEOUT_S, **arguments: Any) -> Any:
        """Return the answer to ``method``; see ``DaemonClient.call``.

        Raises:
            PyagentdError: The daemon's error, in its class, or no answer.
        """
        writer = await self._open_writer()
        uid = next(self._uids)
        answered = self._pending[uid] = asyncio.get_running_loop().create_future()
        try:
            writer.write(call(uid, method, arguments))
            async with asyncio.timeout(timeout):
                message = await answered
        except TimeoutError:
            raise WireError(f"No answer to {method} within {timeout:g} s", hint="See pyagentd logs") from None
        finally:
            self._pending.pop(uid, None)
        return result_of(message, is_json=self._is_json)

    async def close(self) -> None:
        """Close the connection; runs go on."""
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading

    async def _open_writer(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None:
                sock = await asyncio.to_thread(self._connect)
                reader, self._writer = await asyncio.open_connection(sock=sock)
                self._reading = asyncio.create_task(self._read(reader, self._writer))
            return self._writer

    def _connect(self) -> Any:
        with daemon(human=True, name=self.name) as link:
            self._is_json = link.is_json
            return link.release()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(MAX_FRAME)
        try:
            while data := await reader.read(_READ):
                for payload in frames.feed(data):
                    if isinstance(payload, bytes):
                        self._handle_message(parse(payload))
        except (OSError, PyagentdError):
            pass  # the waiting calls get an error below
        finally:
            self._writer = None
            writer.close()
            for waiting in self._pending.values():
                if not waiting.done():
                    waiting.set_exception(_ENDED)
            self._on_lost()

    def _handle_message(self, message: IncomingMessage) -> None:
        match message:
            case IncomingMessage("call", 0, ("events", [batch])):
                for item in batch:
                    self._on_event(event_of(item))
            case IncomingMessage("return" | "return-error" | "epc-error", uid, _):
                if (waiting := self._pending.get(uid)) is not None and not waiting.done():
                    waiting.set_result(message)
            case _:
                pass  # a notification from a newer daemon
