"""``pyagentd signature``: what a signature of a mission or tool means, without a daemon."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from pyagentd.cli.outcome import ExitCode
from pyagentd.cli.output import json_option, print_json, shown
from pyagentd.errors import SignatureError

if TYPE_CHECKING:
    from pyagentd.mission.signature import Coerced, Problem, Signature


@click.group()
def signature() -> None:
    """Look at signatures of missions and tools."""


# `-> :int` is a signature, and no option.
@signature.command(context_settings={"ignore_unknown_options": True})
@click.argument("signature", metavar="SIGNATURE", required=False)
@click.option(
    "--jsonl", is_flag=True, help='Read rows {"id", "signature", "kind"?, "value"?} from stdin, print one each.'
)
@json_option
def check(signature: str | None, jsonl: bool, as_json: bool) -> int:
    """Print the canonical form of SIGNATURE and the JSON Schema of what it takes and gives.

    SIGNATURE is shorthand, "(query :string, limit :int?) -> [{id :int}]", or Malli, "[:map [:id :int]]".
    """
    # Loaded here: every other command would pay for it too.
    from pyagentd.mission.signature import parse

    if jsonl:
        _check_rows(sys.stdin)
        return ExitCode.DONE
    if signature is None:
        raise click.UsageError("Missing argument 'SIGNATURE'")
    try:
        read = parse(signature)
    except SignatureError as error:
        _report(error, as_json=as_json)
        return ExitCode.FAILED
    if as_json:
        print_json({"render": read.render(), "input": read.input_schema(), "output": read.output_schema()})
    else:
        _print(read)
    return ExitCode.DONE


def _print(read: Signature) -> None:
    lines = [read.render()]
    schemas = {"input": read.input_schema(), "output": read.output_schema()}
    for name, schema in schemas.items():
        lines += ["", f"{name} {json.dumps(schema, ensure_ascii=False, indent=2)}"]
    click.echo(shown("\n".join(lines), sys.stdout))


def _report(error: SignatureError, *, as_json: bool) -> None:
    """Print an error on stderr: what, where, the line with a caret, and the mend."""
    if as_json:
        said = {"code": error.code, "message": error.message, "mend": error.mend}
        place = {"line": error.line, "column": error.column}
        print(json.dumps({"error": {**said, **place}}, ensure_ascii=False), file=sys.stderr)
        return
    place_text = f"line {error.line}, column {error.column}: " if error.line else ""
    lines = [f"pyagentd: {place_text}{error.message}", *error.caret().splitlines(), error.mend]
    print(shown("\n".join(line for line in lines if line), sys.stderr), file=sys.stderr)


def _check_rows(lines: Iterable[str]) -> None:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or "signature" not in row:
                raise ValueError('a row needs "signature"')
            checked = _checked(row)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"line {number}: {error}") from error
        print_json({"id": row.get("id"), "signature": row["signature"], **checked})


def _checked(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row's signature is, and whether its value fits or can be made to."""
    from pyagentd.lisp.encoding import decode
    from pyagentd.mission.signature import coerced, parse
    from pyagentd.mission.signature.types import Map

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
    made = coerced(Map(read.params) if kind == "input" else read.returns, value)
    return {**found, "value": row["value"], **_validity(problems), **_coercion(made)}


def _validity(problems: tuple[Problem, ...]) -> dict[str, Any]:
    errors = [{"path": problem.path, "message": problem.message} for problem in problems]
    return {"valid": not errors, "errors": errors} if errors else {"valid": True}


def _coercion(made: Coerced) -> dict[str, Any]:
    from pyagentd.lisp.encoding import encode

    if made.problems:
        return {"coerce_ok": False, "coerce_error": str(made.problems[0])}
    return {"coerce_ok": True, "coerced": encode(made.value), "warnings": [str(one) for one in made.warnings]}
