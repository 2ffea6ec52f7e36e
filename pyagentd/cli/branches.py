"""``pyagentd branch``, ``branches`` and ``switch``: the timelines of a session."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from pyagentd.cli.ask import printable
from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, note, print_json, print_table

LONG_S = 600.0  # agents and files may be many


class _Choice(NamedTuple):
    """Where a branch is to begin: as arguments of the operation, and whether before the prompt."""

    where: dict[str, Any]
    exclude: bool


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--at", "message_id", metavar="MESSAGE-ID", help="The prompt at which the branch begins.")
@click.option("--exclude", is_flag=True, help="Leave the prompt out (default: the branch ends with it).")
@click.option("--name", metavar="NAME", help="Name of the branch, after the time (default: branch).")
@click.option("--list", "only_list", is_flag=True, help="List the prompts and their ids; create nothing.")
@json_option
def branch(
    session: str, message_id: str | None, exclude: bool, name: str | None, only_list: bool, as_json: bool
) -> None:
    """Make a branch of SESSION that begins at one of your prompts, and switch to it.

    On a terminal you choose the prompt from a list; --at names it.
    """
    if not message_id and not only_list and not _can_ask():
        raise click.UsageError(
            f"Say with --at at which prompt. `pyagentd branch {session} --list` has their ids, and so has "
            f"`pyagentd show {session} --json`"
        )
    with daemon() as link:
        branch_dir = str(branch_of(link, session))
        points: Sequence[dict[str, Any]] = ()
        if only_list or not message_id:
            points = link.call("branch-points", branch=branch_dir)["points"] or ()
        if only_list:
            _print_points(points, as_json)
            return
        choice = _Choice({"at": message_id}, exclude) if message_id else _ask(points, exclude)
        made = link.call(
            "branch", timeout=LONG_S, branch=branch_dir, name=name, exclude=choice.exclude or None, **choice.where
        )
    if as_json:
        print_json(made)
    else:
        click.echo(f"{made['session_id']}/{made['branch_name']}\t{made['file']}")


@click.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def branches(session: str, as_json: bool) -> None:
    """List the branches of SESSION as a tree; the active one is marked with a star."""
    with daemon() as link:
        found = link.call("branches", branch=str(branch_of(link, session)))["branches"] or []
    if as_json:
        print_json([{**each, "current": bool(each["current"]), "last": bool(each["last"])} for each in found])
        return
    print_table(("branch", "created", "agents"), tree_rows(found))


@click.command()
@click.argument("branch", metavar="SESSION/BRANCH", shell_complete=complete_session)
@json_option
def switch(branch: str, as_json: bool) -> None:
    """Make SESSION/BRANCH the active branch of its session."""
    with daemon() as link:
        active = link.call("switch", branch=str(branch_of(link, branch)))
    if as_json:
        print_json(active)
    else:
        click.echo(f"{active['session_id']}/{active['branch_name']}\t{active['file']}")


def tree_rows(branches: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield the columns of each branch, its name drawn as a leaf of the tree."""
    open_levels: list[bool] = []  # whether more is to come on each level above
    for each in branches:
        depth = each["depth"] or 0
        del open_levels[depth:]
        lead = "".join("│ " if more else "  " for more in open_levels[1:])
        joint = ("└ " if each["last"] else "├ ") if depth else ""
        open_levels.append(not each["last"])
        star = "* " if each["current"] else "  "
        agents = each["agents"] or 0
        yield f"{star}{lead}{joint}{printable(each['name'])}", each["created"] or "", str(agents) if agents else ""


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _print_points(points: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(list(points))
    else:
        print_table(("", "prompt", "message"), [(str(p["number"]), _line(p), p["message_id"] or "") for p in points])


def _ask(points: Sequence[dict[str, Any]], exclude: bool) -> _Choice:
    """Have the user choose a prompt."""
    if not points:
        raise click.ClickException("There is no prompt to branch at. Write and send one first")
    for point in points:
        click.echo(f"{point['number']:>4}  {_line(point)}", err=True)
    wanted = click.prompt("Branch at prompt", type=click.IntRange(1, len(points)), default=len(points), err=True)
    point = points[wanted - 1]
    exclude = exclude or not click.confirm("Keep this prompt in the branch?", default=True, err=True)
    if not exclude and not point["message_id"]:
        note("this prompt was never sent; it stays a draft")
    return _Choice({"position": point["start"]}, exclude)


def _line(point: dict[str, Any]) -> str:
    """Return the beginning of a prompt on one line."""
    first, _, rest = str(point["text"]).partition("\n")
    return printable(first[:80]) + (" …" if rest or len(first) > 80 else "")
