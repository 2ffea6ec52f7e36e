"""Budgets: what a tree of missions may still spend, and which mission of the tree is running here.

One ``Budget`` is shared by reference through the whole tree, so that turns of children count. A ``Scope`` is one
mission of it; the innermost one of this thread of work is ``current()``, a context variable, so that a tool written
as plain Python which calls ``delegate`` spends from the same budget without knowing it.
"""

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pyagentd.mission.firewall import Firewall
from pyagentd.mission.options import LLM, MAX_DEPTH, TURN_BUDGET, ValidationMode
from pyagentd.mission.step import Step, Usage
from pyagentd.mission.telemetry import Listener


class Budget:
    """The turns of a whole tree; safe to share between threads."""

    def __init__(self, *, turns: int = TURN_BUDGET, depth: int = MAX_DEPTH, used: int = 0) -> None:
        self.turns = turns
        self.depth = depth
        self._used = used
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """Turns taken so far, by any mission of the tree."""
        return self._used

    @property
    def left(self) -> int:
        """Turns still to take."""
        return max(0, self.turns - self._used)

    def take_turn(self) -> bool:
        """Take one turn; return whether there was one."""
        with self._lock:
            if self._used >= self.turns:
                return False
            self._used += 1
            return True


@dataclass(slots=True, kw_only=True)
class Scope:
    """One running mission, as the missions that its tools start (its children) see it.

    Attributes:
        budget: Shared by the tree.
        depth: 0 for a mission that nothing delegated.
        deadline: When it has to be over, in seconds of ``monotonic``; never later than its parent's.
        max_cost_usd: The most that it and its children may cost, or None.
        span_id: The span of the tool call that a child runs in.
        llm: The callback it uses: the ``caller`` of a tool that brings none of its own.
        models: The registry it looks names up in.
        signature_validation: Its mode.
        firewall: Between its values and its model.
        telemetry: Its listener, which its children use too.
        parent: The mission whose tool started it, or None.
        cancelled: Whether it was cancelled.
        awaited: Waits for a coroutine on the event loop of the tree's caller; None without one.
    """

    budget: Budget
    depth: int = 0
    deadline: float = float("inf")
    max_cost_usd: float | None = None
    span_id: str | None = None
    llm: LLM | None = None
    models: Mapping[str, Any] = field(default_factory=dict)
    signature_validation: ValidationMode = "enabled"
    firewall: Firewall | None = None
    telemetry: Listener | None = None
    parent: "Scope | None" = None
    cancelled: Callable[[], bool] = lambda: False
    awaited: Callable[[Awaitable[Any], float], Any] | None = None
    _spent: Usage = field(default_factory=Usage)
    _ended: list[Step] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def spent(self) -> Usage:
        """What this mission and its children have spent so far, those still running too."""
        return self._spent

    def spend(self, usage: Usage) -> None:
        """Count ``usage`` here and in every parent."""
        with self._lock:
            self._spent = self._spent.plus(usage)
        if self.parent:
            self.parent.spend(usage)

    def resume(self, usage: Usage) -> None:
        """Begin with what was spent before a checkpoint."""
        self._spent = usage

    def overspent(self) -> "Scope | None":
        """Return the mission, this one or a parent, that has cost more than it may."""
        if self.max_cost_usd is not None and self._spent.cost_usd > self.max_cost_usd:
            return self
        return self.parent.overspent() if self.parent else None

    def limits_cost(self) -> bool:
        """Return whether this mission or a parent has a cost limit."""
        return self.max_cost_usd is not None or (self.parent is not None and self.parent.limits_cost())

    def ended(self, step: Step) -> None:
        """Keep the step of a child that ended."""
        with self._lock:
            self._ended.append(step)

    def take_ended(self) -> tuple[Step, ...]:
        """Return the steps of the children that ended since the last call."""
        with self._lock:
            ended, self._ended = tuple(self._ended), []
        return ended


_current: ContextVar[Scope | None] = ContextVar("mission", default=None)


def current() -> Scope | None:
    """Return the mission that this code is a tool of, or None."""
    return _current.get()


@contextmanager
def entered(scope: Scope) -> Iterator[Scope]:
    """Make ``scope`` the current one inside."""
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)
