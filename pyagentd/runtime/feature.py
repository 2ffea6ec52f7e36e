"""The base class of features, the bus that sends them events, and the gate that two of them have."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyagentd.events import Sink
from pyagentd.messages import Message, ToolCall
from pyagentd.policy.presets import Preset
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.run import FitToWindow, RunSettings
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.status import Outcome
from pyagentd.runtime.tracing import Watcher
from pyagentd.runtime.turns import Prompt
from pyagentd.store.conversation import Conversation
from pyagentd.store.paths import BranchRef
from pyagentd.tools.spec import Output, ToolSpec

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder


# What happened, for whoever wants to know: a few typed events, told in the order in which handlers were added.


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BranchEvent:
    """Something happened to an open branch."""

    branch: LiveBranch


class BranchOpened(BranchEvent):
    """A branch was opened that was not open."""


class BranchChanged(BranchEvent):
    """What lists show of an open branch has changed: its state, cost or title."""


@dataclass(frozen=True, slots=True)
class BranchWritten:
    """Files of a branch may have changed: after a run, and when the branch is closed."""

    ref: BranchRef


@dataclass(frozen=True, slots=True)
class BranchesRemoved:
    """What was in a directory was removed, or moved elsewhere."""

    directory: Path


class RunStarted(BranchEvent):
    """A run has begun and is in the log."""


@dataclass(frozen=True, slots=True)
class RunEnded(BranchEvent):
    """A run ended and all of it is recorded; the branch is open now, maybe not for long."""

    outcome: Outcome
    options: SendOptions


class HistoryChanged(BranchEvent):
    """Turns of a branch were hidden, or shown again."""


class QueueStopped(BranchEvent):
    """A queued message could not be answered; the queue of the branch waits for a person."""


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
                log.exception("%s: an event handler failed", type(event).__name__)


# What a feature is: the moments of daemon, session and run at which the runtime asks or tells it.
#
# ``pyagentd.daemon.FEATURES`` lists the features, and they are asked in that order. Each is a class in
# ``features/``; a daemon without it starts and answers, and lacks only what it does.

Permitted = Callable[[list[str]], Collection[str]]
"""Returns those of some tools' names that no profile denies altogether."""


class Feature:
    """A feature of one daemon; each method may be left as it is.

    Attributes:
        tool_names: Of its own tools.
        kernel: The daemon's runtime.
    """

    tool_names: ClassVar[Sequence[str]] = ()

    def __init__(self, kernel: "Kernel") -> None:
        self.kernel = kernel

    # -- the daemon ----------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """How much of it the daemon stays up for, though no client is connected and nothing runs."""
        return 0

    async def start(self) -> None:
        """Begin to work, before clients are served: take over what an earlier daemon left."""

    async def stop(self) -> None:
        """Begin nothing more: the daemon stops, and its runs are about to end."""

    async def close(self) -> None:
        """Let go of everything; the runs have ended."""

    # -- the tools of a run (a provider of tools implements these) -------------------------------------------------

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return its tools, for a run that may have one; which of them are offered, preset and rights decide."""
        return ()

    def granted(self, run: "RunBuilder", permitted: Sequence[str]) -> Sequence[str]:
        """Return names of its tools that a run has though its preset does not name them; see ``permitted``."""
        return ()

    def further_tools(
        self, run: "RunBuilder", wanted: Sequence[str], taken: Collection[str], permitted: Permitted
    ) -> Mapping[str, ToolSpec]:
        """Return tools of others, by the name that the model is told; ``taken`` are names that mean other tools."""
        return {}

    def context_for(self, run: "RunBuilder") -> Mapping[str, Any]:
        """Return what calls of a run need of it: fields of ``ToolContext``."""
        return {}

    # -- a run ---------------------------------------------------------------------------------------------------

    async def before_prompt(self, branch: LiveBranch, prompt: Prompt, options: SendOptions, run_id: str) -> Prompt:
        """Return a prompt as it is recorded and as the model sees it.

        Raises:
            PyagentdError: It must not be sent.
        """
        return prompt

    async def before_steering(self, branch: LiveBranch, text: str, options: SendOptions, run_id: str) -> str:
        """Return what the model sees of a message that steers a run; raises as ``before_prompt``."""
        return text

    async def model_for(self, run: "RunBuilder", model: str, preset: Preset) -> str:
        """Return the model that a run asks."""
        return model

    def settings_for(self, run: "RunBuilder", settings: RunSettings) -> RunSettings:
        """Return the settings of a run, complete but for what features add."""
        return settings

    def watcher_for(self, run: "RunBuilder") -> Watcher | None:
        """Return who is told of each request of a run."""
        return None

    def fit_for(self, run: "RunBuilder", settings: RunSettings) -> FitToWindow | None:
        """Return who keeps a run within the window of its model."""
        return None

    def run_moved(self, branch: LiveBranch, status: Mapping[str, Any]) -> None:
        """Note that a run moved."""

    async def aborted(self, branch: LiveBranch) -> bool:
        """Stop what a branch has going on beside its run; return whether there was anything."""
        return False

    # -- a run that an earlier daemon began --------------------------------------------------------------------------

    def resumed_view(self, view: tuple[Message, ...], conversation: Conversation, run_id: str) -> tuple[Message, ...]:
        """Return what a run saw that goes on."""
        return view

    async def rejoin(self, branch: LiveBranch, options: SendOptions, run_id: str, call: ToolCall) -> Output | None:
        """Return the result of a call that was made before the daemon ended; None of a call that it does not know."""
        return None


class Gate:
    """Lets in together who does not mind the others, and alone who does.

    To leave waits for nothing: who is cancelled has left as well.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._one_is_alone = False
        self._left = asyncio.Event()

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Be inside beside others."""
        await self._until(lambda: not self._one_is_alone)
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._left.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be inside when nobody else is, and nobody comes."""
        await self._until(lambda: not self._one_is_alone and self._inside == 0)
        self._one_is_alone = True
        try:
            yield
        finally:
            self._one_is_alone = False
            self._left.set()

    async def _until(self, open_: Callable[[], bool]) -> None:
        while not open_():
            self._left.clear()
            await self._left.wait()
