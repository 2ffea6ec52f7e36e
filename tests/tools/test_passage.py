import re
import time

from hypothesis import given
from hypothesis import strategies as st

from pyagentd.tools.write import loose_line, occurrences, replace_all

texts = st.lists(st.sampled_from(["a", "b", "\n", "\r\n", "aa"]), max_size=30).map("".join)
passages = st.lists(st.sampled_from(["a", "b", "\n"]), min_size=1, max_size=4).map("".join)


@given(passages, texts)
def test_it_finds_what_a_regular_expression_would(wanted: str, text: str) -> None:
    pattern = re.compile("".join("(?:\\r\\n|\\n)" if char == "\n" else re.escape(char) for char in wanted))
    # LF of a CR LF is not a line ending of its own.
    starts = [
        position for position in range(len(text)) if text[position - 1 : position + 1] != "\r\n" or position == 0
    ]
    expected = [match.span() for position in starts if (match := pattern.match(text, position))]
    assert list(occurrences(wanted, text)) == expected


@given(passages, texts, st.sampled_from(["", "X", "\n"]))
def test_what_is_not_the_passage_stays_as_it_is(wanted: str, text: str, new: str) -> None:
    spans = list(occurrences(wanted, text, overlapping=False))
    after, count = replace_all(wanted, new, text)
    assert count == len(spans)
    kept = [text[a:b] for (_, a), (b, _) in zip([(0, 0), *spans], [*spans, (len(text), 0)], strict=True)]
    assert after == new.join(kept)


def test_a_passage_that_almost_fits_everywhere_takes_no_longer() -> None:
    text = "a\n" * 2_000_000
    started = time.process_time()
    assert not list(occurrences("a\n" * 5_000 + "b", text))
    assert time.process_time() - started < 3


def test_words_with_other_white_space_are_found_by_their_line() -> None:
    text = "def f(a,\n      b):\n    return  a + b\n"
    assert loose_line("return a + b", text) == 3
    assert loose_line("def f(a, b):", text) == 1
    assert loose_line("return c", text) is None
    assert loose_line(" ", text) is None
