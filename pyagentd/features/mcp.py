"""The MCP servers of a session: the user's, a trusted project's, and those named by its preset."""

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from pyagentd.config.tables import ServerSettings
from pyagentd.errors import BadRequest, ConfigError, PyagentdError, StoreError, ToolError
from pyagentd.events import Event
from pyagentd.features.slash_commands import Answer, Argument, Call, Command
from pyagentd.log import conceal
from pyagentd.policy.action import Action, is_ours
from pyagentd.policy.presets import Preset, WantedServers
from pyagentd.policy.profiles import resolve_profile, verdict
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchesRemoved, Feature
from pyagentd.runtime.grants import project_servers
from pyagentd.runtime.queue import is_persons
from pyagentd.runtime.run import CORE, RunSettings
from pyagentd.runtime.settings import SendOptions, variable_of
from pyagentd.runtime.turns import Prompt
from pyagentd.store import paths
from pyagentd.store.attachments import without_links
from pyagentd.store.paths import BranchRef
from pyagentd.tools import invoke
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.mcp.connection import (
    Catalog,
    Connection,
    Launch,
    Pool,
    ServerPrompt,
    ServerResource,
    ServerTool,
    ServerVariables,
    launch,
    result_texts,
    rule_of,
    shared_names,
    spec_of,
    tool_name,
    unique_tools,
)
from pyagentd.tools.mcp.connection import allowed_tools as let_through
from pyagentd.tools.spec import ToolSpec
from pyagentd.words import quantity

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder

log = logging.getLogger(__name__)


_LISTED = 300  # prompts, and resources, that are kept for one server
_SESSIONS = WantedServers(all=True)  # the defaults of a session and an agent
_AGENTS = WantedServers()
_TELL_S = 60.0  # between two notices for one server
_SHOWN = 10  # names in a notice
_QUIET_S = 1.5  # until the user is notified that a run waits
_OURS = frozenset({*CORE, *builtin_tools()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server of a run."""

    settings: ServerSettings
    connection: Connection

    @property
    def name(self) -> str:
        """The server's name."""
        return self.settings.name


class Servers(Feature):
    """The MCP servers of all sessions, and their connections."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self.pool = Pool(self._on_tools_changed, self._learned)
        self.lent: dict[str, tuple[ServerSettings, ...]] = {}  # by other editors; by the branch's key
        self._marks: dict[Launch, str] = {}  # keys of ``state.settings`` for their last offers
        self._said: dict[str, dict[str, list[dict[str, Any]]]] = {}  # last offers stored by this daemon, by mark
        self._users: dict[Launch, dict[str, None]] = {}  # keys of the branches that use it, the latest last
        self._notices: set[tuple[str, str]] = set()
        self._told: dict[tuple[str, str], float] = {}  # by branch and server: time of the last notice of a change
        self._now = time.monotonic
        kernel.bus.on(BranchesRemoved, lambda removed: self._take_back(removed.directory))

    async def close(self) -> None:
        """Stop all servers."""
        await self.pool.close()

    def adjusts(self, preset: Preset) -> bool:
        """Return whether runs of the preset get the tools of MCP servers: not if it is read-only."""
        return not preset.read_only

    def settings_for(self, run: "RunBuilder", settings: RunSettings) -> RunSettings:
        """Add the tools of MCP servers to a run."""
        return replace(settings, ready=partial(self._join, run))

    async def before_prompt(self, branch: LiveBranch, prompt: Prompt, options: SendOptions, run_id: str) -> Prompt:
        """Append the resources that a prompt mentions, for the model to see."""
        is_typed = is_persons(prompt.metadata) and prompt.metadata.get("origin") != SERVERS
        if prompt.message_id or branch.ref.is_agent or not is_typed or not _MENTION.search(prompt.text):
            return prompt
        servers = {server.name: server for server in await self.of_branch(branch, options)}
        found = mentioned_servers(prompt.text, list(servers))
        if not found:
            return prompt
        directory = paths.files_dir(branch.ref.branch_dir)
        reading = [asyncio.ensure_future(_read(servers[name], uri, directory)) for name, uri in found]
        _, late = await asyncio.wait(reading, timeout=_WAIT_S)
        for task in late:
            task.cancel()
        parts = [
            _part(name, uri, None if task in late else task) for (name, uri), task in zip(found, reading, strict=True)
        ]
        for _, problem in parts:
            if problem:
                self.notice(branch.key, problem)
        text = str(prompt.metadata.get("model_text") or prompt.text)
        return prompt.seen_as("\n\n".join([text, *(part for part, _ in parts)])) or prompt

    async def commands(self, ref: BranchRef | None) -> Sequence[Command]:
        """Return the known prompts of a session's servers as slash commands."""
        branch = None if ref is None else self.kernel.opened(ref.key)
        if branch is None:
            return ()
        servers = await self.of_branch(branch, SendOptions())
        return [_command(server, prompt) for server in servers for prompt in server.connection.prompts]

    async def known(self, root: Path) -> tuple[dict[str, ServerSettings], list[str]]:
        """Return the configured servers of a workspace by name, and the problems of those left out."""
        own = {each.name: each for each in self.kernel.config.mcp}
        project = await asyncio.to_thread(project_servers, root)
        of_user = list(self.kernel.config.mcp_problems)
        if project is None:
            return own, of_user
        problems = of_user + [f"MCP servers of the project that cannot be used: {project.error}"] * bool(
            project.error
        )
        if not project.servers:
            return own, problems
        if project.hash not in self.kernel.presets.trust:
            names = ", ".join(each.name for each in project.servers)
            # This problem comes first: the others do not matter before it is solved.
            return own, [
                f"{project.files[-1][0]} names MCP servers that you have not said you trust, or that changed since: "
                f"{names} are not started. Read it, then: pyagentd mcp trust",
                *problems,
            ]
        # Grants name servers, so the user's own servers take precedence.
        return own | {each.name: each for each in project.servers if each.name not in own}, problems

    # -- servers of other editors: each for one branch, sent when the editor opens the session -----------------------
    #
    # They count as the user's, like the client; they are kept in memory alone, because their variables and headers
    # are often secrets. They outlast their client, like a run: until the client sends others, or the daemon stops.

    def lend(self, key: str, servers: Sequence[ServerSettings]) -> None:
        """Set the ``servers`` of the branch with that key from its next run on, replacing those lent before.

        The protocol has no variables in them, so a ``${`` in a password is literal.
        """
        for server in servers:
            for value in (*server.env.values(), *server.headers.values()):
                conceal(value)
        self.lent.pop(key, None)
        if servers:
            self.lent[key] = tuple(replace(server, literal=True) for server in servers)

    def _take_back(self, directory: Path) -> None:
        """Forget the servers lent to the branches of a deleted directory: its name may be used again."""
        self.lent = {key: servers for key, servers in self.lent.items() if not Path(key).is_relative_to(directory)}

    def lent_beside(self, key: str, known: Mapping[str, ServerSettings]) -> tuple[list[ServerSettings], list[str]]:
        """Return the servers lent to a branch, and the problems of those left out.

        Grants name servers, so a name of a configured server, in ``known``, is taken.
        """
        lent = self.lent.get(key, ())
        taken = [each for each in lent if each.name in known and _launch_key(each) != _launch_key(known[each.name])]
        problems = [
            f"The editor's MCP server {each.name} is not started: one that you configured has its name"
            for each in taken
        ]
        return [each for each in lent if each.name not in known], problems

    async def of(self, ref: BranchRef, preset: Preset, root: Path, options: SendOptions) -> list[Server]:
        """Return the servers of a branch, and report problems with others; nothing is started."""
        wanted = preset.mcp if preset.mcp is not None else _AGENTS if ref.is_agent else _SESSIONS
        if ref.is_agent and wanted.own and not self.kernel.origins.is_own(ref):
            wanted = replace(wanted, own=())  # the user trusted the session's preset.md, not the agents' ones
        if wanted == _AGENTS and ref.key not in self.lent:
            return []
        known, problems = await self.known(root)
        lent, taken = self.lent_beside(ref.key, known)
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
        if not problems:  # otherwise they may be the project's
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
        """Return the servers that the next run of an open branch would have; none if its preset is invalid."""
        try:
            preset = self.kernel.presets.of_branch(branch.ref)
        except PyagentdError:
            return []
        root = Path(branch.conversation.session.get("workspace_root") or Path.home())
        return await self.of(branch.ref, preset, root, options)

    def look(self, servers: Sequence[Server]) -> None:
        """Start servers whose tools are not known yet, in the background."""
        for server in servers:
            wanted = server.connection.catalog is None and server.connection.state in ("stopped", "failed")
            if wanted and not self.kernel.closing:
                self.kernel.spawn(_offers(server))

    def server(self, settings: ServerSettings, root: Path, options: SendOptions) -> Server:
        """Return a server for a workspace; raises ``ConfigError``."""
        around = ServerVariables(
            root=root,
            apart=self.kernel.config.runtime_dir / "mcp",
            variable=lambda name: variable_of(name, options),
            path=options.env.get("PATH", ""),
            keys=self.kernel.config.key_variables,
        )
        connection = self.pool.get(launch(settings, around))
        self._recall(connection, settings)
        if settings.of_project:
            connection.refused = partial(self._refusal_of, root)
        return Server(settings=settings, connection=connection)

    def _refusal_of(self, root: Path) -> str:
        """Return why a server of a project must not be started now, or "": its files may have changed since."""
        project = project_servers(root)
        if project is not None and project.hash in self.kernel.presets.trust:
            return ""
        return "its files changed since you said you trust it. Read them, then: pyagentd mcp trust"

    def say(self, key: str, text: str) -> None:
        """Notify the clients of a branch, once for each text."""
        if (key, text) not in self._notices:
            self._notices.add((key, text))
            log.warning("%s", text)
            self.notice(key, text)

    def notice(self, key: str, text: str) -> None:
        """Notify the clients of a branch."""
        self.kernel.publish(Event("notice", key, 0, ({"text": text},)))

    # The prompts and resources that servers last offered are stored, so that no server is started only for
    # completion. This cache may be lost: the servers send it again.

    def _recall(self, connection: Connection, settings: ServerSettings) -> None:
        """Give a server that has not run yet the prompts and resources it last offered, in any workspace."""
        identity = json.dumps([settings.name, settings.command, settings.url])
        mark = f"mcp-offer:{hashlib.sha256(identity.encode(errors='replace')).hexdigest()}"
        self._marks[connection.launch] = mark
        if connection.catalog is not None or connection.prompts or connection.resources:
            return
        try:
            kept = self._said.get(mark) or self.kernel.state.get(mark, {"prompts": [], "resources": []})
            given = [tuple((str(name), bool(must)) for name, must in row["arguments"]) for row in kept["prompts"]]
            rows = zip(kept["prompts"], given, strict=True)
            connection.prompts = tuple(ServerPrompt(**{**row, "arguments": arguments}) for row, arguments in rows)
            connection.resources = tuple(ServerResource(**row) for row in kept["resources"])
        except (StoreError, TypeError, ValueError, KeyError) as error:  # such as a row of another version
            log.info("forgot what the MCP server %s offered: %s", connection.name, error)

    def _learned(self, connection: Connection) -> None:
        """Store the prompts and resources that a server offers now."""
        prompts, resources = connection.prompts[:_LISTED], connection.resources[:_LISTED]
        mark = self._marks[connection.launch]
        catalog = {"prompts": [*map(asdict, prompts)], "resources": [*map(asdict, resources)]}
        if catalog == self._said.get(mark):
            return
        self._said[mark] = catalog

        def keep() -> None:
            try:
                self.kernel.state.put(mark, catalog)
            except StoreError as error:
                log.warning("%s", error)

        if not self.kernel.closing:
            self.kernel.spawn(asyncio.to_thread(keep))

    def _on_tools_changed(self, connection: Connection, new: Sequence[str], gone: Sequence[str]) -> None:
        """Notify the sessions of a server that its tools changed."""
        parts = [f"new: {_some(new)}" if new else "", f"gone: {_some(gone)}" if gone else ""]
        changes = "; ".join(filter(None, parts)) or "other descriptions"
        text, now = (
            f"The MCP server {connection.name} offers other tools from the next message on ({changes})",
            self._now(),
        )
        for key in self._users.get(connection.launch, ()):
            last = self._told.get((key, connection.name), float("-inf"))
            if self.kernel.opened(key) is not None and now - last >= _TELL_S:  # it may change all the time
                self._told[key, connection.name] = now
                self.notice(key, text)

    # -- the tools of servers in a run: added after its start, before its first request ------------------------------
    #
    # A run starts at once and waits for its servers itself, so the sender of a message does not. A server that cannot
    # be started is reported to the user, and the run goes on without it.

    async def _join(self, run: "RunBuilder") -> None:
        """Wait for the catalogs of a run's servers, and add their tools."""
        ref, offer, presets = run.branch.ref, run.offer, [run.presets.of_branch(run.branch.ref)]
        presets += map(run.presets.of_branch, run.ancestors)
        if any(each.read_only for each in presets):
            return  # no tool of theirs may be called
        if not (wanted := await self.of(ref, run.preset, run.root, run.options)):
            return
        profiles = [profile for each in presets if (profile := resolve_profile(each.profile)) is not None]

        def permitted(server: str, tool: str) -> bool:
            """Return whether no profile, of the branch or those above it, denies a tool; as ``permitted_tools``."""
            action = Action(tool=tool_name(server, tool), detail="", kind="mcp", rule=rule_of(server, tool))
            return all(verdict(profile, action) != "deny" for profile in profiles)

        catalogs = await self._catalogs(ref.key, wanted)
        offered: list[tuple[Server, list[ServerTool]]] = []
        for server in sorted(wanted, key=lambda each: each.settings.of_project):  # the user's own first
            if (catalog := catalogs.get(server.name)) is not None:
                for name, why in catalog.refused[:_SHOWN]:
                    self.say(ref.key, f"The tool {name} of the MCP server {server.name} is left out: {why}")
                if (more := len(catalog.refused) - _SHOWN) > 0:
                    left = f"{quantity(more, 'more tool')} of the MCP server {server.name} are left out"
                    self.say(ref.key, f"{left}: pyagentd mcp test")
                through = let_through(server.settings, catalog.tools)
                offered.append((server, [tool for tool in through if permitted(server.name, tool.name)]))
        pairs = [(server.name, tool.name) for server, tools in offered for tool in tools]
        # The names of built-in tools are taken, even if the preset does not offer them.
        names = set(starmap(tool_name, pairs))
        shared = shared_names(pairs) | {
            each for each in names if each in _OURS or is_ours(each) or each in offer.tools
        }
        found: list[ToolSpec] = []
        for server, tools in offered:
            found += [spec_of(server.settings, server.connection, tool, shared) for tool in tools]
        offer.add(unique_tools(found, offer.tools), servers=[server.name for server, tools in offered if tools])

    async def _catalogs(self, key: str, wanted: Sequence[Server]) -> Mapping[str, Catalog]:
        failed = [each for each in wanted if each.connection.catalog is None and each.connection.state == "failed"]
        self.look(failed)  # nothing waits for one that failed before; a later run may have it
        for server in failed:
            self._goes_without(key, server)
        asked = {asyncio.ensure_future(each.connection.offers()): each for each in wanted if each not in failed}
        try:
            waiting = (await asyncio.wait(asked, timeout=_QUIET_S))[1] if asked else ()
            if waiting:
                names = ", ".join(sorted(asked[task].name for task in waiting))
                self.notice(key, f"Waiting for MCP servers to start: {names}")
                await asyncio.wait(waiting)
        finally:
            for task in asked:
                task.cancel()
        found = {}
        for task, server in asked.items():
            try:
                found[server.name] = task.result()
            except ToolError:
                self._goes_without(key, server)
        return found

    def _goes_without(self, key: str, server: Server) -> None:
        message = f"The MCP server {server.name} is unavailable: {server.connection.problem}"
        self.say(key, str(ToolError(message, hint="Answers go without it (pyagentd mcp test)")))


def _launch_key(server: ServerSettings) -> tuple[object, ...]:
    return server.command, server.url, server.env, server.headers


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


async def _offers(server: Server) -> None:
    with contextlib.suppress(ToolError):  # its next use reports the problem
        await server.connection.offers()


# Resources of servers in a message: ``@server:uri`` in a person's message adds that resource for the model.
#
# The document keeps what was typed; the message's row has what the model saw, so that never changes. Only messages
# that a person typed count: a trigger, an agent, a hook or a server must not have resources read that nobody asked
# for, and links in a server's text do not attach files of the branch.

MOST = 10  # in one message
SERVERS = "server"
"""The ``origin`` of a message that a server wrote and a person sent: all of it is plain text."""
_WAIT_S = 8.0  # for all of them: the sender waits
_SHOWN_BYTES = 100_000  # of each

_MENTION = re.compile(r"(?<![\w@/.])@([A-Za-z0-9][\w-]{0,31}):([^\s\"'<>`]+)")
_BEHIND = ".,;:!?)]}*_"  # punctuation that ends a sentence, not an address


def mentioned_servers(text: str, known: Sequence[str]) -> list[tuple[str, str]]:
    """Return the resources of ``known`` servers that a text mentions: (name, uri), each once, in its order."""
    found = ((name, uri.rstrip(_BEHIND)) for name, uri in _MENTION.findall(text))
    return list(dict.fromkeys((name, uri) for name, uri in found if name in known and ":" in uri))[:MOST]


def _part(name: str, uri: str, task: asyncio.Task[str] | None) -> tuple[str, str]:
    """Return the model's text for a mention, and the user's notice if it could not be read."""
    try:
        if task is None:
            raise ToolError(f"it was not there within {_WAIT_S:g} s; send the message again in a moment")
        return f"<resource server={quoteattr(name)} uri={quoteattr(uri)}>\n{task.result()}\n</resource>", ""
    except (ToolError, OSError) as error:
        problem = f"@{name}:{uri} could not be read: {error}"
        return f"[{problem}]", problem


async def _read(server: Server, uri: str, directory: Path) -> str:
    pieces = await server.connection.read(uri)

    def text() -> str:
        whole = "\n".join(result_texts([replace(piece, uri="") for piece in pieces], directory, server.name))
        shown = invoke.head(whole, _SHOWN_BYTES)
        kept = "" if shown == whole else invoke.truncation_notice(shown, invoke.save(directory, server.name, whole))
        return without_links(shown) + kept

    return await asyncio.to_thread(text)


# Prompts of servers as slash commands: ``/server:prompt ARGUMENTS`` sends the server's text to the model.
#
# The list is what a server last offered, perhaps to an earlier daemon; no server is started only for the list.

_NO_NAME = re.compile(r"[^\w.-]")
_SUMMARY = 200  # characters


def _command(server: Server, prompt: ServerPrompt) -> Command:
    async def run(call: Call) -> Answer:
        given = ((name, call.arguments.get(name)) for name, _ in prompt.arguments)
        args = {name: str(value) for name, value in given if value not in (None, "")}
        try:
            messages = await server.connection.prompt(prompt.name, args)
            directory = paths.files_dir(call.ref.branch_dir)
            texts = await asyncio.to_thread(result_texts, [piece for _, piece in messages], directory, server.name)
        except ToolError as error:
            raise BadRequest(str(error)) from error
        words = "\n\n".join(
            text if role == "user" else f"[You said:]\n{text}"
            for (role, _), text in zip(messages, texts, strict=True)
        )
        if not words.strip():
            raise BadRequest(f"The MCP server {server.name} returned no text for its prompt {prompt.name}")
        text = f"The prompt {prompt.name} of the MCP server {server.name}"
        return Answer(text=text, prompt=without_links(words), prompt_origin=SERVERS)

    last = len(prompt.arguments) - 1
    arguments = (
        Argument(name=name, required=required, takes="rest" if index == last else "word")
        for index, (name, required) in enumerate(prompt.arguments)
    )
    return Command(
        name=f"{server.name}:{_NO_NAME.sub('_', prompt.name)}",
        summary=" ".join(prompt.description.split())[:_SUMMARY] or f"A prompt of {server.name}",
        run=run,
        arguments=tuple(arguments),
        changed_by=(),
        origin=server.name,
    )
