"""The server from outside: what a peer sends, what it gets."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pyagentd.clock import Pulse
from pyagentd.errors import StoreError
from pyagentd.events import Event
from pyagentd.features import task_runner
from pyagentd.wire import connection as auth
from pyagentd.wire.connection import Server
from pyagentd.wire.frames import call, frame
from tests.wire.conftest import TOKEN, Daemon, Peer, serving, until

Strangers = Callable[..., Awaitable[Peer]]
HELLO = {"proto": 1, "client": "test"}


# Introduction


async def test_hello_is_answered_with_who_the_daemon_is(strangers: Strangers, daemon: Daemon, tmp_path: Path) -> None:
    peer = await strangers()
    verb, uid, greeting = await peer.call("hello", {**HELLO, "human": True}, uid=3)
    assert (verb, uid) == ("return", 3)
    assert greeting == [
        ":proto",
        1,
        ":pid",
        daemon.runtime.pid,
        ":version",
        "test",
        ":sessions-dir",
        str(tmp_path / "sessions"),
    ]
    assert (daemon.client.human, daemon.client.name, daemon.log) == (True, "test", ["+test"])


async def test_a_peer_on_tcp_needs_the_token(strangers: Strangers, daemon: Daemon) -> None:
    for wrong in ({}, {"token": "wrong"}, {"token": 1}, {"token": TOKEN + "x"}):
        peer = await strangers(tcp=True)
        peer.send(call(1, "hello", {**HELLO, **wrong}))
        assert await peer.ended() == b""
    peer = await strangers(tcp=True)
    assert (await peer.call("hello", {**HELLO, "token": TOKEN}))[0] == "return"


@pytest.mark.parametrize(
    "first",
    [
        call(1, "echo", {"value": 1}),
        call(1, "hello", {**HELLO, "client": "x" * 1024}),
        call(1, "hello"),
        call(1, "hello", 1, 2),
        frame(b"(methods 1)"),
        frame(b"(call 1 hello ((:proto 1"),
        frame(b"(call 1 hello ((:proto)))"),
        frame(b"42"),
        b"ffffff",
        b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\0" * 10_000,
    ],
    ids=lambda first: first[:30].decode(),
)
@pytest.mark.parametrize("tcp", [False, True])
async def test_whoever_does_not_say_hello_first_hears_nothing(strangers: Strangers, first: bytes, tcp: bool) -> None:
    peer = await strangers(tcp=tcp)
    peer.send(first + b"(" * 100)
    assert await peer.ended() == b""


async def test_whoever_says_nothing_is_dropped(tmp_path: Path, strangers: Strangers) -> None:
    async with serving(tmp_path / "other", hello_timeout_s=0.01) as impatient:
        peer = await strangers(to=impatient)
        assert await peer.ended() == b""
        assert impatient.log == []


async def test_another_protocol_is_told_what_to_do(strangers: Strangers) -> None:
    peer = await strangers()
    verb, uid, (code, message, _, hint) = await peer.call("hello", {"proto": 2, "novelty": "yes"}, uid=9)
    assert (verb, uid, code) == ("epc-error", 9, "wire-error")
    assert message == "The daemon speaks protocol 1, the client 2"
    assert "pyagentd stop" in hint
    assert await peer.ended() == b""


async def test_calls_may_follow_hello_without_waiting(strangers: Strangers) -> None:
    peer = await strangers()
    peer.send(call(1, "hello", HELLO) + call(2, "echo", {"value": "x" * 5000}))
    assert (await peer.receive())[1] == 1
    assert await peer.receive() == ["return", 2, [":value", "x" * 5000]]


async def test_the_kernel_tells_whose_process_the_peer_is(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair()
    with here, there:
        assert auth.same_user(here)
        monkeypatch.setattr("os.geteuid", lambda: 12345)
        assert not auth.same_user(here)


@pytest.mark.parametrize("tcp", [False, True])
async def test_who_the_daemon_started_is_no_client_of_it(strangers: Strangers, daemon: Daemon, tcp: bool) -> None:
    """A command of an agent that is not confined must not approve itself, though it can read the token."""
    daemon.server.own_children = False
    peer = await strangers(tcp=tcp)  # this very process
    peer.send(call(1, "hello", {**HELLO, "token": TOKEN}))
    assert await peer.ended() == b""
    assert daemon.log == []
    daemon.server.own_children = True
    assert (await (await strangers(tcp=tcp)).call("hello", {**HELLO, "token": TOKEN}))[0] == "return"


_HIDE = "import ctypes; ctypes.CDLL(None).prctl(4, 0)"  # so that only root sees what it has open


@pytest.mark.parametrize("kind", ["unix", "tcp", "tcp over IPv6", "tcp, hiding"])
def test_a_process_is_known_by_whom_it_descends_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind(str(tmp_path / "s") if kind == "unix" else ("127.0.0.1", 0))
        listener.listen()
        address = listener.getsockname()
        to = ("::ffff:127.0.0.1", address[1]) if "IPv6" in kind else address
        theirs = socket.AF_INET6 if "IPv6" in kind else family
        command = f"import socket; s = socket.socket({int(theirs)}); s.connect({to!r}); s.recv(1)"
        command = f"{_HIDE}; {command}" if "hiding" in kind else command
        child = subprocess.Popen(["/bin/sh", "-c", f'{sys.executable} -c "{command}"; :'])
        peer, _ = listener.accept()
        with peer:
            assert auth.is_descendant(peer)
            monkeypatch.setattr("os.getpid", lambda: 0x7FFFFFFF)
            assert not auth.is_descendant(peer)
            monkeypatch.undo()
    child.wait()


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_command_of_a_task_that_outlived_its_daemon_is_known_as_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, family: socket.AddressFamily
) -> None:
    with socket.socket(family) as listener:
        listener.bind(str(tmp_path / "s") if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        connect = f"import socket; s = socket.socket({int(family)}); s.connect({listener.getsockname()!r}); s.recv(1)"
        argv, end = [sys.executable, "-c", connect], str(tmp_path / "end")
        told = {"argv": argv, "leader": "command", "files": [], "output": str(tmp_path / "out"), "most": 1000}
        spec = json.dumps({**told, "timeout_s": 60, "grace_s": 1, "temporary": None}).encode()
        task = subprocess.Popen([sys.executable, "-I", "-S", task_runner.__file__, end], stdin=subprocess.PIPE)
        assert task.stdin is not None
        task.stdin.write(spec + b"\ng")
        task.stdin.close()
        peer, _ = listener.accept()
        with peer:
            monkeypatch.setattr("os.getpid", lambda: 0x7FFFFFFF)  # of another daemon
            assert auth.is_descendant(peer)
            monkeypatch.undo()
    task.wait()


async def test_a_peer_of_another_user_is_dropped(
    strangers: Strangers, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    peer = await strangers()
    peer.send(call(1, "hello", HELLO))
    assert await peer.ended() == b""


async def test_tcp_without_a_token_is_not_offered() -> None:
    with socket.socket() as listener, pytest.raises(ValueError, match="token"):
        await Server(pulse=Pulse(asyncio.get_running_loop())).listen(listener)


# Calls


async def test_a_call_gets_its_keywords_and_answers_a_plist(peer: Peer) -> None:
    answer = await peer.call("flags", {"deep-flag": True, "names": None, "env": {"PATH": "/bin"}})
    assert answer == ["return", 7, [":deep-flag", True, ":kind", "tuple", ":env", [":PATH", "/bin"], ":who", "peer"]]


async def test_nil_is_an_answer(peer: Peer) -> None:
    assert await peer.call("echo") == ["return", 7, [":value", None]]


@pytest.mark.parametrize(
    ("method", "arguments", "verb", "code", "message"),
    [
        ("fails", {"how": "busy"}, "return-error", "busy", "A run is in flight"),
        ("fails", {"how": "crash"}, "return-error", "internal", "fails: ZeroDivisionError: by zero"),
        ("fails", {"how": "exit"}, "return-error", "internal", "fails: SystemExit: 3"),
        ("fails", {"how": "cancel"}, "return-error", "internal", "fails was cancelled: the daemon stops"),
        ("fails", {}, "return-error", "bad-request", "fails: missing :how"),
        ("fails", {"how": "busy", "why": 1}, "return-error", "bad-request", "fails: unknown :why"),
        ("nothing", {}, "epc-error", "wire-error", "No such method: nothing"),
        ("returns", {"what": "bytes"}, "return-error", "wire-error", "Bytes cannot travel"),
        ("returns", {"what": "object"}, "return-error", "wire-error", "No form on the wire for object"),
        (
            "returns",
            {"what": "huge"},
            "return-error",
            "wire-error",
            "A frame of 16777230 bytes, where 16777215 are the most",
        ),
    ],
)
async def test_every_failure_is_one_answer_and_the_connection_lives(
    peer: Peer, method: str, arguments: dict[str, Any], verb: str, code: str, message: str
) -> None:
    answered_verb, uid, (answered_code, answered_message, *_) = await peer.call(method, arguments)
    assert (answered_verb, uid, answered_code, answered_message) == (verb, 7, code, message)
    assert (await peer.call("echo", {"value": 1}, uid=8))[1] == 8


async def test_an_error_says_how_to_hint_it(peer: Peer) -> None:
    answer = await peer.call("fails", {"how": "busy"})
    assert answer[2] == ["busy", "A run is in flight", ":hint", "Wait or abort it"]


async def test_an_unexpected_error_leaves_its_traceback_in_the_log(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.call("fails", {"how": "crash"})
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b'(call 5 echo ("unterminated)', "Unreadable"),
        (b"(call 5 echo (#<buffer x>))", "Unreadable"),
        (b"(call 5 echo", "unclosed"),
        (b"(call 5 echo " + b"(" * 100_000, "unclosed"),
        (b"(call 5 echo) (", "unclosed"),
        (b"(call 5 echo)", "malformed"),
        (b"(call 5 echo nil nil)", "malformed"),
        (b"(call 5 12 nil)", "malformed"),
        (b"(methods 5 nil)", "malformed"),
    ],
)
async def test_an_unreadable_call_is_answered_by_its_uid(peer: Peer, payload: bytes, message: str) -> None:
    peer.send(frame(payload))
    verb, uid, (code, said) = await peer.receive()
    assert (verb, uid, code) == ("epc-error", 5, "wire-error")
    assert message in said


async def test_what_has_no_uid_is_ignored_and_the_connection_lives(peer: Peer) -> None:
    for payload in (
        b"nil",
        b"(",
        b"(bogus 1 2)",
        b"(return 0 nil)",
        b'(return-error 3 "x")',
        b"(epc-error nil 1)",
        b"\xff",
    ):
        peer.send(frame(payload))
    assert (await peer.call("echo", {"value": 1}))[0] == "return"


async def test_a_call_of_megabytes_is_served(peer: Peer) -> None:
    pasted = 'a line of "text"\n' * 300_000
    assert (await peer.call("echo", {"value": pasted}))[2] == [":value", pasted]


async def test_a_broken_header_ends_one_connection_only(peer: Peer, strangers: Strangers) -> None:
    other = await strangers()
    await other.call("hello", HELLO)
    peer.send(b"garbage!")
    await peer.ended()
    assert (await other.call("echo", {"value": 1}))[0] == "return"


async def test_a_notification_is_served_and_not_answered(peer: Peer, daemon: Daemon) -> None:
    daemon.operations.release.set()
    peer.send(call(0, "waits") + call(0, "nothing") + call(0, "fails", {"how": "busy"}))
    assert (await peer.call("echo", {"value": 1}))[1] == 7
    assert daemon.operations.finished == ["waits"]


async def test_a_slow_call_does_not_hold_up_the_others(peer: Peer, daemon: Daemon) -> None:
    peer.send(call(1, "waits"))
    assert (await peer.call("echo", {"value": 1}, uid=2))[1] == 2
    daemon.operations.release.set()
    assert await peer.receive() == ["return", 1, "released"]


async def test_three_thousand_pipelined_calls_get_one_answer_each(peer: Peer) -> None:
    peer.send(b"".join(call(uid, "echo", {"value": uid}) for uid in range(1, 3001)))
    answers = [await peer.receive() for _ in range(3000)]
    assert sorted(uid for _, uid, _ in answers) == list(range(1, 3001))
    assert all(value == [":value", uid] for _, uid, value in answers)


async def test_what_a_lost_client_asked_for_is_still_done(peer: Peer, daemon: Daemon) -> None:
    peer.send(call(1, "waits"))
    await daemon.operations.started.wait()
    client = daemon.client
    peer.close()
    await until(lambda: not daemon.server.clients)
    client.push(Event("status", "b", 0, ({"state": "idle"},)))
    assert daemon.log == ["+peer", "-peer"]
    (task,) = [task for task in asyncio.all_tasks() if "Connection._run" in repr(task)]
    daemon.operations.release.set()
    await task
    assert daemon.operations.finished == ["waits"]


async def test_methods_lists_what_is_offered(peer: Peer) -> None:
    peer.send(frame(b"(methods 4)"))
    verb, uid, methods = await peer.receive()
    assert (verb, uid) == ("return", 4)
    assert methods[0] == ["echo", "(:value)", "Answer with what was given."]
    assert [name for name, _, _ in methods] == ["echo", "fails", "returns", "waits", "flags"]


# Events


async def test_events_of_one_beat_travel_in_one_frame(peer: Peer, daemon: Daemon) -> None:
    client = daemon.client
    client.push(Event("status", "b", 0, ({"state": "busy", "run_id": None},)))
    client.push(Event("insert", "b", 4, ("hello ", "response")))
    client.push(Event("insert", "b", 5, ("world", "response")))
    client.push(Event("insert", "b", 6, ("(…)", ("tool", "toolu_1"))))
    client.push(Event("resync", "c", 9))
    assert await peer.receive() == [
        "call",
        0,
        "events",
        [
            [
                ["status", "b", None or 0, [":state", "busy", ":run-id", None]],
                ["insert", "b", 5, "hello world", "response"],
                ["insert", "b", 6, "(…)", ["tool", "toolu_1"]],
                ["resync", "c", 9],
            ]
        ],
    ]


async def test_a_client_that_does_not_read_costs_bounded_memory_and_is_told_to_resync(
    peer: Peer, strangers: Strangers, daemon: Daemon
) -> None:
    client = daemon.client
    other = await strangers()
    await other.call("hello", HELLO)
    client.reset("b", 0)
    outbox = client._outbox
    beats = asyncio.Semaphore(0)
    largest = 0
    for seq in range(1, 4001):  # 40 MB
        client.push(Event("insert", "b", seq, ("0123456789" * 1000, "response")))
        largest = max(largest, outbox._size)
        if seq % 100 == 0:
            daemon.server.pulse.request("show", beats.release)
            await beats.acquire()
            assert (await other.call("echo", {"value": seq}, uid=seq))[1] == seq  # nobody else waits
    assert largest <= 9 << 20
    shown = ""
    while True:
        _, _, _, [batch] = await peer.receive()
        inserts = [event for event in batch if event[0] == "insert"]
        shown += "".join(event[3] for event in inserts)
        if inserts:
            reached = inserts[-1][2]
        if batch[-1][0] == "resync":
            break
    # What was shown is exactly what the number says, so a replay from there is seamless.
    assert batch[-1] == ["resync", "b", reached]
    assert shown == "0123456789" * 1000 * reached
    client.push(Event("insert", "b", 4001, ("unseen", "response")))
    client.reset("b", 4001)
    client.push(Event("insert", "b", 4002, ("again", "response")))
    assert (await peer.receive())[3] == [[["insert", "b", 4002, "again", "response"]]]


async def test_a_client_that_reads_no_answers_may_not_ask_for_more(peer: Peer, daemon: Daemon) -> None:
    peer.writer.transport.pause_reading()
    (connection,) = daemon.server._connections
    value = "x" * 500_000
    for uid in range(1, 101):
        peer.send(call(uid, "echo", {"value": value}))
    transport = connection._transport
    await until(lambda: not transport.is_reading())
    assert transport.get_write_buffer_size() < 12 << 20
    peer.writer.transport.resume_reading()
    assert sorted([(await peer.receive())[1] for _ in range(100)]) == list(range(1, 101))


# The end


async def test_closing_lets_calls_finish_and_delivers_what_is_queued(tmp_path: Path, strangers: Strangers) -> None:
    async with serving(tmp_path / "other") as other:
        peer = await strangers(to=other)
        await peer.call("hello", HELLO)
        peer.send(call(1, "waits"))
        await other.operations.started.wait()
        other.client.push(Event("status", "b", 0, ({"state": "idle"},)))
        closing = asyncio.create_task(other.server.close(grace_s=10))
        other.operations.release.set()
        await closing
        assert b"released" in (rest := await peer.ended())
        assert b"idle" in rest


async def test_closing_cancels_what_does_not_finish_and_answers_it(tmp_path: Path, strangers: Strangers) -> None:
    async with serving(tmp_path / "other") as other:
        peer = await strangers(to=other)
        await peer.call("hello", HELLO)
        peer.send(call(1, "waits"))
        await other.operations.started.wait()
        await other.server.close(grace_s=0.01)
        assert await peer.receive() == ["return-error", 1, ["internal", "waits was cancelled: the daemon stops"]]


# Before everything is loaded


async def test_who_comes_before_all_is_loaded_is_greeted_and_answered_in_order(tmp_path: Path) -> None:
    server, peer = await early(tmp_path)
    try:
        assert (await peer.call("hello", HELLO, uid=1))[0] == "return"
        for uid in (2, 3, 4):
            peer.send(call(uid, "number", {}))
        numbers = iter((10, 20, 30))

        async def number(client: Any) -> int:
            return next(numbers)

        server.offer({"number": number})
        assert [await peer.receive() for _ in range(3)] == [["return", 2, 10], ["return", 3, 20], ["return", 4, 30]]
    finally:
        await server.close()


async def test_who_waits_hears_why_nothing_could_be_loaded(tmp_path: Path) -> None:
    server, peer = await early(tmp_path)
    try:
        await peer.call("hello", HELLO, uid=1)
        peer.send(call(2, "number", {}))
        await asyncio.sleep(0)
        server.refuse(StoreError("state.db is of a newer version"))
        verb, uid, error = await peer.receive()
        assert (verb, uid) == ("return-error", 2) and "newer version" in str(error)
        peer.send(call(3, "number", {}))
        assert (await peer.receive())[:2] == ["return-error", 3]
    finally:
        await server.close()


async def early(tmp_path: Path) -> tuple[Server, Peer]:
    """A server without operations, and who has connected to it."""
    server = Server(pulse=Pulse(asyncio.get_running_loop()))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    await server.listen(listener)
    return server, Peer(*await asyncio.open_unix_connection(str(tmp_path / "s")))


async def test_a_client_of_another_minor_version_is_told_what_to_do(strangers: Strangers, daemon: Daemon) -> None:
    daemon.server.greeting["version"] = "0.4.2"
    peer = await strangers()
    verb, _, (code, message, _, hint) = await peer.call("hello", {"proto": 1, "version": "0.5.0"}, uid=9)
    assert (verb, code, message) == ("epc-error", "wire-error", "The daemon is version 0.4.2, the client 0.5.0")
    assert "pyagentd stop" in hint
    assert await peer.ended() == b""
    neighbour = await strangers()
    assert (await neighbour.call("hello", {"proto": 1, "version": "0.4.9"}, uid=1))[0] == "return"
