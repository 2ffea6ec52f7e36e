"""``pyagentd context``: conversations saved, cleared, taken up again, listed (SPEC 003 Context Management)."""

from __future__ import annotations

import os

import click

from pyagentd.cli.link import branch_of, complete_session, daemon, run_environment, watch
from pyagentd.cli.output import json_option, print_json
from pyagentd.errors import NotFound

_LONGEST_S = 300.0  # a long conversation is summarised in pieces
_ID = 8  # characters of an id that are shown


@click.group()
def context() -> None:
    """Save the conversation of a SESSION, clear it, or go on with one that was saved."""


@context.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("description", required=False, default="")
@json_option
def save(session: str, description: str, as_json: bool) -> None:
    """Save the conversation of SESSION, which goes on; without DESCRIPTION a model says what it is about."""
    with daemon() as link:
        state = watch(link, branch_of(link, session))
        env, key = run_environment(os.environ, state["settings"]["backend"])
        wishes = {"description": description, "env": env, "key": key}
        made = link.call("context-save", timeout=_LONGEST_S, branch=state["branch"], **wishes)
    print_json(made) if as_json else click.echo(f"[{made['id'][:_ID]}] {made['description']}\n{made['file']}")


@context.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def clear(session: str, as_json: bool) -> None:
    """Begin anew in SESSION without saving the conversation; its text stays in the document and in the log."""
    with daemon() as link:
        made = link.call("context-clear", branch=str(branch_of(link, session)))
    print_json(made) if as_json else click.echo(f"Context cleared. {made['note']}")


@context.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("id")
@json_option
def restore(session: str, id: str, as_json: bool) -> None:
    """Go on in SESSION with the saved conversation ID (or how it begins), in the place of the present one."""
    with daemon() as link:
        made = link.call("context-restore", timeout=_LONGEST_S, branch=str(branch_of(link, session)), id=id)
    if as_json:
        print_json(made)
    else:
        click.echo(f"Context restored: {made['description']} ({made['message_count']} messages)")


@context.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def history(session: str, as_json: bool) -> None:
    """List the saved conversations of SESSION, the last one first; also of an agent that was destroyed."""
    with daemon() as link:
        try:
            found = link.call("context-history", branch=str(branch_of(link, session)))["contexts"] or []
        except NotFound:
            found = link.call("context-history", agent=session)["contexts"] or []
            if not found:
                raise
    if as_json:
        print_json([{**row, "gone": bool(row.get("gone"))} for row in found])
        return
    from pyagentd.agent.lifecycle.telling import listing

    click.echo(listing(session, found))
