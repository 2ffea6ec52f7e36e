"""``pyagentd usage``: the cost of sessions, and how full the model's context window is."""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any

import click

from pyagentd.cli.link import branch_of, complete_session, daemon, json_text, session_link
from pyagentd.cli.output import (
    BUCKETS,
    json_option,
    local_time,
    note,
    price,
    print_json,
    print_page,
    print_table,
    print_view,
)
from pyagentd.errors import NotFound
from pyagentd.wire.client import DaemonClient

_WIDEST_CHART = 120


def print_report(by: str, days: int, *, as_json: bool) -> None:
    """Print the costs of the last ``days`` days (0: all), as JSON or as the list that Emacs shows."""
    with daemon() as link:
        if sys.stdout.isatty() and not as_json:
            print_view(link.call("view", name="usage", arguments={"by": by, "days": days}))
            return
        report = link.call("usage-report", by=by, days=days)
    if as_json:
        print_json(report)
        return
    lines = [(str(line.get("title") or line.get("session_id") or line["key"]), line) for line in report["lines"]]
    if rest := report["rest"]:
        lines.append((f"{rest['number']} others", rest))
    head = (by, "requests", *(bucket.replace("_", " ") for bucket in BUCKETS), "cost")
    rows = [
        (name, str(line["requests"]), *(str(line["tokens"][bucket]) for bucket in BUCKETS), price(line))
        for name, line in [*lines, ("together", report["together"])]
    ]
    print_table(head, rows)
    if report["problem"] or report["indexing"]:
        note(report["problem"] or "not all sessions are counted yet: they are still being read")


def print_charts(session: str | None, by: str, days: int) -> None:
    """Print the costs of the last ``days`` days as a chart, or the charts of a session."""
    width = min(shutil.get_terminal_size().columns, _WIDEST_CHART)
    with daemon() as link:
        if session is None:
            arguments = {"by": by, "days": days, "width": width}
            print_page(link.call("report", name="usage", arguments=arguments))
            return
        page = link.call("report", name="inspect", arguments={"branch": str(branch_of(link, session))})
    charts = [
        [title, line]
        for title, line in pairwise(page["lines"])
        if any(not isinstance(part, str) and part["svg"] for part in line["parts"])
    ]
    for lines in charts:
        print_page({"lines": lines})
    if not charts:
        note("No request was sent in this session, so there is nothing to draw")


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
    """Print the cost of SESSION: each answer, its agents, and the total. Without SESSION, the cost of all sessions.

    Tokens are counted by the provider; input excludes tokens read from or written to its cache. Set an unknown price
    in config.toml, under [model."NAME"].
    """
    given = [name for name in ("by", "days") if context.get_parameter_source(name) is not _DEFAULT]
    if session and given:
        raise click.UsageError(f"--{given[0]} is about all sessions: leave SESSION out")
    if chart:
        if as_json:
            raise click.UsageError("--chart and --json do not go together")
        print_charts(session, by, days)
        return
    if session is None:
        print_report(by, days, as_json=as_json)
        return
    with session_link(session) as (link, branch):
        reply = link.call("usage", branch=branch)
    if as_json:
        print_json(reply)
        return
    print_table(_HEAD, _lines(reply))
    click.echo(_meter(reply["context"]))


def _lines(reply: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for message in reply["messages"]:
        what = "compaction" if message["compaction"] else "answer"
        hidden = " (hidden)" if message["hidden"] else ""
        yield _line(
            f"{local_time(message['created_at'] or 0)} {what}{hidden}",
            message,
            message["model"],
            str(message["steps"]),
        )
    for agent in reply["agents"]:
        yield _line(f"agent {agent['id']}", agent)
    if reply["agents"]:
        yield _line("without agents", reply["own"])
        yield _line("agents", reply["agents_total"])
    yield _line("all together", reply["together"])


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


def show_trace(link: DaemonClient, branch: str, *, step: int | None, request: bool, as_json: bool) -> None:
    """Print the trace of a branch, or one request of it.

    Raises:
        NotFound: There is no such request.
    """
    if not as_json and not request:
        page = link.call("report", name="inspect", arguments={"branch": branch})
        print_page(page if step is None else {"lines": _step_lines(page["lines"], step)})
        return
    trace = json.loads(json_text(link.call("trace", branch=branch)))
    if step is None:
        print_json(trace)
        return
    steps = ((run, each) for run in trace["runs"] for each in run["steps"] if each["number"] == step)
    run, found = next(steps, (None, None))
    if run is None or found is None:
        raise _no_step(step)
    if not request:
        print_json({"run": run["id"], **found})
        return
    sent = link.call("traced-request", branch=branch, run=run["id"], step=found["step"], purpose=found["purpose"])
    if as_json:
        print(json_text(sent))
    else:
        print(json.dumps(json.loads(json_text(sent)), ensure_ascii=False, indent=2))


def _step_lines(lines: Sequence[Mapping[str, Any]], number: int) -> list[Mapping[str, Any]]:
    for at, line in enumerate(lines):
        if line["level"] and re.match(rf"#{number}\b", line["parts"][0]["text"]):
            return [line, *takewhile(lambda below: not below["level"], lines[at + 1 :])]
    raise _no_step(number)


def _no_step(number: int) -> NotFound:
    return NotFound(f"There is no request {number}", hint="`pyagentd show SESSION --trace` lists them")
