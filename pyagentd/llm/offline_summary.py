"""How the offline stand-in summarises: what was asked, what was used, what was said last; pure."""

from __future__ import annotations

import re
from typing import Any

from pyagentd.llm import description
from pyagentd.llm.offline_view import text_of
from pyagentd.llm.summary import HEADINGS, SYSTEM

_LONGEST = 160  # characters of a line
_KEPT = 12  # prompts, and lines of an earlier summary's section

_EARLIER = re.compile(r"<earlier_summary>\n(.*?)\n</earlier_summary>", re.DOTALL)
_TALK = re.compile(r"<conversation>\n(.*)\n</conversation>", re.DOTALL)
_SAID = re.compile(r"^\[(user|assistant)\]\n(.+)$", re.MULTILINE)
_CALL = re.compile(r"^\(tool: (\S+)", re.MULTILINE)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def wants_summary(body: dict[str, Any]) -> bool:
    """Return whether the request ``body`` asks for a summary and not for an answer."""
    return text_of(body.get("system")) == SYSTEM


def wants_description(body: dict[str, Any]) -> bool:
    """Return whether the request ``body`` asks what a conversation was that is put away."""
    return text_of(body.get("system")) == description.SYSTEM


def description_of(text: str) -> str:
    """Return the prompts of the conversation that the text of such a request quotes, the first few of them."""
    talk = _TALK.search(text)
    prompts = [_line(words) for who, words in _SAID.findall(talk[1] if talk else text) if who == "user"]
    return f"Talked about: {'; '.join(prompts[:3])}" if prompts else "A conversation"


def summary_of(text: str) -> str:
    """Return the summary of the conversation that the text of such a request quotes."""
    earlier, talk = _EARLIER.search(text), _TALK.search(text)
    quoted = talk[1] if talk else text
    said = _SAID.findall(quoted)
    prompts = [_line(words) for who, words in said if who == "user"]
    answers = [_line(words) for who, words in said if who == "assistant"]
    before = _sections(earlier[1]) if earlier else {}
    calls = _CALL.findall(quoted)
    used = [f"{name} was used {calls.count(name)} times" for name in dict.fromkeys(calls)]
    found = {
        "Goal": [*before.get("Goal", ()), *prompts],
        "Progress": [*before.get("Progress", ()), *used, *answers[-1:]],
        "Decisions": before.get("Decisions", []),
        "Next Steps": ["Answer what the user says next"],
    }
    return "\n\n".join(f"## {heading}\n{_list(found[heading])}" for heading in HEADINGS)


def _sections(summary: str) -> dict[str, list[str]]:
    pieces = _SECTION.split(summary)
    return {
        heading: [line.removeprefix("- ") for line in text.strip().splitlines() if line.startswith("- ")]
        for heading, text in zip(pieces[1::2], pieces[2::2], strict=False)
    }


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _list(lines: list[str]) -> str:
    kept = lines if len(lines) <= _KEPT else [*lines[:1], *lines[-_KEPT + 1 :]]
    return "\n".join(f"- {line}" for line in dict.fromkeys(kept)) or "None."
