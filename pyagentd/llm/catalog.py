"""Facts about models by name: context window, maximum output, prices.

The shipped table is ``models.toml``; the user's ``[model."NAME"]`` in ``config.toml`` wins, key by key. A price that
nobody stated is unknown, never nothing; a window that nobody stated is taken to be ``UNKNOWN_WINDOW``, and said.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pyagentd.config import Config
from pyagentd.config.tables import ModelSettings
from pyagentd.messages import Usage

UNKNOWN_WINDOW = 200_000  # tokens
UNKNOWN_OUTPUT = 32_000  # tokens
_RESERVE = 20_000  # tokens
_MILLION = 1_000_000
_DATED = re.compile(r"(.+?)-(?:20\d{6}|latest)")  # a snapshot of a model costs what the model costs
_TABLE = Path(__file__).with_name("models.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars per million tokens of each kind; tokens of reasoning cost what other output costs.

    Attributes:
        long_above: Prompts with more tokens than this cost ``long``; None when length does not matter.
        long: The prices of such a request, of its output too.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    long_above: int | None = None
    long: "Prices | None" = None

    def of(self, usage: Usage) -> float:
        """Return what one request cost, in dollars."""
        prompt = usage.input + usage.cache_read + usage.cache_write
        if self.long is not None and self.long_above is not None and prompt > self.long_above:
            return self.long.of(usage)
        return (
            usage.input * self.input
            + (usage.output + usage.reasoning) * self.output
            + usage.cache_read * self.cache_read
            + usage.cache_write * self.cache_write
        ) / _MILLION


FREE = Prices(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of one model.

    Attributes:
        context_window: How many tokens prompt and answer may have together.
        max_output: How many of them the answer may have.
        prices: What they cost; None when nobody said.
        window_known: Whether somebody stated the window; when not, it is a guess.
        output_known: Whether somebody stated the longest answer.
    """

    context_window: int = UNKNOWN_WINDOW
    max_output: int = UNKNOWN_OUTPUT
    prices: "Prices | None" = None
    window_known: bool = False
    output_known: bool = False

    def usable(self, reserve_tokens: int = _RESERVE) -> int:
        """Return how many tokens a conversation may occupy before it is compacted."""
        return max(0, self.context_window - min(reserve_tokens, self.max_output))

    def longest(self, wanted: int) -> int:
        """Return how many tokens of answer to ask for: ``wanted``, but no more than the model can say and hold."""
        most = min(wanted, self.max_output) if self.output_known else wanted
        return max(1, min(most, self.context_window // 2) if self.window_known else most)


def facts(model: str, config: Config, *, backend: str = "") -> ModelFacts:
    """Return what is known of ``model``.

    Args:
        model: As presets name it; with the date of a snapshot it is the same model.
        config: What the user states of models.
        backend: Who serves it, if that is known: what the offline one says costs nothing.
    """
    stated: dict[str, Any] = dict(_shipped(model))
    settings = _of_user(model, config)
    own = settings.stated()
    stated |= own
    if settings.states_prices:
        stated.pop("long", None)  # theirs is one price for every length
    known = config.backends.get(backend)
    offline = known is not None and known.kind == "offline"
    return ModelFacts(
        context_window=stated.get("context_window", UNKNOWN_WINDOW),
        max_output=stated.get("max_output", UNKNOWN_OUTPUT),
        prices=FREE if offline and not settings.states_prices else _prices(stated),
        window_known="context_window" in stated,
        output_known="max_output" in stated,
    )


def _of_user(model: str, config: Config) -> ModelSettings:
    found = config.models.get(model) or config.models.get(family(model))
    return found or ModelSettings()


def _shipped(model: str) -> Mapping[str, Any]:
    table = _table()
    return table.get(model) or table.get(family(model)) or {}


def shipped() -> tuple[str, ...]:
    """Return the names of the models that the shipped table knows."""
    return tuple(_table())


def family(model: str) -> str:
    """Return the name of a model without the date of a snapshot."""
    dated = _DATED.fullmatch(model)
    return dated[1] if dated else model


def listing(providers: Sequence[Mapping[str, Any]]) -> str:
    """Return the lines that people read of what the operation ``models`` answers."""
    lines: list[str] = []
    for each in providers:
        at = f", listed {each['checked_at']}" if each["checked_at"] else ""
        trouble = f": {each['trouble']}" if each["trouble"] else ""
        usable = f"{'usable' if each['valid'] else 'not usable'}{at}"
        if each.get("stand_in"):
            usable = "a stand-in that answers without a model; chosen by PYAGENTD_BACKEND=offline or offline/NAME"
        lines += ["", f"{each['name']} ({usable}){trouble}"]
        lines += [f"  {name}" for name in each["models"] or ()]
    return "\n".join(lines[1:])


def _prices(stated: Mapping[str, Any]) -> "Prices | None":
    if "input" not in stated or "output" not in stated:
        return None
    long = stated.get("long")
    return Prices(
        input=stated["input"],
        output=stated["output"],
        # A server without a cache reports none; one that has a cache without a price for it asks the price of input.
        cache_read=stated.get("cache_read", stated["input"]),
        cache_write=stated.get("cache_write", stated["input"]),
        long_above=long["above"] if long else None,
        long=_prices(long) if long else None,
    )


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))
