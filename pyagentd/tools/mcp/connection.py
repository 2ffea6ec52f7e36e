"""A connection to an MCP server: started on demand, and restarted after it ended, with growing pauses.

A server that cannot be started, or that ends while it is used, is started again after 1, 2, 5, 15, then 60 s at the
earliest; a call meanwhile fails at once, or waits if that takes at most two seconds. A server that is unused for ten
minutes is stopped; the list of its tools is kept. If a server reports changes of that list again and again, it is
asked for it one request at a time, and less and less often.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import mimetypes
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pyagentd.config.tables import ServerSettings
from pyagentd.errors import ConfigError, NotInstalled, ToolError
from pyagentd.events import truncate
from pyagentd.installation import extra
from pyagentd.log import conceal
from pyagentd.policy.action import Target
from pyagentd.reader import MAX_DEPTH, is_deeper
from pyagentd.tools import invoke, mcp
from pyagentd.tools.process import child_environment
from pyagentd.tools.spec import Args, Output, ToolContext, ToolSpec

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, ContentBlock, TextResourceContents

    from pyagentd.tools.mcp.link import Link

log = logging.getLogger(__name__)


# How a server is started: its settings with ``${NAME}`` replaced, and its environment.
#
# A server is another program, so it gets none of our variables but those that say where things are, and what its
# settings name. The keys of model providers are never among them, whatever the settings say.
#
# Where a program runs is part of what it is: ``python -m``, npx and uv look there for modules, programs and
# settings. So one that the user configured runs in an empty directory of ours, whatever a checkout has, unless
# ``cwd`` is given.

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_ROOT = ("root", "workspaceFolder", "CLAUDE_PROJECT_DIR")  # ours, and what other programs call it
_ENDS_SEARCH = {"package.json": "{}\n", "uv.toml": ""}
_PROVIDERS = re.compile(r"ANTHROPIC_.*|OPENAI_.*|PYAGENTD_.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The command or address of a server; equal ones share a connection."""

    name: str
    command: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # what its settings say
    cwd: Path = Path("/")
    is_apart: bool = False  # ``cwd`` is ours, made when the program is started
    root: Path = Path("/")  # the workspace: one server for each
    url: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    call_s: float = 60.0
    start_s: float = 30.0
    base: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)  # the usual variables

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of the program."""
        return {**self.base, **dict(self.env)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVariables:
    """The variables that the settings of a server may use."""

    root: Path  # the workspace
    apart: Path  # has a directory for each server that runs in none of the user's
    variable: Callable[[str], str]  # returns the value of one; "" when nobody has it
    path: str = ""  # where the client of the run finds programs
    keys: Collection[str] = ()  # the variables that the keys of model providers are in


def launch(settings: ServerSettings, around: ServerVariables) -> Launch:
    """Return how to start a server in a workspace.

    Raises:
        ConfigError: Its settings use a variable that is not set, or that a server must not get.
    """

    def expand(text: str) -> str:
        return text if settings.literal else _VARIABLE.sub(lambda found: _value(settings, around, found), text)

    is_apart = not settings.cwd and not settings.of_project
    named = os.path.expanduser(expand(settings.cwd))  # noqa: PTH111 - Path raises
    cwd = around.apart / settings.name if is_apart else around.root / named
    base = child_environment({"PATH": around.path} if around.path else {})
    if settings.of_project:
        base["PYTHONSAFEPATH"] = "1"  # modules that merely lie there are no part of what was trusted
    spelled = map(expand, settings.command)
    words = tuple(str(Path(word).expanduser()) if word.startswith("~/") else word for word in spelled)
    return Launch(
        name=settings.name,
        command=settings.command if settings.literal else words,
        env=tuple((name, expand(value)) for name, value in settings.env.items()),
        cwd=cwd,
        is_apart=is_apart,
        root=around.root,
        url=expand(settings.url),
        headers=tuple((name, expand(value)) for name, value in settings.headers.items()),
        call_s=settings.call_s,
        start_s=settings.start_s,
        base=base,
    )


def make_server_dir(directory: Path) -> None:
    """Make the working directory of a server that has no ``cwd``; blocks.

    Its files keep npm and uv from searching the directories above. Raises ``OSError``.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in _ENDS_SEARCH.items():
        (directory / name).write_text(text)


def fill_root(text: str, root: Path) -> str:
    """Return ``text`` with the workspace's path for its variables, and other variables unchanged."""
    return _VARIABLE.sub(lambda found: str(root) if found[1] in _ROOT else found[0], text)


def _value(settings: ServerSettings, around: ServerVariables, found: re.Match[str]) -> str:
    name, otherwise = found[1], found[2]
    if name in _ROOT:
        return str(around.root)
    if name in around.keys or _PROVIDERS.fullmatch(name):
        raise ConfigError(
            f"{settings.source}: the MCP server {settings.name} wants ${{{name}}}, which is not given to servers",
            hint="Keep what a server needs in a variable of its own",
        )
    value = around.variable(name) or otherwise
    if value is None:
        raise ConfigError(
            f"{settings.source}: the MCP server {settings.name} needs the variable {name}, which is not set",
            hint=f"Set {name} where the daemon is started, then: pyagentd stop",
        )
    conceal(value)
    return value


# Rate limit for servers that report changes again and again.

LEAST_S = 2.0
MOST_S = 60.0


class Pace:
    """Growing pauses: at once, then after 2 s, 4 s, …, 60 s; a quiet time resets them."""

    def __init__(self) -> None:
        self._pause = 0.0
        self._last = float("-inf")

    def wait(self, now: float) -> float:
        """Return the seconds to wait, 0 for none; ``now`` is in seconds."""
        return max(0.0, self._last + self._pause - now)

    def done(self, now: float) -> None:
        """Note an action at ``now``."""
        is_quiet = now - self._last > 2 * max(self._pause, LEAST_S)
        self._pause = LEAST_S if is_quiet else min(MOST_S, 2 * self._pause)
        self._last = now


# The tools, resources and prompts of a server as values that do not depend on the SDK.

LONGEST_NAME = 200  # characters


def is_name(text: str) -> bool:
    """Return whether a server's tool or prompt may have this name, which questions show on one line."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """One tool as its server describes it; nothing in it is trusted."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)  # JSON Schema of its arguments
    only_looks: bool = False  # says the server


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResource:
    """One resource, or a template of resources, whose ``uri`` has names in braces."""

    uri: str
    name: str = ""
    description: str = ""
    mime: str = ""
    template: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPrompt:
    """One prompt; its arguments are texts."""

    name: str
    description: str = ""
    arguments: tuple[tuple[str, bool], ...] = ()  # name, and whether it has to be given


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What a server offers, as last listed."""

    tools: tuple[ServerTool, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()  # tools that cannot be offered: name, and why
    has_resources: bool = False
    has_prompts: bool = False
    title: str = ""  # how it calls itself, with its version
    protocol: str = ""  # the version that is spoken


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One part of a server's answer."""

    text: str = ""
    data: bytes | None = None  # of an image, a sound, a file
    mime: str = ""
    uri: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of a call."""

    pieces: tuple[Piece, ...]
    structured: Any = None  # the same as JSON, where the server says so
    ok: bool = True


BACKOFF_S = (1.0, 2.0, 5.0, 15.0, 60.0)
IDLE_S = 600.0
_PATIENCE_S = 2.0  # of one who wants something of a server that is left alone
_LOG_S = 60.0  # between two lines that say the same
_WELL_S = 60.0  # a server that ran for so long has not failed by starting

State = Literal["stopped", "starting", "running", "failed"]

_T = TypeVar("_T")

Changed = Callable[["Connection", tuple[str, ...], tuple[str, ...]], None]
"""Called when a server's tools changed, with the names of the new and of the removed ones."""

Learned = Callable[["Connection"], None]
"""Called whenever a server was listed."""


class Unavailable(ToolError):
    """The server cannot be used now."""


class Connection:
    """One server.

    Attributes:
        catalog: What it offers; None before it was first listed.
        resources: Its resources, as last listed.
        prompts: Its prompts, as last listed.
        problem: Why it could not be started, or why it ended; "" if neither.
        not_before: When it may be started again.
        refused: Returns why it must not be started now, or ""; may read files.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        changed: Changed = lambda *_: None,
        learned: Learned = lambda _: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.launch = launch
        self.catalog: Catalog | None = None
        self.problem = ""
        self.refused: Callable[[], str] = str
        self._tell = changed
        self._learned = learned
        self.now = now
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._is_stale = False  # it said that it changed, and was not asked since
        self._pace = Pace()
        self._logged = float("-inf")
        self._failures = 0
        self.not_before = 0.0
        self._since: float | None = None  # when it was last started, while it runs
        self._used = now()
        self._using = 0
        self.resources: tuple[ServerResource, ...] = ()
        self.prompts: tuple[ServerPrompt, ...] = ()
        self._closed = False

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self.launch.name

    @property
    def state(self) -> State:
        """The state of the connection."""
        if self._link is not None:
            return "running"
        if self._opening is not None:
            return "starting"
        return "failed" if self.problem else "stopped"

    # -- requests ------------------------------------------------------------------------------------------------

    async def offers(self) -> Catalog:
        """Return what it offers; start it if it was never listed.

        Raises:
            Unavailable: It cannot be used.
        """
        if self.catalog is None:
            await self._ready_link()
        assert self.catalog is not None
        return self.catalog

    async def call(self, tool: str, args: Mapping[str, Any]) -> CallResult:
        """Call a tool; raises ``ToolError``."""
        return await self._use(lambda link: link.call(tool, args))

    async def read(self, uri: str) -> tuple[Piece, ...]:
        """Return the content of a resource; raises ``ToolError``."""
        return await self._use(lambda link: self._answer_within(self.launch.call_s, link.read(uri)))

    async def prompt(self, name: str, args: Mapping[str, str]) -> tuple[tuple[str, Piece], ...]:
        """Return the messages of a prompt, each with its role; raises ``ToolError``."""
        return await self._use(lambda link: self._answer_within(self.launch.call_s, link.prompt(name, args)))

    def try_again(self) -> None:
        """Forget earlier failures, so that the next use starts it, on the user's request."""
        self.not_before, self._failures = 0.0, 0
        if self._link is None and self.catalog is not None and self.problem:
            self.catalog = None  # it is asked anew

    async def close(self) -> None:
        """Close the connection for good."""
        self._closed = True
        for task in (self._listing, self._opening):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self._drop()

    async def close_when_idle(self) -> None:
        """Stop the server if it was not used for a while."""
        if self._link is not None and not self._using and self.now() - self._used >= IDLE_S:
            log.info("mcp server %s: stopped, unused", self.name)
            await self._drop()

    # -- inside --------------------------------------------------------------------------------------------------

    async def _use(self, work: "Callable[[Link], Awaitable[_T]]") -> _T:
        link = await self._ready_link()
        self._using += 1
        try:
            try:
                return await work(link)
            except mcp.link.Forgotten:
                if self._link is link:  # no other call has begun anew meanwhile
                    await self._drop()
                link = await self._ready_link()
                return await work(link)
        except mcp.link.Broken as error:
            self._on_link_ended(link, str(error))
            await link.close()
            raise Unavailable(
                f"The MCP server {self.name} is unavailable: {error}. What it was asked to do may have been done or "
                f"not; look before you ask again."
            ) from error
        finally:
            self._using -= 1
            self._used = self.now()

    async def _ready_link(self) -> "Link":
        wait = self.not_before - self.now() if self._link is None else 0.0
        if wait > _PATIENCE_S:
            raise Unavailable(
                f"The MCP server {self.name} is unavailable: {self.problem}",
                hint=f"It is tried again in {wait:.0f} s; go on without it, or do something else first.",
            )
        if wait > 0:
            await asyncio.sleep(wait)
        if self._closed:
            raise Unavailable(f"The MCP server {self.name} is unavailable: the daemon stops")
        if self._link is not None:
            return self._link
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._on_opened)
        # A caller that waits may be cancelled; the server is still started, for the next caller.
        return await asyncio.shield(self._opening)

    async def _open(self) -> "Link":
        try:
            link_module = await asyncio.to_thread(_load_link_module)
        except NotInstalled as error:
            self._note_failure(str(error))
            raise Unavailable(f"The MCP server {self.name} is unavailable: {error}") from error
        link: Link = link_module.Link(self.launch, self._on_changed, lambda why: self._on_link_ended(link, why))
        if why := await asyncio.to_thread(self.refused):
            raise Unavailable(f"The MCP server {self.name} is unavailable: {why}")
        log.info("mcp server %s: starting", self.name)
        try:
            await link.open()
            try:
                await self._ask(link)
            except BaseException:
                await link.close()
                raise
        except (link_module.Broken, ToolError) as error:
            self._note_failure(str(error))
            raise Unavailable(f"The MCP server {self.name} is unavailable: {error}") from error
        self._link, self._since, self.problem = link, self.now(), ""
        self._used = self.now()
        return link

    def _on_opened(self, opening: "asyncio.Task[Link]") -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # whoever waited was told

    def _on_link_ended(self, link: "Link", why: str) -> None:
        """Note that a connection ended by itself."""
        if self._link is link:
            self._link = None
            self._note_failure(why)

    def _note_failure(self, why: str) -> None:
        if self._since is not None and self.now() - self._since > _WELL_S:
            self._failures = 0
        self._since = None
        self.not_before = self.now() + BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)]
        self._failures += 1
        self.problem = why
        log.warning("mcp server %s is unavailable: %s", self.name, why)

    async def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def _on_changed(self) -> None:
        """List the server again, because it reports a change."""
        self._is_stale = self._link is not None
        if self._listing is None and self._is_stale and not self._closed:
            self._listing = asyncio.create_task(self._list_while_stale())

    async def _list_while_stale(self) -> None:
        """List until nothing changed meanwhile, with growing pauses."""
        try:
            while self._is_stale:
                await asyncio.sleep(self._pace.wait(self.now()))  # several changes are one
                self._is_stale, link = False, self._link
                if link is not None:
                    self._pace.done(self.now())
                    try:
                        await self._ask(link)
                    except Exception as error:  # it is asked again when something is wanted of it
                        log.info("mcp server %s: cannot list what it offers: %s", self.name, error)
        finally:
            self._listing = None

    async def _answer_within(self, seconds: float, answer: Awaitable[_T]) -> _T:
        """Return an answer; raises ``ToolError``, also when it does not come in time."""
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise ToolError(f"The MCP server {self.name} did not answer within {seconds:g} s") from None

    async def _ask(self, link: "Link") -> None:
        """List the server; one that fails to list resources or prompts is used without them."""
        most = self.launch.start_s
        found = await self._answer_within(most, link.catalog())
        try:
            self.resources = await self._answer_within(most, link.resources()) if found.has_resources else ()
            self.prompts = await self._answer_within(most, link.prompts()) if found.has_prompts else ()
        except ToolError as error:
            log.info("mcp server %s: %s", self.name, error)
        before, self.catalog = self.catalog, found  # the last of all: whoever finds it known has the prompts, too
        if before is not None and before.tools != found.tools:
            old, new = ({tool.name for tool in each.tools} for each in (before, found))
            if self.now() - self._logged >= _LOG_S:
                self._logged = self.now()
                log.info("mcp server %s: its tools changed", self.name)
            self._tell(self, tuple(sorted(new - old)), tuple(sorted(old - new)))
        self._learned(self)


def _load_link_module() -> Any:
    """Load what needs the SDK; blocks for about a second the first time."""
    with extra("mcp", "It"):
        return mcp.link


# All servers of the daemon: sessions with the same server in the same workspace share one connection.

_LOOK_S = 60.0  # between looks for servers that nobody uses


class Pool:
    """The servers that were used so far."""

    def __init__(self, changed: Changed, learned: Learned) -> None:
        self._on_changed = changed
        self._learned = learned
        self._known: dict[Launch, Connection] = {}
        self._looking: asyncio.Task[None] | None = None

    def get(self, launch: Launch) -> Connection:
        """Return the connection for ``launch``; this does not start the server."""
        if launch not in self._known:
            self._known[launch] = Connection(launch, changed=self._on_changed, learned=self._learned)
        if self._looking is None:
            self._looking = asyncio.create_task(self._end_idle())
        return self._known[launch]

    def all(self) -> list[Connection]:
        """Return all connections."""
        return list(self._known.values())

    async def close(self) -> None:
        """Close all connections."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
            self._looking = None
        known, self._known = list(self._known.values()), {}
        await asyncio.gather(*(connection.close() for connection in known))

    async def _end_idle(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for connection in list(self._known.values()):
                await connection.close_when_idle()


# A server's answer as text for the model: other content is saved in a file that the text names.
#
# The SDK's content classes, which differ by ``type``, become the values above.


def piece_of(block: "ContentBlock") -> Piece:
    """Return one part of an answer."""
    match block.type:
        case "text":
            return Piece(text=block.text)
        case "image" | "audio":
            return Piece(data=_bytes(block.data), mime=block.mime_type)
        case "resource":
            return piece_of_resource(block.resource)
        case "resource_link":
            description = ": ".join(filter(None, (block.title or block.name, block.description)))
            return Piece(text=f"[resource {block.uri}{f' ({description})' if description else ''}]")


def piece_of_resource(contents: "TextResourceContents | BlobResourceContents") -> Piece:
    """Return the content of a resource."""
    mime = contents.mime_type or ""
    text = getattr(contents, "text", None)
    if text is not None:
        return Piece(text=text, mime=mime, uri=contents.uri)
    return Piece(data=_bytes(getattr(contents, "blob", "")), mime=mime, uri=contents.uri)


def text_of(answer: CallResult, directory: Path, name: str) -> str:
    """Return an answer as text; save other content in ``directory``, in files named after ``name``; blocks.

    Raises:
        OSError: A file cannot be written.
    """
    texts = result_texts(answer.pieces, directory, name)
    if not any(texts) and answer.structured is not None:
        texts = [json.dumps(answer.structured, ensure_ascii=False, indent=1)]
    return "\n".join(texts) or ("(no output)" if answer.ok else "(it failed and said nothing)")


def result_texts(pieces: Iterable[Piece], directory: Path, name: str) -> list[str]:
    """Return each piece as text; raises as ``text_of``."""
    texts = []
    for piece in pieces:
        if piece.data is None:
            texts.append(f"[resource {piece.uri}]\n{piece.text}" if piece.uri else piece.text)
            continue
        descriptor, path = invoke.create(directory, name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(piece.data)
        ending = mimetypes.guess_extension(piece.mime.partition(";")[0].strip()) or ".bin"
        path = path.rename(path.with_suffix(ending))
        what = f"resource {piece.uri}, " if piece.uri else ""
        texts.append(f"[{what}{piece.mime or 'data'}, {len(piece.data)} bytes, kept in {path}]")
    return texts


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except (binascii.Error, ValueError):
        return text.encode()


# Tools of MCP servers as ``ToolSpec`` values: names, schemas, and the text of their results.
#
# A server is not trusted: the description of a tool is cut, its schema is adapted to what providers accept, and every
# call is asked about unless a profile, a grant, or the user's trust in the server allows it.

LONGEST_TOOL = 64  # as providers take it
_LONGEST_DESCRIPTION = 4000
_LONGEST_SCHEMA = 50_000  # characters
_SHOWN = 200  # characters of arguments in one line

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


def allowed_tools(settings: ServerSettings, tools: Iterable[ServerTool]) -> list[ServerTool]:
    """Return the tools of a server that its settings allow, in the server's order."""
    patterns = settings.tools
    return [each for each in tools if patterns is None or any(fnmatchcase(each.name, one) for one in patterns)]


def shared_names(tools: Iterable[tuple[str, str]]) -> set[str]:
    """Return the names that several tools would share, as ``a_b_c`` of ``a`` ``b_c`` and ``a_b`` ``c``."""
    return {name for name, count in Counter(starmap(tool_name, set(tools))).items() if count > 1}


def unique_tools(found: Iterable[ToolSpec], taken: Collection[str]) -> dict[str, ToolSpec]:
    """Return tools by name; a tool with the name of an earlier one is left out as ambiguous."""
    tools: dict[str, ToolSpec] = {}
    for spec in found:
        if spec.name not in taken:
            tools.setdefault(spec.name, spec)
    return tools


def tool_name(server: str, tool: str, shared: Collection[str] = ()) -> str:
    """Return the model's name for a tool of a server: ``<server>_<tool>``.

    A name that providers do not accept, or that another tool has, ends in a mark that is unique to the tool.
    """
    name = f"{server}_{tool}"
    fitting = _NO_NAME.sub("_", name)
    if fitting == name and len(name) <= LONGEST_TOOL and name not in shared:
        return name
    mark = hashlib.sha256(rule_of(server, tool).encode(errors="replace")).hexdigest()[:6]
    return f"{fitting[: LONGEST_TOOL - 7]}_{mark}"


def rule_of(server: str, tool: str) -> str:
    """Return the action of a tool, the string that profiles and grants match."""
    return f"mcp:{server}:{tool}"


def spec_of(
    settings: ServerSettings, connection: Connection, tool: ServerTool, shared: Collection[str] = ()
) -> ToolSpec:
    """Return a tool of a server as a ``ToolSpec``; ``shared`` are the names that several tools would have."""
    name = tool_name(settings.name, tool.name, shared)
    looks = settings.trusted and tool.only_looks
    described = truncate(tool.description.strip(), _LONGEST_DESCRIPTION)

    async def run(args: Args, ctx: ToolContext) -> Output:
        answer = await connection.call(tool.name, args)
        return Output(text=await asyncio.to_thread(text_of, answer, ctx.spool_dir, name), ok=answer.ok)

    return ToolSpec(
        name=name,
        description=described or f"{tool.name} of the MCP server {settings.name}",
        input_schema=_schema(tool.schema),
        kind="mcp",
        run=run,
        describe=lambda args, ctx: Target(
            detail=truncate(json.dumps(args, ensure_ascii=False) if args else "", _SHOWN),
            rule=rule_of(settings.name, tool.name),
            may_change_any_file=bool(settings.command) and not looks,
        ),
        preview=lambda args, ctx: json.dumps(args, ensure_ascii=False, indent=2) if args else "",
        confirm=not looks,
        parallel_safe=looks,
        timeout_s=settings.call_s,
    )


def is_sent(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema can be sent to providers: it is JSON, not too long and not too deep."""
    try:
        return len(json.dumps(schema, allow_nan=False)) <= _LONGEST_SCHEMA and not is_deeper(schema, MAX_DEPTH)
    except (ValueError, RecursionError, TypeError):  # no JSON: every request with it would be refused
        return False


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that providers accept and that is no stricter than the server's.

    An object that does not mention further properties allows them, as in JSON Schema.
    """
    if not is_sent(schema):
        return {"type": "object", "properties": {}, "additionalProperties": True}
    made = _loosen({key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", "allOf", "$schema")})
    made["type"] = "object"
    if not isinstance(made.get("properties"), Mapping):
        made["properties"] = {}
    if not isinstance(made.get("required", []), list):
        del made["required"]
    return made


def _loosen(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):  # true: anything will do
        return {}
    made = dict(schema)
    if isinstance(properties := schema.get("properties"), Mapping):
        made["properties"] = {name: _loosen(each) for name, each in properties.items()}
        made.setdefault("additionalProperties", True)
    if "items" in schema:
        made["items"] = _loosen(schema["items"])
    return made
