"""``pyagentd approve``: agree to a plan and have it carried out."""

from __future__ import annotations

import os
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_agent, complete_session, daemon, run_environment, watch
from pyagentd.cli.options import asking_options, stream_options, strict_option
from pyagentd.cli.outcome import ExitCode
from pyagentd.cli.output import note
from pyagentd.cli.send import finished, form_of, is_human, print_sent, view_of


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--agent",
    default="build",
    show_default=True,
    metavar="NAME",
    shell_complete=complete_agent,
    help="Agent that carries it out: a preset.",
)
@click.option("--wait/--no-wait", default=True, help="Wait until the run ends (default), or return at once.")
@asking_options
@strict_option
@stream_options
def approve(
    session: str,
    agent: str,
    wait: bool,
    allow: tuple[str, ...],
    headless: bool,
    strict: bool,
    as_json: bool,
    as_events: bool,
) -> ExitCode:
    """Approve the plan in SESSION: from the next turn on it is carried out.

    It sends "Approved, continue." as a message of yours, which the agent build answers. Only a session in plan mode
    (send --agent plan) with an answer has a plan.
    """
    from pyagentd.cli.follow import Follower

    form = form_of(as_json, as_events)
    human = is_human(form, headless=headless)
    with daemon(human=human) as link:
        state = watch(link, branch_of(link, session))
        branch = state["branch"]
        env, key = run_environment(os.environ, state["settings"]["backend"])
        sent: dict[str, Any] = link.call("approve", branch=branch, agent=agent, env=env, key=key, allow=allow)
        if not wait:
            print_sent(sent, form != "text")
            return ExitCode.DONE
        if sent["queued"] and form == "text":
            note("it waits for the run in flight")
        view = view_of(form)
        queued = sent["message"] if sent["queued"] else None
        ending = Follower(link, branch, sent["run"], view, human=human, queued=queued).follow(None)
        view.message_id = sent["message"] or view.message_id
        return finished(link, branch, session, view, ending, form, strict=strict)
