"""A run that goes on after its daemon ended: what of it is recorded, and what stands in for what is gone.

The calls of its last request are made again only where that is safe: those that have not begun, whether a human is
still to be asked or has answered already, and those that only look. Those whose agent exists wait for that agent.
What else has begun is closed as aborted. The client that sent the message is gone, and its environment and key with
it: whoever answers brings others (``settings.Late``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from pyagentd.agent.branches.opening import RESTARTED
from pyagentd.errors import ToolError
from pyagentd.llm.backend import Backend, ModelRequest, StreamItem
from pyagentd.messages import ToolCall
from pyagentd.policy.action import Action
from pyagentd.store.unfinished import Standing
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec

_DAY_S = 24 * 60 * 60.0

Rejoin = Callable[[ToolCall], Awaitable[Output | None]]
"""Waits for the agent that a call spawned, and returns the call's result; None if it spawned none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Where a run goes on.

    Attributes:
        standing: What of its answer is recorded.
        begun: Ids of the calls that had begun to act.
        rejoin: How those that wait for agents do so again.
    """

    standing: Standing
    begun: frozenset[str]
    rejoin: Rejoin

    def stand_in(self, call: ToolCall) -> ToolSpec:
        """Return the tool for a call that had begun: it waits for the call's agent, or says that it was aborted."""

        async def run(args: Args, ctx: ToolContext) -> Output:
            result = await self.rejoin(call)
            if result is None:
                raise ToolError(RESTARTED)
            return result

        return ToolSpec(
            name=call.name,
            description="",
            input_schema={"type": "object", "properties": {}},
            kind="meta",
            timeout_s=_DAY_S,
            run=run,
            describe=lambda args, ctx: Target(detail=""),
        )


async def decided_before(action: Action) -> None:
    """Allow what was decided before the daemon ended; see ``tools.invoke.Authorise``."""


class DeferredBackend:
    """The model's server of a resumed run, made when it is first needed: only then must a key be known.

    Args:
        make: Returns the server and the model's name; raises what ``settings.backend_for`` raises.
    """

    def __init__(self, make: Callable[[], tuple[Backend, str]]) -> None:
        self._make = make
        self._made: tuple[Backend, str] | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamItem], None]:
        """Send ``request``; see ``llm.backend.Backend``."""
        if self._made is None:
            self._made = self._make()
        backend, model = self._made
        batches = backend.stream(replace(request, model=model))
        try:
            async for batch in batches:
                yield batch
        finally:
            await batches.aclose()

    async def close(self) -> None:
        """Do nothing: whoever makes backends closes them."""
