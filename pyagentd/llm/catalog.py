"""Facts about models by name: context window, maximum output, prices, abilities.

The sources, the first that knows a model wins: ``[model."NAME"]`` in ``config.toml`` (key by key), ``catalogue.json``
beside it, which ``pyagentd models --catalogue`` writes, and the package's ``catalogue.json``. Nothing is fetched
here. A price without a source is unknown, never 0; a window without one counts as ``UNKNOWN_WINDOW``, and the user is
warned.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pyagentd import regularfile
from pyagentd.config import Config
from pyagentd.config.tables import ModelSettings
from pyagentd.errors import ConfigError
from pyagentd.messages import Usage
from pyagentd.words import short_tokens

UNKNOWN_WINDOW = 200_000  # tokens
UNKNOWN_OUTPUT = 32_000  # tokens
_RESERVE = 20_000  # tokens
_MILLION = 1_000_000
_DATED = re.compile(r"(.+?)-(?:20\d{6}|latest)")  # a snapshot of a model costs what the model costs
CATALOGUE = "catalogue.json"
_SHIPPED = Path(__file__).with_name(CATALOGUE)
_MOST = 20_000_000  # bytes of a catalogue
_WIDTH = 44  # columns of a model's name in a list


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars per million tokens of each kind; reasoning tokens cost the same as other output.

    Attributes:
        long_above: Prompts with more tokens than this cost ``long``; None when length does not matter.
        long: The prices of a request with such a prompt, output included.
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
    """The known facts about one model.

    Attributes:
        context_window: The most tokens of prompt and answer together.
        max_output: The most tokens of the answer.
        prices: The prices of tokens; None if unknown.
        window_known: Whether a source states the window; otherwise it is a guess.
        output_known: Whether a source states the longest answer.
        abilities: Of ``tools``, ``images``, ``PDF``, ``thinking``; empty if unknown.
    """

    context_window: int = UNKNOWN_WINDOW
    max_output: int = UNKNOWN_OUTPUT
    prices: "Prices | None" = None
    window_known: bool = False
    output_known: bool = False
    abilities: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """Return the facts as JSON, without guesses."""
        known = {
            "context_window": self.context_window if self.window_known else None,
            "max_output": self.max_output if self.output_known else None,
            "input_usd": self.prices.input if self.prices else None,
            "output_usd": self.prices.output if self.prices else None,
            "abilities": list(self.abilities) or None,
        }
        return {key: value for key, value in known.items() if value is not None}

    def usable(self, reserve_tokens: int = _RESERVE) -> int:
        """Return how many tokens a conversation may occupy before it is compacted."""
        return max(0, self.context_window - min(reserve_tokens, self.max_output))

    def longest(self, wanted: int) -> int:
        """Return ``max_tokens`` for a request: ``wanted``, limited by the model's longest answer and its window."""
        most = min(wanted, self.max_output) if self.output_known else wanted
        return max(1, min(most, self.context_window // 2) if self.window_known else most)


def facts(model: str, config: Config, *, backend: str = "") -> ModelFacts:
    """Return the known facts about ``model``.

    Args:
        model: The model's name in presets; the date of a snapshot in it is ignored.
        config: The configuration, with the user's own facts about models.
        backend: The backend that serves it, if known: answers of the offline one cost nothing.
    """
    stated: dict[str, Any] = dict(_catalogue_entry(model, config, backend))
    settings = config.models.get(model) or config.models.get(family(model)) or ModelSettings()
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
        abilities=tuple(stated.get("abilities", ())),
    )


def _catalogue_entry(model: str, config: Config, backend: str) -> Mapping[str, Any]:
    """Return a model's entry in the catalogues; a service that resells other providers' models has its own prices."""
    served = config.backends.get(backend)
    sellers = (backend.casefold(), served.kind if served else "")
    names = dict.fromkeys((*(f"{seller}/{model}" for seller in sellers), model, family(model)))
    own = _first(_read(catalogue_file(config.file)), names)
    return own or _first(_shipped(), names)


def _first(table: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> Mapping[str, Any]:
    return next((table[name] for name in names if name in table), {})


def shipped_models(backend: str = "anthropic") -> tuple[str, ...]:
    """Return the names of a provider's models in the package's catalogue."""
    known = _shipped()
    names = (name for name, each in known.items() if each.get("provider") == backend)
    return tuple(name for name in names if family(name) == name or family(name) not in known)


def family(model: str) -> str:
    """Return the name of a model without the date of a snapshot."""
    dated = _DATED.fullmatch(model)
    return dated[1] if dated else model


def words(facts: Mapping[str, Any]) -> str:
    """Return the facts that ``ModelFacts.to_wire`` returned as a phrase for users; "" if there are none."""
    parts = (
        [f"{short_tokens(facts['context_window']).replace('.0M', 'M')} context"]
        if facts.get("context_window")
        else []
    )
    if facts.get("input_usd") is not None:
        parts.append(f"${facts['input_usd']:g} in, ${facts['output_usd']:g} out")
    return ", ".join([*parts, *(facts.get("abilities") or ())])


def provider_lines(providers: Sequence[Mapping[str, Any]]) -> str:
    """Return the reply of the operation ``models`` as text for users."""
    lines: list[str] = []
    names = [name for each in providers for name in each["models"] or ()]
    width = min(max(map(len, names), default=0), _WIDTH)
    for each in providers:
        at = f", listed {each['checked_at']}" if each["checked_at"] else ""
        trouble = f": {each['trouble']}" if each["trouble"] else ""
        usable = f"{'usable' if each['valid'] else 'not usable'}{at}"
        if each.get("stand_in"):
            usable = "a stand-in that answers without a model; chosen by PYAGENTD_BACKEND=offline or offline/NAME"
        lines += ["", f"{each['name']} ({usable}){trouble}"]
        known = {row["name"]: str(row["words"]) for row in each.get("facts") or ()}
        lines += [f"  {name:{width}}  {known.get(name, '')}".rstrip() for name in each["models"] or ()]
    return "\n".join(lines[1:])


def _prices(stated: Mapping[str, Any]) -> "Prices | None":
    if "input" not in stated or "output" not in stated:
        return None
    long = stated.get("long")
    return Prices(
        input=stated["input"],
        output=stated["output"],
        # A server without a cache reports no cached tokens; one without a price for them charges the price of input.
        cache_read=stated.get("cache_read", stated["input"]),
        cache_write=stated.get("cache_write", stated["input"]),
        long_above=long["above"] if long else None,
        long=_prices(long) if long else None,
    )


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    return json.loads(_SHIPPED.read_text(encoding="utf-8"))  # type: ignore[no-any-return]  # checked when it was made


def catalogue_file(config_file: Path) -> Path:
    """Return the path of the user's catalogue, which may not exist."""
    return config_file.with_name(CATALOGUE)


@cache
def _read(file: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the user's catalogue; empty if the file is missing or invalid."""
    try:
        table = json.loads(regularfile.read_bytes(file, limit=_MOST, links=True))
    except (OSError, ValueError):
        return {}
    return {name: each for name, each in table.items() if _is_entry(each)} if isinstance(table, dict) else {}


def _is_entry(value: object) -> bool:
    """Return whether an entry of the user's catalogue, which can be edited by hand, is valid."""
    return (
        isinstance(value, dict)
        and all(_is_number(value[key]) for key in (*_TOKENS, *_PRICES) if key in value)
        and isinstance(value.get("abilities", []), list)
    )


# A catalogue is made from LiteLLM's table of models, which its authors keep up to date. The package's one adds from
# https://platform.claude.com/docs/en/about-claude/pricing the prices of long prompts (``long``: for a request with
# more tokens than ``above``), and claude-opus-4-1.

SOURCE = "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json"
_PROVIDERS = {  # by LiteLLM's name: the prefixes of model names there and here
    "anthropic": ("", ""),
    "openai": ("", ""),
    "gemini": ("gemini/", ""),
    "deepseek": ("deepseek/", ""),
    "xai": ("xai/", ""),
    "mistral": ("mistral/", ""),
    "groq": ("groq/", "groq/"),
    "openrouter": ("openrouter/", "openrouter/"),
    "bedrock_converse": ("", "bedrock/"),
}
_ABILITIES = {
    "tools": "supports_function_calling",
    "images": "supports_vision",
    "PDF": "supports_pdf_input",
    "thinking": "supports_reasoning",
}
_PRICES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cache_read": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
}
_TOKENS = {"context_window": "max_input_tokens", "max_output": "max_output_tokens"}


def catalogue_of(text: str | bytes) -> dict[str, dict[str, Any]]:
    """Convert LiteLLM's table, given as JSON, into a catalogue; raises ``ConfigError`` if it is not such a table."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        table = None
    found = dict(_entries(table)) if isinstance(table, dict) else {}
    if not found:
        raise ConfigError("This is not a table of models", hint=f"LiteLLM's is at {SOURCE}")
    return dict(sorted(found.items()))


def _entries(table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, given in table.items():
        if not isinstance(given, dict) or given.get("mode") not in ("chat", "responses"):
            continue
        provider = str(given.get("litellm_provider"))
        begins, ours = _PROVIDERS.get(provider, ("", ""))
        if provider not in _PROVIDERS or not name.startswith(begins) or name.startswith("ft:"):
            continue
        facts: dict[str, Any] = {
            key: int(given[of]) for key, of in _TOKENS.items() if _is_number(given.get(of)) and given[of] >= 1
        }
        prices = {
            key: round(given[of] * _MILLION, 6)
            for key, of in _PRICES.items()
            if _is_number(given.get(of)) and (given[of] > 0 or (given[of] == 0 and not key.startswith("cache")))
        }
        if {"input", "output"} <= prices.keys():
            facts |= prices
        if can := [ability for ability, of in _ABILITIES.items() if given.get(of) is True]:
            facts["abilities"] = can
        if facts:
            facts["provider"] = provider.removesuffix("_converse")
            yield ours + name.removeprefix(begins), facts


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def catalogue_text(catalogue: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a catalogue file: JSON, one model a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in catalogue.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
