"""``pyagentd mission``: a typed task, answered by programs, as a session of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyagentd.cli.link import branch_of, complete_agent, daemon, run_environment, watch
from pyagentd.cli.options import asking_options, workplace_option
from pyagentd.cli.outcome import ExitCode, report
from pyagentd.cli.output import dim, json_option, note, print_json, printable, shown
from pyagentd.cli.send import RunFailed, conclude, denied_told
from pyagentd.errors import BadRequest
from pyagentd.events import Event

if TYPE_CHECKING:
    from pyagentd.cli.follow import Ending
    from pyagentd.cli.views import View
    from pyagentd.wire.client import DaemonClient

_LONGEST = 900_000  # bytes of prompt and context; a call to the daemon holds 1 MiB
_CUT, _LINES = 600, 6  # characters and lines of a result in a trace


@click.command()
@click.argument("prompt", required=False)
@click.option("--signature", "-s", metavar="SIGNATURE", help="The signature of the result, such as '{count :int}'.")
@click.option(
    "--context", metavar="FILE", help="Data for its programs: a JSON object, or any file (its text is ctx/text)."
)
@click.option("--tools", metavar="A,B", help="Tools, instead of the preset's; '' for none.")
@click.option("--preset", metavar="PRESET", shell_complete=complete_agent, help="The preset.")
@click.option("--max-turns", type=click.IntRange(1, 20), help="How many programs the model may write.")
@workplace_option
@click.option("--resume", metavar="SESSION", help="Resume an interrupted mission instead of giving a PROMPT.")
@click.option("--wait/--no-wait", default=True, help="Wait until it ends (default), or return at once.")
@asking_options
@click.option("--trace", is_flag=True, help="Show the programs, their calls and their results.")
@json_option
def mission(
    prompt: str | None,
    signature: str | None,
    context: str | None,
    tools: str | None,
    preset: str | None,
    max_turns: int | None,
    root: Path,
    resume: str | None,
    wait: bool,
    allow: tuple[str, ...],
    headless: bool,
    trace: bool,
    as_json: bool,
) -> int:
    """Fulfil PROMPT, and print the value that comes back.

    A model writes small programs that call the tools; what they return is checked against the signature. The mission
    is a session: `pyagentd show` has all of it, `--resume` goes on with one that was stopped. PROMPT "-" is read
    from stdin.
    """
    if (prompt is None) == (resume is None):
        raise click.UsageError("Give a PROMPT, or --resume SESSION")
    if prompt == context == "-":
        raise click.UsageError("PROMPT and --context cannot both be read from stdin")
    if signature is not None and not signature.strip():
        raise click.UsageError("--signature is empty; leave it out for any value")
    human = sys.stdin.isatty() and sys.stdout.isatty() and not headless and not as_json
    wishes: dict[str, Any] = {
        "prompt": sys.stdin.read() if prompt == "-" else prompt,
        "signature": signature,
        "context": _context(context),
        "tools": [name.strip() for name in (tools or "").split(",") if name.strip()],
        "no_tools": tools is not None and not tools.strip(", "),
        "preset": preset,
        "max_turns": max_turns,
        "root": str(root.resolve()),
    }
    if resume is None:
        _check(wishes, as_json)
    with daemon(human=human) as link:
        env, key = run_environment(os.environ)
        about: dict[str, Any] = {"env": env, "key": key, "allow": allow}
        if resume is not None:
            begun = link.call("mission-resume", branch=str(branch_of(link, resume)), **about)
        else:
            begun = link.call("mission", **wishes, **about)
        if not wait:
            print_json({**begun, "queued": bool(begun["queued"])}) if as_json else print(begun["session_id"])
            return ExitCode.DONE
        ending = _followed(link, begun, human=human, trace=trace and not as_json)
        told = _told(link, begun)
    if as_json:
        return _print_json(told, begun, ending, trace)
    return _print(told, begun, ending)


def _check(wishes: Mapping[str, Any], as_json: bool) -> None:
    from pyagentd.mission.signature import SignatureError, parse

    if not wishes["prompt"].strip():
        raise click.UsageError("PROMPT is empty")
    if len(json.dumps([wishes["prompt"], wishes["context"]]).encode()) > _LONGEST:
        raise BadRequest("Prompt and context are more than 900 kB", mend="Name files for its tools to read instead")
    try:
        parse(wishes["signature"] or ":any")
    except SignatureError as error:
        if not as_json and (caret := error.caret()):
            print(printable(caret), file=sys.stderr)
        raise


def _context(file: str | None) -> str | None:
    """Return the data in a file as a JSON object: an object as it is, other JSON as ``data``, text as ``text``."""
    if file is None:
        return None
    if file == "-":
        text = sys.stdin.read()
    else:
        try:
            text = Path(file).expanduser().read_text("utf-8")
        except UnicodeDecodeError:
            raise BadRequest(f"{file} is no text", mend="Give a JSON object, or a file of text") from None
    try:
        found = json.loads(text)
    except ValueError:
        return json.dumps({"text": text})
    return json.dumps(found if isinstance(found, dict) else {"data": found})


class _Quiet:
    """Shows what the wait is for, and notices; the answer comes at the end."""

    def __init__(self) -> None:
        from pyagentd.cli.views import TextView

        self._view: View = TextView()
        self.denied: list[Mapping[str, Any]] = []

    def show(self, event: Event) -> None:
        """Show ``event`` unless it is part of the document."""
        if event.kind == "denied":
            self.denied.append(event.args[0])
        if event.kind not in ("insert", "prompt", "tool"):
            self._view.show(event)

    def idle(self) -> None:
        """Show progress."""
        self._view.idle()

    def pause(self) -> None:
        """Leave the terminal to somebody else."""
        self._view.pause()


class _Tracing(_Quiet):
    """Prints every turn when it is over."""

    def __init__(self, look: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__()
        self._look = look
        self._printed = 0

    def show(self, event: Event) -> None:
        """Show ``event``, and the turns that are over by then."""
        super().show(event)
        if event.kind in ("status", "run"):
            self.catch_up(event.kind == "run" and event.args[0].get("phase") == "finished")

    def catch_up(self, ended: bool) -> None:
        """Print the turns that were not printed yet; the one that goes on only when all has ``ended``."""
        turns = self._look().get("turns") or ()
        over = [turn for turn in turns if ended or turn.get("state") in ("done", "failed")]
        for turn in over[self._printed :]:
            self.pause()
            for line, aside in _lines(turn):
                text = shown(line, sys.stderr)
                print(dim(text, sys.stderr) if aside else text, file=sys.stderr, flush=True)
        self._printed = max(self._printed, len(over))


def _followed(link: DaemonClient, begun: Mapping[str, Any], *, human: bool, trace: bool) -> Ending:
    """Follow the run to its end."""
    from pyagentd.cli.follow import Ending, Follower

    state = watch(link, Path(begun["branch_dir"]))
    if sys.stderr.isatty() or trace:
        note(f"session {begun['session_id']}")
    tracing = _Tracing(lambda: _told(link, begun)) if trace else None
    if state["status"]["state"] in ("idle", "error"):  # it was faster than we
        if tracing is not None:
            tracing.catch_up(True)
        failed = state["status"]["state"] == "error"
        return Ending("error", str(state["status"].get("message") or "")) if failed else Ending("done")
    view, asks = tracing or _Quiet(), state.get("asks") or ()
    ending = Follower(link, state["branch"], begun["run"], view, human=human, asks=asks).follow(None)
    if view.denied:
        note(denied_told(view.denied))
    return ending


def _told(link: DaemonClient, begun: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the daemon knows of the mission."""
    answer = link.call("mission-trace", branch=begun["branch"])
    text = answer.get("json") or Path(answer["path"]).read_text("utf-8")
    found = json.loads(text)["missions"]
    return next((each for each in found if each["run"] == begun["run"]), {})


def _print_json(told: Mapping[str, Any], begun: Mapping[str, Any], ending: Ending, trace: bool) -> ExitCode:
    names = ("ok", "value", "fail", "signature", "usage", "can_resume")
    said = {"ok": False, **{name: told.get(name) for name in names}}
    said |= {"ok": bool(told.get("ok")), "state": told.get("state") or ending.reason}
    if not said["ok"] and said["fail"] is None and ending.message:
        said["fail"] = {"reason": None, "message": ending.message}
    said |= {"session": begun["session_id"], "run": begun["run"]}
    if trace:
        said["turns"] = told.get("turns")
    print_json(said)
    return ExitCode.DONE if said["ok"] else ExitCode.FAILED


def _print(told: Mapping[str, Any], begun: Mapping[str, Any], ending: Ending) -> int:
    if told.get("ok"):
        value = told["value"]
        print(shown(value if isinstance(value, str) else told["text"], sys.stdout))
        return ExitCode.DONE
    if told.get("can_resume"):
        note(f"go on with it: pyagentd mission --resume {begun['session_id']}")
    if fail := told.get("fail"):
        reason = f"{fail['reason']}: " if fail.get("reason") else ""
        report(RunFailed(f"{reason}{fail.get('message', '')}".strip(), mend=""), as_json=False)
        return ExitCode.FAILED
    return conclude(ending, str(begun["session_id"]), False)


def _lines(turn: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the lines of one turn, and whether each is an aside."""
    yield f"turn {turn['number']}{_spent(turn)}", False
    yield from ((f"  ; {line}", True) for line in (turn["said"] or "").splitlines())
    yield from ((f"  {line}", False) for line in (turn["program"] or "(no program)").splitlines())
    for call in turn["calls"]:
        yield f"  → {call['name']} {_cut(json.dumps(call['input'], ensure_ascii=False))}{_took(call)}", True
        yield from ((f"    {line}", True) for line in _cut(call["result"] or "").splitlines())
    yield from ((f"  = {line}", True) for line in _cut(turn["result"] or "").splitlines())


def _spent(turn: Mapping[str, Any]) -> str:
    usage = turn.get("usage")
    if not usage:
        return ""
    return f"  ({usage['input'] + usage['cache_read'] + usage['cache_write']} in, {usage['output']} out)"


def _took(call: Mapping[str, Any]) -> str:
    failed = " failed" if call["state"] == "failed" else ""
    return f"{failed} ({call['duration_ms']} ms)" if call["duration_ms"] is not None else failed


def _cut(text: str) -> str:
    """Return the beginning of a text, no line of which is empty."""
    lines = [line for line in text.rstrip().splitlines() if line.strip()]
    shown = "\n".join(lines[:_LINES])
    return shown if shown == "\n".join(lines) and len(shown) <= _CUT else f"{shown[:_CUT]}…"
