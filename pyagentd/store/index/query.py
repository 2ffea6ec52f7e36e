"""What a person types to search, as an expression of the index and as a finder of the words in a text.

Words must all be there, ``"…"`` is a phrase, ``-`` in front excludes, and the last word may be the beginning of one.
Nothing a person types is syntax of the index: everything goes there quoted. Case and diacritics do not count; what
stands between letters and digits does not either, so ``foo.bar(x)`` finds itself and a path its parts in order.

Scripts that put no spaces between words are cut into single characters, in the text as in the query; neighbours in
the query must be neighbours in the text, so every substring is found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyagentd.errors import BadRequest
from pyagentd.store.render import writable

MAX_TERMS = 64  # more say nothing more, and the index has a limit
_PREFIX_FROM = 2  # characters; fewer begin too many words

# Thai, Lao, Myanmar, Khmer, Hangul, Kana, Bopomofo, Han with its extensions; ranges for a character class.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u318f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
_SINGLE = re.compile(f"([{_UNSPACED}])")
_TERM = re.compile(r'(-?)"([^"]*)"?|([^\s"]+)')
_MARKS = "[\u0300-\u036f]*"
_WORD = f"[^\\W_{_UNSPACED}]"
_TOKEN = re.compile(f"[{_UNSPACED}]|{_WORD}(?:{_WORD}|[\u0300-\u036f])*")


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase; ``is_open``: the text may go on after its end."""

    text: str
    is_open: bool = False
    is_excluded: bool = False

    @property
    def quoted(self) -> str:
        """The term as a string of the index's language."""
        return '"' + segmented(self.text).replace('"', '""') + '"' + (" *" if self.is_open else "")


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for; ``parse`` makes it."""

    wanted: tuple[Term, ...]
    excluded: tuple[Term, ...]

    @property
    def expression(self) -> str:
        """The query in the language of SQLite's FTS5."""
        wanted = " AND ".join(term.quoted for term in self.wanted)
        excluded = " OR ".join(term.quoted for term in self.excluded)
        return f"({wanted}) NOT ({excluded})" if excluded else wanted

    def finder(self) -> Finder:
        """Return what finds the wanted words in a text."""
        return Finder(self.wanted)


def parse(text: str) -> Query:
    """Return what ``text`` asks for.

    Raises:
        BadRequest: It has no word to look for.
    """
    terms = [term for term in _terms(writable(text.replace("\0", " "))) if _TOKEN.search(term.text)][:MAX_TERMS]
    wanted = tuple(term for term in terms if not term.is_excluded)
    if not wanted:
        raise BadRequest("The query has no word to look for", mend='Give words, a "phrase", or words and -exclusions')
    return Query(wanted, tuple(term for term in terms if term.is_excluded))


def segmented(text: str) -> str:
    """Return ``text`` as the index gets it: characters of scripts without spaces apart, all of it bindable."""
    return writable(text if text.isascii() else _SINGLE.sub(r" \1 ", text))


class Finder:
    """Finds words of a query where they stand; by the same rules as the index, as far as anybody would notice."""

    def __init__(self, terms: Sequence[Term]) -> None:
        patterns = dict.fromkeys(pattern for term in terms if (pattern := _pattern(term)))
        self._found = re.compile("|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)")

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where words of the query stand, as offsets in code points, from first to last."""
        return (found.span() for found in self._found.finditer(folded(text)))

    def preview(self, text: str, length: int = 200) -> tuple[str, list[tuple[int, int]]]:
        """Return about ``length`` characters around the first match on one line, and the matches in them."""
        first, end = next(self.spans(text), (0, 0))
        start = max(0, first - max(0, length - (end - first)) // 3)
        start = _word_start(text, start, first)
        cut = text[start : max(end, start + length)]
        line = " ".join(cut.split())
        shown = ("…" if start else "") + line + ("…" if start + len(cut) < len(text.rstrip()) else "")
        return shown, list(self.spans(shown))


def folded(text: str) -> str:
    """Return ``text`` in lower case and without diacritics, every character in its place."""
    return text.lower() if text.isascii() else text.translate(_FOLD)


class _Fold(dict[int, str]):
    """Folds a character to one character; combining marks stay and are skipped by the patterns."""

    def __missing__(self, code: int) -> str:
        base = unicodedata.normalize("NFD", chr(code))[0]
        lower = base.lower()
        self[code] = lower if len(lower) == 1 and not _SINGLE.match(chr(code)) else chr(code)
        return self[code]


_FOLD = _Fold()


def _terms(text: str) -> Iterator[Term]:
    found = list(_TERM.finditer(text))
    for match in found:
        sign, phrase, word = match.groups()
        if word is None:
            yield Term(phrase, is_excluded=bool(sign))
            continue
        if word.startswith("-") and len(word) > 1 and word[1] != "-":
            yield Term(word[1:], is_excluded=True)
        else:
            is_last = match is found[-1] and match.end() == len(text)
            tokens = _TOKEN.findall(word)
            yield Term(word, is_open=is_last and bool(tokens) and len(tokens[-1]) >= _PREFIX_FROM)


def _pattern(term: Term) -> str:
    """Return the pattern of the term's words in order, nothing but punctuation between them."""
    tokens = _TOKEN.findall(folded(term.text))
    patterns = []
    for token in tokens:
        letters = [letter for letter in token if not unicodedata.combining(letter)]
        patterns.append(_MARKS.join(map(re.escape, letters)) + _MARKS)
    if not patterns:
        return ""
    words = [not _SINGLE.match(token) for token in tokens]
    before = f"(?<!{_WORD})" if words[0] else ""
    after = f"(?!{_WORD})" if words[-1] and not term.is_open else ""
    pattern = patterns[0]
    for (left, right), each in zip(pairwise(words), patterns[1:], strict=True):
        pattern += (r"[\W_]+" if left and right else r"[\W_]*") + each
    return before + pattern + after


def _word_start(text: str, start: int, first: int) -> int:
    """Return where a word begins between ``start`` and the first match, ``start`` if none does."""
    space = re.search(r"\s+", text[start:first]) if start else None
    return start + space.end() if space else start
