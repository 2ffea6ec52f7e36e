"""Keeps the search index up to date, in a thread that reads what changed.

A branch that the daemon writes is marked for indexing. The stamps of all branches' files are compared soon after the
start and before a search, because other programs and machines write sessions too. An error here does not affect a
run: it is logged, and a search reports it.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from pyagentd.errors import StoreError
from pyagentd.store import paths
from pyagentd.store.db.projection import Facts, HitRow, Projection, Query, Scope, Stamps, mtime_ns, search, stamps_of
from pyagentd.store.db.state import Damaged, State, StateError
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry, is_finished

log = logging.getLogger(__name__)

FIRST_SWEEP_S = 2.0  # after the start, which has priority
FRESH_S = 3.0  # a search accepts a sweep of this age
FRESH_FACTOR = 20  # ... or of so many times the duration of a sweep
PAUSE_S = 0.2  # until a changed branch is indexed, with later changes; a search does not wait for it
REST = 20  # pause after indexing a branch, in multiples of the time that took; a search does not wait for it
PATIENCE_S = 2.0  # a search waits so long for the index
_ELSEWHERE = "elsewhere"

Progress = Callable[[int, int], None]  # done, of how many


class SearchReply(TypedDict):
    """The hits of a search, best first."""

    hits: list[HitRow]
    more: bool  # there are further hits
    indexing: bool  # the index is still being built
    problem: str | None  # why the index may be out of date


@dataclass(slots=True)
class _Job:
    """A sweep over all branches, for a waiting caller."""

    anew: bool = False  # empty the tables first
    progress: Progress | None = None
    done: Future[None] = field(default_factory=Future)


class Indexer:
    """The index of one sessions root, and the thread that keeps it up to date.

    Args:
        state: The database; the indexer closes it.
        registry: The known branches; the indexer adds those outside the root from the database.

    Attributes:
        problem: Why the index may be out of date, or "".
        unfinished: Called, in the thread, with branches whose last run may have no end, after they were indexed.
    """

    def __init__(self, state: State, registry: Registry) -> None:
        self.projection = Projection(state, registry.root)
        self._state = state
        self._registry = registry
        self._thread = threading.Thread(target=self._work, name="indexer", daemon=True)
        self._wake = threading.Condition()
        self._closing = False
        self._dirty: dict[str, BranchRef] = {}
        self._resting: dict[str, float] = {}  # monotonic time, by branch
        self._jobs: list[_Job] = []
        self._swept_at = float("-inf")
        self._swept_in = 0.0
        self.problem = ""
        self._failed: dict[str, Stamps] = {}  # branches that could not be indexed, with their stamps then
        self._elsewhere: frozenset[Path] | None = None  # as in the database
        self.unfinished: Callable[[BranchRef], None] = lambda ref: None

    def start(self) -> None:
        """Recall the sessions outside the root, and start the thread."""
        with contextlib.suppress(StateError):  # the first sweep reports it
            self._recall_elsewhere()
        self._thread.start()

    def close(self) -> None:
        """Stop after the current branch; the next start finds the rest. Blocks until then."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._state.close()

    # -- from the runtime -----------------------------------------------------------------------------------------

    def branch_written(self, ref: BranchRef) -> None:
        """Mark a branch to be indexed soon."""
        self._registry.add(ref)
        with self._wake:
            if ref.key not in self._dirty:
                self._dirty[ref.key] = ref
                self._resting[ref.key] = max(self._resting.get(ref.key, 0.0), time.monotonic() + PAUSE_S)
                self._wake.notify()

    # -- for operations ----------------------------------------------------------------------------------------

    async def search(self, query: Query, *, limit: int, scope: Scope) -> SearchReply:
        """Search an index that is as fresh as ``PATIENCE_S`` allows.

        Raises:
            StoreError: The database cannot be used.
        """
        complete = await self.fresh()
        try:
            hits, more = await asyncio.to_thread(
                search, self._state, self.projection, query, limit=limit, scope=scope
            )
        except StateError as error:
            raise _of_index(error) from error
        return {"hits": hits, "more": more, "indexing": not complete, "problem": self.problem or None}

    async def reindex(self, progress: Progress) -> tuple[int, int]:
        """Rebuild the index; return the numbers of branches and messages.

        ``progress`` is called in the event loop.

        Raises:
            StoreError: The database cannot be used.
        """
        loop = asyncio.get_running_loop()

        def tell(done: int, of: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(progress, done, of)

        job = _Job(anew=True, progress=tell)
        await asyncio.wrap_future(self._ask(job))
        return await asyncio.to_thread(self.projection.totals)

    def facts(self) -> Mapping[str, Facts]:
        """Return the indexed facts for a list of sessions, by branch directory; blocks, for a thread."""
        try:
            return {self.projection.place(key): facts for key, facts in self.projection.facts().items()}
        except StateError as error:
            log.warning("the index cannot be used, sessions are listed from their files: %s", error)
            return {}

    async def fresh(self) -> bool:
        """Wait a while for the index to be up to date; return whether it is, or has a ``problem``."""
        age = time.monotonic() - self._swept_at
        if age < max(FRESH_S, FRESH_FACTOR * self._swept_in) and not self._dirty:
            return True
        waiting = asyncio.wrap_future(self._ask(_Job()))
        done, _ = await asyncio.wait([waiting], timeout=PATIENCE_S)
        if done and waiting.exception() is not None:
            return True  # waiting does not help; the reply has the problem
        return bool(done)

    def _ask(self, job: _Job) -> Future[None]:
        with self._wake:
            if self._closing:
                job.done.set_exception(StoreError("The daemon is stopping"))
            else:
                self._jobs.append(job)
                self._wake.notify()
        return job.done

    # -- the thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        first: float | None = time.monotonic() + FIRST_SWEEP_S
        while True:
            with self._wake:
                if not (self._closing or self._jobs):
                    self._wake.wait(self._timeout(first))
                jobs, self._jobs = self._jobs, []
                closing = self._closing
            jobs = [job for job in jobs if job.done.set_running_or_notify_cancel()]
            if closing:
                self._remember_elsewhere()
                _settle(jobs, StoreError("The daemon is stopping"))
                return
            if first is not None and (jobs or time.monotonic() >= first):
                jobs, first = jobs or [_Job()], None
            self._serve(jobs)

    def _timeout(self, first: float | None) -> float | None:
        """Return the seconds until the first sweep or until a marked branch is due, whichever comes first."""
        due = [self._resting.get(key, 0.0) for key in self._dirty] + ([] if first is None else [first])
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _serve(self, jobs: list[_Job]) -> None:
        problem: Exception | None = None
        try:
            self._update_dirty(at_once=bool(jobs))
            if jobs:
                self._sweep(jobs)
        except _DaemonStopping:
            problem = StoreError("The daemon is stopping")
        except StateError as error:
            problem = _of_index(error)
            self._note_problem(problem)
        except Exception as error:  # outermost handler of this thread
            problem = error
            log.exception("the index could not be brought up to date")
            self._note_problem(error)
        _settle(jobs, problem)

    def _sweep(self, jobs: list[_Job]) -> None:
        """Update the whole index, for a search or a rebuild."""
        anew = any(job.anew for job in jobs)
        for attempt in range(2):
            try:
                if anew and attempt == 0:
                    self._failed.clear()
                    self.projection.clear()
                self._look_at_all(jobs)
                break
            except Damaged:
                if attempt:
                    raise
        self._swept_at = time.monotonic()
        self.problem = ""

    def _look_at_all(self, jobs: list[_Job]) -> None:
        started = time.monotonic()
        refs = {self.projection.key(ref.branch_dir): ref for ref in self._registry.branches()}
        known = self.projection.stamps()
        self.projection.drop(known.keys() - refs.keys())
        changed = []
        for key, ref in refs.items():
            stamps = stamps_of(ref.key)
            if stamps not in (known.get(key), self._failed.get(key)):
                changed.append((mtime_ns(stamps.journal), ref))
        self._swept_in = time.monotonic() - started
        changed.sort(key=lambda each: each[0])  # newest last, as if they had been indexed when written
        for done, (_, ref) in enumerate(changed):
            if self._closing:
                raise _DaemonStopping
            _report(jobs, len(refs) - len(changed) + done, len(refs))
            self._update_dirty(at_once=True)
            self._update(ref)
            if not is_finished(paths.journal_file(ref.branch_dir)):
                self.unfinished(ref)
        _report(jobs, len(refs), len(refs))
        self._keep_elsewhere()

    def _update_dirty(self, *, at_once: bool) -> None:
        """Index the marked branches; one that changes again soon waits in between."""
        while not self._closing:
            began = time.monotonic()
            with self._wake:
                ready = (key for key in self._dirty if at_once or self._resting.get(key, 0.0) <= began)
                if (key := next(ready, None)) is None:
                    return
                ref = self._dirty.pop(key)
            self._update(ref)
            self._keep_elsewhere()
            ended = time.monotonic()
            self._resting[key] = ended + REST * (ended - began)

    def _update(self, ref: BranchRef) -> None:
        stamps = stamps_of(ref.key)
        if not (stamps.document or stamps.journal) or self._registry.has_departed(ref):  # deleted since it was marked
            self.projection.drop([self.projection.key(ref.branch_dir)])
            return
        try:
            self.projection.update(ref)
            self.problem = ""
        except StateError:
            raise
        except Exception:  # one branch that cannot be read must not hide the others
            log.exception("%s cannot be indexed", ref.key)
            self._failed[self.projection.key(ref.branch_dir)] = stamps

    def _note_problem(self, error: Exception) -> None:
        if str(error) != self.problem:
            log.error("the index is not up to date: %s", error)
        self.problem = str(error)

    def _recall_elsewhere(self) -> None:
        known = [Path(directory) for directory in self._state.get(_ELSEWHERE, [])]
        self._registry.add_elsewhere(known)
        self._elsewhere = frozenset(known)

    def _remember_elsewhere(self) -> None:
        """Record sessions outside the root at the end: unlike those in it, the next start does not find them."""
        try:
            if self._registry.elsewhere:
                self._keep_elsewhere()
        except StoreError as error:
            log.warning("sessions outside the sessions root are not known after the next start: %s", error)

    def _keep_elsewhere(self) -> None:
        if self._elsewhere is None:
            self._recall_elsewhere()
        if (now := self._registry.elsewhere) != self._elsewhere:
            self._state.put(_ELSEWHERE, sorted(map(str, now)))
            self._elsewhere = now


class _DaemonStopping(Exception):
    """The thread stops, since the daemon does."""


def _of_index(error: StateError) -> StateError:
    """Return the error with a hint for a search, where the database is needed for the index alone."""
    return StateError(error.message, hint=f"Sessions are not affected, only search is. {error.hint}")


def _settle(jobs: Iterable[_Job], problem: Exception | None) -> None:
    for job in jobs:
        if problem is None:
            job.done.set_result(None)
        else:
            job.done.set_exception(problem)


def _report(jobs: Iterable[_Job], done: int, of: int) -> None:
    for job in jobs:
        if job.progress is not None:
            job.progress(done, of)
