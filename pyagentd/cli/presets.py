"""``pyagentd presets``: what sessions and agents can be made from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import daemon
from pyagentd.cli.options import project_option
from pyagentd.cli.output import json_option, note, print_json, print_table

Row = dict[str, Any]


@click.command()
@project_option("presets")
@click.option("--trust", is_flag=True, help="Trust the project's own presets as they are now.")
@json_option
def presets(root: Path, trust: bool, as_json: bool) -> None:
    """List the presets that sessions and agents can be made from.

    Those of a project (.pyagentd/presets/*.md) say what an agent may read, write and run, and come with the project.
    They are used once you trust them with --trust, each until its content changes.
    """
    place = str(root.resolve())
    with daemon() as link:
        answer = link.call("presets", root=place)
        if trust:
            _trust(link, place, answer["untrusted"] or [])
            answer = link.call("presets", root=place)
    found = [{**row, "trusted": True} for row in answer["presets"] or []]
    waiting = [{**row, "trusted": False} for row in answer["untrusted"] or []]
    if as_json:
        print_json([*found, *waiting])
        return
    print_table(("preset", "mode", "description", "source"), _lines([*found, *waiting]))
    if good := sum(not row.get("error") for row in waiting):
        wait = "preset waits" if good == 1 else "presets wait"
        note(f"{good} of the project's {wait} for your word: read, then pyagentd presets --trust")


def _trust(link: Any, root: str, waiting: list[Row]) -> None:
    for row in waiting:
        if row.get("error"):
            note(f"not trusted, since it cannot be used: {row['error']}")
    good = [row for row in waiting if not row.get("error")]
    if not good:
        note("no preset of this project waits for your word")
        return
    link.call("trust-presets", root=root, hashes=[row["hash"] for row in good])
    for row in good:
        note(f"trusted: {row['source']}")


def _lines(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        said = row.get("error") or row.get("description") or ""
        if warning := row.get("warning"):
            said = f"{said} (WARNING: {warning})"
        yield row["name"], row.get("mode") or "", said if row["trusted"] else f"NOT TRUSTED: {said}", row["source"]
