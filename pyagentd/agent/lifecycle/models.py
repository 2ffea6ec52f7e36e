"""Which models an agent can have: those of providers for which there is a key (SPEC 003 Model).

A provider without a key is named as not valid, and none of its models can be switched to. A provider's models are the
ones that are known of it (``llm.catalog``) and its own default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pyagentd.agent.running.settings import SendOptions
from pyagentd.config import BackendSettings, Config
from pyagentd.errors import ToolError
from pyagentd.llm import catalog

_OF_THE_TABLE = ("anthropic", "offline")
_SHOWN = 40  # models in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider of models."""

    valid: bool  # there is a key for it, or it needs none
    models: tuple[str, ...]


def available(config: Config, options: SendOptions) -> Mapping[str, Provider]:
    """Return the providers by name, as a run with these options can reach them.

    Where the environment names one backend for everything, there is no other.
    """
    override = options.env.get("PYAGENTD_BACKEND") if options.env else config.backend_override
    names = [config.backend(override, options.env).name] if override else list(config.backends)
    found = {}
    for name in names:
        backend = config.backend(name, options.env)
        own = [backend.model] if backend.model else []
        usual = catalog.shipped() if name in _OF_THE_TABLE else ()
        models = tuple(dict.fromkeys((*own, *config.models, *usual)))
        found[name] = Provider(valid=_has_key(backend, options), models=models)
    return found


def written(model: str, found: Mapping[str, Provider], *, backend: str) -> str:
    """Return how ``model`` is written into ``agent.json``: its name, with the provider where that is another.

    Args:
        model: ``NAME`` or ``PROVIDER/NAME``.
        found: See ``available``.
        backend: The agent's provider so far; tried first.

    Raises:
        ToolError: No provider with a key has it; lists those that can be had.
    """
    provider, _, name = model.rpartition("/")
    order = [provider] if provider else sorted(found, key=lambda each: each != backend)
    for each in order:
        known = found.get(each)
        if known is not None and known.valid and (name in known.models or catalog.family(name) in known.models):
            return model if provider or each == backend or len(found) == 1 else f"{each}/{name}"
    listed = sorted({each for known in found.values() if known.valid for each in known.models})
    without = ", ".join(sorted(each for each, known in found.items() if not known.valid))
    told = ", ".join(listed[:_SHOWN]) or "none"
    why = f" There is no key for {without}." if without else ""
    raise ToolError(f'Model "{model[:100]}" not found in available models. Available: {told}.{why}')


def _has_key(backend: BackendSettings, options: SendOptions) -> bool:
    if backend.kind == "offline" or backend.key_env is None:
        return True
    late = options.late.api_key if options.late else None
    key = options.api_key or late or options.env.get(backend.key_env) or os.environ.get(backend.key_env)
    return bool((key or "").strip())
