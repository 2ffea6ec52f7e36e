"""The root command and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import takewhile

import click

from pyagentd import __version__
from pyagentd.cli.acp import acp
from pyagentd.cli.agent import agent
from pyagentd.cli.agents import agents
from pyagentd.cli.approve import approve
from pyagentd.cli.asks import answer, asks
from pyagentd.cli.attach import attach
from pyagentd.cli.audit import audit
from pyagentd.cli.branches import branch, branches, switch
from pyagentd.cli.changes import changes, restore
from pyagentd.cli.compact import compact
from pyagentd.cli.context import context
from pyagentd.cli.daemon import serve, status, stop
from pyagentd.cli.defaults import settings
from pyagentd.cli.doctor import doctor
from pyagentd.cli.exchange import export, import_
from pyagentd.cli.grants import grants, scope
from pyagentd.cli.history import fork, regenerate, rewind, unrewind, variants
from pyagentd.cli.hooks import hooks
from pyagentd.cli.lisp import lisp
from pyagentd.cli.logs import logs
from pyagentd.cli.manage import archive, delete, duplicate, rename
from pyagentd.cli.mcp import mcp
from pyagentd.cli.messages import messages
from pyagentd.cli.mission import mission
from pyagentd.cli.models import models
from pyagentd.cli.outcome import ExitCode, exit_code, report
from pyagentd.cli.presets import presets
from pyagentd.cli.queue import queue
from pyagentd.cli.schedule import schedule, trigger
from pyagentd.cli.search import reindex, search
from pyagentd.cli.send import send
from pyagentd.cli.sessions import abort, new, sessions, show
from pyagentd.cli.settings import completion, config
from pyagentd.cli.signature import signature
from pyagentd.cli.skills import skills
from pyagentd.cli.tasks import tasks
from pyagentd.cli.trust import trust
from pyagentd.cli.usage import usage
from pyagentd.errors import PyagentdError

PROGRAM = "pyagentd"


class _InOrder(click.Group):
    """Lists commands as they were added: daily ones first."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Agents for Emacs that outlive Emacs.

    The daemon starts on demand; a SESSION is an id, a prefix of one that fits no other, ID/BRANCH or a directory.
    """


for _command in (
    new, send, agent, mission, attach, approve, queue, tasks, schedule, trigger, sessions, search, show, usage, abort,
    export, import_, presets, models, skills, trust, hooks, mcp, acp,
    agents, asks, answer, grants, scope, audit,
    changes, restore, compact, context, rewind, unrewind, fork, regenerate, variants,
    branch, branches, switch, rename, archive, duplicate, delete,
    serve, stop, status, logs, reindex, doctor, settings, config, messages, lisp, signature, completion,
):  # fmt: skip
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
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.FAILED
    except (PyagentdError, click.ClickException, OSError) as error:
        report(error, as_json=_wants_json(words))
        return exit_code(error)
    return int(status or ExitCode.DONE)


def _wants_json(words: Sequence[str]) -> bool:
    # Read from the words themselves: an error in parsing them must be reported in the wanted form too.
    return "--json" in takewhile(lambda word: word != "--", words)
