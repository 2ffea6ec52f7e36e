"""Whatever the grammar calls readable, a real bash runs exactly these commands with exactly these words."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyagentd.policy.shell import Unreadable
from pyagentd.policy.shell.grammar import Simple, parse
from pyagentd.policy.shell.programs import REFUSED
from tests.examples import examples
from tests.policy.bash import BASH, HARMLESS, Ran, run

pytestmark = pytest.mark.skipif(not Path(BASH).exists(), reason="there is no bash")

# Pieces that mean something to bash in some place, and plain ones around them.
PIECES = [
    *["pqr", "2", "x1", "a.b", "-o", "--long=v", "é"],
    *[" ", " ", " ", " ", "\t", "\n", " \\\n", "\\\n", "\\", "\\ ", '\\"', "\\'", "\\#"],
    *[
        "'",
        '"',
        "''",
        '""',
        "'a b'",
        '"a b"',
        "'$x'",
        '"\\$x"',
        '"\\a"',
        '"a\\\nb"',
        "'a\\\nb'",
        '"\'"',
        "'\"'",
        '"!"',
    ],
    *["|", "||", "&", "&&", ";", "|&", " | ", " && ", " || ", "; ", " & ", ";;", "\np "],
    *[
        ">f",
        "> f",
        ">>f",
        ">|f",
        "2>f",
        "2>&1",
        ">&2",
        "&>f",
        "&>>f",
        ">&f",
        "<f",
        "<>f",
        "1>f",
        "12>f",
        "{v}>f",
        "2>&-",
    ],
    *["<<E", "<<<", "<(", ">(", "(", ")", "((", "))", "{", "}", "{a,b}", "{1..2}", "{}", "{x", "[[", "]]", "[", "]"],
    *["#", " #c", "#c\n", "!", "! ", "!p", "time ", "time -p ", "coproc ", "if ", "then ", "fi", "function ", "in "],
    *[
        "~",
        "~/d",
        "~+",
        "~-",
        "~x",
        "=~",
        "a=~",
        ":~",
        "v=1 ",
        "v=",
        "v+=1 ",
        "a[1]=2 ",
        "=",
        "+=",
        "@",
        "%",
        "^",
        ",",
    ],
    *[
        "$x",
        "${x}",
        "$(p)",
        "`p`",
        "$((1))",
        "$'a'",
        '$"a"',
        "$",
        "*",
        "?",
        "[a]",
        "*.x",
        "+(a)",
        "@(a)",
        "..",
        "..b",
    ],
]

LINES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join)
# Lines that are mostly readable, with something odd in them.
WORDS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join)
SEPARATORS = st.sampled_from(
    [" ", " ", " ", "  ", "\t", " \\\n", " ; ", " | ", " && ", " || ", "\n", " & ", " >f ", " 2>&1 "]
)
LIKELY = st.builds(
    lambda first, rest: first + "".join(separator + word for separator, word in rest),
    st.sampled_from(["p", "q ", "! p", "time p", "'p'", 'p""q', "\\p", ">f p"]),
    st.lists(st.tuples(SEPARATORS, WORDS), max_size=6),
)


def expected(parts: list[Simple], home: str) -> list[tuple[tuple[str, ...], bool]]:
    """The words of every command, and whether some of them are patterns."""
    return [
        (
            tuple(home + word.text[1:] if word.home else word.text for word in part.words),
            any(word.varies for word in part.words),
        )
        for part in parts
    ]


def check(text: str, parts: list[Simple], ran: Ran, status: int) -> None:
    told = expected(parts, ran.home)
    exact = Counter(words for words, varies in told if not varies)
    patterns = [words[0] for words, varies in told if varies]
    rest = Counter(ran.commands) - exact
    for words in rest.elements():
        assert words[0] in patterns, f"{text!r} runs {words}, and only {told} was told (status {status})"
        patterns.remove(words[0])
    targets = {file.text for part in parts for operator, file in part.redirects if ">" in operator}
    assert ran.made <= targets, f"{text!r} makes {ran.made}, and only {targets} was told"
    conditional = any(part.then in ("&&", "||") or part.redirects for part in parts)
    if not conditional and ">" not in text and "<" not in text:
        programs = [words for words, _ in told if words[0] not in HARMLESS | REFUSED and "/" not in words[0]]
        assert len(ran.commands) == len(programs), f"{text!r} runs {ran.commands}, not all of {told}"


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.one_of(LINES, LIKELY, LIKELY), status=st.sampled_from([0, 1]))
@example(text="p a\\\n#b", status=0)
@example(text="p \\\n#b", status=0)
@example(text="p 2\\\n>f", status=0)
@example(text="p &\\\n>f", status=0)
@example(text="p;#q\nr", status=0)
@example(text="p {},x}", status=0)
@example(text="p '{'a,b}", status=0)
@example(text="p a=~ b", status=0)
@example(text="p --x=~", status=0)
@example(text="p x~ ~ ~/y '~' \\~", status=0)
@example(text="! ! p", status=0)
@example(text="time time -p p", status=0)
@example(text="time -p -- p", status=0)
@example(text="time ! p", status=0)
@example(text="p | ! q", status=0)
@example(text="p | time q", status=0)
@example(text="p |& q", status=1)
@example(text="p &>f q", status=0)
@example(text="p 2&>f", status=0)
@example(text="p >& f", status=0)
@example(text="p >&-", status=0)
@example(text="p 2>&1-", status=0)
@example(text="p !x", status=0)
@example(text="p >&2'\"'", status=0)
@example(text="p 2>&-x", status=0)
@example(text='p 2>&-""', status=0)
@example(text="p ''~ ~''", status=0)
@example(text='p "a\\\nb" a\\\nb', status=0)
def test_what_is_told_is_what_bash_runs(text, status):
    try:
        parts = parse(text)
    except Unreadable:
        return
    check(text, parts, run(text, status=status), status)


def test_enough_of_the_lines_are_readable():
    """The property above says nothing of what is refused, so it must not be about nothing."""
    seen = Counter()

    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    @given(text=LIKELY)
    def count(text):
        try:
            parse(text)
        except Unreadable:
            seen["refused"] += 1
        else:
            seen["read"] += 1

    count()
    assert seen["read"] > 15
    assert seen["refused"] > 15
