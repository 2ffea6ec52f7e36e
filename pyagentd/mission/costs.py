"""What requests of missions cost, in US dollars.

Prices come from ``llm.catalog``: the shipped table, and over it the user's ``config.toml``. A price that is stated
nowhere is unknown, not zero: a mission with ``max_cost_usd`` does not run on guesses.
"""

from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

from pyagentd.config import Config, load_config
from pyagentd.llm import catalog
from pyagentd.messages import Usage
from pyagentd.mission.options import Request


def cost_of(model: str, tokens: Usage | Mapping[str, int], config: Config | None = None) -> float | None:
    """Return what a request cost, or None when the model's price is not known.

    Args:
        model: As the provider calls it.
        tokens: What the request used: a ``Usage``, or "input" and "output".
        config: The configuration; None is the user's, read once.
    """
    prices = catalog.facts(model, config or _config()).prices
    return None if prices is None else prices.of(_usage(tokens))


def priced(llm: Callable[..., Any], model: str, config: Config | None = None) -> Callable[[Request], Any]:
    """Return ``llm`` with a cost in every answer that reports its tokens, at the prices of ``model``."""

    @wraps(llm)
    def asked(request: Request) -> Any:
        answer = llm(request)
        if not isinstance(answer, Mapping) or "cost_usd" in answer or "tokens" not in answer:
            return answer
        cost = cost_of(model, answer["tokens"], config)
        return answer if cost is None else {**answer, "cost_usd": cost}

    return asked


def _usage(tokens: Usage | Mapping[str, int]) -> Usage:
    if isinstance(tokens, Usage):
        return tokens
    return Usage(input=tokens.get("input", 0), output=tokens.get("output", 0))


@cache
def _config() -> Config:
    return load_config()
