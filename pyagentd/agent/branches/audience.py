"""Who watches a branch, and what they are told of it that is true only now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from pyagentd.agent.branches.status import SessionStatus
from pyagentd.errors import NotFound
from pyagentd.events import Event, Kind, Sink

_T = TypeVar("_T")

_AT_A_GLANCE = frozenset({"status", "context", "session"})
"""Kinds of events about what is seen of a branch among others."""


class Audience:
    """The clients that watch one branch.

    Attributes:
        key: The branch's name on the wire.
        state: What the branch is doing; not recorded.
        sinks: The clients, in the order they attached.
        noticed: Called when something is told that is seen of a branch among others.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.state = SessionStatus(lambda facts: self.publish(Event("status", key, 0, (facts,))))
        self.sinks: dict[Sink, None] = {}
        self.noticed: Callable[[], None] = lambda: None
        self._attaching: dict[object, Sink] = {}

    async def while_attaching(self, sink: Sink, work: Awaitable[_T]) -> _T:
        """Return the result of ``work``, done for a client that is about to watch.

        Raises:
            NotFound: The client left meanwhile.
        """
        attempt = object()
        self._attaching[attempt] = sink
        try:
            result = await work
        finally:
            left = self._attaching.pop(attempt, None) is None
        if left:
            raise NotFound(f"{self.key} was detached meanwhile", mend="Attach it again")
        return result

    def leave(self, sink: Sink) -> None:
        """Let a client go, also one that is about to watch."""
        self.sinks.pop(sink, None)
        self._attaching = {attempt: other for attempt, other in self._attaching.items() if other is not sink}

    def publish(self, event: Event) -> None:
        """Tell everybody."""
        for sink in self.sinks:
            sink.push(event)
        if event.kind in _AT_A_GLANCE:
            self.noticed()

    def tell(self, sink: Sink, kind: Kind, **facts: Any) -> None:
        """Tell one client what is true only now."""
        if sink in self.sinks:
            sink.push(Event(kind, self.key, 0, (facts,)))

    def tell_others(self, sink: Sink | None, kind: Kind, **facts: Any) -> None:
        """Tell everybody but one client what is true only now."""
        event = Event(kind, self.key, 0, (facts,))
        for other in self.sinks:
            if other is not sink:
                other.push(event)

    def asking(self) -> AbstractContextManager[None]:
        """Show that a human is asked, as long as any question of the run is open."""
        return self.state.asking()

    @property
    def status(self) -> dict[str, Any]:
        """What the branch is doing, as clients are told; see ``SessionStatus.facts``."""
        return self.state.facts
