"""Frames and messages of EPC: six hex digits of byte length, then one s-expression and a newline.

Knows bytes and the five verbs, not sockets. A reader never holds more than its limit: a longer frame is skipped and
reported with its first bytes, so that the peer can be told which call failed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from pyagentd.errors import PyagentdError, WireError
from pyagentd.wire.sexp import Symbol, Unencodable, decode, encode

PROTOCOL: Final = 1  # raised when a client of before could misunderstand us
MAX_FRAME: Final = 0xFFFFFF  # what six digits can say

_LONGEST_MESSAGE: Final = 100_000  # characters of an error, so that telling it never fails

_HEADER: Final = 6
_HEADER_PATTERN: Final = re.compile(rb"[0-9a-fA-F]{6}")
_HEAD_KEPT: Final = 64
_MINOR: Final = re.compile(r"(\d+)\.(\d+)")
_UID: Final = re.compile(rb"\s*\(\s*(?:call|methods)\s+([0-9]{1,18})(?=[\s)])")


def check_versions(daemon: str, client: str) -> None:
    """Check that two versions work together: those of one minor version do, and an unknown one may.

    Raises:
        WireError: They do not; the hint says what to do.
    """
    ours, theirs = (_MINOR.match(version) for version in (daemon, client))
    if ours is None or theirs is None or ours.groups() == theirs.groups():
        return
    daemon_is_older = [*map(int, ours.groups())] < [*map(int, theirs.groups())]
    hint = (
        "Run `pyagentd stop` (M-x pyagentd-upgrade in Emacs): the next command starts the new one."
        if daemon_is_older
        else "Upgrade the client: the Emacs package, or the program with `pyagentd upgrade`."
    )
    raise WireError(f"The daemon is version {daemon}, the client {client}", hint=hint)


class BadHeader(WireError):
    """The first six bytes are no length; nothing after them can be trusted."""


class FrameTooLarge(WireError):
    """A frame to send is longer than six hex digits can say."""


class Oversized(NamedTuple):
    """A frame that was skipped: its first bytes."""

    head: bytes


class FrameReader:
    """Cuts a stream of bytes into payloads.

    Args:
        limit: Longest payload to hold, in bytes; may be changed between frames.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._to_skip = 0

    def feed(self, data: bytes) -> Iterator[bytes | Oversized]:
        """Yield the frames that ``data`` completes; exhaust the iterator before feeding again.

        Raises:
            BadHeader: The stream is out of step; close it.
        """
        buffer = self._buffer
        buffer += data
        while True:
            if self._to_skip:
                now = min(self._to_skip, len(buffer))
                del buffer[:now]
                self._to_skip -= now
            if len(buffer) < _HEADER:
                return
            header = bytes(buffer[:_HEADER])
            if not _HEADER_PATTERN.fullmatch(header):
                raise BadHeader(f"Not a frame header: {header!r}")
            length = int(header, 16)
            end = _HEADER + length
            if length > self.limit:
                # Wait for the head, which is shorter than any limit; the rest is dropped as it comes.
                if len(buffer) < _HEADER + _HEAD_KEPT:
                    return
                self._to_skip = end
                yield Oversized(bytes(buffer[_HEADER : _HEADER + _HEAD_KEPT]))
            elif len(buffer) < end:
                return
            else:
                payload = bytes(buffer[_HEADER:end])
                del buffer[:end]
                yield payload


def frame(payload: bytes) -> bytes:
    """Return ``payload`` with its header.

    Raises:
        FrameTooLarge: It does not fit.
    """
    length = len(payload) + 1
    if length > MAX_FRAME:
        hint = "Send or ask for less at a time, or name a file"
        raise FrameTooLarge(f"A frame of {length} bytes, where {MAX_FRAME} are the most", hint=hint)
    return b"%06x%b\n" % (length, payload)


class IncomingMessage(NamedTuple):
    """A message as received: ``uid`` is 0 for a notification."""

    verb: str
    uid: int
    rest: tuple[Any, ...]


def parse(payload: bytes) -> IncomingMessage:
    """Return the message in ``payload``.

    Raises:
        WireError: It is unreadable, or no message.
    """
    match decode(payload):
        case [Symbol() as verb, int() as uid, *rest] if uid is not True:
            return IncomingMessage(verb, uid, tuple(rest))
        case _:
            raise WireError("Not an EPC message")


def uid_of(head: bytes) -> int | None:
    """Return the uid of an unreadable call, so that it can be answered, or None."""
    match = _UID.match(head)
    return int(match[1]) if match else None


def call(uid: int, method: str, *arguments: object) -> bytes:
    """Return the frame that calls ``method``; uid 0 means that no answer is expected."""
    return frame(encode((Symbol("call"), uid, Symbol(method), arguments)))


def answer(uid: int, value: object) -> bytes:
    """Return the frame that answers a call."""
    return frame(encode((Symbol("return"), uid, value)))


def json_answer(uid: int, value: object) -> bytes:
    """Return the frame that answers a client that asked for JSON, in which false and [] are not nil."""
    try:
        return answer(uid, json.dumps(value, default=_json_form, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unencodable(f"No form on the wire: {error}") from None


def _json_form(value: object) -> object:
    match value:
        case Mapping():
            return dict(value)
        case PurePath():
            return str(value)
        case _:
            raise TypeError(f"{type(value).__name__} cannot travel")


def failure(uid: int, error: PyagentdError, *, verb: str = "return-error") -> bytes:
    """Return the frame that fails a call: ``(CODE "message" :hint "…")``.

    Args:
        uid: The call.
        error: The error to send.
        verb: ``return-error`` if the method failed, ``epc-error`` if it was not called.
    """
    description: list[object] = [Symbol(error.code), error.message[:_LONGEST_MESSAGE]]
    if error.hint:
        description += [Symbol(":hint"), error.hint[:_LONGEST_MESSAGE]]
    return frame(encode((Symbol(verb), uid, description)))


def error_from(description: object) -> PyagentdError:
    """Return the error that a peer sent, as the class of ``errors`` with its code."""
    match description:
        case [Symbol() as code, str() as message, *rest]:
            hint = rest[1] if len(rest) == 2 and isinstance(rest[1], str) else ""
            return _CLASSES.get(code, PyagentdError)(message, hint=hint)
        case _:  # a peer that is not ours
            return WireError(str(description))


def _by_code(root: type[PyagentdError]) -> Mapping[str, type[PyagentdError]]:
    """Return the classes of ``errors`` by code; a class that inherits its code is left out."""
    found = {root.code: root}
    for child in root.__subclasses__():
        found = {**_by_code(child), **found}
    return found


_CLASSES: Final = _by_code(PyagentdError)
