"""How a model is named, ``[PROVIDER/]NAME``, and which one a name means among those that providers have; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyagentd.config import Config
from pyagentd.errors import BadRequest, ToolError, did_you_mean
from pyagentd.llm import catalog

_SHOWN = 40  # models in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider of models.

    Attributes:
        valid: There is a key for it that it has not refused, or it needs none.
        models: What it has, as far as is known.
        checked_at: When it listed them, ISO 8601; None: it has not, and these are known by name.
        trouble: Why it has not, or why its key is of no use; "" when nothing is wrong.
        stand_in: It is no model that answers: only who names it gets it.
    """

    valid: bool
    models: tuple[str, ...]
    checked_at: str | None = None
    trouble: str = ""
    stand_in: bool = False

    def has(self, name: str) -> bool:
        """Return whether it has a model; the name of a snapshot stands for the model, and the other way round."""
        return name in self.models or catalog.family(name) in map(catalog.family, self.models)


def syntax(model: str, config: Config) -> str:
    """Return ``[PROVIDER/]NAME``; raises ``BadRequest`` when it is no name, ``ConfigError`` for another provider."""
    text = model.strip()
    if not text or any(char.isspace() or not char.isprintable() for char in text):
        raise BadRequest(f"{model[:80]!r} is no model", mend="Give its name, or BACKEND/NAME")
    if backend := text.rpartition("/")[0]:
        config.backend(backend)
    return text


def written(model: str, found: Mapping[str, Provider], *, backend: str) -> str:
    """Return how ``model`` is written into ``agent.json``: its name, with the provider where that is another.

    Args:
        model: ``NAME`` or ``PROVIDER/NAME``.
        found: See ``Models``.
        backend: The agent's provider so far; tried first.

    Raises:
        ToolError: No provider with a key has it; lists those that can be had.
    """
    if (made := found_in(model, found, backend=backend)) is not None:
        return made
    raise ToolError(f"{unknown(model)} {mend(model.rpartition('/')[2], found)}")


def found_in(model: str, found: Mapping[str, Provider], *, backend: str) -> str | None:
    """Return how a model is written that a provider with a key has; None when none has.

    A name alone never means a stand-in, unless that is the ``backend``, or all there is.
    """
    provider, _, name = model.rpartition("/")
    folded = {each.casefold(): each for each in found}
    order = (
        [folded.get(provider.casefold(), provider)] if provider else sorted(found, key=lambda each: each != backend)
    )
    for each in order:
        known = found.get(each)
        if known is not None and known.stand_in and not (provider or each == backend or len(found) == 1):
            continue
        if known is not None and known.valid and known.has(name):
            return model if provider or each == backend or known.stand_in else f"{each}/{name}"
    return None


def unknown(model: str) -> str:
    """Return what is said of a model that nobody has."""
    return f'Model "{model[:100]}" not found in available models.'


def mend(name: str, found: Mapping[str, Provider]) -> str:
    """Return which models there are, the one first that ``name`` may have meant."""
    listed = sorted({each for known in found.values() if known.valid for each in known.models})
    near = did_you_mean(name, listed)
    told = f"Available: {'; '.join(_of_each(found)) or 'none'}."
    without = [f"{each} cannot be used: {known.trouble}." for each, known in found.items() if not known.valid]
    return " ".join(filter(None, (near, told, *without)))


def _of_each(found: Mapping[str, Provider]) -> Iterator[str]:
    """Yield what each provider with a key has, with its name."""
    for each, known in found.items():
        if known.valid and known.models:
            whose = f"{each}, a stand-in without a model" if known.stand_in else each
            more = "" if len(known.models) <= _SHOWN else f" and {len(known.models) - _SHOWN} more"
            yield f"{', '.join(sorted(known.models)[:_SHOWN])}{more} ({whose})"
