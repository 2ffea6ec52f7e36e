"""Tool calls as editors show them."""

from __future__ import annotations

from typing import Any

import pytest

from pyagentd.acp import conversation

ROOT = "/work"


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "title", "place"),
    [
        ("Read", {"file_path": "/work/a.txt", "offset": 3}, "read", "Read a.txt", ("/work/a.txt", 3)),
        ("Read", {"file_path": "src/a.txt"}, "read", "Read src/a.txt", ("/work/src/a.txt", None)),
        ("Write", {"file_path": "/tmp/b", "content": "x"}, "edit", "Write /tmp/b", ("/tmp/b", None)),
        ("Grep", {"pattern": "a\n b"}, "search", 'Grep "a b"', None),
        (
            "Bash",
            {"command": "make " + "x" * 200, "description": "Build"},
            "execute",
            "Bash make " + "x" * 88 + "…",
            None,
        ),
        ("WebFetch", {"url": "https://x"}, "fetch", "WebFetch https://x", None),
        ("tracker_open", {"number": 1}, "other", "tracker_open 1", None),
        ("Bash", "no object", "execute", "Bash", None),
    ],
)
def test_a_call_has_a_title_a_kind_and_a_place(tool: str, arguments: Any, kind: str, title: str, place: Any) -> None:
    data = {"type": f"tool-{tool}", "toolCallId": "c", "state": "input-available", "input": arguments}
    update = conversation.call_update(data, ROOT, is_new=True)
    assert (update.kind, update.title, update.status) == (kind, title, "in_progress")
    assert [(each.path, each.line) for each in update.locations] == ([place] if place else [])


@pytest.mark.parametrize(
    ("tool", "arguments", "change"),
    [
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}, ("/work/a", "x", "y")),
        ("Write", {"file_path": "/b", "content": "z"}, ("/b", None, "z")),
        ("Read", {"file_path": "/b"}, None),
    ],
)
def test_a_change_is_shown_as_one(tool: str, arguments: dict[str, str], change: Any) -> None:
    found = [(each.path, each.old_text, each.new_text) for each in conversation.changes(tool, arguments, ROOT)]
    assert found == ([change] if change else [])


def test_a_long_result_is_cut_and_says_so() -> None:
    data = {"type": "tool-Bash", "toolCallId": "c", "state": "output-available", "output": "x" * 20_005}
    (content,) = conversation.result(data)
    assert content.content.text.endswith("x\n… 5 more characters")
