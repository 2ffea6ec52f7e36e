"""What the provider counted of an answer: as a whole, and of each request that went into it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from pyagentd.messages import Usage
from pyagentd.store.recorded import Message, Part

_NEVER_MS = 253_000_000_000_000  # a year that no calendar of ours has; what a log says may be nonsense


class Request(NamedTuple):
    """What one request counted, and when it began, in epoch ms."""

    at_ms: int
    usage: Usage


def usage_of(recorded: object) -> Usage:
    """Return a recorded usage; what is no number in it counts nothing."""
    values = recorded if isinstance(recorded, dict) else {}
    counts = {key: values.get(key) for key in ("input", "output", "reasoning", "cache_read", "cache_write")}
    return Usage(**{key: value if type(value) is int and value > 0 else 0 for key, value in counts.items()})


def message_usage(message: Message) -> Usage:
    """Return what a message cost altogether."""
    metadata: dict[str, Any] = message.row.get("metadata_json") or {}
    return usage_of(metadata.get("usage"))


def requests_of(message: Message) -> Iterator[Request]:
    """Yield each request of an answer, as far as the log says: all of an older one's are one."""
    at_ms = _time(message.row.get("created_at"), 0)
    steps = [_request(part, at_ms) for part in message.parts if part.type == "step-start"]
    yield from (step for step in steps if step.usage.total)
    left = _minus(message_usage(message), sum((step.usage for step in steps), Usage()))
    if left.total:
        yield Request(at_ms, left)


def steps_of(message: Message) -> Iterator[Usage]:
    """Yield what each request of an answer cost."""
    return (request.usage for request in requests_of(message))


def _request(part: Part, at_ms: int) -> Request:
    return Request(_time(part.row.get("created_at"), at_ms), usage_of(part.data.get("usage")))


def _time(recorded: object, default: int) -> int:
    return recorded if type(recorded) is int and 0 < recorded < _NEVER_MS else default


def _minus(whole: Usage, part: Usage) -> Usage:
    return Usage(**{key: max(0, count - getattr(part, key)) for key, count in asdict(whole).items()})
