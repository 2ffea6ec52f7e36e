"""``pyagentd show --trace``: what happened in a session, request by request."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.cli.output import dim, print_json, shown
from pyagentd.errors import NotFound

if TYPE_CHECKING:
    from pyagentd.wire.client import DaemonClient

_BUCKETS = (("input", "in"), ("cache_read", "cached"), ("cache_write", "to cache"), ("reasoning", "thought"))


def show_trace(link: DaemonClient, branch: str, *, step: int | None, request: bool, as_json: bool) -> None:
    """Print the trace of a branch, or one request of it.

    Raises:
        NotFound: There is no such request.
    """
    report = _payload(link.call("trace", branch=branch))
    if step is None:
        print_json(report) if as_json else _say(_report(report))
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
    raise NotFound(f"There is no request {number}", mend="`pyagentd show SESSION --trace` lists them")


def _say(lines: Iterator[tuple[str, bool]]) -> None:
    for line, secondary in lines:
        said = shown(line, sys.stdout)
        print(dim(said, sys.stdout) if secondary else said)


def _report(report: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    session, usage = report["session"], report["usage"] or {}
    yield f"{session['session_id']}/{session['branch_name']}  {session['title'] or ''}".rstrip(), False
    yield f"  model {session['model'] or '(the backend chooses)'}, backend {session['backend']}", False
    if own := usage.get("own"):
        yield f"  spent {_tokens(own['tokens'])}, {_dollars(own.get('cost_usd'))}", False
    yield f"  system prompt of {len(report['system']):,} characters; tools: {_names(report['tools'])}", False
    permissions = report["permissions"]
    profile = permissions["profile"]
    name = profile.get("name") if isinstance(profile, Mapping) else profile
    yield f"  profile {name or '(none)'}, {len(permissions['grants'])} grants", False
    for run in report["runs"]:
        yield "", False
        yield from _run(run)


def _run(run: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    marks = [
        *([f"by {run['trigger'].get('source')}"] if run.get("trigger") else []),
        *([f"as {run['agent']}"] if run.get("agent") else []),
        *(["taken back"] if run.get("hidden") else []),
    ]
    prompt = " ".join(str(run.get("prompt") or "(beside the conversation)").split())
    end = run.get("reason") or ("" if run["message_id"] is None else "goes on")
    more = f" ({', '.join(marks)})" if marks else ""
    yield f"{run['id']}  {end}{more}", False
    yield f"  › {prompt}", False
    for step in run["steps"]:
        yield from _step(step)
    for decision in run["decisions"]:
        by = f" by {decision['by']}" if decision["by"] else ""
        yield f"  {decision['decision']}: {decision['action']} ({decision['rule']}{by})", True
    if error := run.get("error"):
        yield f"  ! {error['message']}", False


def _step(step: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    at = datetime.fromtimestamp(step["at"] / 1000).astimezone()
    purpose = "" if step["purpose"] == "step" else f" {step['purpose']}"
    sent = "gone" if step["messages"] is None else f"{step['messages']} messages, {step['new_messages']} new"
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


def _names(tools: list[Mapping[str, Any]]) -> str:
    return ", ".join(str(tool["name"]) for tool in tools) or "none"
