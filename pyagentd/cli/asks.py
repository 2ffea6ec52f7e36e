"""``pyagentd asks``, ``answer``, ``grants``, ``scope``, ``audit``: approvals, questions, grants and decisions."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from pyagentd.cli.follow import choices, command, printable, question
from pyagentd.cli.link import (
    branch_of,
    complete_session,
    daemon,
    run_environment,
    session_filter,
    session_link,
    watch,
)
from pyagentd.cli.output import (
    dim,
    json_option,
    local_time,
    note,
    print_json,
    print_list,
    print_reply,
    print_view,
)
from pyagentd.errors import PyagentdError
from pyagentd.events import one_line

_DECISIONS = ("allow", "session", "always", "answer", "deny", "abort")
_LISTS = ("choices", "remember", "covers", "commands", "patterns")  # optional keys of a question


def complete_ask(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Return the ids of open questions; none if no daemon runs."""
    try:
        with daemon(start=False) as link:
            found = link.call("asks", timeout=2.0)["asks"]
    except (PyagentdError, OSError):
        return []
    return [CompletionItem(row["id"], help=row["what"]) for row in found if row["id"].startswith(incomplete)]


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@json_option
def asks(session: str | None, as_json: bool) -> None:
    """List pending approvals and questions, of SESSION and its agents or of all sessions.

    Answer one with: pyagentd answer ID allow|session|always|deny
    """
    with daemon() as link:
        pending = link.call("asks", session=session_filter(link, session))["asks"]
    found = [{**{name: [] for name in _LISTS}, **row, "session": _session(row)} for row in pending]
    if as_json or not sys.stdout.isatty():
        rows = [(row["id"], row["session"], row.get("tool") or "", row["what"]) for row in found]
        print_list(found, ("id", "session", "tool", "what"), rows, as_json=as_json, empty="No pending approvals.")
        return
    if not found:
        note("No pending approvals.")
    for row in found:
        _show(row)


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

    "allow" allows it once. "session" grants what the question offers to remember, for the session and its agents;
    "always" grants it for the project, permanently. "deny" refuses, with --reason for the model; "abort" ends the
    run. When the model asks for more scope, "always" adds it to preset.md.

    For the model's own questions use --answers: one list for each question, with labels of options or other text.
    """
    decision = decision or ("answer" if answers is not None else None)
    if decision is None:
        raise click.UsageError("Missing DECISION, or --answers to the model's questions")
    if (answers is not None) != (decision == "answer"):
        raise click.UsageError("--answers and the decision answer go together")
    if arguments is not None and decision != "allow":
        raise click.UsageError("--input goes with allow only: edited arguments are allowed once")
    text, replies = (sys.stdin.read() if given == "-" else given for given in (arguments, answers))
    with daemon(human=True) as link:
        env = _environment(link, ask)
        answered = link.call(
            "answer", ask=ask, decision=decision, reason=reason, input=text, answers=replies, env=env
        )
    accepted = answered["accepted"]
    if as_json:
        print_json({"accepted": accepted})
    elif not accepted:
        note("somebody else answered first")


def _environment(link: Any, ask: str) -> dict[str, str]:
    """Return the environment for a run that this answer resumes after a restart of the daemon."""
    row = next((row for row in link.call("asks")["asks"] if row["id"] == ask), None)
    if row is None:
        return {}  # the daemon's reply to the answer says why
    try:
        return run_environment(os.environ, watch(link, Path(row["branch"]))["settings"]["backend"])
    except PyagentdError:
        return {}


def _session(row: Mapping[str, Any]) -> str:
    """Return the id of the session or agent that asks."""
    place = Path(str(row["branch"]))
    return str(row.get("agent") or (place.parent.parent.name if place.parent.name == "branches" else place.name))


def _show(row: Mapping[str, Any]) -> None:
    task = f"  {printable(str(row['description']))}" if row.get("description") else ""
    print(f"{row['id']}  {dim(_session(row), sys.stdout)}{task}")
    for line in question(row, "" if row.get("agent") else str(row["branch"])).splitlines():
        print(f"  {line}")
    offered = [each for each in choices(row) if each not in ("edit", "answer")]
    if row.get("kind") == "question":
        print(dim(f"  {printable(command(row))}", sys.stdout))
    print(dim(f"  pyagentd answer {row['id']} {'|'.join(offered)}", sys.stdout) + "\n")


def _complete_grant(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    # Click has not assigned the arguments before an option that still lacks its value.
    session = context.params.get("session") or next(iter(context.args), "")
    try:
        with daemon(start=False) as link:
            found = link.call("grants", branch=str(branch_of(link, session)), timeout=2.0)["grants"]
    except (PyagentdError, OSError):
        return []
    return [row["action"] for row in found if row["action"].startswith(incomplete)]


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--revoke", metavar="REGEX", shell_complete=_complete_grant, help="Revoke this grant, as listed.")
@json_option
def grants(session: str, revoke: str | None, as_json: bool) -> None:
    """List or revoke what you allowed for SESSION and for its project.

    A grant is a regular expression for actions, as the question showed it.
    """
    with session_link(session) as (link, branch):
        revoked = link.call("revoke", branch=branch, action=revoke)["revoked"] if revoke is not None else 0
        if not as_json and revoke is None:
            print_view(link.call("view", name="grants", arguments={"branch": branch}))
            return
        answer = link.call("grants", branch=branch)
    found = answer["grants"]
    if as_json:
        reply = {"session": answer["session"], "root": answer["root"], "grants": found}
        print_json(reply if revoke is None else {**reply, "revoked": revoked})
    else:
        click.echo(f"revoked {revoked}")


@click.group()
def scope() -> None:
    """Show what a session may read, write and run."""


@scope.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("kind", metavar="read|write|command", type=click.Choice(("read", "write", "command")))
@click.argument("resource")
@json_option
def check(session: str, kind: str, resource: str, as_json: bool) -> None:
    """Print whether SESSION may read or write the path RESOURCE, or run the command RESOURCE, and why.

    A path is relative to the session's project. Nothing is read, written or run; use it to try out changes to
    preset.md.
    """
    with session_link(session) as (link, branch):
        reply = link.call("scope-check", branch=branch, kind=kind, resource=resource)
    print_reply(
        {"decision": reply["decision"], "reason": reply["reason"]},
        f"{reply['decision']}\t{printable(reply['reason'])}",
        as_json=as_json,
    )


_PAGE = 500
_SHOWN = 100  # shown characters of an action


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The last N decisions.")
@json_option
def audit(session: str | None, limit: int, as_json: bool) -> None:
    """List decisions about tool calls: allowed or denied, by which rule or by whom. The latest is last.

    Lists those of SESSION with its branches and agents, or of all sessions. Name a deleted session by its id. With
    --json, `at` is in milliseconds since 1970, and `decision` is allow, deny, ask_approved or ask_denied.
    """
    found: list[dict[str, Any]] = []
    problem = None
    with daemon() as link:
        wanted, more = session_filter(link, session), True
        while more and len(found) < limit:
            page = link.call(
                "audit",
                session=wanted,
                limit=min(_PAGE, limit - len(found)),
                before=found[-1]["id"] if found else None,
            )
            found += page["decisions"]
            problem, more = page["problem"], page["more"]
    found.reverse()
    if problem:
        note(f"the latest decisions are not on disk yet: {problem}")
    headings = ("when", "who", "decision", "by", "action", "reason")
    rows = map(_audit_columns, found)
    print_list(found, headings, rows, as_json=as_json, empty="No decisions are recorded.")


def _audit_columns(row: dict[str, Any]) -> tuple[str, ...]:
    when = local_time(row["at"], "%Y-%m-%d %H:%M:%S")
    by = f"{row['rule']} ({row['by']})" if row["by"] else row["rule"]
    texts = (one_line(row["action"], _SHOWN), one_line(row["reason"], _SHOWN))
    return tuple(map(printable, (when, row["agent"] or row["session"], row["decision"], by, *texts)))
