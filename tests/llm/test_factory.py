"""Backends are made from settings, cheaply, once per settings, and never without what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyagentd.config.tables import Kind
from pyagentd.errors import ConfigError, NoKey, TransientProviderError
from pyagentd.llm.backend import RetryNotice, SentAgain
from pyagentd.llm.factory import BackendSettings, close_backends, make_backend
from tests.llm.requests import collect, flatten, request, said
from tests.server import ModelServer, refusal


async def test_no_key_says_how_to_get_one() -> None:
    for key in (None, "", "  "):
        with pytest.raises(NoKey, match='backend "Claude"') as caught:
            make_backend("Claude", BackendSettings(api_key=key))
        for word in ("ANTHROPIC_API_KEY", "auth-source", "PYAGENTD_BACKEND=offline"):
            assert word in caught.value.hint


async def test_a_server_of_ones_own_needs_no_key(model_server: ModelServer) -> None:
    backend = make_backend("local", BackendSettings(base_url=model_server.url))
    assert said(await collect(backend, request())) == "ok"
    assert model_server.last.headers["authorization"] == "Bearer no-key"
    await close_backends()


async def test_blanks_around_a_key_are_no_part_of_it(model_server: ModelServer) -> None:
    backend = make_backend("local", BackendSettings(base_url=model_server.url, api_key=" sk-1\n"))
    await collect(backend, request())
    assert model_server.last.headers["authorization"] == "Bearer sk-1"
    await close_backends()


@pytest.mark.parametrize("key", ["sk-1\nX-Evil: 1", "schlüssel", "two words"])
async def test_a_key_that_cannot_be_one_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_backend("Claude", BackendSettings(api_key=key))
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "http://[::1", ""])
async def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        make_backend("local", BackendSettings(base_url=url))


async def test_equal_settings_share_a_backend_and_its_connection(model_server: ModelServer) -> None:
    one = make_backend("a", BackendSettings(base_url=model_server.url, api_key="k"))
    two = make_backend("b", BackendSettings(base_url=model_server.url, api_key="k"))
    other = make_backend("a", BackendSettings(base_url=model_server.url, api_key="l"))
    assert one is two and one is not other
    await collect(one, request())
    await collect(two, request())
    assert model_server.connections == 1
    await close_backends()


async def test_a_closed_backend_opens_again_when_used(model_server: ModelServer) -> None:
    backend = make_backend("a", BackendSettings(base_url=model_server.url))
    await collect(backend, request())
    await backend.close()
    assert said(await collect(backend, request())) == "ok"
    await close_backends()


async def test_retries_are_as_many_as_the_settings_say(model_server: ModelServer) -> None:
    backend = make_backend("a", BackendSettings(base_url=model_server.url, max_retries=1))
    model_server.rule = lambda request: refusal(529, headers={"retry-after-ms": "1"})
    items: list[object] = []
    with pytest.raises(TransientProviderError):
        await flatten(backend.stream(request()), items)
    assert [type(item) for item in items] == [RetryNotice, SentAgain]
    assert len(model_server.requests) == 2
    await close_backends()


async def test_the_offline_backend_needs_nothing() -> None:
    backend = make_backend("offline", BackendSettings(kind="offline"))
    assert "offline stand-in" in said(await collect(backend, request("hello")))
    await close_backends()


@pytest.mark.parametrize(
    ("kind", "base_url"),
    [
        ("openai-compatible", "http://127.0.0.1:1/v1"),
        ("gemini", "http://127.0.0.1:1"),
        ("anthropic", "http://127.0.0.1:1"),
        ("anthropic", None),
    ],
)
async def test_a_provider_that_needs_a_key_names_its_variable(kind: Kind, base_url: str | None) -> None:
    with pytest.raises(NoKey, match='backend "mine"') as caught:
        make_backend("mine", BackendSettings(kind=kind, base_url=base_url, key_env="MY_KEY"))
    assert "MY_KEY" in caught.value.hint and "ANTHROPIC_API_KEY" not in caught.value.hint
    settings = BackendSettings(kind="anthropic", base_url="http://127.0.0.1:1", key_env="ANTHROPIC_API_KEY")
    assert make_backend("mine", settings), "ANTHROPIC_BASE_URL may lead to a server of one's own"


async def test_a_compatible_backend_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="has no address") as caught:
        make_backend("mine", BackendSettings(kind="openai-compatible"))
    assert "[backend.mine]" in caught.value.hint


def test_settings_do_not_show_the_key() -> None:
    assert "secret" not in repr(BackendSettings(api_key="secret"))


def run_python(code: str) -> str:
    # What takes a second may take minutes on a busy machine; only what hangs takes longer.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_heavy_is_imported_before_the_first_request() -> None:
    run_python(
        "import sys, pyagentd.llm, pyagentd.llm.factory, pyagentd.llm.backend\n"
        "heavy = {'anthropic', 'boto3', 'google', 'openai', 'httpx2', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )


def test_a_provider_loads_no_more_than_it_needs(model_server: ModelServer) -> None:
    sdks = {"anthropic", "openai", "httpx2", "pydantic"}
    needs = (
        ("anthropic", "", {*sdks, "google"}),
        ("openai-compatible", "/v1", {*sdks, "google"}),
        ("openai", "/v1", {*sdks, "google"}),
        ("gemini", "", {*sdks, "google"}),
    )
    for kind, path, others in needs:
        run_python(
            "import asyncio, sys\n"
            "from pyagentd.llm.factory import BackendSettings, make_backend\n"
            "from tests.llm.requests import collect, request\n"
            "async def ask():\n"
            f"    backend = make_backend('x', BackendSettings(kind={kind!r}, base_url={model_server.url + path!r}))\n"
            "    assert not {'anthropic', 'google', 'openai'} & set(sys.modules)\n"
            "    await collect(backend, request())\n"
            "    await backend.close()\n"
            "asyncio.run(ask())\n"
            f"assert not {others!r} & set(sys.modules)"
        )


def test_a_missing_sdk_is_named_with_its_extra() -> None:
    run_python(
        "import asyncio, sys\n"
        "sys.modules['boto3'] = None\n"
        "from pyagentd.errors import NotInstalled\n"
        "from pyagentd.llm.factory import BackendSettings, make_backend\n"
        "from tests.llm.requests import collect, request\n"
        "async def ask():\n"
        "    backend = make_backend('x', BackendSettings(kind='bedrock', region='x'))\n"
        "    try:\n"
        "        await collect(backend, request())\n"
        "    except NotInstalled as error:\n"
        "        assert '`pyagentd install bedrock`' in error.hint\n"
        "    else:\n"
        "        raise AssertionError('nothing was said')\n"
        "asyncio.run(ask())"
    )


def test_a_daemon_starts_without_what_only_some_of_its_work_needs() -> None:
    run_python(
        "import sys, pyagentd.daemon\n"
        "late = {'aiohttp', 'cronsim', 'tzlocal', 'html_to_markdown', 'markdown_it', 'pathspec'} & set(sys.modules)\n"
        "assert not late, late"
    )


def test_warming_up_in_a_thread_loads_the_client_once_and_gives_gc_back() -> None:
    run_python(
        "import gc, sys, threading\n"
        "from pyagentd.llm.factory import warm\n"
        "threads = [threading.Thread(target=warm) for _ in range(3)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "assert 'aiohttp' in sys.modules and gc.isenabled() and gc.get_freeze_count() > 10_000"
    )
