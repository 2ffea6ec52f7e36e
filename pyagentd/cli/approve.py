"""``pyagentd approve``: agree to a plan and have it carried out."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_agent, complete_session, daemon, run_environment, watch
from pyagentd.cli.options import asking_options
from pyagentd.cli.outcome import ExitCode
from pyagentd.cli.output import json_option, note, print_json
from pyagentd.cli.send import conclude


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--agent",
    default="build",
    show_default=True,
    metavar="NAME",
    shell_complete=complete_agent,
    help="Who carries it out: a preset.",
)
@click.option("--wait/--no-wait", default=True, help="Stay until the run ends (default), or return at once.")
@asking_options
@json_option
def approve(session: str, agent: str, wait: bool, allow: tuple[str, ...], headless: bool, as_json: bool) -> ExitCode:
    """Approve the plan in SESSION: from the next turn on it is carried out.

    It sends "Approved, continue." as a message of yours, which the agent build answers. Only a session in plan mode
    (send --agent plan) with an answer has a plan.
    """
    from pyagentd.cli.follow import Follower
    from pyagentd.cli.views import JsonView, TextView

    human = sys.stdin.isatty() and sys.stdout.isatty() and not headless and not as_json
    with daemon(human=human) as link:
        state = watch(link, branch_of(link, session))
        branch = state["branch"]
        env, key = run_environment(os.environ, state["settings"]["backend"])
        sent: dict[str, Any] = link.call("approve", branch=branch, agent=agent, env=env, key=key, allow=allow)
        if not wait:
            print_json({**sent, "queued": bool(sent["queued"])}) if as_json else print(sent["run"] or sent["message"])
            return ExitCode.DONE
        if sent["queued"] and not as_json:
            note("it waits for the run in flight")
        view = JsonView() if as_json else TextView()
        queued = sent["message"] if sent["queued"] else None
        ending = Follower(link, branch, sent["run"], view, human=human, queued=queued).follow(None)
    return conclude(ending, session, as_json)
