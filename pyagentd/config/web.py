"""The table ``[web]`` of ``config.toml``: who searches for agents, and whether they may fetch from private addresses.

Nothing here holds a key: ``key_env`` names the variable that does.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyagentd.config.file import ConfigFile
from pyagentd.errors import ConfigError

WEB_KEYS = frozenset({"search", "search_url", "key_env", "allow_private"})

SEARCH_PROVIDERS = ("searxng", "brave", "tavily")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """What agents may reach on the web, and how.

    Attributes:
        search: Who searches, one of ``SEARCH_PROVIDERS``; None: nobody.
        search_url: Where, in place of the provider's own address; searxng has none of its own.
        key_env: The variable that the provider's key is in; None: the provider's usual one.
        allow_private: Whether pages of private, loopback and link-local addresses may be fetched.
    """

    search: str | None = None
    search_url: str | None = None
    key_env: str | None = None
    allow_private: bool = False


def web_table(file: ConfigFile) -> WebSettings:
    """Return what the file says.

    Raises:
        ConfigError: A value is not possible; names file and line.
    """
    search, url = file.string("web.search"), file.string("web.search_url")
    if search is not None and search not in SEARCH_PROVIDERS:
        known = ", ".join(SEARCH_PROVIDERS)
        raise ConfigError(f"{file.place('web.search')}: search is {search!r}, not one of {known}")
    if search == "searxng" and url is None:
        raise ConfigError(
            f"{file.place('web.search')}: searxng needs the address of an instance",
            mend='Add search_url = "https://searx.example.org" to [web]',
        )
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{file.place('web.search_url')}: {url!r} is no address; it begins with http:// or https://"
        )
    return WebSettings(
        search=search,
        search_url=url,
        key_env=file.string("web.key_env"),
        allow_private=bool(file.flag("web.allow_private")),
    )
