"""Pieces of an exported page: tool calls, reasoning, errors, and the short texts around them; pure, escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from pyagentd.store.recorded import Message, Part

if TYPE_CHECKING:
    from pyagentd.store.exchange.prose import Prose

_LINE = 90  # characters of a summary or of a prompt in the table
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours of a terminal
_ISO8601 = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ\Z")

AGENT_TOOL = "PersistentAgent"


def prose(text: str, renderer: Prose, *, typed: bool = False) -> str:
    """Return Markdown; ``typed`` by a person."""
    return f'<div class="prose">{renderer.html(text, typed=typed)}</div>'


def reasoning(text: str, renderer: Prose) -> str:
    """Return what the model thought, folded."""
    return folded("reasoning", f"<b>Reasoning</b> {escape(cut(first_line(text)))}", prose(text, renderer))


def compaction(head: str, summary: str, renderer: Prose) -> str:
    """Return a divider that opens on the summary that the model is shown in place of what stands above it."""
    return folded("compaction", f"<b>Compacted</b> {escape(head.strip('()'))}", prose(summary, renderer))


def error(text: str) -> str:
    """Return why a run ended."""
    return f'<div class="error">{preformatted(text)}</div>'


def tool_call(
    name: str, arguments: Mapping[str, Any], result: str, *, part: Part | None, link: str, renderer: Prose
) -> str:
    """Return a call with its result, folded under a line such as ``Read presets/plan.md · 0.2 s``.

    Args:
        name: The tool.
        arguments: What it was called with.
        result: What it answered.
        part: What the log says of the call, if anything.
        link: The anchor of the agent it spawned, or "".
        renderer: For an agent's answer, which is Markdown.
    """
    failed = part is not None and part.data.get("state") == "output-error"
    is_prose = name == AGENT_TOOL and not failed
    inside = [
        _arguments(arguments) if arguments else "",
        f'<p><a href="#{escape(link)}">Its conversation</a></p>' if link else "",
        f"<h3>{'Error' if failed else 'Result'}</h3>",
        prose(result, renderer) if is_prose else preformatted(result),
    ]
    return folded("tool", _call_line(name, arguments, part, failed), "\n".join(line for line in inside if line))


def folded(kind: str, summary: str, inside: str) -> str:
    """Return a block that opens on a click; all three are HTML."""
    return f'<details class="{kind}">\n<summary>{summary}</summary>\n{inside}\n</details>'


def preformatted(text: str) -> str:
    """Return ``text`` as it is, without the colours of a terminal."""
    # A browser drops a line end right behind the tag, so this one costs nothing and saves one of the text's.
    return f"<pre>\n{escape(_ANSI.sub('', text), quote=False)}</pre>"


def first_line(text: str) -> str:
    """Return the first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def cut(line: str) -> str:
    """Return ``line``, or its beginning if it is too long for a summary."""
    return line if len(line) <= _LINE else line[: _LINE - 1].rstrip() + "…"


def count(number: int, noun: str) -> str:
    """Return ``2 prompts``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def date(created: str) -> str:
    """Return the time in metadata for people; what has another form stays as it is."""
    found = _ISO8601.match(created)
    return f"{found[1]} {found[2]} UTC" if found else created


def time(message: Message | None) -> str:
    """Return when a message was made, in UTC: a page does not know where it is read."""
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
