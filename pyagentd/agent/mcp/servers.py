"""Which servers a session has: the user's, a trusted project's, and what its preset says of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.mcp.lent import Lent
from pyagentd.agent.mcp.projectservers import ProjectServers, project_servers
from pyagentd.agent.mcp.remembered import Remembered
from pyagentd.agent.running.settings import SendOptions, variable_of
from pyagentd.config.tables import ServerSettings
from pyagentd.errors import ConfigError, PyagentdError, ToolError
from pyagentd.events import Event
from pyagentd.policy.presets import Preset, WantedServers
from pyagentd.store.paths import BranchRef
from pyagentd.tools.mcp.connection import Connection, Launch, Pool, Surrounding, launch

if TYPE_CHECKING:  # the host has one of these
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

_SESSIONS = WantedServers(all=True)  # where the preset does not say
_AGENTS = WantedServers()
_TELL_S = 60.0  # between notices that a server changed
_SHOWN = 10  # names in a notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server of a run."""

    settings: ServerSettings
    connection: Connection

    @property
    def name(self) -> str:
        """What it is called."""
        return self.settings.name


class Servers:
    """The servers of one daemon.

    Attributes:
        pool: Those that were wanted.
        lent: Those of other editors.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.pool = Pool(self._changed, self._learned)
        self.lent = Lent()
        self._remembered = Remembered(host.state)
        self._users: dict[Launch, dict[str, None]] = {}  # keys of the branches that have it, the last one last
        self._said: set[tuple[str, str]] = set()
        self._told: dict[tuple[str, str], float] = {}  # by branch and server: when it was told of a change
        self._now = time.monotonic

    async def close(self) -> None:
        """End all of them."""
        await self.pool.close()

    async def known(self, root: Path) -> tuple[dict[str, ServerSettings], list[str]]:
        """Return the configured servers of a workspace by name, and why others of it are not among them."""
        own = {each.name: each for each in self._host.config.mcp}
        project = await asyncio.to_thread(project_servers, root)
        of_user = list(self._host.config.mcp_problems)
        if project is None:
            return own, of_user
        problems = of_user + [f"MCP servers of the project that cannot be used: {project.error}"] * bool(
            project.error
        )
        if not project.servers:
            return own, problems
        if not self.trusts(project):
            names = ", ".join(each.name for each in project.servers)
            # It comes first: nothing else about them matters before.
            return own, [
                f"{project.files[-1][0]} names MCP servers that you have not said you trust, or that changed since: "
                f"{names} are not started. Read it, then: pyagentd mcp trust",
                *problems,
            ]
        # Grants speak of names, so the user's own are theirs.
        return own | {each.name: each for each in project.servers if each.name not in own}, problems

    def trusts(self, project: ProjectServers) -> bool:
        """Return whether the user agreed to exactly this."""
        return project.hash in self._host.presets.trust

    async def of(self, ref: BranchRef, preset: Preset, root: Path, options: SendOptions) -> list[Server]:
        """Return the servers that hold for a branch, and tell what is wrong with others; nothing is started."""
        wanted = preset.mcp if preset.mcp is not None else _AGENTS if ref.is_agent else _SESSIONS
        if ref.is_agent and wanted.own and not self._host.origins.is_own(ref):
            wanted = replace(wanted, own=())  # who trusted its session was shown the session's preset.md and no other
        if wanted == _AGENTS and not self.lent.has(ref.key):
            return []
        known, problems = await self.known(root)
        lent, taken = self.lent.beside(ref.key, known)
        if preset.mcp is None:
            found, missing = wanted.of(known)
            found += lent
        else:
            found, missing = wanted.of({**known, **{each.name: each for each in lent}})
            taken += [
                f"The editor's MCP server {each.name} is not started: the preset {preset.name} has no such server"
                for each in lent
                if each.name not in {server.name for server in found}
            ]
        if not problems:  # they may be the project's
            problems += [f"There is no MCP server {name!r}, which the preset {preset.name} names" for name in missing]
        problems += taken
        servers = []
        for settings in found:
            try:
                server = self.server(settings, root, options)
            except ConfigError as error:
                problems.append(str(error))
                continue
            servers.append(server)
            users = self._users.setdefault(server.connection.launch, {})
            users.pop(ref.key, None)
            users[ref.key] = None
        for problem in problems:
            self.say(ref.key, problem)
        return servers

    async def of_branch(self, branch: LiveBranch, options: SendOptions) -> list[Server]:
        """Return the servers of an open branch as its next run would have them; none where they cannot be told."""
        try:
            preset = self._host.presets.of_branch(branch.ref)
        except PyagentdError:
            return []
        root = Path(branch.conversation.session.get("workspace_root") or Path.home())
        return await self.of(branch.ref, preset, root, options)

    def look(self, servers: Sequence[Server]) -> None:
        """Have servers say what they offer that have not yet; nobody waits for it."""
        for server in servers:
            wanted = server.connection.catalog is None and server.connection.state in ("stopped", "failed")
            if wanted and not self._host.closing:
                self._host.own(_offers(server))

    def server(self, settings: ServerSettings, root: Path, options: SendOptions) -> Server:
        """Return one server as it is in a workspace; raises ``ConfigError``."""
        around = Surrounding(
            root=root,
            apart=self._host.config.runtime_dir / "mcp",
            variable=lambda name: variable_of(name, options),
            path=options.env.get("PATH", ""),
            keys=frozenset(each.key_env for each in self._host.config.backends.values() if each.key_env),
        )
        connection = self.pool.get(launch(settings, around))
        self._remembered.recall(connection, settings)
        return Server(settings=settings, connection=connection)

    def say(self, key: str, text: str) -> None:
        """Tell whoever watches a branch, once."""
        if (key, text) not in self._said:
            self._said.add((key, text))
            log.warning("%s", text)
            self.notice(key, text)

    def notice(self, key: str, text: str) -> None:
        """Tell whoever watches a branch."""
        self._host.publish(Event("notice", key, 0, ({"text": text},)))

    def _learned(self, connection: Connection) -> None:
        if not self._host.closing:
            self._host.own(asyncio.to_thread(self._remembered.keep, connection))

    def _changed(self, connection: Connection, new: Sequence[str], gone: Sequence[str]) -> None:
        """Tell the sessions that have a server that it offers something else."""
        parts = [f"new: {_some(new)}" if new else "", f"gone: {_some(gone)}" if gone else ""]
        told = "; ".join(filter(None, parts)) or "other descriptions"
        for key in self._users.get(connection.launch, ()):
            if self._host.opened(key) is not None and self._may_tell(key, connection.name):
                self.notice(
                    key, f"The MCP server {connection.name} offers other tools from the next message on ({told})"
                )

    def _may_tell(self, key: str, server: str) -> bool:
        """Return whether a branch may be told of a change now: a server may change all the time."""
        now = self._now()
        if now - self._told.get((key, server), float("-inf")) < _TELL_S:
            return False
        self._told[key, server] = now
        return True


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


async def _offers(server: Server) -> None:
    with contextlib.suppress(ToolError):  # whoever wants something of it is told
        await server.connection.offers()


def by_name(servers: Sequence[Server]) -> Mapping[str, Server]:
    """Return servers by name."""
    return {server.name: server for server in servers}
