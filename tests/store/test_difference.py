from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.store.document.heal import expected_text
from pyagentd.store.document.pieces import common_text, recorded_pieces
from tests.store.talk import Talk, Turn, talks, texts

few = st.text(st.sampled_from("ab \n#"), max_size=40)


def kept(old: str, new: str) -> list[str]:
    return [old[match.old : match.old + match.size] for match in common_text(old, new) if match.size]


@given(st.one_of(st.tuples(few, few), st.tuples(texts, texts)))
def test_matches_are_equal_in_order_and_end_both_texts(both: tuple[str, str]) -> None:
    old, new = both
    old_end = new_end = 0
    for at, to, size in common_text(old, new):
        assert old_end <= at and new_end <= to
        assert old[at : at + size] == new[to : to + size]
        old_end, new_end = at + size, to + size
    assert (old_end, new_end) == (len(old), len(new))


@given(texts, texts, texts)
def test_what_is_around_one_change_is_kept(before: str, change: str, after: str) -> None:
    assert sum(map(len, kept(before + after, before + change + after))) == len(before + after)
    assert sum(map(len, kept(before + change + after, before + after))) == len(before + after)


@pytest.mark.parametrize(
    ("old", "new", "expected_kept"),
    [
        ("one two three", "one two  three", ["one two ", "three"]),
        ("a long line of words here\n", "a long line\nof words here\n", ["a long line", "of words here\n"]),
        ("### q\n\nYes.\n", "### q\n\nYou say\n\nYes.\n", ["### q\n\n", "Yes.\n"]),
        ("xx\nyy\nzz\n.", "zz\nxx\nyy\n.", ["xx\nyy", "\n."]),
        ("", "new", []),
        ("old", "", []),
    ],
)
def test_changes_are_found_where_a_person_sees_them(old: str, new: str, expected_kept: list[str]) -> None:
    assert kept(old, new) == expected_kept


@given(talks)
def test_what_the_record_would_show_is_the_document(turns: list[Turn]) -> None:
    talk = Talk(turns)
    conversation = talk.conversation
    recorded = recorded_pieces(conversation)
    shown = expected_text(conversation, recorded)
    assert (shown.body, shown.spans) == (talk.document.body, talk.document.spans)
    assert [shown.body[start:end] for start, end in shown.places] == [piece.key[2] for piece in recorded]
