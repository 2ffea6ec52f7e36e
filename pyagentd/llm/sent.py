"""A request as it is sent: in pieces, so that whoever keeps it pays for what is new in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # `json.dumps` makes one for each call


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request as it is sent, in pieces that stay the same from step to step."""

    head: Mapping[str, Any]  # everything but the messages
    messages: tuple[str, ...]  # the JSON of each one, without breakpoints
    digests: tuple[bytes, ...]  # of these, SHA-256
    marked: Mapping[int, str]  # those that carry a breakpoint, as they are sent, by their number

    def encoded(self) -> bytes:
        """Return the bytes of the request."""
        listed = ",".join(self.marked.get(number, text) for number, text in enumerate(self.messages))
        # Half a surrogate pair has no UTF-8; the document replaces it too.
        return f'{dumps(self.head)[:-1]},"messages":[{listed}]}}'.encode("utf-8", "replace")
