"""``pyagentd lisp``: run a program of the mission language here, without a daemon."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any

import click

from pyagentd.cli.outcome import ExitCode
from pyagentd.cli.output import json_option, print_json, shown

if TYPE_CHECKING:
    from pyagentd.lisp.errors import LispError
    from pyagentd.lisp.run import Result, Tools


@click.command()
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@click.option(
    "--context", type=click.File("r", encoding="utf-8"), help="A JSON file with an object: what ctx/name reads."
)
@click.option("--isolated", is_flag=True, help="Run it in a process of its own.")
@click.option(
    "--jsonl", is_flag=True, help='Read rows {"id", "program", "ctx"?, "memory"?, "tools"?}, print one each.'
)
@json_option
def lisp(file: IO[str], context: IO[str] | None, isolated: bool, jsonl: bool, as_json: bool) -> int:
    """Run the program in FILE ("-", the default, is stdin) and print its value."""
    # Loaded here: every other command would pay for it too.
    from pyagentd import lisp as language
    from pyagentd.lisp import printing

    if jsonl:
        _run_rows(file)
        return ExitCode.DONE
    try:
        result = language.compile(file.read()).run(_context(context), isolation="process" if isolated else "none")
    except language.LispError as error:
        _report(error, as_json=as_json)
        return ExitCode.FAILED
    if as_json:
        print_json(_described(result))
    else:
        click.echo(shown(printing.readable(result.value), sys.stdout))
    return ExitCode.FAILED if result.signal == "fail" else ExitCode.DONE


def _context(file: IO[str] | None) -> dict[str, Any]:
    from pyagentd.lisp.values import from_python

    if file is None:
        return {}
    try:
        data = json.load(file)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{file.name} is no JSON: {error}", param_hint="--context") from error
    if not isinstance(data, dict):
        raise click.BadParameter(f"{file.name} must hold a JSON object", param_hint="--context")
    found: dict[str, Any] = from_python(data)
    return found


def _described(result: Result) -> dict[str, Any]:
    """Return a result as JSON, values in the language's encoding."""
    from pyagentd.lisp.encoding import encode

    usage = result.usage
    return {
        "value": encode(result.value),
        "signal": result.signal,
        "memory": encode(result.memory),
        "usage": {
            "steps": usage.steps,
            "cells": usage.cells,
            "bytes": usage.bytes,
            "duration_ms": round(usage.duration_ms, 3),
        },
    }


def _report(error: LispError, *, as_json: bool) -> None:
    """Print an error on stderr: reason, place, the line with a caret, and the mend."""
    if as_json:
        print(json.dumps({"error": _error(error)}, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"pyagentd: {error.reason}: {shown(error.explain(), sys.stderr)}", file=sys.stderr)


def _error(error: LispError) -> dict[str, Any]:
    return {
        "code": error.reason,
        "message": error.message,
        "hint": error.hint,
        "line": error.line,
        "column": error.column,
    }


def _run_rows(lines: Iterable[str]) -> None:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("program"), str):
                raise ValueError('a row needs "program"')
        except (ValueError, RecursionError) as error:
            print_json({"id": None, "error": "bad_row", "message": f"line {number}: {error}"})
            continue
        print_json({"id": row.get("id"), **_run_row(row)})


def _run_row(row: Mapping[str, Any]) -> dict[str, Any]:
    from pyagentd import lisp as language
    from pyagentd.lisp.encoding import decode, encode

    try:
        context, memory = decode(row.get("ctx") or {}), decode(row.get("memory") or {})
        result = language.run(row["program"], context, memory=memory, tools=_tools(row.get("tools") or {}))
        return {"value": encode(result.value)}
    except language.LispError as error:
        return {"error": error.reason, "message": error.message}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        return {"error": "bad_row", "message": str(error) or "the row cannot be read"}


def _tools(rows: Mapping[str, Any]) -> Tools:
    """Return tools that give a constant, or back what they were called with."""
    from pyagentd.lisp.encoding import decode
    from pyagentd.lisp.errors import LispError

    def call(name: str, args: dict[Any, Any]) -> Any:
        if name not in rows:
            known = f"There are: {', '.join(sorted(rows))}." if rows else "There are no tools here."
            raise LispError("tool_not_found", f"unknown tool: {name}", hint=known)
        row = rows[name]
        return decode(row["const"]) if "const" in row else args

    return call
