"""``pyagentd rename``, ``archive``, ``duplicate`` and ``delete``: what becomes of a session."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.branches import LONG_S
from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, note, print_json

_SHOWN = 8  # branches named in a question


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("title")
@json_option
def rename(session: str, title: str, as_json: bool) -> None:
    """Give SESSION another TITLE; its id stays."""
    with daemon() as link:
        renamed = link.call("rename", branch=str(branch_of(link, session)), title=title)
    _say_more(renamed)
    if as_json:
        print_json(renamed)
    else:
        click.echo(f"{renamed['session_id']}\t{renamed['title']}")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--undo", is_flag=True, help="Undo archiving.")
@json_option
def archive(session: str, undo: bool, as_json: bool) -> None:
    """Leave SESSION out of lists; it stays where it is and can be used as before."""
    with daemon() as link:
        archived = link.call("archive", branch=str(branch_of(link, session)), undo=undo or None)
    if as_json:
        print_json(archived)
    else:
        click.echo(archived["session_id"])


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--name", metavar="NAME", help="Title of the copy (default: the title, and copy).")
@json_option
def duplicate(session: str, name: str | None, as_json: bool) -> None:
    """Copy SESSION with its branches, agents and files; the copy has an id of its own."""
    with daemon() as link:
        made = link.call("duplicate", timeout=LONG_S, branch=str(branch_of(link, session)), name=name)
    _say_more(made)
    if as_json:
        print_json(made)
    else:
        click.echo(f"{made['session_id']}\t{made['file']}")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(session: str, yes: bool, as_json: bool) -> None:
    """Move SESSION to the trash; SESSION/BRANCH only that branch, and an agent's id only the agent."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Deleting asks first, and there is no terminal to ask on. Use --yes")
    with daemon() as link:
        branch_dir = branch_of(link, session)
        what = _meant(session, branch_dir)
        if not yes:
            found = link.call("branches", branch=str(branch_dir))["branches"] or []
            click.confirm(f"Move {_lost(what, branch_dir, found)} to the trash?", abort=True, err=True)
        trashed = link.call("delete", timeout=LONG_S, branch=str(branch_dir), what=what)["trashed"]
    if as_json:
        print_json({"trashed": trashed})
    else:
        click.echo("\n".join(trashed))


def _say_more(told: dict[str, Any]) -> None:
    """Tell beside the output what there is to say of an answer, which is no part of it."""
    if text := told.pop("note", None):
        note(text)


def _meant(session: str, branch_dir: Path) -> str:
    """Return what of a session the user named: an agent, one branch, or all of it."""
    from pyagentd.store.paths import AGENTS_DIR, BRANCHES_DIR

    if branch_dir.parent.name == AGENTS_DIR:
        return "agent"
    if session.startswith(("/", "~", ".")):
        place = Path(session).expanduser().resolve()
        return "branch" if BRANCHES_DIR in (place.parent.name, place.parent.parent.name) else "session"
    return "branch" if "/" in session else "session"


def _lost(what: str, branch_dir: Path, branches: list[dict[str, Any]]) -> str:
    """Say what would be gone."""
    if what == "agent":
        return f"the agent {branch_dir.name}"
    if what == "branch":
        agents = sum(each["agents"] or 0 for each in branches if each["branch_dir"] == str(branch_dir))
        return f"the branch {branch_dir.name}{_with_agents(agents)}"
    names = [each["name"] for each in branches]
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    agents = sum(each["agents"] or 0 for each in branches)
    return f"the session {branch_dir.parent.parent.name} ({shown}){_with_agents(agents)}"


def _with_agents(count: int) -> str:
    return f" with {count} agent{'s' if count > 1 else ''}" if count else ""
