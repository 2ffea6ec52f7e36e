"""Which of a run's tools the model is told about: all, or the usual ones and what it searched for (neighbours B.11).

Beside the usual ones, tools whose descriptions take more than ``MOST_TOKENS`` are too much to tell about in every
request. Then the model is offered the usual ones and ``tool_search``; what a search finds is offered from the next
request on. The tools stand before everything else in a request, so a provider's cache of the conversation ends where
they change: they only ever grow, at the end, in the order in which they were found, and a session's next run begins
with all that its log says was found. A run without a search that found something new sends the same tools in each
request.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyagentd.policy.action import canonical_tool
from pyagentd.store.conversation import Conversation, estimated
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec, schema_of

NAME = "tool_search"
MOST_TOKENS = 10_000  # of all tools but the usual ones, without a search
_SHARE = 10  # of a small window they may take a tenth
MOST_FOUND = 10

CORE = (
    "Read", "Write", "Edit", "Glob", "Grep", "Bash", "PersistentAgent", "task", "mission", "question", "TodoWrite",
    "WebSearch", "WebFetch", "skill", "request_scope_expansion", "TaskOutput", "KillTask",
    "self_edit_system_prompt", "self_edit_docs", "self_edit_permissions", "self_edit_model",
)  # fmt: skip
"""The tools that are offered however many there are."""

_SHOWN = 200  # characters of a description
_WORD = re.compile(r"[a-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_DESCRIPTION = """\
Find tools that are available and not yet offered to you, by what they do or by name{servers}. Returns up to 10; \
from your next step on you can call them like any other."""

_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "minLength": 1, "description": "A few words, such as: create issue"}},
    "required": ["query"],
    "additionalProperties": False,
}


class Offer:
    """What one run offers.

    Args:
        tools: All that the run may use, by name.
        found: Names of those that were found before, in that order; others are ignored.
        window: How many tokens the model can hold; None where that is not known.

    Attributes:
        tools: All of them, the search included where there is one.
    """

    def __init__(
        self, tools: Mapping[str, ToolSpec], found: Iterable[str] = (), *, window: int | None = None
    ) -> None:
        self._before = tuple(found)
        self._most = MOST_TOKENS if window is None else min(MOST_TOKENS, window // _SHARE)
        self.tools: dict[str, ToolSpec] = {}
        self.add(tools)

    def add(self, tools: Mapping[str, ToolSpec], *, servers: Sequence[str] = ()) -> None:
        """Have further tools, known when ``servers`` have told them; only before the first request."""
        usual = {name: spec for name, spec in {**self.tools, **tools}.items() if name != NAME}
        self._searched = {name: spec for name, spec in usual.items() if name not in CORE}
        tokens = sum(estimated(str(schema_of(spec))) for spec in self._searched.values())
        self._all = tokens <= self._most
        self._found = dict.fromkeys(name for name in self._before if name in self._searched)
        self.tools.clear()  # whoever makes the calls has this very mapping
        self.tools.update(usual if self._all else {**usual, NAME: self._search(servers)})

    def offered(self) -> tuple[ToolSpec, ...]:
        """Return the tools for the next request, in an order that only ever grows at its end."""
        if self._all:
            return tuple(self.tools.values())
        first = [spec for name, spec in self.tools.items() if name not in self._searched]
        return (*first, *(self._searched[name] for name in self._found))

    def _search(self, servers: Sequence[str]) -> ToolSpec:
        async def run(args: Args, ctx: ToolContext) -> Output:
            matches = best(args["query"], self._searched)
            self._found |= dict.fromkeys(matches)
            told = [{"id": name, "description": self._searched[name].description[:_SHOWN]} for name in matches]
            return Output(text=json.dumps({"matches": told}, ensure_ascii=False))

        return ToolSpec(
            name=NAME,
            description=_DESCRIPTION.format(servers=f", of the servers {', '.join(servers)}" if servers else ""),
            input_schema=_SCHEMA,
            kind="meta",
            repeatable=True,
            run=run,
            describe=lambda args, ctx: Target(detail=args["query"]),
            parallel_safe=True,
        )


def best(query: str, tools: Mapping[str, ToolSpec]) -> list[str]:
    """Return the names of the tools that fit ``query`` best, the best first; none when no word of it is anywhere.

    A word counts more the fewer tools have it, and more in a name than in a description.
    """
    wanted = _words(query)
    texts = {name: (_words(name), _words(spec.description)) for name, spec in tools.items()}
    common = Counter(word for name, told in texts.values() for word in name | told)
    scores = {
        name: sum((3.0 * (word in in_name) + (word in told)) / common[word] for word in wanted if common[word])
        for name, (in_name, told) in texts.items()
    }
    ranked = sorted((name for name, score in scores.items() if score > 0), key=lambda name: (-scores[name], name))
    return ranked[:MOST_FOUND]


def found_before(conversation: Conversation) -> Sequence[str]:
    """Return the names of all tools that searches in a conversation found, in that order."""
    names: dict[str, None] = {}
    for part in conversation.parts.values():
        is_search = part.is_tool and canonical_tool(part.type.removeprefix("tool-")) == NAME
        if is_search and part.data.get("state") == "output-available":
            names |= dict.fromkeys(_matches(str(part.data.get("output", ""))))
    return list(names)


def _matches(output: str) -> list[str]:
    try:
        return [str(match["id"]) for match in json.loads(output)["matches"]]
    except (ValueError, KeyError, TypeError):  # written by nobody we know
        return []


def _words(text: str) -> set[str]:
    """Return the words of a text as they are compared: no little ones, singular, a name also in its pieces."""
    words = {*_WORD.findall(text.lower()), *_WORD.findall(_HUMP.sub(" ", text).lower())}
    return {word.removesuffix("s") for word in words if len(word) > 2}
