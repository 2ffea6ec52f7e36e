"""Parallel calls inside one program: ``pmap``, ``pcalls``, ``pvalues``, ``future`` and ``deref``.

Tools overlap, computing does not: only the thread that holds the run's baton computes, and it passes the baton on
while it waits for a tool. So a program behaves as if it had one thread, its budget needs no locks, and time in which
all of its threads wait is not computing time. Calls are recorded by their position in the program, not in the order
in which they end.
"""

import threading
import time
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from pyagentd.lisp.limits import Budget

_T = TypeVar("_T")

Position = tuple[int, ...]
"""The position of a call in a run: its number; of a parallel one, also the numbers of the item and the call in it."""


class OrderedRecords(Generic[_T]):
    """Records in the order of their positions."""

    __slots__ = ("_lock", "_positions", "items")

    def __init__(self) -> None:
        self.items: list[_T] = []
        self._positions: list[Position] = []
        self._lock = threading.Lock()

    def add(self, item: _T) -> None:
        """Add a record at the position of the call that is running."""
        with self._lock:
            where = _called.get()
            index = bisect(self._positions, where)
            self._positions.insert(index, where)
            self.items.insert(index, item)


class Ended(BaseException):
    """The program has ended or another call has failed: a thread of it stops without a result."""


class Group:
    """Calls that end together: the first failure cancels the others."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: BaseException | None = None


class Future:
    """A call that may still be running: the value of ``future``. It is not data, so it cannot leave the program."""

    __slots__ = ("done", "group", "place", "seen", "thunk", "value")

    def __init__(self, thunk: Callable[[], Any], group: Group, place: "Place") -> None:
        self.thunk = thunk
        self.group = group
        self.place = place
        self.done = threading.Event()
        self.value: Any = None
        self.seen = False

    def result(self) -> Any:
        """Wait for the value and return it, or raise the failure."""
        if not self.done.is_set():
            with self.place.threads.let_others_run():
                self.done.wait()
        self.seen = True
        if self.group.failure is not None:
            raise self.group.failure
        return self.value


class Place:
    """The state of a thread of a run: the prefix of its positions, and the number of its calls so far."""

    __slots__ = ("calls", "group", "outer", "prefix", "threads")

    def __init__(self, threads: "Threads", prefix: Position, group: Group | None, outer: "Place | None") -> None:
        self.threads = threads
        self.prefix = prefix
        self.group = group
        self.outer = outer
        self.calls = 0

    def next(self) -> Position:
        """Return the position of the next call."""
        self.calls += 1
        return (*self.prefix, self.calls)


_place: ContextVar[Place | None] = ContextVar("lisp_place", default=None)
_called: ContextVar[Position] = ContextVar("lisp_call", default=())


def is_abandoned() -> bool:
    """Return whether the parallel call in this context is cancelled: its program ended, or another call failed."""
    place = _place.get()
    while place is not None:
        if place.threads.ended or (place.group is not None and place.group.failure is not None):
            return True
        place = place.outer
    return False


def running_call() -> Position:
    """Return the position of the tool call that runs in this context."""
    return _called.get()


def run_as_call(threads: "Threads", position: Position, group: Group, function: Callable[[], None]) -> None:
    """Run the call of a program in another process at the position that it has in that program."""
    _place.set(Place(threads, position, group, _place.get()))
    _called.set(position)
    function()


_early: "SimpleQueue[Callable[[], None]] | None" = None


def start_early(count: int) -> None:
    """Start the threads of all later runs now, for a process that may start none while it runs a program."""
    global _early
    _early = SimpleQueue()
    for number in range(count):
        threading.Thread(target=_serve_runs, args=(_early,), name=f"program {number + 1}", daemon=True).start()


def _serve_runs(queue: "SimpleQueue[Callable[[], None]]") -> None:
    while True:
        queue.get()()


class Threads:
    """The threads of one run."""

    __slots__ = ("_baton", "_budget", "_freed", "_queue", "_root", "_unread", "_workers", "ended")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._baton: threading.Lock | None = None
        self._freed = 0.0
        self._queue: deque[Future] = deque()
        self._workers = 0
        self._unread: list[Future] = []
        self._root = Place(self, (), None, None)
        self.ended = False

    @property
    def place(self) -> Place:
        """Where the current thread is."""
        found = _place.get()
        return found if found is not None and found.threads is self else self._root

    @property
    def is_inside(self) -> bool:
        """Whether the current thread runs one of several parallel calls."""
        return self.place is not self._root

    @contextmanager
    def let_others_run(self) -> Iterator[None]:
        """Let other threads of the run compute meanwhile; if none does, the time does not count."""
        self._check()
        baton = self._baton
        if baton is None:
            started = time.monotonic()
            try:
                yield
            finally:
                self._exclude_time(time.monotonic() - started)
            return
        self._release(baton)
        try:
            yield
        finally:
            self._acquire(baton)
        self._check()

    def _check(self) -> None:
        group = self.place.group
        if self.ended or (group is not None and group.failure is not None):
            raise Ended

    @contextmanager
    def wait_for_tool(self) -> Iterator[None]:
        """Wait for a tool, at the next position."""
        token = _called.set(self.place.next())
        try:
            with self.let_others_run():
                yield
        finally:
            _called.reset(token)

    def _exclude_time(self, seconds: float) -> None:
        if not self._budget.limits.tool_time_counts:
            self._budget.pause(seconds)

    def _release(self, baton: threading.Lock) -> None:
        self._freed = time.monotonic()
        baton.release()

    def _acquire(self, baton: threading.Lock) -> None:
        baton.acquire()
        self._exclude_time(time.monotonic() - self._freed)

    def run_all(self, thunks: list[Callable[[], Any]]) -> list[Any]:
        """Return the results of calls that run in parallel, in their order; the first failure is raised."""
        if self._one_by_one or len(thunks) < 2:
            return [thunk() for thunk in thunks]
        group, prefix, outer = Group(), self.place.next(), _place.get()
        results: list[Any] = [None] * len(thunks)
        waiting = iter(enumerate(thunks))

        def some() -> None:
            for index, thunk in waiting:
                if group.failure is not None:
                    return
                _place.set(Place(self, (*prefix, index), group, outer))
                results[index] = thunk()

        own = Place(self, prefix, group, outer)
        lanes = [Future(some, group, own) for _ in range(min(self._budget.limits.parallel, len(thunks)))]
        for each in lanes:
            self._start(each)
        with self.let_others_run():
            for each in lanes:
                each.done.wait()
        if group.failure is not None:
            raise group.failure
        return results

    def future(self, thunk: Callable[[], Any]) -> Future:
        """Start a call and return its future."""
        group = Group()
        made = Future(thunk, group, Place(self, self.place.next(), group, _place.get()))
        self._unread.append(made)
        if self._one_by_one:
            token = _place.set(made.place)
            try:
                made.value = made.thunk()
            except Exception as error:
                group.failure = error
            finally:
                _place.reset(token)
                made.done.set()
        else:
            self._start(made)
        return made

    @property
    def _one_by_one(self) -> bool:
        """Whether parallel calls run one after another: inside of others, or because of the limit."""
        return self._budget.limits.parallel < 2 or self.is_inside

    def _start(self, future: Future) -> None:
        if self._baton is None:
            self._baton = threading.Lock()
            self._baton.acquire()
        self._queue.append(future)
        if self._workers < self._budget.limits.parallel:
            self._workers += 1
            context = copy_context()
            if _early is not None:
                _early.put(lambda: context.run(self._run_queued))
                return
            name = f"program {self._workers}"
            threading.Thread(target=lambda: context.run(self._run_queued), name=name, daemon=True).start()

    def _run_queued(self) -> None:
        """Run the calls that wait, one after another, in a thread of its own."""
        baton = self._baton
        assert baton is not None
        self._acquire(baton)
        try:
            while self._queue:
                future = self._queue.popleft()
                if future.group.failure is None and not self.ended:
                    _place.set(future.place)
                    try:
                        future.value = future.thunk()
                    except BaseException as error:  # raised again where the value is read
                        if future.group.failure is None:
                            future.group.failure = error
                future.done.set()
        finally:
            self._workers -= 1
            self._release(baton)

    def finish(self) -> None:
        """Wait for the futures that were never read; raise the first failure in the program's order."""
        for future in self._unread:
            if not future.seen:
                future.result()

    def end(self) -> None:
        """Stop the threads that still run: the program has ended."""
        self.ended = True
        if self._baton is not None:
            self._release(self._baton)
