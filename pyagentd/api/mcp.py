"""Operations on MCP servers: list them, test one, trust those of a project."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from pyagentd.api.group import NOTHING, Client, Env, Group, directory, project_of, reply_of, send_options
from pyagentd.config.tables import EVENTS, HookSettings, ServerSettings, read_server
from pyagentd.errors import BadRequest, ConfigError, NotFound, ToolError
from pyagentd.features.emacs import EmacsClients, EmacsOffer, OfferedTool, offered_tool
from pyagentd.features.hooks import problem_of
from pyagentd.features.mcp import Server, Servers
from pyagentd.reader import Source
from pyagentd.runtime.grants import ProjectPrograms, project_hooks, project_servers
from pyagentd.runtime.settings import SendOptions
from pyagentd.tools.mcp.connection import rule_of
from pyagentd.wire.connection import by_person

_SHOWN = 100_000  # characters of all files and scripts in one answer
_LISTED = 500  # resources and prompts in one answer

_log = logging.getLogger(__name__)


class FileText(TypedDict):
    """A file and its text, cut if it is long."""

    path: str
    text: str


class ServerRow(TypedDict):
    """An MCP server."""

    name: str
    command: list[str]
    url: str
    origin: Literal["user", "project"]
    source: str
    trusted: bool
    enabled: bool
    state: str  # stopped, starting, running or failed
    problem: str
    title: str
    tools: int | None  # their number, if known


class McpReply(TypedDict):
    """MCP servers of the user and of a project."""

    root: str
    servers: list[ServerRow]
    hash: str  # the argument for trust-mcp; "" without a project
    files: list[FileText]  # the project's configuration
    scripts: list[FileText]  # the project's own programs that its servers run
    error: str


class ToolOffered(TypedDict):
    """A tool of a server."""

    name: str
    rule: str  # its name in permission rules
    description: str
    looks: bool  # it is read-only


class ToolRefused(TypedDict):
    """A tool that cannot be offered."""

    name: str
    why: str


class ResourceOffered(TypedDict):
    """A resource of a server."""

    uri: str
    name: str
    template: bool


class ArgumentOffered(TypedDict):
    """An argument of a prompt."""

    name: str
    required: bool


class PromptOffered(TypedDict):
    """A prompt of a server."""

    name: str
    description: str
    arguments: list[ArgumentOffered]


class McpOffer(TypedDict, total=False):
    """The tools, resources and prompts of a server."""

    title: str
    protocol: str
    tools: list[ToolOffered]
    refused: list[ToolRefused]
    resources: list[ResourceOffered]
    prompts: list[PromptOffered]


class McpTested(McpOffer):
    """The tools, resources and prompts of a server, or why it failed."""

    name: str
    ok: bool
    error: str
    duration_ms: int


class MentionRow(TypedDict):
    """A resource that a message can mention."""

    mention: str  # @server:uri
    name: str
    description: str
    template: bool


class MentionsReply(TypedDict):
    """The resources that a message can mention."""

    resources: list[MentionRow]


class TrustReply(TypedDict):
    """The names of what is trusted now."""

    trusted: list[str]


class HookRow(TypedDict):
    """A hook."""

    event: str
    command: list[str]
    timeout: float  # seconds
    tools: str | None  # a regular expression that matches its tools
    source: str
    origin: Literal["user", "project"]
    trusted: bool
    problem: str  # why its program cannot be run, or ""


class HooksReply(TypedDict):
    """Hooks of the user and of a project."""

    hooks: list[HookRow]
    hash: str  # the argument for trust-hooks; "" if the project has no hooks
    scripts: list[FileText]  # the project's own programs that its hooks run
    file: str  # the project's file of hooks
    text: str  # its contents
    error: str


class EmacsOffered(TypedDict):
    """The tools that were accepted from an offer, and the others."""

    tools: list[str]
    refused: list[ToolRefused]


class McpOperations(Group):
    """MCP servers, hooks, and the buffers and tools that an Emacs client offers."""

    async def mcp(
        self, client: Client, *, root: str | None = None, branch: str | None = None, env: Env = NOTHING
    ) -> McpReply:
        """Return the servers of the user and of the project ``root``, or of a branch's; none is started."""
        place, project = await self._servers_of(await self._root(branch, root))
        options = send_options(client, env, ())
        own = self._kernel.config.mcp
        rows = [self._one_server(each, place, options, origin="user", trusted=True, hidden=False) for each in own]
        names, trusted = (
            {each.name for each in own},
            bool(project.servers) and project.hash in self._kernel.presets.trust,
        )
        rows += [
            self._one_server(each, place, options, origin="project", trusted=trusted, hidden=each.name in names)
            for each in project.servers
        ]
        return {
            "root": str(place),
            "servers": rows,
            "hash": project.hash,
            "files": _file_texts(project.files),
            "scripts": _file_texts(project.scripts),
            "error": "; ".join(filter(None, (*self._kernel.config.mcp_problems, project.error))),
        }

    async def mcp_test(self, client: Client, *, name: str, root: str | None = None, env: Env = NOTHING) -> McpTested:
        """Start a server if it is not running, and return its tools, resources and prompts."""
        place, project = await self._servers_of(root)
        known, problems = await self._kernel.feature(Servers).known(place)
        if name in {each.name for each in project.servers} - known.keys():  # untrusted servers are not known
            raise NotFound(
                f"The MCP server {name} belongs to the project, which you have not trusted in its present form",
                hint="Read it, then: pyagentd mcp trust",
            )
        if name not in known:
            named = [each for each in problems if re.search(rf"[ .`']{re.escape(name)}[ .`':]", each)] or problems[:1]
            why = named[0] if named else f"Known: {', '.join(sorted(known)) or 'none'}"
            raise NotFound(f"There is no MCP server {name!r}", hint=why)
        began = time.monotonic()
        wrong, offered = "", None
        try:
            server = self._kernel.feature(Servers).server(known[name], place, send_options(client, env, ()))
            server.connection.try_again()
            offered = await _offers(server)
        except (ToolError, ConfigError) as error:
            wrong = str(error)
        duration_ms = round((time.monotonic() - began) * 1000)
        if offered is None:
            return {"name": name, "ok": False, "error": wrong, "duration_ms": duration_ms}
        return {"name": name, "ok": True, "error": "", "duration_ms": duration_ms, **offered}

    async def mcp_resources(self, client: Client, *, branch: str) -> MentionsReply:
        """Return the resources that a message in ``branch`` can mention; start servers that were never asked."""
        live = self._open(branch)
        servers = await self._kernel.feature(Servers).of_branch(live, SendOptions())
        self._kernel.feature(Servers).look(servers)
        found = [
            reply_of(MentionRow, each, mention=f"@{server.name}:{each.uri}", description=each.description[:200])
            for server in servers
            for each in server.connection.resources
        ]
        return {"resources": found[:_LISTED]}

    @by_person
    async def lend_mcp(self, client: Client, *, branch: str, servers: str) -> None:
        """Add the client's MCP servers to ``branch`` from its next run on, replacing those it added before.

        ``servers`` is a JSON list of tables as in ``config.toml``, each with its ``name``. Strings are literal:
        ``${NAME}`` is not expanded. They are not saved on disk.
        """
        given = [
            read_server(
                str(each.get("name")),
                {key: value for key, value in each.items() if key != "name"},
                Source.at(client.name, ConfigError),
            )
            for each in _json_list(servers, "servers", of_objects=True)
        ]
        names = [each.name for each in given]
        if len({*names}) < len(names):
            raise BadRequest(f"Two MCP servers have one name: {', '.join(names)}", hint="Rename one")
        self._kernel.feature(Servers).lend(self._open(branch).ref.key, given)
        if names:
            _log.info("%s lends MCP servers: %s", client.name, ", ".join(names))

    @by_person
    async def trust_mcp(self, client: Client, *, root: str, hash: str) -> TrustReply:
        """Trust the servers of the project ``root`` if their hash is still ``hash``."""
        _, project = await self._servers_of(root)
        await self._trust(client, project, hash, "MCP servers", "They are in .mcp.json or .pyagentd/mcp.toml")
        return {"trusted": [each.name for each in project.servers]}

    async def _trust(self, client: Client, project: ProjectPrograms, hash: str, what: str, where: str) -> None:
        """Trust the programs that a project runs if their hash is still ``hash``."""
        if not project.hooks and not project.servers:
            because = f": {project.error}" if project.error else ""
            raise BadRequest(f"{project.root} has no {what} that can be used{because}", hint=where)
        if project.hash != hash:
            raise BadRequest(f"The {what} of {project.root} have changed since", hint="Look at them again")
        await asyncio.to_thread(self._kernel.presets.trust.add, [hash])
        _log.info("%s trusts the %s of %s (%s)", client.name, what, project.root, hash)

    async def _servers_of(self, root: str | None) -> tuple[Path, ProjectPrograms]:
        place, found = Path.home(), None
        if root is not None:
            place = await asyncio.to_thread(lambda: project_of(root) or directory(root))
            found = await asyncio.to_thread(project_servers, place)
        return place, found or ProjectPrograms(root=place)

    def _one_server(
        self,
        settings: ServerSettings,
        root: Path,
        options: SendOptions,
        *,
        origin: Literal["user", "project"],
        trusted: bool,
        hidden: bool,
    ) -> ServerRow:
        row = reply_of(
            ServerRow,
            settings,
            command=list(settings.command),
            origin=origin,
            trusted=trusted,
            state="stopped",
            problem="the user's server of that name holds" if hidden else "",
            title="",
            tools=None,
        )
        if hidden or not trusted:
            return row
        try:
            server = self._kernel.feature(Servers).server(settings, root, options).connection
        except ConfigError as error:
            return {**row, "state": "failed", "problem": str(error)}
        known = server.catalog
        return {
            **row,
            "state": server.state,
            "problem": server.problem,
            "title": known.title if known else "",
            "tools": len(known.tools) if known else None,
        }

    async def hooks(self, client: Client, *, root: str | None = None) -> HooksReply:
        """Return the hooks of the user and of the project ``root``."""
        beside = self._kernel.config.file.parent
        found = [_hook_row(hook, beside, "user", True) for hook in self._kernel.config.hooks]
        project = await self._project(root)
        if project is None:
            return {"hooks": found, "hash": "", "scripts": [], "file": "", "text": "", "error": ""}
        trusted = project.hash in self._kernel.presets.trust
        found += [_hook_row(hook, project.root, "project", trusted) for hook in project.hooks]
        return {
            "hooks": found,
            "hash": project.hash,
            "scripts": _file_texts(project.scripts),
            "file": str(project.files[0][0]),
            "text": project.files[0][1],
            "error": project.error,
        }

    @by_person
    async def trust_hooks(self, client: Client, *, root: str, hash: str) -> TrustReply:
        """Trust the hooks of the project ``root`` if their hash is still ``hash``."""
        project = await self._project(root) or ProjectPrograms(root=Path(root))
        await self._trust(client, project, hash, "hooks", "They are in .pyagentd/hooks.toml")
        return {"trusted": [" ".join(hook.command) for hook in project.hooks]}

    async def _project(self, root: str | None) -> ProjectPrograms | None:
        return None if root is None else await asyncio.to_thread(lambda: project_hooks(directory(root)))

    async def emacs_offer(
        self, client: Client, *, buffers: bool = False, tools: str = "[]", hooks: Sequence[str] | None = None
    ) -> EmacsOffered:
        """Offer the client's ``buffers``, ``tools`` and ``hooks``, replacing its earlier offer.

        ``tools`` is a JSON list of definitions, ``hooks`` the events for which the client has functions.
        """
        if unknown := set(hooks or ()) - set(EVENTS):
            raise BadRequest(f"There is no event {min(unknown)!r} for hooks", hint=f"Known: {', '.join(EVENTS)}")
        usable: dict[str, OfferedTool] = {}
        refused: list[ToolRefused] = []
        for definition in _json_list(tools, "tools"):
            try:
                tool = offered_tool(definition)
                usable[tool.name] = tool
            except BadRequest as error:
                name = str(definition.get("name") or "") if isinstance(definition, dict) else ""
                refused.append({"name": name, "why": str(error)})
        offered = EmacsOffer(buffers=buffers, tools=tuple(usable.values()), hooks=frozenset(hooks or ()))
        self._kernel.feature(EmacsClients).offer(client, offered)
        _log.info("%s offers%s and %d tools", client.name, " its buffers" if buffers else "", len(usable))
        return {"tools": list(usable), "refused": refused}

    async def emacs_answer(self, client: Client, *, id: str, answer: str) -> None:
        """Answer an ``emacs`` event with a JSON object."""
        self._kernel.feature(EmacsClients).answer(client, id, answer)


async def _offers(server: Server) -> McpOffer:
    catalog = await server.connection.offers()
    resources, prompts = server.connection.resources, server.connection.prompts
    return {
        "title": catalog.title,
        "protocol": catalog.protocol,
        "tools": [
            reply_of(
                ToolOffered,
                each,
                rule=rule_of(server.name, each.name),
                description=each.description[:200],
                looks=each.only_looks,
            )
            for each in catalog.tools
        ],
        "refused": [{"name": name, "why": why} for name, why in catalog.refused],
        "resources": [reply_of(ResourceOffered, each) for each in resources[:_LISTED]],
        "prompts": [
            reply_of(
                PromptOffered,
                each,
                description=each.description[:200],
                arguments=[{"name": name, "required": required} for name, required in each.arguments],
            )
            for each in prompts[:_LISTED]
        ],
    }


def _file_texts(files: Iterable[tuple[Path, str]]) -> list[FileText]:
    room, shown = _SHOWN, list[FileText]()
    for path, text in files:
        cut = text if len(text) <= room else f"{text[: max(0, room)]}\n[{len(text) - max(0, room)} more characters]"
        shown.append({"path": str(path), "text": cut})
        room -= len(text)
    return shown


def _json_list(text: str, what: str, *, of_objects: bool = False) -> list[Any]:
    try:
        value = json.loads(text or "[]")
    except ValueError as wrong:
        raise BadRequest(f"The {what} are not JSON: {wrong}") from wrong
    if not isinstance(value, list) or (of_objects and not all(isinstance(each, dict) for each in value)):
        raise BadRequest(f"The {what} must be a JSON list{' of objects' if of_objects else ''}")
    return value


def _hook_row(hook: HookSettings, base: Path, origin: Literal["user", "project"], trusted: bool) -> HookRow:
    return reply_of(
        HookRow,
        hook,
        command=list(hook.command),
        timeout=hook.timeout_s,
        tools=hook.tools.pattern if hook.tools else None,
        origin=origin,
        trusted=trusted,
        problem=problem_of(hook, base),
    )
