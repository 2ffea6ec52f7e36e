"""The benchmarks run and say what they are supposed to say; how fast things are is not tested."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tests.bench.benchmarks import BENCHMARKS
from tests.bench.figure import Fact, Figure, at_least, at_most
from tests.bench.world import World, new_world


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with new_world(quick=True) as world:
        yield world


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_glance_at_each_benchmark_gives_positive_figures_and_exact_texts(name: str, world: World) -> None:
    results = list(BENCHMARKS[name](world))
    world.close_editors()
    assert results
    for result in results:
        assert result.line()
        match result:
            case Fact():
                assert result.met, result.name
            case Figure():
                assert math.isfinite(result.value)
                assert result.value >= 0


def test_a_target_bounds_the_value_its_ratio_or_its_excess() -> None:
    def met(target: object, value: float) -> object:
        return Figure(name="x", value=value, unit="ms", reference=10.0, target=target).met  # type: ignore[arg-type]

    assert met(at_most(30), 30) and not met(at_most(30), 31)
    assert met(at_least(30), 30) and not met(at_least(30), 29)
    assert met(at_most(2, "ratio"), 20) and not met(at_most(2, "ratio"), 21)
    assert met(at_most(5, "excess"), 15) and not met(at_most(5, "excess"), 16)
    assert met(None, 1) is None


def test_a_line_shows_both_sides_and_the_verdict() -> None:
    figure = Figure(name="x", value=30.0, unit="ms", reference=10.0, beside="raw", target=at_most(2, "ratio"))
    assert figure.line().split() == ["x", "30", "ms", "10", "ms", "raw", "3.00×", "≤", "2×", "NO"]
