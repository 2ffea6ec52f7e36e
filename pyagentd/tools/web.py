"""The WebFetch and WebSearch tools.

The action of a fetch is ``tool:WebFetch:https://host/path``: an approval may cover the page or its site. A redirect
within the site is followed; one to another site is another action, so the model is told and calls the tool again.
"""

import asyncio
import ipaddress
import json
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urljoin, urlsplit, urlunsplit

from pyagentd import tools
from pyagentd.config.tables import WebSettings
from pyagentd.errors import ToolError
from pyagentd.policy.action import Target
from pyagentd.tools.process import worker
from pyagentd.tools.spec import Args, Output, ToolContext, ToolSpec, object_schema

if TYPE_CHECKING:
    from pyagentd.tools.webclient import WebResponse


# Which addresses of the web an agent may reach: pure checks of URLs and of the addresses that names resolve to.
#
# The attack is a page that makes an agent fetch what only this machine can reach: a router, a cloud's metadata, a
# daemon on loopback. So an address counts only when it is public, in whatever notation it comes, and what is checked
# is what is connected to.

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?\.?|\[[0-9a-f:.]+\]")
_NUMBERS = re.compile(r"(.+\.)?([0-9]+|0x[0-9a-f]*)\.?")  # no name ends so: an address, as C or browsers write it
_UNWANTED = re.compile(r"[\x00-\x20\x7f\\]")
_PLAIN = "/?%:@!$&'()*+,;=~[]"  # beside letters and digits, what stays as it is behind the host
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

# Nobody's web pages, though some versions of Python take them, or parts of them, for global. 192.0.0.192 is the
# metadata of a cloud; the rest leads to v4 addresses by some gateway near us, or is a network of one's own.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",
        "192.88.99.0/24",
        "::/96",
        "::ffff:0:0:0/96",
        "64:ff9b:1::/48",
        "2001::/23",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",
    )
)


def canonical(text: str) -> str:
    """Return a URL in canonical form, for questions and requests: lowercase host, a path, no fragment.

    Raises:
        ToolError: It is not an address of a web page.
    """
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise ToolError(f"{text!r} is not a URL: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ToolError(f"{text!r} cannot be fetched: only http:// and https:// are. Give the whole URL of a page.")
    if parts.username is not None or parts.password is not None:
        raise ToolError(f"{parts.hostname} cannot be fetched with a name or password in its URL. Leave them out.")
    if _UNWANTED.search(text.strip()):
        raise ToolError(f"{text!r} is not a URL: it has a space, a backslash or a control character. Encode it.")
    if {".", ".."} & {*unquote(parts.path).split("/")}:  # a server may take it for another page than was allowed
        raise ToolError(f"{text!r} goes up again by .. or has a . in it. Write the address that it means.")
    host = _host(parts)
    place = host if port in (None, _DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
    return urlunsplit((parts.scheme, place, quote(parts.path or "/", _PLAIN), quote(parts.query, _PLAIN), ""))


def _host(parts: SplitResult) -> str:
    name = parts.hostname or ""
    try:
        host = f"[{name}]" if ":" in name else name.encode("idna").decode() if not name.isascii() else name
        if _NUMBERS.fullmatch(host):
            host = socket.inet_ntoa(socket.inet_aton(host.removesuffix(".")))
    except (UnicodeError, OSError):
        host = ""
    if not _HOST.fullmatch(host):
        raise ToolError(f"{parts.geturl()!r} names no host that could be asked.")
    return host


def same_site(one: str, other: str) -> bool:
    """Return whether a redirect from ``one`` to ``other`` stays on the host, and is no less safe."""
    a, b = urlsplit(one), urlsplit(other)
    if a.hostname != b.hostname or (a.scheme == "https" and b.scheme != "https"):
        return False
    return _port(a) == _port(b) or (_port(a), _port(b)) == (80, 443)


def _port(parts: SplitResult) -> int:
    return parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to the public internet, also when it is a v4 address inside a v6 one."""
    ip = ipaddress.ip_address(address.strip("[]"))
    if isinstance(ip, ipaddress.IPv6Address):
        inside = [ip.ipv4_mapped]
        if ip in _NAT64:
            inside.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
        if any(each is not None and not is_public(str(each)) for each in inside):
            return False
        if ip.ipv4_mapped is not None:
            return True
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _NOT_PUBLIC)


def literal_address(url: str) -> str | None:
    """Return the host of a URL if it is an IP address, which is not resolved; None if it is a name."""
    host = urlsplit(url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return host


def private_address_error(host: str, address: str) -> ToolError:
    """Return the error for a host whose address is not public."""
    what = host if host == address else f"{host} ({address})"
    return ToolError(
        f"{what} is not on the public internet, so it is not fetched: private, loopback and link-local addresses are "
        f"for the user's own machines. Work without it; the user can allow it with allow_private = true in [web] of "
        f"config.toml."
    )


NAME = "WebFetch"
TIMEOUT_S = 15.0

_MOST_REDIRECTS = 5
_ACCEPT = "text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5"

_DESCRIPTION = """\
Fetch a page of the public web (http or https) and return its text; HTML comes as Markdown. For what is on this \
machine use Read. Long pages are cut and kept in a file."""

_SCHEMA: dict[str, Any] = object_schema(
    {"url": {"type": "string", "minLength": 8, "maxLength": 4000, "description": "The whole URL"}}
)


def web_fetch(*, allow_private: bool) -> ToolSpec:
    """Return the tool; ``allow_private`` lets it reach addresses that are not public."""

    async def run(args: Args, ctx: ToolContext) -> Output:
        url, answered = await _fetch_following_redirects(canonical(args["url"]), guarded=not allow_private)
        kind = answered.headers.get("content-type", "")
        if answered.status >= 400:
            raise ToolError(f"{url} answered {answered.status} {answered.reason}".rstrip() + ". Try another address.")
        if not tools.page.is_text(kind):
            raise ToolError(f"{url} is {kind.partition(';')[0]}, which is not text. Look for a page that is.")
        text, whole = await _text_of_page(answered.body, kind, url)
        cut = "" if answered.whole and whole else "\n[The page is longer; only its beginning was read.]"
        return Output(text=f"{url}\n\n{text or '(the page has no text)'}{cut}", truncated=bool(cut))

    return ToolSpec(
        name=NAME,
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        kind="net",
        repeatable=True,
        run=run,
        describe=lambda args, ctx: Target(detail=canonical(args["url"])),
        confirm=True,
        parallel_safe=True,
        timeout_s=TIMEOUT_S,
    )


async def _fetch_following_redirects(url: str, *, guarded: bool) -> "tuple[str, WebResponse]":
    """Follow redirects, and return the final answer and its URL."""
    client = await asyncio.to_thread(lambda: tools.webclient)  # the first time it takes a moment to load
    for _ in range(_MOST_REDIRECTS + 1):
        answered: WebResponse = await client.fetch(url, guarded=guarded, headers={"Accept": _ACCEPT})
        where = answered.headers.get("location")
        if answered.status not in (301, 302, 303, 307, 308) or not where:
            return url, answered
        target = canonical(urljoin(url, where))
        if not same_site(url, target):
            raise ToolError(f"{url} redirects to {target}, which is another site. Fetch that if you need it.")
        url = target
    raise ToolError(f"{url} redirects again and again. Try another address.")


async def _text_of_page(body: bytes, kind: str, url: str) -> tuple[str, bool]:
    """Return the text of a page, and whether it is complete; a process converts HTML, which may take any memory."""
    if not tools.page.is_html(kind):
        return await asyncio.to_thread(tools.page.text_of, body, kind, url), True
    request = json.dumps([kind, url]).encode() + b"\n" + body
    async with worker(tools.page.__name__, request) as group:
        assert group.process.stdout is not None
        text = await group.process.stdout.read()
        if await group.process.wait():
            raise ToolError(f"{url} cannot be read: its HTML takes too much memory. Try another address.")
    return text.decode(errors="ignore"), len(text) < tools.page.MOST_TEXT  # it may end within a character


# The WebSearch tool: ``{query, max_results?} → {results: [{title, url, snippet}]}``.
#
# The provider is configured (``[web] search``) and stays the same for a session; without one the tool says how to
# configure it. A session may search 25 times.

WEB_SEARCH_NAME = "WebSearch"
MOST_SEARCHES = 25  # of a session

_USUAL_RESULTS = 8
_TAG = re.compile(r"</?\w[^<>]*>")

_WEB_SEARCH_DESCRIPTION = """\
Search the web. Returns titles, addresses and a few words of each page found; read a page with WebFetch."""

_WEB_SEARCH_SCHEMA: Mapping[str, Any] = object_schema(
    {"query": {"type": "string", "minLength": 1, "maxLength": 400}},
    {
        "max_results": {"type": "integer", "minimum": 1, "maximum": 20, "description": f"Default: {_USUAL_RESULTS}"},
    },
)


Inquiry = Mapping[str, Any]
"""A request to a provider: ``url``, ``headers`` and, where it is posted, ``json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A search provider."""

    url: str  # its address, "" when it has none of its own
    key_env: str  # the variable its key is usually in, "" when it needs none
    inquire: Callable[[str, str, int, str], Inquiry]  # for a query: address, query, number of results and key
    found: tuple[str, ...]  # where in its answer the results are
    snippet: str  # which field of a result says what the page is about


PROVIDERS: Mapping[str, Provider] = {
    "searxng": Provider(
        url="",
        key_env="",
        inquire=lambda url, query, most, key: {
            "url": f"{url}/search?{urlencode({'q': query, 'format': 'json'})}",
            "headers": {"Accept": "application/json"},
        },
        found=("results",),
        snippet="content",
    ),
    "brave": Provider(
        url="https://api.search.brave.com/res/v1",
        key_env="BRAVE_API_KEY",
        inquire=lambda url, query, most, key: {
            "url": f"{url}/web/search?{urlencode({'q': query, 'count': most})}",
            "headers": {"Accept": "application/json", "X-Subscription-Token": key},
        },
        found=("web", "results"),
        snippet="description",
    ),
    "tavily": Provider(
        url="https://api.tavily.com",
        key_env="TAVILY_API_KEY",
        inquire=lambda url, query, most, key: {
            "url": f"{url}/search",
            "headers": {"Authorization": f"Bearer {key}"},
            "json": {"query": query, "max_results": most},
        },
        found=("results",),
        snippet="content",
    ),
}

_UNCONFIGURED = (
    "No web search is configured. Go on with what you know or can read, and say so. The user can configure one: "
    'search = "searxng", "brave" or "tavily" in the table [web] of config.toml (see Info node `(pyagentd) Tools\').'
)


def key_variable(settings: WebSettings) -> str:
    """Return the variable with the key of the configured provider, "" if it needs none."""
    return settings.key_env or (PROVIDERS[settings.search].key_env if settings.search else "")


def web_search(settings: WebSettings, *, key: Callable[[], str], used: Callable[[], int]) -> ToolSpec:
    """Return the tool for one run, given what returns the provider's key ("": not known) and the searches so far."""
    under_way = 0

    async def run(args: Args, ctx: ToolContext) -> Output:
        nonlocal under_way
        if used() + under_way >= MOST_SEARCHES:
            raise ToolError(
                f"This session has searched {MOST_SEARCHES} times, which is all it may. Use what you have."
            )
        if settings.search is None:
            raise ToolError(_UNCONFIGURED)
        provider, variable, own = PROVIDERS[settings.search], key_variable(settings), key()
        if variable and not own:
            raise ToolError(
                f"{settings.search} needs a key, and the variable {variable} has none. Go on without searching, and "
                f"tell the user to set it where Emacs or the daemon is started."
            )
        most = args.get("max_results", _USUAL_RESULTS)
        inquiry = provider.inquire((settings.search_url or provider.url).rstrip("/"), args["query"], most, own)
        under_way += 1
        try:
            client = await asyncio.to_thread(lambda: tools.webclient)
            address = canonical(inquiry["url"])
            answered = await client.fetch(**{**inquiry, "url": address}, guarded=False)  # the user named it
        finally:
            under_way -= 1
        if answered.status != 200:
            raise ToolError(f"{settings.search} answered {answered.status} {answered.reason}; it cannot search now.")
        results = _parse_results(provider, answered.body, settings.search)[:most]
        return Output(text=json.dumps({"results": results}, ensure_ascii=False, indent=1))

    return ToolSpec(
        name=WEB_SEARCH_NAME,
        description=_WEB_SEARCH_DESCRIPTION,
        input_schema=_WEB_SEARCH_SCHEMA,
        kind="net",
        repeatable=True,
        run=run,
        describe=lambda args, ctx: Target(detail=" ".join(args["query"].split())),
        confirm=True,
        parallel_safe=True,
        timeout_s=TIMEOUT_S,
    )


def _parse_results(provider: Provider, body: bytes, name: str) -> list[dict[str, str]]:
    """Return the results in an answer, without markup.

    Raises:
        ToolError: It is not an answer of this provider.
    """
    try:
        found = json.loads(body)
        for step in provider.found:
            found = found.get(step) or {}
        return [
            {
                "title": _without_markup(each.get("title")),
                "url": str(each["url"]),
                "snippet": _without_markup(each.get(provider.snippet)),
            }
            for each in found or []
        ]
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ToolError(f"What {name} answered cannot be read; it cannot search now.") from None


def _without_markup(text: object) -> str:
    return " ".join(_TAG.sub("", str(text or "")).split())
