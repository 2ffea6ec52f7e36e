"""Look for a program that crashes the reader or the evaluator: ``python -m tests.lisp.fuzz --seconds 3600``.

Guided by coverage (atheris, which ``make fuzz-lisp`` installs): a program that reaches code no other reached is kept
in the corpus and changed further, as a text and as a tree of forms. What must hold is in ``checks``; a finding is
written to ``crash-…`` in the corpus directory and ends the run.
"""

import argparse
import contextlib
import random
import sys
import time
from collections import Counter
from pathlib import Path

import atheris  # type: ignore[import-not-found]  # installed by `make fuzz-lisp` only

with atheris.instrument_imports(include=["pyagentd"]):
    from tests.lisp.fuzz.checks import check
    from tests.lisp.fuzz.mutation import SEEDS, mutated

_LONGEST = 2000
_ENDS: Counter[str] = Counter()


def once(data: bytes) -> None:
    """Try one text."""
    _ENDS[check(data.decode("utf-8", "replace"))] += 1


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change a program: mostly as a tree, now and then as bytes."""
    chance = random.Random(seed)
    if chance.random() < 0.2:
        return bytes(atheris.Mutate(data, most))
    text = data.decode("utf-8", "replace")
    return mutated(text, chance.choice(SEEDS), chance).encode("utf-8", "replace")[:most]


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.lisp.fuzz", description=__doc__)
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--corpus", type=Path, default=Path(".fuzz-lisp"))
    chosen = options.parse_args()
    chosen.corpus.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(SEEDS):
        with contextlib.suppress(UnicodeEncodeError):
            (chosen.corpus / f"seed-{number:04}").write_text(text)
    began = time.monotonic()

    def told(data: bytes) -> None:
        once(data)
        count = _ENDS.total()
        if count % 20_000 == 0:
            print(f"{count} programs in {time.monotonic() - began:.0f} s: {dict(_ENDS.most_common())}", flush=True)

    atheris.Setup(
        [
            sys.argv[0],
            str(chosen.corpus),
            f"-max_total_time={chosen.seconds}",
            f"-seed={chosen.seed}",
            f"-max_len={_LONGEST}",
            f"-artifact_prefix={chosen.corpus}/",
            "-timeout=20",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
        ],
        told,
        custom_mutator=mutate,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
