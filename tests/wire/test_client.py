"""The synchronous client against a real server, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import BadRequest, Busy, PyagentdError, Unreachable, WireError
from pyagentd.events import Event
from pyagentd.wire.client import connect
from tests.wire.conftest import Daemon, without_socket


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    async with asyncio.timeout(30):
        return await asyncio.to_thread(work, *arguments)


@pytest.mark.parametrize("tcp", [False, True])
async def test_a_call_by_unix_socket_or_tcp(daemon: Daemon, tcp: bool) -> None:
    if tcp:
        without_socket(daemon)

    def work() -> None:
        with connect(daemon.runtime_dir, human=True, name="cli") as client:
            assert client.greeting["version"] == "test"
            answer = client.call("flags", deep_flag=True, env={"A_B": "c"})
            assert answer == {"deep_flag": True, "kind": "tuple", "env": {"A_B": "c"}, "who": "cli"}

    await in_thread(work)


async def test_the_daemons_errors_keep_their_class(daemon: Daemon) -> None:
    def work() -> None:
        with connect(daemon.runtime_dir) as client:
            with pytest.raises(Busy, match="in flight") as caught:
                client.call("fails", how="busy")
            assert caught.value.hint == "Wait or abort it"
            with pytest.raises(BadRequest, match="unknown :colour"):
                client.call("echo", colour=1)
            with pytest.raises(PyagentdError, match="ZeroDivisionError"):
                client.call("fails", how="crash")
            with pytest.raises(WireError, match="No such method"):
                client.call("nothing")
            assert client.call("echo", value=[1, 2]) == {"value": [1, 2]}

    await in_thread(work)


async def test_a_client_that_wants_json_gets_false_and_empty_lists(daemon: Daemon) -> None:
    def work() -> None:
        with connect(daemon.runtime_dir, is_json=True) as client:
            told = client.call("returns", what="empty")
            text = 'é "\n\\'
            assert told == {"list": [], "map": {}, "false": False, "nil": None, "path": "/a", "text": text}
            assert told["false"] is False
            with pytest.raises(Busy, match="in flight"):
                client.call("fails", how="busy")
            for what in ("bytes", "object", "huge"):
                with pytest.raises(WireError):
                    client.call("returns", what=what)
        with connect(daemon.runtime_dir) as client:
            assert client.call("returns", what="empty")["list"] is None

    await in_thread(work)


async def test_a_large_answer_arrives(daemon: Daemon) -> None:
    def work() -> None:
        with connect(daemon.runtime_dir) as client:
            text = "é" * 400_000
            assert client.call("echo", value=text) == {"value": text}

    await in_thread(work)


async def test_events_are_kept_while_a_call_waits_and_end_in_time(daemon: Daemon) -> None:
    client = await in_thread(connect, daemon.runtime_dir)
    pushed = [
        Event("insert", "b", 1, ("text", None)),
        Event("insert", "b", 2, ("text", "response")),
        Event("insert", "b", 3, ("text", ("tool", "id"))),
        Event("run", "b", 4, ({"phase": "finished", "reason": "done"},)),
        Event("resync", "c", 9),
    ]
    for event in pushed:
        daemon.client.push(event)
    with client:
        beat = asyncio.Event()
        daemon.server.pulse.request("show", beat.set)
        await beat.wait()
        assert await in_thread(lambda: client.call("echo", value=1)) == {"value": 1}
        assert await in_thread(lambda: list(client.events(0.01))) == pushed


async def test_a_call_without_an_answer_times_out(daemon: Daemon) -> None:
    def work() -> None:
        with connect(daemon.runtime_dir) as client:
            with pytest.raises(WireError, match=r"No answer to waits within 0\.01 s\. .* kill -9 \d+"):
                client.call("waits", timeout=0.01)
            assert client.call("echo", value=1) == {"value": 1}

    await in_thread(work)


async def test_the_end_of_the_daemon_fails_what_waits(daemon: Daemon) -> None:
    client = await in_thread(connect, daemon.runtime_dir)
    waiting = asyncio.create_task(in_thread(lambda: list(client.events(None))))
    (connection,) = daemon.server._connections
    connection.abort()
    with pytest.raises(Unreachable, match="connection"):
        await waiting
    with pytest.raises(Unreachable):
        await in_thread(lambda: client.call("echo"))
    client.close()


def test_no_daemon_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="No daemon"):
        connect(tmp_path)


def test_a_stale_address_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "daemon.eld").write_text(f'(:proto 1 :pid 7 :socket "{tmp_path}/gone")')
    with pytest.raises(Unreachable, match=r"pid 7.*No such file") as caught:
        connect(tmp_path)
    assert "pyagentd serve" in caught.value.hint


def test_a_daemon_of_another_protocol_is_no_guess(tmp_path: Path) -> None:
    (tmp_path / "daemon.eld").write_text('(:proto 2 :pid 7 :socket "/x")')
    with pytest.raises(WireError, match="protocol 2") as caught:
        connect(tmp_path)
    assert not isinstance(caught.value, Unreachable)


def test_a_daemon_of_another_minor_version_is_told_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        (tmp_path / "daemon.eld").write_text(f'(:proto 1 :pid 7 :version "0.0.9" :socket "{path}")')
        with pytest.raises(WireError, match=r"version 0\.0\.9, the client") as caught:
            connect(tmp_path)
    assert "pyagentd stop" in caught.value.hint
