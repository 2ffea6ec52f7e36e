"""Running a program in a child process with limits of the operating system (``isolation="process"``).

The charges of ``limits`` apply in the child as they do in this process; the process catches what they miss: a
computation that hangs inside C, memory that was not counted, a crash of the interpreter. Tools are called here, in
the caller's thread and with the caller's rights; the child has no descriptors but its own and cannot open any.

A daemon has threads and must not fork, so it starts a fork server once: a clean interpreter with one thread that has
imported the language. For each run it sends the fork server two descriptors, the channel and the lifeline. The fork
server forks a child (1 ms); the child lowers its own limits before it reads a byte of the program. A child ends

- when it has sent the result,
- when the other end of the lifeline is closed, whatever it is doing (SIGIO, whose default action ends a process),
- when its wall clock runs out (SIGALRM, likewise), which can stand still while a tool runs,
- when its CPU time or address space runs out.

The fork server ends when its socket is closed, so nothing outlives the daemon. Values cross as JSON
(``serialization``), so functions cannot: neither in ``ctx/`` and memory nor in the result.
"""

import atexit
import contextlib
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyagentd
from pyagentd.errors import PyagentdError, ToolError
from pyagentd.lisp.errors import REASONS, Fail, LispError, Return, Signal
from pyagentd.lisp.limits import Budget, Limits, too_long
from pyagentd.lisp.parallel import (
    Ended,
    Group,
    Position,
    Threads,
    is_abandoned,
    run_as_call,
    running_call,
    start_early,
)
from pyagentd.lisp.runtime import Result, Tools, Usage
from pyagentd.lisp.serialization import decode, encode
from pyagentd.lisp.values import Value

if TYPE_CHECKING:
    from pyagentd.lisp import Program

# -- Messages between the caller and the child: a length, then JSON.
#
# What a child sends is not trusted: a message has a largest size and is parsed as JSON, never unpickled; anything
# else is a ``BadMessage``.

Json = dict[str, Any]

LARGEST_MESSAGE: Final = 128 * 1024 * 1024
"""Bytes of one message."""

_LENGTH: Final = struct.Struct("!I")
_SLICE_MS: Final = 20  # between two calls of ``check`` while waiting


class Disconnected(Exception):
    """The other end has closed."""


class BadMessage(Exception):
    """The other end sent something that is not a message."""


class Channel:
    """One end of the connection between caller and child.

    While it waits it calls ``check`` every 20 ms, which may raise to end the waiting; without it that has no end.
    """

    def __init__(self, peer: socket.socket, check: Callable[[], None] | None = None) -> None:
        self._peer = peer
        self._check = check

    def send(self, message: Json) -> None:
        """Send a message.

        Raises:
            Disconnected: The other end is closed.
        """
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        try:
            self._peer.sendall(_LENGTH.pack(len(body)) + body)
        except OSError as error:
            raise Disconnected from error

    def is_ready(self, milliseconds: int) -> bool:
        """Wait until a message begins to arrive; return whether one does in time. For a child."""
        # Not poll, which the kernel refuses where a process may open no descriptors; those of a child are low.
        return bool(select.select([self._peer], [], [], milliseconds / 1000)[0])

    def receive(self) -> Json:
        """Wait for a message.

        Raises:
            Disconnected: The other end is closed.
            BadMessage: It is not JSON, not an object, or too large.
        """
        (length,) = _LENGTH.unpack(self._receive_exactly(_LENGTH.size))
        if length > LARGEST_MESSAGE:
            raise BadMessage(f"{length} bytes")
        try:
            message = json.loads(self._receive_exactly(length).decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise BadMessage("not JSON") from error
        if not isinstance(message, dict):
            raise BadMessage("not an object")
        return message

    def _receive_exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            if self._check is not None:
                waiting = select.poll()
                waiting.register(self._peer, select.POLLIN)
                while not waiting.poll(_SLICE_MS):
                    self._check()
            try:
                part = self._peer.recv(min(count - len(parts), 1 << 20))
            except OSError as error:
                raise Disconnected from error
            if not part:
                raise Disconnected
            parts += part
        return bytes(parts)


def error_message(error: LispError) -> Json:
    """Return an error as a part of a message."""
    return {
        "reason": error.reason,
        "message": error.message,
        "hint": error.hint,
        "line": error.line,
        "column": error.column,
        "undone": error.undone,
    }


def error_from_message(part: Json, source: str | None = None) -> LispError:
    """Return the error that a part of a message describes.

    Raises:
        BadMessage: The part does not describe an error.
    """
    match part:
        case {"reason": str(reason), "message": str(message), "hint": str(hint), "line": line, "column": column} if (
            reason in REASONS and isinstance(line, int | None) and isinstance(column, int | None)
        ):
            error = LispError(reason, message, hint=hint, line=line, column=column, source=source)  # type: ignore[arg-type]  # just looked up
            error.undone = bool(part.get("undone"))
            return error
        case _:
            raise BadMessage("not an error")


# -- The caller

_START_S: Final = 30.0  # for the fork server to import the language, on a busy machine
_KILL_AFTER_S: Final = 1.0  # beyond the timeout: by then the child's own clock has ended it

_BOOT: Final = """\
import sys
sys.path[:0] = sys.argv[2:]
from pyagentd.lisp.isolation import fork_children
from pyagentd.lisp import compile
fork_children(int(sys.argv[1]), compile)
"""


class ForkServer:
    """The process that children are forked from; started when first needed, and again when it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def child(self) -> Iterator[socket.socket]:
        """Yield a socket to a new child, which ends when the ``with`` is left at the latest."""
        ours, theirs = socket.socketpair()
        lifeline, end = os.pipe()
        try:
            with theirs, ours:
                try:
                    self._send(theirs.fileno(), lifeline)
                finally:
                    os.close(lifeline)
                theirs.close()
                yield ours
        finally:
            os.close(end)

    def _send(self, *descriptors: int) -> None:
        with self._lock:
            try:
                socket.send_fds(self._ensure_running(), [b"\0"], descriptors)
            except OSError:  # it has ended since the last run
                self._end()
                socket.send_fds(self._ensure_running(), [b"\0"], descriptors)

    def _ensure_running(self) -> socket.socket:
        if self._control is None or self._process is None or self._process.poll() is not None:
            self._end()
            self._start()
        assert self._control is not None
        return self._control

    def _start(self) -> None:
        # ``-S`` leaves out everything but the standard library.
        ours = str(Path(pyagentd.__file__).resolve().parents[1])
        others = (entry for entry in sys.path if entry != ours and Path(entry).is_absolute())
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, str(theirs.fileno()), ours, *others],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env={"MALLOC_ARENA_MAX": "1"},  # else each thread of a child reserves address space of its own
                start_new_session=True,  # C-c at the terminal must not reach it
            )

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_KILL_AFTER_S)
        self._control = self._process = None

    def close(self) -> None:
        """End the process; running children end with their runs, and the next run starts another fork server."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """Forget the fork server without ending it, after a fork."""
        self._lock = threading.Lock()
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # not our child, so it cannot be waited for
        self._control = self._process = None


FORK_SERVER = ForkServer()
os.register_at_fork(after_in_child=FORK_SERVER.forget)
atexit.register(FORK_SERVER.close)


def run(
    source: str,
    *,
    context: Mapping[Any, Value],
    memory: Mapping[str, Value],
    tools: Tools | None,
    limits: Limits,
    cancelled: Callable[[], bool] | None = None,
    fork_server: ForkServer = FORK_SERVER,
) -> Result:
    """Compile and run a program in a child; see ``Program.run``.

    Raises:
        LispError: As a run in this process would; also ``memory_exceeded`` when the child has run out of memory or
            has crashed.
        PyagentdError: No child can be started.
    """
    request: Json = {
        "program": source,
        "context": encode(dict(context)),
        "memory": encode(dict(memory)),
        "limits": asdict(limits),
        "tools": tools is not None,
    }
    for _ in range(2):  # the fork server may have been killed since the last run
        with fork_server.child() as peer:
            timeout = _Timeout(limits, cancelled)
            channel = Channel(peer, timeout.check)
            try:
                channel.send(request)
                channel.receive()
            except Disconnected:
                continue
            timeout.start()
            return _ChildRun(channel, timeout, source, tools, limits).result()
    raise PyagentdError("The process that runs isolated programs does not start", hint="Run without isolation.")


class _Timeout:
    """The deadline at which the caller stops waiting for a child, whatever the child does."""

    def __init__(self, limits: Limits, cancelled: Callable[[], bool] | None) -> None:
        self._limits = limits
        self._cancelled = cancelled
        self.started = time.monotonic()
        self._deadline = self.started + _START_S
        self._lock = threading.Lock()
        self._in_tools = 0
        self._since = 0.0
        self.failure: BaseException | None = None  # of a call in another thread, which the program may not catch

    def start(self) -> None:
        """Start the program's time."""
        self.started = time.monotonic()
        self._deadline = self.started + self._limits.timeout_ms / 1000 + _KILL_AFTER_S

    @contextlib.contextmanager
    def in_tool(self) -> Iterator[None]:
        """Leave out the time in which tools run, unless it counts."""
        with self._lock:
            if self._in_tools == 0:
                self._since = time.monotonic()
            self._in_tools += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_tools -= 1
                if self._in_tools == 0 and not self._limits.tool_time_counts:
                    seconds = time.monotonic() - self._since
                    self._deadline += seconds
                    self.started += seconds

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._cancelled is not None and self._cancelled():
            raise LispError("timeout", "the program was cancelled")
        with self._lock:
            stands_still = self._in_tools > 0 and not self._limits.tool_time_counts
            if not stands_still and time.monotonic() > self._deadline:
                raise too_long(self._limits)


def _out_of_memory() -> LispError:
    return LispError(
        "memory_exceeded",
        "the program used more memory than its process may have",
        hint="Filter or aggregate before building new collections.",
    )


class _ChildRun:
    """One run in a child, seen from the caller: calls its tools until the result arrives."""

    def __init__(self, channel: Channel, timeout: _Timeout, source: str, tools: Tools | None, limits: Limits) -> None:
        self._channel = channel
        self._timeout = timeout
        self._source = source
        self._tools = tools
        self._limits = limits
        self._parallel = _is_parallel(source, limits)
        self._threads = Threads(Budget(limits))
        self._lock = threading.Lock()
        self._running: dict[int, Group] = {}  # the calls that run in threads, by their numbers

    def result(self) -> Result:
        try:
            while True:
                match self._channel.receive():
                    case {"call": str(name), "args": args, "id": int(number), "position": list(position)}:
                        self._begin_call(number, name, decode(args), tuple(map(int, position)))
                    case {"give_up": int(number)}:
                        if group := self._running.get(number):
                            group.failure = Ended()
                    case {"error": dict(error)}:
                        raise error_from_message(error, self._source)
                    case {"value": value, "memory": memory, "put": put, "signal": signal, "usage": usage}:
                        return Result(
                            value=decode(value),
                            memory=decode(memory),
                            put=bool(put),
                            signal=signal if signal in ("return", "fail") else None,
                            usage=Usage(**usage),
                        )
                    case _:
                        raise BadMessage("neither a call, an error nor a result")
        except Disconnected:  # the child was ended by its clock, or else ran out of memory
            used_ms = (time.monotonic() - self._timeout.started) * 1000
            raise (too_long(self._limits) if used_ms >= self._limits.timeout_ms else _out_of_memory()) from None
        except (BadMessage, TypeError, ValueError, RecursionError) as error:
            raise LispError("memory_exceeded", "the program gave an answer that cannot be read") from error
        finally:
            self._threads.end()  # calls that still run are abandoned

    def _begin_call(self, number: int, name: str, args: dict[Any, Value], position: Position) -> None:
        """Call a tool and answer; in a thread of its own if the program can make calls in parallel."""
        if not self._parallel:
            answer = self._call_tool(name, args)
            self._timeout.check()
            self._channel.send({**answer, "id": number})
            return
        if len(self._running) > self._limits.parallel or number in self._running:
            raise BadMessage("too many calls at a time")
        group = self._running[number] = Group()

        def call() -> None:
            try:
                answer = self._call_tool(name, args)
            except BaseException as error:  # raised again where the result is waited for
                self._timeout.failure = error
                return
            del self._running[number]
            with self._lock, contextlib.suppress(Disconnected):
                self._channel.send({**answer, "id": number})

        context = copy_context()
        threading.Thread(
            target=lambda: context.run(run_as_call, self._threads, position, group, call),
            name=f"call of {name}",
            daemon=True,
        ).start()

    def _call_tool(self, name: str, args: dict[Any, Value]) -> Json:
        """Call a tool and return the message for the child; errors the program may not catch leave this function."""
        assert self._tools is not None
        with self._timeout.in_tool():
            try:
                return {"value": encode(self._tools(name, args), Budget(self._limits))}
            except LispError as error:
                return {"error": error_message(error)}
            except ToolError as error:
                return {"tool_error": str(error)}
            except Signal as signal:
                return {"signal": signal.name, "value": encode(signal.value, Budget(self._limits))}


def _is_parallel(source: str, limits: Limits) -> bool:
    """Return whether a program may make calls in parallel."""
    return limits.parallel > 1 and any(word in source for word in ("pmap", "pcalls", "pvalues", "future"))


# -- The fork server and its children


Compile = Callable[[str], "Program"]

ADDRESS_SPACE: Final = 512 * 1024 * 1024
"""Bytes a child may map beyond what the fork server has mapped."""

GRACE_S: Final = 0.25
"""Seconds that a program may run beyond its timeout, to report which limit it hit."""


def fork_children(control: int, compile: Compile) -> None:
    """Fork a child for each pair of descriptors that arrives on the socket ``control``; return when it is closed."""
    # Import lazily imported modules now: a child can open no files.
    compile('(str (re-find #"é" "é") (count "e\u0301") (call "t" {}))').run(
        context={}, memory={}, tools=lambda name, args: None, limits=Limits()
    )
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children leave no zombies
    gc.collect()
    gc.freeze()  # else the first collection in a child copies every page
    with socket.socket(fileno=control) as requests:
        while True:
            _, given, _, _ = socket.recv_fds(requests, 1, 2)
            if len(given) != 2:
                return
            if os.fork() == 0:
                _child(given[0], given[1], compile)
            for descriptor in given:
                os.close(descriptor)


def _child(channel: int, lifeline: int, compile: Compile) -> None:
    status = 1
    try:
        channel, lifeline = _close_all_but(channel, lifeline)
        _end_with(lifeline)
        with socket.socket(fileno=channel) as peer:
            _serve(Channel(peer), compile)
        status = 0
    finally:
        os._exit(status)  # exit handlers and buffers belong to the fork server


def _close_all_but(*kept: int) -> tuple[int, ...]:
    """Move ``kept`` to 3, 4, … and close everything above; 0 to 2 are the null device."""
    spare = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3 + len(kept)) for descriptor in kept]
    for target, source in enumerate(spare, start=3):
        os.dup2(source, target, inheritable=False)
    os.closerange(3 + len(kept), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return tuple(range(3, 3 + len(kept)))


def _end_with(lifeline: int) -> None:
    """End this process when the other end of ``lifeline`` is closed, even inside a long computation in C."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        if os.read(lifeline, 1) == b"":  # closed before the signal was set up
            os._exit(1)
    except BlockingIOError:
        pass


def _lower_limits(timeout_s: float) -> None:
    """Lower the limits of this process for good: no files, no children, no core, bounded memory and CPU time."""
    cpu = int(timeout_s + GRACE_S) + 2
    space = _mapped_bytes() + ADDRESS_SPACE
    for limit, value in (
        (resource.RLIMIT_AS, space),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _mapped_bytes() -> int:
    """Return the bytes of address space in use; a guess where the kernel neither tells nor limits them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 2 * ADDRESS_SPACE


class _WallClock:
    """A timer after which the kernel ends this process; it can be stopped while a tool runs."""

    def __init__(self, seconds: float) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self._left = seconds

    def start(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._left)

    def stop(self) -> None:
        self._left = max(signal.setitimer(signal.ITIMER_REAL, 0)[0], 0.001)


def _serve(channel: Channel, compile: Compile) -> None:
    """Run the one program that arrives on the channel and send its result."""
    request = channel.receive()
    limits = Limits(**request["limits"])
    if _is_parallel(request["program"], limits):
        start_early(limits.parallel)  # none can be started within the limits of the process
    _lower_limits(limits.timeout_ms / 1000)
    clock = _WallClock(limits.timeout_ms / 1000 + GRACE_S)
    channel.send({"ready": True})
    clock.start()
    tools = _RemoteTools(channel, clock, limits) if request["tools"] else None
    try:
        result = compile(request["program"]).run(
            context=decode(request["context"]), memory=decode(request["memory"]), tools=tools, limits=limits
        )
        budget = Budget(limits)
        try:
            value, memory = encode(result.value, budget), encode(result.memory, budget)
        except LispError as error:
            error.undone = result.put
            raise
        usage = asdict(result.usage)
        answer = {"value": value, "memory": memory, "put": result.put, "signal": result.signal, "usage": usage}
    except LispError as error:
        answer = {"error": error_message(error)}
    except MemoryError:
        answer = {"error": error_message(_out_of_memory())}
    channel.send(answer)


class _RemoteTools:
    """Asks the caller to call a tool; threads of the program may have several calls at a time.

    While any of them runs, the wall clock is stopped; threads that compute meanwhile are limited by the budget and
    the CPU time.
    """

    def __init__(self, channel: Channel, clock: _WallClock, limits: Limits) -> None:
        self._channel = channel
        self._clock = clock
        self._limits = limits
        self._changed = threading.Condition()
        self._calls = 0
        self._waiting = 0
        self._reading = False
        self._answers: dict[int, Json] = {}

    def __call__(self, name: str, args: dict[Any, Value]) -> Value:
        call = {"call": name, "args": encode(args, Budget(self._limits)), "position": list(running_call())}
        with self._changed:
            self._calls += 1
            number = self._calls
            if self._waiting == 0 and not self._limits.tool_time_counts:
                self._clock.stop()
            self._waiting += 1
            self._channel.send({**call, "id": number})
        answer = self._answer(number)
        with self._changed:
            self._waiting -= 1
            if self._waiting == 0 and not self._limits.tool_time_counts:
                self._clock.start()
        match answer:
            case {"error": error}:
                raise error_from_message(error)
            case {"tool_error": message}:
                raise ToolError(message)
            case {"signal": "return", "value": value}:
                raise Return(decode(value))
            case {"signal": "fail", "value": value}:
                raise Fail(decode(value))
            case _:
                return decode(answer["value"])

    def _answer(self, number: int) -> Json:
        """Wait for the answer to a call; one waiting thread reads for all."""
        given_up = False
        while True:
            with self._changed:
                if not given_up and is_abandoned():
                    given_up = True
                    self._channel.send({"give_up": number})
                if number in self._answers:
                    return self._answers.pop(number)
                if self._reading:
                    self._changed.wait(_SLICE_MS / 1000)
                    continue
                self._reading = True
            answer = None
            try:
                if self._channel.is_ready(_SLICE_MS):
                    answer = self._channel.receive()
            finally:
                with self._changed:
                    self._reading = False
                    if answer is not None:
                        self._answers[answer["id"]] = answer
                    self._changed.notify_all()
