"""``pyagentd send``: a message to a session, and the run it starts, on the terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pyagentd.cli.link import (
    branch_of,
    complete_agent,
    complete_model,
    complete_session,
    daemon,
    run_environment,
    watch,
)
from pyagentd.cli.options import asking_options
from pyagentd.cli.outcome import ExitCode, report
from pyagentd.cli.output import json_option, note, print_json, shown
from pyagentd.errors import BadRequest, PyagentdError
from pyagentd.events import Event

if TYPE_CHECKING:
    from pyagentd.cli.follow import Ending

_LONGEST_COMMAND_S = 300.0  # a long conversation is summarised in pieces
_SLASH = re.compile(r"/[A-Za-z][\w:.-]*(?!\S)")
_LONGEST_PROMPT = 900_000  # bytes; a call to the daemon holds 1 MiB


class RunFailed(PyagentdError):
    """The run ended, and not well."""

    code = "run-failed"


class StillRunning(PyagentdError):
    """We stopped waiting; the run did not stop."""

    code = "timeout"


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("text")
@click.option("--wait/--no-wait", default=True, help="Stay until the run ends (default), or return at once.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop waiting then; the run goes on."
)
@asking_options
@click.option("--steer", is_flag=True, help="Say it to the run in flight, at its next step.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agent,
    help="Who answers from this message on: a preset, such as plan or build.",
)
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=complete_model,
    help="Which model answers from this message on, [BACKEND/]NAME.",
)
@click.option(
    "--command", "commanded", is_flag=True, help="Do a slash command also when it comes from stdin or from a script."
)
@click.option("--id", "message_id", metavar="ID", help="The message's id; sent twice it is one message.")
@json_option
def send(
    session: str,
    text: str,
    wait: bool,
    timeout: float | None,
    allow: tuple[str, ...],
    headless: bool,
    steer: bool,
    agent: str | None,
    model: str | None,
    commanded: bool,
    message_id: str | None,
    as_json: bool,
) -> int:
    """Send TEXT to SESSION and follow the answer.

    While a run is in flight the message waits for its turn, unless it is to --steer that run.
    A slash command, such as /status or /help, is answered at once and never sent to a model; /compact is waited for.
    One that changes something is done where you typed it at a terminal; from a script, give --command.
    TEXT "-" is read from stdin, and is a message whatever it looks like, unless you give --command.
    On a terminal you are asked what needs approval; elsewhere it is denied unless --allow covers it.
    Ctrl-C leaves the run going, a second one aborts it.
    """
    from pyagentd.cli.follow import Ending, Follower
    from pyagentd.cli.views import JsonView, TextView

    human = sys.stdin.isatty() and sys.stdout.isatty() and not headless and not as_json
    message = sys.stdin.read() if text == "-" else text
    command = "always" if commanded else "never" if text == "-" else "human"
    if not message.strip():
        raise click.UsageError("TEXT is empty")
    if (size := len(message.encode("utf-8", "surrogateescape"))) > _LONGEST_PROMPT:
        raise BadRequest(f"A prompt of {size:,} bytes", mend="Above 900 kB, put it into a file and name the file")
    with daemon(human=human) as link:
        state = watch(link, branch_of(link, session))
        branch = state["branch"]
        env, key = run_environment(os.environ, (model or "").rpartition("/")[0] or state["settings"]["backend"])
        wishes: dict[str, Any] = {"allow": allow, "steer": steer, "agent": agent, "model": model, "id": message_id}
        wishes["command"] = command
        is_slash = _SLASH.match(message.lstrip()) is not None
        is_command = is_slash and command != "never"  # some of them ask a model
        if is_slash and not is_command and not as_json:
            note("sent as a message: what comes from stdin is a slash command only with --command")
        limit = {"timeout": _LONGEST_COMMAND_S} if is_command else {}
        sent = link.call("prompt", **limit, branch=branch, text=message, env=env, key=key, **wishes)
        if command := sent.get("command"):
            goes_on = wait and command["began"]  # a compaction, below which the next message is to stand
            if as_json or not goes_on:  # else the answer is among the events
                status = _print_command(command, as_json)
            if sent["ended"] and not goes_on:  # else it sent a message to the model
                return status
            sent = {**sent, "run": goes_on, "ended": None} if goes_on else sent
        if not as_json:  # there they are events
            for line in state.get("notes") or ():
                note(line)
        if not wait:
            _print_sent(sent, as_json)
            return ExitCode.DONE
        view = JsonView() if as_json else TextView()
        if as_json:
            for line in state.get("notes") or ():
                view.show(Event("notice", branch, 0, ({"text": line},)))
        if sent["queued"] and not as_json:
            note("it waits for the run in flight" if not steer else "the run in flight reads it at its next step")
        if sent["ended"]:
            if sent["ended"] != "canceled":
                note(f"it was sent before, and answered: pyagentd show {session}")
            return conclude(Ending(sent["ended"]), session, as_json)
        queued = sent["message"] if sent["queued"] else None
        ending = Follower(link, branch, sent["run"], view, human=human, queued=queued).follow(timeout)
    return conclude(ending, session, as_json)


def _print_command(command: Mapping[str, Any], as_json: bool) -> ExitCode:
    """Print what a slash command answered."""
    if as_json:
        data = json.loads(command["json"])
        print_json({"kind": "command", "name": command["name"], "text": command["text"], "data": data})
    elif command["code"]:
        note(command["text"])
    else:
        click.echo(shown(command["text"], sys.stdout))
    return ExitCode.FAILED if command["code"] else ExitCode.DONE


def _print_sent(sent: Mapping[str, Any], as_json: bool) -> None:
    """Print the run, or the message that waits."""
    if as_json:
        print_json({**sent, "queued": bool(sent["queued"])})
    else:
        print(sent["run"] or sent["message"])


def conclude(ending: Ending, session: str, as_json: bool) -> ExitCode:
    """Say how following a run ended, where that is not evident, and return the exit status."""
    match ending.reason:
        case "done":
            return ExitCode.DONE
        case "detached":
            note(f"see it with: pyagentd show {session}; stop it with: pyagentd abort {session}")
        case "timeout":
            report(StillRunning(ending.message), as_json=as_json)
        case "canceled":
            report(RunFailed("The message was taken back"), as_json=as_json)
        case "aborted":
            report(RunFailed("The run was aborted"), as_json=as_json)
        case _:
            report(RunFailed(ending.message or f"The run ended: {ending.reason}"), as_json=as_json)
    return ExitCode.FAILED
