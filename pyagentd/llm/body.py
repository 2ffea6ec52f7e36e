"""The JSON of a request, written so that a step pays for what is new in it and not for the whole conversation.

A run sends the same messages again with every step, as the same objects; their JSON is kept as long as they live.
Only the last two messages of the user are written anew: they carry the breakpoints of the provider's prompt cache
(the second one is what the previous step wrote).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from pyagentd.llm.sent import Body, dumps
from pyagentd.llm.translate import mark, message_body
from pyagentd.messages import Message

_CACHED_USER_MESSAGES = 2


class BodyWriter:
    """Writes the requests of one client."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Message], str]] = {}  # by the identity of a living message

    def write(self, settings: dict[str, Any], messages: Sequence[Message]) -> Body:
        """Return the body of a streamed request: ``settings`` (see ``translate``) and ``messages``."""
        sent = [(message, text) for message in messages if (text := self._text(message))]
        users = [number for number, (message, _) in enumerate(sent) if message.role == "user"]
        marked: dict[int, str] = {}
        for number in users[-_CACHED_USER_MESSAGES:]:
            if (body := message_body(sent[number][0])) is not None:
                mark(body)
                marked[number] = dumps(body)
        return Body(head={**settings, "stream": True}, messages=tuple(text for _, text in sent), marked=marked)

    def _text(self, message: Message) -> str:
        """Return the JSON of ``message`` without a breakpoint, "" when nothing in it can be sent."""
        key = id(message)
        known = self._known.get(key)
        if known is not None and known[0]() is message:
            return known[1]
        body = message_body(message)
        text = "" if body is None else dumps(body)
        self._known[key] = (weakref.ref(message, lambda _: self._known.pop(key, None)), text)
        return text
