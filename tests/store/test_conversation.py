from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from pyagentd.store.conversation import Conversation
from pyagentd.store.journal import Row
from tests.store.talk import Call, Step, Talk, Turn


def fold(*facts: tuple[str, dict[str, Any]]) -> Conversation:
    return Conversation(Row(seq, type, data) for seq, (type, data) in enumerate(facts, 1))


def message(id: str, role: str = "user", **metadata: Any) -> tuple[str, dict[str, Any]]:
    return "message", {
        "id": id,
        "session_id": "s",
        "role": role,
        "metadata_json": metadata,
        "created_at": 1,
        "updated_at": 2,
    }


def text(
    id: str, message_id: str, content: str, *, index: int = 0, state: str = "done"
) -> tuple[str, dict[str, Any]]:
    return "part", {
        "id": id,
        "message_id": message_id,
        "session_id": "s",
        "index": index,
        "type": "text",
        "data_json": {"type": "text", "text": content, "state": state},
        "created_at": 1,
        "updated_at": 2,
    }


def run(id: str, message_id: str, state: str) -> tuple[str, dict[str, Any]]:
    return "run", {"id": id, "message_id": message_id, "state": state}


def test_the_last_row_of_an_id_wins() -> None:
    conversation = fold(message("m"), text("p", "m", "old"), text("p", "m", "new"), message("m", model="x"))
    assert conversation.messages["m"].text == "new"
    assert conversation.messages["m"].row["metadata_json"] == {"model": "x"}


def test_parts_stand_in_order_of_their_index() -> None:
    conversation = fold(message("m"), text("b", "m", "2", index=1), text("a", "m", "1", index=0))
    assert [part.id for part in conversation.messages["m"].parts] == ["a", "b"]


def test_a_part_that_was_streaming_when_the_log_ended_has_its_text() -> None:
    conversation = fold(
        message("m", "assistant"),
        text("p", "m", "", state="streaming"),
        ("delta", {"part_id": "p", "text": "He"}),
        ("delta", {"part_id": "p", "text": "y"}),
    )
    assert conversation.parts["p"].text == "Hey"
    assert conversation.canonical()["messages"][0]["parts"][0]["data_json"]["text"] == "Hey"


def test_the_full_row_supersedes_the_deltas() -> None:
    conversation = fold(
        message("m", "assistant"),
        text("p", "m", "", state="streaming"),
        ("delta", {"part_id": "p", "text": "He"}),
        text("p", "m", "Hey"),
    )
    assert conversation.parts["p"].text == "Hey"
    assert not conversation.parts["p"].deltas


def test_a_queued_message_moves_behind_the_answers_it_waited_for() -> None:
    conversation = fold(
        message("one"), message("queued"), message("answer", "assistant"), run("r", "queued", "started")
    )
    assert list(conversation.messages) == ["one", "answer", "queued"]


def test_asking_again_moves_nothing() -> None:
    conversation = fold(
        message("one"),
        run("r1", "one", "started"),
        message("answer", "assistant"),
        run("r1", "one", "finished"),
        run("r2", "one", "started"),
    )
    assert list(conversation.messages) == ["one", "answer"]


def test_a_run_knows_its_rows_and_its_end() -> None:
    facts = [message("m"), run("r", "m", "started"), run("r", "m", "finished"), run("r", "m", "kept")]
    states = [fold(*facts[:count]).last_run for count in range(1, 5)]
    assert states[0] is None
    assert [(s.first_seq, s.last_seq, s.is_finished, s.is_kept) for s in states if s] == [
        (2, 0, False, False),
        (2, 3, True, False),
        (2, 3, True, True),
    ]


def test_edits_hide_change_and_restore() -> None:
    facts = [message("m"), text("p", "m", "old"), message("a", "assistant"), text("q", "a", "answer")]
    edited = fold(*facts, ("edit", {"message_id": "m", "text": "new"}), ("edit", {"part_id": "q", "hidden": True}))
    assert edited.messages["m"].text == "new"
    assert edited.parts["q"].hidden
    shown = edited.canonical()["messages"]
    assert shown[0]["parts"][0]["data_json"]["text"] == "new"
    assert shown[1]["parts"][0]["data_json"]["metadata"] == {"hidden": True}
    restored = fold(*facts, ("edit", {"part_id": "q", "hidden": True}), ("edit", {"part_id": "q"}))
    assert not restored.parts["q"].hidden


def test_edits_of_a_long_answer_cost_one_copy_of_it_and_leave_the_record_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = [message("a", "assistant"), *(text(f"p{n}", "a", f"text {n}", index=n) for n in range(50))]
    recorded, copies = fold(*facts), list[Any]()
    monkeypatch.setattr("pyagentd.store.conversation.copy", lambda of: copies.append(of) or copy(of))
    edited = recorded.with_edits([{"part_id": f"p{n}", "hidden": True} for n in range(50)])
    assert all(part.hidden for part in edited.messages["a"].parts)
    assert not any(part.hidden for part in recorded.parts.values())
    assert len(copies) < 60


def test_the_canonical_form_holds_the_rows_of_the_tables() -> None:
    talk = Talk([Turn(prompt="Count", steps=(Step(texts=("Yes.",), calls=(Call(input={"command": "ls"}),)),))])
    canonical = talk.conversation.canonical()
    assert set(canonical) == {"session", "messages"}
    rows = [entry["message"] for entry in canonical["messages"]]
    assert [set(row) for row in rows] == [
        {"id", "session_id", "role", "metadata_json", "created_at", "updated_at"}
    ] * 2
    parts = canonical["messages"][1]["parts"]
    assert [part["type"] for part in parts] == ["step-start", "text", "tool-Bash"]
    assert [part["index"] for part in parts] == [0, 1, 2]
    assert parts[2]["tool_state"] == "output-available"
    assert parts[2]["data_json"]["output"] == "done"


def test_rows_of_later_versions_change_nothing() -> None:
    assert fold(("novelty", {"id": "x"}), message("m")).canonical()["messages"][0]["message"]["id"] == "m"
