"""The language gives what Clojure gives, for random expressions and for each row of the table in docs/lisp.md.

Clojure is nbb (ClojureScript), which npm installs into ``.nbb``; without npm these tests are skipped.
``PYAGENTD_EXPRESSIONS=2000`` and ``PYAGENTD_SEED=2`` try others.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pyagentd import lisp
from pyagentd.lisp.serialization import readable
from pyagentd.lisp.values import equal
from tests.lisp.shared_subset import expressions

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".nbb"
NBB = PLACE / "node_modules/nbb/cli.js"
EXPRESSIONS = int(os.environ.get("PYAGENTD_EXPRESSIONS", "400"))
SEED = int(os.environ.get("PYAGENTD_SEED", "1"))
ERROR = "error"
HEAD = """(ns differences (:require [clojure.string :as str] [clojure.set :as set]))
(set! *print-namespace-maps* false)
(defn shown [f] (println (try (pr-str (f)) (catch :default e "error"))))
"""
TABLE = re.findall(
    r"^\| `(.+?)` \| (?:`(.+?)`|error) \| (?:`(.+?)`|error) \| .+ \|$", (ROOT / "docs/lisp.md").read_text(), re.M
)
ROWS = [(program, clojure or ERROR, here or ERROR) for program, clojure, here in TABLE]

# What an expression that gives something else must use, by the row of the table.
EXCUSES = {
    "(conj (map inc [1 2]) 9)": r"\(conj ",
    "(str (map inc [1 2]))": r"\((str|pr-str) |str/",
    "(get (map inc [1 2]) 0)": r"\(get ",
    "(str {:a 1 :b 2})": r"\((str|pr-str) ",
    "(vec {:b 1 :a 2})": r"\((vec|seq|first|keys|vals|map|mapv|str|pr-str|next|rest|some|reduce|into|filter) ",
    '(re-seq #"x" "abc")': r"\(re-seq ",
    "(take-last 2 [])": r"\(take-last ",
    '(keyword "")': r"\(keyword ",
}


@pytest.fixture(scope="module")
def nbb() -> Path:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm, which brings nbb, is not installed")
    if not NBB.is_file():
        run = subprocess.run(
            [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(PLACE), "nbb"],
            capture_output=True,
            text=True,
            timeout=300,
        )
        if run.returncode:
            pytest.skip(f"npm does not install nbb: {run.stderr[-300:]}")
    return NBB


def in_clojure(nbb: Path, programs: Sequence[str], directory: Path) -> list[str]:
    """Return how Clojure writes the value of each program."""
    script = directory / "programs.cljs"
    script.write_text(HEAD + "\n".join(f"(shown (fn [] {program}))" for program in programs))
    run = subprocess.run(["node", str(nbb), str(script)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[:1000]
    return run.stdout.splitlines()


def here(program: str) -> str:
    try:
        return readable(lisp.run(program).value)
    except lisp.LispError:
        return ERROR


def same(one: str, other: str) -> bool:
    """Return whether two texts are of the same value; lists equal vectors, as in Clojure."""
    if one == other or ERROR in (one, other):
        return one == other
    try:
        return equal(*(lisp.run(f"'{text}").value for text in (one, other)))
    except lisp.LispError:  # a keyword that cannot be read
        return False


def test_random_expressions_have_the_same_value(nbb: Path, tmp_path: Path) -> None:
    programs = list(expressions(SEED, EXPRESSIONS))
    found = in_clojure(nbb, programs, tmp_path)
    assert len(found) == len(programs)
    wrong = [
        (program, clojure, ours)
        for program, clojure in zip(programs, found, strict=True)
        if not same(ours := here(program), clojure)
    ]
    unexplained = [each for each in wrong if not any(re.search(excuse, each[0]) for excuse in EXCUSES.values())]
    assert not unexplained
    assert len(wrong) <= EXPRESSIONS // 20  # an excuse is a word of the program; most with that word agree


def test_the_table_says_what_clojure_gives(nbb: Path, tmp_path: Path) -> None:
    found = in_clojure(nbb, [program for program, _, _ in ROWS], tmp_path)
    assert found == [clojure for _, clojure, _ in ROWS]


def test_the_table_says_what_the_language_gives() -> None:
    assert [here(program) for program, _, _ in ROWS] == [ours for _, _, ours in ROWS]
    assert len(ROWS) >= 15 and EXCUSES.keys() <= {program for program, _, _ in ROWS}
    assert not any(same(clojure, ours) for _, clojure, ours in ROWS)
