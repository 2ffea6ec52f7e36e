"""``pyagentd usage``: what sessions cost, and how full the model's context window is."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon
from pyagentd.cli.output import BUCKETS, dim, json_option, note, price, print_json, print_page, print_table, shown
from pyagentd.errors import NotFound
from pyagentd.store.conversation import counted
from pyagentd.wire.client import DaemonClient

# ``pyagentd usage`` without a session: what all of them cost, by day, model, session or preset.

TIMEOUT_S = 60.0
_BAR = 12  # columns
_WIDEST = 30
_WIDEST_CHART = 120
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def print_report(by: str, days: int, *, as_json: bool) -> None:
    """Print what was spent in the last ``days`` days (0: ever), with a bar for each line on a terminal."""
    with daemon() as link:
        told = link.call("usage-report", timeout=TIMEOUT_S, by=by, days=days)
    if as_json:
        print_json(told)
        return
    for_people = ("requests", "in", "cached", "out", "cost", "")
    head = for_people if _on_terminal() else ("requests", *(bucket.replace("_", " ") for bucket in BUCKETS), "cost")
    print_table((by, *head), _usagereport_lines(told), empty="Nothing was spent in this time.")
    if told["problem"] or told["indexing"]:
        note(told["problem"] or "not all sessions are counted yet: they are still being read")


def print_charts(session: str | None, by: str, days: int) -> None:
    """Print what was spent in the last ``days`` days as a chart, or the charts of a session."""
    width = min(shutil.get_terminal_size().columns, _WIDEST_CHART)
    with daemon() as link:
        if session is None:
            arguments = {"by": by, "days": days, "width": width}
            print_page(link.call("report", timeout=TIMEOUT_S, name="usage", arguments=arguments))
            return
        page = link.call("report", name="inspect", arguments={"branch": str(branch_of(link, session))})
    lines = page["lines"]
    for title, line in pairwise(lines):
        if any(not isinstance(part, str) and part["svg"] for part in line["parts"]):
            print_page({"lines": [title, line]})


def _usagereport_lines(told: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    measure = "known_usd" if any(line["known_usd"] for line in told["lines"]) else "total"
    most = max((line[measure] for line in told["lines"]), default=0)
    for line in told["lines"]:
        yield _usagereport_line(_name(line), line, bar(line[measure], most))
    if told["rest"]:
        yield _usagereport_line(f"{told['rest']['number']} others", told["rest"], "")
    yield _usagereport_line("together", told["together"], "")


def _usagereport_line(what: str, line: Mapping[str, Any], drawn: str) -> tuple[str, ...]:
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
@click.option("--chart", is_flag=True, help="Draw charts: of costs, or of SESSION's context and turns.")
@json_option
@click.pass_context
def usage(context: click.Context, session: str | None, by: str, days: int, chart: bool, as_json: bool) -> None:
    """Print what SESSION cost: each answer, its agents, and the total. Without SESSION, the cost of all sessions.

    Tokens are counted by the provider; input excludes what was read from or written to its cache. Set a price that is
    unknown in config.toml, under [model."NAME"].
    """
    of_session_only(context, session)
    if chart:
        if as_json:
            raise click.UsageError("--chart and --json do not go together")
        print_charts(session, by, days)
        return
    if session is None:
        print_report(by, days, as_json=as_json)
        return
    with daemon() as link:
        told = link.call("usage", branch=str(branch_of(link, session)))
    if as_json:
        print_json(told)
        return
    print_table(_HEAD, _lines(told))
    click.echo(_meter(told["context"]))


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


# ``pyagentd show --trace``: what happened in a session, request by request.

_BUCKETS = (("input", "in"), ("cache_read", "cached"), ("cache_write", "to cache"), ("reasoning", "thought"))


def show_trace(link: DaemonClient, branch: str, *, step: int | None, request: bool, as_json: bool) -> None:
    """Print the trace of a branch, or one request of it.

    Raises:
        NotFound: There is no such request.
    """
    if step is None and not as_json:
        print_page(link.call("report", name="inspect", arguments={"branch": branch}))
        return
    report = _payload(link.call("trace", branch=branch))
    if step is None:
        print_json(report)
        return
    run, found = _found(report, step)
    if not request:
        print_json({"run": run["id"], **found}) if as_json else _say(_step(found))
        return
    sent = link.call("traced-request", branch=branch, run=run["id"], step=found["step"], purpose=found["purpose"])
    if as_json:
        print(_text(sent))
    else:
        print(json.dumps(json.loads(_text(sent)), ensure_ascii=False, indent=2))


def _payload(answer: Mapping[str, Any]) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(_text(answer))
    return payload


def _text(answer: Mapping[str, Any]) -> str:
    # What is too large for a frame comes by path.
    return answer.get("json") or Path(answer["path"]).read_text(encoding="utf-8")


def _found(report: Mapping[str, Any], number: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    for run in report["runs"]:
        for step in run["steps"]:
            if step["number"] == number:
                return run, step
    raise NotFound(f"There is no request {number}", hint="`pyagentd show SESSION --trace` lists them")


def _say(lines: Iterator[tuple[str, bool]]) -> None:
    for line, secondary in lines:
        said = shown(line, sys.stdout)
        print(dim(said, sys.stdout) if secondary else said)


def _step(step: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    at = datetime.fromtimestamp(step["at"] / 1000).astimezone()
    purpose = "" if step["purpose"] == "step" else f" {step['purpose']}"
    sent = (
        "gone" if step["messages"] is None else f"{counted(step['messages'], 'message')}, {step['new_messages']} new"
    )
    end = (step["error"] or {}).get("message") or step["stop_reason"] or "no answer"
    yield f"  #{step['number']}{purpose} {at:%H:%M:%S} {step['model']}: {sent}; {_time(step)}; {end}", False
    if step["usage"]:
        yield f"     {_tokens(step['usage'])}, {_dollars(step['cost_usd'])}", True
    for retry in step["retries"]:
        yield (
            f"     attempt {retry['attempt']} failed: {retry['message']}; again after {retry['delay_s']:.1f} s",
            True,
        )
    for call in step["calls"]:
        took = f", {call['duration_ms']} ms" if call.get("duration_ms") is not None else ""
        what = call.get("error") or call.get("state") or "no result"
        yield f"     • {call['name']}: {what}{took}", True


def _time(step: Mapping[str, Any]) -> str:
    if step["duration_ms"] is None:
        return "no end"
    first = step["first_token_ms"]
    return f"{step['duration_ms']} ms" + (f" ({first} to the first word)" if first is not None else "")


def _tokens(usage: Mapping[str, int]) -> str:
    told = [f"{usage[key]:,} {word}" for key, word in (*_BUCKETS, ("output", "out")) if usage.get(key)]
    return ", ".join(told) or "no tokens"


def _dollars(cost: float | None) -> str:
    return "price unknown" if cost is None else f"${cost:.4f}"
