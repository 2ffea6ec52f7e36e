"""``pyagentd queue``: the messages that wait behind a session's run."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pyagentd.cli.link import branch_of, complete_session, daemon, run_environment, watch
from pyagentd.cli.output import json_option, note, print_json, print_table

_TEXT = 100  # characters of a message in the list


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--cancel", metavar="ID", help="Remove a message from the queue and print its text.")
@click.option("--edit", nargs=2, metavar="ID TEXT", help="Replace the text of a queued message.")
@click.option("--resume", is_flag=True, help="Resume the queue after an error.")
@json_option
def queue(session: str, cancel: str | None, edit: tuple[str, str] | None, resume: bool, as_json: bool) -> None:
    """List the messages that wait in SESSION, the next one first.

    A message sent while a run is in flight waits; messages fire one after the other. An error makes them wait until
    you send another message, or go on with --resume.
    """
    if sum(map(bool, (cancel, edit, resume))) > 1:
        raise click.UsageError("--cancel, --edit and --resume exclude each other")
    with daemon() as link:
        branch = str(branch_of(link, session))
        if cancel:
            text = link.call("queue-cancel", branch=branch, id=cancel)["text"]
            print_json({"id": cancel, "text": text}) if as_json else click.echo(text)
            return
        if edit:
            link.call("queue-edit", branch=branch, id=edit[0], text=edit[1])
        if resume:
            env, key = run_environment(os.environ, watch(link, Path(branch))["settings"]["backend"])
            link.call("queue-resume", branch=branch, env=env, key=key)
        found = link.call("queue", branch=branch)
    items = [{**item, "steer": bool(item["steer"])} for item in found["items"] or ()]
    if as_json:
        print_json(items)
        return
    rows = [(item["id"], "steers" if item["steer"] else "", _line(item["text"])) for item in items]
    print_table(("id", "how", "message"), rows, empty="No message waits.")
    if found["paused"]:
        note(f"they wait because of an error; go on with: pyagentd queue {session} --resume")
    elif not items:
        note("nothing waits")


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT else f"{line[: _TEXT - 1]}…"
