"""What leaves a program is no larger, written out, than what a run may make."""

import pytest

from pyagentd import lisp
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.limits import Limits
from pyagentd.lisp.serialization import check_extent

K = lisp.Keyword
LIMITS = Limits(cells=1000, bytes=1000, depth=100)


def tower(times, first=(1,), level=lambda x: [x, x]):
    value = list(first)
    for _ in range(times):
        value = level(value)
    return value


def nested(depth):
    value = [1]
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "x" * 2000,  # it has been charged when it was made
        list(range(1000)),
        {K(f"k{n}"): n for n in range(1000)},
        lisp.LispSet(range(1000)),
        tower(7),
        ["x" * 10] * 100,
        [["x"]] * 300,
        nested(100),
    ],
)
def test_as_large_as_it_may_be(value):
    check_extent(value, LIMITS)


@pytest.mark.parametrize(
    "value",
    [
        list(range(1001)),
        tower(60),
        tower(60, level=lambda x: {K("a"): x, K("b"): [x]}),
        tower(60, level=lambda x: [x, [x]]),
        tower(9, level=lambda x: {"a": [x, x]}),
        {"a": tower(8), "b": tower(8)},
        ["x" * 101] * 10,
        [["x" * 11]] * 100,
        [{"k" * 200: n} for n in range(6)],
        [lisp.LispSet.of([["x" * 100, n] for n in range(11)])],
        nested(101),
    ],
)
def test_too_large(value):
    with pytest.raises(LispError) as caught:
        check_extent(value, LIMITS)
    assert caught.value.reason == "memory_exceeded"


def test_a_value_that_contains_itself_is_too_deep():
    value: list[object] = []
    value.append(value)
    with pytest.raises(LispError):
        check_extent(value, LIMITS)


def test_a_tool_never_gets_a_tower():
    def tool(name, args):
        raise AssertionError("called")

    with pytest.raises(LispError) as caught:
        lisp.run('(call "t" {:x (reduce (fn [x _] [x x]) [1] (range 60))})', tools=tool)
    assert caught.value.reason == "memory_exceeded"
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "given", ["x" * 400, ["x" * 300, "y" * 100], list(range(400))], ids=["text", "texts", "items"]
)
def test_what_tools_give_is_charged_like_what_the_program_makes(given):
    program = lisp.compile('(count (mapv (fn [_] (call "t" {})) (range 3)))')
    with pytest.raises(LispError) as raised:
        program.run(tools=lambda name, args: given, limits=LIMITS)
    assert raised.value.reason == "memory_exceeded"
    few = lisp.compile('(count (mapv (fn [_] (call "t" {})) (range 2)))')
    assert few.run(tools=lambda name, args: given, limits=LIMITS).value == 2


@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize(
    "program",
    [
        "(reduce (fn [v _] [v]) [] (range 100000))",
        "(reduce (fn [v _] [v v]) [] (range 60))",
        "(return (reduce (fn [v _] {:a v :b v}) {} (range 60)))",
    ],
)
def test_a_run_refuses_a_result_that_could_not_be_written(program, isolation):
    with pytest.raises(LispError) as refused:
        lisp.run(program, isolation=isolation)
    assert refused.value.reason == "memory_exceeded"
