"""The methods of the Agent Client Protocol, which call the other modules of this package; and its lines of JSON."""

import asyncio
import functools
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

from acp import PROTOCOL_VERSION, Agent, Client, RequestError, run_agent, schema, stdio_streams

from pyagentd import __version__
from pyagentd.acp import files
from pyagentd.acp.conversation import Conversation
from pyagentd.acp.files import Files
from pyagentd.acp.wire import Daemon
from pyagentd.cli.link import rows_of
from pyagentd.config.tables import read_server
from pyagentd.errors import BadRequest, ConfigError, NotASession, NotFound, PyagentdError, UserError
from pyagentd.events import Event
from pyagentd.reader import Source
from pyagentd.store.metadata import workspace_root

# An editor's MCP servers as tables of the daemon's configuration; pure.

_LONGEST: Final = 32  # characters of a name
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]+")


def tables(given: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the servers for the daemon's operation ``lend-mcp``, with names that are valid in permission rules.

    Raises:
        BadRequest: A server has an unknown transport, or two have the same name.
        ConfigError: A server is not valid; raised before a session is created for it.
    """
    made = [_table(each) for each in given]
    for number, each in enumerate(made):
        if each["name"] in (other["name"] for other in made[:number]):
            raise BadRequest(f"Two MCP servers have one name: {each['name']}", hint="Rename one")
        values = {key: value for key, value in each.items() if key != "name"}
        read_server(each["name"], values, Source.at("the editor", ConfigError))
    return made


def _table(server: Any) -> dict[str, Any]:
    name = _UNFIT.sub("-", server.name).strip("-_")[:_LONGEST] or "server"
    match server:
        case schema.McpServerStdio():
            env = {each.name: each.value for each in server.env or ()}
            return {"name": name, "command": [server.command, *(server.args or ())], "env": env}
        case schema.HttpMcpServer():
            headers = {each.name: each.value for each in server.headers or ()}
            return {"name": name, "url": server.url, "headers": headers}
    kind = str(getattr(server, "type", "") or "unknown")
    raise BadRequest(
        f"The MCP server {server.name} has the type {kind}, which cannot be reached",
        hint="Known: stdio, http (streamable HTTP)",
    )


P = ParamSpec("P")
R = TypeVar("R")

_PAGE: Final = 50  # sessions in a reply

_CAPABILITIES: Final = schema.AgentCapabilities(
    load_session=True,
    prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=True),
    mcp_capabilities=schema.McpCapabilities(http=True, sse=False),
    session_capabilities=schema.SessionCapabilities(
        list=schema.SessionListCapabilities(),
        resume=schema.SessionResumeCapabilities(),
        close=schema.SessionCloseCapabilities(),
    ),
)


def _with_protocol_errors(method: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Convert the daemon's errors to errors of the protocol, with their hints."""

    @functools.wraps(method)
    async def translated(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await method(*args, **kwargs)
        except PyagentdError as error:
            match error:
                case NotFound() | NotASession():
                    code = -32002
                case BadRequest() | UserError():
                    code = -32602
                case _:
                    code = -32603
            raise RequestError(code, str(error), {"code": error.code, "hint": error.hint or None}) from error

    return translated


class PyagentdAgent:
    """The agent side of the protocol.

    Args:
        preset: The preset of new sessions; "" for the default one.
    """

    def __init__(self, preset: str = "") -> None:
        self._preset = preset
        self._daemon = Daemon("acp", self._handle_event, self._lost)
        self._conversations: dict[str, Conversation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._editor: Client
        self._files = Files(self._daemon, lambda: self._editor, self._session_of)

    def on_connect(self, conn: Client) -> None:
        """Set the editor that receives updates."""
        self._editor = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **kwargs: Any,
    ) -> schema.InitializeResponse:
        """Return our protocol version, the only one, and our capabilities."""
        if client_info is not None:
            self._daemon.name = f"acp ({client_info.title or client_info.name})"
        fs = client_capabilities.fs if client_capabilities else None
        self._files.can = bool(fs and fs.read_text_file and fs.write_text_file)
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=_CAPABILITIES,
            agent_info=schema.Implementation(name="pyagentd", title="pyagentd", version=__version__),
            auth_methods=[],
        )

    @_with_protocol_errors
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> schema.NewSessionResponse:
        """Create a session that may read and write below ``cwd``."""
        servers = tables(mcp_servers or ())
        name = Path(cwd).name or "session"
        # The daemon treats "" as left out, so send ".", which it rejects as not absolute.
        made = await self._daemon.call("create-session", name=name, root=cwd or ".", preset=self._preset or None)
        opened, modes = await self._open(str(made["session_id"]), made, tells_history=False)
        if servers:
            await opened.lend(servers)
        self._greet(opened)
        return schema.NewSessionResponse(session_id=opened.id, modes=modes)

    @_with_protocol_errors
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> schema.LoadSessionResponse:
        """Send the conversation of a session to the editor, and open it, including its current run."""
        return schema.LoadSessionResponse(modes=await self._take_up(session_id, mcp_servers, tells_history=True))

    @_with_protocol_errors
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> schema.ResumeSessionResponse:
        """Open a session whose conversation the editor already has."""
        return schema.ResumeSessionResponse(modes=await self._take_up(session_id, mcp_servers, tells_history=False))

    @_with_protocol_errors
    async def close_session(self, session_id: str, **kwargs: Any) -> schema.CloseSessionResponse:
        """Stop sending updates of a session; its run goes on."""
        await self._close(session_id)
        return schema.CloseSessionResponse()

    @_with_protocol_errors
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> schema.ListSessionsResponse:
        """Return the sessions with the workspace ``cwd``, or all, the last used one first."""
        rows = await asyncio.to_thread(rows_of, await self._daemon.call("sessions"), "sessions")
        found = await asyncio.to_thread(_infos, rows, cwd)
        begin = int(cursor) if cursor and cursor.isdecimal() else 0
        page = schema.ListSessionsResponse(sessions=found[begin : begin + _PAGE])
        if begin + _PAGE < len(found):
            page.next_cursor = str(begin + _PAGE)
        return page

    @_with_protocol_errors
    async def set_session_mode(
        self, session_id: str, mode_id: str, **kwargs: Any
    ) -> schema.SetSessionModeResponse | None:
        """Let another agent answer from the next prompt on."""
        opened = await self._awake(session_id)
        await opened.modes.choose(opened.key, mode_id)
        return schema.SetSessionModeResponse()

    @_with_protocol_errors
    async def prompt(self, session_id: str, prompt: list[files.Block], **kwargs: Any) -> schema.PromptResponse:
        """Send a prompt and wait for the end of its turn."""
        opened = await self._awake(session_id)
        return schema.PromptResponse(stop_reason=await opened.prompt(files.prompt(prompt, opened.root)))

    @_with_protocol_errors
    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        """Stop the run, and remove the editor's queued prompts."""
        if session_id in self._conversations:  # this is a notification, so errors cannot be returned
            await (await self._awake(session_id)).cancel()

    async def close(self) -> None:
        """Disconnect; runs go on, and questions stay open."""
        await self._daemon.close()

    # -- inside --------------------------------------------------------------------------------------------------

    async def _take_up(
        self, session_id: str, mcp_servers: Sequence[Any] | None, *, tells_history: bool
    ) -> schema.SessionModeState:
        servers = tables(mcp_servers or ())
        place = await self._daemon.call("resolve", name=session_id)
        opened, modes = await self._open(session_id, place, tells_history=tells_history)
        await opened.lend(servers)
        self._greet(opened)
        return modes

    async def _open(
        self, session_id: str, place: Mapping[str, Any], *, tells_history: bool
    ) -> tuple[Conversation, schema.SessionModeState]:
        await self._close(session_id)
        await self._files.offer()
        opened = Conversation(session_id, Path(place["branch_dir"]), self._daemon, self._editor)
        self._conversations[session_id] = opened  # it receives events while it is being opened
        try:
            return opened, await opened.open(tells_history=tells_history)
        except BaseException:
            del self._conversations[session_id]
            raise

    async def _close(self, session_id: str) -> None:
        if (opened := self._conversations.pop(session_id, None)) is not None:
            also = any(each.key == opened.key for each in self._conversations.values())  # open under another id too
            await opened.close(detaches=not also)

    async def _awake(self, session_id: str) -> Conversation:
        if (opened := self._conversations.get(session_id)) is None:
            raise NotFound(f"{session_id} is not open here", hint="Load it first")
        await self._files.offer()
        await opened.awaken()
        return opened

    def _greet(self, opened: Conversation) -> None:
        # Runs after the reply is sent: before that the editor does not know the session.
        async def greet() -> None:
            with suppress(PyagentdError, ConnectionError):  # the list of commands is optional
                await opened.greet()

        task = asyncio.create_task(greet())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _session_of(self, path: str) -> str:
        roots = {each.id: each.root for each in self._conversations.values() if each.root}
        return next((id for id, root in roots.items() if Path(path).is_relative_to(root)), "")

    def _handle_event(self, event: Event) -> None:
        if event.kind == "emacs":
            self._files.take(event)
        for opened in self._conversations.values():
            if opened.key == event.branch:
                opened.take(event)

    def _lost(self) -> None:
        self._files.lost()
        for opened in self._conversations.values():
            opened.lost()


def _infos(rows: Sequence[Mapping[str, Any]], cwd: str | None) -> list[schema.SessionInfo]:
    found = []
    for row in sorted(rows, key=lambda row: str(row["updated"]), reverse=True):
        if row["agent"] or not row["current"]:
            continue
        root = workspace_root(Path(row["branch_dir"]))
        if not root or (cwd is not None and Path(root) != Path(cwd)):
            continue
        title = str(row["title"] or row["session_id"])
        found.append(
            schema.SessionInfo(session_id=row["session_id"], cwd=root, title=title, updated_at=row["updated"])
        )
    return found


LONGEST_READ: Final = 50 * 1024 * 1024  # bytes to buffer before a line is read


class Lines:
    """A transport for the protocol's SDK, whose own transport stops at the first line that is not a JSON object."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message."""
        async with self._sending:
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        while line := await self._line():
            try:
                message = json.loads(line) if line.strip() else {}
            except (ValueError, RecursionError) as error:
                await self._refuse(RequestError.parse_error({"details": f"This is not JSON: {error}"}))
                continue
            # A reply needs a valid id.
            if isinstance(message, dict) and isinstance(message.get("id"), str | int | float | None):
                return message
            wanted = "A message is a JSON object whose id is a number or a text"
            await self._refuse(RequestError.invalid_request({"details": wanted}))
        return None

    async def close(self) -> None:
        """Do nothing: the process closes its output when it ends."""

    async def _refuse(self, error: RequestError) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": error.to_error_obj()})

    async def _line(self) -> bytes:
        """Return the next line, however long; b"" at the end."""
        read: list[bytes] = []
        while True:
            try:
                return b"".join((*read, await self._reader.readuntil(b"\n")))
            except asyncio.LimitOverrunError as more:
                read.append(await self._reader.readexactly(more.consumed))
            except asyncio.IncompleteReadError as end:
                return b"".join((*read, end.partial))


def serve(preset: str = "") -> None:
    """Speak the protocol on stdin and stdout until the editor quits; new sessions use ``preset``."""
    asyncio.run(_serve(PyagentdAgent(preset)))


async def _serve(agent: PyagentdAgent) -> None:
    reader, writer = await stdio_streams(limit=LONGEST_READ)
    try:
        # session/resume and session/close are unstable
        await run_agent(cast("Agent", agent), Lines(reader, writer), use_unstable_protocol=True)
    finally:
        await agent.close()
