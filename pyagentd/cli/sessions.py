"""``pyagentd new``, ``sessions``, ``show`` and ``abort``: sessions as the daemon knows them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.options import preset_option, workplace_option
from pyagentd.cli.output import json_option, note, print_json, print_table, printable

if TYPE_CHECKING:
    from pyagentd.wire.client import DaemonClient

LIST_TIMEOUT_S = 120.0

_FLAGS = ("agent", "current", "unpriced")  # in Lisp false is nil
_CREATED = ("session_id", "session_dir", "branch_dir")


@click.command()
@click.argument("name")
@preset_option
@workplace_option
@json_option
def new(name: str, preset: str | None, root: Path, as_json: bool) -> None:
    """Create a session called NAME."""
    with daemon() as link:
        created = link.call("create-session", name=name, titled=True, preset=preset, root=str(root.resolve()))
    if as_json:
        print_json({key: created[key] for key in _CREATED})
    else:
        click.echo(f"{created['session_id']}\t{Path(created['branch_dir']) / 'session.md'}")


@click.command()
@click.option("--all", "archived", is_flag=True, help="Include archived sessions.")
@json_option
def sessions(archived: bool, as_json: bool) -> None:
    """List the sessions with their branches and agents; * marks the branch that a session's id means."""
    with daemon() as link:
        found = sessions_known(link, archived=archived)
    found = [session | {flag: bool(session[flag]) for flag in _FLAGS} for session in found]
    if as_json:
        print_json(found)
    else:
        print_table(
            ("session", "title", "state", "preset", "updated"),
            _lines(found),
            empty="No sessions yet. Make one: pyagentd ask TEXT, or pyagentd new NAME",
        )


def sessions_known(link: DaemonClient, *, archived: bool = False) -> list[dict[str, Any]]:
    """Return all branches and agents, as the operation ``sessions`` has them."""
    answer = link.call("sessions", timeout=LIST_TIMEOUT_S, archived=archived, form="json")
    path = answer.get("path")  # what is too large for a frame comes by path
    found: list[dict[str, Any]] = (
        json.loads(Path(path).read_bytes())["sessions"] if path else answer["sessions"] or []
    )
    return found


def _lines(found: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the columns of every session: its branches, below each its agents."""
    depths: dict[str, int] = {}
    for session in found:
        depth = depths[session["branch"]] = depths.get(session["parent"], -1) + 1
        if session["agent"]:
            name = f"{'  ' * (depth - 1)}└ {session['session_id']}"
        else:
            mark = " *" if session["current"] and sys.stdout.isatty() else ""
            name = f"{session['session_id']}/{session['branch_name']}{mark}"
        state = "archived" if session["archived_at"] else session["state"]
        updated = _local(session["updated"]) if sys.stdout.isatty() else session["updated"]
        yield name, session["title"] or "", state, session["preset"] or "", updated


def _local(time: str) -> str:
    return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--trace", is_flag=True, help="Show the trace: runs, requests, tokens, tools, decisions.")
@click.option("--step", type=click.IntRange(min=1), metavar="N", help="Show only request N of the trace.")
@click.option("--request", is_flag=True, help="With --step: the request exactly as it was sent.")
@json_option
def show(session: str, trace: bool, step: int | None, request: bool, as_json: bool) -> None:
    """Print the conversation of SESSION.

    As text it is the document as you would see it in Emacs; with --json it is every message with its parts.
    """
    if request and step is None:
        raise click.UsageError("--request needs --step N")
    with daemon() as link:
        branch_dir = branch_of(link, session)
        if trace or step is not None:
            from pyagentd.cli.trace import show_trace

            show_trace(link, str(branch_dir), step=step, request=request, as_json=as_json)
            return
        # Opening a branch makes a document anew that is gone.
        needed = as_json or not (branch_dir / "session.md").exists()
        answer = link.call("show", branch=str(branch_dir)) if needed else {}
    if as_json:
        print_json(json.loads(_payload(answer)))
        return
    from pyagentd.store.document.hidden import folded
    from pyagentd.store.document.text import read

    document = read(branch_dir / "session.md")
    # Into a pipe bytes as they are.
    shown = printable(folded(document)) if _on_terminal() else document.body.encode("utf-8", "surrogateescape")
    click.echo(shown)


def _on_terminal() -> bool:
    return sys.stdout.isatty()


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
