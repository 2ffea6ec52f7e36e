"""``pyagentd tasks``: commands that run behind conversations."""

from __future__ import annotations

import click

from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, print_json


@click.command()
@click.argument("agent", required=False, shell_complete=complete_session)
@click.option("--kill", "kill", metavar="ID", help="End this task of AGENT and all processes it started.")
@click.option("--output", "output", metavar="ID", help="Show the last output of this task of AGENT.")
@json_option
def tasks(agent: str | None, kill: str | None, output: str | None, as_json: bool) -> None:
    """List the background commands of AGENT (a named agent or a session), or all.

    They go on when their turn, Emacs or the daemon ends.
    """
    if kill and output:
        raise click.UsageError("--kill and --output do not go together")
    if (kill or output) and agent is None:
        raise click.UsageError("Name the agent or session whose task it is")
    with daemon() as link:
        branch = str(branch_of(link, agent)) if agent else None
        if kill or output:
            told = link.call("task-kill" if kill else "task-output", branch=branch, id=kill or output)
            told = {**told, "wake": bool(told["wake"]), "whole": bool(told["whole"])}
            printed = told["output"].rstrip("\n") or f"[{told['id']} ({told['status']}) has printed nothing]"
            shown = printed if output else f"{told['id']} {told['status']}"
        else:
            found = link.call("tasks", branch=branch)
            told = [{**each, "wake": bool(each["wake"])} for each in found["tasks"] or []]
            shown = found["text"]
    print_json(told) if as_json else click.echo(shown)
