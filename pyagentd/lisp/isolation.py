"""Running a program in a child process with limits of the operating system (``isolation="process"``).

The charges of ``limits`` hold in the child as they do here; the process is the second wall, for what a charge forgot:
a computation that hangs inside C, an allocation nobody counted, a crash of the interpreter. The child is forked from
a ``zygote``, never from this process, which may have threads; it has no descriptors but its own and no way to open
any. Tools are answered here, in the caller's thread, so they keep their authority, and the child has none.

Values cross in the JSON encoding, so functions cannot: neither in ``ctx/`` and memory nor in the result.
"""

import atexit
import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

import pyagentd
from pyagentd.errors import PyagentdError, ToolError
from pyagentd.lisp.encoding import decode, encode
from pyagentd.lisp.errors import REASONS, LispError, Signal
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.run import Result, ToolCall, Tools, Usage
from pyagentd.lisp.values import Value

# Messages between whoever runs an isolated program and the child that it runs in: a length, then JSON.
#
# What a child says is not trusted: a message has a greatest size, is parsed as JSON only, and whatever does not fit
# is ``Garbled``. Nothing is ever unpickled.

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


_START_S: Final = 30.0  # for the zygote to import the language, on a machine that is busy
_MERCY_S: Final = 1.0  # for a child to be ended by its own clock

_BOOT: Final = """\
import sys
sys.path[:0] = sys.argv[2:]
from pyagentd.lisp.child import prepare, serve
from pyagentd.lisp.child import main
prepare()
main(int(sys.argv[1]), serve)
"""


class Zygote:
    """The process that children come from; started when first needed, and again when it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def child(self) -> Iterator[socket.socket]:
        """Yield the conversation with a new child, which ends with the ``with`` at the latest."""
        ours, theirs = socket.socketpair()
        lifeline, end = os.pipe()
        try:
            with theirs, ours:
                try:
                    self._order(theirs.fileno(), lifeline)
                finally:
                    os.close(lifeline)
                theirs.close()
                yield ours
        finally:
            os.close(end)

    def _order(self, *descriptors: int) -> None:
        with self._lock:
            try:
                socket.send_fds(self._running(), [b"\0"], descriptors)
            except OSError:  # it has ended since the last order
                self._end()
                socket.send_fds(self._running(), [b"\0"], descriptors)

    def _running(self) -> socket.socket:
        if self._orders is None or self._process is None or self._process.poll() is not None:
            self._end()
            self._start()
        assert self._orders is not None
        return self._orders

    def _start(self) -> None:
        self._orders, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, str(theirs.fileno()), *_path()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env={},
                start_new_session=True,  # a C-c at the terminal is for us
            )

    def _end(self) -> None:
        """Let the zygote go; its children end when their conversations do."""
        if self._orders is not None:
            self._orders.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_MERCY_S)
        self._orders = self._process = None

    def close(self) -> None:
        """End it; the next order starts another."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """In a process that was forked from ours: leave the zygote to its owner."""
        self._lock = threading.Lock()
        if self._orders is not None:
            self._orders.close()
        if self._process is not None:
            self._process.returncode = 0  # not our child, so never waited for
        self._orders = self._process = None


def _path() -> list[str]:
    """Return where the child finds this package and what it imports; ``-S`` leaves out everything but the library."""
    ours = str(Path(pyagentd.__file__).resolve().parents[1])
    return [ours, *(entry for entry in sys.path if entry != ours and Path(entry).is_absolute())]


ZYGOTE = Zygote()
os.register_at_fork(after_in_child=ZYGOTE.forget)
atexit.register(ZYGOTE.close)


def run(
    source: str,
    *,
    context: Mapping[Any, Value] | None,
    memory: Mapping[str, Value] | None,
    tools: Tools | None,
    limits: Limits,
    cancelled: Callable[[], bool] | None = None,
    zygote: Zygote = ZYGOTE,
) -> Result:
    """Compile and run a program in a child; see ``Program.run``.

    Raises:
        LispError: As a run in this process would; ``memory_exceeded`` too when the child is out of memory or has
            crashed.
        PyagentdError: No child can be had.
    """
    request: Json = {
        "program": source,
        "context": encode(dict(context or {})),
        "memory": encode(dict(memory or {})),
        "limits": asdict(limits),
        "tools": tools is not None,
    }
    for _ in range(2):  # the zygote may have been ended by somebody since the last program
        with zygote.child() as peer:
            watch = _Watch(limits, cancelled)
            talk = Conversation(peer, watch.look)
            try:
                talk.say(request)
                talk.hear()
            except Gone:
                continue
            watch.start()
            return _Attendance(talk, watch, source, tools, limits).result()
    raise PyagentdError("The process that runs isolated programs does not start", mend="Run without isolation.")


class _Watch:
    """When the waiting for a child ends, whatever the child does."""

    def __init__(self, limits: Limits, cancelled: Callable[[], bool] | None) -> None:
        self._limits = limits
        self._cancelled = cancelled
        self._deadline = time.monotonic() + _START_S
        self._began = time.monotonic()

    def start(self) -> None:
        """Let the program's time begin."""
        self._began = time.monotonic()
        self._deadline = self._began + self._limits.timeout_ms / 1000 + _MERCY_S

    def pause(self, seconds: float) -> None:
        """Leave out the time that a tool took, where it does not count."""
        if not self._limits.tool_time_counts:
            self._deadline += seconds
            self._began += seconds

    def look(self) -> None:
        if self._cancelled is not None and self._cancelled():
            raise LispError("timeout", "the program was cancelled")
        if time.monotonic() > self._deadline:
            raise self.late()

    def late(self) -> LispError:
        return LispError(
            "timeout",
            f"the program ran longer than {self._limits.timeout_ms} ms",
            hint="Handle less data, or check that every loop and recursion ends.",
        )

    def over(self) -> bool:
        """Whether the program has had its time."""
        return time.monotonic() - self._began >= self._limits.timeout_ms / 1000


class _Attendance:
    """Answers one child until it is done."""

    def __init__(self, talk: Conversation, watch: _Watch, source: str, tools: Tools | None, limits: Limits) -> None:
        self._talk = talk
        self._watch = watch
        self._source = source
        self._tools = tools
        self._limits = limits
        self._calls: list[ToolCall] = []

    def result(self) -> Result:
        try:
            while True:
                match self._talk.hear():
                    case {"call": str(name), "args": args}:
                        self._talk.say(self._answer(name, decode(args)))
                    case {"error": dict(error)}:
                        raise error_of(error, self._source)
                    case {"value": value, "memory": memory, "put": put, "signal": signal, "usage": usage}:
                        return self._made(value, memory, bool(put), signal, usage)
                    case _:
                        raise Garbled("no answer")
        except Gone:
            raise self._end() from None
        except (Garbled, TypeError, ValueError, RecursionError) as error:
            raise LispError("memory_exceeded", "the program gave an answer that cannot be read") from error

    def _made(
        self, value: Any, memory: Any, put: bool, signal: Literal["return", "fail"] | None, usage: Any
    ) -> Result:
        return Result(
            value=decode(value),
            memory=decode(memory),
            put=put,
            tool_calls=tuple(self._calls),
            signal=signal if signal in ("return", "fail") else None,
            usage=Usage(**usage),
        )

    def _end(self) -> LispError:
        """Why a child has ended without a word: its clock, else its memory."""
        if self._watch.over():
            return self._watch.late()
        return LispError(
            "memory_exceeded",
            "the program used more memory than its process may have",
            hint="Filter or aggregate before building new collections.",
        )

    def _answer(self, name: str, args: dict[Any, Value]) -> Json:
        """Call a tool; whatever a program may see of it is the answer, the rest leaves this function."""
        assert self._tools is not None
        at, began = time.time(), time.monotonic()
        value: Value = None
        said: str | None = None
        try:
            value = self._tools(name, args)
            answer: Json = {"value": encode(value, Budget(self._limits))}
        except LispError as error:
            said = error.message
            answer = {"error": error_message(error)}
        except ToolError as error:
            said = str(error)
            answer = {"tool_error": said}
        except Signal as signal:
            answer = {"signal": signal.name, "value": encode(signal.value, Budget(self._limits))}
        seconds = time.monotonic() - began
        self._watch.pause(seconds)
        self._calls.append(
            ToolCall(name=name, args=args, result=value, error=said, started_at=at, duration_ms=seconds * 1000)
        )
        self._watch.look()
        return answer
