"""``pyagentd models``: which models can be had (SPEC 003 Model)."""

from __future__ import annotations

import os
from typing import Any

import click

from pyagentd.cli.link import daemon, run_environment
from pyagentd.cli.output import json_option, print_json, printable

_LONGEST_S = 60.0  # providers are asked all at once, each with a limit


@click.command()
@click.option("--refresh", is_flag=True, help="Ask the providers again, even if they were asked today.")
@json_option
def models(refresh: bool, as_json: bool) -> None:
    """List the models that can be had, by the keys that are known here.

    Each provider is asked at most once a day; where it cannot be asked, models that are known by name are listed.
    """
    from pyagentd.service.commands.models import listing

    env, key = run_environment(os.environ)
    with daemon() as link:
        told = link.call("models", timeout=_LONGEST_S, refresh=refresh or None, env=env, key=key)
    found: list[dict[str, Any]] = [
        {**each, "valid": bool(each["valid"]), "stand_in": bool(each.get("stand_in")), "models": each["models"] or []}
        for each in told["providers"] or []
    ]
    if as_json:
        print_json({each["name"]: {name: each[name] for name in each if name != "name"} for each in found})
    else:
        click.echo(printable(listing(found)))
