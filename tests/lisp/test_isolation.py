"""A program in a process of its own: the same answers, and nothing of ours within its reach."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyagentd import lisp
from pyagentd.errors import ToolError
from pyagentd.lisp import isolation
from pyagentd.lisp.errors import Fail, LispError, Return
from pyagentd.lisp.isolation import BadMessage, Channel, Disconnected, ForkServer
from pyagentd.lisp.limits import DEFAULT_LIMITS, Limits
from pyagentd.lisp.serialization import readable

K = lisp.Keyword


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


def run(text, *, context=None, memory=None, tools=None, limits=DEFAULT_LIMITS, **options):
    return isolation.run(text, context=context or {}, memory=memory or {}, tools=tools, limits=limits, **options)


def refused(text, **options) -> LispError:
    with pytest.raises(LispError) as caught:
        run(text, **options)
    return caught.value


def children(fork_server: ForkServer) -> list[int]:
    assert fork_server._process is not None
    pid = fork_server._process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(+ 1 2)", 3),
        ("5.0", 5.0),
        ("nil", None),
        ('{:a [1 2.5 "~:x"] "b" #{true 1}}', None),
        ("{[1 2] 3, true 4, nil 5}", None),
        ("[ctx/rows memory/kept]", [[{"a": 1, K("b"): K("c")}], {K("x"): [True, 1]}]),
    ],
)
def test_a_value_is_what_it_would_be_here(text, value):
    context, memory = {"rows": [{"a": 1, K("b"): K("c")}]}, {"kept": {K("x"): [True, 1]}}
    isolated = run(text, context=context, memory=memory)
    here = lisp.compile(text).run(context, memory)
    assert readable(isolated.value) == readable(here.value)
    assert type(isolated.value) is type(here.value)
    assert value is None or isolated.value == value


def test_memory_comes_back_changed():
    assert run("(memory/put :n (inc memory/n))", memory={"n": 1, "m": K("k")}).memory == {"n": 2, "m": K("k")}


def test_what_it_used_is_told():
    usage = run("(count (map inc (range 1000)))").usage
    assert usage.steps > 0
    assert usage.cells > 0


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [("(+ 1", "parse_error", None), ("\n (nope 1)", None, (2, None)), ('(+ 1\n  (inc "x"))', "eval_error", (2, 3))],
)
def test_an_error_is_the_same_error(text, reason, place):
    isolated = refused(text)
    with pytest.raises(LispError) as caught:
        lisp.compile(text).run()
    here = caught.value
    assert isolated.explain() == here.explain()
    assert (isolated.reason, isolated.line, isolated.column) == (here.reason, here.line, here.column)
    assert reason in (None, isolated.reason)
    assert place is None or isolated.line == place[0]


def test_tools_are_answered_in_the_thread_that_asked():
    threads = []

    def tool(name, args):
        threads.append(threading.current_thread())
        return {K("name"): name, K("got"): args}

    result = run('(call "t" {:x #{1 2} "y" 1.0})', tools=tool)
    assert result.value == {K("name"): "t", K("got"): {K("x"): lisp.LispSet([1, 2]), "y": 1.0}}
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("error", [ToolError("it is broken"), LispError("tool_not_found", "there is none")])
def test_a_failing_tool_fails_as_it_does_here(error):
    def tool(name, args):
        raise error

    with pytest.raises(LispError) as caught:
        lisp.compile('(call "t" {})').run(tools=tool)
    isolated = refused('(call "t" {})', tools=tool)
    assert (isolated.reason, isolated.message) == (caught.value.reason, caught.value.message)


@pytest.mark.parametrize(("ending", "name"), [(Return, "return"), (Fail, "fail")])
def test_a_tool_may_end_the_program(ending, name):
    def tool(_, args):
        raise ending([1, K("a")])

    result = run('(do (memory/put :n 1) (call "t" {}) 99)', tools=tool)
    assert (result.signal, result.value) == (name, [1, K("a")])


@pytest.mark.parametrize("name", ["return", "fail"])
def test_a_signal_comes_back(name):
    result = run(f"(do ({name} {{:a 1}}) 99)")
    assert (result.signal, result.value) == (name, {K("a"): 1})


def test_an_error_of_the_caller_s_own_ends_the_child_and_comes_through(fork_server):
    class Mine(Exception):
        pass

    def tool(name, args):
        raise Mine

    with pytest.raises(Mine):
        run('(call "t" {})', tools=tool, fork_server=fork_server)
    _gone(fork_server)


def test_a_child_has_no_descriptors_but_its_own(fork_server):
    def tool(name, args):
        (child,) = children(fork_server)
        links = {entry.name: str(entry.readlink()) for entry in Path(f"/proc/{child}/fd").iterdir()}
        return {
            "open": sorted(links),
            "null": [links[number] for number in "012"],
            "files": [
                line for line in Path(f"/proc/{child}/limits").read_text().splitlines() if "open files" in line
            ],
        }

    with open(os.devnull) as file, socket.socket() as other:  # noqa: PTH123  # descriptors that must not be seen there
        os.set_inheritable(file.fileno(), True)
        os.set_inheritable(other.fileno(), True)
        seen = run('(call "t" {})', tools=tool, fork_server=fork_server).value
    assert seen["open"] == ["0", "1", "2", "3", "4"]
    assert seen["null"] == [os.devnull] * 3
    assert seen["files"][0].split()[3:5] == ["0", "0"]


def test_a_child_has_nothing_of_our_environment(fork_server, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")

    def tool(name, args):
        (child,) = children(fork_server)
        return Path(f"/proc/{child}/environ").read_text()

    assert "secret" not in run('(call "t" {})', tools=tool, fork_server=fork_server).value


def test_cancelling_ends_the_child_at_once(fork_server):
    started = threading.Event()

    def tool(name, args):
        started.set()

    text = '(do (call "t" {}) (loop [] (recur)))'
    endless = Limits(timeout_ms=600_000, steps=10**12)
    assert (
        refused(text, tools=tool, cancelled=started.is_set, fork_server=fork_server, limits=endless).reason
        == "timeout"
    )
    _gone(fork_server)


def test_a_child_whose_interpreter_dies_is_an_error_of_the_program(fork_server):
    def tool(name, args):
        os.kill(children(fork_server)[0], signal.SIGSEGV)

    assert refused('(call "t" {})', tools=tool, fork_server=fork_server).reason == "memory_exceeded"


def test_the_kernel_ends_a_child_that_hangs(fork_server):
    def tool(name, args):
        time.sleep(0.01)  # the program has used its time
        os.kill(children(fork_server)[0], signal.SIGALRM)

    limits = Limits(timeout_ms=1, tool_time_counts=True)
    assert refused('(call "t" {})', tools=tool, fork_server=fork_server, limits=limits).reason == "timeout"


def test_the_time_of_a_tool_counts_only_where_it_should():
    def tool(name, args):
        time.sleep(0.4)  # longer than the program may take, with its grace
        return 1

    counted = Limits(timeout_ms=100, tool_time_counts=True)
    assert refused('(call "t" {})', tools=tool, limits=counted).reason == "timeout"
    free = Limits(timeout_ms=100)
    assert run('(call "t" {})', tools=tool, limits=free).value == 1


def test_the_fork_server_is_started_again_when_it_is_gone(fork_server):
    assert run("1", fork_server=fork_server).value == 1
    assert fork_server._process is not None
    before = fork_server._process.pid
    os.kill(before, signal.SIGKILL)
    assert run("2", fork_server=fork_server).value == 2
    assert fork_server._process.pid != before


def test_children_are_left_to_nobody(fork_server):
    for _ in range(3):
        run("1", fork_server=fork_server)
    _gone(fork_server)
    process = fork_server._process
    assert process is not None
    fork_server.close()
    assert process.returncode == 0


def test_many_threads_may_run_programs_at_once(fork_server):
    with ThreadPoolExecutor(4) as threads:
        values = list(
            threads.map(lambda n: run(f"(reduce + 0 (range {n}))", fork_server=fork_server).value, range(12))
        )
    assert values == [sum(range(n)) for n in range(12)]


def test_a_process_forked_from_ours_has_a_fork_server_of_its_own():
    assert run("1").value == 1
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(run("(+ 1 1)").value).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read() == "2"
    os.waitpid(child, 0)
    assert run("3").value == 3


def test_functions_do_not_cross():
    error = refused("(fn [x] x)")
    assert error.reason == "eval_error"
    assert "function" in error.message


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x01{",
        b"\x00\x00\x00\x02\xff\xff",
        b"\x00\x01\x00\x00" + b"[" * 65536,
    ],
)
def test_what_is_no_message_is_told_apart(said):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        with pytest.raises(BadMessage):
            Channel(ours).receive()


def test_half_a_message_is_none():
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(b"\x00\x00\x00\x09{")
        with pytest.raises(Disconnected):
            Channel(ours).receive()


def _gone(fork_server: ForkServer) -> None:
    """Wait until the fork server has no children; the kernel needs a moment to end one."""
    end = time.monotonic() + 10
    while children(fork_server):
        assert time.monotonic() < end, "a child lives on"
        time.sleep(0.001)
