"""The states of a run: every move is in the table, and no other is possible."""

from __future__ import annotations

import pytest

from pyagentd.runtime.run import TERMINAL, TRANSITIONS, RunPhase, RunSignal, next_phase


def test_a_run_with_tools_passes_through_all_states() -> None:
    signals = ["request", "answer", "calls", "results", "request", "answer", "finish"]
    states = [RunPhase.INIT]
    for signal in signals:
        states.append(next_phase(states[-1], RunSignal(signal)))
    assert states == ["INIT", "WAIT", "TYPE", "TOOL", "TRET", "WAIT", "TYPE", "DONE"]


@pytest.mark.parametrize("state", sorted(set(RunPhase) - TERMINAL))
def test_every_live_state_can_fail_and_be_aborted(state: RunPhase) -> None:
    assert next_phase(state, RunSignal.FAIL) is RunPhase.ERRS
    assert next_phase(state, RunSignal.ABORT) is RunPhase.ABRT


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("signal", sorted(RunSignal))
def test_nothing_moves_a_run_that_has_ended(state: RunPhase, signal: RunSignal) -> None:
    with pytest.raises(ValueError, match="has ended"):
        next_phase(state, signal)


def test_a_run_cannot_finish_while_its_tools_run() -> None:
    with pytest.raises(ValueError, match="no move"):
        next_phase(RunPhase.TOOL, RunSignal.FINISH)


def test_every_state_is_reachable_and_every_live_one_has_moves() -> None:
    reached = {RunPhase.INIT, RunPhase.ABRT} | {target for moves in TRANSITIONS.values() for target in moves.values()}
    assert reached == set(RunPhase)
    assert set(TRANSITIONS) == set(RunPhase) - TERMINAL
