"""``pyagentd rewind``, ``unrewind``, ``fork``, ``regenerate`` and ``variants``: what a conversation consists of."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from pyagentd.cli.branches import LONG_S
from pyagentd.cli.link import branch_of, complete_session, daemon, run_environment, watch
from pyagentd.cli.options import stream_options
from pyagentd.cli.output import json_option, note, print_json, print_table, printable
from pyagentd.cli.send import finished, form_of, is_human, view_of

_HISTORY_S = 120.0  # a long document is compared with its log


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--to", "message_id", metavar="MESSAGE-ID", help="Your prompt that becomes the last one.")
@click.option("--files", is_flag=True, help="Also restore the files that the turns after it changed.")
@click.option("--list", "only_list", is_flag=True, help="List the prompts and their ids; change nothing.")
@json_option
def rewind(session: str, message_id: str | None, files: bool, only_list: bool, as_json: bool) -> None:
    """Take back everything after one of your prompts in SESSION.

    Nothing is deleted: the text stays in the document, the model no longer sees it, and unrewind brings it back.
    """
    if not message_id and not only_list and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"Say with --to which prompt. `pyagentd rewind {session} --list` has their ids")
    with daemon() as link:
        branch = str(branch_of(link, session))
        if only_list or not message_id:
            prompts = link.call("history", timeout=_HISTORY_S, branch=branch)["prompts"] or []
            if only_list:
                _print_prompts(prompts, as_json)
                return
            message_id = _ask(prompts)
        changed = link.call("rewind", timeout=LONG_S, branch=branch, message=message_id, files=files or None)
    if as_json:
        print_json(_lists(changed))
        return
    click.echo(f"{len(changed['hidden'] or ())} messages are hidden; `pyagentd unrewind {session}` brings them back")
    _print_files(changed)


@click.command()
@click.argument("session", shell_complete=complete_session)
@json_option
def unrewind(session: str, as_json: bool) -> None:
    """Reverse the last rewind of SESSION, unless something was sent since."""
    with daemon() as link:
        changed = link.call("unrewind", timeout=LONG_S, branch=str(branch_of(link, session)))
    if as_json:
        print_json(_lists(changed))
        return
    click.echo(f"{len(changed['shown'] or ())} messages are back")
    _print_files(changed)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--at", "message_id", metavar="MESSAGE-ID", help="The last message to copy (default: the last).")
@click.option("--title", metavar="TITLE", help="Title of the copy (default: the title, and (copy)).")
@click.option("--list", "only_list", is_flag=True, help="List the sessions forked from SESSION; create nothing.")
@json_option
def fork(session: str, message_id: str | None, title: str | None, only_list: bool, as_json: bool) -> None:
    """Make a session of its own from SESSION up to a message.

    It has the conversation and the configuration; what was granted, agents and side effects stay behind.
    """
    with daemon() as link:
        branch = str(branch_of(link, session))
        if only_list:
            found = link.call("forks", timeout=LONG_S, branch=branch)["forks"] or []
            if as_json:
                print_json(list(found))
            else:
                print_table(("session", "at", "created"), [_fork_row(each) for each in found], empty="No forks.")
            return
        made = link.call("fork", timeout=LONG_S, branch=branch, message=message_id, title=title)
    if as_json:
        print_json(made)
    else:
        click.echo(f"{made['session_id']}\t{made['file']}")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--of", "message_id", metavar="MESSAGE-ID", help="The prompt or answer (default: the last one).")
@click.option("--wait/--no-wait", default=True, help="Wait until the run ends (default), or return at once.")
@stream_options
def regenerate(session: str, message_id: str | None, wait: bool, as_json: bool, as_events: bool) -> int:
    """Have SESSION answer a prompt again; the answer before becomes a variant and what came after it is hidden."""
    from pyagentd.cli.follow import Follower

    form = form_of(as_json, as_events)
    human = is_human(form, headless=False)
    with daemon(human=human) as link:
        state = watch(link, branch_of(link, session))
        branch = state["branch"]
        env, key = run_environment(os.environ, state["settings"]["backend"])
        run = link.call(
            "regenerate", timeout=_HISTORY_S, branch=branch, message=message_id, env=env, key=key, allow=()
        )
        if not wait:
            print_json(_lists(run)) if form != "text" else print(run["run"])
            return 0
        view = view_of(form)
        ending = Follower(link, branch, run["run"], view, human=human).follow(None)
        return finished(link, branch, session, view, ending, form)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--of", "message_id", metavar="MESSAGE-ID", help="Only the changes of this message.")
@click.option("--choose", "number", type=click.IntRange(1), metavar="N", help="Show this variant instead.")
@json_option
def variants(session: str, message_id: str | None, number: int | None, as_json: bool) -> None:
    """List what SESSION said at different times in the same place; a star marks what is shown.

    --choose shows another one, with the turns that came after it; of the last message that has variants unless
    --of names one.
    """
    with daemon() as link:
        branch = str(branch_of(link, session))
        found = link.call("variants", timeout=_HISTORY_S, branch=branch, message=message_id)["variants"] or []
        if number is not None:
            if not found:
                raise click.ClickException("Nothing has variants here. `pyagentd regenerate` makes some")
            changed = link.call(
                "choose-variant", timeout=LONG_S, branch=branch, message=found[-1]["message"], n=number
            )
            print_json(_lists(changed)) if as_json else click.echo(f"Variant {number} of {len(found[-1]['of'])}")
            return
    listed = [{**each, "of": [one | {"current": bool(one["current"])} for one in each["of"]]} for each in found]
    if as_json:
        print_json(listed)
    else:
        print_table(
            ("variant", "text", "message"), [_variant_row(one, each) for each in listed for one in each["of"]]
        )


def _print_prompts(prompts: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json([dict(each) for each in prompts])
    else:
        print_table(
            ("prompt", "message"),
            [(_line(each["text"]), each["message_id"]) for each in prompts],
            empty="No prompts.",
        )


def _ask(prompts: Sequence[Mapping[str, Any]]) -> str:
    """Have the user choose a prompt."""
    if not prompts:
        raise click.ClickException("There is no prompt to rewind to. Write and send one first")
    for number, each in enumerate(prompts, 1):
        click.echo(f"{number:>4}  {_line(each['text'])}", err=True)
    wanted = click.prompt("Rewind to prompt", type=click.IntRange(1, len(prompts)), default=len(prompts), err=True)
    return str(prompts[wanted - 1]["message_id"])


def _print_files(changed: Mapping[str, Any]) -> None:
    files = changed.get("files") or {}
    for path in files.get("restored") or ():
        click.echo(f"restored {printable(path)}")
    for kept in files.get("kept") or ():
        note(f"kept {kept['path']}: {kept['reason']}")


def _lists(changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what changed with its lists as lists: in Lisp an empty one is nil."""
    return {**changed, "hidden": list(changed["hidden"] or ()), "shown": list(changed["shown"] or ())}


def _fork_row(each: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(each["session_id"]), str(each["message"]), str(each["created"] or "")


def _variant_row(one: Mapping[str, Any], each: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{'* ' if one['current'] else '  '}{one['n']}/{len(each['of'])}", _line(one["text"]), str(one["message"])


def _line(text: str) -> str:
    line = " ".join(str(text).split())
    return printable(line[:70]) + ("…" if len(line) > 70 else "")
