"""Everything a run takes from preset, configuration and client; ``equipping`` makes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pyagentd.agent.approving.authority import Authority
from pyagentd.agent.running.budget import Limits
from pyagentd.agent.running.offer import Offer
from pyagentd.agent.running.view import Fit
from pyagentd.llm.backend import Backend
from pyagentd.tools.spec import ToolContext, ToolSpec

if TYPE_CHECKING:
    from pyagentd.agent.missions.contract import Assignment


Fresh = Callable[["RunSettings"], Awaitable["RunSettings"]]
"""Returns the settings that hold from now on: the very same when nothing was changed. Only of named agents."""


async def _at_once() -> None:
    """Need nothing before the first request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Fixed while the run lasts, but for what ``fresh`` reads anew."""

    backend: Backend
    model: str
    provider: str = ""  # the backend's name
    system: str
    tools: Mapping[str, ToolSpec]
    offer: Offer | None = None  # which of them the model is told about; None: see ``Offer``
    context: ToolContext
    authority: Authority
    max_tokens: int
    temperature: float | None = None
    thinking_budget: int | None = None
    limits: Limits = field(default_factory=Limits)
    tool_results: bool = True  # whether the document shows calls and their results
    result: Literal["all", "last"] = "all"  # what of a finished run is its text, see ``Answer``
    fit: Fit | None = None  # called at every step boundary
    mission: Assignment | None = None  # what it is to fulfil; None: it chats
    agent: str = ""  # who answers, where that is not the agent that the session was opened with
    ready: Callable[[], Awaitable[None]] = _at_once  # waits for what the first request needs: servers of tools
    fresh: Fresh | None = None  # called before every request; None: what holds first holds to the end
