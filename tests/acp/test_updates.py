"""Rows of a log as an editor is told them: each character once, however it came."""

from __future__ import annotations

from typing import Any

import pytest

from pyagentd.acp import conversation
from pyagentd.acp.conversation import Updates
from pyagentd.store.journal import Row

ROOT = "/work"


def message(id: str, role: str = "assistant", **metadata: Any) -> Row:
    return Row(1, "message", {"id": id, "role": role, "metadata_json": metadata})


def part(id: str, of: str, type: str, **data: Any) -> Row:
    return Row(1, "part", {"id": id, "message_id": of, "index": 0, "type": type, "data_json": {"type": type, **data}})


def delta(id: str, text: str) -> Row:
    return Row(1, "delta", {"part_id": id, "text": text})


def call(state: str, tool: str = "Bash", **data: Any) -> Row:
    given = {"input": {"command": "ls"}, **data}
    return part(f"p-{tool}", "a", f"tool-{tool}", toolCallId=f"call-{tool}", state=state, **given)


def told(*rows: Row, fold: Updates | None = None) -> list[tuple[str, str]]:
    """Return the kind of each update with its text, or its status."""
    fold = fold or Updates(ROOT)
    found = [update for row in rows for update in fold.feed(row)]
    return [(u.session_update, getattr(getattr(u, "content", None), "text", None) or u.status) for u in found]


def test_a_text_is_told_once_whether_it_came_in_pieces_or_whole() -> None:
    whole = part("p", "a", "text", text="Hello you", state="done")
    streamed = [part("p", "a", "text", text="", state="streaming"), delta("p", "Hel"), delta("p", "lo"), whole]
    said = [("agent_message_chunk", each) for each in ("Hel", "lo", " you")]
    assert told(message("a"), *streamed) == said
    assert told(message("a"), whole, whole) == [("agent_message_chunk", "Hello you")]


def test_reasoning_is_a_thought() -> None:
    rows = [message("a"), part("p", "a", "reasoning", text="", state="streaming"), delta("p", "Hm")]
    assert told(*rows) == [("agent_thought_chunk", "Hm")]


def test_a_call_is_told_when_it_begins_and_when_it_ends() -> None:
    fold = Updates(ROOT)
    rows = [message("a"), call("input-available"), call("input-available"), call("output-available", output="x")]
    begun, ended = [update for row in rows for update in fold.feed(row)]
    assert (begun.session_update, begun.title, begun.status) == ("tool_call", "Bash ls", "in_progress")
    assert (ended.session_update, ended.status) == ("tool_call_update", "completed")
    assert ended.content[0].content.text == "x"


def test_a_call_that_failed_says_why() -> None:
    (update,) = [*Updates(ROOT).feed(call("output-error", errorText="Denied."))]
    assert (update.status, update.content[0].content.text) == ("failed", "Denied.")


def test_a_list_of_steps_is_a_plan_and_no_call() -> None:
    assert told(message("a"), call("output-available", "TodoWrite", output="ok")) == []
    plan = conversation.plan([{"content": "Look", "status": "completed", "active_form": "Looking"}])
    assert [(entry.content, entry.status) for entry in plan.entries] == [("Look", "completed")]


@pytest.mark.parametrize(("own", "shown"), [(True, []), (False, [("user_message_chunk", "Go")])])
def test_what_somebody_else_said_is_told_when_its_turn_comes(own: bool, shown: list[Any]) -> None:
    fold = Updates(ROOT, lambda id: own)
    rows = [message("u", "user"), part("p", "u", "text", text="Go")]
    assert told(*rows, fold=fold) == []
    started = Row(1, "run", {"id": "r", "message_id": "u", "state": "started"})
    assert told(started, fold=fold) == shown
    assert told(started, fold=fold) == []


def canonical(*messages: tuple[Row, list[Row]]) -> dict[str, Any]:
    return {"messages": [{"message": row.data, "parts": [each.data for each in parts]} for row, parts in messages]}


def test_a_session_is_told_as_it_stands_and_goes_on_where_it_is() -> None:
    fold = Updates(ROOT)
    streaming = part("p", "a", "text", text="Hel", state="streaming")
    shown = canonical(
        (message("u0", "user", hidden_at=1), [part("p0", "u0", "text", text="Forget it")]),
        (message("a0", hidden_at=1), [part("p1", "a0", "text", text="Never")]),
        (message("u", "user"), [part("p2", "u", "text", text="Hi")]),
        (message("a"), [streaming]),
        (message("q", "user", queued_at=1), [part("p3", "q", "text", text="Next")]),
    )
    said = [(update.session_update, update.content.text) for update in fold.history(shown)]
    assert said == [("user_message_chunk", "Hi"), ("agent_message_chunk", "Hel")]
    assert told(delta("p", "lo"), fold=fold) == [("agent_message_chunk", "lo")]
    started = Row(9, "run", {"id": "r", "message_id": "q", "state": "started"})
    assert told(started, fold=fold) == [("user_message_chunk", "Next")]


def test_what_a_provider_gave_as_reason_is_kept() -> None:
    fold = Updates(ROOT)
    told(message("a", stop_reason="max_tokens"), fold=fold)
    assert fold.stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("context", "used"),
    [({"used": 5, "window": 10, "cost_usd": 0.5}, (5, 10, 0.5)), ({"used": 5, "window": None}, None)],
)
def test_usage_is_told_as_far_as_it_is_known(context: dict[str, Any], used: Any) -> None:
    update = conversation.usage(context)
    assert (update and (update.used, update.size, update.cost.amount)) == used
