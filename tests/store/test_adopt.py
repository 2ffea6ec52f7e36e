"""What only the document knows becomes rows, and then document and log agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import adopt as adopting
from pyagentd.store.document.adopt import Adoption
from pyagentd.store.document.reconcile import align, recognise
from pyagentd.store.document.text import Document, Span, format_file, gptel_messages, parse
from pyagentd.store.journal import Row
from tests.store.talk import Call, Step, Talk, Turn, assert_valid, talks

TALK = [
    Turn(
        prompt="How many files?",
        steps=(
            Step(reasoning="Count them.", texts=("Checking.",), calls=(Call(input={"command": "ls"}, result="7\n"),)),
            Step(texts=("Seven.",)),
        ),
    ),
    Turn(prompt="Sure?", steps=(Step(texts=("Yes.",)),)),
]


def adopt(document: Document, conversation: Conversation | None = None, **options: Any) -> Adoption:
    conversation = conversation or Conversation()
    return adopting.adopt(recognise(document, conversation), conversation, session_id="s", now_ms=1, **options)


def after(made: Adoption, rows: Iterable[Row] = ()) -> Conversation:
    """The conversation with the adopted rows in its log."""
    known = list(rows)
    return Conversation([*known, *(Row(len(known) + n, kind, data) for n, (kind, data) in enumerate(made.facts, 1))])


def plain(view: Iterable[Message]) -> list[tuple[str, list[Any]]]:
    """A view as gptel would send it: trimmed, without reasoning, ids by their order."""
    ids: dict[str, int] = {}

    def of(part: Part) -> Any:
        match part:
            case Text():
                return part.text.strip(" \t\r\n")
            case ToolCall():
                return ("call", ids.setdefault(part.id, len(ids)), part.name, part.input)
            case ToolResult():
                return ("result", ids.setdefault(part.id, len(ids)), part.text.strip(" \t\r\n"))
        return None

    return [(m.role, [of(p) for p in m.parts if not isinstance(p, Reasoning)]) for m in view]


def merged(messages: Iterable[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    """gptel's messages in the same form, neighbours of one role joined."""
    ids: dict[str, int] = {}
    result: list[tuple[str, list[Any]]] = []
    for message in messages:
        content = message["content"]
        parts: list[Any] = [content] if isinstance(content, str) else []
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_use":
                parts.append(("call", ids.setdefault(block["id"], len(ids)), block["name"], block["input"]))
            else:
                parts.append(("result", ids.setdefault(block["tool_use_id"], len(ids)), block["content"]))
        if result and result[-1][0] == message["role"]:
            result[-1][1].extend(parts)
        else:
            result.append((message["role"], parts))
    return result


def assert_agree(made: Adoption, rows: Iterable[Row] = ()) -> Conversation:
    """Every piece of the document is recorded as it stands there, but for the draft."""
    conversation = after(made, rows)
    aligned = align(made.document, conversation)
    assert aligned.edits == () and aligned.spans is None
    alignment = recognise(made.document, conversation)
    document, pieces = alignment.document, alignment.pieces
    assert document == made.document
    answers = [number for number, piece in enumerate(pieces) if piece.found.key[0] != "user"]
    for piece in pieces[: answers[-1] + 1 if answers else 0]:
        assert piece.message is not None, piece
    assert_valid(aligned.view)
    return conversation


class TestLostLog:
    def test_a_conversation_is_recorded_again_from_its_document(self) -> None:
        talk = Talk(TALK)
        made = adopt(talk.document)
        conversation = assert_agree(made)
        assert [(m.role, [p.type for p in m.parts]) for m in conversation.messages.values()] == [
            ("user", ["text"]),
            ("assistant", ["step-start", "reasoning", "text", "tool-Bash", "step-start", "text"]),
            ("user", ["text"]),
            ("assistant", ["step-start", "text"]),
        ]
        (tool,) = [part for part in conversation.parts.values() if part.is_tool]
        assert (tool.data["input"], tool.result) == ({"command": "ls"}, ("7\n", False))
        assert made.document == talk.document and made.notes == ()

    def test_adopting_twice_adds_nothing(self) -> None:
        made = adopt(Talk(TALK).document)
        assert adopt(made.document, after(made)).facts == ()

    def test_a_draft_is_no_message_unless_asked_for(self) -> None:
        talk = Talk(TALK)
        talk.type("And now?")
        made = adopt(talk.document)
        assert "And now?" not in str(made.facts)
        assert align(made.document, after(made)).new_prompt == "And now?"
        last = after(adopt(talk.document, draft=True))
        *_, message = last.messages.values()
        assert (message.text, message.row["metadata_json"]) == ("And now?", {"origin": "draft"})

    @given(talks)
    def test_document_and_log_agree_and_the_model_sees_what_gptel_sends(self, turns: list[Turn]) -> None:
        document = parse(format_file(Talk(turns).document))
        made = adopt(document)
        conversation = assert_agree(made)
        view = align(made.document, conversation).view
        alone = align(made.document, Conversation()).view
        assert plain(view) == plain(alone)

    @given(st.lists(st.sampled_from(TALK), min_size=1, max_size=4))
    def test_the_view_is_gptels_up_to_merging(self, turns: list[Turn]) -> None:
        document = Talk(turns).document
        made = adopt(document)
        view = align(made.document, after(made)).view
        assert plain(view) == merged(gptel_messages(format_file(document)))


class TestOtherLogs:
    def test_a_log_of_another_branch_stays_and_all_of_the_document_joins_it(self) -> None:
        other = Talk([Turn(prompt="Elsewhere", steps=(Step(texts=("Indeed.",)),))])
        made = adopt(Talk(TALK).document, other.conversation)
        conversation = after(made, other.rows)
        aligned = align(made.document, conversation)
        assert {edit.get("hidden") for edit in aligned.edits} == {True}, "what is not in the document is hidden"
        assert plain(aligned.view) == merged(gptel_messages(format_file(made.document)))

    def test_turns_that_gptel_added_behind_ours_are_adopted_alone(self) -> None:
        talk = Talk(TALK[:1])
        body = talk.document.body
        more = "And then?\n\nThat was it.\n\n### "
        start = len(body) + more.index("That")
        spans = (*talk.document.spans, Span(start, start + len("That was it."), "response"))
        made = adopt(replace(talk.document, body=body + more, spans=spans), talk.conversation)
        assert [data["role"] for kind, data in made.facts if kind == "message"] == ["user", "assistant"]
        assert_agree(made, talk.rows)

    def test_an_edited_answer_stays_an_edit(self) -> None:
        talk = Talk(TALK)
        body = talk.document.body.replace("Seven.", "Eight.")
        assert adopt(replace(talk.document, body=body), talk.conversation).facts == ()

    def test_lost_roles_are_recovered_before_anything_is_adopted(self) -> None:
        talk = Talk(TALK)
        made = adopt(replace(talk.document, spans=()), talk.conversation)
        assert made.facts == () and made.document.spans == talk.document.spans

    @given(talks, talks)
    def test_nothing_that_is_recorded_is_recorded_again(self, turns: list[Turn], more: list[Turn]) -> None:
        talk = Talk(turns)
        rows = list(talk.rows)
        for turn in more:
            talk.play(turn)
        # The document goes on, the log does not.
        made = adopt(talk.document, Conversation(rows))
        before = {part.data.get("toolCallId") for part in Conversation(rows).parts.values() if part.is_tool}
        added = [data["tool_call_id"] for kind, data in made.facts if "tool_call_id" in data]
        assert len(added) == len(set(added)) and before.isdisjoint(added)
        conversation = after(made, rows)
        assert_valid(align(made.document, conversation).view)


def gptel(body: str, *spans: tuple[str, str, str]) -> Document:
    """A document; each span is the text it covers, searched from where the last one ended, its kind and id."""
    found, position = [], 0
    for text, kind, call_id in spans:
        start = body.index(text, position)
        position = start + len(text)
        found.append(Span(start, position, kind, call_id))  # type: ignore[arg-type]
    return Document(body=body, spans=tuple(found))


def one_call(call: str, call_id: str) -> Document:
    """A document with one tool block and an answer behind it."""
    return gptel(
        f"### Go\n\n``` tool (Bash)\n{call}\n```\nDone.\n\n### ",
        ("``` tool (Bash)\n", "ignore", ""),
        (call, "tool", call_id),
        ("\n```\n", "ignore", ""),
        ("Done.", "response", ""),
    )


class TestWhatGptelWrites:
    def test_calls_that_share_an_id_get_one_each(self) -> None:
        first, second = '\n(:name "Bash" :args (:command "ls"))\n\na', '\n(:name "Bash" :args (:command "pwd"))\n\nb'
        body = f"### Go\n\n``` tool (Bash)\n{first}\n```\n``` tool (Bash)\n{second}\n```\nDone.\n\n### "
        document = gptel(
            body,
            ("``` tool (Bash)", "ignore", ""),
            (first, "tool", "toolu_01"),
            ("\n```\n``` tool (Bash)", "ignore", ""),
            (second, "tool", "toolu_01"),
            ("\n```\n", "ignore", ""),
            ("Done.", "response", ""),
        )
        made = adopt(document)
        assert [span.id for span in made.document.spans if span.kind == "tool"] == ["toolu_01", "toolu_01-2"]
        assert made.notes == ("1 tool calls had no id of their own; each has one now",)
        assert_agree(made)

    @pytest.mark.parametrize(("written", "own"), [("", "call"), ("functions.Bash:0", "functions_Bash_0")])
    def test_a_call_without_a_usable_id_gets_one(self, written: str, own: str) -> None:
        call = '\n(:name "Bash" :args (:command "ls"))\n\na'
        made = adopt(one_call(call, written))
        conversation = assert_agree(made)
        assert [part.data["toolCallId"] for part in conversation.parts.values() if part.is_tool] == [own]

    def test_a_call_in_other_words_than_ours_keeps_them(self) -> None:
        call = '\n(:name "Bash"\n :args (:timeout 5.  :command "ls"))  \n 7 \n'
        made = adopt(one_call(call, "toolu_1"))
        conversation = assert_agree(made)
        (tool,) = [part for part in conversation.parts.values() if part.is_tool]
        assert tool.edited == call and tool.data["input"] == {"timeout": 5, "command": "ls"}
        assert plain(align(made.document, conversation).view) == merged(gptel_messages(format_file(made.document)))

    @pytest.mark.parametrize(
        "call", ["\n(:name Bash)\n\nx", "\nno call", '\n(:name "a" :args (:x 1e999))', "\n" + "(" * 5000 + ")" * 5000]
    )
    def test_a_call_that_cannot_be_read_stays_text_and_is_said(self, call: str) -> None:
        made = adopt(one_call(call, "toolu_1"))
        assert [data["type"] for kind, data in made.facts if kind == "part"] == ["text", "step-start", "text"]
        assert len(made.notes) == 1 and made.notes[0].startswith("The tool call toolu_1 cannot be read")

    def test_bytes_that_are_no_text_are_kept(self) -> None:
        body = "### Caf\udce9\n\nOui, caf\udce9.\n\n### "
        made = adopt(gptel(body, ("Oui, caf\udce9.", "response", "")))
        assert_agree(made)
        assert made.document.body == body

    def test_no_roles_means_that_all_of_it_is_a_draft(self) -> None:
        made = adopt(Document(body="### Hi\n\nHello\n"))
        assert made.facts == ()
