"""Look for a command line that is told wrong for as long as you like: ``python -m tests.policy.fuzz --seconds 600``.

The same properties as the tests, with lines made by a seeded generator, which is faster than hypothesis and repeats.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from pyagentd.policy import shell
from pyagentd.policy.shell import Unreadable
from pyagentd.policy.shell.grammar import parse
from tests.policy import test_shell_oracle as oracle
from tests.policy import test_shell_programs as programs
from tests.policy import test_shell_wrappers as wrappers
from tests.policy.bash import run


def grammar(chance: random.Random) -> str | None:
    """A line of pieces that mean something to bash; return what is wrong with its reading."""
    text = "".join(chance.choices(oracle.PIECES, k=chance.randint(1, 12)))
    if chance.random() < 0.7:
        text = "p " + " ".join("".join(chance.choices(oracle.PIECES, k=2)) for _ in range(chance.randint(1, 6)))
    try:
        parts = parse(text)
    except Unreadable:
        return None
    status = chance.choice([0, 1])
    try:
        oracle.check(text, parts, run(text, status=status), status)
    except AssertionError as error:
        return str(error)
    return None


def wrapped(chance: random.Random) -> str | None:
    """A line of wrappers and their options; return what ran and was not told."""
    head = chance.choice([*(f"{name} " for name in wrappers.REAL), "echo p | xargs ", "find . -maxdepth 0 "])
    text = head + "".join(chance.choices(wrappers.PIECES, k=chance.randint(1, 7)))
    reading = shell.read(text)
    if reading.unreadable is not None:
        return None
    for words in run(text, programs=wrappers.PROGRAMS).commands:
        if not wrappers.explained(words, reading):
            return f"{text!r} runs {words}, and only {[each.words for each in reading.commands]} was told"
    return None


def written(chance: random.Random) -> str | None:
    """A program with random arguments; return what it wrote that was not told."""
    program = chance.choice(programs.AVAILABLE)
    words = chance.choices(programs.words_of(program), k=chance.randint(1, 6))
    text = " ".join([program, *(f"'{word}'" for word in words)])
    unsaid = programs.written_unsaid(text)
    return f"{text} writes {unsaid}, and only {shell.read(text).writes} was told" if unsaid else None


def main() -> int:
    """Run until the time is over; return how many lines were told wrong."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    chance = random.Random(chosen.seed)
    end = time.monotonic() + chosen.seconds
    looks: tuple[Callable[[random.Random], str | None], ...] = (grammar, wrapped, written)
    count = wrong = 0
    while time.monotonic() < end:
        count += 1
        if problem := looks[count % len(looks)](chance):
            wrong += 1
            print(problem, flush=True)
    print(f"{count} lines, {wrong} told wrong (seed {chosen.seed})")
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main())
