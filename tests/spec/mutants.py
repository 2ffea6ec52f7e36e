"""Does each scenario's test notice when the code that fulfils it breaks? ``python -m tests.spec.mutants``.

Draws scenarios by a seed, breaks for each the function that fulfils it in a copy of the tree, and runs the scenario's
tests there, of which at least one must fail; unbroken they must pass.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.spec.breaking import Break
from tests.spec.breaks import BREAKS
from tests.spec.coverage import Claim, claims

ROOT = Path(__file__).resolve().parents[2]
_COPIED = (
    "pyagentd",
    "elisp",
    "presets",
    "skills",
    "template",
    "tests",
    "scripts",
    "pyproject.toml",
    "Makefile",
    "README.md",
    "Cask",
)
_LIMIT_S = 300


def main() -> int:
    """Break and test; return 0 when every break was noticed."""
    options = _options()
    known = [each for each in BREAKS if options.spec in (None, each.spec)]
    drawn = draw(known, options.count, options.seed)
    print(f"seed {options.seed}: {len(drawn)} of {len(known)} scenarios", flush=True)
    unnoticed = []
    with copied_tree() as tree:
        for number, wrong in enumerate(drawn, 1):
            verdict = try_break(tree, wrong)
            print(f"{number:3}/{len(drawn)}  {verdict:12} {wrong.scenario}  ({wrong.file})", flush=True)
            if verdict != "noticed":
                unnoticed.append(wrong.scenario)
    print(f"\n{len(drawn) - len(unnoticed)} of {len(drawn)} breaks were noticed.")
    return 1 if unnoticed else 0


def draw(known: Sequence[Break], count: int, seed: int) -> list[Break]:
    """Return that many of the breaks, each of another scenario; the same for the same seed."""
    return random.Random(seed).sample(known, min(count, len(known)))


def try_break(tree: Path, wrong: Break) -> str:
    """Return ``noticed``, ``NOT NOTICED``, or what is wrong with the test or the break itself."""
    shown_by = [claim for claim in claims() if (claim.spec, claim.scenario) == (wrong.spec, wrong.scenario)]
    if not shown_by:
        return "NO TEST"
    if not _pass(tree, shown_by):
        return "FAILS ANYWAY"
    file = tree / wrong.file
    whole = file.read_text("utf-8")
    file.write_text(wrong.applied(whole), "utf-8")
    try:
        return "NOT NOTICED" if _pass(tree, shown_by) else "noticed"
    finally:
        file.write_text(whole, "utf-8")


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Give a copy of what the tests need, to be broken."""
    place = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.elc"))
            else:
                shutil.copy2(source, place / name)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _pass(tree: Path, tests: Sequence[Claim]) -> bool:
    """Run the tests in the copy; return whether all of them pass."""
    python = [claim.test for claim in tests if claim.file.suffix == ".py"]
    ert = [claim.test for claim in tests if claim.file.suffix == ".el"]
    commands = []
    if python:
        # From the copy's root, which comes before the installed package in sys.path.
        commands.append([sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *python])
    if ert:
        names = r"\`\(?:" + r"\|".join(map(re.escape, ert)) + r"\)\'"
        commands.append(["emacs", "-Q", "--batch", "-l", "tests/elisp/run.el", names])
    return all(_succeeds(command, tree) for command in commands)


def _succeeds(command: Sequence[str], tree: Path) -> bool:
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spec.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--spec", help="only scenarios of this specification, such as 000")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
