"""The root command and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile

import click

from pyagentd import __version__
from pyagentd.cli.acp import acp
from pyagentd.cli.agents import agent, agents, settings
from pyagentd.cli.asks import answer, asks, audit, grants, scope, trust
from pyagentd.cli.daemon import completion, config, logs, serve, status, stop
from pyagentd.cli.doctor import doctor
from pyagentd.cli.history import changes, compact, context, fork, regenerate, restore, rewind, unrewind, variants
from pyagentd.cli.mission import lisp, mission, signature
from pyagentd.cli.output import ExitCode, exit_code, report
from pyagentd.cli.schedule import schedule, tasks, trigger
from pyagentd.cli.search import reindex, search
from pyagentd.cli.send import approve, ask, attach, messages, queue, send
from pyagentd.cli.sessions import (
    abort,
    archive,
    branch,
    branches,
    delete,
    duplicate,
    export,
    import_,
    new,
    rename,
    sessions,
    show,
    switch,
)
from pyagentd.cli.tools import hooks, mcp, models, presets, skills
from pyagentd.cli.usage import usage
from pyagentd.errors import PyagentdError

PROGRAM = "pyagentd"

_SECTIONS: Mapping[str, Mapping[click.Command, str]] = {
    "Talk": {
        ask: "ask in a new session and print the answer",
        new: "create a session",
        send: "send a message and follow the answer",
        attach: "follow a session, whoever sends to it",
        approve: "approve a plan and carry it out",
        regenerate: "regenerate the answer to a prompt",
        queue: "list, edit or cancel queued messages",
        abort: "stop a run; its text is kept",
    },
    "Sessions": {
        sessions: "list sessions with their branches and agents",
        show: "print a conversation, or what happened in it",
        search: "search everything that was said",
        usage: "show tokens and cost",
        rename: "give a session another title",
        archive: "hide a session from lists, or show it again",
        duplicate: "copy a session",
        delete: "move a session or a branch to the trash",
        export: "write a conversation as Markdown, JSON or HTML",
        import_: "make a session from a saved chat",
    },
    "Earlier and other versions": {
        rewind: "hide everything after a prompt",
        unrewind: "undo the last rewind",
        fork: "make a session of its own up to a message",
        variants: "list or choose other answers to the same prompt",
        branch: "create a branch at a prompt",
        branches: "list the branches of a session",
        switch: "make another branch the active one",
        changes: "list the files that agents changed",
        restore: "restore files that agents changed",
        compact: "summarise the conversation so far",
        context: "save, clear or restore a conversation",
    },
    "Agents, missions, work in the background": {
        agents: "show the agents of a session",
        agent: "create, configure and destroy named agents",
        mission: "run a typed task and print its value",
        tasks: "list, show or end background commands",
        schedule: "send messages later, or repeatedly",
        trigger: "deliver a message of another program",
    },
    "Approvals and permissions": {
        asks: "list pending approvals and questions",
        answer: "answer one of them",
        grants: "list or revoke grants",
        scope: "test what a session may read, write or run",
        audit: "list what was allowed and denied, and why",
        trust: "trust a session that came from elsewhere",
    },
    "Set up": {
        doctor: "check the installation",
        config: "show every setting and where it comes from",
        models: "list the models you can use",
        presets: "list presets",
        skills: "list the skills of project, user and package",
        mcp: "add, list, test and trust MCP servers",
        hooks: "list or trust programs that are asked before a tool runs",
        settings: "show or set the defaults of named agents",
        completion: "print a completion script for your shell",
    },
    "The daemon": {
        status: "show what the daemon or an agent is doing",
        serve: "run the daemon",
        stop: "stop the daemon",
        logs: "print the daemon's log",
        reindex: "rebuild the search index",
    },
    "For programs and other editors": {
        acp: "speak the Agent Client Protocol on stdin and stdout",
        messages: "print what gptel would send for a file",
        lisp: "run a program of the mission language",
        signature: "check a signature",
    },
}
"""Every command with what it is for, daily ones first."""

_FIRST = (
    ("pyagentd doctor", "check the installation"),
    ('pyagentd ask "What does this project do?"', "ask about the current directory"),
    ('pyagentd ask -c "And how is it tested?"', "continue that conversation"),
)


class _Sectioned(click.Group):
    """Lists its commands in sections, daily ones first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Begin with"):
            formatter.write_dl(_FIRST, col_max=50)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))  # one column for all sections
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{command.name:{width}}", words) for command, words in commands.items()])


@click.group(cls=_Sectioned, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Agents for Emacs that outlive Emacs.

    The daemon starts on demand. A SESSION is an id, the beginning of one, ID/BRANCH or a directory.
    `pyagentd COMMAND --help` explains a command.
    """


for _commands in _SECTIONS.values():
    for _command in _commands:
        cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status (see ``outcome``)."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        status = cli.main(words, prog_name=PROGRAM, standalone_mode=False)
    except BrokenPipeError:
        # The reader (head, less) has enough; what is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except click.Abort as error:  # Ctrl-C, "no", or the end of input where something was asked
        return ExitCode.INTERRUPTED if isinstance(error.__context__, KeyboardInterrupt) else ExitCode.FAILED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        return ExitCode.DONE
    except (PyagentdError, click.ClickException, OSError) as error:
        report(error, as_json=_wants_json(words))
        return exit_code(error)
    return int(status or ExitCode.DONE)


def _wants_json(words: Sequence[str]) -> bool:
    # Read from the words themselves: an error in parsing them must be reported in the wanted form too.
    return any(word in ("--json", "--json-events") for word in takewhile(lambda word: word != "--", words))
