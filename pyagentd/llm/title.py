"""What a model is asked when a conversation needs a title, and what is made of its answer; pure.

Prompt and answer are quoted, not obeyed: whatever they say, the answer becomes one short line of plain text.
"""

from __future__ import annotations

import re
import unicodedata

from pyagentd.llm.backend import ModelRequest
from pyagentd.messages import Message, Text

SYSTEM = (
    "You name conversations. You are given the beginning of one; reply with a title for it and nothing else: "
    "three to seven words in the language of the conversation, no quotation marks, no Markdown, no full stop."
)
LONGEST = 60  # characters of a title
_QUOTED = 2000  # characters of the prompt and of the answer that the model is shown
_MAX_TOKENS = 64

_PROMPT = re.compile(r"<prompt>\n(.*?)\n</prompt>", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_LEADING = re.compile(r"^(?:[#>\s]+|[-+*•]\s+|\d+[.)]\s+|\**title\**\s*[:：]\**\s*)", re.IGNORECASE)
_EMPHASIS = re.compile(r"^(_{1,2})(?=\S)(.*\S)\1$")
_AROUND = "\"'“”„‟‘’‚‛«»‹›`*~ "
_READ_AT_MOST = 1000  # characters of an answer
_JOINERS = "\u200c\u200d"  # parts of words and emoji, though Unicode calls them controls


def title_request(model: str, prompt: str, answer: str) -> ModelRequest:
    """Return the request for the title of a conversation that begins with ``prompt`` and ``answer``."""
    quoted = f"<prompt>\n{prompt.strip()[:_QUOTED]}\n</prompt>\n<answer>\n{answer.strip()[:_QUOTED]}\n</answer>"
    message = Message(role="user", parts=(Text(text=quoted),))
    return ModelRequest(model=model, messages=(message,), system=SYSTEM, max_tokens=_MAX_TOKENS)


def quoted_prompt(text: str) -> str:
    """Return the prompt that the text of a title request quotes."""
    found = _PROMPT.search(text)
    return found[1] if found else text


def sanitised(answer: str) -> str:
    """Return a model's answer as a title: one line of at most 60 characters without markup, or ""."""
    lines = (" ".join(_printable(line).split()) for line in answer[:_READ_AT_MOST].splitlines())
    title = next((text for line in lines if (text := _plain(line))), "")
    return _plain(_cut(title)) if any(map(_says_something, title)) else ""


def _says_something(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character) == "So"


def _printable(line: str) -> str:
    return "".join(c if unicodedata.category(c)[0] != "C" or c in _JOINERS else " " for c in line)


def _plain(line: str) -> str:
    """Return ``line`` without markup and quotation marks around it, and without a full stop."""
    line, before = _LINK.sub(r"\1", line), ""
    while line != before:
        before = line
        line = " ".join(line.replace("**", "").replace("`", "").split())
        line = _EMPHASIS.sub(r"\2", _LEADING.sub("", line.strip(_AROUND)).strip(_AROUND))
        line = line if line.endswith("..") else line.removesuffix(".")
    return line


def _cut(title: str) -> str:
    """Return as many whole words of ``title`` as fit, or a part of the first one."""
    if len(title) <= LONGEST:
        return title
    head, _, _ = title[: LONGEST + 1].rpartition(" ")
    return (head or title[:LONGEST]).rstrip(" ,;:-–—")
