"""The SDK's client session for one server, in the task that opens and closes it.

Loaded when the first server is started, because the SDK is. Errors of the SDK are raised as ``Broken`` if the
connection cannot be used any more, or as ``ToolError`` if only this request failed.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from jsonschema import Draft202012Validator, SchemaError
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Implementation,
    JSONRPCResponse,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
    jsonrpc_message_adapter,
)
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from pyagentd import __version__
from pyagentd.errors import ToolError
from pyagentd.events import truncate
from pyagentd.log import mask_secrets
from pyagentd.tools.mcp.connection import (
    LONGEST_NAME,
    CallResult,
    Catalog,
    Launch,
    Piece,
    ServerPrompt,
    ServerResource,
    ServerTool,
    is_name,
    is_sent,
    make_server_dir,
    piece_of,
    piece_of_resource,
)
from pyagentd.tools.process import Group

log = logging.getLogger(__name__)


# A server on standard input and output, as streams for the SDK: a message is a line of JSON.
#
# It replaces the SDK's ``stdio_client`` for three reasons: lines are limited in length, standard error is kept for
# error messages, and the server gets exactly its environment. The server has its own process group, which is ended
# with the connection.

MOST_BYTES = 32 * 1024 * 1024  # of one message
TOO_LONG = f"it sent a message of more than {MOST_BYTES // 1024 // 1024} MB"
CHUNK = 65536
_TAIL = 4000  # bytes of standard error that are kept
_LEAVE_S = 1.0  # for ending by itself once its input is closed, as the protocol has it

_PIPE = asyncio.subprocess.PIPE

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


class Program:
    """The program of one server while it runs.

    Attributes:
        problem: Why the connection ended, if not because the program did.
    """

    def __init__(self, launch: Launch, group: Group, ended: Callable[[], None]) -> None:
        self._launch = launch
        self._group = group
        self._process = group.process
        self._ended = ended
        self._stderr_tail = bytearray()
        self.problem = ""

    def explain(self) -> str:
        """Return how it ended and its last output on standard error, for people; "" if there is neither."""
        words = bytes(self._stderr_tail).decode(errors="replace").strip().splitlines()[-5:]
        code = self._process.returncode
        ended = "" if code is None else f"it ended with {code}" if code >= 0 else f"signal {-code} ended it"
        return ": ".join(filter(None, (self.problem or ended, " / ".join(words))))

    async def read(self, stream: Incoming) -> None:
        """Pass its messages on until its output ends; a message that is too long ends the program."""
        out, pending = self._process.stdout, bytearray()
        assert out is not None
        try:
            async with stream:
                while chunk := await out.read(CHUNK):
                    first, *lines = chunk.split(b"\n")
                    pending += first
                    for line in lines:
                        await self._pass_on(bytes(pending), stream)
                        pending = bytearray(line)
                    if len(pending) > MOST_BYTES:
                        self.problem = TOO_LONG
                        return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody listens any more
        finally:
            self._ended()

    async def _pass_on(self, line: bytes, stream: Incoming) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            if line.strip():  # a program that greets its user on its standard output, most likely
                log.debug("mcp server %s: printed a line that is not a message: %r", self._launch.name, line[:200])
            return
        await stream.send(SessionMessage(message))

    async def write(self, stream: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write messages to it, until there are no more or it closes its input."""
        into = self._process.stdin
        assert into is not None
        with suppress(OSError):
            async with stream:
                async for message in stream:
                    into.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await into.drain()

    async def listen(self) -> None:
        """Keep the end of its standard error."""
        errors = self._process.stderr
        assert errors is not None
        while chunk := await errors.read(CHUNK):
            self._stderr_tail += chunk
            del self._stderr_tail[:-_TAIL]
            log.debug("mcp server %s: %s", self._launch.name, chunk.decode(errors="replace").rstrip())

    async def end(self) -> None:
        """End it, first by closing its input."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await self._group.exit_code()
        await self._group.stop()


@asynccontextmanager
async def program(
    launch: Launch, ended: Callable[[], None]
) -> AsyncGenerator[tuple[Program, MemoryObjectReceiveStream[SessionMessage | Exception], Outgoing], None]:
    """Start a server's program; yield it and the streams of its messages, and end it after the block.

    ``ended`` is called when its output ends.

    Raises:
        OSError: It cannot be started.
    """
    if launch.is_apart:
        await asyncio.to_thread(make_server_dir, launch.cwd)
    group = await Group.start(
        *launch.command, cwd=launch.cwd, env=launch.environment, stdin=_PIPE, stdout=_PIPE, stderr=_PIPE
    )
    running = Program(launch, group, ended)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(work) for work in (running.read(incoming), running.write(outgoing), running.listen())
    ]
    try:
        yield running, read, write
    finally:
        read.close()
        write.close()
        with anyio.CancelScope(shield=True):  # whatever happens to the caller meanwhile
            try:
                await running.end()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


# A server on the web, reached by the SDK: refusals are kept for error messages, and answers are limited in size.

_CONNECT_S = 30.0
_READ_S = 300.0  # between two pieces of a stream, at least
_NO_SESSION = ("400", "404", "410")  # how servers answer that were started anew meanwhile

_WANTS_TOKEN = "it wants another token; see `headers` of its settings"
_WANTS_LOGIN = (
    "it wants a login (OAuth), which is not done here. Have it make a token, keep that in a variable, and name "
    'it in the settings of the server: headers = { Authorization = "Bearer ${NAME}" }'
)


class Web:
    """One server while it is connected.

    Attributes:
        refused: The status of the last answer, if it was a refusal: number and words; else "".
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.refused = ""

    def explain(self) -> str:
        """Return why it cannot be used, for people; "" if unknown."""
        return self.refused

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[Any, None]:
        """Yield the streams of its messages."""
        launch = self._launch
        async with (
            httpx2.AsyncClient(
                headers={"Accept-Encoding": "identity", **dict(launch.headers)},
                timeout=httpx2.Timeout(_CONNECT_S, read=max(_READ_S, launch.call_s)),
                event_hooks={"response": [self._on_response]},
            ) as http,
            streamable_http_client(launch.url, http_client=http, max_sse_event_size=MOST_BYTES) as streams,
        ):
            yield streams

    async def _on_response(self, response: httpx2.Response) -> None:
        code = response.status_code
        self.refused = f"{code} {response.reason_phrase}".strip() if code >= 400 else ""
        if code in (401, 403):
            # A server with OAuth names the address of its login (RFC 9728).
            login = "resource_metadata" in response.headers.get("www-authenticate", "")
            self.refused += f": {_WANTS_LOGIN if login else _WANTS_TOKEN}"
        response.headers.pop("content-encoding", None)  # nothing is unpacked: what is counted is what is read
        if response.headers.get("content-type", "").lower().startswith("application/json"):  # the SDK bounds others
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream, self._on_too_long)

    def _on_too_long(self) -> None:
        self.refused = TOO_LONG


class _Bounded(httpx2.AsyncByteStream):
    """An HTTP answer with the same size limit as messages of a program."""

    def __init__(self, stream: httpx2.AsyncByteStream, exceeded: Callable[[], None]) -> None:
        self._stream = stream
        self._exceeded = exceeded

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MOST_BYTES:
                self._exceeded()
                raise httpx2.ReadError(TOO_LONG)
            yield chunk

    async def aclose(self) -> None:
        """Close the answer."""
        await self._stream.aclose()


MOST_TOOLS = 1000
MOST_LISTED = 2000  # resources, prompts
_PAGES = 100
_LISTEN_AGAIN_S = 30.0
_CLOSE_S = 5.0  # for taking leave
_SHOWN = 500  # characters of what a server says about a failure
_READ = 100_000  # characters of it that are looked at
_CHECK_S = 20.0  # for the schemas of one server

_T = TypeVar("_T")


class Broken(Exception):
    """The connection could not be made, or was lost; the message says why."""


class Forgotten(Broken):
    """The server was restarted meanwhile and did not carry out the request."""


class Link:
    """A connection to a server.

    Calls ``changed`` when the server reports a change of what it offers, and ``ended`` once, with the reason.
    """

    def __init__(self, launch: Launch, changed: Callable[[], None], ended: Callable[[str], None]) -> None:
        self._launch = launch
        self._changed = changed
        self._ended = ended
        self._leave = asyncio.Event()
        self._client: Client | None = None
        self._peer: Program | Web | None = None
        self._refused: dict[str, str] = {}  # tools of the list that is being read that are none, with why
        self._owner: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the server and finish the handshake.

        Raises:
            Broken: It cannot be started, or does not answer in time.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._hold(ready), name=f"mcp {self._launch.name}")
        try:
            async with asyncio.timeout(self._launch.start_s):
                await asyncio.shield(ready)
        except TimeoutError:
            reason = self._last_words()
            await self._close_now()
            raise Broken(f"it did not answer within {self._launch.start_s:g} s{reason}") from None
        except asyncio.CancelledError:
            await self._close_now()
            raise

    async def close(self) -> None:
        """Close the connection, and end the server's program."""
        self._leave.set()
        if self._owner is not None:
            done, _ = await asyncio.wait([self._owner], timeout=_CLOSE_S)
            if not done:  # a server on the web that does not take leave
                await self._close_now()

    async def catalog(self) -> Catalog:
        """Return what the server offers; raises as ``_answer_to``."""
        client = self._require_client()
        can = client.server_capabilities
        tools: list[ServerTool] = []
        refused: dict[str, str] = {}
        if can.tools is not None:
            self._refused.clear()
            found = await self._pages(lambda cursor: client.list_tools(cursor=cursor), "tools", MOST_TOOLS)
            tools = [
                ServerTool(
                    name=tool.name,
                    description=tool.description or tool.title or "",
                    schema=tool.input_schema,
                    only_looks=bool(tool.annotations and tool.annotations.read_only_hint),
                )
                for tool in self._with_usable_names(found)
            ]
            refused = self._refused | await asyncio.to_thread(_wrong_schemas, tools)
        info = client.server_info
        return Catalog(
            tools=tuple(tool for tool in tools if tool.name not in refused),
            refused=tuple(refused.items()),
            has_resources=can.resources is not None,
            has_prompts=can.prompts is not None,
            title=f"{info.title or info.name} {info.version}".strip() if info else "",
            protocol=client.protocol_version,
        )

    async def call(self, tool: str, args: Mapping[str, Any]) -> CallResult:
        """Call a tool; cancelling this cancels the call at the server. Raises as ``_answer_to``."""
        result = await self._answer_to(self._require_client().call_tool(tool, dict(args)))
        pieces = tuple(map(piece_of, result.content))
        return CallResult(pieces=pieces, structured=result.structured_content, ok=not result.is_error)

    async def resources(self) -> tuple[ServerResource, ...]:
        """Return its resources and their templates; raises as ``_answer_to``."""
        client = self._require_client()
        listed = await self._pages(lambda cursor: client.list_resources(cursor=cursor), "resources", MOST_LISTED)
        templates: list[Any] = []
        with suppress(ToolError):  # not every server knows the question
            templates = await self._pages(
                lambda cursor: client.list_resource_templates(cursor=cursor), "resource_templates", MOST_LISTED
            )
        return (
            *(_resource(each, each.uri) for each in listed),
            *(_resource(each, each.uri_template, template=True) for each in templates),
        )

    async def read(self, uri: str) -> tuple[Piece, ...]:
        """Return the content of a resource; raises as ``_answer_to``."""
        result = await self._answer_to(self._require_client().read_resource(uri))
        return tuple(map(piece_of_resource, result.contents))

    async def prompts(self) -> tuple[ServerPrompt, ...]:
        """Return its prompts; raises as ``_answer_to``."""
        client = self._require_client()
        listed = await self._pages(lambda cursor: client.list_prompts(cursor=cursor), "prompts", MOST_LISTED)
        return tuple(
            ServerPrompt(
                name=each.name,
                description=each.description or each.title or "",
                arguments=tuple((one.name, bool(one.required)) for one in each.arguments or ()),
            )
            for each in self._with_usable_names(listed)
        )

    async def prompt(self, name: str, args: Mapping[str, str]) -> tuple[tuple[str, Piece], ...]:
        """Return the messages of a prompt, each with its role; raises as ``_answer_to``."""
        result = await self._answer_to(self._require_client().get_prompt(name, dict(args)))
        return tuple((message.role, piece_of(message.content)) for message in result.messages)

    def _with_usable_names(self, listed: Sequence[Any]) -> list[Any]:
        """Return the items whose name can be shown; log how many others there are."""
        found = [each for each in listed if is_name(each.name)]
        if gone := len(listed) - len(found):
            log.info("mcp server %s: %d without a usable name are left out", self._launch.name, gone)
        return found

    # -- asking --------------------------------------------------------------------------------------------------

    def _require_client(self) -> Client:
        if self._client is None:
            raise Broken(self._end_reason())
        return self._client

    async def _answer_to(self, request: Awaitable[_T]) -> _T:
        """Return the answer to a request.

        Raises:
            Broken: The connection ended meanwhile.
            ToolError: The server refused, or its answer breaks the protocol.
        """
        try:
            return await request
        except MCPError as error:
            # A server on the web may have forgotten the connection; the request itself may be fine.
            is_refused = isinstance(self._peer, Web) and self._peer.refused.startswith(_NO_SESSION)
            if is_refused and error.code in (CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST):
                raise Forgotten(self._end_reason()) from error
            if error.code == CONNECTION_CLOSED or self._client is None:
                if self._owner is not None:  # a program that ended is known to have in a moment: it is told how
                    await asyncio.wait([self._owner], timeout=1.0)
                raise Broken(self._end_reason()) from error
            raise ToolError(f"The MCP server {self._launch.name} refused: {_short(error.message)}") from error
        except ValidationError as error:
            raise ToolError(
                f"The MCP server {self._launch.name} answered what the protocol does not allow "
                f"({error.error_count()} errors, the first: {_short(error.errors()[0]['msg'])})"
            ) from error
        except (httpx2.HTTPError, OSError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise Broken(_short(str(error) or type(error).__name__)) from error
        except RuntimeError as error:  # it asks something back, which we do not answer
            raise ToolError(f"The MCP server {self._launch.name}: {_short(str(error))}") from error

    async def _pages(self, page: Callable[[str | None], Awaitable[Any]], name: str, most: int) -> list[Any]:
        """Return all listed items, at most ``most``; raises as ``_answer_to``."""
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            result = await self._answer_to(page(cursor))
            found += getattr(result, name)
            cursor = result.next_cursor
            if cursor is None or len(found) >= most:
                break
        return found[:most]

    def _end_reason(self) -> str:
        return f"the connection ended{self._last_words()}"

    def _last_words(self) -> str:
        reason = "" if self._peer is None else self._peer.explain()
        return f" ({_short(reason)})" if reason else ""

    # -- the owner -----------------------------------------------------------------------------------------------

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        """Open the connection, keep it until it is closed or lost, and close it."""
        try:
            client = Client(
                self._transport(),
                message_handler=self._on_message,
                client_info=Implementation(name="pyagentd", version=__version__),
                cache=None,
            )
            async with client:
                self._client = client
                ready.set_result(None)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen, client)
                    await self._leave.wait()
                    self._client = None
                    tasks.cancel_scope.cancel()
        except Exception as error:  # whatever the SDK, the program or the network raises: it is no more
            self._report_failure(ready, error)
        finally:
            self._client = None
            self._ended(self._end_reason())

    def _report_failure(self, ready: asyncio.Future[None], error: Exception) -> None:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        why = _short(str(error) or type(error).__name__)
        if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
            why = "it ended before it answered"
        if isinstance(error, FileNotFoundError) and error.filename is not None:
            what = "directory" if error.filename == self._launch.cwd else "program"
            why = f"there is no {what} {error.filename}"
        log.debug("mcp server %s: %s", self._launch.name, why, exc_info=error)
        if not ready.done():
            ready.set_exception(Broken(why + self._last_words()))

    async def _close_now(self) -> None:
        if self._owner is not None:
            self._leave.set()
            self._owner.cancel()
            await asyncio.wait([self._owner])

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Any, None]:
        async with AsyncExitStack() as stack:
            if self._launch.url:
                self._peer = Web(self._launch)
                read, *rest = await stack.enter_async_context(self._peer.streams())
            else:
                self._peer, read, *rest = await stack.enter_async_context(program(self._launch, self._leave.set))
            yield _FilteredStream(read, self._without_refused_tools), *rest

    def _without_refused_tools(self, message: Any) -> Any:
        """Return a message without the tools for which the SDK would refuse the whole list; keeps the reasons.

        Output schemas are removed, too: the SDK checks results against them in the event loop, and a server's regular
        expression can take for ever.
        """
        answer = getattr(message, "message", None)
        if not isinstance(answer, JSONRPCResponse) or not isinstance(answer.result.get("tools"), list):
            return message
        version = self._client.protocol_version if self._client is not None else LATEST_HANDSHAKE_VERSION
        kept = []
        for tool in answer.result["tools"][:MOST_TOOLS]:  # each takes a moment of the loop
            if why := _wrong_tool({**answer.result, "tools": [tool]}, version):
                name = tool.get("name") if isinstance(tool, dict) else None
                self._refused[str(name or "without a name")[:LONGEST_NAME]] = why
            else:
                kept.append({key: value for key, value in tool.items() if key != "outputSchema"})
        answer.result["tools"] = kept
        return message

    # -- notifications -------------------------------------------------------------------------------------------

    async def _on_message(self, message: object) -> None:
        changes = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
        if isinstance(message, changes):
            self._changed()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes, for servers that need it (protocol 2026-07-28)."""
        can = client.server_capabilities
        tools = bool(can.tools and can.tools.list_changed)
        prompts = bool(can.prompts and can.prompts.list_changed)
        resources = bool(can.resources and can.resources.list_changed)
        if not (tools or prompts or resources):
            return
        while True:
            try:
                async with client.listen(
                    tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
                ) as events:
                    async for _ in events:
                        self._changed()
            except ListenNotSupportedError:
                return
            except (SubscriptionLost, MCPError, TimeoutError, httpx2.HTTPError) as error:
                log.debug("mcp server %s: cannot listen for changes: %s", self._launch.name, error)
            await anyio.sleep(_LISTEN_AGAIN_S)
            self._changed()  # what happened meanwhile is not told again


def _resource(each: Any, uri: str, *, template: bool = False) -> ServerResource:
    return ServerResource(
        uri=uri,
        name=each.title or each.name,
        description=each.description or "",
        mime=each.mime_type or "",
        template=template,
    )


def _short(text: str) -> str:
    """Return a server's message about a failure, on one line and without secrets."""
    line = re.sub(r"\s+", " ", mask_secrets(text[:_READ])).strip()
    return truncate(line, _SHOWN)


class _FilteredStream:
    """A stream of messages, each passed through ``sift``."""

    def __init__(self, stream: Any, sift: Callable[[Any], Any]) -> None:
        self._stream = stream
        self._sift = sift

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        return self._sift(await self._stream.receive())

    def __aiter__(self) -> "_FilteredStream":
        return self

    async def __anext__(self) -> Any:
        return self._sift(await self._stream.__anext__())

    async def __aenter__(self) -> "_FilteredStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


def _wrong_tool(result: dict[str, Any], version: str) -> str:
    """Return why the SDK would refuse a list because of this tool, "" if it would not."""
    try:
        validate_server_result("tools/list", version, result)
    except ValidationError as error:
        for each in error.errors():
            if each["loc"][:1] == ("tools",):
                where = ".".join(str(name) for name in each["loc"][2:])
                return _short(f"{where}: {each['msg']}".lstrip(": "))
    except (KeyError, ValueError):  # a version that nobody knows: the SDK says so itself
        pass
    return ""


def _wrong_schemas(tools: Sequence[ServerTool]) -> dict[str, str]:
    """Return the tools whose input schema is no valid JSON Schema, with the reason; blocks.

    A provider refuses every request with such a tool.
    """
    wrong, until = {}, time.monotonic() + _CHECK_S
    for tool in tools:
        if not is_sent(tool.schema):
            continue  # it is offered without
        if time.monotonic() > until:
            wrong[tool.name] = "the schemas of its server are too long to check all of them"
            continue
        try:
            Draft202012Validator.check_schema(dict(tool.schema))
        except SchemaError as error:
            wrong[tool.name] = _short(f"its schema is not a JSON Schema: {error.json_path}: {error.message}")
        except Exception as error:  # the library says what it cannot check in many ways
            wrong[tool.name] = _short(f"its schema cannot be checked: {error}")
    return wrong
