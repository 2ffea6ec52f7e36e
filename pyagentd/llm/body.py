"""The JSON of a request, written so that a step pays for what is new in it and not for the whole conversation.

A run sends the same messages again with every step, as the same objects; their JSON and its digest are kept as long
as they live.
Only the last two messages of the user are written anew: they carry the breakpoints of the provider's prompt cache
(the second one is what the previous step wrote).
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyagentd.llm.sent import Body, dumps
from pyagentd.llm.translate import mark, message_body
from pyagentd.messages import Message

_CACHED_USER_MESSAGES = 2


class _Text(NamedTuple):
    """The JSON of a message without a breakpoint, "" when nothing in it can be sent."""

    json: str
    digest: bytes


class BodyWriter:
    """Writes the requests of one client."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Message], _Text]] = {}  # by the identity of a living message

    def write(self, settings: dict[str, Any], messages: Sequence[Message]) -> Body:
        """Return the body of a streamed request: ``settings`` (see ``translate``) and ``messages``."""
        sent = [(message, text) for message in messages if (text := self._text(message)).json]
        users = [number for number, (message, _) in enumerate(sent) if message.role == "user"]
        marked: dict[int, str] = {}
        for number in users[-_CACHED_USER_MESSAGES:]:
            if (body := message_body(sent[number][0])) is not None:
                mark(body)
                marked[number] = dumps(body)
        return Body(
            head={**settings, "stream": True},
            messages=tuple(text.json for _, text in sent),
            digests=tuple(text.digest for _, text in sent),
            marked=marked,
        )

    def _text(self, message: Message) -> _Text:
        key = id(message)
        known = self._known.get(key)
        if known is not None and known[0]() is message:
            return known[1]
        body = message_body(message)
        json = "" if body is None else dumps(body)
        text = _Text(json, hashlib.sha256(json.encode("utf-8", "replace")).digest())
        self._known[key] = (weakref.ref(message, lambda _: self._known.pop(key, None)), text)
        return text
