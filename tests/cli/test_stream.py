"""What a reader on a terminal sees of the inserts that make the document."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pyagentd.cli.follow import Follower, TextView, Transcript, event_object
from pyagentd.events import Event, InsertRole

Insert = tuple[str, InsertRole]

TOOL: list[Insert] = [
    ('``` tool (Read :file_path "a.md")', "ignore"),
    ('\n(:name "Read" :args (:file_path "a.md"))\n\nsecret body', ("tool", "toolu_1")),
    ("\n```\n", "ignore"),
]
REASONING: list[Insert] = [("``` reasoning\n", "ignore"), ("hm, ", "ignore"), ("yes", "ignore"), ("\n```", "ignore")]
START: Insert = ("\n\n", None)
END: Insert = ("\n\n### ", None)


def shown(*inserts: Insert) -> str:
    transcript = Transcript()
    pieces = [piece for text, role in inserts for piece in transcript.insert(text, role)]
    return "".join(
        f"<{piece.text}>" if piece.style == "dim" else piece.text for piece in [*pieces, *transcript.end()]
    )


@pytest.mark.parametrize(
    ("inserts", "expected"),
    [
        ([START, ("Hello", "response"), (" there", "response"), END], "Hello there\n"),
        ([START, ("done\n", "response"), END], "done\n"),
        ([START, END], ""),
        ([START, *TOOL, ("It says so.", "response"), END], '<• Read :file_path "a.md"\n>\nIt says so.\n'),
        (
            [START, ("Let me look.", "response"), ("\n\n", None), *TOOL, *TOOL, ("Yes.", "response"), END],
            'Let me look.\n<• Read :file_path "a.md"\n><• Read :file_path "a.md"\n>\nYes.\n',
        ),
        ([START, *REASONING, ("\n\n", None), ("42", "response"), END], "<hm, ><yes>\n\n42\n"),
        ([START, ("one", "response"), ("\n\n", None), ("two", "response"), END], "one\n\ntwo\n"),
        ([START, ("half", "response"), ("\n\n", None), ("``` error\nboom\n```", "ignore"), END], "half\n"),
        (
            [
                START,
                ("one", "response"),
                ("\n\n", None),
                ("``` compaction (4 messages)\n## Goal\n```", "ignore"),
                END,
            ],
            "one\n\n<── compacted (4 messages) ──\n>",
        ),
        ([START, ("```\ncode\n```", "response"), END], "```\ncode\n```\n"),
        ([START, ("### heading", "response"), END], "### heading\n"),
    ],
    ids=[
        "text",
        "newline",
        "nothing",
        "tool",
        "tools",
        "reasoning",
        "blocks",
        "error",
        "compaction",
        "code",
        "heading",
    ],
)
def test_the_layout_of_the_document_becomes_what_a_reader_follows(inserts: list[Insert], expected: str) -> None:
    assert shown(*inserts) == expected


def test_a_whole_reasoning_block_in_one_insert_reads_like_its_deltas() -> None:
    whole: Insert = ("``` reasoning\nhm, yes\n```", "ignore")
    assert shown(START, whole, ("\n\n", None), ("42", "response"), END) == "<hm, yes>\n\n42\n"


def test_merged_inserts_read_like_single_ones() -> None:
    # The close of one tool and the head of the next are both "ignore" and may arrive as one.
    (head, body, (close, _)) = TOOL
    merged: Insert = (close + head[0], "ignore")
    assert shown(START, head, body, merged, body, TOOL[2]) == shown(START, *TOOL, *TOOL)


def test_reasoning_that_contains_a_code_block_is_shown_whole() -> None:
    inserts: list[Insert] = [("``` reasoning\nso:\n```\nx = 1\n```\nthus", "ignore"), ("\n```", "ignore")]
    assert shown(START, *inserts, END).replace("><", "") == "<so:\n```\nx = 1\n```\nthus>\n"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Event("insert", "/b", 7, ("hi", "response")), {"text": "hi", "role": "response"}),
        (Event("insert", "/b", 7, ("hi", ("tool", "t1"))), {"text": "hi", "role": ("tool", "t1")}),
        (Event("prompt", "/b", 7, ("do it",)), {"text": "do it"}),
        (Event("run", "/b", 7, ({"id": "r", "phase": "started"},)), {"id": "r", "phase": "started"}),
        (Event("resync", "/b", 7), {}),
    ],
)
def test_an_event_is_an_object_with_its_arguments_by_name(event: Event, expected: dict[str, object]) -> None:
    assert event_object(event) == {"kind": event.kind, "branch": "/b", "seq": 7, **expected}


def test_an_ask_of_an_agent_says_who_asks_and_where_it_is_shown() -> None:
    shown_on_root = event_object(Event("ask", "/root", 0, ({"id": "a", "branch": "/root/agents/x"},)))
    assert shown_on_root["branch"] == "/root/agents/x"
    assert shown_on_root["event_branch"] == "/root"


def test_a_call_whose_outcome_was_told_is_shown_once_and_in_these_words() -> None:
    transcript = Transcript()
    pieces = [
        *transcript.insert("Let me look.", "response"),
        *transcript.tool({"id": "call_1", "summary": "Read a.md → failed: gone"}),
    ]
    pieces += [piece for text, role in [("\n\n", None), *TOOL] for piece in transcript.insert(text, role)]
    pieces += transcript.insert("It is gone.", "response")
    assert "".join(piece.text for piece in pieces) == "Let me look.\n• Read a.md → failed: gone\n\nIt is gone."


class Lossy:
    """A daemon that dropped the end of a run, behind which somebody else's goes on."""

    def __init__(self) -> None:
        self.live = iter([Event("run", "/b", 6, (BEGUN,)), Event("resync", "/b", 6)])

    def events(self, timeout_s: float) -> Iterator[Event]:
        return self.live

    def call(self, method: str, /, **arguments: Any) -> Any:
        if method == "replay":
            assert arguments["after"] == 6
            lost = [["insert", 7, "The answer.", "response"], ["run", 9, json.dumps(ENDED)], ["run", 12, "{}"]]
            return {"events": lost, "seq": 12, "done": True}
        return {"branch": "/b", "seq": 12, "asks": [], "status": {"state": "busy"}}


BEGUN = {"id": "r", "phase": "started", "message_id": "m"}
ENDED = {"id": "r", "phase": "finished", "reason": "aborted", "message": ""}


def test_a_run_whose_end_is_among_the_events_that_were_lost_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    link: Any = Lossy()
    ending = Follower(link, "/b", "r", TextView(), human=False).follow(timeout_s=5)
    assert ending.reason == "aborted"
    assert capsys.readouterr().out == "The answer.\n"
