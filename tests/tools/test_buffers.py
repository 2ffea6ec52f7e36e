"""How a new text is told to an editor: small, exact, and so that marks stay where they were."""

from __future__ import annotations

import random

import pytest

from pyagentd.tools.spec import Replacement, is_remote, replacements


def applied(text: str, edits: list[Replacement]) -> str:
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text


@pytest.mark.parametrize(
    ("before", "after", "edits"),
    [
        ("a\nb\n", "a\nb\n", []),
        ("one two\n", "one 2\n", [(4, 7, "2")]),
        ("two\nthree\n", "two\ntwo and\nthree\n", [(3, 3, "\ntwo and")]),
        ("b\n", "a\nb\n", [(0, 0, "a\n")]),
        ("a\nb\nc\n", "a\nc\n", [(2, 4, "")]),
        ("a", "b", [(0, 1, "b")]),
        ("", "a\n", [(0, 0, "a\n")]),
        ("a\nb\nc\nd\ne\n", "A\nb\nc\nd\nE\n", [(0, 1, "A"), (8, 9, "E")]),
    ],
)
def test_only_what_differs_is_told(before: str, after: str, edits: list[tuple[int, int, str]]) -> None:
    assert replacements(before, after) == edits
    assert applied(before, replacements(before, after)) == after


def test_whatever_the_texts_the_result_is_exact() -> None:
    chance = random.Random(7)
    for _ in range(500):
        before, after = ("".join(chance.choices("ab\n\né\u2028", k=chance.randrange(12))) for _ in range(2))
        assert applied(before, replacements(before, after)) == after, (before, after)


def test_a_text_too_long_to_compare_is_replaced_between_what_is_the_same() -> None:
    before = "head\n" + "".join(f"{n}\n" for n in range(3000)) + "tail\n"
    after = "head\n" + "".join(f"x{n}\n" for n in range(3000)) + "tail\n"
    (edit,) = replacements(before, after)
    assert (edit.start, applied(before, [edit])) == (5, after)


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("/ssh:host:/etc", True),
        ("/sudo::/etc", True),
        ("/a/ssh:host:/x", False),
        ("/etc/a:b:c", False),
        ("/tmp", False),
    ],
)
def test_files_of_other_machines_are_known_by_their_names(path: str, remote: bool) -> None:
    assert is_remote(path) is remote
