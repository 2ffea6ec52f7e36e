"""Commands for turns that no human starts, for background commands, and for the lists and pages of Emacs.

``pyagentd schedule``, ``trigger``, ``watch`` and ``webhook`` send messages; ``tasks`` lists background commands;
``list`` and ``report`` print what Emacs shows. ``watch`` and ``webhook`` are separate processes that call the
operation ``trigger``, since the daemon accepts connections only from its user.
"""

import asyncio
import hashlib
import hmac
import json
import os
import re
import stat
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import (
    branch_of,
    complete_session,
    daemon,
    run_environment,
    session_link,
    watched_run,
)
from pyagentd.cli.output import (
    AmountRange,
    json_option,
    local_time,
    note,
    print_json,
    print_list,
    print_page,
    print_reply,
    print_view,
)
from pyagentd.errors import BadRequest, PyagentdError, RateLimited, UserError
from pyagentd.installation import extra
from pyagentd.words import quantity

_MOST_FILES = 50  # file names in a message
_LARGEST = 100_000  # bytes of a request's body
_HEADERS = ("x-github-event", "x-gitlab-event", "x-event")  # recorded with the message
_KEYS = ("idempotency-key", "x-github-delivery", "x-gitlab-event-uuid")

_allow = click.option(
    "--allow", multiple=True, metavar="REGEX", help="What its runs may do without approval, as in send."
)


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
@_allow
@json_option
def add(session: str, text: str, allow: tuple[str, ...], lifetime: str | None, as_json: bool, **when: Any) -> None:
    """Send TEXT to SESSION at a time, after a delay, at intervals, or by a cron expression.

    Repeated schedules end after 7 days, unless --for says otherwise.

    These runs ask nobody: a call that needs approval is denied unless --allow covers it.
    """
    message = sys.stdin.read() if text == "-" else text
    with session_link(session) as (link, branch):
        env = run_environment(os.environ)
        made = link.call("schedule-add", branch=branch, text=message, env=env, allow=allow, lifetime=lifetime, **when)
    if as_json:
        print_json(made)
        return
    until = f"\tuntil {local_time(made['expires_at'])}" if made["expires_at"] else ""
    print(f"{made['id']}\t{made['when']}\tnext {local_time(made['next_at'])}{until}")
    if made["expires_at"] and lifetime is None:
        note("A repeating schedule ends after 7 days. --for sets another time, `--for never` none.")


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
@_allow
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
    pairs = {}
    for header in headers:
        name, equals, value = header.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{header!r} is not NAME=VALUE")
        pairs[name] = value
    delivered = _deliver(session, message, source=source, allow=allow, delivery_id=delivery_id, headers=pairs)
    _report(delivered or {}, as_json)


def _require(session: str) -> None:
    """Check that the session exists before waiting for the first message."""
    with session_link(session):
        pass


def _deliver(
    session: str,
    text: str,
    *,
    source: str,
    allow: Sequence[str],
    delivery_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    only_idle: bool = False,
) -> dict[str, Any] | None:
    """Send a message and return the reply; with ``only_idle``, return None if the session is not idle."""
    with daemon() as link:
        state, begin = watched_run(link, session)
        if only_idle and state["status"]["state"] not in ("idle", "error"):
            return None
        delivered: dict[str, Any] = link.call(
            "trigger",
            text=text,
            delivery_id=delivery_id or uuid.uuid4().hex,
            source=source,
            headers=json.dumps(dict(headers)) if headers else None,
            allow=list(allow),
            **begin,
        )
    return delivered


def _report(delivered: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(delivered)
    elif delivered["duplicate"]:
        cut = "; the daemon's end cut its run off: send it again" if delivered.get("ended") == "restart" else ""
        note(f"dropped: it was delivered before, as {delivered['message']}{cut}")
    else:
        print(delivered["run"] or f"{delivered['message']} is queued")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("text")
@click.argument("places", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--match", metavar="GLOB", default="*", help="Only files whose names match, such as '*.py'.")
@click.option(
    "--settle",
    type=AmountRange(0.1, 3600),
    default=2.0,
    help="Send after so many seconds without a change (default: 2).",
)
@_allow
def watch(
    session: str, text: str, places: tuple[Path, ...], match: str, settle: float, allow: tuple[str, ...]
) -> None:
    """Send TEXT to SESSION, with the names of the files, whenever files in PLACES change; Ctrl-C ends.

    Changes during a run of the session are ignored, because most of them are its own.
    """
    with extra("watch", "Watching files"):
        import watchfiles

    def is_wanted(change: object, path: str) -> bool:
        return Path(path).match(match) and usual(change, path)  # type: ignore[arg-type]

    usual = watchfiles.DefaultFilter()
    _require(session)
    note(f"watching {', '.join(map(str, places))}")
    changes = watchfiles.watch(
        *(place.absolute() for place in places),
        watch_filter=is_wanted,
        debounce=max(1600, round(4000 * settle)),
        step=round(1000 * settle),
    )
    for batch in changes:
        names = sorted({path for _, path in batch})
        try:
            more = [f"- … and {len(names) - _MOST_FILES} more"] if len(names) > _MOST_FILES else []
            message = "\n".join([text, "", "Changed:", *(f"- {name}" for name in names[:_MOST_FILES]), *more])
            delivered = _deliver(session, message, source="files", allow=allow, only_idle=True)
        except PyagentdError as error:  # keep watching after a message that could not be sent
            note(str(error))
            continue
        outcome = "the session works, not sent" if delivered is None else "sent"
        note(f"{quantity(len(names), 'file')} changed: {outcome}")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("text")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port of 127.0.0.1; 0: any free one.")
@click.option("--socket", "place", type=click.Path(path_type=Path), help="Or on a unix socket, yours alone.")
@click.option("--secret-env", metavar="NAME", default="PYAGENTD_WEBHOOK_SECRET", help="Variable with the secret.")
@_allow
def webhook(
    session: str, text: str, port: int | None, place: Path | None, secret_env: str, allow: tuple[str, ...]
) -> None:
    """Send TEXT to SESSION, with the body of the request, for each POST request with the secret; Ctrl-C ends.

    A request needs `Authorization: Bearer SECRET` or GitHub's signature, `X-Hub-Signature-256`. Of requests with the
    same `Idempotency-Key` (or GitHub's `X-GitHub-Delivery`) only the first is sent.
    """
    if (port is None) == (place is None):
        raise click.UsageError("Give --port or --socket")
    secret = os.environ.get(secret_env, "")
    if len(secret) < 16:
        raise BadRequest(
            f"The variable {secret_env} holds no secret of at least 16 characters",
            hint=f"For example: export {secret_env}=$(openssl rand -hex 32)",
        )
    _require(session)
    asyncio.run(_listen(partial(_deliver, session, source="webhook", allow=allow), text, secret, port, place))


async def _listen(deliver: Any, text: str, secret: str, port: int | None, place: Path | None) -> None:
    from aiohttp import web  # imported here, because it is slow to import and only needed here

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        if not _is_proved(request.headers, body, secret):
            return web.json_response({"error": "The secret is missing or wrong"}, status=401)
        key = next((request.headers[name] for name in _KEYS if request.headers.get(name)), "")
        if not key:
            return web.json_response({"error": "There is no Idempotency-Key"}, status=400)
        kept = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        try:
            message = f"{text}\n\n{_code_block(body)}" if body.strip() else text
            reply = await asyncio.to_thread(deliver, message, delivery_id=key, headers=kept)
        except RateLimited as error:
            return web.json_response({"error": str(error)}, status=429)
        except UserError as error:
            return web.json_response({"error": str(error)}, status=400)
        except PyagentdError as error:
            note(str(error))
            return web.json_response({"error": "The daemon cannot be reached"}, status=503)
        return web.json_response({"message": reply["message"], "duplicate": reply["duplicate"]}, status=202)

    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port) if place is None else web.UnixSite(runner, str(place))
    if place is not None:
        _clear(place)
    before = os.umask(0o177)  # the socket is private from the moment it is created
    try:
        await site.start()
    except OSError as error:
        hint = "Give another --port, or 0 for any free one" if place is None else "Give another --socket"
        raise BadRequest(
            f"Cannot listen on {place or f'port {port}'}: {error.strerror or error}", hint=hint
        ) from None
    finally:
        os.umask(before)
    note(f"listening on {place or f'http://127.0.0.1:{runner.addresses[0][1]}/'}")
    sys.stderr.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _is_proved(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    signed = "sha256=" + hmac.new(os.fsencode(secret), body, hashlib.sha256).hexdigest()
    given = ((headers.get("Authorization", ""), f"Bearer {secret}"), (headers.get("X-Hub-Signature-256", ""), signed))
    return any(hmac.compare_digest(os.fsencode(signature), os.fsencode(expected)) for signature, expected in given)


def _code_block(body: bytes) -> str:
    """Return a body as a code block whose fence is longer than any in the body."""
    text = body.decode("utf-8", "replace").strip()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _clear(place: Path) -> None:
    """Remove the socket of an earlier process; raises ``BadRequest`` if another kind of file is there."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(place.lstat().st_mode):
            raise BadRequest(f"{place} exists and is not a socket")
        place.unlink()


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
            reply = link.call("task-kill" if kill else "task-output", branch=branch, id=kill or output)
            printed = reply["output"].rstrip("\n") or f"[{reply['id']} ({reply['status']}) has printed nothing]"
            shown = printed if output else f"{reply['id']} {reply['status']}"
        else:
            if not as_json:
                print_view(link.call("view", name="tasks", arguments={"branch": branch}))
                return
            reply = link.call("tasks", branch=branch)["tasks"]
            shown = ""
    print_reply(reply, shown, as_json=as_json)


_ELSEWHERE = {
    "agent": "pyagentd agent config NAME",
    "search": "pyagentd search QUERY",
    "server": "pyagentd mcp test NAME",
    "request": "pyagentd show SESSION --step N --request",
}
"""The commands that print lists and pages which need other arguments than a session or an id."""


@click.command("list")
@click.argument("name", required=False)
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--limit", type=click.IntRange(min=1), default=500, help="Print at most so many rows (default: 500).")
@json_option
def list_view(name: str | None, session: str | None, limit: int, as_json: bool) -> None:
    """Print the list NAME; some lists are about one SESSION. Without NAME, print the names of the lists.

    Emacs shows the same lists with M-x pyagentd-list.
    """
    if name in _ELSEWHERE:
        raise click.UsageError(f"This list is printed by {_ELSEWHERE[name]}")
    with daemon() as link:
        found = link.call("views")["views"]
        if name is None:
            rows = [(each["name"], each["session"] or "", each["summary"]) for each in found]
            print_list({"views": found}, ("name", "session", "what"), rows, as_json=as_json)
            return
        about = next((each["session"] for each in found if each["name"] == name), "optional")
        if about == "required" and not session:
            raise click.UsageError(f"The list {name} is about one session: pyagentd list {name} SESSION")
        if session and not about:
            raise click.UsageError(f"The list {name} is about no single session: leave SESSION out")
        given = {"branch": str(branch_of(link, session))} if session else {}
        view = link.call("view", name=name, arguments=given, limit=limit)
    print_json(view) if as_json else print_view(view)


_OF_SESSION = frozenset({"inspect", "mission", "trust", "task"})
_BY_ID = frozenset({"ask", "decision", "task"})


@click.command("report")
@click.argument("name")
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--id", metavar="ID", help="Of a task, a question (ask) or a decision of the audit.")
@json_option
def report_page(name: str, session: str | None, id: str | None, as_json: bool) -> None:
    """Print the page NAME: inspect, mission, trust, task (of SESSION), hooks, presets, servers, ask, decision.

    Emacs shows the same pages. The project of hooks, presets and servers is SESSION's, else the current one.
    """
    if name in _ELSEWHERE:
        raise click.UsageError(f"This page is printed by {_ELSEWHERE[name]}")
    if name in _OF_SESSION and not session:
        raise click.UsageError(f"The page {name} is about one session: pyagentd report {name} SESSION")
    if name in _BY_ID and not id:
        raise click.UsageError(f"The page {name} needs --id")
    if id and name == "decision" and not id.isdecimal():
        raise click.UsageError(f"The id of a decision is a number, which {id!r} is not")
    given: dict[str, Any] = {"id": int(id) if name == "decision" else id} if id else {}
    with daemon() as link:
        if session:
            given["branch"] = str(branch_of(link, session))
        elif name in ("hooks", "presets", "servers"):
            given["root"] = str(Path.cwd())
        page = link.call("report", name=name, arguments=given)
    print_json(page) if as_json else print_page(page)
