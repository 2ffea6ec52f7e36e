"""The cost of model requests, in US dollars.

Prices come from ``llm.catalog``: the user's ``config.toml``, then the shipped table. A model without a price has an
unknown cost, not a cost of zero; a mission with ``max_cost_usd`` then fails.
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
        model: The provider's name of the model.
        tokens: A ``Usage``, or a map with "input" and "output".
        config: The configuration; None reads the user's, once per process.
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
