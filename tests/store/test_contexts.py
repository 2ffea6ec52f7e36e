"""Saved conversations: their file, its name, and their table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import NotFound, StoreError
from pyagentd.messages import Message, Reasoning, Text, ToolCall, ToolResult
from pyagentd.store import contexts
from pyagentd.store.contexts import Context
from pyagentd.store.db import agents as table
from pyagentd.store.db.agents import ContextRow
from pyagentd.store.db.state import State

MESSAGES = (
    Message(role="user", parts=(Text(text="Look at the äuth module"),)),
    Message(
        role="assistant",
        parts=(
            Reasoning(text="hm", signature="s"),
            Text(text="I look."),
            ToolCall(id="tc_001", name="Read", input={"path": "src/auth.py"}),
            ToolCall(id="tc_002", name="Bash", input={"command": "ls"}),
        ),
    ),
    Message(
        role="user", parts=(ToolResult(id="tc_001", text="def"), ToolResult(id="tc_002", text="", is_error=True))
    ),
    Message(role="assistant", parts=(Text(text="Done."),)),
)
CONTEXT = Context(
    id="0c1d2e3f-0000-4000-8000-000000000001",
    agent_name="frontend-agent",
    description="Refactored auth module, added JWT validation",
    saved_at="2026-02-12T10:30:00Z",
    trigger="idle_timeout",
    messages=contexts.canonical(MESSAGES),
)


@pytest.mark.spec("003", "Session File Format")
def test_a_file_has_exactly_the_keys_of_the_specification(tmp_path: Path) -> None:
    path = contexts.write(tmp_path / "sessions", CONTEXT)
    assert path.name == "2026-02-12_refactored-auth-module-added-jwt.json"
    assert json.loads(path.read_text()) == {
        "id": CONTEXT.id,
        "agent_name": "frontend-agent",
        "description": "Refactored auth module, added JWT validation",
        "saved_at": "2026-02-12T10:30:00Z",
        "trigger": "idle_timeout",
        "message_count": 5,
        "messages": [
            {"role": "user", "content": "Look at the äuth module"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "tc_001", "name": "Read", "params": {"path": "src/auth.py"}},
                    {"id": "tc_002", "name": "Bash", "params": {"command": "ls"}},
                ],
            },
            {"role": "tool_result", "tool_call_id": "tc_001", "content": "def"},
            {"role": "tool_result", "tool_call_id": "tc_002", "content": ""},
            {"role": "assistant", "content": "Done."},
        ],
    }
    assert path.read_text().startswith('{\n    "id"')


def test_a_file_reads_back_as_the_messages_it_was_made_of(tmp_path: Path) -> None:
    read = contexts.read(contexts.write(tmp_path, CONTEXT))
    assert read == CONTEXT
    back = contexts.messages_of(read.messages)
    assert [message.role for message in back] == ["user", "assistant", "user", "assistant"]
    assert contexts.canonical(back) == CONTEXT.messages


def test_files_of_the_same_name_are_numbered_and_none_is_overwritten(tmp_path: Path) -> None:
    names = [contexts.write(tmp_path, replace(CONTEXT, id=str(number))).name for number in range(3)]
    stem = "2026-02-12_refactored-auth-module-added-jwt"
    assert names == [f"{stem}.json", f"{stem}-2.json", f"{stem}-3.json"]
    assert sorted(contexts.read(path).id for path in tmp_path.iterdir()) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("Initial project setup", "initial-project-setup"),
        ("Äpfel & Birnen!", "apfel-birnen"),
        ("../../etc/passwd", "etc-passwd"),
        ("", "conversation"),
        ("\n\t", "conversation"),
        ("x" * 100, "x" * 40),
        ("word " * 50, "-".join(["word"] * 8)),
    ],
)
def test_a_description_as_part_of_a_file_name(description: str, name: str) -> None:
    assert contexts.slug(description) == name


def test_text_that_is_no_utf8_is_written_as_json_writes_it(tmp_path: Path) -> None:
    entry = {"role": "user", "content": "half \ud83d"}
    path = contexts.write(tmp_path, replace(CONTEXT, messages=(entry,)))
    assert contexts.read(path).messages == (entry,)


@pytest.mark.parametrize(
    "data",
    [
        "no json",
        "[]",
        "{}",
        {"id": "x", "messages": [{"role": "system", "content": "obey"}]},
        {"id": "x", "messages": [{"role": "user", "content": 7}]},
        {"id": "x", "messages": [{"role": "tool_result", "content": "without a call"}]},
        {"id": "x", "messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": ""}]}]},
        {"id": "x", "messages": [{"role": "assistant", "tool_calls": [{"id": "a", "name": "b", "params": [1]}]}]},
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "a.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    with pytest.raises(StoreError, match=str(path)):
        contexts.read(path)
    assert contexts.read_or_none(path) is None


def test_a_result_of_no_call_is_left_out_and_a_missing_file_told(tmp_path: Path) -> None:
    lonely = {"role": "tool_result", "tool_call_id": "gone", "content": "x"}
    path = contexts.write(tmp_path, replace(CONTEXT, messages=(lonely, *CONTEXT.messages)))
    assert contexts.read(path).messages == CONTEXT.messages
    with pytest.raises(NotFound, match="not there any more"):
        contexts.read(tmp_path / "b.json")


def test_the_table_lists_the_last_first_and_finds_by_the_beginning_of_an_id(tmp_path: Path) -> None:
    state = State(tmp_path)
    try:
        for number, id in enumerate(("abc1", "abc2", "def1")):
            row = ContextRow(
                id=id,
                agent_name="other" if id == "def1" else "me",
                description="d",
                saved_at=f"2026-02-1{number}T00:00:00Z",
                message_count=1,
                file_path="/x",
                trigger="manual_save",
                last_seq=number,
            )
            table.put_context(state, row)
        assert [row.id for row in table.of(state, "me")] == ["abc2", "abc1"]
        assert [row.id for row in table.of(state)] == ["def1", "abc2", "abc1"]
        assert [row.id for row in table.find_context(state, "abc")] == ["abc1", "abc2"]
        assert [row.id for row in table.find_context(state, "abc1", "me")] == ["abc1"]
        assert table.find_context(state, "def", "me") == []
    finally:
        state.close()


@pytest.mark.parametrize("saved_at", ["0001-01-01T00:00:00+14:00", "some day"])
def test_a_time_that_no_calendar_has_is_shown_as_it_is(saved_at: str) -> None:
    row = {"id": "x", "agent_name": "a", "description": "d", "saved_at": saved_at, "message_count": 1}
    assert contexts.listing("a", [row]).endswith(f"[x] {saved_at} - d (1 message)")
