"""Telemetry: the events of a mission while it runs.

Each event is sent when it happens. Spans nest: mission, turn, LLM request or tool call; a child mission's parent span
is that of the tool call it runs in. An exception of a listener is logged and has no other effect.
"""

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PREFIX = ("ptc", "subagent")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event.

    Attributes:
        name: ``mission_start``, ``mission_stop``, ``turn_start``, ``turn_stop``, ``program_start`` in between, and
            ``llm_`` and ``tool_`` with ``start``, ``stop`` and ``exception``.
        span_id: The same for a start and its stop; of a program it is its turn's.
        parent_span_id: Of the span around; None for a mission that nothing delegated.
        at_ms: Milliseconds since the epoch.
        measurements: Numbers: ``duration_ms``, ``turns``, ``input_tokens``…
        metadata: The rest; values of tools and turns are not redacted.
    """

    name: str
    span_id: str
    parent_span_id: str | None
    at_ms: int
    measurements: Mapping[str, int | float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> tuple[str, ...]:
        """The name as a path: ``("ptc", "subagent", "turn_stop")``."""
        return (*PREFIX, self.name)


Listener = Callable[[Event], None]


def new_span() -> str:
    """Return an id for a span."""
    return uuid.uuid4().hex[:16]


def emit(listener: Listener | None, event: Event) -> None:
    """Call the listener with ``event``; an exception is logged and has no other effect."""
    if listener is None:
        return
    try:
        listener(event)
    except Exception:
        _log.exception("A telemetry listener failed at %s", event.name)
