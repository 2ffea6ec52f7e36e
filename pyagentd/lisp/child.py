"""What a child of the zygote does: hear one program, run it within its limits, say what came of it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pyagentd.errors import ToolError
from pyagentd.lisp.conversation import Conversation, Json, error_message, error_of
from pyagentd.lisp.encoding import decode, encode
from pyagentd.lisp.errors import Fail, LispError, Return
from pyagentd.lisp.limits import Budget, Limits
from pyagentd.lisp.program import compile
from pyagentd.lisp.values import Value
from pyagentd.lisp.zygote import GRACE_S, WallClock, confine


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
