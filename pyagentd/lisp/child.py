"""What a child of the zygote does: hear one program, run it within its limits, say what came of it."""

import fcntl
import gc
import os
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pyagentd.errors import ToolError
from pyagentd.lisp.encoding import decode, encode
from pyagentd.lisp.errors import Fail, LispError, Return
from pyagentd.lisp.isolation import Conversation, Json, error_message, error_of
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.program import compile
from pyagentd.lisp.values import Value

# The process that children for isolated programs are forked from: one thread, the language imported, nothing else.
#
# A daemon has threads and an event loop and must not fork. So it starts this process once, with a clean interpreter,
# and hands it two descriptors per run over a socket: the run's conversation and its lifeline. The zygote forks (1
# ms) and forgets; the child lowers its own limits before it reads a byte of the program. It ends
#
# - when it has answered,
# - when the lifeline is closed at the other end, whatever it does then (SIGIO, whose default ends a process),
# - when its wall clock has run out (SIGALRM, likewise), which stands still while a tool is answered,
# - when its CPU time or address space has run out.
#
# The zygote ends when the socket does, so neither outlives the daemon.

ADDRESS_SPACE: Final = 512 * 1024 * 1024
"""Bytes a child may map beyond what the zygote has."""

GRACE_S: Final = 0.25
"""How long after its own timeout a program may go on, so that it can say itself what ran out."""

Serve = Callable[[socket.socket], None]


def main(control: int, serve: Serve) -> None:
    """Fork a child per pair of descriptors that arrives on ``control``; return when it is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children leave no zombies; their end of the conversation tells
    gc.collect()
    gc.freeze()  # else the first collection in a child copies every page
    with socket.socket(fileno=control) as orders:
        while True:
            _, given, _, _ = socket.recv_fds(orders, 1, 2)
            if len(given) != 2:
                return
            if os.fork() == 0:
                _child(given[0], given[1], serve)
            for descriptor in given:
                os.close(descriptor)


def _child(conversation: int, lifeline: int, serve: Serve) -> None:
    status = 1
    try:
        conversation, lifeline = _only(conversation, lifeline)
        _tie(lifeline)
        with socket.socket(fileno=conversation) as peer:
            serve(peer)
        status = 0
    finally:
        os._exit(status)  # no handlers, no flushing: nothing here is ours


def _only(*kept: int) -> tuple[int, ...]:
    """Move ``kept`` to 3, 4, … and close everything above; 0 to 2 are the null device."""
    spare = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3 + len(kept)) for descriptor in kept]
    for target, source in enumerate(spare, start=3):
        os.dup2(source, target, inheritable=False)
    os.closerange(3 + len(kept), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return tuple(range(3, 3 + len(kept)))


def _tie(lifeline: int) -> None:
    """End this process when the other end of ``lifeline`` is closed, even inside a long computation in C."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        if os.read(lifeline, 1) == b"":  # closed before we were tied to it
            os._exit(1)
    except BlockingIOError:
        pass


def confine(timeout_s: float) -> None:
    """Lower the limits of this process for good: no files, no children, no core, bounded memory and CPU time."""
    cpu = int(timeout_s + GRACE_S) + 2
    space = _mapped() + ADDRESS_SPACE
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


def _mapped() -> int:
    """Return the bytes of address space in use; 0 where the kernel does not tell (and bounds nothing either)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 2 * ADDRESS_SPACE


class WallClock:
    """A time after which the kernel ends this process; it stands still while a tool is answered."""

    def __init__(self, seconds: float) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self._left = seconds

    def go(self) -> None:
        """Let it run on."""
        signal.setitimer(signal.ITIMER_REAL, self._left)

    def stop(self) -> None:
        """Let it stand still."""
        self._left = max(signal.setitimer(signal.ITIMER_REAL, 0)[0], 0.001)


def prepare() -> None:
    """Import what is imported when first needed, here and once: a child can open no files."""
    compile('(str (re-find #"é" "é") (count "e\u0301") (call "t" {}))').run(tools=lambda name, args: None)


def serve(peer: socket.socket) -> None:
    """Run the one program that ``peer`` sends."""
    talk = Conversation(peer)
    request = talk.hear()
    limits = Limits(**request["limits"])
    confine(limits.timeout_ms / 1000)
    clock = WallClock(limits.timeout_ms / 1000 + GRACE_S)
    talk.say({"ready": True})
    clock.go()
    try:
        answer = _run(request, limits, _Tools(talk, clock, limits) if request["tools"] else None)
    except LispError as error:
        answer = {"error": error_message(error)}
    except MemoryError:
        answer = {"error": error_message(_out_of_memory())}
    talk.say(answer)


def _run(request: Json, limits: Limits, tools: Callable[[str, dict[Any, Value]], Value] | None) -> Json:
    result = compile(request["program"]).run(
        context=decode(request["context"]), memory=decode(request["memory"]), tools=tools, limits=limits
    )
    budget = Budget(limits)
    try:
        value, memory = encode(result.value, budget), encode(result.memory, budget)
    except LispError as error:
        error.undone = result.put
        raise
    return {
        "value": value,
        "memory": memory,
        "put": result.put,
        "signal": result.signal,
        "usage": asdict(result.usage),
    }


def _out_of_memory() -> LispError:
    return LispError(
        "memory_exceeded",
        "the program used more memory than its process may have",
        hint="Filter or aggregate before building new collections.",
    )


class _Tools:
    """Asks the other end to call a tool."""

    def __init__(self, talk: Conversation, clock: WallClock, limits: Limits) -> None:
        self._talk = talk
        self._clock = clock
        self._limits = limits

    def __call__(self, name: str, args: dict[Any, Value]) -> Value:
        question = {"call": name, "args": encode(args, Budget(self._limits))}
        if not self._limits.tool_time_counts:
            self._clock.stop()
        self._talk.say(question)
        answer = self._talk.hear()
        if not self._limits.tool_time_counts:
            self._clock.go()
        return _told(answer)


def _told(answer: Json) -> Value:
    match answer:
        case {"error": error}:
            raise error_of(error)
        case {"tool_error": message}:
            raise ToolError(message)
        case {"signal": "return", "value": value}:
            raise Return(decode(value))
        case {"signal": "fail", "value": value}:
            raise Fail(decode(value))
        case _:
            return decode(answer["value"])
