"""``pyagentd trust``: agree to what a session from elsewhere may do."""

from __future__ import annotations

from typing import Any

import click

from pyagentd.cli.ask import printable
from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, note, print_json

_FLAGS = ("confine", "network")


@click.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def trust(session: str, as_json: bool) -> None:
    """Trust SESSION, which came from elsewhere, as its preset.md is now; what that allows is shown.

    Until then its profile, its grants and what it says about confinement do not count, and again when it changes.
    """
    with daemon() as link:
        branch = str(branch_of(link, session))
        told = link.call("trust-session", branch=branch)
        if not as_json:
            _show(told)
        was_foreign = told["foreign"]
        told = link.call("trust-session", branch=branch, sha256=told["sha256"])
    if as_json:
        print_json(told)
    else:
        note(f"trusted: {told['file']}" if was_foreign else f"needs no trust: {told['file']}")


def _show(told: dict[str, Any]) -> None:
    print(f"profile: {printable(told['profile'] or 'none')}")
    for section in ("paths", "shell_commands"):
        print(f"{section}:")
        for key, value in told[section].items():
            said = ("true" if value else "false") if key in _FLAGS else ", ".join(value or ())
            print(f"  {key}: {printable(said) or 'none'}")
    for server in told["mcp"] or ():
        print(f"starts the MCP server {printable(server)}")
