"""HTTP for the web tools: no cookies or cache, and guarded requests reach public addresses only.

The guard resolves a name once and refuses it when any of its addresses is not public; the connection goes to exactly
these addresses, so a second answer of a name server does not matter. Redirects are never followed here; the caller
checks the next URL first. This module imports ``aiohttp``, so its users import it when needed and in a thread.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from socket import AddressFamily
from typing import Any

import aiohttp
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from pyagentd import __version__
from pyagentd.errors import ToolError
from pyagentd.tools.web import canonical, is_public, literal_address, private_address_error

MOST_BYTES = 5_000_000  # of one answer, unpacked; the rest is not read

_AGENT = f"pyagentd/{__version__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebResponse:
    """A server's answer."""

    status: int
    reason: str
    headers: Mapping[str, str]  # names lowercase
    body: bytes
    whole: bool  # False: there was more than is read


class _GuardedResolver(ThreadedResolver):
    """Resolves names only if all their addresses are public."""

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AddressFamily.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        for each in found:
            if not is_public(each["host"]):
                raise private_address_error(host, each["host"])
        return found


async def fetch(
    url: str,
    *,
    guarded: bool,
    headers: Mapping[str, str] | None = None,
    json: Any = None,
) -> WebResponse:
    """Send one request and return the answer, whatever its status; ``json`` is posted, else it is a GET.

    The URL is canonical (``web.canonical``); a ``guarded`` request is refused where the address is not public.

    Raises:
        ToolError: The address is refused, or the server cannot be reached; says what happened.
    """
    target = URL(url, encoded=True)
    if canonical(str(target)) != url:  # what is connected to must be what was asked about
        raise ToolError(f"{url!r} can be read in more than one way, so it is not fetched.")
    if guarded and (address := literal_address(url)) is not None and not is_public(address):
        raise private_address_error(address, address)
    connector = aiohttp.TCPConnector(resolver=_GuardedResolver() if guarded else None, use_dns_cache=False)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(
                "GET" if json is None else "POST",
                target,
                headers={"User-Agent": _AGENT, **(headers or {})},
                json=json,
                allow_redirects=False,
            ) as response,
        ):
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MOST_BYTES:
                    break
            return WebResponse(
                status=response.status,
                reason=response.reason or "",
                headers={name.lower(): value for name, value in response.headers.items()},
                body=bytes(body[:MOST_BYTES]),
                whole=len(body) <= MOST_BYTES,
            )
    except (aiohttp.ClientError, ssl.SSLError, asyncio.IncompleteReadError, OSError) as error:
        if isinstance(cause := error.__cause__, ToolError):
            raise cause from None
        raise ToolError(f"{target.host} cannot be reached: {error or type(error).__name__}.") from error
