"""What happened, for whoever wants to know: a few typed events, told in the order in which handlers were added."""

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyagentd.events import Sink
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.status import Outcome
from pyagentd.store.paths import BranchRef

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BranchOpened:
    """A branch was opened that was not open."""

    branch: LiveBranch


@dataclass(frozen=True, slots=True)
class BranchChanged:
    """What lists show of an open branch has changed: its state, cost or title."""

    branch: LiveBranch


@dataclass(frozen=True, slots=True)
class BranchWritten:
    """Files of a branch may have changed: after a run, and when the branch is closed."""

    ref: BranchRef


@dataclass(frozen=True, slots=True)
class BranchesRemoved:
    """What was in a directory was removed, or moved elsewhere."""

    directory: Path


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run has begun and is in the log."""

    branch: LiveBranch


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run ended and all of it is recorded; the branch is open now, maybe not for long."""

    branch: LiveBranch
    outcome: Outcome
    options: SendOptions


@dataclass(frozen=True, slots=True)
class ConversationCleared:
    """The conversation of a branch was put behind a boundary."""

    branch: LiveBranch


@dataclass(frozen=True, slots=True)
class ConversationRestored:
    """A saved conversation goes on in a branch."""

    branch: LiveBranch


@dataclass(frozen=True, slots=True)
class QueueStopped:
    """A queued message could not be answered; the queue of the branch waits for a person."""

    branch: LiveBranch


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client has disconnected."""

    client: Sink


E = TypeVar("E")


class Bus:
    """Tells events to their handlers, at once; a handler neither blocks nor raises."""

    def __init__(self) -> None:
        self._handlers: defaultdict[type, list[Callable[[Any], object]]] = defaultdict(list)

    def on(self, kind: type[E], handler: Callable[[E], object]) -> None:
        """Have ``handler`` called with every event of a kind."""
        self._handlers[kind].append(handler)

    def tell(self, event: object) -> None:
        """Call the handlers of the event's kind; one that fails is logged and keeps no other from being told."""
        for handler in self._handlers.get(type(event), ()):
            try:
                handler(event)
            except Exception:  # the edge between who tells and who is told
                log.exception("%s: not everybody could be told", type(event).__name__)
