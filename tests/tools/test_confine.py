"""What a confined command sees and can do, with the real bubblewrap and the real Landlock."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd import installation
from pyagentd.errors import ToolError
from pyagentd.tools.invoke import Envelope
from pyagentd.tools.sandbox import enclosure
from pyagentd.tools.sandbox.enclosure import enclose
from pyagentd.tools.sandbox.plan import ShellScope, plan
from pyagentd.tools.shell import BASH
from pyagentd.tools.spec import ToolContext
from tests.tools.confined import MECHANISMS, needs_bubblewrap, scope, within
from tests.tools.conftest import Call
from tests.tools.processes import until

Run = Callable[..., Awaitable[Envelope]]


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("SECRET-7f3a\n")
    return (tmp_path / "outside").resolve()


@pytest.fixture
def run(call: Call, ctx: ToolContext, root: Path, mechanism: str) -> Run:
    """Run a command confined; keywords change the scope."""

    async def run(command: str, timeout_ms: int = 60_000, **changes: Any) -> Envelope:
        rules = scope(root, wanted=mechanism, **changes)
        return await call(BASH, within=within(ctx, rules), command=command, timeout_ms=timeout_ms)

    return run


async def test_a_command_works_in_its_scope_and_nowhere_else(run: Run, root: Path, outside: Path) -> None:
    (root / "sub").mkdir()
    done = await run(
        f"echo made >new && mkdir -p sub/deep && mv new sub/deep/ && cat sub/deep/new; "
        f"cat {outside}/secret; echo x >{outside}/pwned; echo x >>{outside}/secret; ls /work /home"
    )
    assert done.text.startswith("made\n")
    assert "SECRET" not in done.text
    assert (root / "sub/deep/new").read_text() == "made\n"
    assert os.listdir(outside) == ["secret"]  # noqa: PTH208
    assert (outside / "secret").read_text() == "SECRET-7f3a\n"


async def test_a_link_leads_nowhere_outside(run: Run, root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside)
    done = await run("cat link/secret; echo x >link/pwned; cat /proc/1/root/etc/hostname; cd link && ls")
    assert not done.ok
    assert "SECRET" not in done.text
    assert not (outside / "pwned").exists()


async def test_what_may_only_be_read_cannot_be_changed(run: Run, root: Path) -> None:
    (root / "file").write_text("kept\n")
    done = await run("cat file; echo x >file; touch new; rm file; mv file other", write=())
    assert done.text.startswith("kept\n")
    assert not done.ok
    assert os.listdir(root) == ["file"]  # noqa: PTH208
    assert (root / "file").read_text() == "kept\n"


async def test_a_denied_file_and_directory_are_not_read_or_changed(run: Run, root: Path) -> None:
    (root / "src").mkdir()
    (root / "src/.env").write_text("KEY=hidden-value\n")
    (root / "src/secret").mkdir()
    (root / "src/secret/file").write_text("hidden-value\n")
    done = await run(
        "cat src/.env src/secret/file; echo x >src/secret/file; echo x >src/.env; mv src gone; rm -rf src/secret; "
        "ln src/.env copy; cat copy; grep -r hidden-value .",
        deny=("**/.env", f"{root}/src/secret/**"),
    )
    assert "hidden-value" not in done.text
    assert (root / "src/.env").read_text() == "KEY=hidden-value\n"
    assert (root / "src/secret/file").read_text() == "hidden-value\n"


async def test_credentials_are_hidden_whatever_the_scope_says(run: Run, root: Path) -> None:
    (root / ".ssh").mkdir()
    (root / ".ssh/id").write_text("hidden-value")
    (root / ".netrc").write_text("hidden-value")
    assert "hidden-value" not in (await run("cat .ssh/id .netrc; tar c . | grep -a hidden", read=("/**",))).text


async def test_the_whole_root_may_be_readable(run: Run, root: Path, outside: Path, tmp_path: Path) -> None:
    done = await run(f"cat {outside}/secret; echo x >{outside}/pwned", read=(f"{tmp_path}/**",), write=())
    assert done.text.startswith("SECRET-7f3a\n")
    assert not (outside / "pwned").exists()


async def test_matching_files_are_bound_one_by_one(run: Run, root: Path, outside: Path) -> None:
    (outside / "a.txt").write_text("seen\n")
    (outside / "sub").mkdir()
    (outside / "sub/b.txt").write_text("not seen\n")
    done = await run(
        f"cat {outside}/a.txt {outside}/secret {outside}/sub/b.txt", read=(f"{outside}/*.txt",), write=()
    )
    assert done.text.startswith("seen\n")
    assert "SECRET" not in done.text
    assert "not seen" not in done.text


async def test_records_and_settings_stay_as_they_are(run: Run, root: Path, mechanism: str) -> None:
    """The sessions root lies inside the writable scope, as a home directory would have it."""
    sessions, branch = root / ".gptel/sessions", root / ".gptel/sessions/s-20260101/branches/main"
    branch.mkdir(parents=True)
    (branch / "preset.md").write_text("mine\n")
    (branch / "messages.jsonl").write_text("{}\n")
    done = await run(
        f"cat {branch}/preset.md; echo x >{branch}/preset.md; echo x >>{branch}/messages.jsonl; "
        f"rm {branch}/preset.md; ln {branch}/preset.md hard && echo x >hard; mv .gptel old; mv {sessions} elsewhere; "
        f"cp -r .gptel mine && mv mine .gptel/sessions; mount --bind /tmp {branch}; "
        f"unshare -Urm bash -c 'umount {sessions}; mount -o remount,rw {sessions}; echo x >{branch}/preset.md'; "
        f"touch {sessions}/new; python3 -c \"import os; os.rename('.gptel','x')\"",
        protected=(str(sessions),),
    )
    assert done.text.startswith("mine\n")
    assert (branch / "preset.md").read_text() == "mine\n"
    assert (branch / "messages.jsonl").read_text() == "{}\n"
    assert not (sessions / "new").exists()
    assert not (root / "old").exists()


@pytest.mark.parametrize("around", ["write", "read", "all"])
async def test_of_the_sessions_a_command_sees_its_own(
    call: Call, ctx: ToolContext, root: Path, mechanism: str, around: str
) -> None:
    """The sessions root lies inside the scope; what other sessions said and the snapshots are not for a command."""
    sessions = root / ".gptel/sessions"
    own, other = sessions / "own-20260101", sessions / "other-20260101"
    secret = [sessions / ".pyagentd-snapshots/objects/ab/cd", sessions / "state.db", sessions / "state.db-wal"]
    secret += [other / "branches/main" / name for name in ("messages.jsonl", "requests.jsonl", "files/out.txt")]
    seen = [own / "branches/main/session.md", own / "branches/main/files/out.txt", root / "near"]
    for file in (*secret, *seen):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("hidden-value\n" if file in secret else "seen\n")
    patterns = (f"{root}/**",)
    named = (f"{sessions}/state.db", f"{sessions}/.pyagentd-snapshots/**", f"{sessions}/**")
    rules = scope(
        root,
        wanted=mechanism,
        read=(*patterns, *named, *(("/**",) if around == "all" else ())),
        write=() if around == "read" else patterns,
        protected=(str(sessions), str(own)),
        closed=(str(sessions),),
        own=(str(own),),
    )
    where = replace(within(ctx, rules), spool_dir=own / "branches/main/files")
    reading = " ".join(f"cat {file};" for file in (*seen, *secret))
    done = await call(
        BASH,
        within=where,
        command=f"{reading} grep -ra hidden .; ls -A {sessions} {other}; echo x >{sessions}/state.db; "
        f"echo x >{own}/branches/main/session.md; touch {sessions}/new {sessions}/new-20260101; mv .gptel .old; "
        f"ln {sessions}/state.db copy; cat copy; umount {sessions}; cat {sessions}/state.db",
    )
    assert done.text.startswith("seen\nseen\nseen\n")
    assert "hidden-value" not in done.text
    assert sorted(os.listdir(sessions)) == [  # noqa: PTH208
        ".pyagentd-snapshots",
        "other-20260101",
        "own-20260101",
        "state.db",
        "state.db-wal",
    ]
    assert (secret[1].read_text(), seen[0].read_text()) == ("hidden-value\n", "seen\n")
    # Its output that was too long stays readable where the scope is elsewhere.
    far = replace(rules, read=(), write=())
    done = await call(BASH, within=replace(where, scope=lambda: far), command=reading)
    assert done.text.startswith("cat: ") and "hidden-value" not in done.text
    assert done.text.count("seen\n") == 1


async def test_another_session_is_read_where_the_scope_names_it(run: Run, root: Path) -> None:
    sessions = root / "sessions"
    for name in ("named", "other"):
        (sessions / name).mkdir(parents=True)
        (sessions / name / "session.md").write_text(f"{name}\n")
    done = await run(
        f"cat {sessions}/*/session.md; cat {sessions}/other/session.md; echo x >{sessions}/named/session.md",
        read=(f"{root}/**", f"{sessions}/named/**"),
        protected=(str(sessions),),
        closed=(str(sessions),),
    )
    assert "named\n" in done.text
    assert "other\n" not in done.text
    assert (sessions / "named/session.md").read_text() == "named\n"


async def test_a_workspace_in_a_closed_directory_is_worked_in_whatever_is_writable_around_it(
    run: Run, root: Path, mechanism: str
) -> None:
    agents = root / "agents"
    mine, other = agents / "mine", agents / "other"
    work = mine / "workspace"
    for file in (work / ".env", other / "secret", mine / "agent.json", work / "a"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("hidden-value\n" if file.name in (".env", "secret") else "before\n")
    _repository(work)
    config = (work / ".git/config").read_bytes()
    done = await run(
        f"cd {work} && git add a && git -c user.name=a -c user.email=a@b commit -qm one && git log --format=%s; "
        f"cat .env {other}/secret; grep -ra hidden {root}; echo x >.git/config; echo x >.git/hooks/pre-commit; "
        f"echo x >{mine}/agent.json; ls -A {agents}",
        read=(f"{root}/**", f"{work}/**"),
        write=(f"{root}/**", f"{work}/**"),
        protected=(str(mine / "agent.json"), str(other / "agent.json")),
        closed=(str(agents),),
        own=(str(mine),),
    )
    assert done.text.startswith("one\n") and "hidden-value" not in done.text
    assert (mine / "agent.json").read_text() == "before\n"
    if mechanism == "bubblewrap":  # Landlock has such changes told
        assert (work / ".git/config").read_bytes() == config and not (work / ".git/hooks/pre-commit").exists()


def _repository(directory: Path) -> None:
    subprocess.run(["git", "init", "-q", directory], check=True)
    (directory / ".git/hooks").mkdir(exist_ok=True)


@needs_bubblewrap
async def test_a_place_that_is_protected_before_it_exists_cannot_be_made(
    call: Call, ctx: ToolContext, root: Path
) -> None:
    rules = scope(root, protected=(f"{root}/.config/pyagentd/presets", f"{root}/config.toml"))
    done = await call(
        BASH,
        within=within(ctx, rules),
        command="mkdir -p .config/pyagentd/presets; echo x >.config/pyagentd/presets/evil.md; echo x >config.toml",
    )
    assert not done.ok, done.text
    assert os.listdir(root / ".config/pyagentd/presets") == []  # noqa: PTH208
    assert (root / "config.toml").read_bytes() == b""


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Path]:
    """A socket as the daemon's, in a directory of its own."""
    (tmp_path / "run").mkdir()
    path = tmp_path / "run/d.sock"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        made.listen()
        yield path


_CONNECT = "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{}'); print('reached')\""


async def test_the_socket_of_the_daemon_is_out_of_reach(
    run: Run, root: Path, listener: Path, tmp_path: Path, ctx: ToolContext, call: Call
) -> None:
    command = _CONNECT.format(listener)
    for changes in (
        {"hidden": (str(listener.parent),), "read": (f"{tmp_path}/**",)},
        {
            "hidden": (str(listener.parent),),
            "read": (f"{tmp_path}/**",),
            "write": (f"{tmp_path}/**",),
            "network": True,
        },
        {"read": (f"{tmp_path}/**",), "write": (f"{tmp_path}/**",)},  # any other program's
    ):
        assert "reached" not in (await run(command, **changes)).text
    assert "reached" in (await call(BASH, command=command)).text  # without confinement


async def test_abstract_sockets_and_ports_of_the_machine_are_out_of_reach(run: Run) -> None:
    name = f"\\0pyagentd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket() as port:
        abstract.bind(name.encode().decode("unicode_escape").encode())
        abstract.listen()
        port.bind(("127.0.0.1", 0))
        port.listen()
        number = port.getsockname()[1]
        lines = [
            "import socket, sys",
            f"for f, a in ((socket.AF_UNIX, chr(0) + {name[2:]!r}), (socket.AF_INET, ('127.0.0.1', {number}))):",
            "  try: socket.socket(f).connect(a); print('reached', f)",
            "  except OSError as e: print(type(e).__name__)",
        ]
        done = await run(f'python3 - <<"X"\n{chr(10).join(lines)}\nX')
    assert "reached" not in done.text
    assert len(done.text.split()) == 2


async def test_with_network_a_port_is_reached_and_sockets_of_the_machine_are_not(run: Run, listener: Path) -> None:
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        port.listen()
        connect = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port.getsockname()[1]}), 5)\""
        assert (await run(f"{connect} && echo reached", network=True)).text == "reached\n"


async def test_other_processes_cannot_be_touched(run: Run, root: Path) -> None:
    pid = os.getpid()
    with subprocess.Popen(["/bin/sleep", "100"]) as other:  # noqa: ASYNC220 - it only has to be there
        done = await run(
            f"kill -9 {other.pid} {pid}; cat /proc/{pid}/environ; ls /proc/{pid}/root/ /proc/{pid}/cwd/; "
            f"echo core >/proc/sys/kernel/core_pattern; kill -0 {other.pid} && echo signalled; "
            f"python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(16, {other.pid}, 0, 0))'"
        )
        alive = other.poll() is None
        other.kill()
    assert alive
    assert "signalled" not in done.text
    assert "PATH=" not in done.text
    assert "pyproject.toml" not in done.text
    assert done.text.rstrip().split("\n")[-1] != "0"


@pytest.fixture
def shared() -> Iterator[Path]:
    """Memory that another program shares."""
    path = Path(f"/dev/shm/pyagentd-test-{os.getpid()}")
    path.write_text("SECRET-7f3a\n")
    yield path
    assert path.read_text() == "SECRET-7f3a\n"
    path.unlink()


async def test_terminals_and_shared_memory_of_others_are_out_of_reach(run: Run, shared: Path) -> None:
    screen, terminal = os.openpty()
    os.write(screen, b"typed by the user\n")
    name = os.ttyname(terminal)
    done = await run(f"timeout 5 head -1 {name}; echo shown >{name}; cat {shared}; echo x >{shared}")
    assert "typed by" not in done.text and "SECRET" not in done.text
    assert os.read(screen, 1000) == b"typed by the user\r\n", "the echo alone"
    os.close(screen)
    os.close(terminal)


async def test_a_kernel_that_does_not_know_of_truncating_lets_no_file_be_emptied(
    run: Run, outside: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mechanism == "landlock":
        monkeypatch.setattr(enclosure, "abi", lambda: 2)
    done = await run(f"echo x >own; truncate -s 0 own; python3 -c 'import os; os.truncate(\"{outside}/secret\", 0)'")
    assert not done.ok and (outside / "secret").stat().st_size


@needs_bubblewrap
def test_patterns_that_match_more_files_than_can_be_shown_are_named(root: Path, outside: Path) -> None:
    for number in range(3_000):
        (outside / f"{number}.txt").touch()
    rules = scope(root, read=(f"{root}/**", f"{outside}/*.txt"), wanted="bubblewrap")
    with pytest.raises(ToolError, match=r"match 3,0\d\d files and directories, more than bubblewrap"):
        enclose("true", rules, root=root, spool_dir=root, env={"PATH": "/usr/bin"})


@pytest.mark.parametrize(("abi", "said"), [(3, ["connections", "end other"]), (5, ["end other"]), (6, [])])
def test_what_a_kernel_does_not_do_is_told(abi: int, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclosure, "abi", lambda: abi)
    told = enclosure.describe_mechanism("landlock")
    assert [words for words in ("connections", "end other") if words in told] == said


async def test_temporary_files_and_ordinary_programs_work(run: Run) -> None:
    done = await run(
        "f=$(mktemp) && echo kept >$f && cat $f; echo x | sort | tee copy; python3 -c 'import tempfile, subprocess; "
        'tempfile.TemporaryFile(); print(subprocess.check_output(["echo", "child"], text=True))\'; '
        "cat <(echo fifo) && : >/dev/null && head -c 3 /dev/zero | wc -c; cat <<<here; id -u"
    )
    assert done.ok, done.text
    assert done.text.split() == ["kept", "x", "child", "fifo", "3", "here", str(os.getuid())]


async def test_git_works_and_what_decides_what_it_runs_does_not_change(run: Run, root: Path, mechanism: str) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("config", "user.email", "a@b.c")
    git("config", "user.name", "n")
    before = (root / ".git/config").read_bytes()
    (root / "file").write_text("x\n")
    done = await run("git add file && git commit -qm one && git log --oneline | wc -l && git status --short")
    assert (done.ok, done.text) == (True, "1\n")
    assert (await run("git log", commands=("git log",))).ok
    assert not (await run("git log", commands=("ls",))).ok
    if mechanism == "bubblewrap":
        done = await run(
            "echo x >.git/hooks/post-commit; git config core.pager evil; mv .git old; rm -rf .git/hooks; "
            "mkdir other && cp -r .git other/ && mv other/.git .git; ls"
        )
        assert (root / ".git/config").read_bytes() == before
        assert not (root / ".git/hooks/post-commit").exists()
        assert not (root / "old").exists()


async def test_git_cannot_be_led_to_another_configuration(
    call: Call, ctx: ToolContext, root: Path, mechanism: str
) -> None:
    _repository(root)
    notices: list[str] = []
    where = replace(within(ctx, scope(root, wanted=mechanism)), notify=notices.append)
    command = "mkdir evil && cp -r .git/config evil/ && echo ../evil >.git/commondir"
    done = await call(BASH, within=where, command=command)
    assert not done.ok
    assert f"{root}/.git/commondir changed" in done.text
    assert not (root / ".git/commondir").exists()
    assert len(notices) == 1
    if mechanism == "landlock":
        for change in ("git config core.pager evil", "echo evil >.git/hooks/post-commit"):
            assert "what decides which programs git runs" in (await call(BASH, within=where, command=change)).text
    assert (await call(BASH, within=where, command="git status --short")).ok


@needs_bubblewrap
async def test_git_works_in_a_linked_work_tree_that_its_repository_knows(
    call: Call, ctx: ToolContext, root: Path, tmp_path: Path
) -> None:
    _work_tree(tmp_path / "main", root)
    where = within(ctx, scope(root))
    command = "git log --oneline | wc -l; echo x >file; git add file; git status --short"
    assert (await call(BASH, within=where, command=command)).text == "1\nA  file\n"
    # Whose file was written here opens nothing.
    (tmp_path / "secret/.git/worktrees/x").mkdir(parents=True)
    (tmp_path / "secret/.git/HEAD").write_text("hidden-value")
    (root / ".git").write_text(f"gitdir: {tmp_path}/secret/.git/worktrees/x\n")
    assert "hidden-value" not in (await call(BASH, within=where, command=f"cat {tmp_path}/secret/.git/HEAD")).text


async def test_modules_of_node_stay_usable_where_node_is_allowed(run: Run, root: Path) -> None:
    (root / "node_modules/x").mkdir(parents=True)
    (root / "node_modules/x/index.js").write_text("module\n")
    assert (await run("cat node_modules/x/index.js")).text == "module\n"
    assert not (await run("cat node_modules/x/index.js", commands=("cat",))).ok


@pytest.mark.parametrize("how", ["", "setsid ", "setsid nohup env -i /bin/"])
async def test_everything_ends_with_the_command(run: Run, root: Path, how: str) -> None:
    mark = f"{60_000 + os.getpid()}.{len(how)}"
    assert (await run(f"({how}sleep {mark} &) ; echo done")).text == "done\n"
    await until(lambda: not _sleeping(mark))


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_everything_ends_when_a_command_is_stopped(run: Run, root: Path, how: str) -> None:
    mark = f"{70_000 + os.getpid()}"
    command = f"setsid bash -c 'trap \"\" TERM; sleep {mark} & wait' & sleep {mark} & echo x >begun; wait"
    task = asyncio.ensure_future(run(command, timeout_ms=500 if how == "timeout" else 60_000))
    await until(lambda: len(_sleeping(mark)) == 2 or task.done())
    if how == "cancelled":
        task.cancel()
    await asyncio.wait([task])
    await until(lambda: not _sleeping(mark))


async def test_a_command_may_tidy_up_when_it_is_stopped(run: Run, root: Path) -> None:
    done = await run("trap 'touch tidied; exit' TERM; while :; do sleep 0.05; done", timeout_ms=300)
    assert "did not end within 0.3 s" in done.text
    assert (root / "tidied").exists()


async def test_the_exit_code_and_signal_of_a_command_are_told(run: Run) -> None:
    assert (await run("echo x; exit 7")).text == "x\n[exit code 7]"
    assert not (await run("kill -9 $$")).ok


async def test_limits_hold_inside(run: Run) -> None:
    assert (await run("ulimit -c; ulimit -f")).text == f"0\n{16 * 1024 * 1024}\n"


async def test_nothing_is_left_of_a_command(run: Run) -> None:
    await run("true")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        await run("true")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@needs_bubblewrap
async def test_what_vanishes_while_a_command_is_prepared_does_not_fail_it(
    call: Call, ctx: ToolContext, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "gone").mkdir()
    plans = []

    def vanishing(*arguments: Any, **options: Any) -> Any:
        made = plan(*arguments, **options)
        plans.append(made)
        shown = replace(made, git=frozenset(), readonly=(f"{root}/gone",), pinned=(f"{root}/other",))
        return replace(shown, hidden=(*made.hidden, ("/etc/vanished/file", False), ("/etc/vanished/place", True)))

    monkeypatch.setattr("pyagentd.tools.sandbox.plan.plan", vanishing)
    done = await call(BASH, within=within(ctx, scope(root, wanted="bubblewrap")), command="echo x >>runs; cat runs")
    assert (done.ok, done.text, len(plans)) == (True, "x\n", 1)
    assert (
        await call(BASH, within=within(ctx, scope(root)), command="echo x >>runs; exit 1")
    ).text == "[exit code 1]"
    assert (root / "runs").read_text() == "x\nx\n"


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], Path]]:
    """Have bubblewrap not find a directory for so long from its first command on; a file has a line for each."""
    tried = tmp_path / "tried"

    def fail(seconds: float) -> Path:
        real = installation.program("bwrap")
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin/bwrap"
        program.write_text(
            f"""#!{sys.executable} -IS
import os, sys, time
if "--json-status-fd" in sys.argv:  # a command, and no trial of what works
    with open({str(tried)!r}, "a+") as file:
        file.write(f"{{time.time()}}\\n")
        file.seek(0)
        if time.time() - float(file.readline()) < {seconds}:
            sys.exit("bwrap: Can't find source path /tmp/gone: No such file or directory")
os.execv({real!r}, [{real!r}, *sys.argv[1:]])
"""
        )
        program.chmod(0o700)
        monkeypatch.setattr(installation, "DIRECTORIES", (str(tmp_path / "bin"),))
        enclosure._bubblewrap.cache_clear()
        return tried

    yield fail
    enclosure._bubblewrap.cache_clear()


@needs_bubblewrap
async def test_a_command_waits_while_what_it_is_to_be_shown_comes_and_goes(
    call: Call, ctx: ToolContext, root: Path, failing: Callable[[float], Path]
) -> None:
    tried = failing(0.8)
    done = await call(BASH, within=within(ctx, scope(root, wanted="bubblewrap")), command="echo x >>runs; cat runs")
    assert (done.ok, done.text) == (True, "x\n")
    assert 2 <= len(tried.read_text().splitlines()) <= 4


@needs_bubblewrap
async def test_a_command_that_cannot_be_confined_for_long_is_not_run(
    call: Call, ctx: ToolContext, root: Path, failing: Callable[[float], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyagentd.tools.shell._PAUSE_S", 0.01)
    tried = failing(1000)
    done = await call(BASH, within=within(ctx, scope(root, wanted="bubblewrap")), command="echo x >>runs")
    assert not done.ok and "could not be confined: bwrap: Can't find source path /tmp/gone" in done.text
    assert len(tried.read_text().splitlines()) == 4 and not (root / "runs").exists()


async def test_nothing_is_left_of_a_command_that_is_cancelled_at_any_moment(run: Run) -> None:
    await run("true")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for steps in range(12):
        task = asyncio.ensure_future(run("sleep 100"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await until(lambda: len(os.listdir("/proc/self/fd")) == before)  # noqa: PTH208


async def test_a_change_of_the_scope_counts_for_the_next_command(
    call: Call, ctx: ToolContext, root: Path, outside: Path, mechanism: str
) -> None:
    rules: list[ShellScope] = [scope(root, wanted=mechanism)]
    where = replace(within(ctx, rules[0]), scope=lambda: rules[-1])
    command = f"cat {outside}/secret"
    assert not (await call(BASH, within=where, command=command)).ok
    rules.append(scope(root, wanted=mechanism, read=(f"{outside}/**",)))
    assert (await call(BASH, within=where, command=command)).text == "SECRET-7f3a\n"


async def test_a_file_that_becomes_denied_is_hidden_from_the_next_command(run: Run, root: Path) -> None:
    (root / "a").mkdir()
    assert (await run("ls -A a; echo KEY >a/.env; cat a/.env")).text == "KEY\n"
    assert not (await run("cat a/.env")).ok


def test_what_cannot_be_confined_as_configured_is_not_run(
    root: Path, ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyagentd.tools.sandbox.enclosure.confinement", lambda wanted: None)
    with pytest.raises(Exception, match="wants it confined with bubblewrap, which does not work"):
        enclose("true", scope(root, wanted="bubblewrap"), root=root, spool_dir=ctx.spool_dir, env={})


def _repository(root: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)


def _work_tree(repository: Path, root: Path) -> None:
    identity = ["-c", "user.email=a@b.c", "-c", "user.name=n"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    git = ["git", "-C", str(repository), *identity]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    root.rmdir()
    subprocess.run([*git, "worktree", "add", "-q", str(root)], check=True)


def _sleeping(mark: str) -> list[str]:
    found = []
    # A glob fails when a process ends meanwhile.
    for name in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep") and mark.encode() in words:
            found.append(name)
    return found
