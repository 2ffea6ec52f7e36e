"""A synchronous client: for the command line, scripts and tests.

It uses one thread, and raises the daemon's errors as the classes they had there, so ``except Busy`` works on both
sides of the wire. Events that arrive while a call waits are kept for ``events``.
"""

import itertools
import json
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pyagentd import __version__
from pyagentd.errors import Unreachable, WireError
from pyagentd.events import Event
from pyagentd.wire.frames import (
    MAX_FRAME,
    PROTOCOL,
    FrameReader,
    IncomingMessage,
    call,
    check_versions,
    error_from,
    parse,
)
from pyagentd.wire.lifecycle import LOCALHOST, Runtime, read_runtime
from pyagentd.wire.sexp import plists_to_dicts

CALL_TIMEOUT_S: Final = 30.0
COMMAND_TIMEOUT_S: Final = 300.0  # of slash commands: some ask a model, and summarise a long conversation in pieces
CONNECT_TIMEOUT_S: Final = 5.0


def result_of(answer: IncomingMessage, *, is_json: bool = False) -> Any:
    """Return the result of a call.

    Args:
        answer: The message.
        is_json: The client said ``json`` in its hello, and this answers a later call.

    Raises:
        PyagentdError: The daemon's error, as the same class.
    """
    value = answer.rest[0] if answer.rest else None
    if answer.verb != "return":
        raise error_from(value)
    return json.loads(str(value)) if is_json else plists_to_dicts(value)


class DaemonClient:
    """A connection that has said hello.

    Attributes:
        greeting: The daemon's answer to hello: ``proto``, ``pid``, ``version``, ``sessions_dir``.
        is_json: Whether answers are JSON, where false and [] differ from nil.
        timeout: The default timeout of a call, in seconds.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._pid = pid
        self.greeting: dict[str, Any] = {}
        self.is_json = False
        self.timeout = CALL_TIMEOUT_S
        self._socket = connection
        self._reader = FrameReader(MAX_FRAME)
        self._uids = itertools.count(1)
        self._answers: dict[int, IncomingMessage] = {}
        self._events: deque[Event] = deque()
        self._on_event: Callable[[Event], object] = self._events.append

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, method: str, /, timeout: float | None = None, **arguments: Any) -> Any:
        """Return the answer to ``method``: plists, or objects of JSON, as dicts.

        Args:
            method: In kebab-case.
            timeout: Seconds to wait; None is the client's default.
            **arguments: In snake_case.

        Raises:
            PyagentdError: The daemon's error, as the same class.
            Unreachable: The connection ended.
            WireError: No answer in time.
        """
        uid = next(self._uids)
        timeout = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        self._send(call(uid, method, arguments), timeout)
        while uid not in self._answers:
            if not self._receive(deadline - time.monotonic()):
                hint = f"See pyagentd logs; if the daemon hangs, end it: kill -9 {self._pid}"
                raise WireError(f"No answer to {method} within {timeout:g} s", hint=hint)
        return result_of(self._answers.pop(uid), is_json=self.is_json)

    @contextmanager
    def watching(self, on_event: Callable[[Event], object]) -> Iterator[None]:
        """Pass events that arrive during the block's calls to ``on_event`` instead of keeping them for ``events``."""
        kept, self._on_event = self._on_event, on_event
        try:
            yield
        finally:
            self._on_event = kept

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Yield events as they arrive, until none came for ``timeout`` seconds; None waits for ever.

        Raises:
            Unreachable: The connection ended.
        """
        while True:
            while self._events:
                yield self._events.popleft()
            deadline = None if timeout is None else time.monotonic() + timeout
            while not self._events:
                if not self._receive(None if deadline is None else deadline - time.monotonic()):
                    return

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def release(self) -> socket.socket:
        """Return the socket, for another reader; this client counts as closed."""
        return socket.socket(fileno=self._socket.detach())

    def _send(self, data: bytes, timeout: float) -> None:
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(data)
        except OSError as error:
            raise Unreachable(f"The connection to the daemon ended: {error}") from error

    def _receive(self, timeout: float | None) -> bool:
        """Read and handle what has arrived; return False if nothing did in time."""
        if timeout is not None and timeout <= 0:
            return False
        try:
            self._socket.settimeout(timeout)
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            return False
        except OSError as error:
            raise Unreachable(f"The connection to the daemon ended: {error}") from error
        if not data:
            raise Unreachable("The daemon closed the connection", hint="See pyagentd logs")
        for payload in self._reader.feed(data):
            if isinstance(payload, bytes):
                self._handle_message(parse(payload))
        return True

    def _handle_message(self, message: IncomingMessage) -> None:
        match message:
            case ("call", 0, ("events", [batch])):
                for item in batch:
                    self._on_event(event_of(item))
            case ("return" | "return-error" | "epc-error", uid, _):
                self._answers[uid] = message
            case _:
                pass  # a newer daemon's notification


def connect(
    runtime_dir: Path,
    *,
    human: bool = False,
    name: str = "",
    is_json: bool = False,
    timeout: float = CONNECT_TIMEOUT_S,
) -> DaemonClient:
    """Return a connection to the daemon of ``runtime_dir``, by unix socket or else TCP.

    Args:
        runtime_dir: Where its runtime file is.
        human: Whether a person is there to answer questions.
        name: What to call this client in the daemon's log.
        is_json: Ask for answers as JSON, in which false and [] are not nil.
        timeout: Seconds for the connection and the daemon's hello, each.

    Raises:
        Unreachable: No daemon answers there.
        WireError: It speaks another protocol, or is of another minor version.
    """
    runtime = read_runtime(runtime_dir)
    if runtime.proto != PROTOCOL:
        hint = "Stop it with `pyagentd stop`, then try again."
        raise WireError(f"The daemon speaks protocol {runtime.proto}, this client {PROTOCOL}", hint=hint)
    client = DaemonClient(open_socket(runtime, timeout), runtime.pid)
    try:
        check_versions(runtime.version, __version__)
        client.greeting = client.call(
            "hello",
            timeout,
            proto=PROTOCOL,
            version=__version__,
            human=human,
            json=is_json,
            client=name or f"pyagentd {__version__}",
            **({"token": runtime.token} if runtime.token else {}),
        )
        client.is_json = bool(client.greeting.get("json"))
    except BaseException:
        client.close()
        raise
    return client


def terminate(runtime_dir: Path, timeout: float = CONNECT_TIMEOUT_S) -> int:
    """Tell the daemon of ``runtime_dir`` to stop, whatever protocol it speaks, and return its process id.

    Raises:
        Unreachable: No daemon listens there; the process id in the runtime file may belong to another program by now.
    """
    runtime = read_runtime(runtime_dir)
    with open_socket(runtime, timeout):
        os.kill(runtime.pid, signal.SIGTERM)
    return runtime.pid


def open_socket(runtime: Runtime, timeout: float) -> socket.socket:
    """Return a connection to the daemon, by unix socket or else TCP; raises ``Unreachable``."""
    addresses: list[tuple[socket.AddressFamily, Any]] = [(socket.AF_UNIX, runtime.socket)] if runtime.socket else []
    if runtime.port:
        addresses.append((socket.AF_INET, (runtime.host or LOCALHOST, runtime.port)))
    reason, ended = "it has no address", False
    for family, address in addresses:
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout)
            connection.connect(address)
        except OSError as error:
            connection.close()
            reason = error.strerror or str(error)
            ended = isinstance(error, ConnectionRefusedError | FileNotFoundError)
        else:
            return connection
    who = "No daemon is running: the last one" if ended else "The daemon"
    raise Unreachable(f"{who} (pid {runtime.pid}) does not answer: {reason}", hint="Start it: `pyagentd serve`.")


def event_of(item: list[Any]) -> Event:
    """Return a received event as the daemon pushed it: names as strings, plists as dicts."""
    kind, branch, seq, *arguments = item
    if kind == "insert":
        text, role = arguments
        return Event("insert", branch, seq, (text, tuple(role) if isinstance(role, list) else role))
    return Event(kind, branch, seq, tuple(map(plists_to_dicts, arguments)))
