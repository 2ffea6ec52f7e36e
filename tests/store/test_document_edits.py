"""Two edits of one text lead to the same text and roles, whichever comes first; nothing is lost or doubled."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.store.document.files import (
    Edit,
    Hunk,
    apply_edit,
    clash,
    difference,
    normalise_hunks,
    offset_after,
    transform,
)
from pyagentd.store.document.text import Document, Span, merge_spans

TEXT = "".join(chr(ord("a") + number % 26) for number in range(24))


@st.composite
def edits(draw: st.DrawFn, size: int, mark: str) -> Edit:
    """Return an edit of a text of so many characters, whose inserted text is of ``mark``."""
    offsets = sorted(draw(st.lists(st.integers(0, size), max_size=8, unique=draw(st.booleans()))))
    pairs = zip(offsets[::2], offsets[1::2], strict=False)
    hunks = []
    for begin, end in pairs:
        text = mark * draw(st.integers(0, 3))
        kind = draw(st.sampled_from([None, "response", "ignore"]))
        hunks.append(Hunk(begin, end, text, (Span(0, len(text), kind),) if kind and text else ()))  # type: ignore[arg-type]
    return normalise_hunks(hunks)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    offsets = sorted(draw(st.lists(st.integers(0, len(TEXT)), max_size=6, unique=True)))
    spans = [
        Span(a, b, "tool" if a % 2 else "response", "t" if a % 2 else "")
        for a, b in zip(offsets[::2], offsets[1::2], strict=False)
    ]
    return Document(body=TEXT, spans=tuple(merge_spans(spans)))


@settings(max_examples=600)
@given(documents(), edits(len(TEXT), "X"), edits(len(TEXT), "Y"))
def test_both_orders_lead_to_the_same_text_and_roles(doc: Document, one: Edit, other: Edit) -> None:
    ahead = apply_edit(apply_edit(doc, one), transform(other, one, first=False))
    behind = apply_edit(apply_edit(doc, other), transform(one, other, first=True))
    assert ahead.body == behind.body
    assert ahead.spans == behind.spans


@settings(max_examples=400)
@given(edits(len(TEXT), "X"), edits(len(TEXT), "Y"))
def test_deleted_is_what_either_deleted_and_inserted_what_either_inserted(one: Edit, other: Edit) -> None:
    made = apply_edit(apply_edit(Document(body=TEXT), one), transform(other, one, first=False)).body
    deleted = {n for edit in (one, other) for hunk in edit for n in range(hunk.begin, hunk.end)}
    assert [c for c in made if c not in "XY"] == [c for n, c in enumerate(TEXT) if n not in deleted]
    for mark, edit in (("X", one), ("Y", other)):
        assert made.count(mark) == sum(len(hunk.text) for hunk in edit)


@settings(max_examples=300)
@given(documents(), edits(len(TEXT), "X"))
def test_the_difference_of_two_texts_makes_one_of_the_other(doc: Document, edit: Edit) -> None:
    made = apply_edit(doc, edit)
    assert apply_edit(doc, difference(doc.body, made)).body == made.body


words = st.lists(st.builds("{}{}".format, st.sampled_from("abc"), st.integers(0, 12)), max_size=14, unique=True)


@settings(max_examples=400)
@given(words, words, st.data())
def test_another_program_changes_whole_words(before: list[str], added: list[str], data: st.DataObject) -> None:
    """Of words that stay, none is cut or written anew: others may have changed them meanwhile."""
    after = [word for word in before if data.draw(st.booleans())]
    for word in added:
        if word not in before:
            after.insert(data.draw(st.integers(0, len(after))), word)
    old, new = ("".join(f"{word} " for word in each) for each in (before, after))
    edit = difference(old, Document(body=new))
    assert apply_edit(Document(body=old), edit).body == new
    kept = set(before) & set(after)
    for begin, end, text, _ in edit:
        assert not text or text.endswith(" ")
        assert not kept & {*old[begin:end].split(), *text.split()}
        assert begin == 0 or old[begin - 1] == " "


def test_what_is_typed_at_a_place_stands_behind_it() -> None:
    assert offset_after(3, (Hunk(3, 3, "XX"),), before=True) == 3
    assert offset_after(3, (Hunk(3, 3, "XX"),), before=False) == 5
    assert offset_after(3, (Hunk(1, 5, "XX"),), before=True) == 3


def test_two_that_replace_the_same_words_clash_and_both_texts_stay() -> None:
    one, other = (Hunk(4, 7, "TWO"),), (Hunk(4, 7, "2"),)
    assert clash(other, one) == ["2"]
    assert clash((Hunk(5, 5, "2"),), one) == []
    made = apply_edit(apply_edit(Document(body="one two three"), one), transform(other, one, first=False))
    assert made.body == "one TWO2 three"
