from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.store.document import text as document
from pyagentd.store.document import text as local_variables
from pyagentd.store.document.text import (
    Document,
    Region,
    Settings,
    Span,
    body_sha256,
    format_file,
    gptel_messages,
    merge_spans,
    parse,
    regions,
)
from tests.store.talk import texts

# What gptel itself wrote.
STOCK = (Path(__file__).parent / "golden" / "stock-gptel.md").read_text()
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "How many files?"},
    {"role": "assistant", "content": "Checking."},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_01A", "name": "Bash", "input": {"command": "ls | wc -l"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01A", "content": "7"}]},
    {"role": "assistant", "content": "Seven."},
]


def with_bounds(body: str, bounds: str) -> str:
    return f"{body}\n\n<!-- Local Variables: -->\n<!-- gptel--bounds: {bounds} -->\n<!-- End: -->\n"


@st.composite
def documents(draw: st.DrawFn) -> Document:
    body = draw(texts)
    cuts = draw(st.lists(st.integers(0, len(body)), unique=True, max_size=8).map(sorted))
    spans = []
    for start, end in pairwise(cuts):
        kind = draw(st.sampled_from(["response", "ignore", "tool", None]))
        if kind is not None:
            id = draw(st.text(st.sampled_from('ab_"\\'), min_size=1)) if kind == "tool" else ""
            spans.append(Span(start, end, kind, id))
    settings = draw(
        st.builds(
            Settings,
            model=st.none() | st.sampled_from(["claude-opus-5", "gpt-5.2", "1", "a b"]),
            backend=st.none() | texts,
            tools=st.none() | st.lists(texts, max_size=3).map(tuple),
            temperature=st.none() | st.floats(0, 2),
            max_tokens=st.none() | st.integers(1, 10**6),
            other=st.just(()) | st.just((("gptel--num-messages-to-send", "5"), ("fill-column", "80"))),
        )
    )
    return Document(body=body, spans=tuple(merge_spans(spans)), settings=settings)


class TestFile:
    def test_the_file_of_stock_gptel_is_read(self) -> None:
        doc = parse(STOCK)
        assert doc.body.endswith("Seven.\n\n### ")
        assert [doc.body[s.start : s.end] for s in doc.spans if s.kind == "response"] == ["Checking.", "Seven."]
        assert [s.id for s in doc.spans if s.kind == "tool"] == ["toolu_01A"]
        assert doc.settings == Settings(model="claude-sonnet-4-6", backend="Claude", tools=("Bash",), temperature=0.3)

    @pytest.mark.spec("001", "System message isolation")
    def test_the_file_of_stock_gptel_is_written_without_the_system_message(self) -> None:
        expected = STOCK.replace('<!-- gptel-system-prompt: "Be terse." -->\n', "")
        assert format_file(parse(STOCK)) == expected

    @given(documents())
    def test_a_document_is_read_back_as_it_was_written(self, doc: Document) -> None:
        assert parse(format_file(doc)) == doc

    @given(texts)
    def test_a_text_without_a_block_is_all_body(self, text: str) -> None:
        doc = Document(body=text)
        assert parse(format_file(doc)) == doc

    def test_an_empty_document_is_an_empty_file(self) -> None:
        assert format_file(Document()) == ""
        assert parse("") == Document()

    def test_a_body_that_ends_like_a_block_stays_body(self) -> None:
        body = "Put this at the end:\n\n<!-- Local Variables: -->\n<!-- mode: org -->\n<!-- End: -->"
        assert parse(format_file(Document(body=body))).body == body

    def test_variables_that_are_not_ours_are_kept(self) -> None:
        lines = ["Local Variables:", "gptel--num-messages-to-send: 5", "fill-column: 80", "End:"]
        text = "Hi\n\n" + "".join(f"<!-- {line} -->\n" for line in lines)
        assert format_file(parse(text)) == text

    @pytest.mark.parametrize(
        ("prefix", "suffix"), [("<!-- ", " -->"), (";; ", ""), ("# ", ""), ("", ""), ("  ;;; ", "")]
    )
    def test_any_comment_syntax_is_read(self, prefix: str, suffix: str) -> None:
        lines = ["Local Variables:", "gptel-model: x", "gptel--bounds: ((response (1 3)))", "End:"]
        doc = parse("Hi\n\n" + "\n".join(prefix + line + suffix for line in lines))
        assert (doc.body, doc.settings.model, doc.spans) == ("Hi", "x", (Span(0, 2, "response"),))

    @pytest.mark.parametrize("between", ["", "\n", "\n\n"])
    def test_one_blank_line_belongs_to_the_block(self, between: str) -> None:
        block = "<!-- Local Variables: -->\n<!-- gptel-model: x -->\n<!-- End: -->\n"
        assert parse("Hi" + between + block).body == "Hi" if between else block
        assert parse("Hi\n\n\n" + block).body == "Hi\n"

    def test_text_below_the_block_is_text_and_the_block_holds(self) -> None:
        doc = parse(with_bounds("Hi", "((response (1 3)))") + "more")
        assert (doc.body, doc.spans, doc.stale) == ("Hi\n\nmore", (Span(0, 2, "response"),), True)

    def test_blocks_that_programs_left_in_the_text_are_taken_out(self) -> None:
        block = with_bounds("", "nil").removeprefix("\n\n")
        doc = parse(with_bounds(f"Hi\n\n{block}\nmore\n\n{block}{block}\nend", "((response (1 3)))"))
        assert (doc.body, doc.spans, doc.stale) == ("Hi\n\nmore\n\nend", (Span(0, 2, "response"),), False)
        assert format_file(doc) == with_bounds("Hi\n\nmore\n\nend", "((response (1 3)))")

    def test_a_block_that_somebody_quotes_stays(self) -> None:
        block = with_bounds("", "((response (2 9)))").removeprefix("\n\n")
        fenced = f"Hi\n\n```\n{block}```\nmore"
        assert parse(with_bounds(fenced, "((response (1 3)))")).body == fenced
        for body in (f"Hi\n\n{block}", f"Hi\n\n{block}\nmore"):
            doc = Document(body=body, spans=(Span(0, 2, "response"),))
            assert parse(format_file(doc)) == doc
        said = Document(body=f"Hi\n\n{block}\nmore", spans=(Span(4, 4 + len(block), "response"),))
        assert parse(format_file(said).replace("<!-- Local Variables: -->\n<!-- End: -->\n\n", "")) == said

    def test_a_second_block_without_bounds_does_not_lose_the_first(self) -> None:
        first = with_bounds("Hi", "((response (1 3)))")
        second = "\n<!-- Local Variables: -->\n<!-- gptel-model: y -->\n<!-- gptel--bounds: nil -->\n<!-- End: -->\n"
        doc = parse(first + second)
        assert (doc.body, doc.spans, doc.settings.model) == ("Hi", (Span(0, 2, "response"),), "y")

    def test_windows_line_ends_count_as_one_character(self) -> None:
        text = with_bounds("a\nbc", "((response (3 5)))").replace("\n", "\r\n")
        doc = parse(text)
        assert (doc.body, doc.spans) == ("a\nbc", (Span(2, 4, "response"),))

    def test_a_carriage_return_in_a_tools_output_stays(self) -> None:
        assert parse("a\r\nb\nc").body == "a\r\nb\nc"

    def test_bytes_that_are_no_utf8_survive(self, tmp_path: Any) -> None:
        path = tmp_path / "session.md"
        path.write_bytes(b"caf\xe9")
        doc = document.read(path)
        assert format_file(doc).encode("utf-8", "surrogateescape") == b"caf\xe9"
        assert len(body_sha256(doc.body)) == 64

    def test_a_missing_file_is_an_empty_document(self, tmp_path: Any) -> None:
        assert document.read(tmp_path / "session.md") == Document()


class TestBounds:
    def test_version_1_holds_answers_only(self) -> None:
        assert parse(with_bounds("abcd", "((1 . 2) (3 . 5))")).spans == (
            Span(0, 1, "response"),
            Span(2, 4, "response"),
        )

    @pytest.mark.parametrize(
        ("bounds", "kept"),
        [
            ("((response (1 9)))", 0),
            ("((response (1 3) (2 4)))", 1),
            ("((ignore (3 3)) (response (1 2)))", 1),
            (f"((response (1 2) (3 {'9' * 5_000})))", 1),
        ],
    )
    def test_bounds_that_do_not_fit_are_left_out_and_said(self, bounds: str, kept: int) -> None:
        doc = parse(with_bounds("abcd", bounds))
        assert (len(doc.spans), doc.stale) == (kept, True)

    def test_positions_count_code_points(self) -> None:
        body = "😀e\u0301!"
        assert parse(with_bounds(body, "((response (2 4)))")).spans == (Span(1, 3, "response"),)

    def test_touching_spans_of_one_role_are_one(self) -> None:
        bounds = '((response (1 2) (2 3)) (tool (3 4 "a") (4 5 "b")))'
        assert parse(with_bounds("abcd", bounds)).spans == (
            Span(0, 2, "response"),
            Span(2, 3, "tool", "a"),
            Span(3, 4, "tool", "b"),
        )

    def test_a_tool_span_is_never_written_without_an_id(self) -> None:
        assert '(tool (1 2 "unknown"))' in format_file(Document(body="x", spans=(Span(0, 1, "tool"),)))

    @given(documents(), st.integers(0, 40))
    def test_regions_cover_the_body_without_gaps(self, doc: Document, end: int) -> None:
        found = regions(doc, end)
        assert "".join(doc.body[r.start : r.end] for r in found) == doc.body[:end]
        assert all(region.start < region.end for region in found)

    def test_regions_stop_at_the_end_asked_for(self) -> None:
        doc = Document(body="abcdef", spans=(Span(2, 5, "response"),))
        assert regions(doc, 4) == [Region(0, 2, None), Region(2, 4, "response")]


class TestGptelMessages:
    def test_the_messages_are_those_gptel_sends(self) -> None:
        assert gptel_messages(STOCK) == MESSAGES

    def test_text_behind_the_end_is_not_sent(self) -> None:
        assert gptel_messages(STOCK, end=60) == [MESSAGES[0], {"role": "assistant", "content": "Checki"}]

    def test_a_call_that_is_cut_off_is_dropped(self) -> None:
        assert gptel_messages(STOCK, end=120) == MESSAGES[:2]

    def test_an_unreadable_call_is_dropped(self) -> None:
        assert gptel_messages(STOCK.replace('(:name "Bash"', "(:name 'Bash'")) == [*MESSAGES[:2], MESSAGES[-1]]

    def test_a_tool_span_without_id_is_dropped(self) -> None:
        assert gptel_messages(STOCK.replace(' "toolu_01A"', "")) == [*MESSAGES[:2], MESSAGES[-1]]

    @pytest.mark.parametrize(
        ("body", "content"),
        [
            ("### hi\n", ["hi"]),
            ("  \n\t### \n hi", ["hi"]),
            ("### ### hi", ["### hi"]),
            ("a\n\n### b", ["a\n\n### b"]),
            ("###", ["###"]),
            ("### ", []),
            (" \n", []),
        ],
    )
    def test_prompts_are_trimmed_as_gptel_trims(self, body: str, content: list[str]) -> None:
        assert gptel_messages(body) == [{"role": "user", "content": text} for text in content]


@pytest.mark.parametrize(
    "quoted",
    [
        "Local Variables:\n",
        "Local Variables:",
        "; Local Variables:\n; gptel-model: x\n",
        "Local Variables:\ngptel-model: x\nEnd:\nhello\n",
    ],
)
def test_a_text_that_is_full_of_blocks_is_read_in_a_time_that_its_length_bounds(quoted: str) -> None:
    block = "\n\n" + local_variables.format_block(Settings(model="y"), "nil")
    began = time.process_time()
    read = parse("```\n```\n" * 10_000 + "Hi\n" + quoted * 10_000 + block)
    assert time.process_time() - began < 3
    assert read.settings.model == "y" and "Hi\n" in read.body


def test_a_variable_of_many_blanks_is_read_in_a_time_that_its_length_bounds() -> None:
    text = f"### Hi\n\n<!-- Local Variables: -->\n<!-- gptel-model: a{' ' * 900_000}b -->\n<!-- End: -->\n"
    found = local_variables.find_block(text)
    assert found is not None and found.whole
