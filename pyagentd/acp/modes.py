"""The modes of a conversation: who answers in it from the next prompt on."""

from __future__ import annotations

from acp import schema

from pyagentd.acp import attaching
from pyagentd.acp.wire import Daemon
from pyagentd.errors import BadRequest


class Modes:
    """What an editor chose, and what the daemon has.

    Args:
        daemon: Where the conversation runs.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._mode = ""  # of the next prompt
        self._named = ""  # the agent of the next turn, as the daemon has it

    @property
    def wanted(self) -> str | None:
        """The agent that the next prompt names; None where the daemon has it already."""
        return self._mode if self._mode != self._named else None

    def sent(self) -> None:
        """Note that a prompt named it."""
        self._named = self._mode

    async def read(self, branch: str) -> schema.SessionModeState:
        """Return the modes that a branch has."""
        told = await self._daemon.call("agents-available", branch=branch)
        self._mode = self._named = str(told.get("agent") or "")
        return attaching.modes(told["agents"] or (), self._mode)

    async def choose(self, branch: str, mode: str) -> None:
        """Have the prompts from now on answered by the agent ``mode``.

        Raises:
            BadRequest: There is none of that name.
        """
        told = await self._daemon.call("agents-available", branch=branch)
        known = [str(each["name"]) for each in told["agents"] or ()]
        if mode not in known and mode != self._mode:
            raise BadRequest(f"There is no mode {mode!r}", mend=f"One of {', '.join(known)}")
        self._mode = mode

    async def changed(self, branch: str) -> str | None:
        """Return who answers next, where somebody else named another agent; None where nobody did."""
        told = await self._daemon.call("agents-available", branch=branch)
        was, self._named = self._named, str(told.get("agent") or "")
        if self._named in (was, self._mode):
            return None
        self._mode = self._named
        return self._mode
