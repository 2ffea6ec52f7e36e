import asyncio
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pyagentd.policy.action import Action
from pyagentd.tools.process import Group, Leader
from pyagentd.tools.sandbox import launcher
from pyagentd.tools.shell import BASH
from pyagentd.tools.spec import ToolContext
from tests.tools.conftest import Call
from tests.tools.processes import children, pids_in, running, until


async def test_output_and_errors_come_together_from_the_workspace_root(root: Path, call: Call) -> None:
    envelope = await call(BASH, command="pwd; echo problem >&2; echo end", description="Look")
    assert (envelope.ok, envelope.text) == (True, f"{root}\nproblem\nend\n")
    assert not envelope.truncated


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("true", "[no output]"),
        ("echo -n x; exit 3", "x\n[exit code 3]"),
        ("echo x; false", "x\n[exit code 1]"),
        ("exit 7", "[exit code 7]"),
        ("kill -9 $$", "[ended by signal 9]"),
        ("no-such-command 2>/dev/null", "[exit code 127]"),
        ("printf 'a\\377b'", "a�b"),
    ],
)
async def test_the_text_says_how_the_command_ended(call: Call, command: str, text: str) -> None:
    envelope = await call(BASH, command=command)
    assert (envelope.text, envelope.ok) == (text, "[e" not in text)


async def test_there_is_no_input_and_no_terminal(call: Call) -> None:
    assert (await call(BASH, command="cat; (: </dev/tty) 2>/dev/null || echo none")).text == "none\n"


async def test_long_output_is_kept_whole_and_its_head_shown(call: Call) -> None:
    envelope = await call(BASH, command="seq 1 100000; exit 4")
    assert envelope.truncated
    assert not envelope.ok
    assert envelope.output_path is not None
    assert envelope.output_path.read_text() == "".join(f"{n}\n" for n in range(1, 100_001))
    assert envelope.output_path.stat().st_mode & 0o777 == 0o600
    shown, _, rest = envelope.text.partition("[Only the beginning")
    last = int(shown.split()[-1])
    assert 150_000 < len(shown) < 200_000
    assert f"offset={last + 1})" in rest
    assert rest.endswith("\n[exit code 4]")


async def test_output_that_is_no_text_is_bounded_too(call: Call) -> None:
    envelope = await call(BASH, command="head -c 190000 /dev/zero | tr '\\0' '\\377'; exit 1")
    assert envelope.truncated
    assert len(envelope.text.encode()) < 201_000
    assert envelope.text.endswith("[exit code 1]")
    assert envelope.output_path is not None
    assert envelope.output_path.read_bytes() == b"\xff" * 190_000


async def test_a_command_that_prints_without_end_is_stopped(call: Call) -> None:
    envelope = await call(BASH, command="yes")
    assert "the command was stopped: it printed more than 50 MB" in envelope.text
    assert envelope.output_path is not None
    assert envelope.output_path.stat().st_size < 51_000_000
    assert children() == set()


async def test_a_timeout_stops_the_command_and_everything_it_started(root: Path, call: Call) -> None:
    stubborn = "(trap '' TERM; echo $BASHPID >>pids; while :; do sleep 100; done)"
    command = f"echo begun; {stubborn} & sleep 100 & echo $! >>pids; wait"
    started = time.monotonic()
    envelope = await call(BASH, command=command, timeout_ms=700)
    assert not envelope.ok
    assert envelope.text == "begun\n[the command was stopped: it did not end within 0.7 s]"
    assert time.monotonic() - started < 60
    pids = await pids_in(root / "pids", 2)
    # A killed process that is not our child may need a moment to be gone.
    await until(lambda: not any(running(pid) for pid in pids))


async def test_a_command_may_tidy_up_when_it_is_stopped(root: Path, call: Call) -> None:
    command = "trap 'echo tidied; touch tidied; exit' TERM; while :; do sleep 0.05; done"
    envelope = await call(BASH, command=command, timeout_ms=300)
    assert "tidied" in envelope.text
    assert (root / "tidied").exists()


async def test_cancellation_stops_the_command_and_everything_it_started(root: Path, call: Call) -> None:
    task = asyncio.ensure_future(call(BASH, command="sleep 100 & echo $! >>pids; echo $$ >>pids; wait"))
    pids = await pids_in(root / "pids", 2)
    assert all(running(pid) for pid in pids)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # A killed process that is not our child may need a moment to be gone.
    await until(lambda: not any(running(pid) for pid in pids))


async def test_a_second_cancellation_does_not_wait_for_the_grace(
    root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group.stop, "__defaults__", (60.0,))
    task = asyncio.ensure_future(call(BASH, command="trap '' TERM; echo $$ >>pids; while :; do sleep 100; done"))
    (pid,) = await pids_in(root / "pids", 1)
    started = time.monotonic()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 30
    await until(lambda: not running(pid))


@pytest.mark.parametrize("leader", ["command", "launcher"])
async def test_what_is_cancelled_while_it_starts_leaves_nothing_behind(root: Path, leader: Leader) -> None:
    argv = ["/bin/bash", "-c", "echo $$ >>pids; sleep 100 & echo $! >>pids; wait"]
    read, write = os.pipe()
    told = {"argv": argv, "abi": 0, "rules": [], "network": True, "parent": os.getpid()}
    os.write(write, json.dumps(told).encode())
    os.close(write)
    if leader == "launcher":
        argv = [sys.executable, launcher.__file__, str(read)]
    env = {"PATH": "/usr/bin:/bin"}
    task = asyncio.ensure_future(Group.start(*argv, cwd=root, env=env, leader=leader, files=(read,)))
    for _ in range(2):
        await asyncio.sleep(0)
    end = time.monotonic() + 20
    while not (root / "pids").exists() or len((root / "pids").read_text().split()) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)  # noqa: ASYNC251 - so that asyncio does not take note that it has started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pids = await pids_in(root / "pids", 2)
    await until(lambda: not any(map(running, pids)))
    os.close(read)


@pytest.mark.parametrize("how", ["", "setsid ", "setsid nohup env -i /bin/"])
async def test_what_is_left_in_the_background_ends_with_the_command(root: Path, call: Call, how: str) -> None:
    envelope = await call(BASH, command=f"({how}sleep 100 & echo $! >pids); echo done")
    assert (envelope.ok, envelope.text) == (True, "done\n")
    (pid,) = await pids_in(root / "pids", 1)
    await until(lambda: not running(pid))


@pytest.mark.parametrize("how", ["timeout_ms", "cancelled"])
async def test_what_left_its_session_is_stopped_too(root: Path, call: Call, how: str) -> None:
    command = "setsid bash -c 'trap \"\" TERM; setsid sleep 100 & echo $! $$ >>pids; wait' & wait"
    limit = 500 if how == "timeout_ms" else 60_000
    running_call = asyncio.ensure_future(call(BASH, command=command, timeout_ms=limit))
    pids = await pids_in(root / "pids", 2)
    if how == "cancelled":
        running_call.cancel()
    await asyncio.wait([running_call])
    await until(lambda: not any(running(pid) for pid in pids))


async def test_a_command_runs_under_limits(call: Call) -> None:
    envelope = await call(BASH, command="ulimit -c; ulimit -n; ulimit -v; ulimit -Hv; ulimit -f; ulimit -t")
    core, files, address, lifted, size, seconds = envelope.text.split()
    assert (core, lifted) == ("0", "unlimited")
    assert 0 < int(files) <= 16_384
    assert (int(address), int(size)) == (256 * 1024 * 1024, 16 * 1024 * 1024)
    assert int(seconds) >= 600


async def test_commands_run_side_by_side_and_leave_nothing_behind(root: Path, call: Call) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    # Each waits for the other: one after the other they would never end.
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.02; done; echo {0}"
    envelopes = await asyncio.gather(
        *(call(BASH, command=meet.format(*pair), timeout_ms=20_000) for pair in [("a", "b"), ("b", "a")])
    )
    assert [envelope.text for envelope in envelopes] == ["a\n", "b\n"]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


async def test_secrets_do_not_reach_the_command(
    call: Call, ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from the daemon")
    monkeypatch.setenv("SOMETHING_ELSE", "from the daemon")
    monkeypatch.setenv("LC_TIME", "C")
    env = {
        "PATH": os.environ["PATH"],
        "PROJECT": "mine",
        "GH_TOKEN": "t",
        "my_secret": "s",
        "DB_PASS": "p",
        "BORG_PASSPHRASE": "p",
        "MYSQL_PWD": "p",
        "GITHUB_PAT": "t",
        "ANTHROPIC_BASE_URL": "u",
        "BASH_ENV": "/dev/null",
        "CDPATH": "/etc",
        "BASH_FUNC_ls%%": "() { echo other; }",
        "GIT_PAGER": "evil",
        "GIT_AUTHOR_NAME": "me",
    }
    envelope = await call(BASH, within=replace(ctx, env=env), command="env")
    names = {line.partition("=")[0] for line in envelope.text.splitlines()}
    assert {"PATH", "HOME", "LC_TIME", "PROJECT", "TERM", "GIT_AUTHOR_NAME"} <= names
    assert not names & {"CDPATH", "BASH_FUNC_ls%%", "GIT_PAGER"}
    assert not names & {
        "ANTHROPIC_API_KEY",
        "SOMETHING_ELSE",
        "GH_TOKEN",
        "my_secret",
        "DB_PASS",
        "BORG_PASSPHRASE",
        "MYSQL_PWD",
        "GITHUB_PAT",
        "ANTHROPIC_BASE_URL",
        "BASH_ENV",
    }


async def test_a_root_that_is_gone_is_an_error(call: Call, ctx: ToolContext, root: Path) -> None:
    envelope = await call(BASH, within=replace(ctx, root=root / "gone"), command="true")
    assert (envelope.ok, "No such file or directory" in envelope.text) == (False, True)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo " + "x" * 131_072, "the command has 131,077 bytes, of 131,071 at most. Write the long part to a file"),
        ("echo \ud800", "a command must not contain half of a surrogate pair"),
    ],
)
async def test_a_command_that_no_system_takes_is_told(call: Call, command: str, said: str) -> None:
    done = await call(BASH, command=command)
    assert not done.ok and done.text.startswith(said)
    assert (await call(BASH, command="true " + "x" * 131_066)).ok


@pytest.mark.parametrize("args", [{"command": ""}, {"command": "x", "timeout_ms": 600_001}, {"command": "a\0b"}])
async def test_impossible_arguments_are_refused(call: Call, args: dict[str, object]) -> None:
    assert not (await call(BASH, **args)).ok


async def test_policy_sees_the_whole_command(call: Call) -> None:
    seen: list[Action] = []

    async def look(action: Action) -> None:
        seen.append(action)

    await call(BASH, authorise=look, command="echo a\necho b")
    assert (str(seen[0]), seen[0].kind, seen[0].command) == (
        "tool:Bash:echo a\necho b",
        "command",
        "echo a\necho b",
    )
