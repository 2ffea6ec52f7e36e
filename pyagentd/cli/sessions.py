"""``pyagentd new``, ``sessions``, ``show`` and ``abort``: sessions as the daemon knows them."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import (
    json_option,
    note,
    preset_option,
    print_json,
    print_reply,
    print_table,
    printable,
    workplace_option,
)
from pyagentd.cli.usage import show_trace
from pyagentd.errors import BadRequest
from pyagentd.store.document.hidden import fold_hidden
from pyagentd.store.document.text import read
from pyagentd.store.paths import AGENTS_DIR, BRANCHES_DIR
from pyagentd.wire.client import DaemonClient

LIST_TIMEOUT_S = 120.0

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
    print_reply(
        {key: created[key] for key in _CREATED},
        f"{created['session_id']}\t{Path(created['branch_dir']) / 'session.md'}",
        as_json=as_json,
    )


@click.command()
@click.option("--all", "archived", is_flag=True, help="Include archived sessions.")
@json_option
def sessions(archived: bool, as_json: bool) -> None:
    """List the sessions with their branches and agents. * marks the active branch."""
    with daemon() as link:
        found = sessions_known(link, archived=archived)
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
    found: list[dict[str, Any]] = json.loads(Path(path).read_bytes())["sessions"] if path else answer["sessions"]
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

    Prints the document as in Emacs; with --json, every message with its parts.
    """
    if request and step is None:
        raise click.UsageError("--request needs --step N")
    with daemon() as link:
        branch_dir = branch_of(link, session)
        if trace or step is not None:
            show_trace(link, str(branch_dir), step=step, request=request, as_json=as_json)
            return
        # Opening a branch makes a document anew that is gone.
        needed = as_json or not (branch_dir / "session.md").exists()
        answer = link.call("show", branch=str(branch_dir)) if needed else {}
    if as_json:
        print_json(json.loads(_payload(answer)))
        return

    document = read(branch_dir / "session.md")
    # Into a pipe bytes as they are.
    shown = printable(fold_hidden(document)) if _on_terminal() else document.body.encode("utf-8", "surrogateescape")
    click.echo(shown)


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _payload(answer: dict[str, Any]) -> str:
    # What is too large for a frame comes by path.
    return answer.get("json") or Path(answer["path"]).read_text(encoding="utf-8")


@click.command()
@click.argument("session", shell_complete=complete_session)
def abort(session: str) -> None:
    """Stop the run of SESSION. The answer so far is kept."""
    with daemon(start=False) as link:
        if not link.call("abort", branch=str(branch_of(link, session)))["aborted"]:
            note(f"{session} has no run to abort")


# ``pyagentd branch``, ``branches`` and ``switch``: the timelines of a session.

LONG_S = 600.0  # agents and files may be many


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--at", "message_id", metavar="MESSAGE-ID", help="The prompt at which the branch begins.")
@click.option("--exclude", is_flag=True, help="Leave out the prompt (default: include it).")
@click.option("--name", metavar="NAME", help="Name of the branch, added to the time (default: branch).")
@click.option("--list", "only_list", is_flag=True, help="List the prompts and their ids; create nothing.")
@json_option
def branch(
    session: str, message_id: str | None, exclude: bool, name: str | None, only_list: bool, as_json: bool
) -> None:
    """Create a branch of SESSION at one of your prompts, and switch to it.

    On a terminal you choose the prompt from a list; in scripts use --at.
    """
    if not message_id and not only_list and not can_ask():
        raise click.UsageError(
            f"Name the prompt with --at. `pyagentd branch {session} --list` has their ids, and so has "
            f"`pyagentd show {session} --json`"
        )
    with daemon() as link:
        branch_dir = str(branch_of(link, session))
        points: Sequence[dict[str, Any]] = ()
        if only_list or not message_id:
            points = link.call("branch-points", branch=branch_dir)["points"]
        if only_list:
            _print_points(points, as_json)
            return
        where: dict[str, Any] = {"at": message_id}
        if not message_id:
            point = choose_prompt(points, "branch at")
            exclude = exclude or not click.confirm("Keep this prompt in the branch?", default=True, err=True)
            if not exclude and not point["message_id"]:
                note("this prompt was never sent; it stays a draft")
            where = {"position": point["start"]}
        made = link.call("branch", timeout=LONG_S, branch=branch_dir, name=name, exclude=exclude or None, **where)
    print_reply(made, f"{made['session_id']}/{made['branch_name']}\t{made['file']}", as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def branches(session: str, as_json: bool) -> None:
    """List the branches of SESSION as a tree; the active one is marked with a star."""
    with daemon() as link:
        found = link.call("branches", branch=str(branch_of(link, session)))["branches"]
    if as_json:
        print_json(found)
        return
    print_table(("branch", "created", "agents"), tree_rows(found))


@click.command()
@click.argument("branch", metavar="SESSION/BRANCH", shell_complete=complete_session)
@json_option
def switch(branch: str, as_json: bool) -> None:
    """Make SESSION/BRANCH the active branch of its session."""
    with daemon() as link:
        active = link.call("switch", branch=str(branch_of(link, branch)))
    print_reply(active, f"{active['session_id']}/{active['branch_name']}\t{active['file']}", as_json=as_json)


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


def _print_points(points: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(list(points))
    else:
        print_table(
            ("", "prompt", "message"),
            [(str(p["number"]), prompt_line(p["text"]), p["message_id"] or "") for p in points],
        )


def can_ask() -> bool:
    """Return whether somebody at a terminal can choose."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def choose_prompt(prompts: Sequence[dict[str, Any]], what: str) -> dict[str, Any]:
    """Have the user choose one of the prompts of a session, to ``what`` it, such as "branch at"."""
    if not prompts:
        raise click.ClickException(f"There is no prompt to {what}. Write and send one first")
    for number, each in enumerate(prompts, 1):
        click.echo(f"{number:>4}  {prompt_line(each['text'])}", err=True)
    last = len(prompts)
    wanted = click.prompt(f"{what.capitalize()} prompt", type=click.IntRange(1, last), default=last, err=True)
    return prompts[wanted - 1]


def prompt_line(text: str) -> str:
    """Return the beginning of a prompt on one line."""
    line = " ".join(text.split())
    return printable(line[:80]) + (" …" if len(line) > 80 else "")


# ``pyagentd rename``, ``archive``, ``duplicate`` and ``delete``: what becomes of a session.

_SHOWN = 8  # branches named in a question


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("title")
@json_option
def rename(session: str, title: str, as_json: bool) -> None:
    """Change the title of SESSION. Its id stays."""
    with daemon() as link:
        renamed = link.call("rename", branch=str(branch_of(link, session)), title=title)
    _say_more(renamed)
    print_reply(renamed, f"{renamed['session_id']}\t{renamed['title']}", as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--undo", is_flag=True, help="Undo archiving.")
@json_option
def archive(session: str, undo: bool, as_json: bool) -> None:
    """Hide SESSION from lists. It stays usable."""
    with daemon() as link:
        archived = link.call("archive", branch=str(branch_of(link, session)), undo=undo or None)
    print_reply(archived, archived["session_id"], as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--name", metavar="NAME", help="Title of the copy (default: the title, and copy).")
@json_option
def duplicate(session: str, name: str | None, as_json: bool) -> None:
    """Copy SESSION with its branches, agents and files, under a new id."""
    with daemon() as link:
        made = link.call("duplicate", timeout=LONG_S, branch=str(branch_of(link, session)), name=name)
    _say_more(made)
    print_reply(made, f"{made['session_id']}\t{made['file']}", as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(session: str, yes: bool, as_json: bool) -> None:
    """Move SESSION, one branch (SESSION/BRANCH) or one agent to the trash."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Deleting asks first, and there is no terminal to ask on. Use --yes")
    with daemon() as link:
        branch_dir = branch_of(link, session)
        what = _meant(session, branch_dir)
        if not yes:
            found = link.call("branches", branch=str(branch_dir))["branches"]
            click.confirm(f"Move {_lost(what, branch_dir, found)} to the trash?", abort=True, err=True)
        trashed = link.call("delete", timeout=LONG_S, branch=str(branch_dir), what=what)["trashed"]
    print_reply({"trashed": trashed}, "\n".join(trashed), as_json=as_json)


def _say_more(told: dict[str, Any]) -> None:
    """Tell beside the output what there is to say of an answer, which is no part of it."""
    if text := told.pop("note", None):
        note(text)


def _meant(session: str, branch_dir: Path) -> str:
    """Return what of a session the user named: an agent, one branch, or all of it."""
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


# ``pyagentd export`` and ``pyagentd import``: conversations as files.

_FORMATS = ("md", "json", "jsonl", "html", "acp")
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

    md: the document with its roles, for gptel and `pyagentd import`. json, jsonl: all messages with their parts.
    html: one page for a browser, with the session's agents. acp: JSON lines of the Agent Client Protocol.
    """
    place = None if output is None else output.absolute()
    if place is not None and place.exists() and not force:
        raise BadRequest(f"{output} exists", hint="Choose another name, or give --force")
    wanted = format_ or _format_of(place)
    with daemon() as link:
        branch = str(branch_of(link, session))
        answer = link.call("export", timeout=_PATIENCE_S, branch=branch, format=wanted, file=place and str(place))
    for line in answer["notes"]:
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
    """Create a session from FILE, a conversation of another program.

    Reads chats that gptel saved, sessions of Claude Code (~/.claude/projects/*/*.jsonl), exports of opencode (.json),
    transcripts of agent-shell (.md) and JSON lines of the Agent Client Protocol. FILE is not changed.
    """
    with daemon() as link:
        options = {"name": name, "preset": preset}
        made = link.call(
            "import", timeout=_PATIENCE_S, file=str(file.absolute()), root=str(root.resolve()), **options
        )
    notes = made["notes"]
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
    # What is too large for a frame comes by path; bytes that are not text come as they are.
    if (text := answer.get("text")) is not None:
        return str(text).encode("utf-8", "surrogateescape")
    return Path(answer["path"]).read_bytes()
