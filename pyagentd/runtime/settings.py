"""Resolves settings of a run: backend, model, key, and permitted tools."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pyagentd.config import BackendSettings, Config
from pyagentd.errors import BadRequest, ConfigError, PresetError
from pyagentd.llm import factory
from pyagentd.llm.backend import Backend
from pyagentd.llm.factory import make_backend
from pyagentd.log import conceal
from pyagentd.policy.presets import Preset
from pyagentd.policy.profiles import is_read_only, may_pass, resolve_profile
from pyagentd.store.paths import BranchRef

DEFAULT_MAX_TOKENS = 32_000  # of one answer; room for a long file in one call
THINKING_TOKENS = {"low": 4_000, "medium": 12_000, "high": 32_000}
"""Token limits for thinking by ``Preset.thinking``, in addition to those of the answer."""


@dataclass(slots=True, kw_only=True)
class LateArrival:
    """The environment of a later client for resumed runs, whose own client was lost with an earlier daemon."""

    env: dict[str, str] = field(default_factory=dict)

    def take(self, options: "SendOptions") -> None:
        """Replace the environment by that of a client, if it has one."""
        if options.env and options.env is not self.env:  # ``options`` may hold this very mapping
            self.env.clear()
            self.env.update(options.env)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """The options of a client for the run of its message; agents of the run inherit them."""

    interactive: bool = False  # a human can be asked
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # backend, base URL, PATH, keys
    grants: tuple[re.Pattern[str], ...] = ()
    late: LateArrival | None = None  # of a resumed run; its ``env`` is the one above


class LastOptions(dict[str, SendOptions]):
    """The last options that a person sent, by the key of a branch; equal options are stored as one object."""

    def __setitem__(self, key: str, options: "SendOptions") -> None:
        latest = next(reversed(self.values()), options)
        super().__setitem__(key, latest if latest == options else options)


def parse_model(model: str, config: Config) -> str:
    """Return ``[PROVIDER/]NAME``; raises ``BadRequest`` for a bad name, ``ConfigError`` for an unknown provider."""
    text = model.strip()
    if not text or any(char.isspace() or not char.isprintable() for char in text):
        raise BadRequest(f"{model[:80]!r} is not a model", hint="Give its name, or BACKEND/NAME")
    if backend := text.rpartition("/")[0]:
        config.backend(backend)
    return text


class PresetSource(Protocol):
    """A source of presets: ``Presets``, or ``TurnPresets`` for one run."""

    def of_branch(self, ref: BranchRef) -> Preset:
        """Return the preset of a branch; raises ``PresetError``."""
        ...


def permitted_tools(
    presets: PresetSource, ref: BranchRef, ancestors: tuple[BranchRef, ...], tools: Iterable[str]
) -> list[str]:
    """Return the ``tools`` that no profile or read-only mode, of the branch or of those above, denies completely."""
    held = [presets.of_branch(each) for each in (ref, *ancestors)]
    profiles = [resolve_profile(each.profile) for each in held]
    if any(each.read_only for each in held):
        tools = filter(is_read_only, tools)
    return [tool for tool in tools if all(may_pass(profile, tool) for profile in profiles)]


def provider_of(preset: Preset, config: Config, options: "SendOptions") -> str:
    """Return the name of the backend that serves a preset to a client.

    Raises:
        ConfigError: The preset names a backend that is not configured.
    """
    return _known_backend(preset, config, options).name


def configured_provider(preset: Preset, config: Config, options: "SendOptions") -> str:
    """Return the name of the backend that a preset names, or of the one that serves it if that is not configured.

    Raises:
        ConfigError: Neither is configured.
    """
    try:
        return config.backend(preset.backend).name
    except ConfigError:
        return provider_of(preset, config, options)


def _known_backend(preset: Preset, config: Config, options: "SendOptions") -> BackendSettings:
    # A client's environment decides; without one, the daemon's environment does.
    override = options.env.get("PYAGENTD_BACKEND") if options.env else config.backend_override
    return config.backend(override or preset.backend, options.env)


def with_backend_and_model(preset: Preset, config: Config, options: "SendOptions") -> Preset:
    """Return ``preset`` with the backend and the model that answer a client; the model is "" if none is named.

    A backend that replaces the preset's brings its own model, since it may not have the one that the preset names.

    Raises:
        ConfigError: The preset names a backend that is not configured.
    """
    known = _known_backend(preset, config, options)
    default = config.default.model if is_backend(config, config.default.backend or "anthropic", known.name) else ""
    own = known.model or default
    stand_in = known.name if known.kind == "offline" else ""  # it has no models, so its own name is used
    if is_backend(config, preset.backend, known.name):
        return replace(preset, model=preset.model or own or stand_in)
    return replace(preset, backend=known.name, model=own or preset.model or stand_in)


def is_backend(config: Config, named: str, backend: str) -> bool:
    """Return whether the name ``named`` in a preset or from a user means the backend ``backend``."""
    try:
        return config.backend(named).name == backend
    except ConfigError:
        return False


def extra_model(configured: str, backend: str, model: str, config: Config) -> str:
    """Return the model for a title or a summary of a run that ``model`` answers.

    Args:
        configured: The user's setting, ``[BACKEND/]NAME``. Without BACKEND it is a model of the default backend,
            which another backend with its own model may not have.
        backend: The run's backend.
        model: The run's model.
        config: The configuration.
    """
    provider, _, name = configured.rpartition("/")
    if provider:
        return name if is_backend(config, provider, backend) else model
    known = config.backends.get(backend)
    default = config.default.backend or "anthropic"
    elsewhere = known is not None and known.model and not is_backend(config, default, backend)
    return model if elsewhere or not name else name


def backend_for(
    preset: Preset,
    config: Config,
    options: "SendOptions",
    *,
    template: Callable[[], tuple[str, Path]] | None = None,
) -> tuple[Backend, str]:
    """Return the backend and the model's name for a preset.

    Args:
        preset: The preset.
        config: The configuration.
        options: The client's options.
        template: Returns the name and the file by which the user knows the preset, for errors.

    Raises:
        ConfigError: The preset names a backend that is not configured.
        NoKey: The backend needs a key and none is known.
        PresetError: Neither preset nor backend names a model.
    """
    known, model = _known_backend(preset, config, options), with_backend_and_model(preset, config, options).model
    settings = server_of(known, options)
    if not model:
        name, file = template() if template else (preset.name, None)
        raise PresetError(
            f"The preset {name} names no model, and the backend {known.name} has none of its own",
            hint=f"Write `model: NAME` into {file or 'its file'}; for one session, name one with /model or --model",
        )
    return make_backend(known.name, settings), model


def server_of(known: BackendSettings, options: "SendOptions") -> factory.BackendSettings:
    """Return the settings to connect to a backend, with the client's key."""
    return factory.server_of(known, key_of(known, options))


def key_of(known: BackendSettings, options: "SendOptions") -> str | None:
    """Return the key for a backend from the client's environment, else from the daemon's.

    A backend without ``key_env`` gets no key, since a key must not be sent to another server.
    """
    if (variable := known.key_env) is None:
        return None
    key = options.env.get(variable) or os.environ.get(variable)
    conceal(key or "")
    return key


def variable_of(name: str, options: "SendOptions") -> str:
    """Return a secret from the client's environment, else from the daemon's; "" if neither has it."""
    value = options.env.get(name) or os.environ.get(name) or ""
    conceal(value)
    return value
