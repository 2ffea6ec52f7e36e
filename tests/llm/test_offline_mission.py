"""The offline stand-in writes programs that run, and that return what the mission promises."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest

from pyagentd.llm.offline import answer, expression, wants_mission
from pyagentd.mission.delegation import delegate
from pyagentd.mission.options import Request
from pyagentd.mission.signature import parse
from pyagentd.mission.tools import Tool

FILES = {"a.md": "one\ntwo", "b.md": "three"}


def stand_in(request: Request) -> str:
    """What the stand-in says to a request as it reaches it."""
    body: dict[str, Any] = {"system": request["system"], "messages": list(request["messages"])}
    assert wants_mission(body)
    return answer(body)


def read(file_path: str) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(FILES[file_path].split("\n"), 1))


def glob(pattern: str) -> str:
    return "\n".join(name for name in FILES if fnmatch.fnmatch(name, pattern))


TOOLS = {
    "Read": Tool(name="Read", function=read, signature=parse("(file_path :string) -> :string")),
    "Glob": Tool(name="Glob", function=glob, signature=parse("(pattern :string) -> :string")),
    "Bash": Tool(name="Bash", function=lambda args: "hi\n", signature=parse("(command :string) -> :string")),
}


@pytest.mark.parametrize(
    ("signature", "value"),
    [
        ("{files [{path :string, lines :int}], total :int}",
         {"files": [{"path": "a.md", "lines": 2}, {"path": "b.md", "lines": 1}], "total": 3}),
        ("[:string]", ["a.md", "b.md"]),
        (":int", 2),
        ("{many :bool, share :float, first {count :int}}", {"many": True, "share": 2.0, "first": {"count": 2}}),
        ("[{title :string, text :string?}]", [{"title": "a.md", "text": "one"}, {"title": "b.md", "text": "three"}]),
    ],
)  # fmt: skip
def test_it_looks_at_the_files_that_are_named_and_returns_the_type(signature: str, value: Any) -> None:
    step = delegate("What is in *.md?", llm=stand_in, signature=signature, tools=TOOLS)
    assert step.ok, step.fail
    assert step.value == value
    assert len(step.trace) == 2


def test_a_file_without_a_line_is_one_of_those_that_it_looks_at() -> None:
    said = {"a.py": "     1\tx=1", "b.py": "[b.py is empty.]"}
    tools = {
        "Glob": Tool(
            name="Glob", function=lambda args: "a.py\nb.py", signature=parse("(pattern :string) -> :string")
        ),
        "Read": Tool(
            name="Read",
            function=lambda args: said[args["file_path"]],
            signature=parse("(file_path :string) -> :string"),
        ),
    }
    signature = "{files [{path :string, lines :int, text :string}], total :int}"
    step = delegate("How many lines have *.py?", llm=stand_in, signature=signature, tools=tools)
    assert step.ok, step.fail
    assert step.value == {
        "files": [{"path": "a.py", "lines": 1, "text": "x=1"}, {"path": "b.py", "lines": 0, "text": ""}],
        "total": 1,
    }


def test_it_works_on_the_data_that_it_is_given() -> None:
    rows = [{"path": "x", "lines": 3}, {"path": "y", "lines": 4}]
    step = delegate("Count.", llm=stand_in, signature="{total :int, n :int}", context={"rows": rows})
    assert step.ok and step.value == {"total": 7, "n": 2}


def test_it_runs_commands_and_says_what_came_of_them() -> None:
    step = delegate("Run `echo hi`", llm=stand_in, signature=":string", tools=TOOLS)
    assert step.ok and step.value == "hi\n"


def test_it_says_what_it_is_and_gives_up_when_a_program_fails() -> None:
    step = delegate("Tell me.", llm=stand_in, signature=":string")
    assert step.ok and "not a language model" in step.value
    failed = delegate("Read missing.md", llm=stand_in, signature=":string", tools=TOOLS)
    assert not failed.ok and failed.fail is not None and failed.fail.reason == "offline"


@pytest.mark.parametrize("text", ["", "{", "[", "(:int | :nil)", "{a", ":any", "[[:int]]"])
def test_a_type_that_is_not_understood_is_anything(text: str) -> None:
    assert expression(text)


def test_other_requests_are_no_missions() -> None:
    assert not wants_mission({"system": "You are helpful.", "messages": []})
    assert not wants_mission({"system": "# PTC-Lisp", "tools": [{"name": "Read"}]})
