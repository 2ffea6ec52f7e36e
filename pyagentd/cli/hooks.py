"""``pyagentd hooks``: who is asked before and told after, and trusting those of a project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import daemon
from pyagentd.cli.options import project_option
from pyagentd.cli.output import json_option, note, print_json, print_table, printable


@click.command()
@project_option("hooks")
@click.option("--trust", is_flag=True, help="Show what the project's hooks run, and trust them as they are now.")
@json_option
def hooks(root: Path, trust: bool, as_json: bool) -> None:
    """List the hooks: yours, from config.toml, and the project's, from .pyagentd/hooks.toml.

    Those of a project are programs that run as you. They do once you trust them with --trust, until the file or a
    script of the project that it names changes.
    """
    place = str(root.resolve())
    with daemon() as link:
        told = link.call("hooks", root=place)
        if trust:
            if not as_json:
                _show_scripts(told)
            if told["hash"]:
                link.call("trust-hooks", root=place, hash=told["hash"])
                note(f"trusted: {told['file']}")
            else:
                note(told["error"] or "this project has no hooks")
            told = link.call("hooks", root=place)
    rows = told["hooks"] or []
    if as_json:
        print_json(told)
        return
    print_table(
        ("event", "command", "tools", "seconds", "source"),
        (
            (
                row["event"],
                ("" if row["trusted"] else "NOT TRUSTED: ") + " ".join(row["command"] or ()),
                row["tools"] or "",
                f"{row['timeout']:g}",
                row["source"],
            )
            for row in rows
        ),
    )
    if told["error"]:
        note(f"the project's hooks cannot be used: {told['error']}")
    elif any(not row["trusted"] for row in rows):
        note("the project's hooks wait for your word: read them, then pyagentd hooks --trust")


def _show_scripts(told: dict[str, Any]) -> None:
    """Show what would run."""
    if told["file"]:
        print(f"--- {told['file']}\n{printable(told['text'])}", file=sys.stderr)
    for row in told["scripts"] or []:
        print(f"--- {row['path']}\n{printable(row['text'])}", file=sys.stderr)
