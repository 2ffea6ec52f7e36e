"""Operations on MCP servers: which there are, trying one, trusting those of a project."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd.agent.mcp.projectservers import ProjectServers, project_servers
from pyagentd.agent.mcp.servers import Server
from pyagentd.agent.running.settings import SendOptions
from pyagentd.config.tables import ServerSettings, read_server
from pyagentd.errors import BadRequest, ConfigError, NotFound, ToolError
from pyagentd.service.group import Client, Group, directory, workplace
from pyagentd.service.options import send_options
from pyagentd.tools.mcp.toolspecs import rule_of

Env = Mapping[str, str] | Sequence[Any]

_SHOWN = 100_000  # characters of all files and scripts in one answer
_LISTED = 500  # resources and prompts in one answer

_log = logging.getLogger(__name__)


class McpOperations(Group):
    """Programs and web servers that offer tools."""

    async def mcp(
        self, client: Client, *, root: str | None = None, branch: str | None = None, env: Env = ()
    ) -> dict[str, Any]:
        """Return the servers of the user and of the project ``root``, or of a branch's; none is started.

        The answer is ``{root, servers: ({name, command, url, origin, source, trusted, enabled, state, problem, title,
        tools}…), hash, files: ({path, text}…), scripts: ({path, text}…), error}``; ``origin`` is user or project,
        ``state`` stopped, starting, running or failed, ``tools`` their number or nil, ``hash`` what ``trust-mcp``
        takes, ``scripts`` the project's own programs that its servers run.
        """
        place, project = await self._servers_of(await self._workspace(branch) if branch else root)
        options = send_options(client, env, None, ())
        own = [
            self._one_server(each, place, options, origin="user", trusted=True, hidden=False)
            for each in self._host.config.mcp
        ]
        wrong = "; ".join(self._host.config.mcp_problems)
        if project is None:
            return {"root": str(place), "servers": own, "hash": "", "files": [], "scripts": [], "error": wrong}
        wrong = "; ".join(filter(None, (wrong, project.error)))
        names, trusted = {each["name"] for each in own}, self._host.servers.trusts(project)
        own += [
            self._one_server(each, place, options, origin="project", trusted=trusted, hidden=each.name in names)
            for each in project.servers
        ]
        files, scripts = _shown(project.files), _shown(project.scripts)
        found = {"servers": own, "hash": project.hash, "files": files, "scripts": scripts, "error": wrong}
        return {"root": str(place), **found}

    async def mcp_test(self, client: Client, *, name: str, root: str | None = None, env: Env = ()) -> dict[str, Any]:
        """Start a server if it does not run, and ask what it offers.

        The answer is ``{name, ok, duration_ms, title, protocol, tools: ({name, rule, description, looks}…),
        refused: ({name, why}…), resources: ({uri, name, template}…), prompts: ({name, description, arguments}…),
        error}``; ``refused`` are the tools that cannot be offered.
        """
        place, project = await self._servers_of(root)
        known, problems = await self._host.servers.known(place)
        of_project = {each.name for each in project.servers} if project else set()
        if name in of_project - known.keys():  # they are not among them as long as they are not trusted
            raise NotFound(
                f"The MCP server {name} is the project's, and not trusted as it is now",
                mend="Read it, then: pyagentd mcp trust",
            )
        if name not in known:
            named = [each for each in problems if f" {name} " in f"{each} " or f"'{name}'" in each] or problems[:1]
            why = named[0] if named else f"Known: {', '.join(sorted(known)) or 'none'}"
            raise NotFound(f"There is no MCP server {name!r}", mend=why)
        began = time.monotonic()
        told: dict[str, Any] = {"name": name, "ok": True, "error": ""}
        try:
            server = self._host.servers.server(known[name], place, send_options(client, env, None, ()))
            server.connection.try_again()
            told |= await _offers(server)
        except (ToolError, ConfigError) as error:
            told |= {"ok": False, "error": str(error)}
        return told | {"duration_ms": round((time.monotonic() - began) * 1000)}

    async def mcp_resources(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Return what a message in ``branch`` can mention, as far as it is known; starts servers that are not.

        The answer is ``{resources: ({mention, name, description, template}…)}``; ``mention`` is ``@server:uri``.
        """
        live = self._open(branch)
        servers = await self._host.servers.of_branch(live, SendOptions())
        self._host.servers.look(servers)
        found = [
            {
                "mention": f"@{server.name}:{each.uri}",
                "name": each.name,
                "description": each.description[:200],
                "template": each.template,
            }
            for server in servers
            for each in server.connection.resources
        ]
        return {"resources": found[:_LISTED]}

    async def lend_mcp(self, client: Client, *, branch: str, servers: str) -> dict[str, Any]:
        """Have ``branch`` get the client's servers too, from its next run on, in place of those it lent before.

        ``servers`` is a JSON list of tables as of ``config.toml``, each with its ``name``, whose texts mean what
        they say: ``${NAME}`` is no variable. They are not kept on disk.
        """
        given = [
            read_server(
                str(each.get("name")), {key: value for key, value in each.items() if key != "name"}, client.name
            )
            for each in _tables(servers)
        ]
        names = [each.name for each in given]
        if len({*names}) < len(names):
            raise BadRequest(f"Two MCP servers have one name: {', '.join(names)}", mend="Rename one")
        self._host.servers.lent.lend(self._open(branch).ref.key, given)
        if names:
            _log.info("%s lends MCP servers: %s", client.name, ", ".join(names))
        return {"names": names}

    async def trust_mcp(self, client: Client, *, root: str, hash: str) -> dict[str, Any]:
        """Trust the servers of the project ``root`` as they were when ``hash`` was told."""
        _, project = await self._servers_of(root)
        if project is None or not project.servers:
            raise BadRequest(
                f"{root} has no MCP servers that can be used{': ' + project.error if project else ''}",
                mend="They are in .mcp.json or .pyagentd/mcp.toml",
            )
        if project.hash != hash:
            raise BadRequest(
                f"The MCP servers of {root} have changed since", mend="Look at them again (pyagentd mcp list)"
            )
        await asyncio.to_thread(self._host.presets.trust.add, [hash])
        _log.info("%s trusts the MCP servers of %s (%s)", client.name, root, hash)
        return {"trusted": [each.name for each in project.servers]}

    async def _workspace(self, branch: str) -> str:
        async with self._host.using(self._ref(branch)) as live:
            return str(live.conversation.session.get("workspace_root") or Path.home())

    async def _servers_of(self, root: str | None) -> tuple[Path, ProjectServers | None]:
        if root is None:
            return Path.home(), None
        place = await asyncio.to_thread(lambda: workplace(root) or directory(root))
        return place, await asyncio.to_thread(project_servers, place)

    def _one_server(
        self,
        settings: ServerSettings,
        root: Path,
        options: SendOptions,
        *,
        origin: str,
        trusted: bool,
        hidden: bool,
    ) -> dict[str, Any]:
        told: dict[str, Any] = {
            "name": settings.name,
            "command": list(settings.command),
            "url": settings.url,
            "origin": origin,
            "source": settings.source,
            "trusted": trusted,
            "enabled": settings.enabled,
            "state": "stopped",
            "problem": "the user's server of that name holds" if hidden else "",
            "title": "",
            "tools": None,
        }
        if hidden or not trusted:
            return told
        try:
            server = self._host.servers.server(settings, root, options).connection
        except ConfigError as error:
            return told | {"state": "failed", "problem": str(error)}
        known = server.catalog
        return told | {
            "state": server.state,
            "problem": server.problem,
            "title": known.title if known else "",
            "tools": len(known.tools) if known else None,
        }


async def _offers(server: Server) -> dict[str, Any]:
    """Return what a server offers; raises ``ToolError``."""
    catalog = await server.connection.offers()
    resources, prompts = server.connection.resources, server.connection.prompts
    return {
        "title": catalog.title,
        "protocol": catalog.protocol,
        "tools": [
            {
                "name": each.name,
                "rule": rule_of(server.name, each.name),
                "description": each.description[:200],
                "looks": each.only_looks,
            }
            for each in catalog.tools
        ],
        "refused": [{"name": name, "why": why} for name, why in catalog.refused],
        "resources": [
            {"uri": each.uri, "name": each.name, "template": each.template} for each in resources[:_LISTED]
        ],
        "prompts": [
            {
                "name": each.name,
                "description": each.description[:200],
                "arguments": [{"name": name, "required": required} for name, required in each.arguments],
            }
            for each in prompts[:_LISTED]
        ],
    }


def _shown(files: Iterable[tuple[Path, str]]) -> list[dict[str, str]]:
    room, shown = _SHOWN, []
    for path, text in files:
        cut = text if len(text) <= room else f"{text[: max(0, room)]}\n[{len(text) - max(0, room)} more characters]"
        shown.append({"path": str(path), "text": cut})
        room -= len(text)
    return shown


def _tables(text: str) -> list[Mapping[str, Any]]:
    try:
        said = json.loads(text)
    except ValueError as wrong:
        raise BadRequest(f"The servers are no JSON: {wrong}") from wrong
    if not isinstance(said, list) or not all(isinstance(each, dict) for each in said):
        raise BadRequest("The servers are no JSON list of objects")
    return said
