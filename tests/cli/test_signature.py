"""``pyagentd signature check``: one signature for people, rows of them for programs."""

import io
import json

import pytest

from pyagentd.cli import main
from pyagentd.cli.output import ExitCode


def test_prints_the_canonical_form_and_both_schemas(capsys):
    assert main(["signature", "check", "(query :string n :int?) -> [{:id :int}]"]) == ExitCode.DONE
    rendered, _, *schemas = capsys.readouterr().out.splitlines()
    assert rendered == "(query :string, n :int?) -> [{id :int}]"
    taken, given = "\n".join(schemas).removeprefix("input ").split("\n\noutput ")
    assert json.loads(taken)["required"] == ["query"]
    assert json.loads(given)["type"] == "array"


def test_json_is_one_line(capsys):
    assert main(["signature", "check", "{count :int}", "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == {
        "render": "() -> {count :int}",
        "input": {"type": "object", "properties": {}},
        "output": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
    }


def test_a_signature_may_begin_with_an_arrow(capsys):
    assert main(["signature", "check", "-> :int"]) == ExitCode.DONE
    assert capsys.readouterr().out.startswith("() -> :int\n")


def test_an_error_shows_the_place_and_the_hint(capsys):
    assert main(["signature", "check", "{id :integer}"]) == ExitCode.FAILED
    assert capsys.readouterr().err.splitlines() == [
        "pyagentd: line 1, column 5: `:integer` is not a type",
        "{id :integer}",
        "    ^",
        "Did you mean `:int`?",
    ]


def test_an_error_as_json(capsys):
    assert main(["signature", "check", "{id :integer}", "--json"]) == ExitCode.FAILED
    assert json.loads(capsys.readouterr().err)["error"] == {
        "code": "signature-error",
        "message": "`:integer` is not a type",
        "hint": "Did you mean `:int`?",
        "line": 1,
        "column": 5,
    }


def test_a_signature_is_needed(capsys):
    assert main(["signature", "check"]) == ExitCode.USAGE
    assert "SIGNATURE" in capsys.readouterr().err


ROWS = [
    (
        {"id": "a", "signature": "{n :int}", "value": {"~:n": "5"}},
        {
            "kind": "output",
            "parse_ok": True,
            "render": "() -> {n :int}",
            "value": {"~:n": "5"},
            "valid": False,
            "errors": [{"path": "n", "message": "expected int, got string"}],
            "coerce_ok": True,
            "coerced": {"~:n": 5},
            "warnings": ["[n]: coerced string to integer"],
        },
    ),
    (
        {"id": "b", "signature": "(n :int) -> :any", "kind": "input", "value": {"m": 1}},
        {
            "kind": "input",
            "parse_ok": True,
            "render": "(n :int) -> :any",
            "value": {"m": 1},
            "valid": False,
            "errors": [{"path": "n", "message": "missing required field, expected int"}],
            "coerce_ok": False,
            "coerce_error": "[n]: missing required field, expected int",
        },
    ),
    (
        {"id": "c", "signature": ":int", "kind": "parse"},
        {"kind": "parse", "parse_ok": True, "render": "() -> :int", "valid": True},
    ),
    (
        {"id": "d", "signature": ["~", 1], "kind": "parse"},
        {"kind": "parse", "parse_ok": False, "valid": False},
    ),
]


def test_rows_come_back_checked(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n".join(json.dumps(row) for row, _ in ROWS)))
    assert main(["signature", "check", "--jsonl"]) == ExitCode.DONE
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found.pop(3).pop("parse_error")
    expected = [{"id": row["id"], "signature": row["signature"], **wanted} for row, wanted in ROWS]
    assert found == expected[:3]


@pytest.mark.parametrize("line", ["{", "[]", '{"id": 1}', '{"signature": ":any", "value": "~x"}'])
def test_a_row_that_is_none_is_wrong_usage_with_its_line(line, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"\n{line}\n"))
    assert main(["signature", "check", "--jsonl"]) == ExitCode.USAGE
    assert "line 2" in capsys.readouterr().err
