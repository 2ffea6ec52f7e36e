"""A program runs against context, memory and tools, and says what it used and what went wrong where."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pyagentd import lisp
from pyagentd.errors import ToolError
from pyagentd.lisp import Keyword, Limits, LispError

A = Keyword("a")


def failure(program: str, *args: Any, **options: Any) -> LispError:
    with pytest.raises(LispError) as caught:
        lisp.run(program, *args, **options)
    return caught.value


def echo(name: str, args: dict[Any, Any]) -> Any:
    return args


def test_the_value_of_the_last_form_is_the_result() -> None:
    result = lisp.run("1 (+ 1 2)")
    assert (result.value, result.signal, result.memory) == (3, None, {})


def test_a_compiled_program_runs_any_number_of_times_and_keeps_nothing() -> None:
    program = lisp.compile("(memory/put :n (+ 1 (memory/get :n 0)))")
    assert [program.run().value, program.run().value, program.run(memory={"n": 5}).value] == [1, 1, 6]


def test_one_program_runs_in_several_threads() -> None:
    program = lisp.compile("(reduce (fn [a x] (+ a (* x ctx/k))) 0 (range 1000))")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: program.run({"k": k}).value, range(20)))
    assert found == [499500 * k for k in range(20)]


@pytest.mark.parametrize("context", [{"a": 1}, {A: 1}])
def test_the_context_is_read_by_name_or_keyword(context: dict[Any, int]) -> None:
    assert lisp.run("[ctx/a ctx/b]", context).value == [1, None]


@pytest.mark.spec("004", "Memory Operations")
class TestMemory:
    def test_names_and_keywords_are_one_key(self) -> None:
        assert lisp.run("(memory/put :a (+ 1 memory/a))", memory={A: 1}).memory == {"a": 2}

    def test_what_is_put_is_in_the_result_and_not_in_the_map_that_was_given(self) -> None:
        given = {"a": 1}
        result = lisp.run("(memory/put :b (+ memory/a 1))", memory=given)
        assert result.memory == {"a": 1, "b": 2}
        assert given == {"a": 1}

    def test_a_program_that_fails_leaves_it_as_it_was(self) -> None:
        given = {"a": 1}
        assert failure('(do (memory/put :a 2) (inc "x"))', memory=given).reason == "eval_error"
        assert given == {"a": 1}

    def test_a_value_larger_than_it_may_be_is_refused_where_it_is_put(self) -> None:
        error = failure('(do 1\n (memory/put :a (join (repeat 2000 "x"))))', limits=Limits(memory_bytes=1000))
        assert (error.reason, error.line, error.column) == ("memory_exceeded", 2, 2)

    def test_the_whole_of_it_is_measured_at_the_end(self) -> None:
        program = '(dotimes [i 20] (memory/put (str "k" i) (join (repeat 100 "x"))))'
        assert failure(program, limits=Limits(memory_bytes=1000)).reason == "memory_exceeded"
        assert len(lisp.run(program).memory) == 20


class TestSignals:
    @pytest.mark.parametrize(
        "program",
        [
            "(return {:a 1})",
            '(call "return" {:a 1})',
            '(do (return {:a 1}) (throw "never"))',
            "(let [x {:a 1}] (if x (return x) 5))",
            "(map (fn [x] (return {:a x})) [1 2])",
            "(try (return {:a 1}) (catch e 5))",
            "(+ 1 (return {:a 1}))",
            '(let [how "return"] (call how {:a 1}))',
            "(sort-by (fn [x] (return {:a 1})) [2 1])",
        ],
    )
    def test_return_ends_the_program_wherever_it_stands(self, program: str) -> None:
        result = lisp.run(program)
        assert (result.signal, result.value) == ("return", {A: 1})

    @pytest.mark.parametrize("program", ["(fail :why)", '(call "fail" :why)', "(if true (fail :why) (return 1))"])
    def test_fail_ends_it_too(self, program: str) -> None:
        result = lisp.run(program)
        assert (result.signal, result.value) == ("fail", Keyword("why"))

    @pytest.mark.parametrize("isolation", ["none", "process"])
    def test_a_future_that_nothing_reads_may_end_the_program(self, isolation: Any) -> None:
        result = lisp.run("(do (future (return 3)) (future (fail 4)) 5)", isolation=isolation)
        assert (result.signal, result.value) == ("return", 3)
        result = lisp.run("(do (future (return 3)) (fail 5))", isolation=isolation)
        assert (result.signal, result.value) == ("fail", 5)

    @pytest.mark.parametrize("program", ["(return)", '(call "return")', "(fail)"])
    def test_without_a_value_it_is_nil(self, program: str) -> None:
        assert lisp.run(program).value is None

    def test_a_text_that_mentions_return_ends_nothing(self) -> None:
        assert lisp.run('(str "(return " 5 ")")').signal is None

    def test_what_was_put_before_is_kept(self) -> None:
        assert lisp.run("(memory/put :a 1) (return 2)").memory == {"a": 1}


@pytest.mark.spec("004", "Tool Call Format")
class TestTools:
    def test_a_tool_gets_its_name_and_the_map(self) -> None:
        result = lisp.run('(call "echo" {:a (+ 1 1)})', tools=lambda name, args: [name, args])
        assert result.value == ["echo", {A: 2}]

    @pytest.mark.spec("004", "Zero-Argument Tool Calls")
    @pytest.mark.parametrize("program", ['(call "echo")', '(call "echo" {})', '(call "echo" nil)'])
    def test_no_arguments_are_an_empty_map(self, program: str) -> None:
        assert lisp.run(program, tools=echo).value == {}

    def test_arguments_may_be_any_expression_that_gives_a_map(self) -> None:
        assert lisp.run('(let [m {:a 1}] (call "echo" (assoc m :b 2)))', tools=echo).value == {A: 1, Keyword("b"): 2}

    def test_its_error_is_the_programs_with_its_place(self) -> None:
        def boom(name: str, args: dict[Any, Any]) -> Any:
            raise ToolError("the disk is full")

        error = failure('(do\n  (call "save" {}))', tools=boom)
        assert (error.reason, error.line, error.column) == ("tool_error", 2, 3)
        assert error.message == "the tool save failed: the disk is full"

    def test_more_calls_than_allowed_are_an_error(self) -> None:
        program = '(map (fn [x] (call "echo" {:x x})) (range 5))'
        assert len(lisp.run(program, tools=echo, limits=Limits(tool_calls=5)).value) == 5
        assert failure(program, tools=echo, limits=Limits(tool_calls=4)).reason == "tool_error"

    def test_without_tools_every_one_is_unknown(self) -> None:
        assert failure('(call "x" {})').reason == "tool_not_found"


class TestLimits:
    @pytest.mark.parametrize(
        "program",
        [
            "(loop [] (recur))",
            "(defn f [] (f2)) (defn f2 [] (loop [i 0] (recur (inc i)))) (f)",
            "(reduce (fn [a x] (reduce (fn [b y] (+ b y)) a (range 10000))) 0 (range 10000))",
            "((fn [n] (recur (inc n))) 0)",
            "(dotimes [i 1000000000] i)",
        ],
    )
    def test_what_never_ends_ends_by_steps(self, program: str) -> None:
        error = failure(program, limits=Limits(steps=100_000, timeout_ms=60_000))
        assert error.reason == "timeout"

    def test_it_ends_by_the_clock(self) -> None:
        assert failure("(loop [] (recur))", limits=Limits(timeout_ms=1)).reason == "timeout"

    @pytest.mark.parametrize(
        "program",
        [
            "(try (loop [] (recur)) (finally (loop [i 0] (if (< i 100) (recur (inc i)) i))))",
            "(let [one (future (loop [] (recur))) other (future (loop [] (recur)))] [@other @one])",
        ],
    )
    def test_what_goes_on_after_the_limit_ends_by_it_too(self, program: str) -> None:
        assert failure(program, limits=Limits(steps=10_000, timeout_ms=60_000)).reason == "timeout"

    def test_it_ends_when_it_is_cancelled(self) -> None:
        error = failure("(loop [] (recur))", cancelled=lambda: True)
        assert (error.reason, error.message) == ("timeout", "the program was cancelled")

    @pytest.mark.parametrize(
        "program",
        [
            "(defn f [n] (+ 1 (f n))) (f 1)",
            "(loop [x 2] (recur (* x x)))",
            "(loop [x [1]] (recur (into x x)))",
            '(loop [x "ab"] (recur (str x x)))',
            "(loop [x 1] (recur (+ x x)))",
            "(loop [x 1] (recur (- x (- x))))",
            "(reduce (fn [x _] (+ x x 1)) 1 (range 20000))",
            "(= (reduce (fn [a _] [a]) 1 (range 5000)) (reduce (fn [a _] [a]) 2 (range 5000)))",
        ],
    )
    def test_growth_without_end_is_refused(self, program: str) -> None:
        assert failure(program, limits=Limits(timeout_ms=60_000)).reason == "memory_exceeded"

    def test_what_was_used_is_told(self) -> None:
        usage = lisp.run("(map (fn [x] [x]) (range 1000))").usage
        assert usage.steps >= 1000
        assert usage.cells >= 2000
        assert usage.duration_ms > 0


class TestErrors:
    def test_the_place_is_that_of_the_innermost_form(self) -> None:
        error = failure("(let [f (fn [x]\n          (+ x 1))]\n  (map f [1 nil]))")
        assert (error.line, error.column) == (2, 11)

    def test_names_that_look_alike_are_suggested(self) -> None:
        assert failure("(fliter odd? [1])").hint == "Did you mean filter?"
        assert failure("(let [customers 1] customer)").hint == "Did you mean customers?"
        assert failure("(map data/rows)").hint == "Did you mean ctx/rows?"

    @pytest.mark.parametrize(("program", "told"), [("([1])", True), ("([1] 0)", False)])
    def test_a_value_in_parentheses_is_told_to_stand_without_them(self, program: str, told: bool) -> None:
        assert ("write x, not (x)" in failure(program).hint) is told

    @pytest.mark.parametrize("program", ['(.contains "a" "b")', '(Exception. "x")', "(System/currentTimeMillis)"])
    def test_java_gets_functions_to_write_instead(self, program: str) -> None:
        assert "There are no Java classes and methods: write (upper-case s)" in failure(program).hint

    @pytest.mark.parametrize(
        ("program", "hint"),
        [
            ("(while true 1)", "use loop and recur"),
            ("(doto 1 inc)", "use ->"),
            ("(list* 1 2 [3])", "(into [a b] coll)"),
            ("(nthnext [1 2] 1)", "(drop n coll)"),
            ("(tree-seq vector? identity [1 [2]])", "with mapcat"),
            ("(letfn [(f [x] x)] (f 1))", "with defn"),
            ("(map (memoize inc) [1])", "bind them with let"),
            ("(bit-and 12 10)", "use quot, mod and pow"),
            ("(clojure.set/join #{} #{})", "use filter, map and group-by"),
            ("(require '[clojure.set :as s]) (s/project #{} [])", "use filter, map and group-by"),
        ],
    )
    def test_what_is_left_out_of_clojure_gets_what_to_write_instead(self, program: str, hint: str) -> None:
        error = failure(program)
        assert error.reason == "analysis_error"
        assert hint in error.hint

    @pytest.mark.parametrize(
        "program",
        [
            "ctx",
            "memory",
            "(atom 1)",
            "(defmacro m [] 1)",
            "(swap! x inc)",
            "(volatile! 1)",
            "(lazy-seq [])",
            "(rand)",
        ],
    )
    def test_what_is_not_there_is_said_with_what_to_do_instead(self, program: str) -> None:
        hint = failure(program).hint
        assert hint
        assert "Did you mean" not in hint and "Bind it" not in hint

    @pytest.mark.parametrize(
        "program", ["(/ 1 0)", "(+ 1 nil)", "(nth 5 1)", "(:a 5)", "(5 5)", "({} 1 2 3)", "(#{} 1 2)", "(:a {} 1 2)"]
    )
    def test_no_error_shows_python(self, program: str) -> None:
        error = failure(program)
        assert error.reason == "eval_error"
        for word in ("Traceback", "None", "<function", "object at", "TypeError", "dict", "list"):
            assert word not in error.explain()

    def test_an_error_survives_pickling(self) -> None:
        error = failure("(let [x 1]\n (inc :a))")
        again = pickle.loads(pickle.dumps(error))
        assert again.explain() == error.explain()
        assert again.reason == error.reason

    def test_an_unknown_name_is_said_before_anything_runs(self) -> None:
        calls: list[str] = []

        def tool(name: str, args: dict[Any, Any]) -> None:
            calls.append(name)

        assert failure('(do (call "t" {}) (unknown))', tools=tool).reason == "analysis_error"
        assert calls == []


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("(loop [i 1 n 0] (if (< n 60) (recur (* i 2) (inc n)) i))", 2**60),
        ("(loop [i 0 x 0] (if (< i 3) (recur (inc i) (+ x 0.5)) x))", 1.5),
        ("(map (fn [n] [(mod n -3) (rem n 2) (even? n)]) (range -1 1))", [[-1, -1, False], [0, 0, True]]),
        ("(loop [i 7 found []] (if (pos? i) (recur (quot i 2) (conj found (odd? i))) found))", [True] * 3),
    ],
)
def test_arithmetic_of_counters_is_that_of_any_numbers(program: str, value: Any) -> None:
    assert lisp.run(program).value == value


def test_a_vector_built_by_a_reduction_is_counted_as_its_items() -> None:
    program = "(reduce (fn [found x] (if (odd? x) (conj found x) found)) [0] ctx/xs)"
    used = [lisp.run(program, {"xs": list(range(n))}).usage.cells for n in (0, 1000)]
    assert used == [1, 501]
    assert failure(program, {"xs": list(range(1000))}, limits=Limits(cells=400)).reason == "memory_exceeded"


@pytest.mark.parametrize("mistake", [TypeError("unhashable"), ValueError("no integer")])
def test_an_exception_of_python_is_an_error_of_the_program_at_its_place(mistake: Exception) -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise mistake

        __hash__ = None  # type: ignore[assignment]

    context = {"x": Odd()}
    error = failure("(+ 1\n  (if (= ctx/x 1) 2 3))", context)
    assert (error.reason, error.line, error.__cause__) == ("eval_error", 2, mistake)
    assert lisp.run("(try (= ctx/x 1) (catch e (:reason e)))", context).value == Keyword("eval_error")
