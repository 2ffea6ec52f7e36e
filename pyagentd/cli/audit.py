"""``pyagentd audit``: every decision about what a tool may do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from pyagentd.cli.ask import printable
from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, note, print_json, print_table

_PAGE = 500
_SHOWN = 100  # characters of an action


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The last N decisions.")
@json_option
def audit(session: str | None, limit: int, as_json: bool) -> None:
    """List what was allowed and denied, by which rule or by whom, the latest last.

    Of SESSION with its branches and agents (also when it is deleted, by its id), or of all sessions. With --json `at`
    is in milliseconds since 1970, and `decision` is allow, deny, ask_approved or ask_denied.
    """
    found: list[dict[str, Any]] = []
    problem = None
    with daemon() as link:
        wanted = str(branch_of(link, session)) if session and session.startswith((".", "~")) else session
        more = True
        while more and len(found) < limit:
            page = link.call(
                "audit",
                session=wanted,
                limit=min(_PAGE, limit - len(found)),
                before=found[-1]["id"] if found else None,
            )
            found += page["decisions"] or []
            problem, more = page["problem"], bool(page["more"])
    found.reverse()
    if problem:
        note(f"the latest decisions are not on disk yet: {problem}")
    if as_json:
        print_json(found)
    else:
        headings = ("when", "who", "decision", "by", "action", "reason")
        print_table(headings, map(_columns, found), empty="No decisions are recorded.")


def _columns(row: dict[str, Any]) -> tuple[str, ...]:
    when = datetime.fromtimestamp(row["at"] / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    by = f"{row['rule']} ({row['by']})" if row["by"] else row["rule"]
    columns = (when, row["agent"] or row["session"], row["decision"], by, _line(row["action"]), _line(row["reason"]))
    return tuple(map(printable, columns))


def _line(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
