"""``pyagentd search`` and ``reindex``: full text of all sessions and agents."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import colour, dim, json_option, note, print_json, printable
from pyagentd.errors import BadRequest
from pyagentd.store.conversation import counted
from pyagentd.store.db.projection import parse

REINDEX_TIMEOUT_S = 24 * 3600.0


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
    _check(text)
    with daemon() as link:
        place = str(branch_of(link, session)) if session and session.startswith((".", "~")) else session
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
            totals = link.call("reindex", timeout=REINDEX_TIMEOUT_S)
    if as_json:
        print_json(totals)
    else:
        messages, branches = counted(totals["messages"], "message"), counted(totals["branches"], "branch", "branches")
        click.echo(f"Indexed {messages} in {branches}, {totals['seconds']:.1f} s")


def _check(text: str) -> None:
    """Refuse a query without words as wrong usage, before a daemon is started for it."""
    try:
        parse(text)
    except BadRequest as error:
        raise click.UsageError(str(error)) from error


def _hit_lines(hit: dict[str, Any]) -> str:
    where = hit["session_id"] if hit["agent"] else f"{hit['session_id']}/{hit['branch_name']}"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(hit["created_at"] / 1000))
    who = hit["kind"] if hit["kind"] in ("reasoning", "tool", "title") else hit["role"]
    copies = f"(+{hit['copies']})" if hit["copies"] else ""
    if not sys.stdout.isatty():
        return "\t".join((where, who, when, printable(hit["preview"])))
    head = " ".join(filter(None, (_styled(where, bold=True), who, copies)))
    return f"{head} {dim(when, sys.stdout)}\n  {_highlighted(hit['preview'], hit['matches'])}"


def _highlighted(text: str, matches: Sequence[Sequence[int]]) -> str:
    pieces, position = [], 0
    for start, end in matches:
        pieces += [printable(text[position:start]), _styled(printable(text[start:end]), fg="yellow", bold=True)]
        position = end
    return "".join([*pieces, printable(text[position:])])


def _styled(text: str, **style: Any) -> str:
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
    """Yield what shows how far it is: a bar on a terminal, a line at every tenth otherwise."""
    if quiet:
        yield lambda done, total: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("Indexing", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        said = 0

        def line(done: int, total: int) -> None:
            nonlocal said
            if total and (tenth := 10 * done // total) > said:
                said = tenth
                print(f"{10 * tenth} % of {total} branches", file=sys.stderr, flush=True)

        yield line
