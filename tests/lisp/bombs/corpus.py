"""Programs written to hang the daemon or to eat its memory, each with the reasons it may end for.

``reasons`` holds the reasons of errors, "return" where a plain value (quickly had) is as good an end. Lengths in the
programs are such that, without limits, each would take gigabytes, minutes, or the interpreter itself down.
"""

# ruff: noqa: E501  # programs and tables of them stand on one line each

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

TIME = frozenset({"timeout"})
SPACE = frozenset({"memory_exceeded"})
EITHER = TIME | SPACE
REFUSED = frozenset({"parse_error", "analysis_error"})
FINE = frozenset({"return"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bomb:
    """One program.

    Args:
        name: What it tries.
        program: Its text.
        reasons: Reasons it may end for; "return" for a value.
        context: What ``ctx/`` holds.
        tools: Called with name and arguments, where it has tools.
    """

    name: str
    program: str
    reasons: frozenset[str]
    context: Mapping[str, Any] = field(default_factory=dict)
    tools: Callable[[str, Any], Any] | None = None


def doubled(first: str, double: str, times: int, last: str = "x") -> str:
    """``x`` is ``first`` and then ``double`` (an expression of x), over and over."""
    steps = " ".join(f"x {double}" for _ in range(times))
    return f"(let [x {first} {steps}] {last})"


def tower(last: str, first: str = "[1]", level: str = "[x x]", times: int = 60) -> str:
    """A value whose parts are shared: 60 vectors, 2^60 when written out."""
    return doubled(first, level, times, last)


def nested(opening: str, middle: str, closing: str, times: int) -> str:
    return opening * times + middle + closing * times


def twice(last: str, times: int = 60) -> str:
    """Two towers that share nothing, ``x`` and ``y``."""
    steps = " ".join("x [x x] y [y y]" for _ in range(times))
    return f"(let [x [1] y [1] {steps}] {last})"


def answer_big(name: str, arguments: Any) -> Any:
    """A tool whose answer is no small thing."""
    return ["x" * 1000] * 1000


def answer_deep(name: str, arguments: Any) -> Any:
    """A tool whose answer is nested without end, nearly."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def answer_shared(name: str, arguments: Any) -> Any:
    """A tool whose answer is small, and not when it is written out."""
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    return value


def answer(name: str, arguments: Any) -> Any:
    return {"ok": True}


_ZERO = 2**61 - 1  # what Python's hash of an integer is taken modulo of

_COLLECTIONS = [
    ("concat doubles", doubled("[1 2 3 4 5 6 7 8]", "(concat x x)", 40), EITHER),
    ("into doubles", doubled("[1 2 3 4 5 6 7 8]", "(into x x)", 40), EITHER),
    ("reduce with concat doubles", "(count (reduce (fn [a _] (concat a a)) [1 2 3] (range 60)))", EITHER),
    ("interleave doubles", doubled("[1 2 3 4]", "(interleave x x)", 40), EITHER),
    ("flatten doubles", doubled("[1 2 3 4]", "(flatten [x x])", 40), EITHER),
    ("mapcat doubles", doubled("[1 2 3 4]", "(mapcat (fn [y] [y y]) x)", 40), EITHER),
    (
        "vectors of a vector",
        "(let [r (range 2000)] (count (mapv (fn [a] (mapv (fn [b] [a b]) r)) (range 200000))))",
        EITHER,
    ),
    (
        "three loops in each other",
        "(let [r (range 1000)] (reduce (fn [a x] (reduce (fn [b y] (reduce + b r)) a r)) 0 r))",
        TIME,
    ),
    (
        "group-by of everything",
        "(let [r (range 3000)] (group-by identity (mapcat (fn [a] (map (fn [b] [a b]) r)) r)))",
        EITHER,
    ),
    ("group-by in group-by", "(reduce (fn [m _] (group-by count [m m])) {} (range 100))", EITHER | FINE),
    ("group-by a key as large as the data", "(let [r (vec (range 3000))] (group-by (fn [x] (conj r x)) r))", EITHER),
    ("range of a billion", "(count (range 1000000000))", SPACE),
    ("repeat a billion", "(count (repeat 1000000000 :x))", SPACE),
    ("range backwards", "(count (range 0 -1000000000 -1))", SPACE),
    ("range of tiny steps", "(count (range 0 1 0.0000000001))", SPACE),
    ("range without a step", "(count (range 0 10 0))", EITHER | FINE | {"eval_error"}),
    ("range without an end", "(count (range))", EITHER | {"eval_error"}),
    ("dropping more than can be counted", "(first (drop 100000000000000000000 (range)))", TIME),
    ("dotimes of more than can be counted", "(dotimes [i 100000000000000000000] i)", TIME),
    ("windows that overlap", "(count (partition 5000 1 (range 100000)))", SPACE),
    (
        "conj copies",
        "(count (loop [v (vec (range 1000)) n 0] (if (< n 1000000) (recur (conj v n) (inc n)) v)))",
        EITHER | FINE,
    ),
    ("assoc copies", "(count (reduce (fn [m i] (assoc m i i)) {} (range 1000000)))", EITHER | FINE),
    (
        "merge copies",
        "(reduce (fn [m i] (merge m {i i})) (zipmap (range 10000) (range 10000)) (range 1000000))",
        EITHER,
    ),
    ("set copies", "(count (reduce (fn [s i] (conj s i)) #{} (range 1000000)))", EITHER | FINE),
    (
        "a set of everything",
        "(count (into #{} (mapcat (fn [a] (range (* a 100000) (* (inc a) 100000))) (range 10000))))",
        SPACE,
    ),
    (
        "keys that all hash to zero",
        f"(count (into #{{}} (map (fn [n] (* n {_ZERO})) (range 15000))))",
        EITHER | FINE,
    ),
    (
        "vectors that all hash alike",
        f"(count (distinct (map (fn [n] [(* n {_ZERO})]) (range 15000))))",
        EITHER | FINE,
    ),
    ("groups that all hash alike", f"(count (group-by (fn [n] (* n {_ZERO})) (range 15000)))", EITHER | FINE),
    ("a product of four", "(for [a (range 1000) b (range 1000) c (range 1000) d (range 1000)] [a b c d])", EITHER),
    ("drop in a loop", "(loop [v (vec (range 100000))] (if (seq v) (recur (rest v)) :done))", EITHER | FINE),
    ("sort in a loop", "(loop [v (vec (range 100000)) n 0] (if (< n 100000) (recur (sort > v) (inc n)) n))", EITHER),
    ("reverse in a loop", "(loop [v (vec (range 100000))] (recur (reverse v)))", EITHER),
    ("distinct in a loop", "(loop [v (vec (range 100000))] (recur (distinct v)))", EITHER),
    ("count in a loop", "(let [v (vec (range 100000))] (loop [n 0] (recur (+ n (reduce + v)))))", TIME),
    ("last in a loop", "(let [v (vec (range 100000))] (loop [n 0] (recur (+ n (last v)))))", TIME),
    (
        "membership in a vector",
        "(let [v (vec (range 100000))] (count (filter (fn [x] (contains? v (- x))) (range 1 100000))))",
        EITHER,
    ),
    (
        "some over some",
        "(let [v (vec (range 100000))] (count (filter (fn [x] (some (fn [y] (= y -1)) v)) v)))",
        EITHER,
    ),
    ("zipmap in zipmap", "(reduce (fn [m _] (zipmap (range 1000) (repeat 1000 m))) 1 (range 300))", EITHER),
    ("update-vals of update-vals", tower("x", first="{:a 1}", level="(update-vals {:a x :b x} identity)"), EITHER),
]

_NUMBERS = [
    ("squares", "(reduce (fn [a _] (* a a)) 3 (range 60))", SPACE),
    ("squares by let", doubled("7", "(* x x)", 40), SPACE),
    ("factorial", "(reduce * (range 1 1000000))", EITHER),
    ("factorial by apply", "(apply * (range 1 1000000))", EITHER),
    ("sums that double", "(reduce (fn [a _] (+ a a)) 1 (range 10000000))", EITHER),
    ("sums of huge numbers", "(let [n (reduce * (range 1 2000))] (reduce + (repeat 10000000 n)))", EITHER),
    ("fibonacci of a million", "(first (reduce (fn [[a b] _] [b (+ a b)]) [0 1] (range 10000000)))", EITHER),
    (
        "remainders of huge numbers",
        "(let [n (reduce * (range 1 3000))] (count (map (fn [i] (mod n (+ i n))) (range 10000000))))",
        EITHER,
    ),
    ("huge number as text", "(count (str (reduce * (range 1 1500))))", SPACE | FINE),
    (
        "huge numbers as text",
        "(let [n (reduce * (range 1 1500))] (reduce (fn [a _] (count (str n))) 0 (range 10000000)))",
        EITHER,
    ),
    ("text as a huge number", '(parse-long (apply str (repeat 1000000 "9")))', SPACE | FINE),
    ("text as a huge float", '(parse-double "1e999999999")', FINE),
    ("huge number as a float", "(/ (reduce * (range 1 1500)) 3)", SPACE | FINE | {"eval_error"}),
    ("numbers grow by subtraction", "(reduce (fn [a _] (- (- a) a)) 1 (range 10000000))", EITHER),
    ("text times a number", '(* "a" 1000000000)', {"eval_error", "analysis_error"}),
    ("vector times a number", "(* [1] 1000000000)", {"eval_error", "analysis_error"}),
    ("power", "(Math/pow 10 1000000)", SPACE | FINE | {"eval_error", "analysis_error"}),
    ("literal of a million digits", "9" * 1_000_000, REFUSED),
    ("exponent of a million", "1e1000000", REFUSED | FINE),
]

_TEXT = [
    ("str doubles", doubled('"0123456789"', "(str x x)", 40), SPACE),
    ("join doubles", doubled('"0123456789"', '(join "," [x x])', 40), SPACE),
    ("join of many", '(count (join "0123456789" (range 100000000)))', SPACE),
    ("join with a long separator", '(let [s (join (repeat 100000 "x"))] (count (join s (range 100000))))', EITHER),
    ("replace doubles", '(count (reduce (fn [s _] (replace s "a" "aa")) "a" (range 60)))', SPACE),
    ("replace with all", '(let [s (join (repeat 100000 "a"))] (count (replace s "a" s)))', EITHER),
    ("replace of nothing", '(let [s (join (repeat 100000 "a"))] (count (replace s "" s)))', EITHER | FINE),
    ("split into characters", '(count (split (join (repeat 30000000 "a")) ""))', SPACE),
    (
        "split in a loop",
        '(let [s (join "," (range 100000))] (loop [n 0] (recur (+ n (count (split s ","))))))',
        EITHER,
    ),
    ("str in a loop", '(loop [s "x"] (recur (str s "x")))', EITHER),
    (
        "upper-case in a loop",
        '(let [s (join (repeat 1000000 "x"))] (loop [n 0] (recur (+ n (count (upper-case s))))))',
        EITHER,
    ),
    (
        "includes in a loop",
        '(let [s (join (repeat 300000 "a")) t (str (join (repeat 1000 "a")) "b" (join (repeat 1000 "a")))] (loop [n 0] (recur (if (includes? s t) 1 (inc n)))))',
        EITHER,
    ),
    (
        "one character of a million marks",
        '(let [s (str "e" (join (repeat 1000000 "\u0301")))] [(count s) (subs s 0 1)])',
        EITHER | FINE,
    ),
    (
        "graphemes in a loop",
        '(let [s (join (repeat 100000 "e\u0301"))] (loop [n 0] (recur (+ n (count s)))))',
        EITHER,
    ),
    (
        "subs of subs",
        '(let [s (join (repeat 100000 "ab"))] (count (map (fn [i] (subs s i)) (range 100000))))',
        EITHER,
    ),
    ("text of ten megabytes", '(count "' + "x" * 10_000_000 + '")', REFUSED | SPACE | FINE),
    ("a name of a megabyte", "x" * 1_000_000, REFUSED | {"eval_error"}),
    ("a keyword of a megabyte", ":" + "x" * 1_000_000, REFUSED | FINE),
    ("keywords without number", "[" + " ".join(f":k{n}" for n in range(100_000)) + "]", REFUSED | FINE),
    ("a hundred thousand names", "(+ " + " ".join(f"x{n}" for n in range(100_000)) + ")", REFUSED | {"eval_error"}),
    (
        "keywords made of text",
        '(count (map (fn [n] (keyword (str "k" n))) (range 10000000)))',
        EITHER | {"eval_error", "analysis_error"},
    ),
    (
        "pattern that backtracks",
        '(re-find (re-pattern "(a+)+$") (str (join (repeat 50000 "a")) "!"))',
        EITHER | FINE | {"eval_error", "analysis_error"},
    ),
    (
        "pattern that backtracks, written",
        '(re-matches #"(a|a)*b|(a|aa)+$" (join (repeat 50000 "a")))',
        EITHER | FINE | REFUSED | {"eval_error"},
    ),
    (
        "pattern that gives back what it took",
        '(re-seq (re-pattern "\\w+\\w+\\w+\\w+@") (join (repeat 50000 "a")))',
        EITHER | FINE | {"eval_error", "analysis_error"},
    ),
    (
        "pattern with a huge count",
        '(re-find (re-pattern "((a{1,1000}){1,1000}){1,1000}") "aaaa")',
        EITHER | FINE | {"eval_error", "analysis_error"},
    ),
    (
        "pattern of nothing",
        '(count (re-seq (re-pattern "") (join (repeat 1000000 "a"))))',
        EITHER | FINE | {"eval_error", "analysis_error"},
    ),
    ("format pads", '(count (format "%1000000000d" 1))', SPACE | {"eval_error", "analysis_error"}),
]

_DEPTH = [
    ("deep vector", "(count (reduce (fn [a _] [a]) [] (range 50000)))", EITHER | FINE),
    ("deep map", "(count (reduce (fn [a _] {:a a}) {} (range 50000)))", EITHER | FINE),
    ("deep vector returned", "(reduce (fn [a _] [a]) [] (range 5000))", SPACE),
    ("deep map returned", "(reduce (fn [a _] {:a a}) {} (range 5000))", SPACE),
    ("deep set returned", "(reduce (fn [a _] #{a}) #{} (range 5000))", EITHER),
    ("deep vector as text", "(str (reduce (fn [a _] [a]) [] (range 5000)))", SPACE),
    ("deep vectors compared", "(let [f (fn [] (reduce (fn [a _] [a]) [] (range 5000)))] (= (f) (f)))", SPACE),
    ("deep vectors sorted", "(let [f (fn [] (reduce (fn [a _] [a]) [] (range 5000)))] (sort [(f) (f)]))", SPACE),
    ("deep vector flattened", "(count (flatten (reduce (fn [a _] [a]) [] (range 5000))))", SPACE | FINE),
    ("deep vector as a key", "{(reduce (fn [a _] [a]) [] (range 5000)) 1}", SPACE),
    ("deep maps compared", "(let [f (fn [] (reduce (fn [a _] {:a a}) {} (range 5000)))] (= (f) (f)))", SPACE),
    ("deep vector remembered", "(memory/put :k (reduce (fn [a _] [a]) [] (range 5000)))", SPACE),
    ("a path without end", "(assoc-in {} (vec (range 5000)) 1)", SPACE),
    ("a path updated", "(update-in {} (vec (range 5000)) (fn [x] 1))", SPACE),
    ("functions in functions", "((reduce comp identity (repeat 5000 inc)) 1)", EITHER),
    ("closures in closures", "((reduce (fn [f _] (fn [x] (f x))) inc (range 5000)) 1)", EITHER),
    ("partials in partials", "((reduce (fn [f _] (partial f 1)) + (range 5000)) 1)", EITHER | FINE),
    ("functions that double", "((reduce (fn [f _] (fn [x] (f (f x)))) inc (range 60)) 1)", TIME),
    ("comp doubles", "((reduce (fn [f _] (comp f f)) inc (range 60)) 1)", TIME),
    ("juxt doubles", "((reduce (fn [f _] (juxt f f)) inc (range 60)) 1)", EITHER),
    ("predicates that double", "((reduce (fn [p _] (all-of p p)) number? (range 60)) 1)", TIME),
    ("predicates in predicates", "((reduce (fn [p _] (any-of p)) number? (range 5000)) 1)", EITHER),
]

_SHARED = [
    ("shared and returned", tower("x"), EITHER),
    ("shared maps returned", tower("x", first="{:a 1}", level="{:a x :b x}"), EITHER),
    ("shared and printed", tower("(str x)"), EITHER),
    ("shared maps printed", tower("(str x)", first="{:a 1}", level="{:a x :b x}"), EITHER),
    ("shared and printed readably", tower("(pr-str x)"), EITHER | {"eval_error", "analysis_error"}),
    ("shared and joined", tower('(join "," x)'), EITHER | {"eval_error"}),
    ("shared and remembered", tower("(memory/put :k x)"), EITHER),
    ("shared and flattened", tower("(count (flatten x))"), EITHER),
    ("shared and counted apart", tower("(count x)"), FINE),
    ("two shared compared", twice("(= x y)"), EITHER),
    ("two shared, one changed", twice("(= x [y 1])"), EITHER | FINE),
    ("two shared, distinct", twice("(count (distinct [x y]))"), EITHER),
    ("two shared, sorted", twice("(sort [x y])"), EITHER | {"eval_error"}),
    ("two shared, greatest", twice("(max-by identity [x y])"), EITHER | {"eval_error"}),
    ("two shared, grouped", twice("(group-by identity [x y])"), EITHER),
    ("shared in a set", tower("#{x}"), EITHER),
    ("shared sets", tower("x", first="#{1}", level="#{x [x]}"), EITHER),
    ("shared as a key", tower("{x 1}"), EITHER),
    ("shared in frequencies", tower("(frequencies [x x])"), EITHER),
    ("shared and looked for", twice("(contains? [x] y)"), EITHER),
    ("shared and tested", twice("(some #{x} [y])"), EITHER),
    ("shared by case", twice("((where [:a] = x) {:a y})"), EITHER),
    ("shared and returned by signal", tower("(return x)"), EITHER),
    ("shared and failed with", tower("(fail {:reason :big :message x})"), EITHER),
    ("shared in an error", tower("(+ 1 x)"), EITHER | {"eval_error"}),
    ("shared in an unknown function", tower("(x 1)"), EITHER | {"eval_error"}),
    ("tree printed while growing", "(reduce (fn [s _] (str [s s])) 1 (range 60))", EITHER),
]

_CONTROL = [
    ("recursion", "(do (defn f [x] (f x)) (f 1))", EITHER),
    ("recursion that grows", "(do (defn f [x] (inc (f (inc x)))) (f 1))", EITHER),
    ("recursion in an argument", "(do (defn f [x] (f (f x))) (f 1))", EITHER),
    ("mutual recursion", "(do (defn f [x] (g x)) (defn g [x] (f x)) (f 1))", EITHER | {"analysis_error"}),
    ("recursion by itself", "((fn [f] (f f)) (fn [f] (f f)))", EITHER),
    ("recursion by itself, kept", "((fn [f] (vector (f f))) (fn [f] (vector (f f))))", EITHER),
    ("recursion by map", "((fn [f] (map f [f])) (fn [f] (map f [f])))", EITHER),
    ("recursion by reduce", "(do (defn f [a x] (reduce f a [1 2])) (f 0 1))", EITHER),
    ("recursion by sort-by", "(do (defn f [x] (sort-by f [2 1])) (f 1))", EITHER),
    ("recursion that branches", "(do (defn f [n] (if (< n 2) n (+ (f (- n 1)) (f (- n 2))))) (f 100))", TIME),
    (
        "Ackermann",
        "(do (defn a [m n] (cond (= m 0) (inc n) (= n 0) (a (dec m) 1) :else (a (dec m) (a m (dec n))))) (a 4 2))",
        EITHER,
    ),
    ("a loop", "(loop [] (recur))", TIME),
    ("a loop that counts", "(loop [n 0] (recur (inc n)))", TIME),
    ("a loop in a loop", "(loop [n 0] (loop [m 0] (if (< m 1000000) (recur (inc m)) m)) (recur (inc n)))", TIME),
    ("a loop that collects", "(loop [v []] (recur (conj v v)))", EITHER),
    ("a loop that wraps", "(loop [v []] (recur [v]))", EITHER),
    ("fn recurs", "((fn [n] (recur (inc n))) 0)", EITHER | {"analysis_error"}),
    ("while true", "(do (def x 0) (loop [n 0] (def x n) (recur (inc n))))", EITHER | {"analysis_error"}),
    ("iterate", "(nth (iterate inc 0) 1000000000)", EITHER | {"eval_error", "analysis_error"}),
    ("cycle", "(count (cycle [1 2]))", EITHER | {"eval_error", "analysis_error"}),
    ("repeatedly", "(count (repeatedly 1000000000 (fn [] 1)))", EITHER | {"eval_error", "analysis_error"}),
    ("dotimes", "(dotimes [n 1000000000] n)", EITHER | FINE | {"eval_error", "analysis_error"}),
    ("a comparator that says yes", "(count (sort (fn [a b] true) (range 1000000)))", EITHER | FINE),
    ("a comparator that counts", "(sort (fn [a b] (reduce + (range 1000)) (< a b)) (range 1000000))", EITHER),
    ("a comparator that sorts", "(do (defn c [a b] (sort c [2 1]) true) (sort c [3 1 2]))", EITHER),
    ("a comparator that lies", "(count (sort (fn [a b] (= 0 (mod (+ a b) 3))) (range 100000)))", EITHER | FINE),
    ("a comparator of no sense", '(sort (fn [a b] "x") (range 100000))', EITHER | FINE | {"eval_error"}),
    ("a key that is slow", "(sort-by (fn [x] (reduce + (range 10000))) (range 1000000))", EITHER),
    (
        "a predicate that is slow",
        "(filter (fn [x] (some (fn [y] (> y 9999)) (range 10000))) (range 1000000))",
        EITHER,
    ),
    ("a slow function of min-by", "(min-by (fn [x] (reduce + (range 10000))) (range 1000000))", EITHER),
    ("a slow function of group-by", "(group-by (fn [x] (reduce + (range 10000))) (range 1000000))", EITHER),
    (
        "a slow function of update-vals",
        "(update-vals (zipmap (range 100000) (range 100000)) (fn [x] (reduce + (range 10000))))",
        EITHER,
    ),
    ("a slow where", "(count (filter (where :a = (reduce + (range 10000))) (repeat 1000000 {:a 1})))", EITHER | FINE),
]

_FORMS = [
    ("opening parentheses", "(" * 200_000, REFUSED),
    ("opening brackets", "[" * 200_000, REFUSED),
    ("opening braces", "{:a " * 100_000, REFUSED),
    ("opening sets", "#{" * 100_000, REFUSED),
    ("opening functions", "#(" * 100_000, REFUSED),
    ("closing parentheses", ")" * 200_000, REFUSED),
    ("vectors in vectors", nested("[", "", "]", 100_000), REFUSED),
    ("calls in calls", nested("(str ", "1", ")", 6_000), REFUSED),
    ("maps in maps", nested("{:a ", "1", "}", 6_000), REFUSED),
    ("lets in lets", nested("(let [x 1] ", "x", ")", 6_000), REFUSED),
    ("ifs in ifs", nested("(if true ", "1", " 2)", 6_000), REFUSED),
    ("functions in fns", nested("(fn [x] ", "x", ")", 6_000), REFUSED),
    ("patterns in patterns", f"(let [{nested('[', 'x', ']', 6_000)} 1] x)", REFUSED),
    ("calls, nested as far as allowed", nested("(str ", "1", ")", 150), REFUSED | FINE),
    ("lets, nested as far as allowed", nested("(let [x 1] ", "x", ")", 150), REFUSED | FINE),
    ("fns, nested as far as allowed", nested("((fn [x] ", "x", ") 1)", 70), REFUSED | FINE),
    ("loops, nested as far as allowed", nested("(loop [x 1] ", "x", ")", 100), REFUSED | FINE),
    ("fors, nested as far as allowed", nested("(for [x [1]] ", "x", ")", 100), REFUSED | FINE),
    ("ands, nested as far as allowed", nested("(and ", "1", " 2)", 150), REFUSED | FINE),
    ("ors, nested as far as allowed", nested("(or nil ", "1", " 2)", 150), REFUSED | FINE),
    ("ors in first place", nested("(or ", "nil", " nil)", 150), REFUSED | FINE),
    ("if-lets, nested as far as allowed", nested("(if-let [x ", "1", "] x 2)", 100), REFUSED | FINE),
    ("when-lets, nested as far as allowed", nested("(when-let [x ", "1", "] x)", 100), REFUSED | FINE),
    ("some->s, nested as far as allowed", nested("(some-> ", "1", " inc inc)", 100), REFUSED | FINE),
    ("cond->s, nested as far as allowed", nested("(cond-> ", "1", " true inc)", 100), REFUSED | FINE),
    ("conds, nested as far as allowed", nested("(cond ", "1", " 2 :else 3)", 100), REFUSED | FINE),
    ("cases, nested as far as allowed", nested("(case ", "1", " 1 1 2)", 100), REFUSED | FINE),
    ("wheres, nested as far as allowed", nested("(where :a = ", "1", ")", 100), REFUSED | FINE | {"eval_error"}),
    ("a cond of 600 clauses", "(cond " + "false 1 " * 600 + ":else 2)", REFUSED | FINE),
    (
        "a case of 600 clauses",
        "(case 1 " + " ".join(f"{n} {n}" for n in range(2, 5_002)) + " :none)",
        REFUSED | FINE,
    ),
    ("a thread of 600 steps", "(-> 1 " + "inc " * 600 + ")", REFUSED | FINE),
    ("a long thread of calls", "(->> [1] " + "(map inc) " * 600 + "count)", REFUSED | FINE),
    ("an and of 600", "(and " + "true " * 600 + ")", REFUSED | FINE),
    ("an or of 600", "(or " + "nil " * 600 + ")", REFUSED | FINE),
    ("a sum of 6,000", "(+ " + "1 " * 6_000 + ")", REFUSED | FINE),
    ("a str of 6,000", "(str " + "1 " * 6_000 + ")", REFUSED | FINE),
    ("a let of 800", "(let [" + " ".join(f"x{n} {n}" for n in range(800)) + "] x799)", REFUSED | FINE),
    ("a do of 6,000", "(do " + "1 " * 6_000 + ")", REFUSED | FINE),
    ("a vector of 6,000", "(count [" + "1 " * 6_000 + "])", REFUSED | FINE),
    ("a map of 6,000", "(count {" + " ".join(f":k{n} {n}" for n in range(6_000)) + "})", REFUSED | FINE),
    ("a set of 6,000", "(count #{" + " ".join(str(n) for n in range(6_000)) + "})", REFUSED | FINE),
    ("a comparison of 600", "(< " + " ".join(str(n) for n in range(600)) + ")", REFUSED | FINE),
    ("600 definitions", "(do " + " ".join(f"(defn f{n} [x] x)" for n in range(600)) + " (f0 1))", REFUSED | FINE),
    (
        "a function of 500 parameters",
        "((fn [" + " ".join(f"x{n}" for n in range(500)) + "] x9) " + "1 " * 500 + ")",
        REFUSED | FINE,
    ),
    ("keys of 800", "(let [{:keys [" + " ".join(f"k{n}" for n in range(800)) + "]} {}] k9)", REFUSED | FINE),
    (
        "defaults of 1,000",
        "(let [{:keys [a] :or {a " + nested("(or nil ", "1", ")", 100) + "}} {}] a)",
        REFUSED | FINE,
    ),
    (
        "patterns, nested as far as allowed",
        f"(let [{nested('[', 'x', ']', 100)} {nested('[', '1', ']', 100)}] x)",
        REFUSED | FINE,
    ),
    ("key patterns, nested as far as allowed", f"(let [{nested('{', 'x', ' :a}', 100)} {{}}] x)", REFUSED | FINE),
    (
        "a pattern in a loop",
        "(loop [[a & more] (vec (range 100000)) n 0] (if a (recur more (+ n a)) n))",
        EITHER | FINE,
    ),
    ("a pattern that doubles", "(loop [[a b] [1 2]] (recur [[a b] [b a]]))", EITHER),
    ("the rest of the rest", "(do (defn f [& xs] (apply f xs xs)) (f 1))", EITHER | {"eval_error"}),
    ("apply of a million", "(count (apply vector (range 100000000)))", SPACE),
    ("apply doubles", "(do (defn f [& xs] (apply f (concat xs xs))) (f 1))", EITHER),
    ("a comment of a megabyte", ";" + "x" * 1_000_000 + "\n1", REFUSED | FINE),
    ("a megabyte of spaces", " " * 1_000_000 + "1", REFUSED | FINE),
    ("a megabyte of commas", "[" + "," * 1_000_000 + "]", REFUSED | FINE),
    ("text that does not end", '"' + "\\\\" * 500_000, REFUSED),
    ("nothing at all", "", REFUSED),
    ("characters that are none", "\x00\ud800\uffff", REFUSED),
]

_TOOLS = [
    ("tool flood", '(map (fn [i] (call "t" {})) (range 100000000))', answer, EITHER | {"tool_error", "eval_error"}),
    ("tool in a loop", '(loop [] (call "t" {:a 1}) (recur))', answer, EITHER | {"tool_error", "eval_error"}),
    ("tools that return much", '(mapv (fn [i] (call "t" {:i i})) (range 100000))', answer_big, EITHER | {"tool_error", "eval_error"}),
    ("a tool that returns deep data", '(call "t" {})', answer_deep, SPACE | {"tool_error"}),
    ("a tool that returns shared data", '(call "t" {})', answer_shared, EITHER | {"tool_error"}),
    ("shared data for a tool", tower('(call "t" {:x x})'), answer, EITHER),
    ("deep data for a tool", '(call "t" {:x (reduce (fn [a _] [a]) [] (range 5000))})', answer, SPACE),
    ("a tool as a comparator", '(sort (fn [a b] (call "t" {:a a :b b})) (range 1000000))', answer, EITHER | {"tool_error", "eval_error"}),
    ("much remembered", '(memory/put :k (join (repeat 2000000 "x")))', None, SPACE),
    ("much remembered in parts", '(map (fn [i] (memory/put :k (join (repeat 900000 "x")))) (range 1000000))', None, EITHER),
    ("many remembered", "(reduce (fn [a i] (memory/put :k (conj a i))) [] (range 1000000))", None, EITHER),
    ("what is remembered doubles", "(do (memory/put :k [1]) (map (fn [i] (memory/put :k [memory/k memory/k])) (range 100)))", None, EITHER),
]  # fmt: skip

BOMBS: tuple[Bomb, ...] = (
    *(
        Bomb(name=name, program=program, reasons=frozenset(reasons))
        for table in (_COLLECTIONS, _NUMBERS, _TEXT, _DEPTH, _SHARED, _CONTROL, _FORMS)
        for name, program, reasons in table
    ),
    *(
        Bomb(name=name, program=program, reasons=frozenset(reasons), tools=tools)
        for name, program, tools, reasons in _TOOLS
    ),
)
