"""``pyagentd asks`` and ``answer``: what waits for a human, from anywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.ask import choices, printable, question
from pyagentd.cli.link import branch_of, complete_session, daemon, run_environment, watch
from pyagentd.cli.output import dim, json_option, note, print_json, print_table
from pyagentd.cli.questions import command
from pyagentd.errors import PyagentdError

_DECISIONS = ("allow", "session", "always", "answer", "deny", "abort")
_LISTS = ("choices", "remember", "covers", "commands", "patterns")  # in Lisp an empty list is nil
_DETAIL = 100  # characters


def complete_ask(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Return the ids of open questions; a daemon that does not run has none to tell."""
    from click.shell_completion import CompletionItem

    try:
        with daemon(start=False) as link:
            found = link.call("asks", timeout=2.0)["asks"] or []
    except (PyagentdError, OSError):
        return []
    return [CompletionItem(row["id"], help=_line(row)) for row in found if row["id"].startswith(incomplete)]


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@json_option
def asks(session: str | None, as_json: bool) -> None:
    """List the questions that wait for an answer, of SESSION and its agents or of all sessions.

    Answer one with: pyagentd answer ID allow|session|always|deny
    """
    with daemon() as link:
        wanted = str(branch_of(link, session)) if session and session.startswith((".", "~")) else session
        found = [_normal(row) for row in link.call("asks", session=wanted)["asks"] or []]
    if as_json:
        print_json(found)
    elif sys.stdout.isatty():
        if not found:
            note("No pending approvals.")
        for row in found:
            _show(row)
    else:
        rows = [(row["id"], _session(row), row["tool"] or "", _line(row)) for row in found]
        print_table(("id", "session", "tool", "what"), rows, empty="No pending approvals.")


@click.command()
@click.argument("ask", metavar="ASK-ID", shell_complete=complete_ask)
@click.argument("decision", type=click.Choice(_DECISIONS), required=False)
@click.option("--reason", metavar="TEXT", default="", help="Reason for denying, sent to the model.")
@click.option("--input", "arguments", metavar="JSON", help="Allow it with these arguments instead; - reads stdin.")
@click.option(
    "--answers", metavar="JSON", help='To the model\'s questions: [["Label"], ["words", …], []]; - reads stdin.'
)
@json_option
def answer(
    ask: str, decision: str | None, reason: str, arguments: str | None, answers: str | None, as_json: bool
) -> None:
    """Answer the question ASK-ID (see: pyagentd asks).

    "allow" allows it once; "session" allows from now on what the question says it would remember, in its session and
    all agents of it; "always" in this project for good; "deny" tells the model no, with --reason why; "abort" ends
    the run. When the model asks for more scope, "always" adds it to preset.md.

    Questions of the model's take --answers: a list for each of them, of its options' labels or of other words.
    """
    decision = decision or ("answer" if answers is not None else None)
    if decision is None:
        raise click.UsageError("Missing DECISION, or --answers to the model's questions")
    if (answers is not None) != (decision == "answer"):
        raise click.UsageError("--answers and the decision answer go together")
    if arguments is not None and decision != "allow":
        raise click.UsageError("--input goes with allow only: edited arguments are allowed once")
    text, said = (sys.stdin.read() if given == "-" else given for given in (arguments, answers))
    with daemon() as link:
        env, key = _environment(link, ask)
        answered = link.call(
            "answer", ask=ask, decision=decision, reason=reason, input=text, answers=said, env=env, key=key
        )
    accepted = bool(answered["accepted"])
    if as_json:
        print_json({"accepted": accepted})
    elif not accepted:
        note("somebody else answered first")


def _environment(link: Any, ask: str) -> tuple[dict[str, str], str | None]:
    """Return what a run needs that goes on with this answer after its daemon was restarted."""
    row = next((row for row in link.call("asks")["asks"] or [] if row["id"] == ask), None)
    if row is None:
        return {}, None  # the daemon says what became of it
    try:
        return run_environment(os.environ, watch(link, Path(row["branch"]))["settings"]["backend"])
    except PyagentdError:
        return {}, None


def _normal(row: Mapping[str, Any]) -> dict[str, Any]:
    lists = {name: row.get(name) or [] for name in _LISTS}
    if row.get("kind") == "question":
        lists["questions"] = [
            {**each, "options": each.get("options") or [], "multi_select": bool(each.get("multi_select"))}
            for each in row["questions"]
        ]
    return {**row, "session": _session(row), **lists}


def _session(row: Mapping[str, Any]) -> str:
    """Return the session or agent that asks, from where it is."""
    place = Path(str(row["branch"]))
    return str(row.get("agent") or (place.parent.parent.name if place.parent.name == "branches" else place.name))


def _line(row: Mapping[str, Any]) -> str:
    detail = " ".join(str(row.get("detail") or row.get("action") or "").split())
    task = " ".join(str(row.get("description") or "").split())
    shown = detail if len(detail) <= _DETAIL else f"{detail[: _DETAIL - 1]}…"
    return printable(f"{shown} ({task[:_DETAIL]})" if task else shown)


def _show(row: Mapping[str, Any]) -> None:
    task = f"  {printable(str(row['description']))}" if row.get("description") else ""
    print(f"{row['id']}  {dim(_session(row), sys.stdout)}{task}")
    for line in question(row, "" if row.get("agent") else str(row["branch"])).splitlines():
        print(f"  {line}")
    offered = [each for each in choices(row) if each not in ("edit", "answer")]
    if row.get("kind") == "question":
        print(dim(f"  {printable(command(row))}", sys.stdout))
    print(dim(f"  pyagentd answer {row['id']} {'|'.join(offered)}", sys.stdout) + "\n")
