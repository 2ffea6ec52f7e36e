"""``pyagentd compact``: a conversation summarised, so that it goes on with room."""

from __future__ import annotations

import os

import click

from pyagentd.cli.link import branch_of, complete_session, daemon, run_environment, watch
from pyagentd.cli.outcome import ExitCode, report
from pyagentd.cli.output import json_option, print_json
from pyagentd.cli.send import RunFailed
from pyagentd.store.conversation import round_tokens

_LONGEST_S = 900.0  # a very long conversation is summarised in pieces


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--keep", "instructions", default="", metavar="TEXT", help="What the summary should keep.")
@click.option("--wait/--no-wait", default=True, help="Wait until it is done (default), or return at once.")
@json_option
def compact(session: str, instructions: str, wait: bool, as_json: bool) -> int:
    """Summarise what was said in SESSION so far: the model sees the summary in its place.

    Nothing is deleted: the text stays in the document, and after a rewind to before the summary it is sent again.
    """
    with daemon() as link:
        state = watch(link, branch_of(link, session))
        env, key = run_environment(os.environ, state["settings"]["backend"])
        wishes = {"instructions": instructions, "wait": wait or None, "env": env, "key": key}
        made = link.call("compact", timeout=_LONGEST_S, branch=state["branch"], **wishes)
    if not wait:
        print_json(made) if as_json else click.echo(made["run"])
        return ExitCode.DONE
    if str(made["reason"]) != "done":
        report(RunFailed(made["message"] or "The compaction was aborted"), as_json=as_json)
        return ExitCode.FAILED
    if as_json:
        print_json({**made, "reason": "done", "auto": bool(made["auto"])})
    else:
        tokens, left = round_tokens(made["tokens"] or 0), round_tokens(made["summary_tokens"] or 0)
        click.echo(f"{made['messages']} messages, ~{tokens} tokens, are a summary of ~{left} tokens now")
    return ExitCode.DONE
