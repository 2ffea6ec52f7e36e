"""What happens around a call besides the decision: files are kept, hooks asked, and what outlives it handed on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyagentd.policy.action import Action

if TYPE_CHECKING:  # it needs what confines commands, which only they do
    from pyagentd.tools.confine.enclosure import Enclosure


@dataclass(slots=True)
class Kept:
    """The files a call touched, as ids of trees in the store of snapshots; "" where nothing was kept."""

    before: str = ""
    after: str = ""


class Keeping(Protocol):
    """Who keeps files."""

    def around(self, action: Action, call_id: str) -> AbstractAsyncContextManager[Kept]:
        """Keep what ``action`` may change from before and after the block; never a reason for a call to fail."""
        ...


class Hooking(Protocol):
    """Who asks the hooks about one call."""

    async def before(
        self, tool: str, args: Mapping[str, Any], action: Action, call_id: str
    ) -> Mapping[str, Any] | None:
        """Return the arguments that hooks want instead, unchecked, or None.

        Raises:
            ToolError: A hook forbids the call.
        """
        ...

    async def after(
        self, tool: str, args: Mapping[str, Any], text: str, ok: bool, duration_ms: int, call_id: str
    ) -> str:
        """Return what hooks add to the result, or ""."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundCommand:
    """A command that outlives its call.

    Attributes:
        command: As the model gave it.
        enclosure: How it is confined; what it has belongs to the task once that begins.
        cwd: Where it runs.
        call_id: The model's id of the call.
        wake: Whether its end begins a turn.
        timeout_s: How long it may run; None is as long as any task.
    """

    command: str
    enclosure: Enclosure
    cwd: Path
    call_id: str
    wake: bool
    timeout_s: float | None


class Tasking(Protocol):
    """Who runs commands that outlive their call."""

    async def begin(self, command: BackgroundCommand) -> tuple[str, Path]:
        """Run a command in the background, and return its task's id and the file with what it prints.

        Raises:
            PyagentdError: As many run as may, or the disk refused; nothing was run.
            OSError: It cannot be started.
        """
        ...
