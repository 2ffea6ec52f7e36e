"""What the offline stand-in says at the end: facts quoted from the tools' results, and what it is; pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from pyagentd.llm.offline_plan import READ_AT_MOST, wanted
from pyagentd.llm.offline_view import Exchange, View, found_files

DISCLAIMER = "I am pyagentd's offline stand-in, not a language model"
_NAMED_AT_MOST = 8
_QUOTED_LINES = 12
_QUOTED_CHARS = 100

_NUMBERED = re.compile(r"^\s*(\d+)(?:\t|→)(.*)$")
_REMARK = re.compile(r"^\[.*\]$")
_DESCRIPTION = re.compile(r"^description:\s*(\S.*)$")
_HEADING = re.compile(r"^(?:#{1,6}\s+|;{3,4}\s+|\"\"\")(\S.*)$")


def report(view: View) -> str:
    """Return the final answer for the prompt in a few sentences of Markdown."""
    if view.pictures:
        shown = "a picture" if view.pictures == 1 else f"{view.pictures} pictures"
        return f"You show me {shown}, which only a language model could look at. {report(replace(view, pictures=0))}"
    if not view.exchanges:
        return _without_tools(view)
    facts = "\n".join(f"- {_fact(exchange)}" for exchange in view.exchanges if _is_news(exchange, view))
    quotes = "".join(f"\n\n{_quote(one.text)}" for one in view.exchanges if _is_quotable(one))
    return (
        f"This is what the tools found:\n\n{facts}{quotes}\n\n{DISCLAIMER}: I quote the tools and conclude nothing."
    )


def _without_tools(view: View) -> str:
    missing = wanted(view)
    if missing:
        return f"For this I would need the tool `{missing}`, which I was not offered. {DISCLAIMER}."
    if view.tools:
        can = "Name files or a pattern such as `presets/*.md` and I look at them with the tools I was offered: "
        return f"Hello! {DISCLAIMER}. {can}{', '.join(sorted(view.tools))}."
    return f"Hello! {DISCLAIMER}. I was offered no tools, so this is all I can say."


def _is_news(exchange: Exchange, view: View) -> bool:
    """Whether the exchange adds a fact: a pattern whose files were all read does not."""
    others = [one for one in view.exchanges if one.name != "Glob"]
    return exchange.name != "Glob" or exchange.is_error or len(found_files(exchange)) != len(others) or not others


def _is_quotable(exchange: Exchange) -> bool:
    return exchange.name in ("PersistentAgent", "mission") and not exchange.is_error


def _fact(exchange: Exchange) -> str:
    if exchange.is_error:
        return f"{exchange.name} {_subject(exchange)} failed: {_first_line(exchange.text) or 'no reason given'}"
    return _FACTS.get(exchange.name, _other)(exchange)


def _subject(exchange: Exchange) -> str:
    """Return the argument that tells this call from others."""
    keys = ("file_path", "path", "pattern", "command", "description")
    return next((f"`{exchange.input[key]}`" for key in keys if key in exchange.input), "").strip()


def _glob(exchange: Exchange) -> str:
    files = found_files(exchange)
    if not files:
        return f"No file matches {_subject(exchange)}."
    named = ", ".join(f"`{path}`" for path in files[:_NAMED_AT_MOST])
    more = f" and {len(files) - _NAMED_AT_MOST} more" if len(files) > _NAMED_AT_MOST else ""
    unread = f" I read at most {READ_AT_MOST}." if len(files) > READ_AT_MOST else ""
    return f"{_subject(exchange)} matches {_count(len(files), 'file')}: {named}{more}.{unread}"


def _read(exchange: Exchange) -> str:
    lines = [line for line in exchange.text.splitlines() if not _REMARK.match(line)]
    numbered = [match for line in lines if (match := _NUMBERED.match(line))]
    texts = [match[2] for match in numbered] or lines
    count = int(numbered[-1][1]) if numbered else len(texts)
    fact = f"{_subject(exchange)} has {_count(count, 'line')}"
    title, description = _title(texts), _description(texts)
    beginning = f", and begins with “{_cut(title)}”" if title else ""
    return f"{fact}{beginning}." + (f" Its description is “{_cut(description)}”." if description else "")


def _title(lines: list[str]) -> str:
    headings = (match[1].removesuffix('"""') for line in lines if (match := _HEADING.match(line)))
    return next(headings, "") or next((line.strip() for line in lines if line.strip(" -")), "")


def _description(lines: list[str]) -> str:
    found = (match[1] for line in lines[:40] if (match := _DESCRIPTION.match(line)))
    return next(found, "").strip("\"'")


def _agent(exchange: Exchange) -> str:
    return (
        f"The agent for {_subject(exchange)} ({exchange.input.get('preset', 'agent')}) answered with what is below."
    )


def _mission(exchange: Exchange) -> str:
    return f"The mission for `{exchange.input.get('signature', '')}` returned what is below."


def _other(exchange: Exchange) -> str:
    count = _count(len(exchange.text.splitlines()), "line")
    first = _first_line(exchange.text)
    return f"{exchange.name} {_subject(exchange)} returned {count}" + (
        f"; the first is “{_cut(first)}”." if first else "."
    )


_FACTS: dict[str, Callable[[Exchange], str]] = {
    "Glob": _glob,
    "Read": _read,
    "PersistentAgent": _agent,
    "mission": _mission,
}


def _quote(text: str) -> str:
    """Return the beginning of an agent's answer as a quotation; who it is needs to be said only once, by us."""
    lines = [line for line in text.strip().splitlines() if DISCLAIMER not in line]
    shown = "\n".join(f"> {line}".rstrip() for line in lines[:_QUOTED_LINES]).removesuffix("\n>")
    return shown if len(lines) <= _QUOTED_LINES else f"{shown}\n> …"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _cut(text: str) -> str:
    return text if len(text) <= _QUOTED_CHARS else f"{text[:_QUOTED_CHARS].rstrip()}…"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
