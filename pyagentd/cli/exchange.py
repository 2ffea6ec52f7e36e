"""``pyagentd export`` and ``pyagentd import``: conversations as files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.options import preset_option, workplace_option
from pyagentd.cli.output import json_option, note, print_json, printable
from pyagentd.errors import BadRequest

_FORMATS = ("md", "json", "jsonl", "html")
_CREATED = ("session_id", "session_dir", "branch_dir")
_PATIENCE_S = 300.0  # megabytes take a while


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--format", "format_", type=click.Choice(_FORMATS), help="Default: what the name of FILE ends with, else md."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to this file instead of stdout.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def export(session: str, format_: str | None, output: Path | None, force: bool) -> None:
    """Export the conversation of SESSION.

    md is the document with its roles, which gptel opens and `pyagentd import` reads; json and jsonl are all messages
    with their parts; html is one page for a browser, with the agents of the session.
    """
    place = None if output is None else output.absolute()
    if place is not None and place.exists() and not force:
        raise BadRequest(f"{output} exists", mend="Choose another name, or give --force")
    wanted = format_ or _format_of(place)
    with daemon() as link:
        branch = str(branch_of(link, session))
        answer = link.call("export", timeout=_PATIENCE_S, branch=branch, format=wanted, file=place and str(place))
    for line in answer.get("notes") or ():
        note(line)
    if place is None:
        content = _content(answer)
        if sys.stdout.isatty():
            content = printable(content.decode("utf-8", "surrogateescape")).encode()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


@click.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="Name of the session (default: the name of FILE).")
@preset_option
@workplace_option
@json_option
def import_(file: Path, name: str | None, preset: str | None, root: Path, as_json: bool) -> None:
    """Make a session of FILE, a chat that gptel saved.

    Markdown and plain text are read, with the roles that gptel keeps in the Local Variables. FILE is not changed.
    """
    with daemon() as link:
        options = {"name": name, "preset": preset}
        made = link.call(
            "import", timeout=_PATIENCE_S, file=str(file.absolute()), root=str(root.resolve()), **options
        )
    notes = list(made.get("notes") or ())
    if as_json:
        print_json({**{key: made[key] for key in _CREATED}, "notes": notes})
        return
    for line in notes:
        note(line)
    click.echo(f"{made['session_id']}\t{made['file']}")


def _format_of(place: Path | None) -> str:
    suffix = place.suffix.lower().lstrip(".") if place is not None else ""
    return {"htm": "html"}.get(suffix, suffix if suffix in _FORMATS else "md")


def _content(answer: dict[str, Any]) -> bytes:
    # What is too large for a frame comes by path; bytes that are no text come as they are.
    if (text := answer.get("text")) is not None:
        return str(text).encode("utf-8", "surrogateescape")
    return Path(answer["path"]).read_bytes()
