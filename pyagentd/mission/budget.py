"""Budgets: what a tree of missions may still spend, and which mission is running in the current context.

All missions of a tree share one ``Budget``, so turns of children count. A ``Scope`` is one running mission. The
innermost one is ``current()``, a context variable: a tool in plain Python that calls ``delegate`` thereby spends from
the budget of the mission that called the tool.
"""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from pyagentd.mission.firewall import Firewall
from pyagentd.mission.options import LLM, MAX_DEPTH, TURN_BUDGET
from pyagentd.mission.runtime import LeftBehind, Runtime, call_foreign, call_until, run_here
from pyagentd.mission.step import Step, Usage

Activity = Literal["model", "tools", "programs"]


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
    """One running mission, as the missions that its tools start (its children) see it."""

    budget: Budget  # shared by the tree
    depth: int = 0  # 0 for a mission without a parent
    deadline: float = float("inf")  # in seconds of ``monotonic``; never later than its parent's
    limit_ms: int | None = None  # the limit that sets the deadline; None if the parent's or none does
    max_cost_usd: float | None = None  # the most that it and its children may cost
    llm: LLM | None = None  # its callback, also for tools with ``llm="caller"``
    models: Mapping[str, Any] = field(default_factory=dict)  # its registry of models
    firewall: Firewall | None = None
    runtime: Runtime = field(default_factory=Runtime)  # its listener and event loop are its children's too
    parent: "Scope | None" = None  # the mission whose tool started it
    times: dict[Activity, float] = field(default_factory=dict)  # seconds spent, by activity
    left_behind: list[str] = field(default_factory=list)  # calls that still ran in a thread at the deadline
    spent: Usage = field(default_factory=Usage)  # so far, with that of its children, running ones included
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def spend(self, usage: Usage) -> None:
        """Count ``usage`` here and in every parent."""
        with self._lock:
            self.spent = self.spent.plus(usage)
        if self.parent:
            self.parent.spend(usage)

    def add_time(self, activity: Activity, seconds: float) -> None:
        """Count ``seconds`` of this mission."""
        with self._lock:
            self.times[activity] = self.times.get(activity, 0.0) + seconds

    def over_cost_limit(self) -> "Scope | None":
        """Return the mission, this one or an ancestor, that has exceeded its cost limit, or None."""
        if self.max_cost_usd is not None and self.spent.cost_usd > self.max_cost_usd:
            return self
        return self.parent.over_cost_limit() if self.parent else None

    def limits_cost(self) -> bool:
        """Return whether this mission or an ancestor has a cost limit."""
        return self.max_cost_usd is not None or (self.parent is not None and self.parent.limits_cost())


@dataclass(slots=True)
class RunningCall:
    """A tool call while it runs, as the missions inside it see it."""

    span_id: str
    running: int = 0  # child missions
    children: list[Step[Any]] = field(default_factory=list)  # the steps of ended child missions
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start_child(self) -> None:
        """Count a mission that starts."""
        with self._lock:
            self.running += 1

    def add_child(self, step: Step[Any]) -> None:
        """Record the step of a mission that has ended."""
        with self._lock:
            self.running -= 1
            self.children.append(step)


_current: ContextVar[Scope | None] = ContextVar("mission", default=None)
_call: ContextVar[RunningCall | None] = ContextVar("mission_call", default=None)


def current() -> Scope | None:
    """Return the mission whose tool is running in the current context, or None."""
    return _current.get()


@contextmanager
def enter(scope: Scope) -> Iterator[Scope]:
    """Make ``scope`` the current mission inside the ``with``."""
    token, call = _current.set(scope), _call.set(None)
    try:
        yield scope
    finally:
        _call.reset(call)
        _current.reset(token)


def current_call() -> RunningCall | None:
    """Return the tool call that is running in the current context, or None."""
    return _call.get()


@contextmanager
def enter_call(span_id: str) -> Iterator[RunningCall]:
    """Make a new tool call the current one inside the ``with``."""
    call = RunningCall(span_id)
    token = _call.set(call)
    try:
        yield call
    finally:
        _call.reset(token)


def call_within(scope: Scope, what: str, function: Callable[..., Any], *args: Any, blocks: bool = True) -> Any:
    """Call a tool or model of a mission and await the result, at most until the mission's deadline.

    A coroutine is awaited on the event loop of the caller, and cancelled at the deadline. A function that ``blocks``
    runs in a new thread, and is left behind there at the deadline; without deadline and event loop, in this thread.

    Raises:
        TimeoutError: It did not finish in time; ``LeftBehind`` if it still runs.
        ForeignExit: It tried to end the process, or was cancelled.
    """
    runtime = scope.runtime

    def call() -> Any:
        result = call_foreign(function, *args)
        if inspect.isawaitable(result):
            return call_foreign(runtime.wait_for, result, scope.deadline - runtime.monotonic())
        return result

    if not blocks or (runtime.wait_for is run_here and scope.deadline == float("inf")):
        return call()
    inside = current_call()
    try:
        return call_until(scope.deadline, runtime, what, call, lambda: inside is not None and inside.running > 0)
    except LeftBehind as error:
        scope.left_behind.append(str(error))
        raise


def may_block(function: Any, runtime: Runtime) -> bool:
    """Return whether a call may block: false only for a coroutine function that an event loop awaits."""
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    return runtime.wait_for is run_here or not is_async
