"""The daemon's process: ``pyagentd stop``, ``status``, ``logs``, ``config``; ``acp``, its link to other editors."""

import contextlib
import os
import stat
import time
from collections import deque
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from pyagentd import acp as protocol
from pyagentd import config as configuration
from pyagentd.cli.link import branch_of, complete_agent, complete_session, daemon, run_environment
from pyagentd.cli.output import ExitCode, json_option, print_json, print_list, print_reply, print_table
from pyagentd.config import runtime_dir
from pyagentd.errors import NotFound, Unreachable, WireError
from pyagentd.installation import extra
from pyagentd.wire.client import terminate
from pyagentd.wire.lifecycle import LOG

_STOP_S = 10.0


@click.command()
def stop() -> None:
    """Stop the daemon.

    Runs end and are recorded as interrupted. Open questions stay: the next daemon asks them again. Also stops a
    daemon of another version.
    """
    try:
        with daemon(start=False) as link:
            pid, asks = link.greeting["pid"], (link.call("stop") or {}).get("asks") or 0
    except WireError:
        try:
            pid, asks = terminate(runtime_dir()), 0
        except Unreachable as error:  # do not suggest to start one
            raise Unreachable(error.message) from None
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        if not _lives(pid):  # its locks are free only after it has exited
            left = "1 question stays open and is" if asks == 1 else f"{asks} questions stay open and are"
            left = f"; {left} asked again by the next daemon" if asks else ""
            click.echo(f"stopped (pid {pid}){left}")
            return
        time.sleep(0.02)
    raise Unreachable(
        f"The daemon (pid {pid}) was told to stop and still runs", hint=f"See pyagentd logs, or end it: kill -9 {pid}"
    )


def _lives(pid: int) -> bool:
    """Return whether the process is alive; a zombie is not."""
    try:
        os.kill(pid, 0)
        with contextlib.suppress(OSError):  # systems without /proc
            return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except ProcessLookupError:
        return False
    return True


@click.command()
@click.argument("agent", required=False, shell_complete=complete_session)
@click.option("--metrics", is_flag=True, help="Print what the daemon counted, in Prometheus' text format.")
@json_option
def status(agent: str | None, metrics: bool, as_json: bool) -> None:
    """Show the status of the daemon, or of AGENT (a named agent or a session)."""
    if metrics and (agent or as_json):
        raise click.UsageError("--metrics prints text about the whole daemon: leave out AGENT and --json")
    if metrics:
        with daemon(start=False) as link:
            click.echo(link.call("metrics"), nl=False)
        return
    if agent is not None:
        with daemon() as link:
            env = run_environment(os.environ)
            reply = link.call("agent-status", branch=str(branch_of(link, agent)), env=env)
        print_reply(reply, reply["text"], as_json=as_json)
        return
    with daemon(start=False) as link:
        state = link.call("status")
    print_list(
        state, ("what", "value"), [(name, _in_words(name, value)) for name, value in state.items()], as_json=as_json
    )


def _in_words(name: str, value: object) -> str:
    match name, value:
        case "uptime", int() | float():
            minutes, seconds = divmod(int(value), 60)
            hours, minutes = divmod(minutes, 60)
            return f"{hours}:{minutes:02}:{seconds:02}"
        case "memory", int():
            return f"{value / 1_000_000:.0f} MB"
        case _, None:
            return "none"
        case _, list():
            return str(len(value))
    return str(value)


@click.command()
@click.option(
    "-n", "--lines", type=click.IntRange(0, 1_000_000), default=50, show_default=True, help="How many lines."
)
@click.option("-f", "--follow", is_flag=True, help="Follow the log as the daemon writes; Ctrl-C ends.")
def logs(lines: int, follow: bool) -> None:
    """Print the end of the daemon's log."""
    path = runtime_dir() / LOG  # works with an invalid configuration too
    if not path.exists():
        raise NotFound(f"There is no log at {path}", hint="The daemon has not run yet: pyagentd serve --detach")
    if follow:  # also in the new file after a rotation
        os.execvp("tail", ["tail", "-n", str(lines), "-F", str(path)])
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=lines):
            click.echo(line, nl=False)


@click.group()
def config() -> None:
    """Show the configuration."""


@config.command("show")
@json_option
def show(as_json: bool) -> None:
    """Print every value and where it comes from.

    A value comes from its default, from the configuration file (with the line) or from an environment variable.
    """
    loaded = configuration.load_config()
    if as_json:
        values = {name: {"value": item.value, "source": item.source} for name, item in loaded.settings.items()}
        print_json({"file": str(loaded.file), "exists": loaded.file.exists(), "settings": values})
        return
    click.echo(f"# {loaded.file}" + ("" if loaded.file.exists() else " (does not exist)"))
    print_table(
        ("setting", "value", "source"), ((name, item.value, item.source) for name, item in loaded.settings.items())
    )


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: eval "$(pyagentd completion bash)".
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click knows the three
    root = context.find_root()
    click.echo(kind(root.command, {}, root.info_name or "pyagentd", "_PYAGENTD_COMPLETE").source())


@click.command()
@click.option(
    "--preset",
    default="",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Preset of new sessions (default: as for `pyagentd new`).",
)
def acp(preset: str) -> ExitCode:
    """Speak the Agent Client Protocol on stdin and stdout.

    This is for editors, not for people. The sessions are the same as in Emacs and on the command line. A run
    continues when the editor quits.
    """
    with extra("acp", "The Agent Client Protocol"):
        serve = protocol.agent.serve
    if not _is_stream(0):
        if not os.read(0, 1):  # end of file: the editor has quit
            return ExitCode.DONE
        raise click.UsageError(_BY_EDITORS)
    if not (_is_stream(1) or stat.S_ISCHR(os.fstat(1).st_mode)):
        raise click.UsageError(_BY_EDITORS)
    serve(preset)
    return ExitCode.DONE


_BY_EDITORS = "An editor runs `pyagentd acp` over pipes: stdin and stdout cannot be files"


def _is_stream(descriptor: int) -> bool:
    """Return whether the descriptor is a pipe, a socket or a terminal, which can be polled."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
