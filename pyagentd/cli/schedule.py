"""``pyagentd schedule``; ``trigger``: turns without a person; ``tasks``: background commands; ``list``: any list."""

import json
import os
import sys
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon, run_environment, watch
from pyagentd.cli.output import json_option, note, print_json, print_page, print_reply, print_table, print_view


@click.group()
def schedule() -> None:
    """Send messages to sessions later, or repeatedly."""


@schedule.command("add")
@click.argument("session", shell_complete=complete_session)
@click.argument("text")
@click.option("--cron", metavar="EXPR", help="Five fields: minute hour day month weekday, as '0 9 * * 1-5'.")
@click.option("--at", metavar="TIME", help="14:30 or 2026-03-04T14:30.")
@click.option("--in", "delay", metavar="DURATION", help="After 90s, 10m, 1h30m, 7d.")
@click.option("--every", metavar="DURATION", help="Repeat at this interval, at least 1m.")
@click.option(
    "--timezone",
    "zone",
    metavar="ZONE",
    default="",
    help="Such as Europe/Berlin (default: the machine's).",
)
@click.option("--for", "lifetime", metavar="DURATION", help="How long it repeats (default: 7d), or 'never' to end.")
@click.option("--allow", multiple=True, metavar="REGEX", help="What its runs may do without approval, as in send.")
@json_option
def add(session: str, text: str, allow: tuple[str, ...], lifetime: str | None, as_json: bool, **when: Any) -> None:
    """Send TEXT to SESSION at a time, after a delay, at intervals, or by a cron expression.

    Repeated schedules end after 7 days, unless --for says otherwise.

    Nobody is asked in these runs: what needs approval is denied unless --allow covers it.
    """
    message = sys.stdin.read() if text == "-" else text
    with daemon() as link:
        branch = str(branch_of(link, session))
        env, _ = run_environment(os.environ, "")
        made = link.call("schedule-add", branch=branch, text=message, env=env, allow=allow, lifetime=lifetime, **when)
    if as_json:
        print_json(made)
        return
    print(f"{made['id']}\t{made['when']}\tnext {_local(made['next_at'])}{_end(made)}")
    if made["expires_at"] and lifetime is None:
        note("What repeats ends after 7 days; --for says otherwise, `--for never` has it repeat without end.")


@schedule.command("list")
@click.argument("session", required=False, shell_complete=complete_session)
@json_option
def list_(session: str | None, as_json: bool) -> None:
    """List the schedules of SESSION, or all, the next one first."""
    with daemon() as link:
        branch = str(branch_of(link, session)) if session else None
        if as_json:
            print_json(link.call("schedules", branch=branch)["schedules"])
        else:
            print_view(link.call("view", name="schedules", arguments={"branch": branch}))


@schedule.command("cancel")
@click.argument("id")
def cancel(id: str) -> None:
    """Cancel the schedule ID."""
    with daemon() as link:
        link.call("schedule-cancel", id=id)


@schedule.command("run")
@click.argument("id")
@json_option
def run(id: str, as_json: bool) -> None:
    """Send the message of schedule ID now, and again at its next time."""
    with daemon() as link:
        _report(link.call("schedule-run", id=id), as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("text")
@click.option("--delivery-id", metavar="ID", help="Deliveries with the same id are one message (default: a new id).")
@click.option(
    "--source", type=click.Choice(["api", "webhook", "mcp-event"]), default="api", help="Source of the message."
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Kept with the message.")
@click.option("--allow", multiple=True, metavar="REGEX", help="What its run may do without approval, as in send.")
@json_option
def trigger(
    session: str,
    text: str,
    delivery_id: str | None,
    source: str,
    headers: tuple[str, ...],
    allow: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send TEXT from another program to SESSION. Nobody is asked in that run. TEXT "-" is read from stdin."""
    message = sys.stdin.read() if text == "-" else text
    pairs = dict(_header(header) for header in headers)
    with daemon() as link:
        state = watch(link, branch_of(link, session))
        branch = state["branch"]
        env, key = run_environment(os.environ, state["settings"]["backend"])
        delivered = link.call(
            "trigger",
            branch=branch,
            text=message,
            delivery_id=delivery_id or uuid.uuid4().hex,
            source=source,
            headers=json.dumps(pairs) if pairs else None,
            env=env,
            key=key,
            allow=allow,
        )
    _report(delivered, as_json)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def _report(delivered: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(delivered)
    elif delivered["duplicate"]:
        cut = "; the daemon's end cut its run off: send it again" if delivered.get("ended") == "restart" else ""
        note(f"dropped: it was delivered before, as {delivered['message']}{cut}")
    else:
        print(delivered["run"] or f"{delivered['message']} is queued")


def _until(row: dict[str, Any]) -> str:
    """Return when a schedule that repeats ends; "-" of one that comes once or has no end."""
    return _local(row["expires_at"]) if row["expires_at"] else "-"


def _end(row: dict[str, Any]) -> str:
    return f"\tuntil {_until(row)}" if row["expires_at"] else ""


def _local(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")


# ``pyagentd tasks``: commands that run behind conversations.


@click.command()
@click.argument("agent", required=False, shell_complete=complete_session)
@click.option("--kill", "kill", metavar="ID", help="End this task of AGENT and all processes it started.")
@click.option("--output", "output", metavar="ID", help="Show the last output of this task of AGENT.")
@json_option
def tasks(agent: str | None, kill: str | None, output: str | None, as_json: bool) -> None:
    """List the background commands of AGENT (a named agent or a session), or all.

    They keep running when the turn, Emacs or the daemon ends.
    """
    if kill and output:
        raise click.UsageError("--kill and --output do not go together")
    if (kill or output) and agent is None:
        raise click.UsageError("Name the agent or session whose task it is")
    with daemon() as link:
        branch = str(branch_of(link, agent)) if agent else None
        if kill or output:
            told = link.call("task-kill" if kill else "task-output", branch=branch, id=kill or output)
            printed = told["output"].rstrip("\n") or f"[{told['id']} ({told['status']}) has printed nothing]"
            shown = printed if output else f"{told['id']} {told['status']}"
        else:
            if not as_json:
                print_view(link.call("view", name="tasks", arguments={"branch": branch}))
                return
            told = link.call("tasks", branch=branch)["tasks"]
            shown = ""
    print_reply(told, shown, as_json=as_json)


# ``pyagentd list``: any list that Emacs shows too.


@click.command("list")
@click.argument("name", required=False)
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--limit", type=click.IntRange(min=1), default=500, help="Print at most so many rows (default: 500).")
@json_option
def list_view(name: str | None, session: str | None, limit: int, as_json: bool) -> None:
    """Print the list NAME; some lists are about one SESSION. Without NAME, print the names of the lists.

    Emacs shows the same lists with M-x pyagentd-list.
    """
    with daemon() as link:
        if name is None:
            found = link.call("views")["views"]
            if as_json:
                print_json({"views": found})
            else:
                rows = [(each["name"], each["session"] or "", each["summary"]) for each in found]
                print_table(("name", "session", "what"), rows)
            return
        given = {"branch": str(branch_of(link, session))} if session else {}
        view = link.call("view", name=name, arguments=given, limit=limit)
    print_json(view) if as_json else print_view(view)


@click.command("report")
@click.argument("name")
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--id", metavar="ID", help="Of a question (ask) or a decision of the audit.")
@json_option
def report_page(name: str, session: str | None, id: str | None, as_json: bool) -> None:
    """Print the page NAME: inspect, mission, trust (of SESSION), hooks, presets, servers, ask, decision.

    Emacs shows the same pages. Of a project (hooks, presets, servers) it is SESSION's, else the current one.
    """
    given: dict[str, Any] = {"id": int(id) if id and id.isdecimal() else id} if id else {}
    with daemon() as link:
        if session:
            given["branch"] = str(branch_of(link, session))
        elif name in ("hooks", "presets", "servers"):
            given["root"] = str(Path.cwd())
        page = link.call("report", name=name, arguments=given)
    print_json(page) if as_json else print_page(page)
