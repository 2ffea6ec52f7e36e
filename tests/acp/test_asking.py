"""Questions of the daemon as requests for permission."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from acp import schema

from pyagentd.acp import conversation as asking
from pyagentd.acp.conversation import available
from pyagentd.runtime.approvals import client_fields

BRANCH, ROOT = "/s/branches/main", "/work"


def ask(**fields: Any) -> dict[str, Any]:
    given = {"tool": "Bash", "action": "tool:Bash:ls", "detail": "ls", "reason": "Bash asks", "kind": "tool"}
    more = {
        "choices": ["allow", "session", "always", "deny", "abort"],
        "remember": ["tool:Bash:ls"],
        "tool_call_id": "c",
    }
    row = {"id": "ask_1", "branch": BRANCH, **given, **more, "input": json.dumps({"command": "ls"}), **fields}
    return {**row, **client_fields(row)}


def test_an_approval_has_the_answers_that_the_daemon_takes() -> None:
    call, options = asking.approval(ask(), BRANCH, ROOT)
    assert (call.tool_call_id, call.title, call.kind, call.status) == ("c", "Bash ls", "execute", "pending")
    assert [(option.option_id, option.name) for option in options] == [
        ("allow", "Allow once"),
        ("session", "Allow in this session: tool:Bash:ls"),
        ("always", "Always allow in this project: tool:Bash:ls"),
        ("deny", "Deny"),
        ("abort", "Deny and stop"),
    ]
    assert "Allow Bash ls?" in call.content[0].content.text


def test_a_change_is_approved_by_its_diff() -> None:
    edit = {"file_path": "a", "old_string": "x", "new_string": "y"}
    call, _ = asking.approval(ask(tool="Edit", input=json.dumps(edit)), BRANCH, ROOT)
    assert (call.content[0].type, call.content[0].path) == ("diff", "/work/a")
    assert call.content[1].content.text == "Bash asks"


def test_what_is_asked_about_each_time_has_no_always() -> None:
    _, options = asking.approval(ask(choices=["allow", "deny"], remember=[]), BRANCH, ROOT)
    assert [option.kind for option in options] == ["allow_once", "reject_once"]


def test_an_approval_can_end_the_turn() -> None:
    _, options = asking.approval(ask(choices=["allow", "deny", "abort"], remember=[]), BRANCH, ROOT)
    stop = options[-1]
    assert (stop.option_id, stop.name, stop.kind) == ("abort", "Deny and stop", "reject_once")


def test_an_agents_ask_is_shown_under_its_name_and_at_no_call_of_ours() -> None:
    call, _ = asking.approval(ask(branch=f"{BRANCH}/agents/x", agent="explore"), BRANCH, ROOT)
    assert (call.tool_call_id, call.title) == ("ask:ask_1", "explore: Bash ls")


def test_questions_are_asked_as_choices() -> None:
    asked = [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}, {"question": "Why?"}]
    given = ask(kind="question", questions=asked)
    (first, options), (second, words) = asking.questions(given, BRANCH)
    assert [first.title, second.title] == ["Which?", "Why?"] and first.tool_call_id != second.tool_call_id
    assert [option.name for option in options] == ["A", "B", "In my next message"]
    assert [option.option_id for option in words] == [asking.LATER]


async def test_what_is_chosen_is_the_models_answer() -> None:
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    class Daemon:
        async def call(self, method: str, **arguments: Any) -> None:
            told.put_nowait(arguments)

    class Editor:
        async def request_permission(self, **request: Any) -> schema.RequestPermissionResponse:
            return schema.RequestPermissionResponse(
                outcome=schema.AllowedOutcome(outcome="selected", option_id=request["options"][1].option_id)
            )

    asked = [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]
    asker = asking.Asker("s", cast(Any, Daemon()), cast(Any, Editor()))
    asker.ask(ask(kind="question", questions=asked), branch=BRANCH, root=ROOT)
    assert await told.get() == {"ask": "ask_1", "decision": "answer", "answers": '[["B"]]'}


def test_commands_of_two_words_are_completed_as_one() -> None:
    found = [
        {"name": "status", "summary": "What it does", "synopsis": "/status [AGENT]"},
        {"name": "context save", "summary": "Save", "synopsis": "/context save [SUMMARY]"},
        {"name": "context clear", "summary": "Clear", "synopsis": "/context clear"},
        {"name": "help", "summary": "Help", "synopsis": "/help"},
    ]
    told = [
        (each.name, each.description, each.input and each.input.root.hint)
        for each in available(found).available_commands
    ]
    assert told == [
        ("status", "What it does", "[AGENT]"),
        ("context", "Save; Clear", "save|clear"),
        ("help", "Help", None),
    ]
