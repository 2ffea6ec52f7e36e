"""How the offline stand-in names a conversation: by the first words of its prompt; pure."""

from __future__ import annotations

from typing import Any

from pyagentd.llm.offline_view import text_of
from pyagentd.llm.title import SYSTEM, quoted_prompt

_WORDS = 7


def wants_title(body: dict[str, Any]) -> bool:
    """Return whether the request ``body`` asks for a title and not for an answer."""
    return text_of(body.get("system")) == SYSTEM


def first_words(text: str) -> str:
    """Return the beginning of the prompt that the text of a title request quotes."""
    words = quoted_prompt(text).split()
    title = " ".join(words[:_WORDS]).strip(".,;:!?")
    return title[:1].upper() + title[1:] if title else "Conversation"
