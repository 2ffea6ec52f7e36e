"""Who may go in together, and who alone."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from pyagentd.runtime.feature import Gate

Way = Callable[[Gate], AbstractAsyncContextManager[None]]


class Inside:
    """Tasks that are inside until they are let go."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.names, self._go = gate, set[str](), asyncio.Event()

    def enter(self, name: str, way: Way) -> asyncio.Task[None]:
        async def inside() -> None:
            async with way(self.gate):
                self.names.add(name)
                try:
                    await self._go.wait()
                finally:
                    self.names.discard(name)

        return asyncio.create_task(inside())

    def let_go(self) -> None:
        self._go.set()
        self._go = asyncio.Event()


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_those_that_look_are_in_together_and_one_that_changes_is_alone() -> None:
    place = Inside(Gate())
    tasks = [place.enter(name, Gate.beside) for name in ("a", "b")]
    await _settle()
    assert place.names == {"a", "b"}
    tasks += [place.enter("c", Gate.alone), place.enter("d", Gate.alone)]
    await _settle()
    assert place.names == {"a", "b"}
    place.let_go()
    await _settle()
    assert place.names == {"c"}
    tasks.append(place.enter("e", Gate.beside))
    await _settle()
    assert place.names == {"c"}
    while place.names:
        assert "d" not in place.names or len(place.names) == 1
        place.let_go()
        await _settle()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("way", [Gate.beside, Gate.alone])
async def test_who_is_cancelled_as_it_leaves_is_out(way: Way) -> None:
    place = Inside(Gate())
    first, second = place.enter("first", way), place.enter("second", Gate.alone)
    await _settle()
    assert place.names == {"first"}
    place.let_go()  # it leaves
    first.cancel()  # and is cancelled while it does
    await _settle()
    assert place.names == {"second"}
    place.let_go()
    await second


async def test_who_is_cancelled_while_it_waits_keeps_nobody_out() -> None:
    place = Inside(Gate())
    first, waiting = place.enter("first", Gate.alone), place.enter("waiting", Gate.beside)
    await _settle()
    waiting.cancel()
    place.let_go()
    await first
    third = place.enter("third", Gate.alone)
    await _settle()
    assert place.names == {"third"}
    place.let_go()
    await third
