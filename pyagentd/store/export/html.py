"""Exports a branch as one HTML page without scripts and without anything loaded from elsewhere; pure.

The page shows the document as the user left it: prompts and answers as Markdown, reasoning and tool calls folded
under a line of summary. The log adds times, durations, and which calls failed. The agents of the branch follow,
folded, with their own agents inside. Everything quoted is escaped; the page is well-formed XML, and its content
security policy forbids scripts and requests.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from pyagentd.clock import claim
from pyagentd.store import charts, paths
from pyagentd.store.attachments import media_type
from pyagentd.store.conversation import Message, Part
from pyagentd.store.document.pieces import fragments
from pyagentd.store.document.reconcile import recognise
from pyagentd.store.document.render import RUN_OPEN, writable
from pyagentd.store.document.text import PROMPT_PREFIX, Region, regions
from pyagentd.store.export.export import Source
from pyagentd.store.journal import served_by
from pyagentd.wire.sexp import SexpError, read_call
from pyagentd.words import quantity

# Elements of an exported page, with their short texts escaped; pure.

_LINE = 90  # characters of a summary or of a prompt in the table
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours of a terminal
_ISO8601 = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ\Z")

AGENT_TOOL = "PersistentAgent"


def details(kind: str, summary: str, inside: str) -> str:
    """Return a block that opens on a click; the arguments are HTML."""
    return f'<details class="{kind}">\n<summary>{summary}</summary>\n{inside}\n</details>'


def preformatted(text: str) -> str:
    """Return ``text`` preformatted, without the colours of a terminal."""
    # A browser drops a line end right after the tag: this one, and not the first of the text.
    return f"<pre>\n{escape(_ANSI.sub('', text), quote=False)}</pre>"


def first_line(text: str) -> str:
    """Return the first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def cut(line: str) -> str:
    """Return ``line``, or its beginning if it is too long for a summary."""
    return line if len(line) <= _LINE else line[: _LINE - 1].rstrip() + "…"


def date(created: str) -> str:
    """Return a time of the metadata for people; a value of another form is returned unchanged."""
    found = _ISO8601.match(created)
    return f"{found[1]} {found[2]} UTC" if found else created


def time(message: Message | None) -> str:
    """Return the creation time of a message, in UTC, since the reader's time zone is unknown."""
    created = message.row.get("created_at") if message is not None else None
    if not isinstance(created, int) or created <= 0:
        return ""
    moment = datetime.fromtimestamp(created / 1000, UTC)
    return f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}">{moment:%Y-%m-%d %H:%M}</time>'


def _call_line(name: str, arguments: Mapping[str, Any], part: Part | None, failed: bool) -> str:
    values = [str(value) for value in arguments.values() if isinstance(value, str | int | float)]
    about = cut(first_line(" ".join(values[:2])))
    facts = [f"<b>{escape(name)}</b>" + (f" <code>{escape(about)}</code>" if about else "")]
    if part is not None and isinstance(took := (part.data.get("metadata") or {}).get("duration_ms"), int):
        facts.append(f"{took} ms" if took < 1000 else f"{took / 1000:.1f} s")
    if failed:
        facts.append('<span class="bad">failed</span>')
    return " · ".join(facts)


def _value(text: str) -> str:
    short = len(text) <= _LINE and len(text.splitlines()) <= 1
    return f"<code>{escape(text, quote=False)}</code>" if short else preformatted(text)


def _arguments(arguments: Mapping[str, Any]) -> str:
    shown = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        for key, value in arguments.items()
    }
    items = "\n".join(f"<dt>{escape(key)}</dt><dd>{_value(value)}</dd>" for key, value in shown.items())
    return f'<h3>Arguments</h3>\n<dl class="args">\n{items}\n</dl>'


# Markdown as safe HTML, for pages that quote models, tools and strangers.
#
# Raw HTML becomes text. Links to http, https, mailto and the same page stay, others become their words. Images are
# those given, or data in the text; nothing is ever loaded. The result is well-formed XML, too.

_SCHEMES = frozenset({"http", "https", "mailto"})
_WRITTEN_OUT = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
_LOWEST_HEADING = 6
_LOWERED = 2


class Prose:
    """Renders texts of one conversation; ``images`` are by their links in the texts."""

    def __init__(self, images: Mapping[str, bytes] | None = None) -> None:
        self._images = images or {}
        self._markdown = _markdown(breaks=False)
        self._typed = _markdown(breaks=True)

    def html(self, text: str, *, typed: bool = False) -> str:
        """Return Markdown as a block of HTML; of ``typed`` text line ends are kept."""
        markdown = self._typed if typed else self._markdown
        tokens = markdown.parse(text)
        _lower_headings(tokens)
        rendered = markdown.renderer.render(tokens, markdown.options, {"images": self._images, "links": []})
        return f'<div class="prose">{rendered}</div>'


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return True  # `_Renderer` decides: here a refused link would show its address as text


class _Renderer(RendererHTML):
    """Rendering rules for elements that could refer to other places."""

    def link_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        address = str(tokens[index].attrGet("href") or "")
        scheme, colon, _ = address.partition(":")
        is_dead = not address.startswith("#") and not (colon and scheme.lower() in _SCHEMES)
        is_dead |= "</a>" in env["links"]  # an address among the words of a link
        env["links"].append("</span>" if is_dead else "</a>")
        if is_dead:
            return f'<span class="link" title="{escape(address)}">'
        rel = "" if address.startswith("#") else ' rel="noopener noreferrer"'
        return f'<a href="{escape(address)}"{rel}>'

    def link_close(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        return str(env["links"].pop())

    def image(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[index]
        address = str(token.attrGet("src") or "")
        words = self.renderInlineAsText(token.children or [], options, env)
        source = address if _WRITTEN_OUT.match(address) else data_uri(env["images"].get(address, b""))
        if source:
            return f'<img src="{escape(source)}" alt="{escape(words)}" />'
        label = f"{words} ({address})" if words else address
        return f'<span class="link">{escape(f"[image: {label}]")}</span>'


def data_uri(image: bytes) -> str:
    """Return an image as a data URL, "" if browsers cannot show it."""
    kind = media_type(image)
    return f"data:{kind};base64,{base64.b64encode(image).decode()}" if kind.startswith("image/") else ""


def _markdown(*, breaks: bool) -> MarkdownIt:
    options: Any = {"html": False, "xhtmlOut": True, "breaks": breaks}
    return _Markdown("commonmark", options, renderer_cls=_Renderer).enable(["table", "strikethrough"])


def _lower_headings(tokens: Sequence[Token]) -> None:
    """Lower the headings of a text below those of the page."""
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(_LOWEST_HEADING, int(token.tag[1:]) + _LOWERED)}"


# The style sheet: for light and dark screens, narrow and wide, and for paper.

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf8; --text: #1f2328; --dim: #656d76; --line: #d8d4cc; --user: #eef3fb; --edge: #4a7dc9;
  --code: #f2f0eb; --bad: #b3261e; --link: #0b57d0; --card: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #16181c; --text: #dfe2e6; --dim: #969ea8; --line: #33373e; --user: #1d2737; --edge: #6f9fe8;
    --code: #20242a; --bad: #ff8a80; --link: #8ab4f8; --card: #1b1e23;
  }
}
* { box-sizing: border-box; }
html { background: var(--page); color: var(--text); -webkit-text-size-adjust: 100%; }
body {
  font: 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  max-width: 50rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem;
}
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .4rem; overflow-wrap: anywhere; }
a { color: var(--link); text-underline-offset: .15em; }
.facts { color: var(--dim); font-size: .9rem; margin: 0; padding: 0; list-style: none; display: flex;
  flex-wrap: wrap; gap: .1rem 1.2rem; }
nav { margin: 1.8rem 0 2.5rem; padding: .9rem 1.2rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--card); }
nav h2 { font-size: .8rem; letter-spacing: .05em; text-transform: uppercase; color: var(--dim); margin: 0 0 .4rem; }
nav ol, nav ul { margin: 0 0 .6rem; padding-left: 1.6rem; }
nav li { margin: .15rem 0; }
nav a { text-decoration: none; overflow-wrap: anywhere; }
nav a:hover { text-decoration: underline; }
.turn { margin: 1.6rem 0; scroll-margin-top: 1rem; }
.user { background: var(--user); border-left: .25rem solid var(--edge); border-radius: 0 .6rem .6rem 0;
  padding: .8rem 1.2rem; margin-top: 2.6rem; }
.who { display: flex; gap: .8rem; align-items: baseline; margin: 0 0 .3rem; font-size: .8rem; font-weight: 600;
  color: var(--dim); }
.who time, .who .number { font-weight: 400; }
.prose > :first-child { margin-top: 0; }
.prose > :last-child { margin-bottom: 0; }
.prose { overflow-wrap: anywhere; }
.prose h3 { font-size: 1.3rem; } .prose h4 { font-size: 1.15rem; } .prose h5, .prose h6 { font-size: 1rem; }
.prose h3, .prose h4, .prose h5, .prose h6 { line-height: 1.3; margin: 1.4em 0 .5em; }
.prose img { max-width: 100%; height: auto; border-radius: .3rem; }
.prose blockquote { margin: 1em 0; padding: 0 1rem; border-left: .2rem solid var(--line); color: var(--dim); }
.prose hr { border: 0; border-top: 1px solid var(--line); margin: 2em 0; }
.prose table { display: block; overflow-x: auto; border-collapse: collapse; margin: 1em 0; font-size: .95em; }
.prose th, .prose td { border: 1px solid var(--line); padding: .35rem .7rem; text-align: left; }
.prose th { background: var(--code); }
code, pre { font-family: ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace; font-size: .875em; }
code { background: var(--code); border-radius: .25rem; padding: .1em .3em; }
pre { background: var(--code); border-radius: .5rem; padding: .8rem 1rem; overflow-x: auto; line-height: 1.45;
  overflow-wrap: normal; }
pre code { background: none; padding: 0; font-size: inherit; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .7rem 0; background: var(--card); }
summary { cursor: pointer; padding: .4rem .8rem; font-size: .9rem; color: var(--dim); overflow-wrap: anywhere; }
summary b { color: var(--text); font-weight: 600; }
summary code { background: none; padding: 0; }
summary .bad, .error { color: var(--bad); }
details > :not(summary) { margin-left: .8rem; margin-right: .8rem; }
details > :last-child { margin-bottom: .8rem; }
details > h3 { font-size: .8rem; color: var(--dim); margin-top: .6rem; margin-bottom: .2rem; }
details pre { margin-top: 0; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 32rem; overflow-y: auto; }
.args { margin-top: 0; margin-bottom: 0; }
.args dt { font-size: .8rem; color: var(--dim); }
.args dd { margin: 0 0 .4rem; overflow-wrap: anywhere; }
.reasoning .prose { color: var(--dim); font-size: .95em; }
.compaction { border-style: dashed none none; border-radius: 0; background: none; margin: 2rem 0; }
.compaction summary { text-align: center; }
.error pre { border: 1px solid var(--bad); white-space: pre-wrap; }
.agent { border-left: .25rem solid var(--line); }
.agent .user { margin-top: 1.4rem; }
.link { color: var(--dim); }
.charts > h2 { font-size: 1.2rem; margin: 3rem 0 .8rem; }
figure { margin: 0; overflow-x: auto; } figure svg { display: block; max-width: 100%; height: auto; }
footer { margin-top: 4rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--dim);
  font-size: .8rem; }
.agents > h2 { font-size: 1.2rem; margin: 3rem 0 .8rem; }
.agent .agents > h2 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
@media (max-width: 36rem) { body { padding: 1.25rem .9rem 3rem; } .user { padding: .7rem .8rem; } }
@media print {
  :root { color-scheme: light; --page: #fff; --text: #000; --dim: #444; --line: #bbb; --user: #f4f4f4; --edge: #888;
    --code: #f4f4f4; --bad: #900; --link: #000; --card: #fff; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav { break-after: page; }
  pre, details pre { white-space: pre-wrap; overflow-wrap: anywhere; max-height: none; overflow: visible; }
  .who, summary, h1, .prose h3, .prose h4, .prose h5, .prose h6 { break-after: avoid; }
  img, tr { break-inside: avoid; }
  .prose a[href^="http"]::after { content: " (" attr(href) ")"; font-size: .85em; color: var(--dim); }
}
"""

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
    """Yield the page of the branch: facts, list of prompts, turns, agents."""
    anchors = set[str]()  # agents of different agents may have the same id
    timeline = _Timeline(source, anchors, is_agent=False)
    turns, agents = list(timeline.turns()), list(timeline.agents())
    yield f"<header>\n<h1>{escape(_title(source))}</h1>\n{_facts(source, timeline)}\n</header>"
    yield from _contents(timeline)
    yield from ("<main>", *turns, *agents, *_charts(source), "</main>")
    yield f"<footer>{escape(f'{source.session_id}/{source.branch_name}')} · exported from pyagentd</footer>"


def _facts(source: Source, timeline: "_Timeline") -> str:
    facts = [
        date(source.created),
        source.document.settings.model,
        source.preset and f"preset {source.preset}",
        quantity(len(timeline.prompts), "prompt"),
        quantity(timeline.calls, "tool call") if timeline.calls else "",
        quantity(len(source.agents), "agent") if source.agents else "",
    ]
    return '<ul class="facts">' + "".join(f"<li>{escape(fact)}</li>" for fact in facts if fact) + "</ul>"


def _contents(timeline: "_Timeline") -> Iterator[str]:
    if not timeline.prompts:
        return
    yield '<nav aria-label="Contents">\n<h2>Prompts</h2>'
    yield from _links("ol", timeline.prompts)
    if timeline.children:
        yield "<h2>Agents</h2>"
        yield from _links("ul", [(anchor, timeline.name(agent, anchor)) for agent, anchor in timeline.children])
    yield "</nav>"


def _charts(source: Source) -> Iterator[str]:
    """Yield the statistics of each turn and the contents of the context, folded."""
    turns = [each for each in charts.turns(source.conversation) if not each[0].is_hidden]
    drawn = [(cut(first_line(message.text)), chart.ends[1], chart) for message, chart in turns]
    if source.filled is not None:
        drawn.append((source.filled.title, "", source.filled))
    if not drawn:
        return
    yield '<section class="charts">\n<h2>How it went</h2>'
    for number, (name, took, chart) in enumerate(drawn, 1):
        yield f"<details><summary><b>{escape(name)}</b> {escape(took)}</summary>"
        yield f"<figure>\n{charts.svg(chart, f'chart-{number}')}\n</figure></details>"
    yield "</section>"


def _links(kind: str, places: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"<{kind}>"
    yield from (f'<li><a href="#{anchor}">{escape(line)}</a></li>' for anchor, line in places)
    yield f"</{kind}>"


class _Timeline:
    """The turns of the branch, or of one agent, and the agents below.

    Attributes:
        prompts: Anchor and first line of each prompt, once the turns were rendered.
        calls: The number of tool calls.
        children: The agents, with their anchors.
    """

    def __init__(self, source: Source, anchors: set[str], *, is_agent: bool) -> None:
        pieces = recognise(source.document, source.conversation).pieces
        recorded = source.conversation.parts.values()
        self.prompts: list[tuple[str, str]] = []
        self.calls = 0
        self.children = [
            (agent, claim(f"agent-{paths.slugify(agent.session_id)}", anchors)) for agent in source.agents
        ]
        self._source = source
        self._anchors = anchors
        self._is_agent = is_agent
        self._prose = Prose(source.images)
        self._messages = {piece.found.region: piece.message for piece in pieces}
        self._parts = {str(part.data["toolCallId"]): part for part in recorded if part.is_tool}
        self._tasks: dict[str, str] = {}  # by the anchor of the agent

    def turns(self) -> Iterator[str]:
        """Yield prompts, and answers with reasoning and calls between them."""
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
        """Return the heading of an agent: its preset and its task, as far as the spawning call has them."""
        task = cut(first_line(self._tasks.get(anchor, "")))
        return f"{agent.preset}: {task}" if task else _title(agent)

    def _user_text(self, region: Region) -> str:
        body = self._source.document.body
        found = list(fragments(body, region.start, region.end))
        return body[found[0][0] : found[-1][1]] if found else ""

    def _prompt(self, text: str, message: Message | None) -> str:
        number = len(self.prompts) + 1
        anchor = claim(f"prompt-{number}", self._anchors)
        self.prompts.append((anchor, cut(first_line(text))))
        who = "Task" if self._is_agent and number == 1 else "User"
        shown = f'<span class="number">{number}</span>'
        return (
            f'<section class="turn user" id="{anchor}">\n'
            f'<p class="who"><span>{who}</span>{"" if self._is_agent else shown}{time(message)}</p>\n'
            f"{self._prose.html(text, typed=True)}\n</section>"
        )

    def _piece(self, region: Region) -> Iterator[str]:
        text = self._source.document.body[region.start : region.end]
        match region.kind:
            case "response" if text.strip():
                yield self._prose.html(text)
            case "tool" if text.strip():
                self.calls += 1
                yield self._tool(text, region.id)
            case "ignore" if text.startswith((RUN_OPEN, PROMPT_PREFIX)):  # how a region of hidden turns begins
                yield details("aside", "<b>Taken back</b>", self._prose.html(text.strip()))
            case "ignore":
                yield from self._unsent_text(text)

    def _unsent_text(self, text: str) -> Iterator[str]:
        """Yield text with gptel's role "ignore": reasoning, compactions, errors; not the fences of tool blocks."""
        for found in _REASONING.finditer(text):
            head = f"<b>Reasoning</b> {escape(cut(first_line(found[1])))}"
            yield details("reasoning", head, self._prose.html(found[1]))
        text = _REASONING.sub("", text)
        for found in _COMPACTION.finditer(text):
            head = f"<b>Compacted</b> {escape(found[1].strip('()'))}"
            yield details("compaction", head, self._prose.html(found[2]))
        text = _COMPACTION.sub("", text)
        for found in _ERROR.finditer(text):
            yield f'<div class="error">{preformatted(found[1])}</div>'
        rest = _FENCES.sub("", _ERROR.sub("", text)).strip()
        if rest:
            yield details("aside", "<b>Not shown to the model</b>", self._prose.html(rest))

    def _tool(self, text: str, call_id: str) -> str:
        """Return a call with its result, folded under a line such as ``Read presets/plan.md · 0.2 s``."""
        try:
            name, arguments, end = read_call(text)
        except SexpError:
            return details("tool", "<b>Tool call</b>", preformatted(text.strip("\n")))
        result, part = text[end:].removeprefix("\n\n").rstrip("\n"), self._parts.get(call_id)
        link = self._agent_of(call_id, arguments)
        failed = part is not None and part.data.get("state") == "output-error"
        is_prose = name == AGENT_TOOL and not failed
        inside = [
            _arguments(arguments) if arguments else "",
            f'<p><a href="#{escape(link)}">Its conversation</a></p>' if link else "",
            f"<h3>{'Error' if failed else 'Result'}</h3>",
            self._prose.html(result) if is_prose else preformatted(result),
        ]
        return details("tool", _call_line(name, arguments, part, failed), "\n".join(filter(None, inside)))

    def _agent_of(self, call_id: str, arguments: Mapping[str, Any]) -> str:
        """Return the anchor of the agent that a call spawned, or ""."""
        for agent, anchor in self.children:
            if agent.conversation.session.get("parent_call_id") == call_id:
                self._tasks[anchor] = str(arguments.get("description", ""))
                return anchor
        return ""


def _answer(pieces: Sequence[str], message: Message | None) -> str:
    model = served_by(message.row).model if message is not None else ""
    model_html = f'<span class="number">{escape(model)}</span>' if model else ""
    who = f'<p class="who"><span>Assistant</span>{model_html}{time(message)}</p>'
    return "\n".join(['<section class="turn assistant">', who, *pieces, "</section>"])
