"""A mission between two turns, and how it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyagentd.mission.options import Message
from pyagentd.mission.step import Fail, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A mission between two turns.

    Attributes:
        turn: The last finished one.
        context: What stands in ``ctx/``, by name.
        memory: What stands in ``memory/``, by name.
        messages: The conversation.
        trace: The turns.
        failures: How many turns in a row have failed.
        warnings: What was let pass.
    """

    turn: int = 0
    context: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    trace: tuple[Turn, ...] = ()
    failures: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a mission is over: with ``value``, a value of the language, or with ``fail``."""

    value: Any = None
    fail: Fail | None = None
