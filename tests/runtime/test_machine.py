"""The states of a run: every move is in the table, and no other is possible."""

from __future__ import annotations

import pytest

from pyagentd.runtime.run import TERMINAL, TRANSITIONS, Signal, State, advance


def test_a_run_with_tools_passes_through_all_states() -> None:
    signals = ["request", "answer", "calls", "results", "request", "answer", "finish"]
    states = [State.INIT]
    for signal in signals:
        states.append(advance(states[-1], Signal(signal)))
    assert states == ["INIT", "WAIT", "TYPE", "TOOL", "TRET", "WAIT", "TYPE", "DONE"]


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
def test_every_live_state_can_fail_and_be_aborted(state: State) -> None:
    assert advance(state, Signal.FAIL) is State.ERRS
    assert advance(state, Signal.ABORT) is State.ABRT


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("signal", sorted(Signal))
def test_nothing_moves_a_run_that_has_ended(state: State, signal: Signal) -> None:
    with pytest.raises(ValueError, match="has ended"):
        advance(state, signal)


def test_a_run_cannot_finish_while_its_tools_run() -> None:
    with pytest.raises(ValueError, match="no move"):
        advance(State.TOOL, Signal.FINISH)


def test_every_state_is_reachable_and_every_live_one_has_moves() -> None:
    reached = {State.INIT, State.ABRT} | {target for moves in TRANSITIONS.values() for target in moves.values()}
    assert reached == set(State)
    assert set(TRANSITIONS) == set(State) - TERMINAL
