"""Builtins charge before they allocate, so a program ends as soon as it asks for too much."""

import pytest

from pyagentd import lisp

LIMITS = lisp.Limits(cells=10_000, bytes=10_000, bits=1000, steps=40_000)
CONTEXT = {
    "xs": list(range(6000)),
    "s": "x" * 6000,
    "long": "x" * 100_000,
    "ms": [{"a": n, "b": str(n)} for n in range(6000)],
    "m": {str(n): n for n in range(3000)},
}

TOO_MUCH = [
    "(range 1000000000000)",
    "(range 0 1 0.0000001)",
    "(repeat 1000000000000 1)",
    "(cycle 1000000000000 [1])",
    "(iterate 1000000000 inc 0)",
    "(repeatedly 1000000000 (fn [] 1))",
    "(concat ctx/xs ctx/xs)",
    "(apply concat (repeat 5000 ctx/xs))",
    "(into ctx/xs ctx/xs)",
    "(reduce (fn [v x] (conj v v)) [] ctx/xs)",
    "(mapcat (fn [x] ctx/xs) ctx/xs)",
    "(flatten (repeat 4000 ctx/xs))",
    "(interleave ctx/xs ctx/xs)",
    "(interpose 0 ctx/xs)",
    "(zip ctx/xs ctx/xs)",
    "(partition 2 1 ctx/xs)",
    "(partition-all 3000 1 ctx/xs)",
    "(partition-by odd? ctx/xs)",
    "(zipmap ctx/xs ctx/xs)",
    "(map vector ctx/xs)",
    "(map inc (map inc ctx/xs))",
    "(group-by identity ctx/xs)",
    "(frequencies ctx/xs)",
    "(index-by :a ctx/ms)",
    "(sort-by :a > ctx/ms)",
    "(merge ctx/m ctx/m)",
    "(reduce (fn [m k] (assoc m k k)) {} ctx/xs)",
    "(update-vals (update-vals ctx/m inc) inc)",
    "(concat (seq ctx/m) (seq ctx/m))",
    "(union (set ctx/xs) (set ctx/xs))",
    "(split-at 3000 (concat ctx/xs [1]))",
    "(reductions + 0 (map inc ctx/xs))",
    "(postwalk identity ctx/ms)",
    "(str ctx/s ctx/s)",
    "(join ctx/s [1 2 3])",
    "(replace ctx/s \"x\" \"yy\")",
    "(replace ctx/s #\"x\" \"yy\")",
    "(upper-case (lower-case ctx/s))",
    '(format "%s%s" ctx/s ctx/s)',
    "(pr-str ctx/ms)",
    "(re-seq #\"x\" ctx/s)",
    "(seq (str ctx/s \"yyy\" (subs ctx/s 0 2000)))",
    "(to-json ctx/ms)",
    "(to-json (reduce (fn [x _] [x x]) 0 (range 60)))",
    '(parse-json (str "[" ctx/s "]" ctx/s))',
    '(parse-json (apply str (repeat 5000 "[")))',
    "(pow 2 5000)",
    "(pow 10 1000000000000)",
    "(reduce * (range 1 1000))",
    "(parse-long (apply str (repeat 1000 9)))",
]  # fmt: skip

TOO_LONG = [
    "(reduce (fn [a x] (sort ctx/xs) a) 0 (range 9999))",
    "(sort (fn [a b] (some neg? ctx/xs)) ctx/xs)",
    "((reduce (fn [f _] (comp f f)) inc (range 60)) 0)",
    "((reduce (fn [f _] (partial f)) inc (range 90)) 0 1)",
    "((reduce (fn [f _] (juxt f f)) inc (range 60)) 0)",
    "(= (reduce (fn [x _] [x x]) 0 (range 60)) (reduce (fn [x _] [x x]) 0 (range 60)))",
    "(distinct [(reduce (fn [x _] [x x]) 0 (range 60))])",
    "(contains? #{} (reduce (fn [x _] [x x]) 0 (range 60)))",
    "(compare (reduce (fn [x _] [x x]) 0 (range 60)) (reduce (fn [x _] [x x]) 0 (range 60)))",
    "(sum-by (reduce (fn [x _] [x x]) 0 (range 60)) [{}])",
    "(postwalk identity (reduce (fn [x _] [x x]) 0 (range 60)))",
    "(some neg? (range))",
    "(take-while (fn [x] true) (repeat 1))",
    "(take 5 (drop 1000000000000 (range)))",
    "(take 1000000000000 (repeat 1))",
    "(nth (iterate inc 0) 1000000000000)",
    "(take 12 (iterate (fn [x] (* x x)) 9))",
    "(doseq [x (range 9999)] (every? some? ctx/xs))",
    "(dotimes [i 9999] (get ctx/long i))",
    '(dotimes [i 9999] (includes? ctx/long "y"))',
    "(dotimes [i 9999] (blank? ctx/long))",
]


def ends_with(program: str) -> str:
    with pytest.raises(lisp.LispError) as caught:
        lisp.run(program, CONTEXT, limits=LIMITS)
    return caught.value.reason


@pytest.mark.parametrize("program", TOO_MUCH)
def test_what_would_be_too_large_is_not_made(program: str) -> None:
    assert ends_with(program) == "memory_exceeded"


@pytest.mark.parametrize("program", TOO_LONG)
def test_what_would_take_too_long_ends(program: str) -> None:
    assert ends_with(program) in {"timeout", "memory_exceeded", "eval_error"}


@pytest.mark.parametrize(
    "pattern", ["(x+x+)+y", "(x*)*y", "(x|x|x)*y", "(x{1,30}){1,30}y", "(.*)(.*)(.*)(.*)y", "(?:x?){500}x{500}y"]
)
def test_a_pattern_that_backtracks_elsewhere_takes_linear_time_here(pattern: str) -> None:
    try:
        assert lisp.run(f'(re-find #"{pattern}" ctx/s)', CONTEXT).value is None
    except lisp.LispError as error:
        assert error.reason == "timeout"


@pytest.mark.parametrize(
    "comparator", ["(fn [a b] true)", "(fn [a b] 1)", "(fn [a b] -1)", "(fn [a b] (odd? (+ a b)))"]
)
def test_a_comparator_that_contradicts_itself_still_sorts_the_same_items(comparator: str) -> None:
    found = lisp.run(f"(sort {comparator} (range 100))").value
    assert sorted(found) == list(range(100))


def test_a_signal_passes_through_every_function_that_calls_functions() -> None:
    for call in [
        "(map f [1])",
        "(sort f [1 2])",
        "(reduce f 0 [1])",
        "(update {} :a f)",
        "(apply f [1])",
        "((comp f) 1)",
    ]:
        assert lisp.run(f"(let [f (fn [& _] (return 7))] {call})").value == 7
