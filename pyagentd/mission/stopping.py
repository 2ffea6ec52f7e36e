"""What keeps a mission from going on: its own limits, those of the missions around, and whoever cancels it."""

from __future__ import annotations

from pyagentd.mission.budget import Scope
from pyagentd.mission.options import Options
from pyagentd.mission.progress import Progress
from pyagentd.mission.runtime import Runtime
from pyagentd.mission.step import Fail, Usage


def before_turn(progress: Progress, options: Options, scope: Scope, runtime: Runtime) -> Fail | None:
    """Return what keeps the mission from another turn; takes a turn of the tree's budget if nothing does."""
    limit = options.max_consecutive_failures
    if limit is not None and progress.failures >= limit:
        return _stopped("max_consecutive_failures_exceeded", f"{_turns(limit)} in a row failed", progress)
    if progress.turn >= options.max_turns:
        message = f"The mission did not end within {_turns(options.max_turns)}"
        return _stopped("max_turns_exceeded", message, progress)
    if fail := at_any_time(scope, runtime):
        return fail
    if not scope.budget.take_turn():
        message = f"The mission and those below it used all of their {_turns(scope.budget.turns)}"
        return _stopped("turn_budget_exhausted", message, progress)
    scope.spend(Usage(turns=1))
    return None


def at_any_time(scope: Scope, runtime: Runtime) -> Fail | None:
    """Return what ends the mission even within a turn."""
    if runtime.cancelled():
        return Fail(reason="cancelled", message="The mission was cancelled")
    if runtime.monotonic() >= scope.deadline:
        return Fail(reason="mission_timeout", message="The mission took longer than it may")
    if over := scope.overspent():
        message = f"The mission cost ${over.spent.cost_usd:.4f}, and ${over.max_cost_usd:g} is the most"
        return Fail(reason="max_cost_exceeded", message=message)
    return None


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"


def _stopped(reason: str, message: str, progress: Progress) -> Fail:
    """Return a failure of the mission as a whole, with what the last turn failed of if it did."""
    last = progress.trace[-1].error if progress.trace else None
    if last is None:
        return Fail(reason=reason, message=message)
    details = {"last_error": {"reason": last.reason, "message": last.message}}
    return Fail(reason=reason, message=f"{message}; the last one failed: {last.message}", details=details)
