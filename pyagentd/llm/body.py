"""The JSON of a request, written so that a step pays for what is new in it and not for the whole conversation.

A run sends the same messages again with every step, as the same objects; their JSON is kept as long as they live.
Only the last two messages of the user are written anew: they carry the breakpoints of the provider's prompt cache
(the second one is what the previous step wrote).
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from typing import Any

from pyagentd.llm.translate import mark, message_body
from pyagentd.messages import Message

_CACHED_USER_MESSAGES = 2

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # `json.dumps` makes one for each call


class BodyWriter:
    """Writes the requests of one client."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Message], str]] = {}  # by the identity of a living message

    def write(self, settings: dict[str, Any], messages: Sequence[Message]) -> bytes:
        """Return the body of a streamed request: ``settings`` (see ``translate``) and ``messages``."""
        texts = [self._text(message) for message in messages]
        users = [number for number, message in enumerate(messages) if message.role == "user" and texts[number]]
        for number in users[-_CACHED_USER_MESSAGES:]:
            if (body := message_body(messages[number])) is not None:
                mark(body)
                texts[number] = _dumps(body)
        listed = ",".join(text for text in texts if text)
        head = _dumps({**settings, "stream": True})
        # Half a surrogate pair has no UTF-8; the document replaces it too.
        return f'{head[:-1]},"messages":[{listed}]}}'.encode("utf-8", "replace")

    def _text(self, message: Message) -> str:
        """Return the JSON of ``message`` without a breakpoint, "" when nothing in it can be sent."""
        key = id(message)
        known = self._known.get(key)
        if known is not None and known[0]() is message:
            return known[1]
        body = message_body(message)
        text = "" if body is None else _dumps(body)
        self._known[key] = (weakref.ref(message, lambda _: self._known.pop(key, None)), text)
        return text
