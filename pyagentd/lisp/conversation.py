"""Messages between whoever runs an isolated program and the child that it runs in: a length, then JSON.

What a child says is not trusted: a message has a greatest size, is parsed as JSON only, and whatever does not fit is
``Garbled``. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from pyagentd.lisp.errors import REASONS, LispError

Json = dict[str, Any]

GREATEST: Final = 128 * 1024 * 1024
"""Bytes of one message."""

_LENGTH: Final = struct.Struct("!I")
_SLICE_MS: Final = 20  # between two looks at whatever may end the waiting


class Gone(Exception):
    """The other end has closed."""


class Garbled(Exception):
    """The other end said something that is no message."""


class Conversation:
    """One end of it.

    Args:
        peer: A connected stream socket; whoever gives it closes it.
        look: Called while waiting, every 20 ms; may raise to end the waiting. Without it, waiting has no end.
    """

    def __init__(self, peer: socket.socket, look: Callable[[], None] | None = None) -> None:
        self._peer = peer
        self._look = look

    def say(self, message: Json) -> None:
        """Send a message.

        Raises:
            Gone: Nobody is there.
        """
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        try:
            self._peer.sendall(_LENGTH.pack(len(body)) + body)
        except OSError as error:
            raise Gone from error

    def hear(self) -> Json:
        """Wait for a message.

        Raises:
            Gone: There will be none.
            Garbled: It is none, or is too large.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > GREATEST:
            raise Garbled(f"{length} bytes")
        try:
            message = json.loads(self._exactly(length).decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise Garbled("no JSON") from error
        if not isinstance(message, dict):
            raise Garbled("no object")
        return message

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._wait()
            try:
                part = self._peer.recv(min(count - len(parts), 1 << 20))
            except OSError as error:
                raise Gone from error
            if not part:
                raise Gone
            parts += part
        return bytes(parts)

    def _wait(self) -> None:
        if self._look is None:
            return
        waiting = select.poll()
        waiting.register(self._peer, select.POLLIN)
        while not waiting.poll(_SLICE_MS):
            self._look()


def error_message(error: LispError) -> Json:
    """Return an error as the part of a message."""
    return {
        "reason": error.reason,
        "message": error.message,
        "hint": error.hint,
        "line": error.line,
        "column": error.column,
        "undone": error.undone,
    }


def error_of(said: Json, source: str | None = None) -> LispError:
    """Return the error that the part of a message tells of.

    Raises:
        Garbled: It tells of none.
    """
    match said:
        case {"reason": str(reason), "message": str(message), "hint": str(hint), "line": line, "column": column} if (
            reason in REASONS and isinstance(line, int | None) and isinstance(column, int | None)
        ):
            error = LispError(reason, message, hint=hint, line=line, column=column, source=source)  # type: ignore[arg-type]  # just looked up
            error.undone = bool(said.get("undone"))
            return error
        case _:
            raise Garbled("no error")
