"""What people read of a call of a tool, wherever calls are listed."""

from typing import Any

import pytest

from pyagentd.tools.spec import brief_count, summary

FILE = {"file_path": "/w/src/main.py"}
AGENT = {"preset": "explorer", "description": "look at presets", "prompt": "Look at them all."}
TODOS = {"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]}


@pytest.mark.parametrize(
    ("name", "args", "how", "line"),
    [
        ("Edit", FILE, {"brief": "+1 −1"}, "Edit src/main.py +1 −1"),
        ("Read", {"file_path": "/elsewhere/a"}, {}, "Read /elsewhere/a"),
        ("Bash", {"command": "make test"}, {"brief": "→ exit 2", "error": "…"}, "Bash make test → exit 2"),
        ("Grep", {"pattern": "foo", "path": "/w/src"}, {"brief": "· 12 matches"}, 'Grep "foo" in src/ · 12 matches'),
        ("Grep", {"pattern": "foo"}, {}, 'Grep "foo"'),
        ("PersistentAgent", AGENT, {"brief": "· done, 4 tools"}, "explorer: look at presets · done, 4 tools"),
        ("TodoWrite", TODOS, {}, "Todo 1 of 2 done"),
        ("Write", FILE, {"denied": "nobody", "error": "x"}, "Write src/main.py → denied, nobody could be asked"),
        ("Write", FILE, {"denied": "user", "error": "x"}, "Write src/main.py → denied by you"),
        ("Read", FILE, {"error": "No such file: x\nmore"}, "Read src/main.py → failed: No such file: x"),
        ("mcp__tracker__find", {"query": "bug"}, {}, "mcp__tracker__find bug"),
        ("Bash", {"command": "for a in *\ndo\n  b\ndone"}, {}, "Bash for a in * do b done"),
        ("Edit", {"wrong": ["shape"]}, {"error": "file_path is missing"}, "Edit → failed: file_path is missing"),
        ("Edit", {"file_path": 7}, {}, "Edit 7"),
    ],
)
def test_a_call_is_one_line(name: str, args: dict[str, Any], how: dict[str, str], line: str) -> None:
    assert summary(name, args, root="/w", **how) == line


def test_a_line_is_short_and_its_outcome_whole() -> None:
    line = summary("Bash", {"command": "echo " + "x" * 500}, brief="→ exit 2")
    assert len(line) <= 100 and line.endswith("… → exit 2")


def test_what_was_found_is_counted() -> None:
    assert brief_count(1, "match", "matches") == "· 1 match"
    assert brief_count(500, "match", "matches", more=True) == "· 500+ matches"
