"""Commands on turns of a session: ``rewind``, ``fork``, ``regenerate``, ``variants``, ``changes``, ``context``."""

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.follow import Interrupts
from pyagentd.cli.link import branch_of, complete_session, daemon, session_link, watched_run
from pyagentd.cli.output import (
    ExitCode,
    Form,
    json_option,
    note,
    print_json,
    print_list,
    print_reply,
    report,
    stream_options,
    text_for,
)
from pyagentd.cli.send import RunFailed, follow_sent, is_human
from pyagentd.cli.sessions import can_ask, choose_prompt, prompt_line
from pyagentd.errors import NotFound
from pyagentd.store import contexts
from pyagentd.words import printable, quantity, short_tokens


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--to", "message_id", metavar="MESSAGE-ID", help="The prompt to rewind to.")
@click.option("--files", is_flag=True, help="Also restore the files that the turns after it changed.")
@click.option("--list", "only_list", is_flag=True, help="List the prompts and their ids; change nothing.")
@json_option
def rewind(session: str, message_id: str | None, files: bool, only_list: bool, as_json: bool) -> None:
    """Take back everything after one of your prompts in SESSION.

    Nothing is deleted: the text stays in the document, hidden from the model; unrewind reverses it.
    """
    if not message_id and not only_list and not can_ask():
        raise click.UsageError(f"Name the prompt with --to. `pyagentd rewind {session} --list` has their ids")
    with session_link(session) as (link, branch):
        if only_list or not message_id:
            prompts = link.call("history", branch=branch)["prompts"]
            if only_list:
                rows = [(prompt_line(each["text"]), each["message_id"]) for each in prompts]
                print_list(prompts, ("prompt", "message"), rows, as_json=as_json, empty="No prompts.")
                return
            message_id = str(choose_prompt(prompts, "rewind to")["message_id"])
        changed = link.call("rewind", branch=branch, message=message_id, files=files)
    turns = quantity(changed["turns"], "turn")
    _print_change(changed, f"Hidden: {turns}; show again: pyagentd unrewind {session}", as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def unrewind(session: str, as_json: bool) -> None:
    """Undo the last rewind of SESSION, unless you have sent a message since."""
    with session_link(session) as (link, branch):
        changed = link.call("unrewind", branch=branch)
    _print_change(changed, f"Shown again: {quantity(changed['turns'], 'turn')}", as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--at", "message_id", metavar="MESSAGE-ID", help="The last message to copy (default: the last).")
@click.option("--title", metavar="TITLE", help="Title of the copy (default: the title, and (copy)).")
@click.option("--list", "only_list", is_flag=True, help="List the sessions forked from SESSION; create nothing.")
@json_option
def fork(session: str, message_id: str | None, title: str | None, only_list: bool, as_json: bool) -> None:
    """Create a new session from SESSION up to a message.

    Copies conversation and configuration, but no grants, agents or changes to files.
    """
    with session_link(session) as (link, branch):
        if only_list:
            found = link.call("forks", branch=branch)["forks"]
            rows = [(each["session_id"], each["message"] or "", each["created"] or "") for each in found]
            print_list(found, ("session", "at", "created"), rows, as_json=as_json, empty="No forks.")
            return
        made = link.call("fork", branch=branch, message=message_id, title=title)
    print_reply(made, f"{made['session_id']}\t{made['file']}", as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--of", "message_id", metavar="MESSAGE-ID", help="The prompt or answer (default: the last one).")
@click.option("--wait/--no-wait", default=True, help="Wait until the run ends (default), or return at once.")
@stream_options
def regenerate(session: str, message_id: str | None, wait: bool, form: Form) -> int:
    """Answer a prompt of SESSION again. The earlier answer becomes a variant; what came after it is hidden."""
    human = is_human(form, headless=False)
    with daemon(human=human) as link:
        _, begin = watched_run(link, session)
        with Interrupts():
            run = link.call("regenerate", message=message_id, allow=(), **begin)
            return follow_sent(link, begin["branch"], session, run, form, human=human, wait=wait)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--of", "message_id", metavar="MESSAGE-ID", help="Only the variants of this message.")
@click.option("--choose", "number", type=click.IntRange(1), metavar="N", help="Show this variant instead.")
@json_option
def variants(session: str, message_id: str | None, number: int | None, as_json: bool) -> None:
    """List the variants of answers and prompts in SESSION. A star marks the one that is shown.

    --choose shows another one, with the turns that followed it. --of names the message (default: the last one that
    has variants).
    """
    with session_link(session) as (link, branch):
        found = link.call("variants", branch=branch, message=message_id)["variants"]
        if number is not None:
            if not found:
                raise click.ClickException("No prompt or answer has variants. `pyagentd regenerate` makes some")
            changed = link.call("choose-variant", branch=branch, message=found[-1]["message"], n=number)
            print_reply(changed, f"Variant {number} of {len(found[-1]['of'])}", as_json=as_json)
            return
    rows = [
        (f"{'* ' if one['current'] else '  '}{one['n']}/{len(each['of'])}", prompt_line(one["text"]), one["message"])
        for each in found
        for one in each["of"]
    ]
    print_list(found, ("variant", "text", "message"), rows, as_json=as_json, empty="No variants.")


def _print_change(changed: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    print_reply(changed, text, as_json=as_json)
    files = {} if as_json else changed.get("files") or {}
    for path in files.get("restored", ()):
        click.echo(f"restored {printable(path)}")
    for kept in files.get("kept", ()):
        note(f"kept {kept['path']}: {kept['reason']}")


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
    """List the files that the agents of SESSION changed, ever or since one of your messages.

    Covers files that Write and Edit touch and, around commands, the workspace if it has at most 20,000 files. Ignored
    files, .git and files that may hold secrets are not covered.
    """
    with session_link(session) as (link, branch):
        reply = link.call("changes", branch=branch, message=message)
    _show(reply["files"], diff=diff, as_json=as_json)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--to",
    "message",
    metavar="MESSAGE-ID",
    help="Restore to when you sent this message; `last` is the last one.",
)
@click.option("--undo", "undone", metavar="ID", help="Undo the restore with this id (printed by it).")
@click.option("--preview", is_flag=True, help="Only show what would change.")
@click.option(
    "--conflicts",
    type=click.Choice(["keep", "copy", "overwrite"]),
    default="keep",
    help="Files that were changed again since: keep them (default), overwrite them, or copy (keeps both).",
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
    """Restore files to what they were before the agents of SESSION changed them (default: all files).

    The conversation stays; `rewind --files` takes back both. --undo reverses a restore.
    """
    if (message is None) == (undone is None):
        raise click.UsageError("Name what to restore: --to MESSAGE-ID, or --undo ID")
    only = [os.path.normpath(path.absolute()) for path in paths] or None
    with session_link(session) as (link, branch):
        if undone is not None:
            done = link.call("undo-restore", branch=branch, id=undone)
        else:
            found = link.call("changes", branch=branch, message=message, paths=only)["files"]
            for name in only or ():
                if not any(Path(row["path"]).is_relative_to(name) for row in found):
                    raise NotFound(f"No changed file is called {name}", hint=f"See: pyagentd changes {session}")
            if preview:
                _show(found, diff=True, as_json=as_json)
                return
            if found and not yes:
                if not sys.stdin.isatty():
                    why = "Restoring asks first, and there is no terminal to ask on. Use --yes or --preview"
                    raise click.UsageError(why)
                _show(found, diff=False, as_json=False, err=True)
                click.confirm("Put them back?", abort=True, err=True)
            done = link.call("restore", branch=branch, message=message, paths=only, conflicts=conflicts)
    if as_json:
        print_json(done)
        return
    for path in done["restored"]:
        print(text_for(path, sys.stdout))
    for row in done["kept"]:
        note(f"kept {row['path']}: {row['reason']}")
    if not (done["restored"] or done["kept"]):
        note("no file has changed")
    for path in done["copies"]:
        note(f"the old version is in {path}")
    if done["id"]:
        note(f"pyagentd restore {session} --undo {done['id']} takes this back")


def _show(files: list[Row], *, diff: bool, as_json: bool, err: bool = False) -> None:
    if as_json:
        print_json({"files": files})
        return
    for row in files:
        reason = f"  ({row['reason']})" if row["reason"] else ""
        path = text_for(row["path"], sys.stderr if err else sys.stdout)
        click.echo(f"{_WORDS[row['change']]}\t{path}{reason}", err=err)
        if diff and row["diff"] is None:
            note(f"{row['path']}: the difference is too long; name the file")
        elif diff and row["diff"]:
            for line in row["diff"].splitlines():
                click.secho(printable(line), fg=_COLOURS.get(line[:1]))
    if not files:
        note("no file has changed")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--keep", "instructions", default="", metavar="TEXT", help="What the summary should keep.")
@click.option("--wait/--no-wait", default=True, help="Wait until it is done (default), or return at once.")
@json_option
def compact(session: str, instructions: str, wait: bool, as_json: bool) -> int:
    """Summarise the conversation of SESSION: the model then sees the summary instead of it.

    Nothing is deleted: the text stays in the document, and rewinding to before the summary restores it.
    """
    with daemon() as link:
        _, begin = watched_run(link, session)
        made = link.call("compact", instructions=instructions, wait=wait, **begin)
    if not wait:
        print_reply(made, made["run"], as_json=as_json)
        return ExitCode.DONE
    if str(made["reason"]) != "done":
        report(RunFailed(made["message"] or "The compaction was aborted"), as_json=as_json)
        return ExitCode.FAILED
    if as_json:
        print_json({**made, "reason": "done"})
    else:
        tokens, left = short_tokens(made["tokens"] or 0), short_tokens(made["summary_tokens"] or 0)
        messages = quantity(made["messages"], "message")
        click.echo(f"Compacted {messages} of ~{tokens} tokens to a summary of ~{left} tokens")
    return ExitCode.DONE


_ID = 8  # shown characters of an id


@click.group()
def context() -> None:
    """Save, clear and restore conversations."""


@context.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("description", required=False, default="")
@json_option
def save(session: str, description: str, as_json: bool) -> None:
    """Save the conversation of SESSION and continue it. Without DESCRIPTION a model writes one."""
    with daemon() as link:
        _, begin = watched_run(link, session)
        made = link.call("context-save", description=description, **begin)
    print_reply(made, f"[{made['id'][:_ID]}] {made['description']}\n{made['file']}", as_json=as_json)


@context.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def clear(session: str, as_json: bool) -> None:
    """Start a new conversation in SESSION without saving the current one. Its text stays in the document."""
    with session_link(session) as (link, branch):
        made = link.call("context-clear", branch=branch)
    print_reply(made, f"Context cleared. {made['note']}", as_json=as_json)


@context.command("restore")
@click.argument("session", shell_complete=complete_session)
@click.argument("id")
@json_option
def context_restore(session: str, id: str, as_json: bool) -> None:
    """Replace the conversation of SESSION by the saved one, ID (or its beginning)."""
    with session_link(session) as (link, branch):
        made = link.call("context-restore", branch=branch, id=id)
    print_reply(
        made,
        f"Context restored: {made['description']} ({quantity(made['message_count'], 'message')})",
        as_json=as_json,
    )


@context.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def history(session: str, as_json: bool) -> None:
    """List the saved conversations of SESSION or of a destroyed agent, latest first."""
    with daemon() as link:
        try:
            found = link.call("context-history", branch=str(branch_of(link, session)))["contexts"]
        except NotFound as unknown:  # if no agent has that name either, raise this error
            found = []
            with contextlib.suppress(NotFound):
                found = link.call("context-history", agent=session)["contexts"]
            if not found:
                raise unknown from None
    print_reply(found, contexts.listing(session, found), as_json=as_json)
