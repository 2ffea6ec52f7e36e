"""One server as runs see it: started when something is wanted of it, again after it ended, but not again and again.

A server that cannot be started, or that ends while it is used, is left alone for 1, 2, 5, 15, then 60 s; who wants
something of it meanwhile is told so at once, or waits where that takes no longer than two seconds. One that nobody
used for ten minutes is ended; what it offers stays known. One that says again and again that it offers something else
is asked what, once at a time and ever less often.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pyagentd.errors import NotInstalled, ToolError
from pyagentd.installation import extra
from pyagentd.tools.mcp.catalog import Answered, Catalog, Piece, ServerPrompt, ServerResource
from pyagentd.tools.mcp.launch import Launch
from pyagentd.tools.mcp.pace import Pace

if TYPE_CHECKING:  # the SDK takes a while to load
    from pyagentd.tools.mcp.link import Link

BACKOFF_S = (1.0, 2.0, 5.0, 15.0, 60.0)
IDLE_S = 600.0
_PATIENCE_S = 2.0  # of one who wants something of a server that is left alone
_LOG_S = 60.0  # between two lines that say the same
_WELL_S = 60.0  # a server that ran for so long has not failed by starting

State = Literal["stopped", "starting", "running", "failed"]

_T = TypeVar("_T")

log = logging.getLogger(__name__)


class Unavailable(ToolError):
    """Nothing can be wanted of the server now."""


class Connection:
    """One server.

    Args:
        launch: How it is started.
        changed: Told when it offers something else than before, with the names of tools that are new and gone.
        learned: Told whenever it has said what it offers.
        now: The time, in seconds.

    Attributes:
        catalog: What it offers; None: nobody has asked it yet.
        resources: Its resources, as it last said.
        prompts: Its prompts, likewise.
        problem: Why it could not be started, or ended; "" while all is well.
        not_before: When it may be started again.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        changed: Callable[[Connection, tuple[str, ...], tuple[str, ...]], None] = lambda *_: None,
        learned: Callable[[Connection], None] = lambda _: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.launch = launch
        self.catalog: Catalog | None = None
        self.problem = ""
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
        """What the server is called in the configuration."""
        return self.launch.name

    @property
    def state(self) -> State:
        """What it is doing."""
        if self._link is not None:
            return "running"
        if self._opening is not None:
            return "starting"
        return "failed" if self.problem else "stopped"

    # -- what is wanted of it ------------------------------------------------------------------------------------

    async def offers(self) -> Catalog:
        """Return what it offers; it is started when nobody has asked it yet.

        Raises:
            Unavailable: It cannot be asked.
        """
        if self.catalog is None:
            await self._using_it(_nothing)
        assert self.catalog is not None
        return self.catalog

    async def call(self, tool: str, args: Mapping[str, Any]) -> Answered:
        """Call a tool; raises ``ToolError``."""
        return await self._using_it(lambda link: link.call(tool, args))

    async def read(self, uri: str) -> tuple[Piece, ...]:
        """Return what a resource holds; raises ``ToolError``."""
        return await self._using_it(lambda link: link.read(uri))

    async def prompt(self, name: str, args: Mapping[str, str]) -> tuple[tuple[str, Piece], ...]:
        """Return the messages that a prompt becomes, each with its role; raises ``ToolError``."""
        return await self._using_it(lambda link: link.prompt(name, args))

    def try_again(self) -> None:
        """Start it when it is wanted next, however often that failed: somebody says so."""
        self.not_before, self._failures = 0.0, 0
        if self._link is None and self.catalog is not None and self.problem:
            self.catalog = None  # it is asked anew

    async def close(self) -> None:
        """End it for good."""
        self._closed = True
        for task in (self._listing, self._opening):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self._drop()

    async def close_when_idle(self) -> None:
        """End it if nobody has used it for a while."""
        if self._link is not None and not self._using and self.now() - self._used >= IDLE_S:
            log.info("mcp server %s: not used, ended", self.name)
            await self._drop()

    # -- inside --------------------------------------------------------------------------------------------------

    async def _using_it(self, work: Callable[[Link], Awaitable[_T]]) -> _T:
        link = await self._ready()
        from pyagentd.tools.mcp.link import Broken, Forgotten  # loaded by then

        self._using += 1
        try:
            try:
                return await work(link)
            except Forgotten:
                if self._link is link:  # no other call has begun anew meanwhile
                    await self._drop()
                link = await self._ready()
                return await work(link)
        except Broken as error:
            await self._broke(link, str(error))
            raise Unavailable(
                f"The MCP server {self.name} is unavailable: {error}. What it was asked to do may have been done or "
                f"not; look before you ask again."
            ) from error
        finally:
            self._using -= 1
            self._used = self.now()

    async def _ready(self) -> Link:
        if self._closed:
            raise Unavailable(f"The MCP server {self.name} is unavailable: the daemon stops")
        if self._link is not None:
            return self._link
        await self._patience()
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        # Whoever waits may be stopped; the server is started all the same, for the next one.
        return await asyncio.shield(self._opening)

    async def _patience(self) -> None:
        """Wait until the server may be started again; raises ``Unavailable`` where that takes too long."""
        wait = self.not_before - self.now()
        if wait > _PATIENCE_S:
            raise Unavailable(
                f"The MCP server {self.name} is unavailable: {self.problem}. It is tried again in {wait:.0f} s; "
                f"go on without it, or do something else first."
            )
        if wait > 0:
            await asyncio.sleep(wait)

    async def _open(self) -> Link:
        try:
            link_module = await asyncio.to_thread(_loaded)
        except NotInstalled as error:
            self._failed(str(error))
            raise Unavailable(f"The MCP server {self.name} is unavailable: {error}") from error
        link: Link = link_module.Link(self.launch, self._changed, lambda why: self._gone(link, why))
        log.info("mcp server %s: starting", self.name)
        try:
            await link.open()
            try:
                self._learn(await link.catalog())
                await self._list_more(link)
            except BaseException:
                await link.close()
                raise
        except (link_module.Broken, ToolError) as error:
            self._failed(str(error))
            raise Unavailable(f"The MCP server {self.name} is unavailable: {error}") from error
        self._link, self._since, self.problem = link, self.now(), ""
        return link

    def _opened(self, opening: asyncio.Task[Link]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # whoever waited was told

    async def _broke(self, link: Link, why: str) -> None:
        self._gone(link, why)
        await link.close()

    def _gone(self, link: Link, why: str) -> None:
        """Note that a connection ended by itself."""
        if self._link is link:
            self._link = None
            self._failed(why)

    def _failed(self, why: str) -> None:
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

    def _changed(self) -> None:
        """Have the server asked anew what it offers: it says that this is something else now."""
        self._is_stale = self._link is not None
        if self._listing is None and self._is_stale and not self._closed:
            self._listing = asyncio.create_task(self._list_while_stale())

    async def _list_while_stale(self) -> None:
        """List until it did not change meanwhile; one that always does is asked ever less often."""
        try:
            while self._is_stale:
                await asyncio.sleep(self._pace.wait(self.now()))  # several changes are one
                self._is_stale, link = False, self._link
                if link is not None:
                    self._pace.done(self.now())
                    await self._list(link)
        finally:
            self._listing = None

    async def _list(self, link: Link) -> None:
        try:
            self._learn(await link.catalog())
            await self._list_more(link)
        except Exception as error:  # it is asked again when something is wanted of it
            log.info("mcp server %s: what it offers now is not known: %s", self.name, error)

    async def _list_more(self, link: Link) -> None:
        """Learn which resources and prompts there are; a server that cannot say is used all the same."""
        assert self.catalog is not None
        try:
            self.resources = await link.resources() if self.catalog.has_resources else ()
            self.prompts = await link.prompts() if self.catalog.has_prompts else ()
        except ToolError as error:
            log.info("mcp server %s: %s", self.name, error)
        self._learned(self)

    def _learn(self, found: Catalog) -> None:
        before, self.catalog = self.catalog, found
        if before is not None and before.tools != found.tools:
            old, new = ({tool.name for tool in each.tools} for each in (before, found))
            if self.now() - self._logged >= _LOG_S:
                self._logged = self.now()
                log.info("mcp server %s: its tools changed", self.name)
            self._tell(self, tuple(sorted(new - old)), tuple(sorted(old - new)))


async def _nothing(link: Link) -> None:
    """Want nothing of a server but that it runs."""


def _loaded() -> Any:
    """Load what needs the SDK; blocks for about a second the first time."""
    with extra("mcp", "It"):
        from pyagentd.tools.mcp import link

        return link
