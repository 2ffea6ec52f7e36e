"""Operations on MCP servers: list them, test one, trust those of a project."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd.api.group import Client, Group, directory, project_of, send_options
from pyagentd.config.tables import HookSettings, ServerSettings, read_server
from pyagentd.errors import BadRequest, ConfigError, NotFound, ToolError
from pyagentd.features.emacs import EmacsClients, EmacsOffer, OfferedTool, offered_tool
from pyagentd.features.hooks import Hooks
from pyagentd.features.mcp import Server, Servers
from pyagentd.reader import Source
from pyagentd.runtime.grants import ProjectHooks, ProjectServers, project_hooks, project_servers
from pyagentd.runtime.settings import SendOptions
from pyagentd.tools.mcp.connection import rule_of
from pyagentd.wire.operations import by_person

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
            for each in self._kernel.config.mcp
        ]
        wrong = "; ".join(self._kernel.config.mcp_problems)
        if project is None:
            return {"root": str(place), "servers": own, "hash": "", "files": [], "scripts": [], "error": wrong}
        wrong = "; ".join(filter(None, (wrong, project.error)))
        names, trusted = {each["name"] for each in own}, self._kernel.feature(Servers).trusts(project)
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
        known, problems = await self._kernel.feature(Servers).known(place)
        of_project = {each.name for each in project.servers} if project else set()
        if name in of_project - known.keys():  # they are not among them as long as they are not trusted
            raise NotFound(
                f"The MCP server {name} is the project's, and not trusted as it is now",
                hint="Read it, then: pyagentd mcp trust",
            )
        if name not in known:
            named = [each for each in problems if re.search(rf"[ .`']{re.escape(name)}[ .`':]", each)] or problems[:1]
            why = named[0] if named else f"Known: {', '.join(sorted(known)) or 'none'}"
            raise NotFound(f"There is no MCP server {name!r}", hint=why)
        began = time.monotonic()
        told: dict[str, Any] = {"name": name, "ok": True, "error": ""}
        try:
            server = self._kernel.feature(Servers).server(known[name], place, send_options(client, env, None, ()))
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
        servers = await self._kernel.feature(Servers).of_branch(live, SendOptions())
        self._kernel.feature(Servers).look(servers)
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

    @by_person
    async def lend_mcp(self, client: Client, *, branch: str, servers: str) -> dict[str, Any]:
        """Have ``branch`` get the client's servers too, from its next run on, in place of those it lent before.

        ``servers`` is a JSON list of tables as of ``config.toml``, each with its ``name``, whose texts mean what
        they say: ``${NAME}`` is no variable. They are not kept on disk.
        """
        given = [
            read_server(
                str(each.get("name")),
                {key: value for key, value in each.items() if key != "name"},
                Source.at(client.name, ConfigError),
            )
            for each in _tables(servers)
        ]
        names = [each.name for each in given]
        if len({*names}) < len(names):
            raise BadRequest(f"Two MCP servers have one name: {', '.join(names)}", hint="Rename one")
        self._kernel.feature(Servers).lent.lend(self._open(branch).ref.key, given)
        if names:
            _log.info("%s lends MCP servers: %s", client.name, ", ".join(names))
        return {"names": names}

    @by_person
    async def trust_mcp(self, client: Client, *, root: str, hash: str) -> dict[str, Any]:
        """Trust the servers of the project ``root`` as they were when ``hash`` was told."""
        _, project = await self._servers_of(root)
        if project is None or not project.servers:
            raise BadRequest(
                f"{root} has no MCP servers that can be used{': ' + project.error if project else ''}",
                hint="They are in .mcp.json or .pyagentd/mcp.toml",
            )
        if project.hash != hash:
            raise BadRequest(
                f"The MCP servers of {root} have changed since", hint="Look at them again (pyagentd mcp list)"
            )
        await asyncio.to_thread(self._kernel.presets.trust.add, [hash])
        _log.info("%s trusts the MCP servers of %s (%s)", client.name, root, hash)
        return {"trusted": [each.name for each in project.servers]}

    async def _workspace(self, branch: str) -> str:
        async with self._kernel.using(self._ref(branch)) as live:
            return str(live.conversation.session.get("workspace_root") or Path.home())

    async def _servers_of(self, root: str | None) -> tuple[Path, ProjectServers | None]:
        if root is None:
            return Path.home(), None
        place = await asyncio.to_thread(lambda: project_of(root) or directory(root))
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
            server = self._kernel.feature(Servers).server(settings, root, options).connection
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


# Operations on hooks: which there are, trusting those of a project, and functions of a client as hooks.


class HookOperations(Group):
    """Who is asked before and told after."""

    async def hooks(self, client: Client, *, root: str | None = None) -> dict[str, Any]:
        """Return the hooks of the user and of the project ``root``.

        The answer is ``{hooks: ({event, command, timeout, tools, source, origin, trusted}…), hash, scripts:
        ({path, text}…), file, text, error}``; ``origin`` is user or project, ``text`` what the project's ``file``
        says, ``scripts`` are the project's own programs that its hooks run, ``hash`` is what ``trust-hooks`` takes,
        "" when the project has none.
        """
        found = [_told(hook, "user", True) for hook in self._kernel.config.hooks]
        project = await self._project(root)
        if project is None:
            return {"hooks": found, "hash": "", "scripts": [], "file": "", "text": "", "error": ""}
        trusted, room = self._kernel.feature(Hooks).trusts(project), _SHOWN
        found += [_told(hook, "project", trusted) for hook in project.hooks]
        scripts = []
        for path, text in project.scripts:
            shown = (
                text if len(text) <= room else f"{text[: max(0, room)]}\n[{len(text) - max(0, room)} more characters]"
            )
            scripts.append({"path": str(path), "text": shown})
            room -= len(text)
        return {
            "hooks": found,
            "hash": project.hash,
            "scripts": scripts,
            "file": str(project.file),
            "text": project.text,
            "error": project.error,
        }

    @by_person
    async def trust_hooks(self, client: Client, *, root: str, hash: str) -> dict[str, Any]:
        """Trust the hooks of the project ``root`` as they were when ``hash`` was told."""
        project = await self._project(root)
        if project is None or project.error:
            raise BadRequest(
                f"{root} has no hooks that can be used{': ' + project.error if project else ''}",
                hint="They are in .pyagentd/hooks.toml",
            )
        if project.hash != hash:
            raise BadRequest(f"The hooks of {root} have changed since", hint="Look at them again (pyagentd hooks)")
        await asyncio.to_thread(self._kernel.presets.trust.add, [hash])
        _log.info("%s trusts the hooks in %s (%s)", client.name, project.file, hash)
        return {"trusted": [" ".join(hook.command) for hook in project.hooks]}

    async def hook_functions(self, client: Client, *, events: Sequence[str] | None = None) -> dict[str, Any]:
        """Have this client asked about ``events`` of branches it watches, by ``hook`` events, from now on."""
        self._kernel.feature(Hooks).clients.offer(client, tuple(events or ()))
        return {"events": list(events or ())}

    async def hook_answer(self, client: Client, *, id: str, answer: str) -> dict[str, Any]:
        """Answer a ``hook`` event with a JSON object; ``accepted`` tells whether anybody still waited for it."""
        return {"accepted": self._kernel.feature(Hooks).clients.answer(client, id, answer)}

    async def _project(self, root: str | None) -> ProjectHooks | None:
        return None if root is None else await asyncio.to_thread(lambda: project_hooks(directory(root)))


def _told(hook: HookSettings, origin: str, trusted: bool) -> dict[str, Any]:
    return {
        "event": hook.event,
        "command": list(hook.command),
        "timeout": hook.timeout_s,
        "tools": hook.tools.pattern if hook.tools else None,
        "source": hook.source,
        "origin": origin,
        "trusted": trusted,
    }


# Operations of a client that offers the buffers and tools of its Emacs.


class EmacsOperations(Group):
    """What Emacs shows and can do."""

    async def emacs_offer(self, client: Client, *, buffers: bool = False, tools: str = "[]") -> dict[str, Any]:
        """Offer ``buffers`` and ``tools``, a JSON list of definitions, in place of what this client offered before.

        The answer is ``{tools: (name…), refused: ({name, why}…), spill}``; what is too long for a frame is put into
        a file ``emacs-…`` in the directory ``spill``.
        """
        usable: dict[str, OfferedTool] = {}
        refused = []
        for said in _definitions(tools):
            try:
                tool = offered_tool(said)
                usable[tool.name] = tool
            except BadRequest as error:
                name = str(said.get("name") or "") if isinstance(said, dict) else ""
                refused.append({"name": name, "why": str(error)})
        self._kernel.feature(EmacsClients).offer(client, EmacsOffer(buffers=buffers, tools=tuple(usable.values())))
        _log.info("%s offers%s and %d tools", client.name, " its buffers" if buffers else "", len(usable))
        return {"tools": list(usable), "refused": refused, "spill": str(self._kernel.config.runtime_dir)}

    async def emacs_answer(
        self, client: Client, *, id: str, answer: str | None = None, path: str | None = None
    ) -> dict[str, Any]:
        """Answer an ``emacs`` event with a JSON object, or the file with it; ``accepted``: it was waited for."""
        return {"accepted": await self._kernel.feature(EmacsClients).answer(client, id, answer, path)}


def _definitions(text: str) -> list[Any]:
    try:
        said = json.loads(text or "[]")
    except ValueError as wrong:
        raise BadRequest(f"The tools are no JSON: {wrong}") from wrong
    if not isinstance(said, list):
        raise BadRequest("The tools are no JSON list")
    return said
