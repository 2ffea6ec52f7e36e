"""``python -m tests.simulation``: many schedules; the first that fails is printed with its number."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from random import Random

import click

from tests.simulation.schedule import Schedule
from tests.simulation.world import World

WINDOWS = (200_000, 1_200)  # tokens; in the small one compactions happen by themselves


def simulate(number: int, operations: int, *, typing: bool = False) -> Schedule:
    """Run schedule ``number`` in a directory of its own; with ``typing`` somebody edits the document in it."""
    random = Random(number)
    # In memory where there is such a place: what is tested is order, and the disk's own pace costs hours.
    shared = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="pa-", dir=shared if shared.is_dir() else None))
    try:
        schedule = Schedule(World(home, random, window=random.choice(WINDOWS)), random, operations, typing)
        try:
            schedule.run()
        except BaseException as error:
            error.add_note(f"schedule {number}: " + ", ".join(schedule.done))
            raise
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return schedule


@click.command()
@click.option("--schedules", default=2000, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The number of the first.")
@click.option(
    "--operations", default=8, show_default=True, help="Of the first; later ones have up to five times as many."
)
@click.option("--jobs", default=1, show_default=True, help="Processes that run them.")
@click.option("--typing", is_flag=True, help="Have somebody edit the document, too, as Emacs does.")
def main(schedules: int, seed: int, operations: int, jobs: int, typing: bool) -> None:
    """Run schedules, and stop at the first that fails."""
    numbers = range(seed, seed + schedules)
    lengths = [operations + number * 4 * operations // schedules for number in range(schedules)]
    with ProcessPoolExecutor(jobs) as processes:
        try:
            for done, _ in enumerate(processes.map(_attempt, numbers, lengths, repeat(typing)), 1):
                if done % 100 == 0:
                    click.echo(f"{done} schedules")
        except BaseException:
            processes.shutdown(wait=False, cancel_futures=True)
            raise


def _attempt(number: int, operations: int, typing: bool) -> None:
    """Run a schedule in a process of its own; what is raised there arrives with its note."""
    simulate(number, operations, typing=typing)


if __name__ == "__main__":
    main()
