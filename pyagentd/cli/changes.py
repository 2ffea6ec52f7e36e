"""``pyagentd changes`` and ``restore``: what agents did to files, and putting it back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.branches import LONG_S
from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, note, print_json, printable, shown

Row = dict[str, Any]

_WORDS = {
    "restore": "changed",
    "create": "deleted",
    "delete": "created",
    "conflict": "CONFLICT",
    "unkept": "NOT KEPT",
}
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--at", "message", metavar="MESSAGE-ID", help="Since that message of yours; `last` is the last one.")
@click.option("--diff", is_flag=True, help="Show how restoring would change each file.")
@json_option
def changes(session: str, message: str | None, diff: bool, as_json: bool) -> None:
    """List the files that the agents of SESSION changed, since its beginning or since a message of yours.

    Kept are files that Write and Edit touch, and the whole workspace around a command while it has at most 20,000
    files. What .gitignore leaves out, .git, and what may hold secrets is not.
    """
    with daemon() as link:
        told = link.call("changes", timeout=LONG_S, branch=str(branch_of(link, session)), message=message)
    _show(told["files"] or [], diff=diff, as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--to",
    "message",
    metavar="MESSAGE-ID",
    help="Files as they were when you sent this message; `last` is the last one.",
)
@click.option("--undo", "undone", metavar="ID", help="Undo the restore with this id (printed by it).")
@click.option("--preview", is_flag=True, help="Only show what would change.")
@click.option(
    "--conflicts",
    type=click.Choice(["keep", "copy", "overwrite"]),
    default="keep",
    help="What to do with files that somebody else changed since (default: keep; copy saves the old text beside).",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@json_option
def restore(
    session: str,
    message: str | None,
    undone: str | None,
    preview: bool,
    conflicts: str,
    yes: bool,
    paths: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Put files back as they were before the agents of SESSION changed them; PATHS are all unless you name some.

    The conversation stays as it is; `rewind --files` takes back both. Restoring can be taken back with --undo.
    """
    if (message is None) == (undone is None):
        raise click.UsageError("Say what to go back to: --to MESSAGE-ID, or --undo ID")
    only = [str(path.absolute()) for path in paths] or None
    with daemon() as link:
        branch = str(branch_of(link, session))
        if undone is not None:
            done = link.call("undo-restore", timeout=LONG_S, branch=branch, id=undone)
        else:
            found = link.call("changes", timeout=LONG_S, branch=branch, message=message, paths=only)["files"] or []
            if preview:
                _show(found, diff=True, as_json=as_json)
                return
            if found and not yes:
                _confirm(found)
            done = link.call(
                "restore", timeout=LONG_S, branch=branch, message=message, paths=only, conflicts=conflicts
            )
    if as_json:
        print_json({**done, **{name: list(done[name] or ()) for name in ("restored", "kept", "copies")}})
        return
    for path in done["restored"] or []:
        print(shown(path, sys.stdout))
    for row in done["kept"] or []:
        note(f"kept {row['path']}: {row['reason']}")
    for path in done["copies"] or []:
        note(f"the old version is in {path}")
    if done["id"]:
        note(f"pyagentd restore {session} --undo {done['id']} takes this back")


def _confirm(found: list[Row]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("Restoring asks first, and there is no terminal to ask on. Use --yes or --preview")
    _show(found, diff=False, as_json=False)
    click.confirm("Put them back?", abort=True, err=True)


def _show(files: list[Row], *, diff: bool, as_json: bool) -> None:
    if as_json:
        print_json({"files": files})
        return
    for row in files:
        reason = f"  ({row['reason']})" if row["reason"] else ""
        print(f"{_WORDS[row['change']]}\t{shown(row['path'], sys.stdout)}{reason}")
        if diff and row["diff"] is None:
            note(f"{row['path']}: the difference is too long; name the file")
        elif diff and row["diff"]:
            for line in row["diff"].splitlines():
                click.secho(printable(line), fg=_COLOURS.get(line[:1]))
    if not files:
        note("no file is another than it was")
