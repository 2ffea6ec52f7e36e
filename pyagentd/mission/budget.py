"""Budgets: what a tree of missions may still spend, and which mission is running in the current context.

All missions of a tree share one ``Budget``, so turns of children count. A ``Scope`` is one running mission. The
innermost one is ``current()``, a context variable: a tool in plain Python that calls ``delegate`` thereby spends from
the budget of the mission that called the tool.
"""

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pyagentd.mission.firewall import Firewall
from pyagentd.mission.options import LLM, MAX_DEPTH, TURN_BUDGET, ValidationMode
from pyagentd.mission.runtime import Listener
from pyagentd.mission.step import Step, Usage


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
        """Turns that remain."""
        return max(0, self.turns - self._used)

    def take_turn(self) -> bool:
        """Take one turn; return False when none remained."""
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
        depth: 0 for a mission without a parent.
        deadline: When it has to be over, in seconds of ``monotonic``; never later than its parent's.
        max_cost_usd: The most that it and its children may cost, or None.
        span_id: The span of the tool call that a child runs in.
        llm: Its callback, which a tool with ``llm="caller"`` uses too.
        models: The registry it looks names up in.
        signature_validation: How strictly values are checked.
        firewall: Hides private values from its model.
        telemetry: Its listener, which its children use too.
        parent: The mission whose tool started it, or None.
        cancelled: Whether it was cancelled.
        wait_for: Waits for a coroutine on the event loop of the tree's caller; None without one.
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
    wait_for: Callable[[Awaitable[Any], float], Any] | None = None
    _spent: Usage = field(default_factory=Usage)
    _children: list[Step] = field(default_factory=list)
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
        """Start from the usage of a checkpoint."""
        self._spent = usage

    def over_cost_limit(self) -> "Scope | None":
        """Return the mission, this one or an ancestor, that has exceeded its cost limit, or None."""
        if self.max_cost_usd is not None and self._spent.cost_usd > self.max_cost_usd:
            return self
        return self.parent.over_cost_limit() if self.parent else None

    def limits_cost(self) -> bool:
        """Return whether this mission or an ancestor has a cost limit."""
        return self.max_cost_usd is not None or (self.parent is not None and self.parent.limits_cost())

    def add_child(self, step: Step) -> None:
        """Record the step of a child that has ended."""
        with self._lock:
            self._children.append(step)

    def take_children(self) -> tuple[Step, ...]:
        """Return the steps of the children that have ended since the last call."""
        with self._lock:
            children, self._children = tuple(self._children), []
        return children


_current: ContextVar[Scope | None] = ContextVar("mission", default=None)


def current() -> Scope | None:
    """Return the mission whose tool is running in the current context, or None."""
    return _current.get()


@contextmanager
def entered(scope: Scope) -> Iterator[Scope]:
    """Make ``scope`` the current mission inside the ``with``."""
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)
