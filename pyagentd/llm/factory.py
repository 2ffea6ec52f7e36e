"""Makes backends from settings; the only module that knows all kinds of them.

Equal settings give the same backend, so that runs share connections. A backend belongs to the event loop it was made
on. Making one is cheap and loads no HTTP client and no SDK; the first request does, off the loop.
"""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol, assert_never, cast
from weakref import WeakKeyDictionary

from pyagentd import llm
from pyagentd.config import tables
from pyagentd.config.tables import Kind, is_address
from pyagentd.errors import ConfigError, NoKey
from pyagentd.installation import extra
from pyagentd.llm.backend import Backend, RetryingBackend, RetryPolicy

if TYPE_CHECKING:
    from pyagentd.llm.http import HttpServer

# Load the HTTP client once, off the event loop.
#
# Importing it takes a fifth of a second, so a daemon runs ``warm`` in a thread when a conversation is opened. An
# earlier request waits for the same import.


@cache
def warm() -> None:
    """Import the modules for the Messages API; idempotent, blocking: do not call it on the event loop."""
    with _without_gc(), extra("anthropic", "This backend"):
        _ = llm.anthropic


_loading = threading.Lock()


@contextmanager
def _without_gc() -> Iterator[None]:
    """Import a large library in the body, with garbage collection off; its objects are frozen afterwards."""
    # Its many objects live for ever: collections during the import take a third of the time and free nothing, and
    # every later full collection would scan them.
    with _loading:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            gc.freeze()
            if was_enabled:
                gc.enable()


# The header is also sent to servers that need no key.
_PLACEHOLDER_KEY = "no-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """The settings of a backend; equal settings share connections."""

    kind: Kind = "anthropic"
    base_url: str | None = None  # None is the provider's own
    api_key: str | None = field(default=None, repr=False)  # never shown: a log line may hold a repr
    key_env: str | None = None  # the environment variable for the key
    region: str | None = None  # of a cloud; None takes it from the environment
    project: str | None = None  # of Google's cloud, likewise
    text_calls: bool = False  # of Chat Completions: whether tool calls are parsed from the text of answers
    max_retries: int = 4  # after the first attempt
    timeout_s: float = 600.0  # the longest silence within an answer


def server_of(
    known: tables.BackendSettings, api_key: str | None, *, max_retries: int = 4, timeout_s: float = 600.0
) -> BackendSettings:
    """Return the settings of a configured backend, with its key."""
    return BackendSettings(
        kind=known.kind,
        base_url=known.base_url,
        api_key=api_key,
        key_env=known.key_env,
        region=known.region,
        project=known.project,
        text_calls=known.reads_text_calls,
        max_retries=max_retries,
        timeout_s=timeout_s,
    )


def make_backend(name: str, settings: BackendSettings) -> Backend:
    """Return the backend of ``settings``, the same one for equal settings of one event loop.

    Args:
        name: The backend's name in the preset; used in messages only.
        settings: Its settings.

    Raises:
        NoKey: The provider needs a key, and none is given.
        ConfigError: The base URL or the key is malformed.
    """
    _check(name, settings)
    backends = _backends.setdefault(asyncio.get_running_loop(), {})
    if (known := backends.get(settings)) is None:
        policy = RetryPolicy(max_attempts=settings.max_retries + 1)
        known = backends[settings] = RetryingBackend(partial(_open, settings), policy)
    return known


async def list_models(name: str, settings: BackendSettings) -> tuple[str, ...]:
    """Return the names of the models that a provider has for a key.

    Raises:
        NoKey, ConfigError: As ``make_backend``; or it refuses the key.
        ProviderError: It has no such list, or cannot be asked now.
    """
    _check(name, settings)
    backend = cast(_ModelLister, await _open(settings))
    try:
        return await backend.models()
    finally:
        await backend.close()


async def close_backends() -> None:
    """Close every backend of the running event loop."""
    for backend in _backends.pop(asyncio.get_running_loop(), {}).values():
        await backend.close()


_backends: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[BackendSettings, Backend]] = WeakKeyDictionary()


def _check(name: str, settings: BackendSettings) -> None:
    if settings.kind == "offline":
        return
    if settings.base_url is not None and not is_address(settings.base_url):
        hint = "It looks like https://host[:port]"
        raise ConfigError(f"The base URL {settings.base_url!r} is not an HTTP address", hint=hint)
    if settings.base_url is None and settings.kind in ("openai", "openai-compatible"):
        raise ConfigError(
            f'The backend "{name}" has no address',
            hint=f'Add base_url = "http://127.0.0.1:11434/v1" to [backend.{name}], or another server\'s',
        )
    key = (settings.api_key or "").strip()
    if not key and (hint := _hint_for_key(settings)):
        raise NoKey(f'No API key for backend "{name}"', hint=hint)
    if not all(" " < character < "\x7f" for character in key):
        raise ConfigError(f'The API key for backend "{name}" has invalid characters', hint="Copy the key again")


def _hint_for_key(settings: BackendSettings) -> str:
    """Return a hint how to set a backend's key, "" when it needs none."""
    otherwise = "or set PYAGENTD_BACKEND=offline to try pyagentd without a model"
    if settings.kind == "anthropic" and settings.key_env in (None, "ANTHROPIC_API_KEY"):
        how = (
            "Set ANTHROPIC_API_KEY, or add an entry for api.anthropic.com to auth-source, "
            f"or have a server on this machine answer (pyagentd models --local --use), {otherwise}"
        )
        return how if settings.base_url is None else ""  # ANTHROPIC_BASE_URL may name a server that needs none
    if settings.key_env is None or settings.kind in ("bedrock", "vertex"):  # clouds have other credentials as well
        return ""
    return f"Set {settings.key_env} where you start Emacs or pyagentd, {otherwise}"


async def _open(settings: BackendSettings) -> Backend:
    # Building a client imports it and reads the certificate store, which would block the event loop.
    return await asyncio.to_thread(_build, settings)


class _ModelLister(Backend, Protocol):
    """A backend that can list its models."""

    async def models(self) -> tuple[str, ...]: ...


def _build(settings: BackendSettings) -> Backend:
    warm()
    match settings.kind:
        case "offline":
            return llm.offline.offline_backend()
        case "openai" | "openai-compatible":
            kind = llm.responses.ResponsesBackend if settings.kind == "openai" else llm.openai.OpenAIBackend
            return kind(_server(llm.openai.server, settings), text_calls=settings.text_calls)
        case "anthropic":
            return llm.anthropic.AnthropicBackend(_server(llm.anthropic.server, settings, llm.anthropic.BASE_URL))
        case "gemini":
            return llm.gemini.GeminiBackend(_server(llm.gemini.server, settings))
        case "bedrock" | "vertex":
            with _without_gc(), extra(settings.kind, "This backend"):
                return (llm.clouds.bedrock if settings.kind == "bedrock" else llm.clouds.vertex)(
                    api_key=(settings.api_key or "").strip(),
                    base_url=settings.base_url,
                    timeout_s=settings.timeout_s,
                    region=settings.region,
                    project=settings.project,
                )
        case _:
            assert_never(settings.kind)


def _server(make: Callable[..., "HttpServer"], settings: BackendSettings, otherwise: str = "") -> "HttpServer":
    """Return the server that ``make`` makes; ``otherwise`` is its default base URL."""
    return make(
        api_key=(settings.api_key or "").strip() or _PLACEHOLDER_KEY,
        base_url=settings.base_url or otherwise,
        timeout_s=settings.timeout_s,
    )
