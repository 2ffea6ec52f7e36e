"""The model of the benchmarks, a process of its own: it does what the last prompt says.

=========================  ==============================================================================
prompt                     answer
=========================  ==============================================================================
``burst COUNT``            so many pieces of the corpus, as fast as the socket takes them
``paced RATE SECONDS``     pieces at a rate
``spurts RATE SECONDS``    the same, a second of silence after every three as when a tool works
``clock RATE SECONDS``     pieces at a rate, each the time at which it is sent
``arrival``                the time at which the request had come
``turns COUNT``            so many calls of Read, one an answer, then a word; ``after MS``: each a while later
``call SIZE``              a call of Write with so many characters, then a word
``bomb NUMBER``            the program of that number in the bomb corpus, wherever in the prompt this stands
=========================  ==============================================================================

``python -m tests.bench.model`` prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import functools
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.bench import corpus
from tests.lisp.bombs.corpus import BOMBS
from tests.server import ModelServer, answer, burst, tool_turns
from tests.server.answers import Answer, Scripted, sse, text
from tests.server.http import Pause, Reply, Request, Step, event_stream

_PER_WRITE = 50  # pieces in one write of a burst
_WRITES_A_SECOND = 200  # of a paced answer, at most; faster ones say several pieces at once
_NOBODY = Request(method="POST", path="/v1/messages", headers={}, body={"model": "bench", "stream": True})
_BOMB = re.compile(r"\bbomb (\d+)\b")
FILE = "notes.md"  # what a turn reads


@functools.cache
def _frame() -> tuple[bytes, bytes]:
    """Return what comes before the pieces of an answer, and after."""
    events = list(answer(text("")).events(_NOBODY))
    stop = next(number for number, event in enumerate(events) if event["type"] == "content_block_stop")
    return b"".join(map(sse, events[:stop])), b"".join(map(sse, events[stop:]))


def _delta(piece: str) -> bytes:
    return sse({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})


@functools.cache
def _writes(count: int, size: int) -> tuple[bytes, ...]:
    """Return ``count`` pieces, encoded, ``size`` in each write."""
    events = [_delta(piece) for piece in corpus.pieces(count)]
    return tuple(b"".join(events[start : start + size]) for start in range(0, count, size))


@dataclass(frozen=True, slots=True)
class Burst:
    """Pieces as fast as possible."""

    writes: Sequence[bytes]

    def reply(self, request: Request) -> Reply:
        head, tail = _frame()
        return event_stream([head, *self.writes, tail])


@dataclass(frozen=True, slots=True)
class Paced:
    """Writes at a rate; what is late is sent at once, so that the rate holds on average. None is the time."""

    rate: float
    writes: Sequence[bytes | None]
    spurt_s: float = math.inf  # after so many seconds there is one of silence

    def reply(self, request: Request) -> Reply:
        return event_stream(self._steps())

    def _steps(self) -> Iterator[Step]:
        head, tail = _frame()
        yield head
        start = time.monotonic()
        for number, write in enumerate(self.writes):
            silence = number / self.rate // self.spurt_s
            if (wait := start + number / self.rate + silence - time.monotonic()) > 0:
                yield Pause(wait)
            yield _delta(f"{time.time():.4f}{_end(number)}") if write is None else write
        yield tail


@dataclass(frozen=True, slots=True)
class Late:
    """An answer in one piece, a while after the request: whoever asked for it has nothing else to do by then."""

    answer: Answer
    after_ms: int

    def reply(self, request: Request) -> Reply:
        return event_stream([Pause(self.after_ms / 1000), b"".join(map(sse, self.answer.events(request)))])


def _end(number: int) -> str:
    return "\n\n" if number % 40 == 39 else " "  # paragraphs; Emacs is slow where a line is very long


def _paced(rate: int, seconds: float) -> Paced:
    size = max(1, rate // _WRITES_A_SECOND)
    return Paced(rate / size, _writes(int(rate * seconds), size))


def respond(request: Request) -> Scripted:
    """Return the answer to the last prompt."""
    if bomb := _BOMB.search(prompt_of(request)):
        return answer(text(f"```clojure\n{BOMBS[int(bomb[1])].program}\n```"))
    match prompt_of(request).split():
        case ["burst", count]:
            return Burst(_writes(int(count), _PER_WRITE))
        case ["paced", rate, seconds]:
            return _paced(int(rate), float(seconds))
        case ["spurts", rate, seconds]:
            return replace(_paced(int(rate), 0.75 * float(seconds)), spurt_s=3)
        case ["clock", rate, seconds]:
            return Paced(int(rate), [None] * int(int(rate) * float(seconds)))
        case ["arrival"]:
            return Burst([_delta(f"{time.time():.4f} ")])
        case ["turns", count, *after]:
            turn = tool_turns(int(count), name="Read", file_path=FILE)(request)
            return Late(turn, int(after[1])) if after else turn
        case ["call", size]:
            return tool_turns(1, name="Write", file_path="large.txt", content="word " * (int(size) // 5))(request)
        case unknown:
            return burst(1, word=f"no such benchmark: {unknown[:5]}")


def prompt_of(request: Request) -> str:
    """Return the last text of the user."""
    for message in reversed(request.messages):
        if message["role"] == "user":
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if texts := [block["text"] for block in blocks if block["type"] == "text"]:
                return texts[-1]
    return ""


def main() -> None:
    with ModelServer(rule=respond) as server:
        print(server.port, flush=True)
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
