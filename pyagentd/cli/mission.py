"""``pyagentd mission``: a typed task that the model answers with programs, in its own session."""

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pyagentd import lisp as language
from pyagentd.cli.follow import FollowEnd, Follower, Interrupts, TextView
from pyagentd.cli.link import branch_of, complete_agent, daemon, json_text, run_environment
from pyagentd.cli.output import (
    AmountRange,
    ExitCode,
    asking_options,
    dim,
    json_option,
    note,
    print_json,
    print_reply,
    report,
    strict_option,
    text_for,
    workplace_option,
)
from pyagentd.cli.send import RunFailed, conclude, denied_note, exit_status
from pyagentd.config import load_config
from pyagentd.errors import BadRequest, SignatureError
from pyagentd.events import Event
from pyagentd.lisp import serialization
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.runtime import Tools
from pyagentd.lisp.serialization import decode, encode
from pyagentd.lisp.values import from_python
from pyagentd.mission import Mission, Model
from pyagentd.mission.over import Row, Summary, import_tool, read_items, run_over
from pyagentd.mission.signature import coerce, parse
from pyagentd.mission.signature.types import Map
from pyagentd.wire.client import DaemonClient
from pyagentd.words import printable

_LONGEST = 900_000  # bytes of prompt and context; longer data belongs in a file
_CUT, _LINES = 600, 6  # characters and lines of a result in a trace

_OVER = ("executor", "output", "ordered", "model", "concurrency", "item_cost", "max_cost")
_SESSION = ("context", "preset", "root", "wait", "allow", "headless", "strict", "trace")
_NEW = ("signature", "context", "tools", "preset", "max_turns", "parallel", "root")
"""Parameters for missions over items, for a mission in a session, and for starting a mission."""


@click.command()
@click.argument("prompt", required=False)
@click.option("--signature", "-s", metavar="SIGNATURE", help="The signature of the result, such as '{count :int}'.")
@click.option(
    "--context", metavar="FILE", help="Data for its programs: a .json file, or any other (its text is ctx/text)."
)
@click.option("--tools", metavar="A,B", help="Tools, instead of the preset's; '' for none.")
@click.option("--preset", metavar="PRESET", shell_complete=complete_agent, help="The preset.")
@click.option("--max-turns", type=click.IntRange(1, 20), help="How many programs the model may write.")
@click.option("--parallel", type=click.IntRange(1, 64), help="How many calls of one program run at a time (10).")
@workplace_option
@click.option(
    "--resume",
    metavar="[SESSION]",
    is_flag=False,
    flag_value="",
    help="Resume an interrupted mission instead of giving a PROMPT. With --over: skip the items that --output has.",
)
@click.option("--over", metavar="ITEMS", help="Run it for each line of this JSONL file, without the daemon.")
@click.option(
    "--executor",
    default="threads",
    metavar="WHERE",
    help="With --over: threads, processes or dask://HOST:PORT (default: threads).",
)
@click.option("--output", metavar="FILE", help="With --over: write the results here (default: ITEMS.out.jsonl).")
@click.option("--ordered", is_flag=True, help="With --over: write the results in the order of the items.")
@click.option("--model", metavar="[BACKEND/]MODEL", help="With --over: the model.")
@click.option(
    "--concurrency", type=click.IntRange(1), metavar="N", help="With --over: work on at most N items at a time."
)
@click.option("--item-cost", type=AmountRange(0), metavar="USD", help="With --over: spend at most this on one item.")
@click.option("--max-cost", type=AmountRange(0), metavar="USD", help="With --over: spend at most this on all items.")
@click.option("--wait/--no-wait", default=True, help="Wait until it ends (default), or return at once.")
@asking_options
@strict_option
@click.option("--trace", is_flag=True, help="Show the programs, their calls and their results.")
@json_option
def mission(
    prompt: str | None,
    signature: str | None,
    context: str | None,
    tools: str | None,
    preset: str | None,
    max_turns: int | None,
    parallel: int | None,
    root: Path,
    resume: str | None,
    over: str | None,
    executor: str,
    output: str | None,
    ordered: bool,
    model: str | None,
    concurrency: int | None,
    item_cost: float | None,
    max_cost: float | None,
    wait: bool,
    allow: tuple[str, ...],
    headless: bool,
    strict: bool,
    trace: bool,
    as_json: bool,
) -> int:
    """Run PROMPT as a mission of a model, and print the result.

    The model writes small programs that call the tools; their result is checked against the signature. The mission
    is a session: `pyagentd show` prints it, `--resume` continues one that was stopped. PROMPT "-" is read from stdin.

    With --over it is run once for each line of ITEMS, a JSON object: {{name}} in PROMPT is replaced by the object's
    field of that name, and --tools names Python functions, as MODULE:FUNCTION.
    """
    if over is not None:
        if prompt is None or resume:
            raise click.UsageError("Give a PROMPT with --over; --resume has no SESSION then")
        _refuse(_SESSION, "is for a mission in a session: leave it out with --over")
        limits = {"max_turns": max_turns, "parallel": parallel, "max_cost_usd": item_cost}
        made = _mission_over(prompt, signature, tools, model, {k: v for k, v in limits.items() if v is not None})
        place = Path(output or f"{over}.out.jsonl")
        how = {"executor": executor, "ordered": ordered, "max_concurrency": concurrency, "max_cost_usd": max_cost}
        return _run_over(made, over, place, resume=resume is not None, as_json=as_json, **how)
    if (prompt is None) == (resume is None):
        raise click.UsageError("Give a PROMPT, or --resume SESSION")
    _refuse(_OVER, "is for a mission over items: leave it out, or give --over")
    if resume is not None:
        _refuse(_NEW, "is for a new mission: leave it out with --resume")
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
        "parallel": parallel,
        "root": str(root.resolve()),
    }
    if resume is None:
        _check(wishes, as_json)
    with daemon(human=human) as link, Interrupts() as interrupts:
        env = run_environment(os.environ)
        about: dict[str, Any] = {"env": env, "allow": allow}
        if resume is not None:
            begun = link.call("mission-resume", branch=str(branch_of(link, resume)), **about)
        else:
            begun = link.call("mission", **wishes, **about)
        if not wait:
            print_json(begun) if as_json else print(begun["session_id"])
            return ExitCode.DONE
        ending, denied = _follow_run(link, begun, human=human, trace=trace and not as_json)
        outcome = _mission_state(link, begun)
    status = _print_json(outcome, begun, ending, trace) if as_json else _print(outcome, begun, ending)
    return exit_status(interrupts, ExitCode.FAILED if strict and denied else status)


def _refuse(names: Collection[str], why: str) -> None:
    """Raise ``UsageError`` if a parameter of ``names`` was given."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if option.name in names and given:
            raise click.UsageError(f"{'/'.join([option.opts[0], *option.secondary_opts])} {why}")


def _mission_over(
    prompt: str, signature: str | None, tools: str | None, model: str | None, limits: Mapping[str, Any]
) -> Mission[Any]:
    """Return the mission to run over items, without the daemon."""
    config = load_config()
    backend, slash, name = (model or "").partition("/")
    if not slash or backend not in config.backends:
        backend, name = config.backend_override or config.default.backend or "anthropic", model or ""
    name = (
        name or config.default.model or config.backend(backend).model or ("offline" if backend == "offline" else "")
    )
    if not name:
        raise click.UsageError("Give --model: the configuration names none")
    named = [each.strip() for each in (tools or "").split(",") if each.strip()]
    for each in named:
        import_tool(each)  # report a wrong name before the first request
    llm = Model(name, backend=backend)
    return Mission(prompt, llm=llm, signature=signature or ":any", tools=named or None, **limits)  # type: ignore[arg-type]


def _run_over(made: Mission[Any], over: str, place: Path, *, resume: bool, as_json: bool, **how: Any) -> ExitCode:
    """Run a mission over the items of a file; show the progress and the outcome."""
    items = read_items(_text_of(over, hint="Give one JSON value on each line"), over)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("items", total=len(items))

        def progress(now: Summary, row: Row | None) -> None:
            description = f"items  {now.failed} failed  ${now.cost_usd:.2f}"
            bar.update(task, completed=now.before + now.done, description=description)

        try:
            came = run_over(made, items, place, resume=resume, progress=progress, **how)
        except KeyboardInterrupt:
            note(f"stopped; the finished items are in {place}: continue with --resume")
            return ExitCode.FAILED
    if as_json:
        print_json({**asdict(came), "output": str(place)})
    else:
        before = f", {came.before} were there" if came.before else ""
        note(f"{came.done} of {came.total} items{before}, {came.failed} failed, ${came.cost_usd:.4f}: {place}")
        if came.stopped:
            note(came.stopped)
    return ExitCode.FAILED if came.failed or came.stopped else ExitCode.DONE


def _check(wishes: Mapping[str, Any], as_json: bool) -> None:
    if not wishes["prompt"].strip():
        raise click.UsageError("PROMPT is empty")
    if len(json.dumps([wishes["prompt"], wishes["context"]]).encode()) > _LONGEST:
        raise BadRequest("Prompt and context are more than 900 kB", hint="Name files for its tools to read instead")
    try:
        parse(wishes["signature"] or ":any")
    except SignatureError as error:
        if not as_json and (caret := error.caret()):
            print(printable(caret), file=sys.stderr)
        raise


def _context(file: str | None) -> str | None:
    """Return the data in a file as a JSON object: an object unchanged, other JSON as ``data``, text as ``text``."""
    if file is None:
        return None
    text = _text_of(file, hint="Give a JSON object, or a file of text")
    try:
        found = json.loads(text)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and Path(file).suffix.lower() == ".json":
            raise BadRequest(f"{file}:{error.lineno}: {error.msg}", hint="Correct the JSON there") from error
        return json.dumps({"text": text})
    except RecursionError:
        raise BadRequest(f"{file} is nested too deeply", hint="Give JSON with fewer levels") from None
    return json.dumps(found if isinstance(found, dict) else {"data": found})


def _text_of(file: str, *, hint: str) -> str:
    """Return the text of a file, or of stdin for "-"."""
    try:
        if file == "-":
            return sys.stdin.buffer.read().decode()
        return Path(os.path.expanduser(file)).read_text("utf-8")  # noqa: PTH111 - Path raises
    except UnicodeDecodeError as error:
        place = f"byte {error.start} is {error.object[error.start]:#04x}"
        raise BadRequest(f"{file} is not text in UTF-8: {place}", hint=f"{hint}, saved as UTF-8") from None


class _Quiet(TextView):
    """Shows the spinner and notices; the answer is printed at the end."""

    def show(self, event: Event) -> None:
        """Show ``event`` if its text goes to stderr: stdout gets only the result."""
        if event.kind not in ("insert", "tool"):
            super().show(event)


class _TurnPrinter(_Quiet):
    """Prints every turn when it has ended."""

    def __init__(self, look: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__()
        self._look = look
        self._printed = 0

    def show(self, event: Event) -> None:
        """Show ``event``, and the turns that have ended."""
        super().show(event)
        if event.kind in ("status", "run"):
            self.catch_up(event.kind == "run" and event.args[0].get("phase") == "finished")

    def catch_up(self, ended: bool) -> None:
        """Print the turns that were not printed yet; the current one only if the mission has ``ended``."""
        turns = self._look().get("turns") or ()
        over = [turn for turn in turns if ended or turn.get("state") in ("done", "failed")]
        for turn in over[self._printed :]:
            self.pause()
            for line, aside in _lines(turn):
                text = text_for(line, sys.stderr)
                print(dim(text, sys.stderr) if aside else text, file=sys.stderr, flush=True)
        self._printed = max(self._printed, len(over))


def _follow_run(link: DaemonClient, begun: Mapping[str, Any], *, human: bool, trace: bool) -> tuple[FollowEnd, bool]:
    """Follow the run; return its end, and whether a call was denied because no human could be asked."""
    if sys.stderr.isatty() or trace:
        note(f"session {begun['session_id']}")
    view = _TurnPrinter(lambda: _mission_state(link, begun)) if trace else _Quiet()
    following = Follower(link, begun["branch"], begun["run"], view, human=human, seq=begun.get("seq"))
    ending = following.catch_up() or following.follow()
    if isinstance(view, _TurnPrinter) and ending.reason in ("done", "error"):  # it may have ended without any event
        view.catch_up(True)
    if view.denied:
        note(denied_note(view.denied))
    return ending, bool(view.denied)


def _mission_state(link: DaemonClient, begun: Mapping[str, Any]) -> dict[str, Any]:
    found = json.loads(json_text(link.call("mission-trace", branch=begun["branch"])))["missions"]
    return next((each for each in found if each["run"] == begun["run"]), {})


def _print_json(outcome: Mapping[str, Any], begun: Mapping[str, Any], ending: FollowEnd, trace: bool) -> ExitCode:
    names = ("ok", "value", "fail", "signature", "usage", "can_resume")
    result = {"ok": False, **{name: outcome.get(name) for name in names}}
    result |= {"ok": bool(outcome.get("ok")), "state": outcome.get("state") or ending.reason}
    if not result["ok"] and result["fail"] is None and ending.message:
        result["fail"] = {"reason": None, "message": ending.message}
    result |= {"session": begun["session_id"], "run": begun["run"]}
    if trace:
        result["turns"] = outcome.get("turns")
    print_json(result)
    return ExitCode.DONE if result["ok"] else ExitCode.FAILED


def _print(outcome: Mapping[str, Any], begun: Mapping[str, Any], ending: FollowEnd) -> ExitCode:
    if outcome.get("ok"):
        value = outcome["value"]
        print(text_for(value if isinstance(value, str) else outcome["text"], sys.stdout))
        return ExitCode.DONE
    if outcome.get("can_resume"):
        note(f"go on with it: pyagentd mission --resume {begun['session_id']}")
    if fail := outcome.get("fail"):
        reason = f"{fail['reason']}: " if fail.get("reason") else ""
        report(RunFailed(f"{reason}{fail.get('message', '')}".strip(), hint=""), as_json=False)
        return ExitCode.FAILED
    return conclude(ending, str(begun["session_id"]), False)


def _lines(turn: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the lines of one turn, and whether each is secondary."""
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
    """Return the beginning of a text without its empty lines."""
    lines = [line for line in text.rstrip().splitlines() if line.strip()]
    shown = "\n".join(lines[:_LINES])
    return shown if shown == "\n".join(lines) and len(shown) <= _CUT else f"{shown[:_CUT]}…"


@click.group()
def signature() -> None:
    """Check signatures of missions and tools."""


# `-> :int` is a signature, not an option.
@signature.command(context_settings={"ignore_unknown_options": True})
@click.argument("signature", metavar="SIGNATURE", required=False)
@click.option(
    "--jsonl", is_flag=True, help='Read rows {"id", "signature", "kind"?, "value"?} from stdin, print one each.'
)
@json_option
def check(signature: str | None, jsonl: bool, as_json: bool) -> int:
    """Print the canonical form of SIGNATURE, and the JSON Schemas of its input and output.

    SIGNATURE is shorthand, "(query :string, limit :int?) -> [{id :int}]", or Malli, "[:map [:id :int]]".
    """
    if jsonl:
        for number, row in _rows_in(sys.stdin, "signature"):
            try:
                if isinstance(row, Exception):
                    raise row
                checked = _check_signature(row)
            except (ValueError, RecursionError) as error:
                raise click.UsageError(f"line {number}: {error}") from error
            print_json({"id": row.get("id"), "signature": row["signature"], **checked})
        return ExitCode.DONE
    if signature is None:
        raise click.UsageError("Missing argument 'SIGNATURE'")
    try:
        read = parse(signature)
    except SignatureError as error:
        place = f"line {error.line}, column {error.column}: " if error.line else ""
        lines = [f"{place}{error.message}", *error.caret().splitlines(), error.hint]
        _print_error(error, error.code, "\n".join(filter(None, lines)), as_json=as_json)
        return ExitCode.FAILED
    schemas = {"input": read.input_schema(), "output": read.output_schema()}
    lines = [read.render()]
    for name, schema in schemas.items():
        lines += ["", f"{name} {json.dumps(schema, ensure_ascii=False, indent=2)}"]
    print_reply({"render": read.render(), **schemas}, text_for("\n".join(lines), sys.stdout), as_json=as_json)
    return ExitCode.DONE


def _print_error(error: SignatureError | LispError, code: str, text: str, *, as_json: bool) -> None:
    """Print an error on stderr: as JSON with its position, or as ``text``."""
    if as_json:
        place = {name: getattr(error, name) for name in ("message", "hint", "line", "column")}
        print(json.dumps({"error": {"code": code, **place}}, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"pyagentd: {text_for(text, sys.stderr)}", file=sys.stderr)


def _rows_in(lines: Iterable[str], wanted: str) -> Iterator[tuple[int, dict[str, Any] | Exception]]:
    """Yield the number and the row of each line, or an error if it is not JSON with the key ``wanted``."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = json.loads(line)
                if not isinstance(row, dict) or wanted not in row:
                    raise ValueError(f'a row needs "{wanted}"')
                yield number, row
            except (ValueError, RecursionError) as error:
                yield number, error


def _check_signature(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the signature of a row, and whether its value is valid or can be coerced."""
    kind = row.get("kind", "output")
    try:
        read = parse(row["signature"])
    except SignatureError as error:
        return {"kind": kind, "parse_ok": False, "valid": False, "parse_error": str(error)}
    found: dict[str, Any] = {"kind": kind, "parse_ok": True, "render": read.render()}
    if "value" not in row:
        return {**found, "valid": True}
    value = decode(row["value"])
    problems = read.validate_input(value) if kind == "input" else read.validate(value)
    made = coerce(Map(read.params) if kind == "input" else read.returns, value)
    errors = [{"path": problem.path, "message": problem.message} for problem in problems]
    found |= {"value": row["value"], "valid": not errors} | ({"errors": errors} if errors else {})
    if made.problems:
        return {**found, "coerce_ok": False, "coerce_error": str(made.problems[0])}
    warnings = [str(each) for each in made.warnings]
    return {**found, "coerce_ok": True, "coerced": encode(made.value), "warnings": warnings}


@click.command()
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
@click.option(
    "--context", type=click.File("r", encoding="utf-8"), help="A JSON file with an object, whose fields are ctx/NAME."
)
@click.option("--isolated", is_flag=True, help="Run it in a separate process.")
@click.option(
    "--jsonl", is_flag=True, help='Read rows {"id", "program", "ctx"?, "memory"?, "tools"?}, print one each.'
)
@json_option
def lisp(file: IO[str], context: IO[str] | None, isolated: bool, jsonl: bool, as_json: bool) -> int:
    """Run the program in FILE ("-", the default, is stdin) and print its value."""
    if jsonl:
        for number, row in _rows_in(file, "program"):
            if isinstance(row, Exception):
                print_json({"id": None, "error": "bad_row", "message": f"line {number}: {row}"})
            else:
                print_json({"id": row.get("id"), **_run_row(row)})
        return ExitCode.DONE
    try:
        result = language.compile(file.read()).run(
            _lisp_context(context), isolation="process" if isolated else "none"
        )
    except language.LispError as error:
        _print_error(error, error.reason, f"{error.reason}: {error.explain()}", as_json=as_json)
        return ExitCode.FAILED
    reply = {  # values in the language's encoding
        "value": encode(result.value),
        "signal": result.signal,
        "memory": encode(result.memory),
        "usage": {**asdict(result.usage), "duration_ms": round(result.usage.duration_ms, 3)},
    }
    print_reply(reply, text_for(serialization.readable(result.value), sys.stdout), as_json=as_json)
    return ExitCode.FAILED if result.signal == "fail" else ExitCode.DONE


def _lisp_context(file: IO[str] | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        data = json.load(file)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{file.name} is not JSON: {error}", param_hint="--context") from error
    if not isinstance(data, dict):
        raise click.BadParameter(f"{file.name} must hold a JSON object", param_hint="--context")
    found: dict[str, Any] = from_python(data)
    return found


def _run_row(row: Mapping[str, Any]) -> dict[str, Any]:
    try:
        context, memory = decode(row.get("ctx") or {}), decode(row.get("memory") or {})
        result = language.run(row["program"], context, memory=memory, tools=_tools(row.get("tools") or {}))
        return {"value": encode(result.value)}
    except language.LispError as error:
        return {"error": error.reason, "message": error.message}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        return {"error": "bad_row", "message": str(error) or "the row cannot be read"}


def _tools(rows: Mapping[str, Any]) -> Tools:
    """Return tools that return a constant, or their arguments."""

    def call(name: str, args: dict[Any, Any]) -> Any:
        if name not in rows:
            known = f"There are: {', '.join(sorted(rows))}." if rows else "There are no tools here."
            raise LispError("tool_not_found", f"unknown tool: {name}", hint=known)
        row = rows[name]
        return decode(row["const"]) if "const" in row else args

    return call
