"""``pyagentd settings``: what named agents get where nobody says otherwise."""

from __future__ import annotations

import os
from typing import Any

import click

from pyagentd.cli.link import daemon, run_environment
from pyagentd.cli.output import json_option, note, print_json

_LONGEST_S = 60.0  # providers may be asked for a model
_KEYS = ("default_model", "default_permissions", "idle_timeout")


@click.command()
@click.argument("key", required=False, type=click.Choice(_KEYS))
@click.argument("value", required=False)
@click.option("--reset", is_flag=True, help="Reset KEY to its default.")
@json_option
def settings(key: str | None, value: str | None, reset: bool, as_json: bool) -> None:
    """Show the defaults of named agents, or one KEY of them; with VALUE, set that.

    Model and permissions are those of agents made from now on. The idle timeout is a number of seconds, or a span
    such as 45min, 2h, never; it holds for all of them.
    """
    if reset and (key is None or value is not None):
        raise click.UsageError("--reset needs a KEY, and no VALUE")
    with daemon() as link:
        env, api_key = run_environment(os.environ)
        wanted = {"key": key, "value": value, "reset": reset or None}
        told = link.call("settings", timeout=_LONGEST_S, **wanted, env=env, api_key=api_key)
    if told["note"]:
        note(told["note"])
    if as_json:
        print_json({part: {name: told[part][name] for name in _KEYS} for part in ("settings", "defaults")})
    elif key is not None:
        held = told["settings"][key]
        is_set = reset or value is not None
        click.echo(_span(held) if is_set and key == "idle_timeout" else _shown(held))
    else:
        for name in _KEYS:
            click.echo(f"{name}\t{_shown(told['settings'][name])}")


def _span(seconds: float) -> str:
    from pyagentd.agent.lifecycle.telling import span

    return span(seconds) if seconds else "never"


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)
