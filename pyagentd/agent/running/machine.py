"""The states of a run and what moves it between them: a table, no code (DESIGN §6).

The names are those gptel's users know. ``ABRT`` is reachable from everywhere and is therefore not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a run is."""

    INIT = "INIT"  # created, nothing sent
    WAIT = "WAIT"  # a request is on its way to the model
    TYPE = "TYPE"  # the model is answering
    TOOL = "TOOL"  # the tools it asked for are running
    TRET = "TRET"  # the step is recorded and another one follows
    COMPACT = "COMPACT"  # the conversation is being summarised, and nothing is answered
    DONE = "DONE"  # the model finished its answer
    ERRS = "ERRS"  # the provider, the disk or we failed
    ABRT = "ABRT"  # somebody stopped it


class Signal(StrEnum):
    """What happened to a run."""

    REQUEST = "request"
    RESUME = "resume"  # an earlier daemon ended while its tools waited
    COMPACT = "compact"
    ANSWER = "answer"
    CALLS = "calls"
    RESULTS = "results"
    PAUSE = "pause"  # the provider only took a breath: the answer goes on in the next request
    FINISH = "finish"
    FAIL = "fail"
    ABORT = "abort"


TRANSITIONS: Mapping[State, Mapping[Signal, State]] = {
    State.INIT: {
        Signal.REQUEST: State.WAIT,
        Signal.RESUME: State.TOOL,
        Signal.COMPACT: State.COMPACT,
        Signal.FAIL: State.ERRS,
    },
    State.COMPACT: {Signal.FINISH: State.DONE, Signal.FAIL: State.ERRS},
    State.WAIT: {Signal.ANSWER: State.TYPE, Signal.FAIL: State.ERRS},
    State.TYPE: {
        Signal.CALLS: State.TOOL,
        Signal.PAUSE: State.TRET,
        Signal.FINISH: State.DONE,
        Signal.FAIL: State.ERRS,
    },
    State.TOOL: {Signal.RESULTS: State.TRET, Signal.FAIL: State.ERRS},
    State.TRET: {Signal.REQUEST: State.WAIT, Signal.FINISH: State.DONE, Signal.FAIL: State.ERRS},
}

TERMINAL = frozenset({State.DONE, State.ERRS, State.ABRT})


def advance(state: State, signal: Signal) -> State:
    """Return the state after ``signal``.

    Raises:
        ValueError: The table has no such move; a programming error, never a consequence of input.
    """
    if state in TERMINAL:
        raise ValueError(f"a run in {state} has ended; {signal} cannot move it")
    if signal is Signal.ABORT:
        return State.ABRT
    try:
        return TRANSITIONS[state][signal]
    except KeyError:
        raise ValueError(f"no move from {state} by {signal}") from None
