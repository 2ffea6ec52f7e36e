"""What happens around a call besides the decision: files are kept from before and after it, and hooks are asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pyagentd.policy.action import Action


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
