"""``pyagentd usage`` without a session: what all of them cost, by day, model, session or preset."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from pyagentd.cli.link import daemon
from pyagentd.cli.output import note, print_json, print_table
from pyagentd.cli.prices import BUCKETS, price

TIMEOUT_S = 60.0
_BAR = 12  # columns
_WIDEST = 30
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def print_report(by: str, days: int, *, as_json: bool) -> None:
    """Print what was spent in the last ``days`` days (0: ever), with a bar for each line on a terminal."""
    with daemon() as link:
        told = link.call("usage-report", timeout=TIMEOUT_S, by=by, days=days)
    told = _with_lists(told)
    if as_json:
        print_json(told)
        return
    for_people = ("requests", "in", "cached", "out", "cost", "")
    head = for_people if _on_terminal() else ("requests", *(bucket.replace("_", " ") for bucket in BUCKETS), "cost")
    print_table((by, *head), _lines(told), empty="Nothing was spent in this time.")
    if told["problem"] or told["indexing"]:
        note(told["problem"] or "not all sessions are counted yet: they are still being read")


def _with_lists(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply with what Lisp has one nil for told apart again."""
    whole = {**told, "lines": told["lines"] or [], "indexing": bool(told["indexing"])}
    for each in (*whole["lines"], whole["together"], *([whole["rest"]] if whole["rest"] else [])):
        each["unpriced"] = each["unpriced"] or []
    return whole


def _lines(told: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    measure = "known_usd" if any(line["known_usd"] for line in told["lines"]) else "total"
    most = max((line[measure] for line in told["lines"]), default=0)
    for line in told["lines"]:
        yield _line(_name(line), line, bar(line[measure], most))
    if told["rest"]:
        yield _line(f"{told['rest']['number']} others", told["rest"], "")
    yield _line("together", told["together"], "")


def _line(what: str, line: Mapping[str, Any], drawn: str) -> tuple[str, ...]:
    tokens = line["tokens"]
    if not _on_terminal():  # for programs everything, in the order of the buckets
        return (what, str(line["requests"]), *(str(tokens[bucket]) for bucket in BUCKETS), price(line))
    read = tokens["input"] + tokens["cache_read"] + tokens["cache_write"]
    counts = (read, tokens["cache_read"], tokens["output"] + tokens["reasoning"])
    return (_cut(what), f"{line['requests']:,}", *map(short, counts), price(line), drawn)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def short(number: int) -> str:
    """Return a number of tokens as people write it in a column: 950, 12.3k, 1.2M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.1f}{unit}" if number < 100 * size else f"{number // size}{unit}"
    return str(number)


def _name(line: Mapping[str, Any]) -> str:
    return str(line.get("title") or line.get("session_id") or line["key"])


def bar(value: float, most: float, width: int = _BAR) -> str:
    """Return a bar of at most ``width`` columns; what is more than nothing is seen."""
    eighths = max(round(8 * width * value / most), 1) if most > 0 and value > 0 else 0
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def of_session_only(context: click.Context, session: str | None) -> None:
    """Refuse a session together with what is said of all of them."""
    given = [name for name in ("by", "days") if context.get_parameter_source(name) is not _DEFAULT]
    if session and given:
        raise click.UsageError(f"--{given[0]} is about all sessions: leave SESSION out")


_DEFAULT = click.core.ParameterSource.DEFAULT
