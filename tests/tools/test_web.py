"""The tools of the web: real servers on loopback, and the addresses that are never reached."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.resolver import ThreadedResolver

from pyagentd.config.tables import WebSettings
from pyagentd.errors import ToolError
from pyagentd.tools.invoke import Envelope, invoke
from pyagentd.tools.page import text_of
from pyagentd.tools.spec import ToolContext, ToolSpec
from pyagentd.tools.web import MOST_SEARCHES, canonical, is_public, same_site, web_fetch, web_search

Handler = Callable[[web.Request], Any]

PAGE = """<html><head><title>T</title><script>alert(1)</script><style>b{}</style></head>
<body><h1>Tea</h1><p>Green &amp; <a href="/more">more</a></p><ul><li>one<li>two</ul></body></html>"""


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A web server on loopback; gives its address."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def call(spec: ToolSpec, tmp_path: Path, **args: Any) -> Envelope:
    context = ToolContext(root=tmp_path, branch_dir=tmp_path, spool_dir=tmp_path / "f", readable=lambda path: True)

    async def authorise(action: object) -> None:
        return None

    return await invoke(spec, args, context, authorise)


async def fetch(tmp_path: Path, url: str, *, allow_private: bool = True) -> Envelope:
    return await call(web_fetch(allow_private=allow_private), tmp_path, url=url)


def page(text: str | bytes = PAGE, kind: str = "text/html", status: int = 200, **headers: str) -> web.Response:
    body = text.encode() if isinstance(text, str) else text
    return web.Response(body=body, status=status, headers={"Content-Type": kind, **headers})


async def test_a_page_comes_as_text(tmp_path: Path) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        assert request.headers["User-Agent"].startswith("pyagentd/")
        return page()

    async with serving(handler) as url:
        found = await fetch(tmp_path, f"{url}/tea#there")
    assert found.ok and found.text.startswith(f"{url}/tea\n\n# Tea\n\nGreen & [more](")
    assert "- one\n- two" in found.text and "alert" not in found.text and "b{}" not in found.text


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ('{"a": 1}', "application/json", '{"a": 1}'),
        ("plain <b>", "text/plain; charset=utf-8", "plain <b>"),
        ("ü".encode("latin-1"), "text/plain; charset=iso-8859-1", "ü"),
        ('<meta charset="iso-8859-1"><p>ü'.encode("latin-1"), "text/html", "ü"),
        *(("<p>ü", f"text/html; charset={name}", "ü") for name in ("nonsense", "hex", "base64", "idna", "undefined")),
        ("<p>+2AA-ü", "text/html; charset=utf-7", "+2AA-ü"),
        ("", "text/html", "(the page has no text)"),
    ],
)
async def test_what_is_text_stays_text(tmp_path: Path, body: str | bytes, kind: str, text: str) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return page(body, kind)

    async with serving(handler) as url:
        assert (await fetch(tmp_path, url)).text == f"{url}/\n\n{text}"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("<blockquote>" * 400 + "<p>x" * 400_000, "its HTML takes too much memory"),
        ("<p>ü" + "<table><tr>" + "<td>x" * 10_000 + "<tr><td>y" * 2_000, "only its beginning was read"),
    ],
)
async def test_a_page_that_grows_when_it_is_read_ends_no_daemon(tmp_path: Path, body: str, says: str) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return page(body)

    async with serving(handler) as url:
        found = await fetch(tmp_path, url)
    kept = found.output_path.stat().st_size if found.output_path else 0
    assert says in (found.text if not found.ok else found.output_path.read_text()) and kept < 6_000_000


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda: page(status=404), "answered 404 Not Found"),
        (lambda: page(b"\x89PNG", "image/png"), "is image/png, which is not text"),
        (lambda: page(status=302, Location="http://127.0.0.2:1/x"), "redirects to http://127.0.0.2:1/x, which is"),
        (lambda: page(status=302, Location="file:///etc/passwd"), "only http:// and https:// are"),
        (lambda: page(status=302, Location="/again"), "redirects again and again"),
    ],
)
async def test_what_cannot_be_fetched_says_why(tmp_path: Path, answer: Callable[[], Any], says: str) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return answer()

    async with serving(handler) as url:
        found = await fetch(tmp_path, url)
    assert not found.ok and says in found.text


async def test_a_redirect_within_the_site_is_followed(tmp_path: Path) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return page("<p>here", status=200) if request.path == "/b" else page(status=301, Location="b?")

    async with serving(handler) as url:
        assert (await fetch(tmp_path, f"{url}/a")).text == f"{url}/b\n\nhere"


async def test_words_of_any_language_are_fetched(tmp_path: Path) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return page(f"{request.rel_url.path} {request.rel_url.query['q']}", "text/plain")

    async with serving(handler) as url:
        assert (await fetch(tmp_path, f"{url}/grün?q=süß")).text.endswith("\n\n/grün süß")


async def test_a_long_page_is_cut_and_kept(tmp_path: Path) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return page("word " * 60_000, "text/plain")

    async with serving(handler) as url:
        found = await fetch(tmp_path, url)
    assert found.ok and found.truncated and len(found.text) < 201_000
    assert found.output_path is not None and len(found.output_path.read_text()) > 299_000


async def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        answer = page(b" " * 20_000_000, "text/plain")
        answer.enable_compression()
        return answer

    async with serving(handler) as url:
        found = await fetch(tmp_path, url)
    assert (found.truncated and found.text.endswith("only its beginning was read.]")) or found.output_path
    assert found.output_path is None or found.output_path.stat().st_size < 5_100_000


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "0177.1", "127.1.", "[::ffff:127.0.0.1]", "0.0.0.0"],
)
async def test_private_addresses_are_never_reached(tmp_path: Path, host: str) -> None:
    reached: list[str] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        reached.append(request.path)
        return page()

    async with serving(handler) as url:
        port = url.rsplit(":", 1)[1]
        found = await fetch(tmp_path, f"http://{host}:{port}/", allow_private=False)
    assert not found.ok and not reached
    assert "is not on the public internet" in found.text


async def test_a_name_is_resolved_once_and_one_private_address_of_it_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def resolve(self: Any, host: str, port: int = 0, family: int = socket.AF_INET) -> list[dict[str, Any]]:
        asked.append(host)
        addresses = ["93.184.216.34", "127.0.0.1"] if len(asked) == 1 else ["93.184.216.34"]
        return [
            {"hostname": host, "host": each, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
            for each in addresses
        ]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    found = await fetch(tmp_path, "http://rebind.example.org/", allow_private=False)
    assert not found.ok and "rebind.example.org (127.0.0.1) is not on the public internet" in found.text
    assert asked == ["rebind.example.org"]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::5db8:d822", True),
        ("64:ff9b:1::5db8:d822", False),
        ("192.0.0.192", False),
        ("192.0.0.9", False),
        ("192.0.1.1", True),
        ("192.88.99.1", False),
        ("::ffff:192.0.0.192", False),
        ("2002:c000:c0::", False),
        ("2002:5db8:d822::", False),
        ("fec0::1", False),
        ("::7f00:1", False),
        ("::5db8:d822", False),
        ("::ffff:0:7f00:1", False),
        ("240.0.0.1", False),
        ("198.18.0.1", False),
        ("2001::1", False),
        ("2001:4860:4860::8888", True),
        ("3fff::1", False),
        ("ff0e::1", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://Example.ORG", "https://example.org/"),
        ("http://example.org:80/a?b=c#d", "http://example.org/a?b=c"),
        ("HTTPS://example.org:8443/a b".replace(" ", "%20"), "https://example.org:8443/a%20b"),
        ("https://example.org/tee/grün?q=süß&r=a|b", "https://example.org/tee/gr%C3%BCn?q=s%C3%BC%C3%9F&r=a%7Cb"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("http://134744072/", "http://8.8.8.8/"),
        ("http://0x8.010.2056./", "http://8.8.8.8/"),
    ],
)
def test_a_url_has_one_form(text: str, url: str) -> None:
    assert canonical(text) == url == canonical(url)


@pytest.mark.parametrize(
    "text",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "javascript:alert(1)",
        "example.org",
        "https://user:secret@example.org/",
        "https://",
        "https:///path",
        "http://example.org:99999/",
        "http://exam ple.org/",
        "http://good.example\\@evil.example/",
        "http://[::1",
        "http://-a/",
        "http://1.2.3.4.5/",
        "http://example.1/",
        "https://example.org/public/../admin",
        "https://example.org/public/%2e%2E/admin",
        "https://example.org/public/..%2fadmin",
        "https://example.org/./",
    ],
)
def test_what_is_no_url(text: str) -> None:
    with pytest.raises(ToolError):
        canonical(text)


def test_a_redirect_may_become_safer_and_not_less_safe() -> None:
    assert same_site("http://a.org/", "https://a.org/x") and same_site("https://a.org/", "https://a.org:443/")
    assert not same_site("https://a.org/", "http://a.org/") and not same_site("https://a.org/", "https://b.org/")
    assert not same_site("https://a.org/", "https://a.org:8443/")


def test_deep_nesting_is_survived() -> None:
    assert isinstance(text_of(b"<div>" * 50_000 + b"x", "text/html", "https://a.org/"), str)


# Search


def searching(url: str, provider: str = "searxng", key: str = "", used: int = 0) -> ToolSpec:
    settings = WebSettings(search=provider, search_url=url)
    return web_search(settings, key=lambda: key, used=lambda: used)


FOUND = [{"title": f"<b>T{n}</b>", "url": f"https://a.org/{n}", "content": "a  <b>b</b>"} for n in range(12)]
TOLD = {"title": "T0", "url": "https://a.org/0", "snippet": "a b"}


@pytest.mark.parametrize(
    ("provider", "answer", "seen"),
    [
        ("searxng", {"results": FOUND}, {"q": "tea & milk", "format": "json"}),
        (
            "brave",
            {"web": {"results": [{**each, "description": each["content"]} for each in FOUND]}},
            {"q": "tea & milk", "count": "8", "key": "k"},
        ),
        ("tavily", {"results": FOUND}, {"query": "tea & milk", "max_results": 8, "key": "Bearer k"}),
    ],
)
async def test_each_provider_is_asked_in_its_way(tmp_path: Path, provider: str, answer: Any, seen: Any) -> None:
    asked: dict[str, Any] = {}

    async def handler(request: web.BaseRequest) -> web.Response:
        key = request.headers.get("X-Subscription-Token") or request.headers.get("Authorization")
        asked.update(request.query if request.method == "GET" else await request.json())
        asked.update({"key": key} if key else {})
        return page(json.dumps(answer), "application/json")

    async with serving(handler) as url:
        found = await call(searching(url, provider, "k"), tmp_path, query="tea & milk")
    results = json.loads(found.text)["results"]
    assert results[0] == TOLD and len(results) == 8 and asked == seen


async def test_without_a_provider_the_model_is_told_how_to_get_one(tmp_path: Path) -> None:
    found = await call(web_search(WebSettings(), key=str, used=lambda: 0), tmp_path, query="tea")
    assert not found.ok and 'search = "searxng", "brave" or "tavily"' in found.text


async def test_without_its_key_or_beyond_the_limit_nobody_is_asked(tmp_path: Path) -> None:
    found = await call(searching("http://127.0.0.1:9", "brave"), tmp_path, query="tea")
    assert not found.ok and "BRAVE_API_KEY" in found.text
    found = await call(searching("http://127.0.0.1:9", used=MOST_SEARCHES), tmp_path, query="tea")
    assert not found.ok and "25 times" in found.text


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda: page("[1]", "application/json"), "cannot be read"),
        (lambda: page("no", "text/html"), "cannot be read"),
        (lambda: page(status=429), "answered 429"),
    ],
)
async def test_a_provider_that_fails_is_a_tool_error(tmp_path: Path, answer: Callable[[], Any], says: str) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return answer()

    async with serving(handler) as url:
        found = await call(searching(url), tmp_path, query="tea")
    assert not found.ok and says in found.text


async def test_an_empty_result_is_one(tmp_path: Path) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return page('{"results": null}', "application/json")

    async with serving(handler) as url:
        assert json.loads((await call(searching(url), tmp_path, query="tea")).text) == {"results": []}


async def test_a_server_that_says_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    stop = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.Response:
        await stop.wait()
        return page()

    async with serving(handler) as url:
        spec = replace(web_fetch(allow_private=True), timeout_s=0.2)
        found = await call(spec, tmp_path, url=url)
        stop.set()
    assert not found.ok and "did not finish within 0.2 s" in found.text
    assert web_fetch(allow_private=True).timeout_s == 15.0
