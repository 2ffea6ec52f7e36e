"""Changing programs as programs: forms are replaced by forms of other programs, wrapped, doubled and dropped."""

# ruff: noqa: E501  # programs and tables of them stand on one line each

import random
import re

from pyagentd.lisp.builtins import BUILTINS
from tests.lisp.bombs.corpus import BOMBS

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"?|#?[({\[]|[)}\]]|;[^\n]*|[^\s,()\[\]{}";]+|[\s,]+', re.DOTALL)
_OPENING = {"(", "[", "{", "#(", "#{"}
_CLOSING = {"(": ")", "[": "]", "{": "}", "#(": ")", "#{": "}"}
_FORMS = """
if when let fn do and or cond -> ->> where all-of any-of none-of call memory/put memory/get return fail if-let when-let loop recur
def defn for doseq case some-> cond-> as-> if-not when-not if-some when-some condp dotimes while
"""
WORDS = sorted({*BUILTINS, *_FORMS.split()})
_ATOMS = """
nil true false 0 1 -1 2 10 0.5 1.0 -0.0 1e308 9007199254740993 2305843009213693951 :a :b :c :else :keys :or :as x y & _ % %2
ctx/rows ctx/maps ctx/text memory/k "a" "" "t" "broken" [] {} #{} [x,y] {:a,1} #"a+" {:keys,[x]}
""".split()  # noqa: SIM905


SEEDS = (
    *(program for builtin in BUILTINS.values() for program, _ in builtin.examples),
    *(bomb.program for bomb in BOMBS if len(bomb.program) < 300),
)
"""Programs to begin with: the examples of the builtins, and the smaller bombs."""


def forms(text: str) -> list[tuple[int, int]]:
    """Return where the forms of a text stand, inner ones too, as far as its parentheses fit."""
    found, opened = [], []
    for token in _TOKEN.finditer(text):
        said = token.group()
        if said in _OPENING:
            opened.append(token.start())
        elif said in (")", "]", "}"):
            if opened:
                found.append((opened.pop(), token.end()))
        elif not said[0].isspace() and said[0] not in ",;":
            found.append(token.span())
    return found


def mutated(text: str, other: str, chance: random.Random) -> str:
    """Return ``text`` with something changed; ``other`` is another program to take from."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        text = _changed(text, other, chance)
    return text


def _changed(text: str, other: str, chance: random.Random) -> str:
    places = forms(text)
    if not places:
        return _fresh(other, chance)
    start, end = chance.choice(places)
    form = text[start:end]
    match chance.randrange(9):
        case 0 | 1:
            new = _fresh(other, chance)
        case 2:
            new = f"{form} {_fresh(other, chance)}"
        case 3:
            new = ""
        case 4:
            new = f"({chance.choice(WORDS)} {form})"
        case 5:
            new = f"({chance.choice(WORDS)} {_fresh(other, chance)} {form})"
        case 6:
            new = chance.choice(
                ("[{}]", "#{{{}}}", "{{:a {}}}", "(fn [x] {})", "#({} %)", "(let [x {}] x)", "({})")
            ).format(form)
        case 7:
            new = chance.choice(WORDS)
        case _:
            first, last = chance.choice(places)
            new = text[first:last]
    return text[:start] + new + text[end:]


def _fresh(other: str, chance: random.Random) -> str:
    places = forms(other)
    if places and chance.random() < 0.6:
        start, end = chance.choice(places)
        return other[start:end]
    return chance.choice(_ATOMS)
