"""``pyagentd grants`` and ``scope check``: what is allowed without a question, and what the guard would say."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from pyagentd.cli.ask import printable
from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, print_json, print_table


def _complete_grant(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from pyagentd.errors import PyagentdError

    # What stands before an option that has no value yet was not taken for an argument.
    session = context.params.get("session") or next(iter(context.args), "")
    try:
        with daemon(start=False) as link:
            found = link.call("grants", branch=str(branch_of(link, session)), timeout=2.0)["grants"]
    except (PyagentdError, OSError):
        return []
    return [row["action"] for row in found or () if row["action"].startswith(incomplete)]


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--revoke", metavar="REGEX", shell_complete=_complete_grant, help="Revoke this grant, as listed.")
@json_option
def grants(session: str, revoke: str | None, as_json: bool) -> None:
    """List what you allowed for SESSION and always for its project, or take one of these back.

    A grant is a regular expression for actions, exactly as the question showed it when you answered.
    """
    with daemon() as link:
        branch = str(branch_of(link, session))
        revoked = link.call("revoke", branch=branch, action=revoke)["revoked"] if revoke else 0
        answer = link.call("grants", branch=branch)
    found = answer["grants"] or []
    if as_json:
        told = {"session": answer["session"], "root": answer["root"], "grants": found}
        print_json({**told, "revoked": revoked} if revoke else told)
    elif revoke:
        click.echo(f"revoked {revoked}")
    else:
        rows = [_columns(row, answer["root"]) for row in found]
        print_table(
            ("holds for", "action", "covers", "since"), rows, empty="Nothing is allowed for longer than once."
        )


def _columns(row: dict[str, Any], root: str) -> tuple[str, str, str, str]:
    from pyagentd.policy.remember import told

    since = datetime.fromtimestamp(row["at"] / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
    where = "this session" if row["kind"] == "session" else root
    return where, printable(row["action"]), printable(told(row["action"])), since


@click.group()
def scope() -> None:
    """Tell what a session may touch."""


@scope.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("kind", metavar="read|write|command", type=click.Choice(("read", "write", "command")))
@click.argument("resource")
@json_option
def check(session: str, kind: str, resource: str, as_json: bool) -> None:
    """Say whether SESSION may read or write the path RESOURCE, or run the command RESOURCE, and why.

    A path is relative to the session's project. Nothing is done. This is what the guard would say now: edit preset.md
    and ask again.
    """
    with daemon() as link:
        told = link.call("scope-check", branch=str(branch_of(link, session)), kind=kind, resource=resource)
    if as_json:
        print_json({"decision": told["decision"], "reason": told["reason"]})
    else:
        click.echo(f"{told['decision']}\t{printable(told['reason'])}")
