"""How the tools of servers come into a run: when it begins, before its first request.

A run is started at once and waits for its servers itself, so whoever sends a message does not. A server that cannot
be started is told to the user, and the run goes on without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from pyagentd.agent.mcp.servers import Server, Servers
from pyagentd.agent.running.offer import CORE, Offer
from pyagentd.agent.running.settings import Configured, SendOptions
from pyagentd.errors import ToolError
from pyagentd.policy.action import Action, is_ours
from pyagentd.policy.presets import Preset
from pyagentd.policy.profiles import resolved, verdict
from pyagentd.store.paths import BranchRef
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.mcp.connection import Catalog, ServerTool
from pyagentd.tools.mcp.toolspecs import named, rule_of, shared_names, specs, tool_name
from pyagentd.tools.mcp.toolspecs import wanted as let_through
from pyagentd.tools.spec import ToolSpec

_OURS = frozenset({*CORE, *builtin_tools()})
_QUIET_S = 1.5  # until the user is told what a run waits for

Permits = Callable[[str, str], bool]
"""Whether an agent may call a tool of a server, so that its model is told about it: names of server and tool."""


def permits(presets: Configured, family: Sequence[BranchRef]) -> Permits:
    """Return what nothing, of a branch or of those above it, denies: as ``permitted_tools``."""
    held = (presets.of_branch(each).profile for each in family)
    profiles = [profile for each in held if (profile := resolved(each)) is not None]

    def permitted(server: str, tool: str) -> bool:
        action = Action(tool=tool_name(server, tool), detail="", kind="mcp", rule=rule_of(server, tool))
        return all(verdict(profile, action) != "deny" for profile in profiles)

    return permitted


def joining(
    servers: Servers,
    presets: Configured,
    family: Sequence[BranchRef],
    preset: Preset,
    root: Path,
    options: SendOptions,
    offer: Offer,
) -> Joining:
    """Return who has the tools of servers join those that a run offers.

    Args:
        servers: Those of the daemon.
        presets: Who knows the rules.
        family: The run's branch and those above it.
        preset: The run's.
        root: Its workspace.
        options: Its client's.
        offer: Where the tools go.
    """
    ref = family[0]

    async def wanted() -> Sequence[Server]:
        if any(presets.of_branch(each).read_only for each in family):
            return ()  # nothing of them may be called, so nothing is started
        return await servers.of(ref, preset, root, options)

    return Joining(
        servers=servers,
        key=ref.key,
        wanted=wanted,
        offer=offer,
        permitted=permits(presets, family),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """One run's servers.

    Attributes:
        servers: Those of the daemon.
        key: Of the branch.
        wanted: Returns those of the run.
        offer: Where their tools go.
        permitted: Which of them may.
    """

    servers: Servers
    key: str
    wanted: Callable[[], Awaitable[Sequence[Server]]]
    offer: Offer
    permitted: Permits

    async def __call__(self) -> None:
        """Wait until every server has said what it offers, or cannot; have that offered."""
        wanted = await self.wanted()
        catalogs = await self._catalogs(wanted)
        offered: list[tuple[Server, list[ServerTool]]] = []
        for server in sorted(wanted, key=lambda each: each.settings.of_project):  # the user's own first
            if (catalog := catalogs.get(server.name)) is not None:
                for name, why in catalog.refused:
                    self.servers.say(self.key, f"The tool {name} of the MCP server {server.name} is left out: {why}")
                through = let_through(server.settings, catalog.tools)
                offered.append((server, [tool for tool in through if self.permitted(server.name, tool.name)]))
        pairs = [(server.name, tool.name) for server, tools in offered for tool in tools]
        shared = shared_names(pairs) | {name for name in starmap(tool_name, pairs) if self._is_taken(name)}
        found: list[ToolSpec] = []
        for server, tools in offered:
            found += specs(server.settings, server.connection, tools, shared)
        names = [server.name for server, tools in offered if tools]
        self.offer.add(named(found, self.offer.tools), servers=names)

    def _is_taken(self, name: str) -> bool:
        """Return whether a name is of a tool of ours, though the preset may not offer that."""
        return name in _OURS or is_ours(name) or name in self.offer.tools

    async def _catalogs(self, wanted: Sequence[Server]) -> Mapping[str, Catalog]:
        failed = [each for each in wanted if each.connection.catalog is None and each.connection.state == "failed"]
        self.servers.look(failed)  # one that failed before keeps nobody waiting; it may be there the next time
        for server in failed:
            self._goes_without(server)
        asked = {asyncio.ensure_future(each.connection.offers()): each for each in wanted if each not in failed}
        if not asked:
            return {}
        try:
            _, waiting = await asyncio.wait(asked, timeout=_QUIET_S)
            if waiting:
                names = ", ".join(sorted(asked[task].name for task in waiting))
                self.servers.notice(self.key, f"Waiting for MCP servers to start: {names}")
                await asyncio.wait(waiting)
        finally:
            for task in asked:
                task.cancel()
        found = {}
        for task, server in asked.items():
            try:
                found[server.name] = task.result()
            except ToolError:
                self._goes_without(server)
        return found

    def _goes_without(self, server: Server) -> None:
        why = server.connection.problem
        self.servers.say(
            self.key, f"The MCP server {server.name} is unavailable: {why}. Answers go without it (pyagentd mcp test)"
        )
