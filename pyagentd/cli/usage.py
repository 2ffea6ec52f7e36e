"""``pyagentd usage``: what a session cost, message by message, and how full the model's window is; or all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import json_option, print_json, print_table
from pyagentd.cli.prices import BUCKETS, price
from pyagentd.cli.usagereport import of_session_only, print_report

_FLAGS = ("hidden", "compaction")  # in Lisp false is nil
_LISTS = ("agents", "messages")
_HEAD = ("what", "model", "requests", "input", "output", "reasoning", "cache read", "cache write", "cost")


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option(
    "--by",
    type=click.Choice(["day", "model", "session", "preset"]),
    default="day",
    show_default=True,
    help="Without SESSION: group lines by this.",
)
@click.option(
    "--days",
    type=click.IntRange(0, 36_500),
    default=30,
    show_default=True,
    metavar="N",
    help="Without SESSION: the last N days, including today; 0 means all.",
)
@json_option
@click.pass_context
def usage(context: click.Context, session: str | None, by: str, days: int, as_json: bool) -> None:
    """Print what SESSION cost: each answer, its agents, all together; without SESSION what all of them cost.

    Tokens are what the provider counted; input is what came neither from its cache nor went there. A price that
    nobody stated is unknown: state it in config.toml under [model."NAME"].
    """
    of_session_only(context, session)
    if session is None:
        print_report(by, days, as_json=as_json)
        return
    with daemon() as link:
        told = link.call("usage", branch=str(branch_of(link, session)))
    told = _with_lists(told)
    if as_json:
        print_json(told)
        return
    print_table(_HEAD, _lines(told))
    click.echo(_meter(told["context"]))


def _with_lists(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply with what Lisp has one nil for told apart again."""
    whole = {**told, **{key: told.get(key) or [] for key in _LISTS}}
    whole["messages"] = [message | {flag: bool(message[flag]) for flag in _FLAGS} for message in whole["messages"]]
    sums = (whole["own"], whole["agents_total"], whole["together"], *whole["agents"], *whole["messages"])
    for each in sums:
        each["unpriced"] = each.get("unpriced") or []
    for flag in ("estimated", "window_known"):
        whole["context"][flag] = bool(whole["context"][flag])
    return whole


def _lines(told: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for message in told["messages"]:
        what = "compaction" if message["compaction"] else "answer"
        at = datetime.fromtimestamp((message["created_at"] or 0) / 1000).astimezone()
        hidden = " (hidden)" if message["hidden"] else ""
        yield _line(f"{at:%Y-%m-%d %H:%M} {what}{hidden}", message, message["model"], str(message["steps"]))
    for agent in told["agents"]:
        yield _line(f"agent {agent['id']}", agent)
    if told["agents"]:
        yield _line("without agents", told["own"])
        yield _line("agents", told["agents_total"])
    yield _line("all together", told["together"])


def _line(what: str, spent: Mapping[str, Any], model: str = "", requests: str = "") -> tuple[str, ...]:
    return (what, model, requests, *(f"{spent['tokens'][bucket]:,}" for bucket in BUCKETS), price(spent))


def _meter(context: Mapping[str, Any]) -> str:
    window = f"{context['window']:,}" + ("" if context["window_known"] else " (a guess: nobody stated it)")
    about = "about " if context["estimated"] else ""
    share = round(100 * context["used"] / context["window"]) if context["window"] else 0
    text = f"Context: {about}{context['used']:,} of {window} tokens ({share}%)"
    if model := context["model"]:
        text += f" of {model}"
    if times := context["compactions"]:
        text += f", compacted {times} time{'s' if times > 1 else ''}"
    return text
