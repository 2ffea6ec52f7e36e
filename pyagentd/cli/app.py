"""The root command, and the function that turns errors into exit codes."""

import io
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TextIO

import click

from pyagentd import __version__
from pyagentd.cli.output import ExitCode, exit_code, note, report
from pyagentd.errors import NoKey, PyagentdError, Unreachable

PROGRAM = "pyagentd"

_SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Talk": {
        "chat": ("send", "chat in the terminal"),
        "ask": ("send", "ask in a new session and print the answer"),
        "new": ("sessions", "create a session"),
        "send": ("send", "send a message and follow the answer"),
        "attach": ("send", "follow a session, whoever sends to it"),
        "approve": ("send", "approve a plan and carry it out"),
        "regenerate": ("history", "regenerate the answer to a prompt"),
        "queue": ("send", "list, edit or cancel queued messages"),
        "abort": ("sessions", "stop a run; its text is kept"),
    },
    "Sessions": {
        "sessions": ("sessions", "list sessions with their branches and agents"),
        "show": ("sessions", "print a conversation, or what happened in it"),
        "search": ("sessions", "search everything that was said"),
        "list": ("schedule", "print a list as Emacs shows it"),
        "report": ("schedule", "print a page as Emacs shows it"),
        "usage": ("usage", "show tokens and cost"),
        "rename": ("sessions", "give a session another title"),
        "archive": ("sessions", "hide a session from lists, or show it again"),
        "duplicate": ("sessions", "copy a session"),
        "delete": ("sessions", "move a session or a branch to the trash"),
        "export": ("sessions", "write a conversation as Markdown, JSON, HTML or ACP lines"),
        "import": ("sessions", "make a session from a chat of another program"),
    },
    "Earlier and other versions": {
        "rewind": ("history", "hide everything after a prompt"),
        "unrewind": ("history", "undo the last rewind"),
        "fork": ("history", "make a new session of the messages up to one"),
        "variants": ("history", "list or choose other answers to the same prompt"),
        "branch": ("sessions", "create a branch at a prompt"),
        "branches": ("sessions", "list the branches of a session"),
        "switch": ("sessions", "make another branch the active one"),
        "changes": ("history", "list the files that agents changed"),
        "restore": ("history", "restore files that agents changed"),
        "compact": ("history", "summarise the conversation so far"),
        "context": ("history", "save, clear or restore a conversation"),
    },
    "Agents, missions, work in the background": {
        "agents": ("agents", "show the agents of a session"),
        "agent": ("agents", "create, configure and destroy named agents"),
        "mission": ("mission", "run a typed task and print its value"),
        "tasks": ("schedule", "list, show or end background commands"),
        "schedule": ("schedule", "send messages later, or repeatedly"),
        "trigger": ("schedule", "deliver a message of another program"),
        "watch": ("schedule", "send a message whenever files change"),
        "webhook": ("schedule", "send a message for each request of another program"),
    },
    "Approvals and permissions": {
        "asks": ("asks", "list pending approvals and questions"),
        "answer": ("asks", "answer one of them"),
        "grants": ("asks", "list or revoke grants"),
        "scope": ("asks", "test what a session may read, write or run"),
        "audit": ("asks", "list what was allowed and denied, and why"),
        "trust": ("tools", "trust a session that was made elsewhere"),
    },
    "Set up": {
        "doctor": ("doctor", "check the installation"),
        "upgrade": ("doctor", "install a newer version"),
        "install": ("doctor", "install what only some features need"),
        "config": ("daemon", "show every setting and where it comes from"),
        "models": ("models", "list the models you can use"),
        "presets": ("tools", "list presets"),
        "skills": ("tools", "list the skills of project, user and package"),
        "mcp": ("tools", "add, list, test and trust MCP servers"),
        "hooks": ("tools", "list or trust programs that are asked before a tool runs"),
        "settings": ("agents", "show or set the defaults of named agents"),
        "completion": ("daemon", "print a completion script for your shell"),
    },
    "The daemon": {
        "status": ("daemon", "show what the daemon or an agent is doing"),
        "serve": ("serve", "run the daemon"),
        "stop": ("daemon", "stop the daemon"),
        "logs": ("daemon", "print the daemon's log"),
        "reindex": ("sessions", "rebuild the search index"),
    },
    "For programs and other editors": {
        "acp": ("daemon", "speak the Agent Client Protocol on stdin and stdout"),
        "messages": ("send", "print what gptel would send for a file"),
        "lisp": ("mission", "run a program of the mission language"),
        "signature": ("mission", "check a signature"),
    },
}
"""Every command with its module and summary, daily ones first."""

_MODULES = {name: module for commands in _SECTIONS.values() for name, (module, _) in commands.items()}

_FUNCTIONS = {"import": "import_", "list": "list_view", "report": "report_page"}  # not named like their command

_FIRST = (
    ("pyagentd doctor", "check the installation"),
    ('pyagentd ask "What does this project do?"', "ask about the current directory"),
    ('pyagentd ask -c "And how is it tested?"', "continue that conversation"),
)


class _SectionedGroup(click.Group):
    """Lists commands in sections, daily ones first, and imports only the module of the command that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"pyagentd.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, _FUNCTIONS.get(cmd_name, cmd_name))
        return command

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Begin with"):
            formatter.write_dl(_FIRST, col_max=50)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _MODULES))  # one column for all sections
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", words) for name, (_, words) in commands.items()])


@click.group(cls=_SectionedGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.option("--host", metavar="HOST", help="Run the command on HOST, over ssh (default: PYAGENTD_HOST, else here).")
def cli(host: str | None) -> None:
    """Agents for Emacs that outlive Emacs.

    The daemon starts on demand. A SESSION is an id or its beginning, ID/BRANCH, or a directory.
    `pyagentd COMMAND --help` explains a command.
    """


def _on_host(words: Sequence[str]) -> list[str] | None:
    """Return the ssh command for the host of ``--host`` or ``PYAGENTD_HOST``, or None without a host."""
    host, rest = os.environ.get("PYAGENTD_HOST", ""), list(words)
    match rest:
        case ["--host", named, *more]:
            host, rest = named, more
        case [first, *more] if first.startswith("--host="):
            host, rest = first.removeprefix("--host="), more
    if not host:
        return None
    # Of the places where the server may be on the host, the one that Emacs installs into comes first.
    places = '"$HOME/.local/share/pyagentd/server/bin/pyagentd" pyagentd "$HOME/.local/bin/pyagentd"'
    script = f'for p in {places}; do command -v "$p" >/dev/null 2>&1 && exec "$p" "$@"; done; '
    script += "echo 'pyagentd is not installed here' >&2; exit 127"
    command = shlex.join(["exec", "sh", "-c", script, PROGRAM, *rest])
    terminal = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else ["-T"]
    program = os.environ.get("PYAGENTD_SSH") or "ssh"
    try:
        ssh = shlex.split(program)
    except ValueError as error:
        raise click.UsageError(f"PYAGENTD_SSH is {program!r}, which is no command: {error}") from None
    if not shutil.which(ssh[0]):
        raise Unreachable(f"There is no program {ssh[0]}", hint="Install ssh, or have PYAGENTD_SSH name another one")
    return [*ssh, *terminal, "--", host, command]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status (see ``ExitCode``)."""
    words = list(sys.argv[1:] if args is None else args)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the parent closed it; a file opened later must not get its number
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # until the end
    # Input that is not UTF-8, and characters that a terminal lacks, must not make a command fail.
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    stdout = sys.stdout
    try:
        if command := _on_host(words):
            os.execvp(command[0], command)
        if "_PYAGENTD_COMPLETE" in os.environ:
            import_module("pyagentd.cli.completion")
        status = cli.main(words, prog_name=PROGRAM, standalone_mode=False)
        if not sys.stdout.closed:  # it is after an editor has closed its link
            sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has closed the pipe
        _drop_output(stdout)
        return ExitCode.DONE
    except SystemExit:
        if sys.stdout is stdout:
            raise
        _drop_output(stdout)  # click replaces the streams and exits with 1 when the reader has closed the pipe
        return ExitCode.DONE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except click.Abort as error:  # Ctrl-C, or "no" or the end of input at a question
        return ExitCode.INTERRUPTED if isinstance(error.__context__, KeyboardInterrupt) else ExitCode.FAILED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        return ExitCode.DONE
    except (PyagentdError, click.ClickException, OSError) as error:
        # Look into the arguments directly: an error in parsing them must be reported in the wanted form too.
        options = takewhile(lambda word: word != "--", words)
        report(error, as_json=any(word in ("--json", "--json-events") for word in options))
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output(stdout)
        # Suggest a local server, which needs no key; looking for one takes at most half a second.
        if getattr(error, "code", "") == NoKey.code and (found := import_module("pyagentd.cli.models").find()):
            note(f"{found[0].words}: `pyagentd models --local --use` has it answer")
        return exit_code(error)
    return int(status or ExitCode.DONE)


def _drop_output(stdout: TextIO) -> None:
    """Redirect stdout to /dev/null, so that flushing buffered output does not fail when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
