"""The WebFetch tool: one page of the web, as text.

Asked about as ``tool:WebFetch:https://host/path``: an approval may cover the page or its site. A redirect within the
site is followed; one that leads elsewhere is another action, so the model is told and asks anew.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from pyagentd.errors import ToolError
from pyagentd.tools.pagetext import is_text, text_of
from pyagentd.tools.spec import Args, Output, Target, ToolContext, ToolSpec
from pyagentd.tools.webaddress import canonical, same_site

if TYPE_CHECKING:
    from pyagentd.tools.webclient import Answered

NAME = "WebFetch"
TIMEOUT_S = 15.0

_MOST_REDIRECTS = 5
_ACCEPT = "text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5"

_DESCRIPTION = """\
Fetch a page of the public web (http or https) and return its text; HTML comes as Markdown. For what is on this \
machine use Read. Long pages are cut and kept in a file."""

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"url": {"type": "string", "minLength": 8, "maxLength": 4000, "description": "The whole URL"}},
    "required": ["url"],
    "additionalProperties": False,
}


def web_fetch(*, allow_private: bool) -> ToolSpec:
    """Return the tool; ``allow_private`` lets it reach addresses that are not public."""

    async def run(args: Args, ctx: ToolContext) -> Output:
        url, answered = await _followed(canonical(args["url"]), guarded=not allow_private)
        kind = answered.headers.get("content-type", "")
        if answered.status >= 400:
            raise ToolError(f"{url} answered {answered.status} {answered.reason}".rstrip() + ". Try another address.")
        if not is_text(kind):
            raise ToolError(f"{url} is {kind.partition(';')[0]}, which is no text. Look for a page that is.")
        text = await asyncio.to_thread(text_of, answered.body, kind, url)
        cut = "" if answered.whole else "\n[The page is longer; only its beginning was read.]"
        return Output(text=f"{url}\n\n{text or '(the page has no text)'}{cut}", truncated=not answered.whole)

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


async def _followed(url: str, *, guarded: bool) -> tuple[str, Answered]:
    """Return what answers in the end, and under which URL."""
    client = await asyncio.to_thread(web_client)
    for _ in range(_MOST_REDIRECTS + 1):
        answered: Answered = await client.fetch(url, guarded=guarded, headers={"Accept": _ACCEPT})
        where = answered.headers.get("location")
        if answered.status not in (301, 302, 303, 307, 308) or not where:
            return url, answered
        target = canonical(urljoin(url, where))
        if not same_site(url, target):
            raise ToolError(f"{url} redirects to {target}, which is another site. Fetch that if you need it.")
        url = target
    raise ToolError(f"{url} redirects again and again. Try another address.")


def web_client() -> ModuleType:
    """Return the module that speaks HTTP; the first time it takes a moment to load."""
    from pyagentd.tools import webclient

    return webclient
