"""The daemon's memory after a large case; ``make bench-memory`` measures the larger ones."""

from tests.bench.measure import memory_mb
from tests.bench.memory import during, large_call
from tests.bench.world import new_world
from tests.e2e.emacs import wait_for

_NOISE_MB = 16.0


def test_memory_that_a_call_of_ten_megabytes_took_comes_back() -> None:
    with new_world(quick=True) as world:
        pid = world.daemon()
        before = memory_mb(pid)
        peak = max(during(lambda: large_call(world), pid))
        most = before + max(_NOISE_MB, (peak - before) / 2)
        wait_for(lambda: memory_mb(pid) <= most, "the memory to come back", timeout_s=90)
