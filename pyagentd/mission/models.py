"""``Model``: a provider's model as an LLM callback, which returns text with usage and cost.

A callback sends one request per call; retries are the mission's (``llm_retry``). Errors of the provider become
``LLMError`` with a reason for ``retryable_errors``. API keys are read from the environment for each request and not
kept. No SDK is loaded before the first request.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any

from pyagentd.config import Config, load_config
from pyagentd.errors import ProviderError, TransientProviderError, UserError
from pyagentd.llm.backend import Backend, ModelRequest, ask_model
from pyagentd.llm.catalog import facts
from pyagentd.llm.factory import close_backends, make_backend, server_of
from pyagentd.messages import Message, Text, Usage
from pyagentd.mission.options import Answer, LLMError, Request

# The cost of model requests, in US dollars.
#
# Prices come from ``llm.catalog``: the user's ``config.toml``, then the shipped table. A model without a price has
# an unknown cost, not a cost of zero; a mission with ``max_cost_usd`` then fails.


def cost_of(
    model: str, tokens: Usage | Mapping[str, int], config: Config | None = None, *, backend: str = ""
) -> float | None:
    """Return the cost of a request, or None when the model's price is unknown.

    Args:
        model: The provider's name of the model.
        tokens: A ``Usage``, or a map with "input" and "output".
        config: The configuration; None reads the user's, once per process.
        backend: The backend that serves it, if known: prices differ, and the offline one costs nothing.
    """
    if not isinstance(tokens, Usage):
        tokens = Usage(input=tokens.get("input", 0), output=tokens.get("output", 0))
    prices = facts(model, config or _config(), backend=backend).prices
    return None if prices is None else prices.of(tokens)


def priced(llm: Callable[..., Any], model: str, config: Config | None = None) -> Callable[[Request], Any]:
    """Return ``llm`` with a cost in every answer that reports its tokens, at the prices of ``model``."""

    @wraps(llm)
    def ask_with_cost(request: Request) -> Any:
        answer = llm(request)
        if not isinstance(answer, Mapping) or "cost_usd" in answer or "tokens" not in answer:
            return answer
        cost = cost_of(model, answer["tokens"], config)
        return answer if cost is None else {**answer, "cost_usd": cost}

    return ask_with_cost


@cache
def _config() -> Config:
    return load_config()


MAX_TOKENS = 8192
_CLOSING_S = 2.0


@dataclass(frozen=True, slots=True)
class Model:
    """A model as the callback of a mission: ``delegate("…", llm=Model("claude-haiku-4-5"))``.

    Attributes:
        model: The provider's name of the model.
        backend: A name of the configuration: "anthropic", "offline", or a table ``[backend.NAME]``.
        max_tokens: Limit of one answer; the mission's ``llm_opts`` override it and ``temperature``.
        temperature: None leaves it to the provider.
        timeout_s: Seconds without data after which a request fails.
        config: The configuration; None reads the user's.
    """

    model: str
    backend: str = "anthropic"
    max_tokens: int = MAX_TOKENS
    temperature: float | None = None
    timeout_s: float = 600.0
    config: Config | None = field(default=None, repr=False, compare=False)

    def __call__(self, request: Request) -> Answer:
        """Send the request and wait for the answer.

        Raises:
            LLMError: The provider refused, or cannot be reached.
        """
        return asyncio.run_coroutine_threadsafe(self.ask(request), _loop()).result()

    async def ask(self, request: Request) -> Answer:
        """Send the request on the running event loop; the connection stays open until ``factory.close_backends``."""
        config = self.config or load_config()
        known = config.backend(self.backend)
        key = os.environ.get(known.key_env) if known.key_env else None
        settings = server_of(known, key, max_retries=0, timeout_s=self.timeout_s)
        try:
            served = make_backend(known.name, settings)
        except UserError as error:
            raise LLMError("config_error", str(error), final=True) from error
        longest = facts(self.model, config, backend=known.name).longest(self.max_tokens)
        options = {"max_tokens": longest, "temperature": self.temperature, **request.get("llm_opts", {})}
        return await ask(served, self.model, request, options, config=config, seller=known.name)


async def ask(
    backend: Backend,
    model: str,
    request: Request,
    options: Mapping[str, Any] | None = None,
    *,
    config: Config | None = None,
    seller: str = "",
) -> Answer:
    """Send one request of a mission to ``backend`` and return the answer with its usage and cost.

    The backend's connections belong to the running loop. Only ``max_tokens`` and ``temperature`` of ``options`` are
    used. The cost is at the prices of the backend named ``seller``.

    Raises:
        LLMError: The provider refused, cannot be reached, or cut the answer off.
    """
    options = options or {}
    messages = (Message(role=each["role"], parts=(Text(text=each["content"]),)) for each in request["messages"])
    model_request = ModelRequest(
        model=model,
        messages=tuple(messages),
        system=request["system"],
        max_tokens=options.get("max_tokens") or MAX_TOKENS,
        temperature=options.get("temperature"),
        purpose="mission",
    )
    try:
        answered = await ask_model(backend, model_request)
    except ProviderError as error:
        for_now = isinstance(error, TransientProviderError)
        raise LLMError(error_class(error), str(error), final=not for_now) from error
    if answered.stop_reason == "refusal":
        raise LLMError("refusal", "The model refused to answer")
    return answer("".join(answered.texts), model, answered.usage, config, backend=seller)


def answer(text: str, model: str, usage: Usage, config: Config | None = None, *, backend: str = "") -> Answer:
    """Return the answer of a callback: text, tokens, and the cost if the price is known."""
    made: Answer = {
        "content": text,
        "tokens": {
            "input": usage.input + usage.cache_read + usage.cache_write,
            "output": usage.output + usage.reasoning,
        },
    }
    if (cost := cost_of(model, usage, config, backend=backend)) is not None:
        made["cost_usd"] = cost
    return made


def error_class(error: ProviderError) -> str:
    """Return the name of a provider's error in ``retryable_errors``."""
    text = error.message.lower()
    if isinstance(error, TransientProviderError):
        if " 429 " in text or "rate limit" in text:
            return "rate_limit"
        return "timeout" if "in time" in text or "silent" in text else "server_error"
    return "client_error"


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop for requests of synchronous callers; it runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mission-models", daemon=True).start()
    atexit.register(_close, loop)
    return loop


def _close(loop: asyncio.AbstractEventLoop) -> None:
    closing = asyncio.run_coroutine_threadsafe(close_backends(), loop)
    with suppress(Exception):  # the process ends anyway
        closing.result(_CLOSING_S)
    loop.call_soon_threadsafe(loop.stop)
