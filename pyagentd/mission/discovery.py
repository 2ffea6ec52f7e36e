"""Tool discovery, for missions with more tools than fit well into a prompt.

A first mission chooses tools from the registry, which it can search by words; the mission itself gets only those.
Both use one budget. The first mission's prompt lists the tools that match the words of the task.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyagentd.errors import UserError
from pyagentd.mission.budget import Budget, current
from pyagentd.mission.delegation import delegate
from pyagentd.mission.step import Step, failed
from pyagentd.mission.tools import Tool, normalize

# Ranking tools by a text: BM25 over names, parameters and descriptions.
#
# Words of a name count three times as much as those of a description. Words are compared in lower case and singular;
# ``get_expenses``, ``getExpenses`` and ``get-expenses`` are the same two words.

_WORD = re.compile(r"[^\W\d_]+|\d+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_COMMON = frozenset(_WORD.findall("a an and any by for from get in into is it its of on or that the this to with"))
_NAME_WEIGHT = 3
_SATURATION = 1.2  # BM25's k1: how soon repetitions of a word stop counting
_LENGTH = 0.75  # BM25's b: how much a long description is discounted


def ranked(query: str, tools: Mapping[str, Tool], limit: int = 10) -> list[Tool]:
    """Return the tools that share a word with ``query``, the best first; ties in alphabetical order."""
    documents = {name: _document(tool) for name, tool in tools.items()}
    scores = _scores(set(words(query)), documents)
    best = sorted((name for name, score in scores.items() if score > 0), key=lambda name: (-scores[name], name))
    return [tools[name] for name in best[: max(0, limit)]]


def words(text: str) -> list[str]:
    """Return the words of ``text`` without common ones, lower case and singular."""
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


LIMIT = 10
_FOUND = 8  # results of one search, by default

_PROMPT = """Choose the tools that are needed for the task below; do not carry it out.

Task: {prompt}

{found}
find_tools looks for others by words. Return the names of the tools that are needed, {limit} at most, no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The tools that the first mission chose.

    Attributes:
        tools: The chosen tools, by name.
        step: The step of that mission.
    """

    tools: Mapping[str, Tool] = field(default_factory=dict)
    step: Step


def find_tools(registry: Mapping[str, Tool]) -> Tool:
    """Return a tool that searches ``registry`` by words."""

    def find_tools(query: str, limit: int = _FOUND) -> list[dict[str, str]]:
        """Find tools by words of their names, parameters and descriptions; the best first."""
        return [
            {"name": tool.name, "call": tool.schema(), "description": tool.description}
            for tool in ranked(query, registry, min(limit, 50))
        ]

    return normalize({"find_tools": find_tools})["find_tools"]


def discover(prompt: str, *, registry: Mapping[str, Any], llm: Any, limit: int = LIMIT, **options: Any) -> Discovery:
    """Choose the tools of ``registry`` that ``prompt`` needs.

    Args:
        prompt: The task, its placeholders filled or not.
        registry: All tools, as ``delegate`` takes them.
        llm: The model that chooses.
        limit: The largest number to choose.
        options: Further options of ``delegate`` for the first mission.

    Raises:
        ToolsError: Something in the registry is not a tool.
    """
    known = normalize(registry)
    first = ranked(prompt, known, limit)
    found = "\n".join(f"- {tool.schema()}  {tool.description}".rstrip() for tool in first)
    step = delegate(
        _escaped(_PROMPT.format(prompt=prompt, found=f"It may need these:\n{found}\n" if found else "", limit=limit)),
        llm=llm,
        signature="{tools [:string]}",
        tools={"find_tools": find_tools(known)},
        **options,
    )
    if not step.ok:
        return Discovery(step=step)
    chosen = {name: known[name] for name in step.value["tools"][:limit] if name in known}
    if chosen or not step.value["tools"]:
        return Discovery(tools=chosen, step=step)
    names = ", ".join(map(str, step.value["tools"]))
    return Discovery(step=failed("tool_not_found", f"None of the tools that were chosen exists: {names}"))


def delegate_discovering(
    prompt: str,
    *,
    registry: Mapping[str, Any],
    llm: Any,
    limit: int = LIMIT,
    discovery_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Step:
    """Run a mission with the tools of ``registry`` that it needs.

    Args:
        prompt: The mission.
        registry: All tools.
        llm: The model that chooses the tools and then works.
        limit: The largest number of tools to choose.
        discovery_options: Options of ``delegate`` for the first mission, such as another ``llm``.
        options: Options of the mission; its ``tools`` are added to the chosen ones.
    """
    if current() is None and "budget" not in options:
        options["budget"] = Budget()
    try:
        choosing = {"llm": llm, "budget": options.get("budget"), **(discovery_options or {})}
        found = discover(prompt, registry=registry, limit=limit, **choosing)
    except UserError as error:
        return failed(getattr(error, "reason", "validation_error"), str(error))
    if not found.step.ok:
        return found.step
    return delegate(prompt, llm=llm, tools={**options.pop("tools", {}), **found.tools}, **options)


def _escaped(text: str) -> str:
    """Return a prompt without ``{{``: the task's placeholders must not be filled in the first mission."""
    return text.replace("{{", "{ {").replace("}}", "} }")
