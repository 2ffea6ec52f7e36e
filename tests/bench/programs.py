"""The mission language: work over 10,000 maps beside the same work in plain Python, and beside nbb where it is.

nbb runs Clojure in an interpreter on Node; it is looked for on the path and in ``node_modules``.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyagentd import lisp
from tests.bench.figure import Figure, Result, at_most
from tests.bench.measure import median
from tests.bench.world import World

Row = dict[str, Any]
Rows = list[Row]

MAPS = 10_000


def filtered(rows: Rows) -> Any:
    return sum(row["price"] * row["quantity"] for row in rows if row["price"] > 500)


def sorted_and_taken(rows: Rows) -> Any:
    return [row["id"] for row in sorted(rows, key=lambda row: row["price"], reverse=True)[:10]]


def _grouped(rows: Rows) -> dict[str, Rows]:
    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(row["category"], []).append(row)
    return groups


def grouped_and_counted(rows: Rows) -> Any:
    return {category: len(group) for category, group in _grouped(rows).items()}


def grouped_and_summed(rows: Rows) -> Any:
    totals = [
        {"category": category, "total": sum(row["price"] for row in group)}
        for category, group in _grouped(rows).items()
    ]
    return sorted(totals, key=lambda row: row["total"], reverse=True)


def taken_apart(rows: Rows) -> Any:
    return [{"id": row["id"], "total": row["price"] * row["quantity"]} for row in rows]


def folded(rows: Rows) -> Any:
    total = 0
    for row in rows:
        price, quantity = row["price"], row["quantity"]
        total = total + price * quantity
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One job: the program over ``ctx/rows``, and the same by hand.

    Args:
        clojure: The program in Clojure proper over ``rows``, where it is another.
    """

    name: str
    program: str
    by_hand: Callable[[Rows], Any]
    clojure: str = ""


WORKS = (
    Work(
        name="filter, map, reduce",
        program="(->> ctx/rows (filter #(> (:price %) 500)) (map #(* (:price %) (:quantity %))) (reduce + 0))",
        by_hand=filtered,
    ),
    Work(
        name="filter by where, map, sum",
        program=(
            "(->> ctx/rows (filter (where :price > 500))"
            " (map (fn [row] (* (:price row) (:quantity row)))) (reduce +))"
        ),
        by_hand=filtered,
        clojure=(
            "(->> rows (filter #(> (:price %) 500)) (map (fn [row] (* (:price row) (:quantity row)))) (reduce +))"
        ),
    ),
    Work(
        name="sort, take",
        program="(->> ctx/rows (sort-by :price >) (take 10) (map :id))",
        by_hand=sorted_and_taken,
        clojure="(->> rows (sort-by :price >) (take 10) (mapv :id))",
    ),
    Work(
        name="group, count",
        program="(update-vals (group-by :category ctx/rows) count)",
        by_hand=grouped_and_counted,
        clojure="(into {} (map (fn [[k v]] [k (count v)]) (group-by :category rows)))",
    ),
    Work(
        name="group, sum, sort",
        program=(
            "(->> ctx/rows (group-by :category)"
            " (map (fn [[category group]] {:category category :total (sum-by :price group)})) (sort-by :total >))"
        ),
        by_hand=grouped_and_summed,
        clojure=(
            "(->> rows (group-by :category)"
            " (map (fn [[category group]] {:category category :total (reduce + (map :price group))}))"
            " (sort-by :total >) doall)"
        ),
    ),
    Work(
        name="destructuring, map",
        program="(map (fn [{:keys [id price quantity]}] {:id id :total (* price quantity)}) ctx/rows)",
        by_hand=taken_apart,
        clojure="(mapv (fn [{:keys [id price quantity]}] {:id id :total (* price quantity)}) rows)",
    ),
    Work(
        name="destructuring, reduce",
        program="(reduce (fn [total {:keys [price quantity]}] (+ total (* price quantity))) 0 ctx/rows)",
        by_hand=folded,
    ),
)

TINY = ("(+ 1 2)", "(let [x 1 y (inc x)] (if (> y 1) {:sum (+ x y)} nil))")


def rows() -> Rows:
    """Return the maps: as JSON would give them, with strings as keys."""
    chance = random.Random(7)
    categories = ["books", "garden", "music", "office", "sports", "tools", "toys", "travel"]
    return [
        {
            "id": number,
            "name": f"article {number}",
            "category": chance.choice(categories),
            "price": chance.randint(1, 100_000) / 100,
            "quantity": chance.randint(1, 20),
            "active": chance.random() < 0.7,
        }
        for number in range(MAPS)
    ]


def keyed(rows: Rows) -> list[dict[lisp.Keyword, Any]]:
    """Return the maps with keywords as keys."""
    return [{lisp.Keyword(key): value for key, value in row.items()} for row in rows]


def programs(world: World) -> Iterator[Result]:
    """Every job with keywords and with strings as keys; then what a tiny program costs."""
    times = 3 if world.quick else 30
    plain = rows()
    keywords = keyed(plain)
    elsewhere = _nbb(times)
    for work in WORKS:
        compiled = lisp.compile(work.program)
        contexts = {"keyword keys": {"rows": keywords}, "string keys": {"rows": plain}}
        for context in contexts.values():
            _agree(work, compiled.run(context).value, plain)
        runs = [partial(compiled.run, context) for context in contexts.values()]
        by_hand, *measured = typical([partial(work.by_hand, plain), *runs], times)
        for keys, value in zip(contexts, measured, strict=True):
            yield Figure(
                name=f"{work.name}: 10,000 maps, {keys}",
                value=value,
                unit="ms",
                reference=by_hand,
                beside="plain Python",
                target=at_most(4, "ratio"),
            )
        if work.name in elsewhere:
            yield Figure(
                name="  the same in nbb",
                value=elsewhere[work.name],
                unit="ms",
                reference=by_hand,
                beside="plain Python",
            )
    yield from tiny(200 if world.quick else 20_000)


def tiny(times: int) -> Iterator[Result]:
    """What a program costs that does next to nothing, once compiled, and what compiling costs."""
    for text in TINY:
        compiled = lisp.compile(text)
        (hundred,) = typical([lambda compiled=compiled: [compiled.run() for _ in range(100)]], times // 100)  # type: ignore[misc]
        yield Figure(
            name=f"tiny program: {text[:22]}{'…' if len(text) > 22 else ''}",
            value=10 * hundred,
            unit="µs",
            target=at_most(20),
        )
    (once,) = typical([partial(lisp.compile, WORKS[4].program)], 100)
    yield Figure(name="compile a program of 150 characters", value=1000 * once, unit="µs")


def typical(actions: Sequence[Callable[[], object]], times: int) -> list[float]:
    """Return the median CPU time of each, in milliseconds, after each has run once.

    They take turns, so that what slows the machine slows all of them. Nothing here waits, and CPU time does not count
    what other processes took of the machine.
    """
    samples: list[list[float]] = [[] for _ in actions]
    for turn in range(times + 1):
        for action, taken in zip(actions, samples, strict=True):
            start = time.process_time()
            action()
            if turn:
                taken.append(1000 * (time.process_time() - start))
    return [median(taken) for taken in samples]


def _agree(work: Work, value: Any, plain: Rows) -> None:
    """A benchmark that computes something else is worth nothing."""
    expected = work.by_hand(plain)
    if isinstance(expected, float):
        assert abs(_named(value) - expected) < 1e-6 * abs(expected), work.name
    else:
        assert json.dumps(_rounded(_named(value)), sort_keys=True) == json.dumps(
            _rounded(expected), sort_keys=True
        ), work.name


def _named(value: Any) -> Any:
    """Return a value with the names of keywords in their place."""
    if isinstance(value, lisp.Keyword):
        return value.name
    if isinstance(value, list):
        return [_named(item) for item in value]
    if isinstance(value, dict):
        return {_named(key): _named(item) for key, item in value.items()}
    return value


def _rounded(value: Any) -> Any:
    """Return a value whose sums do not depend on the order of the summands."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value


def _nbb(times: int) -> dict[str, float]:
    """Return the milliseconds each job takes in nbb; nothing where there is none."""
    program = shutil.which("nbb") or shutil.which("nbb", path="node_modules/.bin")
    if program is None:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        data, script = Path(directory, "rows.json"), Path(directory, "bench.cljs")
        data.write_text(json.dumps(rows()))
        script.write_text(_SCRIPT % (json.dumps(str(data)), times, "\n".join(map(_form, WORKS))))
        done = subprocess.run([program, str(script)], capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _form(work: Work) -> str:
    return f"(time-of {json.dumps(work.name)} (fn [] {work.clojure or work.program.replace('ctx/rows', 'rows')}))"


_SCRIPT = """
(require '["fs" :as fs])
(def rows (js->clj (js/JSON.parse (fs/readFileSync %s "utf8")) :keywordize-keys true))
(def times (atom {}))
(defn now [] (js/performance.now))
(defn time-of [name job]
  (job)
  (let [samples (mapv (fn [_] (let [start (now)] (job) (- (now) start))) (range %d))]
    (swap! times assoc name (nth (vec (sort samples)) (quot (count samples) 2)))))
%s
(println (js/JSON.stringify (clj->js @times)))
"""
