"""Starting, attaching, and doing nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from tests.bench import peers
from tests.bench.figure import Figure, Result, at_most
from tests.bench.measure import median, memory_mb
from tests.bench.references import ROOT
from tests.bench.world import World
from tests.e2e.emacs import Emacs

_SERVER = (
    "import asyncio, sys; asyncio.run(asyncio.start_unix_server(print, sys.argv[1])); print('listening', flush=True)"
)
_FIRST = "import sys; from tests.bench import references; references.first(sys.argv[1])"
_SDK = "import anthropic, sys; anthropic.AsyncAnthropic(api_key='test'); print(flush=True); sys.stdin.read()"


def cold(world: World) -> Iterator[Result]:
    """From no daemon at all."""
    times = 1 if world.quick else 5
    world.daemon()
    emacs = world.emacs()
    world.open(emacs, world.session("cold"))
    hellos, requests = [], []
    for _ in range(times):
        world.stop_daemon()
        hellos.append(emacs.eval("(bench-connect)"))
    for _ in range(times):
        before = emacs.eval("(buffer-size)")
        world.stop_daemon()
        world.type(emacs, "arrival")
        emacs.eval("(progn (pyagentd-send) t)")
        world.finished(emacs)
        requests.append(float(world.text(emacs)[before:].split()[1]) - emacs.eval("(car bench-sent)"))
    yield Figure(
        name="cold spawn to hello",
        value=1000 * median(hellos),
        unit="ms",
        reference=1000 * median([_bare_server(world) for _ in range(times)]),
        beside="bare asyncio server",
        target=at_most(4, "ratio"),
    )
    yield Figure(
        name="cold spawn to the first request at the model",
        value=1000 * median(requests),
        unit="ms",
        reference=1000 * median([_first_request(world) for _ in range(times)]),
        beside="script with the raw SDK",
        target=at_most(0.7, "ratio"),
    )


def warm(world: World) -> Iterator[Result]:
    """Connecting to a daemon that runs: hello and attach."""
    times = 5 if world.quick else 100
    world.daemon()
    emacs = world.emacs()
    world.open(emacs, world.session("warm"))
    ours = world.value(emacs, f"(bench-attach {times})")
    with peers.listening(world.system.home, peers.echo) as socket:
        raw = [world.value(emacs, f'(bench-raw-connect "{socket}")') for _ in range(min(times, 20))]
    yield Figure(
        name="warm attach: connect, hello, attach, p50",
        value=1000 * median(ours),
        unit="ms",
        reference=1000 * median(raw),
        beside="raw connect and two echoes",
        target=at_most(15, "ratio"),
    )


def idle(world: World) -> Iterator[Result]:
    """The memory of a daemon that nobody has talked to, and of one that has done something and does nothing now."""
    if world.system.run("status").returncode == 0:
        world.stop_daemon()
    world.system.ok("serve", "--detach")
    untouched = memory_mb(world.system.daemon_pid())
    daemon = world.daemon()
    with subprocess.Popen([sys.executable, "-c", _SDK], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reference = memory_mb(process.pid)
        process.kill()
    yield Figure(
        name="memory of a daemon without a conversation",
        value=untouched,
        unit="MB",
        reference=reference,
        beside="script that imports the SDK",
        target=at_most(80),
    )
    yield Figure(
        name="memory of an idle daemon",
        value=memory_mb(daemon),
        unit="MB",
        reference=reference,
        beside="script that imports the SDK",
        target=at_most(0.8, "ratio"),
    )


def command(world: World) -> Iterator[Result]:
    """A command that asks the daemon, and what a shell runs when Tab is pressed: CPU time, beside click alone."""
    times = 1 if world.quick else 9
    world.daemon()
    click = [sys.executable, "-c", "import click; pass"]
    tab = {"_PYAGENTD_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    commands = {
        "pyagentd status": (world.system.command("status"), {}),
        "completing the name of a command": (world.system.command(), {**tab, "COMP_WORDS": "pyagentd st"}),
        "completing a session": (world.system.command(), {**tab, "COMP_CWORD": "2", "COMP_WORDS": "pyagentd show s"}),
    }
    for name, (arguments, env) in commands.items():
        both = [(_cpu_ms(arguments, world.system.env | env), _cpu_ms(click, world.system.env)) for _ in range(times)]
        yield Figure(
            name=f"{name}: CPU",
            value=median([ours for ours, _ in both]),
            unit="ms",
            reference=median([theirs for _, theirs in both]),
            beside="python with click, doing nothing",
            target=at_most(2.5, "ratio"),
        )


def _cpu_ms(arguments: Sequence[str], env: Mapping[str, str]) -> float:
    """Return the CPU time of a process from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, env=dict(env), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def load(world: World) -> Iterator[Result]:
    """Loading the package in a new Emacs, opening the first session, the first menu."""
    times = 1 if world.quick else 5
    world.daemon()
    session = world.session("load")
    plain = world.system.project / "plain.md"
    plain.write_bytes((session / "session.md").read_bytes())
    loaded, org, opened, markdown, menu = [], [], [], [], []
    for _ in range(times):
        emacs = world.bare_emacs()
        emacs.eval("(progn (mapc #'require '(markdown-mode transient project subr-x cl-lib seq)) t)")
        org.append(_seconds(emacs, "(require 'org)"))
        loaded.append(_seconds(emacs, "(require 'pyagentd)"))
        markdown.append(_seconds(emacs, f'(find-file "{plain}")'))
        opened.append(_seconds(emacs, f'(find-file "{session}/session.md")'))
        emacs.wait("(eq pyagentd-attach-state t)")
        menu.append(_seconds(emacs, "(pyagentd-menu)"))
    yield Figure(
        name="loading the package, transient and markdown-mode there",
        value=1000 * median(loaded),
        unit="ms",
        reference=1000 * median(org),
        beside="loading Org",
        target=at_most(0.5, "ratio"),
    )
    yield Figure(
        name="opening the first session",
        value=1000 * median(opened),
        unit="ms",
        reference=1000 * median(markdown),
        beside="the same text in markdown-mode",
        target=at_most(4, "ratio"),
    )
    yield Figure(
        name="opening the menu the first time",
        value=1000 * median(menu),
        unit="ms",
        reference=1000 * median(org),
        beside="loading Org",
        target=at_most(1, "ratio"),
    )


def _seconds(emacs: Emacs, form: str) -> float:
    """Return how long a form took, with the redisplay after it."""
    return float(emacs.eval(f"(let ((start (float-time))) {form} (redisplay t) (- (float-time) start))"))


def _bare_server(world: World) -> float:
    path = world.system.home / "bare"
    path.unlink(missing_ok=True)
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", _SERVER, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return time.perf_counter() - start


def _first_request(world: World) -> float:
    start = time.time()
    done = subprocess.run(
        [sys.executable, "-c", _FIRST, world.url],
        cwd=ROOT,
        env=os.environ,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout) - start
