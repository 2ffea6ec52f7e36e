"""The base class of features, the bus that sends them events, and a lock that two of them use."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from pyagentd.events import Sink
from pyagentd.messages import Message, ToolCall
from pyagentd.policy.presets import Preset
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.run import FitToWindow, RunSettings
from pyagentd.runtime.settings import SendOptions
from pyagentd.runtime.status import Outcome
from pyagentd.runtime.turns import Prompt
from pyagentd.store.conversation import Conversation
from pyagentd.store.paths import BranchRef
from pyagentd.tools.spec import Output, ToolSpec

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder


# Typed events of the runtime; handlers are called in the order in which they were added.


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BranchEvent:
    """An event of an open branch."""

    branch: LiveBranch


class BranchOpened(BranchEvent):
    """A branch was opened."""


class BranchChanged(BranchEvent):
    """The state, cost or title of an open branch changed, which lists show."""


@dataclass(frozen=True, slots=True)
class BranchWritten:
    """Files of a branch may have changed: after a run, and when the branch is closed."""

    ref: BranchRef


@dataclass(frozen=True, slots=True)
class BranchesRemoved:
    """The branches in a directory were removed or moved."""

    directory: Path


class RunStarted(BranchEvent):
    """A run has begun and is in the log."""


@dataclass(frozen=True, slots=True)
class RunMoved(BranchEvent):
    """The status of a run changed."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunEnded(BranchEvent):
    """A run ended and is recorded completely; the branch is still open, but may be closed soon."""

    outcome: Outcome
    options: SendOptions


class HistoryChanged(BranchEvent):
    """Turns of a branch were hidden, or shown again."""


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client has disconnected."""

    client: Sink


E = TypeVar("E")


class _Handler(NamedTuple):
    """A handler, and the conditions under which it is called; see ``Bus.on``."""

    call: Callable[[Any], object]
    of: Container[str] | None
    while_any: Collection[object] | None


class Bus:
    """Calls the handlers of events synchronously; a handler neither blocks nor raises."""

    def __init__(self) -> None:
        self._handlers: defaultdict[type, list[_Handler]] = defaultdict(list)

    def on(
        self,
        kind: type[E],
        handler: Callable[[E], object],
        *,
        of: Container[str] | None = None,
        while_any: Collection[object] | None = None,
    ) -> None:
        """Register ``handler`` for events of a kind.

        With ``of``, only for branches whose keys are in it; with ``while_any``, only while that has items.
        """
        self._handlers[kind].append(_Handler(handler, of, while_any))

    def tell(self, event: Any) -> None:
        """Call the handlers of the event's kind; an exception is logged and does not stop the others."""
        for handler, of, while_any in self._handlers.get(type(event), ()):
            if while_any is not None and not while_any:
                continue
            if of is not None and event.branch.key not in of:
                continue
            try:
                handler(event)
            except Exception:  # a handler must not affect the sender
                log.exception("%s: an event handler failed", type(event).__name__)


# A feature overrides methods that the runtime calls during the life of the daemon, a session or a run.
#
# ``pyagentd.daemon.FEATURES`` lists the features, which are called in that order. Each is a class in ``features/``; a
# daemon without it works and lacks only that feature.

Permitted = Callable[[list[str]], Collection[str]]
"""Filters names of tools: returns those that no profile denies completely."""


class Feature:
    """A feature of one daemon; overriding a method is optional.

    Attributes:
        tool_names: Names of its own tools.
        kernel: The daemon's kernel.
    """

    tool_names: ClassVar[Sequence[str]] = ()

    def __init__(self, kernel: "Kernel") -> None:
        self.kernel = kernel

    # -- the daemon ----------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of its jobs that keep the daemon up without clients and runs."""
        return 0

    async def start(self) -> None:
        """Start, before clients are served; resume work that an earlier daemon left."""

    async def stop(self) -> None:
        """Start no new work: the daemon is stopping, and its runs are about to end."""

    async def close(self) -> None:
        """Release all resources; the runs have ended."""

    # -- the tools of a run (a provider of tools implements these) -------------------------------------------------

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return its tools for a run; preset and permissions decide which of them are offered."""
        return ()

    def granted(self, run: "RunBuilder", permitted: Sequence[str]) -> Sequence[str]:
        """Return names of its tools that a run gets in addition to those of its preset; see ``permitted``."""
        return ()

    def further_tools(
        self, run: "RunBuilder", wanted: Sequence[str], taken: Collection[str], permitted: Permitted
    ) -> Mapping[str, ToolSpec]:
        """Return tools that other programs provide, by their names for the model; ``taken`` names are in use."""
        return {}

    def context_for(self, run: "RunBuilder") -> Mapping[str, Any]:
        """Return fields of ``ToolContext`` for the calls of a run; of a provider of tools, if the run has any."""
        return {}

    # -- a run ---------------------------------------------------------------------------------------------------

    async def before_prompt(self, branch: LiveBranch, prompt: Prompt, options: SendOptions, run_id: str) -> Prompt:
        """Return a prompt, possibly changed, before it is recorded and sent.

        Raises:
            PyagentdError: It must not be sent.
        """
        return prompt

    async def before_steering(self, branch: LiveBranch, text: str, options: SendOptions, run_id: str) -> str:
        """Return the text of a steering message for the model; raises like ``before_prompt``."""
        return text

    async def model_for(self, run: "RunBuilder", model: str, preset: Preset) -> str:
        """Return the model of a run, possibly changed."""
        return model

    def adjusts(self, preset: Preset) -> bool:
        """Return whether ``settings_for`` may change the settings of a run of this preset."""
        return True

    def settings_for(self, run: "RunBuilder", settings: RunSettings) -> RunSettings:
        """Return the settings of a run, possibly changed; add to ``run.watchers`` what watches its requests."""
        return settings

    def fit_for(self, run: "RunBuilder", settings: RunSettings) -> FitToWindow | None:
        """Return a function that fits the views of a run to the model's window, if any."""
        return None

    async def aborted(self, branch: LiveBranch) -> bool:
        """Stop its jobs of a branch, when the branch is aborted; return whether there were any."""
        return False

    # -- a resumed run -----------------------------------------------------------------------------------------------

    def resumed_view(self, view: tuple[Message, ...], conversation: Conversation, run_id: str) -> tuple[Message, ...]:
        """Return the view of a resumed run, possibly changed."""
        return view

    async def rejoin(self, branch: LiveBranch, options: SendOptions, run_id: str, call: ToolCall) -> Output | None:
        """Return the result of a call that an earlier daemon began; None if the call is not this feature's."""
        return None


class Gate:
    """A lock that is either shared by any number of tasks or held by one exclusively.

    Releasing it awaits nothing, so a cancelled task releases it too.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._one_is_alone = False
        self._left = asyncio.Event()

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Hold the lock together with others."""
        await self._until(lambda: not self._one_is_alone)
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._left.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock exclusively."""
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
