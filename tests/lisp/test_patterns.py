"""Regular expressions: whichever engine searches, a program sees the same; none searches long."""

import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from pyagentd import lisp
from pyagentd.lisp import Keyword, Limits, LispError
from pyagentd.lisp.builtins.text import matcher
from pyagentd.lisp.values import Pattern, to_python

_ATOMS = [
    *"ab1- .",
    *(r"\d", r"\w", r"\s", r"\S", r"\W", r"\.", "[ab]", "[^a]", "[a-b1]", r"[\s.]", r"[\d-]", "ñ", "[^ñ]", ":", "_"),
]
_COUNTS = ["", "", "", "+", "*", "?", "+?", "*?", "{2}", "{1,2}", "{1,}"]
_REPEATED = st.builds("{}{}".format, st.sampled_from(_ATOMS), st.sampled_from(_COUNTS))


@st.composite
def _patterns(draw: st.DrawFn) -> str:
    made = "".join(
        f"({each})" if draw(st.booleans()) else each
        for each in draw(
            st.lists(st.builds("{}{}".format, st.sampled_from(_ATOMS), st.sampled_from(_COUNTS)), max_size=5)
        )
    )
    made = draw(st.sampled_from(["{}", "{}(a|b1)", "a|{}|b-", "(ab|[ab])a{}", "(a|ab){}"])).format(made)
    before, after = draw(st.sampled_from([("", ""), ("", ""), ("^", ""), ("", "$"), (r"\b", ""), ("", r"\b")]))
    return f"{before}{made}{after}"


_TEXTS = st.text(st.sampled_from("ab1- .\n\t\v\rñ_:A\u2028"), max_size=20)
_PROGRAM = lisp.compile(
    "[(re-find ctx/p ctx/s) (re-seq ctx/p ctx/s) (split ctx/s ctx/p) (replace ctx/s ctx/p ctx/new)]"
)


@given(source=_patterns(), text=_TEXTS, new=st.sampled_from(["", "x", "<$0>", r"\$\\"]))
def test_a_program_sees_what_re2_finds(source: str, text: str, new: str) -> None:
    pattern = re2.compile(source)
    matches = list(pattern.finditer(text))
    groups = [[m.group(), *m.groups()] if pattern.groups else m.group() for m in matches]
    parts, made, start, at = [], [], 0, 0
    for match in matches:
        made += [text[at : match.start()], {"<$0>": f"<{match.group()}>", r"\$\\": "$\\"}.get(new, new)]
        at = match.end()
        if match.end() and not match.start() == len(text) == match.end():
            parts.append(text[start : match.start()])
            start = match.end()
    parts.append(text[start:])
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    found = _PROGRAM.run({"p": Pattern(source), "s": text, "new": new}).value
    assert found == [groups[0] if groups else None, groups, parts, "".join([*made, text[at:]])]


# The worst search by backtracking through n characters takes about n to the power of ``degree`` comparisons.
@pytest.mark.parametrize(
    ("source", "degree"),
    [
        (r"\w+@", 2),
        (r"\w+\w+\w+\w+@", 5),
        (r"(\w*)(\w*)(\w*)!", 4),
        (".*a.*a.*a.*b", 5),
        (r"\w+?\w+?\w+?$", 4),
        ("a?a?a?a?a{4,100}b", None),  # RE2 for every text
    ],
)
def test_only_short_texts_are_searched_by_backtracking(source: str, degree: int | None) -> None:
    program = lisp.compile('[(re-find ctx/p ctx/s) (re-seq ctx/p ctx/s) (replace ctx/s ctx/p "")]')
    pattern = Pattern(source)
    for length in (1, 10, 30, 90, 1000, 50_000):
        text = "a" * length + " "
        if isinstance(matcher(pattern).engine(text), re.Pattern):
            assert degree is not None and length**degree <= 1 << 20
        if length <= 1000:
            assert program.run({"p": pattern, "s": text}).usage.steps < 1000 * length + 1000


def test_what_a_pattern_makes_counts_as_memory() -> None:
    for program in ('(re-seq #"\\w" ctx/s)', '(split ctx/s #"a")', '(replace ctx/s #"a" "aaaaaaaaaaaaaaaaaaaa")'):
        with pytest.raises(LispError, match="more than 1000"):
            lisp.run(program, {"s": "a" * 2000}, limits=Limits(cells=1000, bytes=1000))
    assert to_python(lisp.run('(count (re-seq #"\\w" ctx/s))', {Keyword("s"): "a" * 900}).value) == 900
