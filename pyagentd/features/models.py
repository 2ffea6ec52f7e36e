"""The list of models: what each provider offers for the keys that are known.

A provider is asked for its list when the list is needed, with a time limit; the answer is kept for a day in
``available_models.json``. If it does not answer, the models that ``llm.catalog`` knows are listed instead: a person
may then still choose another one, with a warning; an agent that edits itself may not.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from pyagentd.clock import iso8601
from pyagentd.config import BackendSettings
from pyagentd.config.tables import SERVICES
from pyagentd.errors import BadRequest, NoKey, PyagentdError, ToolError, did_you_mean
from pyagentd.llm import catalog
from pyagentd.llm.factory import list_models
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import Feature, RunStarted
from pyagentd.runtime.queue import is_persons
from pyagentd.runtime.settings import SendOptions, key_of, parse_model, server_of
from pyagentd.runtime.turns import Prompt
from pyagentd.store import modellists
from pyagentd.store.modellists import ModelList

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel

log = logging.getLogger(__name__)


# How a model is named, ``[PROVIDER/]NAME``, and which one a name means among those that providers have; pure.

_SHOWN = 40  # models in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider of models.

    Attributes:
        valid: There is a key for it that it has not refused, or it needs none.
        models: What it has, as far as is known.
        checked_at: When it listed them, ISO 8601; None: it has not, and these are known by name.
        trouble: Why it has not, or why its key is of no use; "" when nothing is wrong.
        stand_in: It is not a model that answers: only who names it gets it.
        configured: The user named it in the configuration, or it is built in; if not, its key happens to be known.
    """

    valid: bool
    models: tuple[str, ...]
    checked_at: str | None = None
    trouble: str = ""
    stand_in: bool = False
    configured: bool = True

    def has(self, name: str) -> bool:
        """Return whether it has a model; the name of a snapshot stands for the model, and the other way round."""
        return name in self.models or catalog.family(name) in map(catalog.family, self.models)


def model_for_file(model: str, found: Mapping[str, Provider], *, backend: str) -> str:
    """Return how a model's own ``model`` is written into ``agent.json``: its name, and another provider's.

    A model does not take itself to a provider that nobody configured; its own, ``backend``, is tried first.

    Raises:
        ToolError: No provider with a key has it; lists those that can be had.
    """
    found = {name: each for name, each in found.items() if each.configured}
    if (made := found_in(model, found, backend=backend)) is not None:
        return made
    raise ToolError(f"{unknown_model_note(model)} {models_hint(model.rpartition('/')[2], found)}")


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


def unknown_model_note(model: str) -> str:
    """Return what is said of a model that nobody has."""
    return f'Model "{model[:100]}" not found in available models.'


def models_hint(name: str, found: Mapping[str, Provider]) -> str:
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


LIMIT_S = 10.0  # to ask one provider
FRESH = timedelta(days=1)
AGAIN = timedelta(minutes=10)  # after a provider could not be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """A model that somebody may have: how it is written, and what is to be said about it."""

    model: str
    note: str = ""


class _Failure(NamedTuple):
    """Why a provider could not be asked with a key."""

    at: datetime
    why: str
    is_refusal: bool  # of the key


class Models(Feature):
    """The models of one daemon's providers."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._config = kernel.config
        self._clock = kernel.clock
        self._lists: dict[str, ModelList] | None = None
        self._failed: dict[tuple[str, str], _Failure] = {}  # by provider and key (hashed)
        self.next_settings: dict[str, dict[str, Any]] = {}  # of the next message, by the branch's key
        self._taken: set[str] = set()  # branches whose prompt has them, and whose run has not begun
        kernel.bus.on(RunStarted, self._begun)
        self._asking = asyncio.Lock()
        self._soon: asyncio.Task[None] | None = None

    async def before_prompt(self, branch: LiveBranch, prompt: Prompt, options: SendOptions, run_id: str) -> Prompt:
        """Return a person's prompt with what was set for it; what it says itself wins."""
        given = self.next_settings.get(branch.key)
        if not given or not is_persons(prompt.metadata):
            return prompt
        self._taken.add(branch.key)
        settings = {**given, **(prompt.metadata.get("settings") or {})}
        return replace(prompt, metadata={**prompt.metadata, "settings": settings})

    def _begun(self, event: RunStarted) -> None:
        if event.branch.key in self._taken:
            self._taken.remove(event.branch.key)
            self.next_settings.pop(event.branch.key, None)

    def known(self, options: SendOptions) -> Mapping[str, Provider]:
        """Return the providers by name, as a client with these options reaches them, without asking them.

        Where the environment names one backend for everything, there is no other.
        """
        return {name: self._provider(backend, options) for name, backend in self._backends(options).items()}

    async def look(self, options: SendOptions, *, refresh: bool = False) -> Mapping[str, Provider]:
        """Return the same, with the lists of providers that were not asked for a day; ``refresh`` asks all.

        A provider that nobody configured, and whose key happens to be known, is asked with ``refresh`` alone.
        """
        async with self._asking:
            if self._lists is None:
                self._lists = await asyncio.to_thread(modellists.read, self._config.sessions_dir)
            due = [
                backend
                for backend in self._backends(options).values()
                if _has_key(backend, options)
                and (refresh or (backend.name in self._config.backends and not self._is_fresh(backend, options)))
            ]
            if due:
                await asyncio.gather(*(self._ask(backend, options) for backend in due))
                await asyncio.to_thread(modellists.write, self._config.sessions_dir, self._lists)
        return self.known(options)

    def look_soon(self, options: SendOptions) -> None:
        """Have lists that are due asked for in the background; what goes wrong is noted."""

        async def look() -> None:
            try:
                await self.look(options)
            except PyagentdError as error:  # the run itself says it
                log.info("models: %s", error)

        if self._soon is None or self._soon.done():
            self._soon = asyncio.create_task(look(), name="models")

    async def stop(self) -> None:
        """Ask nobody any more."""
        if self._soon is not None:
            self._soon.cancel()
            await asyncio.wait([self._soon])

    async def checked(self, model: str, options: SendOptions, *, backend: str) -> CheckedModel:
        """Return how a person's ``[PROVIDER/]NAME`` is written; one that cannot be checked is taken, and said.

        Where they name no provider, ``backend`` is asked for it.

        Raises:
            BadRequest: It is not a name, or nobody has it.
            ConfigError: There is no such provider.
        """
        text = parse_model(model, self._config)
        found = await self.look(options)
        if (made := found_in(text, found, backend=backend)) is not None:
            return CheckedModel(model=made)
        provider, _, name = text.rpartition("/")
        written = text
        if backend not in found:  # the client's environment names another one for everything
            backend = next(iter(found))
            written = text if provider or found[backend].stand_in else f"{backend}/{name}"
        asked = {each: known for each, known in found.items() if each in (provider or backend, backend)}
        if troubled := next(((each, known) for each, known in asked.items() if known.trouble), None):
            where, known = troubled
            if known.has(name):
                return CheckedModel(model=written, note=f"{text} could not be tried: {where}: {known.trouble}")
            near = did_you_mean(name, known.models)
            said = f"{text} is taken as it is, for nobody could be asked for it: {where}: {known.trouble}"
            return CheckedModel(model=written, note=f"{said}. {near}" if near else said)
        raise BadRequest(unknown_model_note(text), hint=models_hint(name, found))

    def _provider(self, backend: BackendSettings, options: SendOptions) -> Provider:
        listed, failed = self._listed(backend), self._failed.get(_key_mark(backend, options))
        own = ((backend.model,) if backend.model else ()) + backend.models
        has_key = _has_key(backend, options)
        usual = catalog.shipped_models("anthropic" if backend.kind == "offline" else backend.name)
        known = (self._config.models, usual) if listed is None else (listed.models, self._config.models)
        return Provider(
            valid=has_key and not (failed and failed.is_refusal),
            models=_joined(own, *known),
            checked_at=None if listed is None else listed.checked_at,
            trouble="no key is known here" if not has_key else failed.why if failed else "",
            stand_in=backend.kind == "offline",
            configured=backend.name in self._config.backends,
        )

    def _listed(self, backend: BackendSettings) -> ModelList | None:
        """Return what a provider listed last, where its server is now."""
        listed = (self._lists or {}).get(backend.name)
        return listed if listed is not None and listed.valid and listed.server == _address(backend) else None

    def _backends(self, options: SendOptions) -> dict[str, BackendSettings]:
        config, env = self._config, options.env
        override = env.get("PYAGENTD_BACKEND") if env else config.backend_override
        if override:
            names = [config.backend(override, env).name]
        else:
            keyed = (name for name, known in SERVICES.items() if known.key_env and name not in config.backends)
            names = [*config.backends, *(name for name in keyed if key_of(config.backend(name, env), options))]
        return {name: config.backend(name, env) for name in names}

    def _is_fresh(self, backend: BackendSettings, options: SendOptions) -> bool:
        now, listed = self._clock.now(), self._listed(backend)
        if (failed := self._failed.get(_key_mark(backend, options))) is not None:
            return now - failed.at < AGAIN  # a key may have been mended since
        if listed is None:
            return False
        try:
            return now - datetime.fromisoformat(listed.checked_at) < FRESH
        except (ValueError, TypeError):
            return False

    async def _ask(self, backend: BackendSettings, options: SendOptions) -> None:
        """Have a provider list its models, and note what it says; what goes wrong is noted too."""
        name, now, mark = backend.name, self._clock.now(), _key_mark(backend, options)
        assert self._lists is not None  # they are read before anybody is asked
        try:
            async with asyncio.timeout(LIMIT_S):
                models = await list_models(name, server_of(backend, options))
        except TimeoutError:
            failed = _Failure(now, f"it did not answer within {LIMIT_S:g} s", is_refusal=False)
        except PyagentdError as error:  # where it refused the key, another client may have another one
            failed = _Failure(now, error.message, is_refusal=isinstance(error, NoKey))
        else:
            self._lists[name] = ModelList(
                valid=True, models=models, checked_at=iso8601(now), server=_address(backend)
            )
            self._failed.pop(mark, None)
            return
        log.info("models of %s: %s", name, failed.why)
        self._failed[mark] = failed


def _joined(*parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in parts for name in part))


def _address(backend: BackendSettings) -> str:
    """Return where a provider's server is, without the name and the password that the address may have."""
    parts = urlsplit(backend.base_url or "")
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _key_mark(backend: BackendSettings, options: SendOptions) -> tuple[str, str]:
    """Return a provider's name with what tells the key of a client from others and does not say it."""
    return backend.name, hashlib.sha256((key_of(backend, options) or "").encode(errors="replace")).hexdigest()


def _has_key(backend: BackendSettings, options: SendOptions) -> bool:
    return not backend.needs_key or bool((key_of(backend, options) or "").strip())
