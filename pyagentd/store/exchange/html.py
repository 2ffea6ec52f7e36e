"""A branch as one page that a colleague can read in any browser: no script, nothing loaded from anywhere; pure.

The page shows the document, as the user left it: prompts and answers as Markdown, reasoning and tool calls folded
with a line that says what they are. The log adds what the document does not say: when, how long, and whether a call
failed. The agents of the branch follow, folded, with theirs inside. Everything quoted is escaped; the page is
well-formed XML and forbids itself scripts and requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from pyagentd.clock import slugify
from pyagentd.store.align import placed
from pyagentd.store.document import PROMPT_PREFIX, Region, regions
from pyagentd.store.exchange import blocks
from pyagentd.store.exchange.blocks import count, cut, date, first_line
from pyagentd.store.exchange.prose import Prose
from pyagentd.store.exchange.source import Source
from pyagentd.store.exchange.style import STYLE
from pyagentd.store.pieces import fragments
from pyagentd.store.recorded import Message, Part
from pyagentd.store.render import RUN_OPEN, writable
from pyagentd.store.rows import served_by
from pyagentd.wire.sexp import read_call

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_REASONING = re.compile(r"``` reasoning\n(.*?)(?:\n```|\Z)", re.DOTALL)
_COMPACTION = re.compile(r"^``` compaction ([^\n]*)\n(.*?)(?:\n```(?=\n|\Z)|\Z)", re.DOTALL | re.MULTILINE)
_ERROR = re.compile(r"^``` error\n(.*?)\n```", re.DOTALL | re.MULTILINE)
_FENCES = re.compile(r"\A\s*```(?=\n|\Z)|^``` tool [^\n]*\s*\Z", re.MULTILINE)
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def page(source: Source) -> str:
    """Return the page."""
    body = "\n".join(_root(source))
    text = (
        "<!DOCTYPE html>\n"
        '<html xmlns="http://www.w3.org/1999/xhtml" lang="en">\n<head>\n<meta charset="utf-8" />\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}" />\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />\n'
        '<meta name="color-scheme" content="light dark" />\n<meta name="generator" content="pyagentd" />\n'
        f"<title>{escape(_title(source))}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )
    return _NOT_IN_XML.sub(_visible, writable(text))


def _visible(control: re.Match[str]) -> str:
    code = ord(control[0])
    return chr(0x2400 + code) if code < 32 else "\ufffd"


def _title(source: Source) -> str:
    return source.title or source.session_id


def _root(source: Source) -> Iterator[str]:
    """Yield the page of the branch: what it is, its prompts, its turns, its agents."""
    anchors = _Anchors()
    timeline = _Timeline(source, anchors, is_agent=False)
    turns, agents = list(timeline.turns()), list(timeline.agents())
    yield f"<header>\n<h1>{escape(_title(source))}</h1>\n{_facts(source, timeline)}\n</header>"
    yield from _contents(timeline)
    yield from ("<main>", *turns, *agents, "</main>")
    yield f"<footer>{escape(f'{source.session_id}/{source.branch_name}')} · exported from pyagentd</footer>"


def _facts(source: Source, timeline: _Timeline) -> str:
    facts = [
        date(source.created),
        source.document.settings.model,
        source.preset and f"preset {source.preset}",
        count(len(timeline.prompts), "prompt"),
        count(timeline.calls, "tool call") if timeline.calls else "",
        count(len(source.agents), "agent") if source.agents else "",
    ]
    return '<ul class="facts">' + "".join(f"<li>{escape(fact)}</li>" for fact in facts if fact) + "</ul>"


def _contents(timeline: _Timeline) -> Iterator[str]:
    if not timeline.prompts:
        return
    yield '<nav aria-label="Contents">\n<h2>Prompts</h2>'
    yield from _links("ol", timeline.prompts)
    if timeline.children:
        yield "<h2>Agents</h2>"
        yield from _links("ul", [(anchor, timeline.name(agent, anchor)) for agent, anchor in timeline.children])
    yield "</nav>"


def _links(kind: str, places: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"<{kind}>"
    yield from (f'<li><a href="#{anchor}">{escape(line)}</a></li>' for anchor, line in places)
    yield f"</{kind}>"


@dataclass(slots=True)
class _Anchors:
    """Names of places on the page; agents of different agents may have the same id."""

    used: set[str] = field(default_factory=set)

    def new(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self.used:
            name, number = f"{wanted}-{number}", number + 1
        self.used.add(name)
        return name


class _Timeline:
    """The turns of the branch, or of one agent, and the agents below.

    Attributes:
        prompts: Anchor and first line of each, once the turns were made.
        calls: How many tool calls there were.
        children: The agents, with their anchors.
    """

    def __init__(self, source: Source, anchors: _Anchors, *, is_agent: bool) -> None:
        _, pieces = placed(source.document, source.conversation)
        recorded = source.conversation.parts.values()
        self.prompts: list[tuple[str, str]] = []
        self.calls = 0
        self.children = [(agent, anchors.new(f"agent-{slugify(agent.session_id)}")) for agent in source.agents]
        self._source = source
        self._anchors = anchors
        self._is_agent = is_agent
        self._prose = Prose(source.images)
        self._messages = {piece.found.region: piece.message for piece in pieces}
        self._parts = {str(part.data["toolCallId"]): part for part in recorded if part.is_tool}
        self._tasks: dict[str, str] = {}  # by the anchor of the agent

    def turns(self) -> Iterator[str]:
        """Yield prompts, and between them answers with everything that belongs to them."""
        answer: list[str] = []
        first: Message | None = None
        for number, region in enumerate(regions(self._source.document)):
            message = self._messages.get(number)
            if region.kind is not None:
                first = first or message
                answer += self._piece(region)
            elif prompt := self._user_text(region):
                if answer:
                    yield _answer(answer, first)
                    answer, first = [], None
                yield self._prompt(prompt, message)
        if answer:
            yield _answer(answer, first)

    def agents(self) -> Iterator[str]:
        """Yield the agents, folded, each with its own."""
        if not self.children:
            return
        yield f'<section class="agents">\n<h2>{"Its agents" if self._is_agent else "Agents"}</h2>'
        for source, anchor in self.children:
            timeline = _Timeline(source, self._anchors, is_agent=True)
            facts = (source.document.settings.model or "", date(source.created))
            yield f'<details class="agent" id="{anchor}">'
            name = self.name(source, anchor)
            yield f"<summary><b>{escape(name)}</b> {escape(' · '.join(filter(None, facts)))}</summary>"
            yield from ("<div>", *timeline.turns(), *timeline.agents(), "</div>", "</details>")
        yield "</section>"

    def name(self, agent: Source, anchor: str) -> str:
        """Return what to call an agent: its preset and its task, as far as the call that spawned it says so."""
        task = cut(first_line(self._tasks.get(anchor, "")))
        return f"{agent.preset}: {task}" if task else _title(agent)

    def _user_text(self, region: Region) -> str:
        body = self._source.document.body
        found = list(fragments(body, region.start, region.end))
        return body[found[0][0] : found[-1][1]] if found else ""

    def _prompt(self, text: str, message: Message | None) -> str:
        number = len(self.prompts) + 1
        anchor = self._anchors.new(f"prompt-{number}")
        self.prompts.append((anchor, cut(first_line(text))))
        who = "Task" if self._is_agent and number == 1 else "User"
        shown = f'<span class="number">{number}</span>'
        return (
            f'<section class="turn user" id="{anchor}">\n'
            f'<p class="who"><span>{who}</span>{"" if self._is_agent else shown}{blocks.time(message)}</p>\n'
            f"{blocks.prose(text, self._prose, typed=True)}\n</section>"
        )

    def _piece(self, region: Region) -> Iterator[str]:
        text = self._source.document.body[region.start : region.end]
        match region.kind:
            case "response" if text.strip():
                yield blocks.prose(text, self._prose)
            case "tool" if text.strip():
                self.calls += 1
                yield self._tool(text, region.id)
            case "ignore" if text.startswith((RUN_OPEN, PROMPT_PREFIX)):  # how a region of hidden turns begins
                yield blocks.folded("aside", "<b>Taken back</b>", blocks.prose(text.strip(), self._prose))
            case "ignore":
                yield from self._ignored(text)

    def _ignored(self, text: str) -> Iterator[str]:
        """Yield what the model is not shown: reasoning, compactions, errors; fences of tool blocks are no text."""
        for found in _REASONING.finditer(text):
            yield blocks.reasoning(found[1], self._prose)
        text = _REASONING.sub("", text)
        for found in _COMPACTION.finditer(text):
            yield blocks.compaction(found[1], found[2], self._prose)
        text = _COMPACTION.sub("", text)
        for found in _ERROR.finditer(text):
            yield blocks.error(found[1])
        rest = _FENCES.sub("", _ERROR.sub("", text)).strip()
        if rest:
            yield blocks.folded("aside", "<b>Not shown to the model</b>", blocks.prose(rest, self._prose))

    def _tool(self, text: str, call_id: str) -> str:
        try:
            name, arguments, end = read_call(text)
        except (ValueError, RecursionError):
            return blocks.folded("tool", "<b>Tool call</b>", blocks.preformatted(text.strip("\n")))
        return blocks.tool_call(
            name,
            arguments,
            text[end:].removeprefix("\n\n").rstrip("\n"),
            part=self._parts.get(call_id),
            link=self._agent_of(arguments, self._parts.get(call_id)) if name == blocks.AGENT_TOOL else "",
            renderer=self._prose,
        )

    def _agent_of(self, arguments: Mapping[str, Any], call: Part | None) -> str:
        """Return the anchor of the agent that a call spawned: the next of its preset, task and time, or ""."""
        task = str(arguments.get("description", ""))
        ending = re.compile(rf"-{slugify(task, fallback='task')}(-\d+)?\Z")
        for agent, anchor in self.children:
            fits = agent.preset == arguments.get("preset") and ending.search(agent.session_id)
            if fits and _made_during(agent, call) and anchor not in self._tasks:
                self._tasks[anchor] = task
                return anchor
        return ""


def _made_during(agent: Source, call: Part | None) -> bool:
    """Return whether an agent was made while a call went on; a call that was refused made none."""
    made = agent.conversation.session.get("created_at")
    if call is None or made is None:
        return True  # nobody knows
    return bool(call.row["created_at"] <= made <= call.row["updated_at"])


def _answer(pieces: Sequence[str], message: Message | None) -> str:
    model = served_by(message.row).model if message is not None else ""
    said = f'<span class="number">{escape(model)}</span>' if model else ""
    who = f'<p class="who"><span>Assistant</span>{said}{blocks.time(message)}</p>'
    return "\n".join(['<section class="turn assistant">', who, *pieces, "</section>"])
