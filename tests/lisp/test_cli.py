"""``pyagentd lisp`` runs programs from files, stdin and tables."""

import io
import json
from pathlib import Path

import pytest

from pyagentd.cli.app import main


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch):
    def give(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))

    return give


def test_a_program_from_stdin_prints_its_value(stdin, capsys) -> None:
    stdin('(str "a" (+ 1 2))')
    assert main(["lisp"]) == 0
    assert capsys.readouterr().out == '"a3"\n'


def test_a_program_from_a_file_reads_the_context(tmp_path: Path, capsys) -> None:
    program, context = tmp_path / "p.lisp", tmp_path / "c.json"
    program.write_text("(map :n ctx/rows)")
    context.write_text('{"rows": [{"n": 1}, {"n": 2}]}')
    assert main(["lisp", str(program), "--context", str(context)]) == 0
    assert capsys.readouterr().out == "[1 2]\n"


def test_in_a_process_of_its_own(stdin, capsys) -> None:
    stdin("(+ 1 2)")
    assert main(["lisp", "--isolated"]) == 0
    assert capsys.readouterr().out == "3\n"


def test_json_has_the_value_encoded_the_signal_and_the_memory(stdin, capsys) -> None:
    stdin("(memory/put :k :v) (return {:a #{1}})")
    assert main(["lisp", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["value"], told["signal"], told["memory"]) == ({"~:a": {"~#set": [1]}}, "return", {"k": "~:v"})
    assert told["usage"].keys() == {"steps", "cells", "bytes", "duration_ms"}


def test_a_program_that_fails_itself_is_a_failure(stdin, capsys) -> None:
    stdin("(fail :no)")
    assert main(["lisp"]) == 1
    assert capsys.readouterr().out == ":no\n"


def test_an_error_shows_place_line_caret_and_hint(stdin, capsys) -> None:
    stdin("(let [x 1]\n  (fliter x))")
    assert main(["lisp"]) == 1
    assert capsys.readouterr().err == (
        "pyagentd: analysis_error: undefined variable: fliter (line 2, column 4)\n"
        "Did you mean filter?\n"
        "  (fliter x))\n"
        "   ^\n"
    )


def test_an_error_as_json(stdin, capsys) -> None:
    stdin("(inc nil)")
    assert main(["lisp", "--json"]) == 1
    told = json.loads(capsys.readouterr().err)["error"]
    assert (told["code"], told["line"], told["column"]) == ("eval_error", 1, 1)


def test_rows_are_answered_one_by_one(stdin, capsys) -> None:
    rows = [
        {"id": 1, "program": "(+ ctx/a memory/b)", "ctx": {"~:a": 1}, "memory": {"~:b": 2}},
        {"id": 2, "program": '(call "c" {:x 1})', "tools": {"c": {"const": ["~:k"]}}},
        {"id": 3, "program": '(call "e" {:x 1})', "tools": {"e": {"echo": True}}},
        {"id": 4, "program": '(call "none" {})'},
        {"id": 5, "program": "(+ 1"},
    ]
    stdin("\n".join(map(json.dumps, rows)) + "\n\n")
    assert main(["lisp", "--jsonl"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told[:3] == [{"id": 1, "value": 3}, {"id": 2, "value": ["~:k"]}, {"id": 3, "value": {"~:x": 1}}]
    assert [(each["id"], each["error"]) for each in told[3:]] == [(4, "tool_not_found"), (5, "parse_error")]


@pytest.mark.parametrize("bad", ["{", "[1]", '{"id": 7}', '{"program": "1", "ctx": "~x"}', '{"program": 1}'])
def test_a_row_that_is_none_is_an_error_of_its_own(bad: str, stdin, capsys) -> None:
    stdin(f'{bad}\n{{"id": 2, "program": "1"}}\n')
    assert main(["lisp", "--jsonl"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told[0]["error"] == "bad_row" and told[0]["message"]
    assert told[1:] == [{"id": 2, "value": 1}]


@pytest.mark.parametrize("context", ["{", "[1]"])
def test_a_context_that_is_no_object_is_wrong_usage(context: str, tmp_path: Path, stdin, capsys) -> None:
    file = tmp_path / "c.json"
    file.write_text(context)
    stdin("1")
    assert main(["lisp", "--context", str(file)]) == 2
    assert "--context" in capsys.readouterr().err
