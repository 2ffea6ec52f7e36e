"""Blocking work of many branches in few threads; failures go to whoever waits for them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pyagentd.runtime import recorder as subject
from pyagentd.runtime.recorder import DiskWorker, disk_worker


async def test_what_is_asked_at_once_is_done_in_few_threads() -> None:
    made, threads = DiskWorker(), []
    await asyncio.gather(*(made.do(lambda: threads.append(threading.get_ident())) for _ in range(200)))
    assert len(threads) == 200
    assert len(set(threads)) <= subject._THREADS
    assert threading.get_ident() not in threads


async def test_a_failure_is_told_to_whoever_waits_for_it_and_nobody_else() -> None:
    def refuse() -> None:
        raise OSError("no")

    made = DiskWorker()
    good, bad, also = await asyncio.gather(
        made.do(lambda: None), made.do(refuse), made.do(lambda: None), return_exceptions=True
    )
    assert good is None and also is None and isinstance(bad, OSError)


async def test_who_stops_waiting_stops_nobody_else() -> None:
    made, release = DiskWorker(), threading.Event()
    first, second = made.do(release.wait), made.do(lambda: None)  # type: ignore[arg-type]
    first.cancel()
    release.set()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_there_is_one_for_a_loop() -> None:
    assert disk_worker() is disk_worker()
