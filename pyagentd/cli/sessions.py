"""``pyagentd new``, ``sessions``, ``show`` and ``abort``: sessions as the daemon knows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, note, print_json, print_table

_CREATED = ("session_id", "session_dir", "branch_dir")


@click.command()
@click.argument("name")
@click.option("--preset", metavar="PRESET", help="What to make it from (see: pyagentd presets).")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The directory it may work in (default: the current one).",
)
@json_option
def new(name: str, preset: str | None, root: Path, as_json: bool) -> None:
    """Create a session called NAME."""
    with daemon() as link:
        created = link.call("create-session", name=name, preset=preset, root=str(root.resolve()))
    if as_json:
        print_json({key: created[key] for key in _CREATED})
    else:
        click.echo(f"{created['session_id']}\t{Path(created['branch_dir']) / 'session.md'}")


@click.command()
@json_option
def sessions(as_json: bool) -> None:
    """List the sessions."""
    with daemon() as link:
        found: list[dict[str, Any]] = link.call("sessions")["sessions"] or []
    if as_json:
        print_json(found)
        return
    print_table(("session", "state", "preset", "created"), map(_columns, found))


def _columns(session: dict[str, Any]) -> tuple[str, str, str, str]:
    if session.get("agent"):
        name = f"└ {session['session_id']}"
    else:
        name = f"{session['session_id']}/{session['branch_name']}"
    return name, session.get("state") or "idle", session.get("preset") or "", session.get("created") or ""


@click.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def show(session: str, as_json: bool) -> None:
    """Print the conversation of SESSION.

    As text it is the document as you would see it in Emacs; with --json it is every message with its parts.
    """
    with daemon() as link:
        branch_dir = branch_of(link, session)
        answer = link.call("show", branch=str(branch_dir)) if as_json else {}
    if as_json:
        print_json(json.loads(_payload(answer)))
        return
    from pyagentd.store.document import read

    click.echo(read(branch_dir / "session.md").body.encode("utf-8", "surrogateescape"))  # bytes as they are


def _payload(answer: dict[str, Any]) -> str:
    # What is too large for a frame comes by path.
    return answer.get("json") or Path(answer["path"]).read_text(encoding="utf-8")


@click.command()
@click.argument("session", shell_complete=complete_session)
def abort(session: str) -> None:
    """Stop the run of SESSION; what it said so far is kept."""
    with daemon(start=False) as link:
        if not link.call("abort", branch=str(branch_of(link, session)))["aborted"]:
            note(f"{session} has no run to abort")
