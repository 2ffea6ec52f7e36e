"""Conversations of other programs come in with roles and tool calls, and go out as others read them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyagentd.errors import BadRequest
from pyagentd.store.export.export import Source, export_text
from pyagentd.store.export.importing import adopt_chat, read_chat
from tests.store.talk import Step, Talk, Turn

Said = list[tuple[str, str]]


def facts_of(path: Path) -> tuple[Any, ...]:
    """Return the rows that the file at ``path`` becomes."""
    return adopt_chat(read_chat(path), session_id="s", now_ms=1).facts


def said(path: Path) -> Said:
    """Return who said what, as the log has it: roles with texts, tools with input and output."""
    rows = facts_of(path)
    roles = {data["id"]: data["role"] for kind, data in rows if kind == "message"}
    result: Said = []
    for kind, data in rows:
        if kind != "part" or data["data_json"]["type"] == "step-start":
            continue
        part = data["data_json"]
        if part["type"].startswith("tool-"):
            result.append((part["type"], f"{json.dumps(part['input'])} -> {part['output']}"))
        else:
            who = roles[data["message_id"]] if part["type"] == "text" else part["type"]
            result.append((who, part["text"]))
    return result


def write(path: Path, *rows: object) -> Path:
    """Write JSON lines."""
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


CONVERSATION: Said = [
    ("user", "What does parse do?\n\n- briefly"),
    ("reasoning", "I should read it."),
    ("assistant", "I read the file."),
    ("tool-Read", '{"file_path": "parser.py"} -> def parse(line):\n    return line.split()'),
    ("tool-Bash", '{"command": "make test"} -> Error: exit status 2'),
    ("assistant", "It splits a line:\n\n```python\nparse('a b')\n```"),
    ("user", "Thanks"),
    ("assistant", "You are welcome."),
]


def claude_code(path: Path) -> Path:
    """A session as Claude Code writes it: one block a line, results in the user's lines."""

    def row(id: str, parent: str | None, role: str, content: object, **more: object) -> dict[str, object]:
        message = {"role": role, "content": content}
        return {"type": role, "uuid": id, "parentUuid": parent, "message": message, "sessionId": "x", **more}

    calls = [
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "parser.py"}},
        {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"command": "make test"}},
    ]
    output = [{"type": "text", "text": "def parse(line):\n    return line.split()"}]
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": output},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "exit status 2", "is_error": True},
    ]
    return write(
        path,
        {"type": "summary", "summary": "Parsing", "leafUuid": "i"},
        row("a", None, "user", CONVERSATION[0][1]),
        row("m", "a", "user", "<caveat>", isMeta=True),
        row("b", "a", "assistant", [{"type": "thinking", "thinking": "I should read it.", "signature": "…"}]),
        row("c", "b", "assistant", [{"type": "text", "text": "I read the file."}]),
        row("d", "c", "assistant", [calls[0]]),
        row("e", "d", "assistant", [calls[1]]),
        row("f", "d", "user", [results[0]]),
        row("g", "e", "user", [results[1]]),
        row("side", None, "assistant", [{"type": "text", "text": "of a sub-agent"}], isSidechain=True),
        row("h", "g", "assistant", [{"type": "text", "text": CONVERSATION[5][1]}]),
        "half a line {",
        row("old", "h", "user", "A prompt that was taken back"),
        row("old2", "old", "assistant", [{"type": "text", "text": "and its answer"}]),
        row("i", "h", "user", [{"type": "text", "text": "Thanks"}]),
        row("j", "i", "assistant", [{"type": "text", "text": "You are welcome."}]),
    )


def opencode_messages() -> list[dict[str, Any]]:
    """The same as opencode has it."""
    tools = [
        {"type": "tool", "callID": "c1", "tool": "Read", "state": {"status": "completed", "title": "x"}},
        {"type": "tool", "callID": "c2", "tool": "Bash", "state": {"status": "error", "error": "exit status 2"}},
    ]
    tools[0]["state"] |= {"input": {"file_path": "parser.py"}, "output": "def parse(line):\n    return line.split()"}
    tools[1]["state"] |= {"input": {"command": "make test"}}

    def message(id: str, role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"info": {"id": id, "role": role}, "parts": list(parts)}

    def text(words: str, **more: Any) -> dict[str, Any]:
        return {"type": "text", "text": words, **more}

    return [
        message("msg_1", "user", text(CONVERSATION[0][1]), text("<file>", synthetic=True)),
        message(
            "msg_2",
            "assistant",
            {"type": "step-start"},
            {"type": "reasoning", "text": "I should read it."},
            text("I read the file."),
            *tools,
            {"type": "step-finish", "cost": 0},
            text(CONVERSATION[5][1]),
        ),
        message("msg_3", "user", text("Thanks")),
        message("msg_4", "assistant", text("You are welcome.")),
    ]


def opencode_export(path: Path) -> Path:
    """What `opencode export` writes."""
    return write(path, {"info": {"id": "ses_1", "title": "Parsing"}, "messages": opencode_messages()})


def opencode_storage(path: Path) -> Path:
    """A session in opencode's directory: a file for each message and part."""
    storage = path.parent / "storage"
    for message in opencode_messages():
        id = message["info"]["id"]
        (storage / "message/ses_1").mkdir(parents=True, exist_ok=True)
        (storage / "message/ses_1" / f"{id}.json").write_text(json.dumps(message["info"]))
        (storage / "part" / id).mkdir(parents=True)
        for number, part in enumerate(message["parts"]):
            (storage / "part" / id / f"prt_{number}.json").write_text(json.dumps(part))
    (storage / "session/project").mkdir(parents=True)
    return write(storage / "session/project/ses_1.json", {"id": "ses_1", "title": "Parsing"})


def protocol(path: Path) -> Path:
    """Notifications of the protocol, texts in chunks."""

    def update(kind: str, **more: object) -> dict[str, object]:
        params = {"sessionId": "s", "update": {"sessionUpdate": kind, **more}}
        return {"jsonrpc": "2.0", "method": "session/update", "params": params}

    def chunk(kind: str, text: str) -> list[dict[str, object]]:
        halves = (text[: len(text) // 2], text[len(text) // 2 :])
        return [update(kind, content={"type": "text", "text": half}) for half in halves]

    def call(id: str, title: str, input: object, status: str, output: str) -> list[dict[str, object]]:
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        return [
            update("tool_call", toolCallId=id, title=title, rawInput=input, status="pending"),
            update("tool_call_update", toolCallId=id, status=status, content=content),
        ]

    return write(
        path,
        *chunk("user_message_chunk", CONVERSATION[0][1]),
        *chunk("agent_thought_chunk", "I should read it."),
        *chunk("agent_message_chunk", "I read the file."),
        *call("c1", "Read", {"file_path": "parser.py"}, "completed", "def parse(line):\n    return line.split()"),
        *call("c2", "Bash", {"command": "make test"}, "failed", "exit status 2"),
        *chunk("agent_message_chunk", CONVERSATION[5][1]),
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "session/prompt",
            "params": {"prompt": [{"type": "text", "text": "Thanks"}]},
        },
        *chunk("agent_message_chunk", "You are welcome."),
    )


SOURCES = {
    "claude-code": (claude_code, "x.jsonl"),
    "opencode": (opencode_export, "x.json"),
    "opencode-storage": (opencode_storage, "x.json"),
    "protocol": (protocol, "x.jsonl"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_roles_and_tool_calls_come_in(tmp_path: Path, name: str) -> None:
    make, file = SOURCES[name]
    assert said(make(tmp_path / file)) == CONVERSATION


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    notes = " ".join(read_chat(claude_code(tmp_path / "x.jsonl")).notes)
    assert "1 lines are not JSON" in notes and "3 lines of sub-agents" in notes


def test_a_transcript_of_agent_shell_comes_in(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text("""# Agent Shell Transcript

**Agent:** Claude
**Started:** 2026-05-04 12:21:32
**Working Directory:** /repo/

---

## User (2026-05-04 12:21:32)

What is here?

### not a speaker

## Agent's Thoughts (2026-05-04 12:21:34)

Let me look.

### Tool Call [completed]: ls /repo

**Tool:** execute
**Timestamp:** 2026-05-04 12:21:36
**Command:** ls /repo

````
```
a.py
```
````


## Agent (2026-05-04 12:21:40)

One file, `a.py`.
""")
    assert said(path) == [
        ("user", "What is here?\n\n### not a speaker"),
        ("reasoning", "Let me look."),
        ("tool-execute", '{"title": "ls /repo", "command": "ls /repo"} -> ```\na.py\n```'),
        ("assistant", "One file, `a.py`."),
    ]


def prompt(text: str) -> dict[str, Any]:
    return {"method": "session/prompt", "params": {"prompt": [{"type": "text", "text": text}]}}


def test_chunks_of_the_protocol_keep_their_newlines_and_prompts_stay_apart(tmp_path: Path) -> None:
    chunks = ["First.", "\n\n", "- one\n", "- two\n", "\n```\n", "a\n", "b\n```\n"]
    updates = [{"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": each}} for each in chunks]
    rows = [{"method": "session/update", "params": {"update": update}} for update in updates]
    path = write(tmp_path / "x.jsonl", prompt("Hi"), prompt("Are you there?"), *rows)
    assert said(path) == [
        ("user", "Hi\n\nAre you there?"),
        ("assistant", "First.\n\n- one\n- two\n\n```\na\nb\n```"),
    ]


def test_texts_that_follow_each_other_go_out_apart(tmp_path: Path) -> None:
    made = Talk([Turn(prompt="Hi", steps=(Step(texts=("One.",)), Step(texts=("Two.",))))])
    out = tmp_path / "out.jsonl"
    source = Source(session_id="s", document=made.document, conversation=made.conversation)
    out.write_text(export_text(source, "acp").text)
    assert said(out) == [("user", "Hi"), ("assistant", "One.\n\nTwo.")]


def test_a_line_ends_with_a_newline_only_and_words_are_no_keys(tmp_path: Path) -> None:
    spoken = ["What is sessionUpdate?\u2028And\u0085this?", "A notification."]
    rows = [
        {"type": role, "uuid": str(number), "message": {"role": role, "content": text}}
        for number, (role, text) in enumerate(zip(("user", "assistant"), spoken, strict=True))
    ]
    path = write(tmp_path / "x.jsonl", *(json.dumps(row, ensure_ascii=False) for row in rows), "[" * 200_000)
    assert said(path) == [("user", spoken[0]), ("assistant", spoken[1])]
    assert read_chat(path).notes == ("1 lines are not JSON and were left out",)


def test_what_goes_out_as_lines_of_the_protocol_comes_in_again(tmp_path: Path) -> None:
    chat = read_chat(claude_code(tmp_path / "x.jsonl"))
    from_document = Source(session_id="s", document=chat.document, conversation=conversation_of(chat))
    out = tmp_path / "out.jsonl"
    out.write_text(export_text(from_document, "acp").text)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["method"] for row in rows} == {"session/update"}
    assert said(out) == CONVERSATION


def conversation_of(chat: Any) -> Any:
    """Return the log that an imported chat has."""
    from pyagentd.store.conversation import Conversation
    from pyagentd.store.journal import Row

    made = Conversation()
    for number, (kind, data) in enumerate(adopt_chat(chat, session_id="s", now_ms=1).facts, 1):
        made.apply(Row(number, kind, data))
    return made


@pytest.mark.parametrize(
    ("name", "text"), [("x.json", "{"), ("x.json", "[]"), ("x.jsonl", "{}\n"), ("x.json", '{"id": "../../etc"}')]
)
def test_a_file_without_a_conversation_says_what_to_name(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadRequest) as caught:
        read_chat(tmp_path / name)
    assert "opencode" in caught.value.hint


def test_what_has_another_form_than_its_program_writes_keeps_nothing_else_out(tmp_path: Path) -> None:
    def row(content: object, **more: object) -> dict[str, object]:
        return {"type": "user", "message": {"content": content}, **more}

    path = write(
        tmp_path / "x.jsonl",
        row("Hi", uuid=["a"], parentUuid={}),
        row([{"type": "tool_result", "tool_use_id": ["x"], "content": "odd"}]),
        row([{"type": "tool_use", "id": "c", "name": "Read", "input": {"limit": float("inf")}}]),
        '{"type": "user", "message": ' + '{"content": ' * 400 + "1" + "}" * 401,
        {"type": "assistant", "message": {"content": "Hello"}},
    )
    assert said(path) == [("user", "Hi"), ("assistant", "Hello")]
    assert read_chat(path).notes == ("2 lines are not JSON and were left out",)

    text = {"type": "text", "text": "Hi"}
    messages = [{"info": [1], "parts": 5}, "odd", {"info": "user", "parts": [text]}, *opencode_messages()]
    path = write(tmp_path / "x.json", {"messages": messages})
    assert said(path) == [("assistant", "Hi"), *CONVERSATION]
