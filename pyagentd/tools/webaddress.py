"""Which addresses of the web an agent may reach: pure checks of URLs and of the addresses that names resolve to.

The attack is a page that makes an agent fetch what only this machine can reach: a router, a cloud's metadata, a
daemon on loopback. So an address counts only when it is public, in whatever notation it comes, and what is checked is
what is connected to.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from pyagentd.errors import ToolError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?\.?|\[[0-9a-f:.]+\]")
_UNWANTED = re.compile(r"[\x00-\x20\x7f\\]")
_PLAIN = "/?%:@!$&'()*+,;=~[]"  # beside letters and digits, what stays as it is behind the host
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

# What counts as global or not changes with the version of Python: these are nobody's web pages in any. 192.0.0.192 is
# the metadata of a cloud; the rest leads to v4 addresses by some gateway near us, or is a network of one's own.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "::/96",
        "::ffff:0:0:0/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)


def canonical(text: str) -> str:
    """Return a URL in the one form in which it is asked about and fetched: lowercase host, a path, no fragment.

    Raises:
        ToolError: It is no address of a web page.
    """
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise ToolError(f"{text!r} is no URL: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ToolError(f"{text!r} cannot be fetched: only http:// and https:// are. Give the whole URL of a page.")
    if parts.username is not None or parts.password is not None:
        raise ToolError(f"{parts.hostname} cannot be fetched with a name or password in its URL. Leave them out.")
    if _UNWANTED.search(text.strip()):
        raise ToolError(f"{text!r} is no URL: it has a space, a backslash or a control character. Encode it.")
    host = _host(parts)
    place = host if port in (None, _DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
    return urlunsplit((parts.scheme, place, quote(parts.path or "/", _PLAIN), quote(parts.query, _PLAIN), ""))


def _host(parts: SplitResult) -> str:
    name = parts.hostname or ""
    try:
        host = f"[{name}]" if ":" in name else name.encode("idna").decode() if not name.isascii() else name
    except UnicodeError:
        host = ""
    if not _HOST.fullmatch(host):
        raise ToolError(f"{parts.geturl()!r} names no host that could be asked.")
    return host


def same_site(one: str, other: str) -> bool:
    """Return whether a redirect from ``one`` to ``other`` stays on the host asked about, and is no less safe."""
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
    """Return the host of a URL when it is an IP address itself, which nobody resolves; None when it is a name."""
    host = urlsplit(url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return host


def refused(host: str, address: str) -> ToolError:
    """Return the error for a host whose address is not public."""
    what = host if host == address else f"{host} ({address})"
    return ToolError(
        f"{what} is not on the public internet, so it is not fetched: private, loopback and link-local addresses are "
        f"for the user's own machines. Work without it; the user can allow it with allow_private = true in [web] of "
        f"config.toml."
    )
