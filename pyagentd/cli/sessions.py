"""Commands on sessions: create, list, show, search, branch, rename, delete, export and import them."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import (
    branch_of,
    complete_session,
    daemon,
    json_text,
    rows_of,
    session_filter,
    session_link,
)
from pyagentd.cli.output import (
    colour,
    dim,
    json_option,
    local_time,
    note,
    preset_option,
    print_json,
    print_list,
    print_reply,
    print_view,
    workplace_option,
)
from pyagentd.cli.usage import show_trace
from pyagentd.errors import BadRequest
from pyagentd.store.db.projection import parse
from pyagentd.store.document.hidden import fold_hidden
from pyagentd.store.document.text import read
from pyagentd.store.paths import AGENTS_DIR, BRANCHES_DIR
from pyagentd.wire.client import DaemonClient
from pyagentd.words import printable, quantity

_CREATED = ("session_id", "session_dir", "branch_dir")


@click.command()
@click.argument("name")
@preset_option
@workplace_option
@json_option
def new(name: str, preset: str | None, root: Path, as_json: bool) -> None:
    """Create a session called NAME; with an empty NAME it is titled after its first answer."""
    with daemon() as link:
        created = link.call("create-session", name=name, titled=True, preset=preset, root=str(root.resolve()))
    print_reply(
        {key: created[key] for key in _CREATED},
        f"{created['session_id']}\t{Path(created['branch_dir']) / 'session.md'}",
        as_json=as_json,
    )
    for line in () if as_json else created["notes"]:
        note(line)


@click.command()
@click.option("--all", "archived", is_flag=True, help="Include archived sessions.")
@json_option
def sessions(archived: bool, as_json: bool) -> None:
    """List the sessions with their branches and agents. * marks the active branch."""
    with daemon() as link:
        found = sessions_known(link, archived=archived)
    print_list(
        found,
        ("session", "title", "state", "preset", "updated"),
        _lines(found),
        as_json=as_json,
        empty="No sessions yet. Make one: pyagentd ask TEXT, or pyagentd new NAME",
    )


def sessions_known(link: DaemonClient, *, archived: bool = False) -> list[dict[str, Any]]:
    """Return all branches and agents from the operation ``sessions``."""
    return rows_of(link.call("sessions", archived=archived), "sessions")


def _lines(found: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the columns of every session: its branches, each followed by its agents."""
    depths: dict[str, int] = {}
    for session in found:
        depth = depths[session["branch"]] = depths.get(session["parent"], -1) + 1
        if session["agent"]:
            name = f"{'  ' * (depth - 1)}└ {session['session_id']}"
        else:
            mark = " *" if session["current"] and sys.stdout.isatty() else ""
            name = f"{session['session_id']}/{session['branch_name']}{mark}"
        state = "archived" if session["archived_at"] else session["state"]
        updated = session["updated"]
        if sys.stdout.isatty():
            updated = datetime.fromisoformat(updated).astimezone().strftime("%Y-%m-%d %H:%M")
        yield name, session["title"] or "", state, session["preset"] or "", updated


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
        # Opening a branch restores a document that is missing or empty.
        needed = as_json or not read(branch_dir / "session.md").body.strip()
        answer = link.call("show", branch=str(branch_dir)) if needed else {}
    if as_json:
        print_json(json.loads(json_text(answer)))
        return

    document = read(branch_dir / "session.md")
    # A pipe gets the bytes unchanged.
    shown = (
        printable(fold_hidden(document)) if sys.stdout.isatty() else document.body.encode("utf-8", "surrogateescape")
    )
    click.echo(shown)


@click.command()
@click.argument("session", shell_complete=complete_session)
def abort(session: str) -> None:
    """Stop the run of SESSION. The answer so far is kept."""
    with session_link(session, start=False) as (link, branch):
        if not link.call("abort", branch=branch)["aborted"]:
            note(f"{session} has no run to abort")


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
    with session_link(session) as (link, branch_dir):
        points: Sequence[dict[str, Any]] = ()
        if only_list or not message_id:
            points = link.call("branch-points", branch=branch_dir)["points"]
        if only_list:
            rows = [(str(p["number"]), prompt_line(p["text"]), p["message_id"] or "") for p in points]
            print_list(points, ("", "prompt", "message"), rows, as_json=as_json, empty="No prompts.")
            return
        where: dict[str, Any] = {"at": message_id}
        if not message_id:
            point = choose_prompt(points, "branch at")
            exclude = exclude or not click.confirm("Keep this prompt in the branch?", default=True, err=True)
            if not exclude and not point["message_id"]:
                note("this prompt was never sent; it stays a draft")
            where = {"position": point["start"]}
        made = link.call("branch", branch=branch_dir, name=name, exclude=exclude, **where)
    print_reply(made, f"{made['session_id']}/{made['branch_name']}\t{made['file']}", as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def branches(session: str, as_json: bool) -> None:
    """List the branches of SESSION as a tree; the active one is marked with a star."""
    with session_link(session) as (link, branch):
        if as_json:
            print_json(link.call("branches", branch=branch)["branches"])
        else:
            print_view(link.call("view", name="branches", arguments={"branch": branch}))


@click.command()
@click.argument("branch", metavar="SESSION/BRANCH", shell_complete=complete_session)
@json_option
def switch(branch: str, as_json: bool) -> None:
    """Make SESSION/BRANCH the active branch of its session."""
    with session_link(branch) as (link, branch_dir):
        active = link.call("switch", branch=branch_dir)
    print_reply(active, f"{active['session_id']}/{active['branch_name']}\t{active['file']}", as_json=as_json)


def can_ask() -> bool:
    """Return whether a user at a terminal can choose."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def choose_prompt(prompts: Sequence[dict[str, Any]], what: str) -> dict[str, Any]:
    """Ask the user to choose a prompt of a session; ``what`` says what for, such as "branch at"."""
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


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("title")
@json_option
def rename(session: str, title: str, as_json: bool) -> None:
    """Change the title of SESSION. Its id stays."""
    with session_link(session) as (link, branch):
        renamed = link.call("rename", branch=branch, title=title)
    _say_more(renamed)
    print_reply(renamed, f"{renamed['session_id']}\t{renamed['title']}", as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--undo", is_flag=True, help="Undo archiving.")
@json_option
def archive(session: str, undo: bool, as_json: bool) -> None:
    """Hide SESSION from lists. It stays usable."""
    with session_link(session) as (link, branch):
        archived = link.call("archive", branch=branch, undo=undo)
    print_reply(archived, archived["session_id"], as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--name", metavar="NAME", help="Title of the copy (default: the title, and copy).")
@json_option
def duplicate(session: str, name: str | None, as_json: bool) -> None:
    """Copy SESSION with its branches, agents and files, under a new id."""
    with session_link(session) as (link, branch):
        made = link.call("duplicate", branch=branch, name=name)
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
            lost = link.call("deletions", branch=str(branch_dir), what=what)["deletions"][0]["words"]
            click.confirm(f"Move {lost} to the trash?", abort=True, err=True)
        trashed = link.call("delete", branch=str(branch_dir), what=what)["trashed"]
    print_reply({"trashed": trashed}, "\n".join(trashed), as_json=as_json)


def _say_more(reply: dict[str, Any]) -> None:
    """Remove the note of a reply and print it on stderr."""
    if text := reply.pop("note", None):
        note(text)


def _meant(session: str, branch_dir: Path) -> str:
    """Return what the user named: "agent", "branch" or "session"."""
    if branch_dir.parent.name == AGENTS_DIR:
        return "agent"
    if session.startswith(("/", "~", ".")):
        place = Path(os.path.expanduser(session)).resolve()  # noqa: PTH111 - Path raises
        return "branch" if BRANCHES_DIR in (place.parent.name, place.parent.parent.name) else "session"
    return "branch" if "/" in session else "session"


_FORMATS = ("md", "json", "jsonl", "html", "acp")


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
    suffix = place.suffix.lower().lstrip(".") if place is not None else ""
    wanted = format_ or {"htm": "html"}.get(suffix, suffix if suffix in _FORMATS else "md")
    with session_link(session) as (link, branch):
        answer = link.call("export", branch=branch, format=wanted, file=place and str(place))
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
        made = link.call("import", file=str(file.absolute()), root=str(root.resolve()), name=name, preset=preset)
    notes = made["notes"]
    if as_json:
        print_json({**{key: made[key] for key in _CREATED}, "notes": notes})
        return
    for line in notes:
        note(line)
    click.echo(f"{made['session_id']}\t{made['file']}")


def _content(answer: dict[str, Any]) -> bytes:
    # A reply that is too large for a frame has a path; bytes that are not UTF-8 are kept.
    if (text := answer.get("text")) is not None:
        return str(text).encode("utf-8", "surrogateescape")
    return Path(answer["path"]).read_bytes()


_REINDEX_S = 24 * 3600.0


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Print at most so many messages."
)
@click.option("--session", metavar="SESSION", shell_complete=complete_session, help="Search only there.")
@click.option("--all", "everything", is_flag=True, help="Include archived sessions, and text that was removed.")
@json_option
def search(query: tuple[str, ...], limit: int, session: str | None, everything: bool, as_json: bool) -> None:
    """Search all sessions and agents for QUERY.

    All words must match; the last may be the beginning of a word. "…" is a phrase; -WORD (after --) excludes.
    """
    text = " ".join(query)
    try:
        parse(text)  # report wrong usage before starting a daemon
    except BadRequest as error:
        raise click.UsageError(str(error)) from error
    with daemon() as link:
        place = session_filter(link, session)
        found = link.call("search", query=text, limit=limit, session=place, archived=everything, hidden=everything)
    hits = found["hits"]
    if as_json:
        print_json(found)
        return
    for hit in hits:
        click.echo(_hit_lines(hit))
    for remark in _remarks(found, hits):
        note(remark)


@click.command()
@json_option
def reindex(as_json: bool) -> None:
    """Rebuild the search index from the sessions' files."""
    with daemon() as link, _progress(quiet=as_json) as show:

        def on_event(event: Any) -> None:
            if event.kind == "progress":
                show(event.args[0]["done"], event.args[0]["total"])

        with link.watching(on_event):
            totals = link.call("reindex", timeout=_REINDEX_S)
    if as_json:
        print_json(totals)
    else:
        messages = quantity(totals["messages"], "message")
        branches = quantity(totals["branches"], "branch", "branches")
        click.echo(f"Indexed {messages} in {branches}, {totals['seconds']:.1f} s")


def _hit_lines(hit: dict[str, Any]) -> str:
    where = hit["session_id"] if hit["agent"] else f"{hit['session_id']}/{hit['branch_name']}"
    when = local_time(hit["created_at"])
    who = hit["kind"] if hit["kind"] in ("reasoning", "tool", "title") else hit["role"]
    copies = f"(+{hit['copies']})" if hit["copies"] else ""
    if not sys.stdout.isatty():
        return "\t".join((where, who, when, printable(hit["preview"])))
    head = " ".join(filter(None, (_style(where, bold=True), who, copies)))
    return f"{head} {dim(when, sys.stdout)}\n  {_highlight(hit['preview'], hit['matches'])}"


def _highlight(text: str, matches: Sequence[Sequence[int]]) -> str:
    pieces, position = [], 0
    for start, end in matches:
        pieces += [printable(text[position:start]), _style(printable(text[start:end]), fg="yellow", bold=True)]
        position = end
    return "".join([*pieces, printable(text[position:])])


def _style(text: str, **style: Any) -> str:
    return click.style(text, **style) if colour(sys.stdout) else text


def _remarks(found: dict[str, Any], hits: list[dict[str, Any]]) -> Iterator[str]:
    if found["problem"]:
        yield f"the index is not up to date: {found['problem']}"
    elif found["indexing"]:
        yield "more is being indexed; search again in a moment"
    if not hits:
        yield "nothing found"
    elif found["more"]:
        yield f"there are more than {len(hits)}; --limit shows them"


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the progress: a bar on a terminal, else a line at every tenth."""
    if quiet:
        yield lambda done, total: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("Indexing", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        last_tenth = 0

        def line(done: int, total: int) -> None:
            nonlocal last_tenth
            if total and (tenth := 10 * done // total) > last_tenth:
                last_tenth = tenth
                print(f"{10 * tenth} % of {total} branches", file=sys.stderr, flush=True)

        yield line
