"""One connection: first ``hello``, then calls, each a task with exactly one answer.

A peer that does not introduce itself in time, in form or with the token is dropped without a word. Afterwards only a
lost frame boundary ends the connection; whatever else is wrong is answered. Losing a client cancels none of its
calls: what it asked for is still done, only the answer has nobody to go to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from pyagentd.errors import PyagentdError, WireError
from pyagentd.events import Event
from pyagentd.log import telling
from pyagentd.pulse import Pulse
from pyagentd.rpc.auth import is_descendant, same_user, token_matches
from pyagentd.rpc.framing import (
    MAX_INCOMING,
    PROTOCOL,
    BadHeader,
    FrameReader,
    Incoming,
    Oversized,
    answer,
    failure,
    parse,
    uid_of,
)
from pyagentd.rpc.operations import Operation
from pyagentd.rpc.outbox import Outbox
from pyagentd.sexp import Symbol, plist_to_dict

HELLO_LIMIT: Final = 1024  # bytes

_EVENTS_WAIT: Final = 256 << 10  # bytes unsent beyond which events wait
_CALLS_WAIT: Final = 8 << 20  # ... and beyond which no more calls are read

_log = logging.getLogger(__name__)


class Host(Protocol):
    """What a connection needs of its server."""

    operations: Mapping[str, Operation]
    greeting: Mapping[str, Any]
    pulse: Pulse
    hello_timeout_s: float
    own_children: bool

    def opened(self, client: Client) -> None:
        """Take note of a client that has introduced itself."""
        ...

    def closed(self, connection: Connection, client: Client | None) -> None:
        """Take note of the end of a connection."""
        ...


class Client:
    """A peer that said hello, as operations see it; a ``Sink`` of events.

    Attributes:
        name: What it calls itself, such as ``"emacs 28.2"``.
        human: Whether a person is there to answer questions.
        logs: Whether it shows the session log.
    """

    def __init__(self, *, name: str, human: bool, logs: bool, outbox: Outbox) -> None:
        self.name = name
        self.human = human
        self.logs = logs
        self._loop = asyncio.get_running_loop()
        self._outbox = outbox
        self._on_close: list[Callable[[], None]] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<Client {self.name!r}{' human' if self.human else ''}>"

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._closed

    def push(self, event: Event) -> None:
        """Queue ``event`` for delivery at the next beat; never blocks and never raises."""
        self._outbox.push(event)

    def reset(self, branch: str, seq: int) -> None:
        """Drop what is queued for ``branch``; the answer being made covers its rows up to ``seq``.

        An operation that attaches calls it last, with nothing awaited before its return. It also ends the silence
        that follows ``resync``.
        """
        self._outbox.reset(branch, seq)

    def tell(self, level: str, text: str, session_dir: str, written: bool) -> None:
        """Show a record of the session log; may be called from any thread."""
        if self.logs and not self._closed:
            record = {"level": level, "text": text, "session_dir": session_dir or None, "written": written}
            self._loop.call_soon_threadsafe(self.push, Event("log", "", 0, (record,)))

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when the connection ends, at once if it already has."""
        if self._closed:
            callback()
        else:
            self._on_close.append(callback)

    def end(self) -> None:
        """Run the callbacks; the connection says so when it has ended."""
        self._closed = True
        self._outbox.close()
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # one subscriber must not keep the others from hearing it
                _log.exception("A callback at the end of %r failed", self)


class Connection(asyncio.Protocol):
    """The protocol of one socket.

    Args:
        host: The server.
        token: What ``hello`` must bring; None where the kernel vouches for the peer.
    """

    def __init__(self, host: Host, token: str | None) -> None:
        self._host = host
        self._token = token
        self._reader = FrameReader(HELLO_LIMIT)
        self._client: Client | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(self._write, lambda flush: host.pulse.request("show", flush))
        self.ended: asyncio.Future[None] = self._loop.create_future()

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """Calls that are not answered yet."""
        return frozenset(self._tasks)

    def close(self) -> None:
        """Send what is queued, then close."""
        self._outbox.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close without sending anything more."""
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_EVENTS_WAIT, low=_EVENTS_WAIT // 4)
        self._deadline = self._loop.call_later(self._host.hello_timeout_s, self._drop, "said nothing in time")
        # The directory's mode keeps other users out already; this holds where a mode is ignored or was changed.
        peer = transport.get_extra_info("socket")
        if self._token is None and not same_user(peer):
            self._drop("is another user")
        elif not self._host.own_children and is_descendant(peer):
            self._drop("was started by this daemon")  # a command must not approve itself

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        self._deadline.cancel()
        self._outbox.close()
        if self._client is not None:
            self._client.end()
        self._host.closed(self, self._client)
        self.ended.set_result(None)

    def pause_writing(self) -> None:  # noqa: D102
        self._outbox.pause()

    def resume_writing(self) -> None:  # noqa: D102
        self._outbox.resume()
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:  # noqa: D102
        try:
            for item in self._reader.feed(data):
                self._received(item)
                if self._transport.is_closing():
                    return
        except BadHeader as error:
            self._drop(error.message)

    # Incoming

    def _received(self, item: bytes | Oversized) -> None:
        if self._client is None:
            self._introduce(item)
        elif isinstance(item, Oversized):
            mend = f"At most {MAX_INCOMING} bytes go into one call: send a path."
            self._refuse(uid_of(item.head), WireError(f"A frame of {item.length} bytes", mend=mend))
        else:
            try:
                message = parse(item)
            except WireError as error:
                self._refuse(uid_of(item), error)
            else:
                self._handle(message)

    def _handle(self, message: Incoming) -> None:
        match message:
            case ("call", uid, (str() as method, arguments)):
                self._call(uid, method, arguments)
            case ("methods", uid, ()):
                self._send(answer, uid, self._methods())
            case ("call" | "methods", uid, _):
                self._refuse(uid, WireError(f"A malformed {message.verb}"))
            case _:  # answers to notifications: stock epc.el sends them
                pass

    def _call(self, uid: int, method: str, arguments: object) -> None:
        operation = self._host.operations.get(method)
        if operation is None:
            self._refuse(uid, WireError(f"No such method: {method}", mend="Daemon and client may differ in version."))
            return
        self._tasks.add(self._loop.create_task(self._run(uid, operation, arguments)))

    async def _run(self, uid: int, operation: Operation, arguments: object) -> None:
        """Run one call; the boundary where every exception becomes an answer."""
        client = cast(Client, self._client)  # nothing is called before it said hello
        try:
            with telling(client.tell):
                result = await operation.run(client, **operation.bind(arguments))
        except PyagentdError as error:
            self._send(failure, uid, error)
        except asyncio.CancelledError:
            self._send(failure, uid, PyagentdError(f"{operation.name} was cancelled: the daemon stops"))
            raise
        except (Exception, SystemExit) as error:  # a stray sys.exit must not end the daemon
            _log.exception("%s failed", operation.name)
            self._send(failure, uid, PyagentdError(f"{operation.name}: {type(error).__name__}: {error}"))
        else:
            self._send(answer, uid, result)
        finally:
            # Not by add_done_callback, which costs every call another turn of the loop.
            self._tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    def _methods(self) -> object:
        return [
            (Symbol(operation.name), operation.arguments, operation.doc)
            for operation in self._host.operations.values()
        ]

    # Introduction

    def _introduce(self, item: bytes | Oversized) -> None:
        try:
            match parse(item if isinstance(item, bytes) else item.head):
                case ("call", uid, ("hello", [list() | None as plist])):
                    self._greet(uid, plist_to_dict(plist))
                case _:
                    self._drop("did not say hello")
        except WireError:
            self._drop("did not say hello")

    def _greet(self, uid: int, hello: Mapping[str, Any]) -> None:
        if self._token is not None and not token_matches(self._token, hello.get("token")):
            self._drop("has no valid token")
            return
        if hello.get("proto") != PROTOCOL:
            mend = "Install the same version of both, then restart the daemon with `pyagentd stop`."
            said = f"The daemon speaks protocol {PROTOCOL}, the client {hello.get('proto')}"
            self._refuse(uid, WireError(said, mend=mend))
            self._transport.close()
            return
        self._deadline.cancel()
        self._reader.limit = MAX_INCOMING
        name = str(hello.get("client") or "unknown")
        human, logs = bool(hello.get("human")), bool(hello.get("logs"))
        self._client = Client(name=name, human=human, logs=logs, outbox=self._outbox)
        self._send(answer, uid, {"proto": PROTOCOL, **self._host.greeting})
        self._host.opened(self._client)

    def _drop(self, reason: str) -> None:
        _log.info("A connection was closed: the peer %s", reason)
        if self._client is None:
            self._transport.abort()
        else:
            self._transport.close()

    # Outgoing

    def _refuse(self, uid: int | None, error: WireError) -> None:
        """Answer a call that reached no operation; without its uid there is nobody to answer."""
        _log.info("A call was refused: %s", error.message)
        if uid is not None:
            self._send(failure, uid, error, verb="epc-error")

    def _send(self, build: Callable[..., bytes], uid: int, value: object, **options: str) -> None:
        """Write the answer to call ``uid``; a value that cannot travel becomes an error, never silence."""
        if uid == 0:  # a notification
            return
        try:
            message = build(uid, value, **options)
        except WireError as error:
            _log.exception("An answer cannot be sent")
            message = failure(uid, error)
        self._write(message)

    def _write(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(data)
        # A peer that does not read its answers may not ask for more: this bounds what we hold for it.
        if self._transport.get_write_buffer_size() > _CALLS_WAIT:
            self._transport.pause_reading()
