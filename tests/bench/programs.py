"""The mission language: work over 10,000 maps beside the same work in plain Python, and beside nbb where it is.

nbb runs Clojure in an interpreter on Node; it is looked for on the path and in ``node_modules``.
"""

import collections
import json
import random
import re
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

# What models write, over rows of text and of maps; the reference is what one would write in Python.


@dataclass(frozen=True, slots=True, kw_only=True)
class Everyday:
    """One job over ``ctx/lines``, ``ctx/text`` and ``ctx/rows``, and the same by hand over ``Data``."""

    name: str
    program: str
    by_hand: Callable[["Data"], Any]


@dataclass(frozen=True, slots=True)
class Data:
    """Maps, lines of a log, and the lines in one text."""

    rows: Rows
    lines: list[str]
    text: str


def counted_by_path(data: Data) -> Any:
    counts: dict[str, dict[str, int]] = {}
    for row in data.rows:
        group = counts.setdefault(row["category"], {})
        size = "large" if row["quantity"] > 10 else "small"
        group[size] = group.get(size, 0) + 1
    return counts


def counted_words(data: Data) -> Any:
    counts: dict[str, int] = {}
    for line in data.lines:
        for word in line.split(" "):
            counts[word] = counts.get(word, 0) + 1
    return counts


def dated(data: Data) -> Any:
    found = re.compile(r"(\d+)-(\d+)-(\d+)")
    return [list(match.groups()) if (match := found.search(line)) else [] for line in data.lines]


def summed_to(data: Data) -> Any:
    number, total = 0, 0
    while number < 100_000:
        number, total = number + 1, total + number
    return total


def primes(data: Data) -> Any:
    found = []
    for number in range(2, 5000):
        divisor = 2
        while divisor * divisor <= number and number % divisor:
            divisor += 1
        if divisor * divisor > number:
            found.append(number)
    return found


def nested(data: Data) -> Any:
    found = []
    for number, row in enumerate(data.rows):
        pair = {"at": [number, row["id"]], "item": {"price": row["price"], "name": row["name"]}}
        x, y = pair["at"]
        found.append([pair["item"]["name"], x + y, pair["item"]["price"]])
    return found


def built(data: Data) -> Any:
    text = ""
    for row in data.rows:
        text = text + row["name"] + ": " + str(row["quantity"]) + "\n"
    return text


def collected(data: Data) -> Any:
    found = []
    for row in data.rows:
        if row["active"]:
            found.append(row["id"])
    return found


EVERYDAY = (
    Everyday(
        name="update-in with fnil",
        program=(
            "(reduce (fn [acc row] (update-in acc [(:category row) (if (> (:quantity row) 10) :large :small)]"
            " (fnil inc 0))) {} ctx/rows)"
        ),
        by_hand=counted_by_path,
    ),
    Everyday(
        name="update with fnil: count words of 10,000 lines",
        program=(
            '(->> ctx/lines (mapcat (fn [line] (split line #" ")))'
            " (reduce (fn [acc word] (update acc word (fnil inc 0))) {}))"
        ),
        by_hand=counted_words,
    ),
    Everyday(
        name="split 10,000 lines at a text",
        program='(map (fn [line] (nth (split line #" ") 2)) ctx/lines)',
        by_hand=lambda data: [line.split(" ")[2] for line in data.lines],
    ),
    Everyday(
        name="split 10,000 lines by a pattern",
        program=r'(map #(last (split % #"\s+")) ctx/lines)',
        by_hand=lambda data: [re.split(r"\s+", line)[-1] for line in data.lines],
    ),
    Everyday(
        name="re-find in 10,000 lines",
        program=r'(map (fn [line] (re-find #"\d+ms" line)) ctx/lines)',
        by_hand=lambda data: [match.group() if (match := re.search(r"\d+ms", line)) else None for line in data.lines],
    ),
    Everyday(
        name="re-find with groups in 10,000 lines",
        program=r'(map (fn [line] (let [[_ y m d] (re-find #"(\d+)-(\d+)-(\d+)" line)] [y m d])) ctx/lines)',
        by_hand=dated,
    ),
    Everyday(
        name="re-find with alternatives in 10,000 lines",
        program=r'(count (filter #(re-find #"\b(WARN|ERROR)\b" %) ctx/lines))',
        by_hand=lambda data: sum(1 for line in data.lines if re.search(r"\b(WARN|ERROR)\b", line)),
    ),
    Everyday(
        name="re-seq in 10,000 lines",
        program=r'(map (fn [line] (count (re-seq #"[a-z]+" line))) ctx/lines)',
        by_hand=lambda data: [len(re.findall(r"[a-z]+", line)) for line in data.lines],
    ),
    Everyday(
        name="replace in 10,000 lines by a pattern",
        program=r'(map (fn [line] (replace line #"\d+" "#")) ctx/lines)',
        by_hand=lambda data: [re.sub(r"\d+", "#", line) for line in data.lines],
    ),
    Everyday(
        name="replace in 10,000 lines of a text",
        program='(map (fn [line] (replace line "user" "person")) ctx/lines)',
        by_hand=lambda data: [line.replace("user", "person") for line in data.lines],
    ),
    Everyday(
        name="count words of 600,000 characters by pattern",
        program=r'(frequencies (re-seq #"\w+" (downcase ctx/text)))',
        by_hand=lambda data: dict(collections.Counter(re.findall(r"\w+", data.text.lower()))),
    ),
    Everyday(
        name="loop to 100,000",
        program="(loop [i 0 total 0] (if (< i 100000) (recur (inc i) (+ total i)) total))",
        by_hand=summed_to,
    ),
    Everyday(
        name="primes below 5,000",
        program=(
            "(filter (fn [n] (loop [d 2] (cond (> (* d d) n) true (zero? (mod n d)) false :else (recur (inc d)))))"
            " (range 2 5000))"
        ),
        by_hand=primes,
    ),
    Everyday(
        name="nested destructuring",
        program=(
            "(->> ctx/rows"
            " (map-indexed (fn [i row] {:at [i (:id row)] :item {:price (:price row) :name (:name row)}}))"
            " (map (fn [{[x y] :at {:keys [price name]} :item}] [name (+ x y) price])))"
        ),
        by_hand=nested,
    ),
    Everyday(
        name="string building",
        program=('(reduce (fn [text row] (str text (:name row) ": " (:quantity row) "\\n")) "" ctx/rows)'),
        by_hand=built,
    ),
    Everyday(
        name="a vector built by conj",
        program="(reduce (fn [acc row] (if (:active row) (conj acc (:id row)) acc)) [] ctx/rows)",
        by_hand=collected,
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


def log(rows: Rows) -> list[str]:
    """Return a line for each map, as a server would log it."""
    levels = ("INFO", "DEBUG", "WARN", "ERROR")
    return [
        f"2026-{1 + row['id'] % 12:02}-{1 + row['id'] % 28:02} 12:00 {levels[row['quantity'] % 4]}"
        f" user{row['id'] % 500} bought {row['category']} in {row['quantity']}ms"
        for row in rows
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
    yield from everyday(plain, times)
    yield from tiny(200 if world.quick else 20_000)


def everyday(plain: Rows, times: int) -> Iterator[Result]:
    """What models write, with strings as keys."""
    lines = log(plain)
    data = Data(plain, lines, "\n".join(lines))
    context = {"rows": plain, "lines": lines, "text": data.text}
    for job in EVERYDAY:
        compiled = lisp.compile(job.program)
        assert _named(compiled.run(context).value) == job.by_hand(data), job.name
        by_hand, value = typical([partial(job.by_hand, data), partial(compiled.run, context)], times)
        yield Figure(
            name=job.name,
            value=value,
            unit="ms",
            reference=by_hand,
            beside="plain Python",
            target=at_most(4, "ratio"),
        )


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
