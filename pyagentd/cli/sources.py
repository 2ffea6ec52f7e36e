"""``pyagentd watch`` and ``webhook``: a message to a session when files change, or for each HTTP request.

Each is a process of its own that calls the daemon's operation ``trigger``; the daemon itself accepts connections of
its user alone.
"""

import asyncio
import hashlib
import hmac
import json
import os
import stat
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon, run_environment
from pyagentd.cli.link import watch as attached
from pyagentd.cli.output import note
from pyagentd.errors import BadRequest, PyagentdError, RateLimited, UserError
from pyagentd.installation import extra

_MOST_FILES = 50  # that a message names
_LARGEST = 100_000  # bytes of a request's body
_HEADERS = ("x-github-event", "x-gitlab-event", "x-event")  # kept with the message
_KEYS = ("idempotency-key", "x-github-delivery", "x-gitlab-event-uuid")

_allow = click.option("--allow", multiple=True, metavar="REGEX", help="What its runs may do, as in send.")


def _deliver(
    session: str,
    text: str,
    *,
    source: str,
    allow: Sequence[str],
    delivery_id: str = "",
    headers: Mapping[str, str] | None = None,
    only_idle: bool = False,
) -> dict[str, Any] | None:
    """Send a message; return what became of it, None where only an idle session was to have it."""
    with daemon() as link:
        state = attached(link, branch_of(link, session))
        if only_idle and state["status"]["state"] not in ("idle", "error"):
            return None
        env, key = run_environment(os.environ, state["settings"]["backend"])
        delivered: dict[str, Any] = link.call(
            "trigger",
            branch=state["branch"],
            text=text,
            delivery_id=delivery_id or uuid.uuid4().hex,
            source=source,
            headers=json.dumps(dict(headers)) if headers else None,
            env=env,
            key=key,
            allow=list(allow),
        )
    return delivered


# Files.


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("text")
@click.argument("places", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--match", metavar="GLOB", default="*", help="Only files whose names match, such as '*.py'.")
@click.option(
    "--settle",
    type=click.FloatRange(0.1, 3600),
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
    note(f"watching {', '.join(map(str, places))}")
    changes = watchfiles.watch(
        *(place.absolute() for place in places),
        watch_filter=is_wanted,
        debounce=max(1600, round(4000 * settle)),
        step=round(1000 * settle),
        raise_interrupt=False,
    )
    for batch in changes:
        names = sorted({path for _, path in batch})
        try:
            delivered = _deliver(session, _message_text(text, names), source="files", allow=allow, only_idle=True)
        except PyagentdError as error:  # one that could not be sent ends nothing
            note(str(error))
            continue
        note(
            f"{'1 file' if len(names) == 1 else f'{len(names)} files'} changed: "
            + ("the session works, not sent" if delivered is None else "sent")
        )


def _message_text(text: str, names: Sequence[str]) -> str:
    """Return the message about files that changed."""
    more = [f"- … and {len(names) - _MOST_FILES} more"] if len(names) > _MOST_FILES else []
    return "\n".join([text, "", "Changed:", *(f"- {name}" for name in names[:_MOST_FILES]), *more])


# Requests.


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
    with suppress(KeyboardInterrupt):
        asyncio.run(_listen(partial(_deliver, session, source="webhook", allow=allow), text, secret, port, place))


async def _listen(deliver: Any, text: str, secret: str, port: int | None, place: Path | None) -> None:
    from aiohttp import web  # loaded here: every other command would pay for it too

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        if not _is_proved(request.headers, body, secret):
            return web.json_response({"error": "The secret is missing or wrong"}, status=401)
        key = next((request.headers[name] for name in _KEYS if request.headers.get(name)), "")
        if not key:
            return web.json_response({"error": "There is no Idempotency-Key"}, status=400)
        kept = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        try:
            message = f"{text}\n\n{_quoted(body)}" if body.strip() else text
            told = await asyncio.to_thread(deliver, message, delivery_id=key, headers=kept)
        except RateLimited as error:
            return web.json_response({"error": str(error)}, status=429)
        except UserError as error:
            return web.json_response({"error": str(error)}, status=400)
        except PyagentdError as error:
            note(str(error))
            return web.json_response({"error": "The daemon cannot be reached"}, status=503)
        return web.json_response({"message": told["message"], "duplicate": told["duplicate"]}, status=202)

    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    if place is not None:
        _clear(place)
        before = os.umask(0o177)  # nobody else can open it, from its first moment
        try:
            await web.UnixSite(runner, str(place)).start()
        finally:
            os.umask(before)
        note(f"listening on {place}")
    else:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        note(f"listening on http://127.0.0.1:{runner.addresses[0][1]}/")
    sys.stderr.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _is_proved(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    """Return whether a request knows the secret."""
    signed = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    given = ((headers.get("Authorization", ""), f"Bearer {secret}"), (headers.get("X-Hub-Signature-256", ""), signed))
    return any(hmac.compare_digest(told.encode(), expected.encode()) for told, expected in given)


def _quoted(body: bytes) -> str:
    """Return a body as a block of code whose fence is longer than any in it."""
    text = body.decode("utf-8", "replace").strip()
    fence = "`" * max(3, 1 + max(map(len, _runs(text, "`")), default=0))
    return f"{fence}\n{text}\n{fence}"


def _runs(text: str, character: str) -> Iterable[str]:
    """Yield what ``text`` has between other characters."""
    return "".join(each if each == character else " " for each in text).split()


def _clear(place: Path) -> None:
    """Remove the socket that one before left; raises ``BadRequest`` where something else is."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(place.lstat().st_mode):
            raise BadRequest(f"{place} exists and is not a socket")
        place.unlink()
