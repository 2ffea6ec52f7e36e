"""Missions in parallel: ``gather`` and ``gather_sync``.

Each mission has its own memory and context; the steps are returned in the order of the missions, failed ones
included. Inside a mission's tool they use that mission's budget. ``gather_sync`` runs them in the caller's executor
or in its own threads; with a process pool, prompt and options must be picklable.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyagentd.errors import UserError
from pyagentd.mission.delegation import adelegate, delegate
from pyagentd.mission.runtime import error_text
from pyagentd.mission.step import Step, failed

MAX_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class Mission:
    """A mission to run later: the arguments of ``delegate``.

    Attributes:
        prompt: The prompt.
        options: The other arguments, ``llm`` among them.
    """

    prompt: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def run(self, **more: Any) -> Step:
        """Run it; ``more`` options take precedence."""
        return delegate(self.prompt, **{**self.options, **more})

    async def arun(self, **more: Any) -> Step:
        """Run it without blocking the event loop."""
        return await adelegate(self.prompt, **{**self.options, **more})


def mission(prompt: str, **options: Any) -> Mission:
    """Return a mission to run later: ``mission("…", llm=…, tools=…)``."""
    return Mission(prompt, options)


Runnable = Mission | tuple[str, Mapping[str, Any]] | Mapping[str, Any]
"""A mission, ``(prompt, options)``, or a dict of a prompt and options."""


async def gather(
    missions: Iterable[Runnable], *, max_concurrency: int = MAX_CONCURRENCY, **common: Any
) -> list[Step]:
    """Run missions at the same time and return their steps in order.

    Args:
        missions: The missions.
        max_concurrency: The largest number that run at once.
        common: Options for all missions; a mission's own take precedence.

    Cancelling it cancels the missions.
    """
    slots = asyncio.Semaphore(_checked(max_concurrency))

    async def run(each: Mission) -> Step:
        async with slots:
            try:
                return await each.arun()
            except Exception as error:  # an exception must not lose the results of the other missions
                return _broken(error)

    return list(await asyncio.gather(*(run(each) for each in _all(missions, common))))


def gather_sync(
    missions: Iterable[Runnable],
    *,
    max_concurrency: int = MAX_CONCURRENCY,
    executor: Executor | None = None,
    **common: Any,
) -> list[Step]:
    """Run missions in an executor and return their steps in order.

    Args:
        missions: The missions.
        max_concurrency: The largest number that are submitted at once.
        executor: Runs them; None creates a thread pool for this call.
        common: Options for all missions; a mission's own take precedence.
    """
    todo = _all(missions, common)
    limit = _checked(max_concurrency)
    if executor is not None:
        return _window(executor, todo, limit)
    with ThreadPoolExecutor(min(limit, len(todo)) or 1, thread_name_prefix="mission") as own:
        return _window(own, todo, limit)


def _window(executor: Executor, todo: list[Mission], limit: int) -> list[Step]:
    """Run ``todo`` with at most ``limit`` of them in the executor at any time."""
    steps: list[Step | None] = [None] * len(todo)
    running: dict[Future[Step], int] = {}
    waiting = iter(enumerate(todo))
    try:
        while True:
            while len(running) < limit and (following := next(waiting, None)) is not None:
                index, each = following
                running[executor.submit(_call_for(executor, each))] = index
            if not running:
                return [step for step in steps if step is not None]
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                steps[running.pop(done)] = _step(done)
    finally:
        for future in running:
            future.cancel()


def _call_for(executor: Executor, each: Mission) -> Callable[[], Step]:
    if isinstance(executor, ThreadPoolExecutor):  # so that its threads see the calling mission's budget
        return partial(copy_context().run, each.run)
    return each.run


def _step(done: Future[Step]) -> Step:
    try:
        return done.result()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # not picklable, a broken pool, a bug in a callback
        return _broken(error)


def _broken(error: BaseException) -> Step:
    return failed("error", f"The mission could not be run: {error_text(error) or type(error).__name__}")


def _all(missions: Iterable[Runnable], common: Mapping[str, Any]) -> list[Mission]:
    return [Mission(each.prompt, {**common, **each.options}) for each in map(_mission, missions)]


def _mission(given: Runnable) -> Mission:
    match given:
        case Mission():
            return given
        case (str() as prompt, Mapping() as options):
            return Mission(prompt, options)
        case Mapping() if isinstance(given.get("prompt"), str):
            return Mission(given["prompt"], {key: value for key, value in given.items() if key != "prompt"})
    raise UserError(f"{given!r} is not a mission", mend="Give mission(prompt, llm=…), (prompt, options), or a dict")


def _checked(limit: int) -> int:
    if limit < 1:
        raise UserError(f"max_concurrency is {limit}, and nothing would ever run", mend="Give at least 1")
    return limit
