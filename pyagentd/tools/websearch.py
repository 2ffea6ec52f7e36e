"""The WebSearch tool: ``{query, max_results?} → {results: [{title, url, snippet}]}`` (neighbours B.1).

Who searches is configured (``[web] search``) and stays the same for a session; without anybody the tool says how to
configure one. A session may search 25 times.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from pyagentd.config.tables import WebSettings
from pyagentd.errors import ToolError
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec
from pyagentd.tools.webaddress import canonical
from pyagentd.tools.webfetch import TIMEOUT_S, web_client

NAME = "WebSearch"
MOST_SEARCHES = 25  # of a session

_USUAL_RESULTS = 8
_TAG = re.compile(r"</?\w[^<>]*>")

_DESCRIPTION = """\
Search the web. Returns titles, addresses and a few words of each page found; read a page with WebFetch."""

_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 400},
        "max_results": {"type": "integer", "minimum": 1, "maximum": 20, "description": f"Default: {_USUAL_RESULTS}"},
    },
    "required": ["query"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """A request to a provider."""

    url: str
    headers: Mapping[str, str]
    json: Mapping[str, Any] | None = None  # posted


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Who searches.

    Attributes:
        url: Its address, "" when it has none of its own.
        key_env: The variable its key is usually in, "" when it needs none.
        inquire: Returns the request for a query, given address, query, number of results and key.
        found: Where in its answer the results are.
        snippet: Which field of a result says what the page is about.
    """

    url: str
    key_env: str
    inquire: Callable[[str, str, int, str], Inquiry]
    found: tuple[str, ...]
    snippet: str


PROVIDERS: Mapping[str, Provider] = {
    "searxng": Provider(
        url="",
        key_env="",
        inquire=lambda url, query, most, key: Inquiry(
            url=f"{url}/search?{urlencode({'q': query, 'format': 'json'})}", headers={"Accept": "application/json"}
        ),
        found=("results",),
        snippet="content",
    ),
    "brave": Provider(
        url="https://api.search.brave.com/res/v1",
        key_env="BRAVE_API_KEY",
        inquire=lambda url, query, most, key: Inquiry(
            url=f"{url}/web/search?{urlencode({'q': query, 'count': most})}",
            headers={"Accept": "application/json", "X-Subscription-Token": key},
        ),
        found=("web", "results"),
        snippet="description",
    ),
    "tavily": Provider(
        url="https://api.tavily.com",
        key_env="TAVILY_API_KEY",
        inquire=lambda url, query, most, key: Inquiry(
            url=f"{url}/search",
            headers={"Authorization": f"Bearer {key}"},
            json={"query": query, "max_results": most},
        ),
        found=("results",),
        snippet="content",
    ),
}

_UNCONFIGURED = (
    "No web search is configured. Go on with what you know or can read, and say so. The user can configure one: "
    'search = "searxng", "brave" or "tavily" in the table [web] of config.toml (see Info node `(pyagentd) Tools\').'
)


def key_variable(settings: WebSettings) -> str:
    """Return the variable that the key of the configured provider is in, "" when it needs none."""
    return settings.key_env or (PROVIDERS[settings.search].key_env if settings.search else "")


def web_search(settings: WebSettings, *, key: Callable[[], str], used: Callable[[], int]) -> ToolSpec:
    """Return the tool for one run.

    Args:
        settings: Who searches.
        key: Returns the provider's key, "" when it is not known.
        used: Returns how often the session has searched so far.
    """
    under_way = 0

    async def run(args: Args, ctx: ToolContext) -> Output:
        nonlocal under_way
        if used() + under_way >= MOST_SEARCHES:
            raise ToolError(
                f"This session has searched {MOST_SEARCHES} times, which is all it may. Use what you have."
            )
        inquiry = _inquiry(settings, args, key())
        under_way += 1
        try:
            client = await asyncio.to_thread(web_client)
            answered = await client.fetch(
                canonical(inquiry.url),
                guarded=False,  # the user named this address
                method="GET" if inquiry.json is None else "POST",
                headers=inquiry.headers,
                json=inquiry.json,
            )
        finally:
            under_way -= 1
        if answered.status != 200:
            raise ToolError(f"{settings.search} answered {answered.status} {answered.reason}; it cannot search now.")
        results = _results(PROVIDERS[settings.search or ""], answered.body, settings.search or "")
        shown = results[: args.get("max_results", _USUAL_RESULTS)]
        return Output(text=json.dumps({"results": shown}, ensure_ascii=False, indent=1))

    return ToolSpec(
        name=NAME,
        description=_DESCRIPTION,
        input_schema=_SCHEMA,
        kind="net",
        repeatable=True,
        run=run,
        describe=lambda args, ctx: Target(detail=" ".join(args["query"].split())),
        confirm=True,
        parallel_safe=True,
        timeout_s=TIMEOUT_S,
    )


def _inquiry(settings: WebSettings, args: Args, key: str) -> Inquiry:
    if settings.search is None:
        raise ToolError(_UNCONFIGURED)
    provider, variable = PROVIDERS[settings.search], key_variable(settings)
    if variable and not key:
        raise ToolError(
            f"{settings.search} needs a key, and the variable {variable} has none. Go on without searching, and tell "
            f"the user to set it where Emacs or the daemon is started."
        )
    url = (settings.search_url or provider.url).rstrip("/")
    return provider.inquire(url, args["query"], args.get("max_results", _USUAL_RESULTS), key)


def _results(provider: Provider, body: bytes, name: str) -> list[dict[str, str]]:
    """Return the results in an answer, without markup.

    Raises:
        ToolError: It is no answer of this provider.
    """
    try:
        found = json.loads(body)
        for step in provider.found:
            found = found.get(step) or {}
        return [
            {
                "title": _plain(each.get("title")),
                "url": str(each["url"]),
                "snippet": _plain(each.get(provider.snippet)),
            }
            for each in found or []
        ]
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ToolError(f"What {name} answered cannot be read; it cannot search now.") from None


def _plain(text: object) -> str:
    return " ".join(_TAG.sub("", str(text or "")).split())
