"""The disk fails at one write of a turn, or from there on: what is shown, what is said, and how it goes on."""

from __future__ import annotations

import os
import random

import pytest

from tests.faults.disk import ERRORS
from tests.faults.turn import trouble
from tests.runtime.fixtures import world
from tests.runtime.world import World

__all__ = ["world"]

CALLS = 150  # of a turn, at least
SAMPLE = 12
SEED = int(os.environ.get("PYAGENTD_TEST_SEED", "1"))

_pick = random.Random(SEED)
FAULTS = [
    (number, _pick.choice(ERRORS), _pick.choice(["refuse", "late", "short"]), _pick.random() < 0.5)
    for number in sorted(_pick.sample(range(1, CALLS), SAMPLE))
]


@pytest.mark.parametrize(("at", "error", "how", "lasting"), FAULTS)
async def test_a_turn_whose_disk_fails_says_so_and_goes_on(
    world: World, at: int, error: int, how: str, lasting: bool
) -> None:
    ended, problems = await trouble(world, at=at, error=error, how=how, lasting=lasting)
    assert ended.hit
    assert not problems, (SEED, ended.message, ended.calls[at - 1 : at + 3])
