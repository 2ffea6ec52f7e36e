"""What is asked for a summary, and what the offline stand-in makes of it."""

from __future__ import annotations

from pyagentd.llm.offline import offline_backend
from pyagentd.llm.prompts import HEADINGS, SYSTEM, accept_summary, previous_summary, summary_request, transcript
from pyagentd.messages import Message, Reasoning, Text, ToolCall, ToolResult
from tests.llm.requests import collect, said

TALK = (
    Message(role="user", parts=(Text(text="Count the files."),)),
    Message(
        role="assistant",
        parts=(
            Reasoning(text="hm", signature="s"),
            Text(text="Looking."),
            ToolCall(id="1", name="Bash", input={"c": 1}),
        ),
    ),
    Message(role="user", parts=(ToolResult(id="1", text="x" * 5000), ToolResult(id="2", text="no", is_error=True))),
    Message(role="assistant", parts=(Text(text="Seven."),)),
)


def test_the_transcript_says_who_said_what_and_cuts_what_is_long() -> None:
    text = transcript(TALK)
    assert text.startswith(
        '[user]\nCount the files.\n\n(reasoning omitted)\n[assistant]\nLooking.\n(tool: Bash {"c": 1})'
    )
    assert "[… 3000 characters …]" in text and "→ error: no" in text and text.endswith("[assistant]\nSeven.")


def test_the_request_has_no_tools_and_folds_the_earlier_summary_in() -> None:
    made = summary_request("m", "T", previous="P", instructions="the API", max_tokens=99)
    assert (made.system, made.tools, made.max_tokens) == (SYSTEM, (), 99)
    (part,) = made.messages[0].parts
    assert isinstance(part, Text)
    assert part.text == (
        "<earlier_summary>\nP\n</earlier_summary>\n\n<conversation>\nT\n</conversation>\n\n<focus>\nthe API\n</focus>"
    )


def test_a_summary_closes_no_fence_of_the_document() -> None:
    assert accept_summary(" a\n```py\nx\n```\n") == "a\n~~~py\nx\n~~~"


def test_the_summary_of_an_earlier_compaction_is_taken_off_the_view() -> None:
    head = Text(text="<conversation_summary>\nS\n</conversation_summary>")
    view = (Message(role="user", parts=(head, Text(text="p"))), *TALK[1:])
    assert previous_summary(view) == ("S", (Message(role="user", parts=(Text(text="p"),)), *TALK[1:]))
    assert previous_summary((Message(role="user", parts=(head,)), *TALK[1:])) == ("S", TALK[1:])
    assert previous_summary(TALK) == ("", TALK)


async def test_the_offline_stand_in_summarises_the_same_way_each_time() -> None:
    backend = offline_backend(0)
    first = said(await collect(backend, summary_request("m", transcript(TALK), max_tokens=99)))
    assert [line[3:] for line in first.splitlines() if line.startswith("## ")] == list(HEADINGS)
    assert "- Count the files." in first and "- Bash was used 1 time" in first and "- Seven." in first
    again = said(await collect(backend, summary_request("m", transcript(TALK), previous=first, max_tokens=99)))
    assert again.count("- Count the files.") == 1
    assert again == said(
        await collect(backend, summary_request("m", transcript(TALK), previous=first, max_tokens=99))
    )
    await backend.close()
