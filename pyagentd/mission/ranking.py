"""Which tools a text is about: BM25 over names, parameters and descriptions (SPEC 004 Tool Discovery).

A name says more than a description and counts three times. Words are compared without case and endings of plurals;
``get_expenses``, ``getExpenses`` and ``get-expenses`` are the same two words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from pyagentd.mission.tools import Tool

_WORD = re.compile(r"[^\W\d_]+|\d+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_COMMON = frozenset(_WORD.findall("a an and any by for from get in into is it its of on or that the this to with"))
_NAME_WEIGHT = 3
_SATURATION = 1.2  # BM25's k1: how soon saying a word again adds nothing
_LENGTH = 0.75  # BM25's b: how much a long description is discounted


def ranked(query: str, tools: Mapping[str, Tool], limit: int = 10) -> list[Tool]:
    """Return the tools that share a word with ``query``, the best first; equals in alphabetical order."""
    documents = {name: _document(tool) for name, tool in tools.items()}
    scores = _scores(set(words(query)), documents)
    best = sorted((name for name, score in scores.items() if score > 0), key=lambda name: (-scores[name], name))
    return [tools[name] for name in best[: max(0, limit)]]


def words(text: str) -> list[str]:
    """Return the words of ``text`` that tell something, in their simplest form."""
    return [
        _stem(word)
        for word in (found.lower() for found in _WORD.findall(_HUMP.sub(" ", text)))
        if word not in _COMMON
    ]


def _document(tool: Tool) -> Counter[str]:
    counted = Counter(words(tool.name) * _NAME_WEIGHT)
    counted.update(words(tool.description))
    if tool.signature is not None:
        counted.update(word for each in tool.signature.params for word in words(each.name))
    return counted


def _scores(query: Iterable[str], documents: Mapping[str, Counter[str]]) -> dict[str, float]:
    lengths = {name: document.total() for name, document in documents.items()}
    average = sum(lengths.values()) / len(lengths) if lengths else 1.0
    scores = dict.fromkeys(documents, 0.0)
    for word in query:
        holding = [name for name, document in documents.items() if word in document]
        rarity = math.log(1 + (len(documents) - len(holding) + 0.5) / (len(holding) + 0.5))
        for name in holding:
            count = documents[name][word]
            discount = 1 - _LENGTH + _LENGTH * lengths[name] / (average or 1.0)
            scores[name] += rarity * count * (_SATURATION + 1) / (count + _SATURATION * discount)
    return scores


def _stem(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
