"""The models that each provider offers for the known keys.

A provider's list is requested when needed, with a time limit, and kept for a day in ``available_models.json``. If the
request fails, the models of ``llm.catalog`` are listed instead: a person may then choose any model, with a warning;
an agent that edits itself may not.
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


# Model names, ``[PROVIDER/]NAME``, and finding a model among the providers; pure.

_SHOWN = 40  # models in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider of models.

    Attributes:
        valid: Whether it has a key that it has not refused, or needs none.
        models: Its known models.
        checked_at: When it last listed its models, ISO 8601; None if it never has.
        trouble: Why it has not, or why its key is unusable; "" if nothing is wrong.
        stand_in: Whether it answers without a model; it is used only if named.
        configured: Whether the user named it in the configuration, or it is built in; else only its key is known.
    """

    valid: bool
    models: tuple[str, ...]
    checked_at: str | None = None
    trouble: str = ""
    stand_in: bool = False
    configured: bool = True

    def has(self, name: str) -> bool:
        """Return whether the provider has a model; a snapshot's name matches its model, and vice versa."""
        return name in self.models or catalog.family(name) in map(catalog.family, self.models)


def model_for_file(model: str, found: Mapping[str, Provider], *, backend: str) -> str:
    """Return the text for ``agent.json`` of the model that an agent chose for itself.

    It cannot switch to a provider that is not configured; its own, ``backend``, is tried first.

    Raises:
        ToolError: No provider with a key has the model; lists the available ones.
    """
    found = {name: each for name, each in found.items() if each.configured}
    if (made := found_in(model, found, backend=backend)) is not None:
        return made
    raise ToolError(f"{unknown_model_note(model)} {models_hint(model.rpartition('/')[2], found)}")


def found_in(model: str, found: Mapping[str, Provider], *, backend: str) -> str | None:
    """Return ``NAME`` of a model at ``backend``, else ``PROVIDER/NAME``; None if no provider with a key has it.

    A name without a provider never means a stand-in, unless that is the ``backend``, or the only provider.
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
    """Return the error for a model that no provider has."""
    return f'Model "{model[:100]}" not found in available models.'


def models_hint(name: str, found: Mapping[str, Provider]) -> str:
    """Return a hint that lists the available models, a name similar to ``name`` first."""
    listed = sorted({each for known in found.values() if known.valid for each in known.models})
    near = did_you_mean(name, listed)
    available = f"Available: {'; '.join(_of_each(found)) or 'none'}."
    without = [f"{each} cannot be used: {known.trouble}." for each, known in found.items() if not known.valid]
    return " ".join(filter(None, (near, available, *without)))


def _of_each(found: Mapping[str, Provider]) -> Iterator[str]:
    """Yield the models of each provider with a key."""
    for each, known in found.items():
        if known.valid and known.models:
            whose = f"{each}, a stand-in without a model" if known.stand_in else each
            more = "" if len(known.models) <= _SHOWN else f" and {len(known.models) - _SHOWN} more"
            yield f"{', '.join(sorted(known.models)[:_SHOWN])}{more} ({whose})"


LIMIT_S = 10.0  # for one provider
FRESH = timedelta(days=1)
AGAIN = timedelta(minutes=10)  # after a request to a provider failed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedModel:
    """A model as it is configured, ``[PROVIDER/]NAME``, with a note for the user."""

    model: str
    note: str = ""


class _Failure(NamedTuple):
    """Why a request for a provider's list failed with a key."""

    at: datetime
    why: str
    is_refusal: bool  # of the key


class Models(Feature):
    """The models of all providers."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        self._config = kernel.config
        self._clock = kernel.clock
        self._lists: dict[str, ModelList] | None = None
        self._failed: dict[tuple[str, str], _Failure] = {}  # by provider and key (hashed)
        self.next_settings: dict[str, dict[str, Any]] = {}  # of the next message, by the branch's key
        self._taken: set[str] = set()  # branches whose prompt has these settings, and whose run has not begun
        kernel.bus.on(RunStarted, self._begun, of=self._taken)
        self._asking = asyncio.Lock()
        self._soon: asyncio.Task[None] | None = None

    async def before_prompt(self, branch: LiveBranch, prompt: Prompt, options: SendOptions, run_id: str) -> Prompt:
        """Return a person's prompt with the settings for the next message; the prompt's own settings win."""
        given = self.next_settings.get(branch.key)
        if not given or not is_persons(prompt.metadata):
            return prompt
        self._taken.add(branch.key)
        settings = {**given, **(prompt.metadata.get("settings") or {})}
        return replace(prompt, metadata={**prompt.metadata, "settings": settings})

    def _begun(self, event: RunStarted) -> None:
        self._taken.remove(event.branch.key)
        self.next_settings.pop(event.branch.key, None)

    def known(self, options: SendOptions) -> Mapping[str, Provider]:
        """Return the providers by name, as a client with these options reaches them, without requests.

        If the environment names one backend for everything, it is the only one.
        """
        return {name: self._provider(backend, options) for name, backend in self._backends(options).items()}

    async def look(self, options: SendOptions, *, refresh: bool = False) -> Mapping[str, Provider]:
        """Return the providers after requesting the lists that are older than a day; ``refresh`` requests all.

        A provider that is not configured, and whose key is known anyway, is asked only with ``refresh``.
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
        """Request the lists that are due in the background; errors are logged."""

        async def look() -> None:
            try:
                await self.look(options)
            except PyagentdError as error:  # the run itself reports it
                log.info("models: %s", error)

        if self._soon is None or self._soon.done():
            self._soon = asyncio.create_task(look(), name="models")

    async def stop(self) -> None:
        """Cancel requests in the background."""
        if self._soon is not None:
            self._soon.cancel()
            await asyncio.wait([self._soon])

    async def checked(self, model: str, options: SendOptions, *, backend: str) -> CheckedModel:
        """Return a person's ``[PROVIDER/]NAME`` as it is configured; a model that cannot be checked gets a note.

        A name without a provider is looked for at ``backend`` first.

        Raises:
            BadRequest: The name is malformed, or no provider has the model.
            ConfigError: The provider is unknown.
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
            notice = f"{text} is taken as it is, for nobody could be asked for it: {where}: {known.trouble}"
            return CheckedModel(model=written, note=f"{notice}. {near}" if near else notice)
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
        """Return a provider's last list, if that is from its current server."""
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
            return now - failed.at < AGAIN  # a key may have been fixed since
        if listed is None:
            return False
        try:
            return now - datetime.fromisoformat(listed.checked_at) < FRESH
        except (ValueError, TypeError):
            return False

    async def _ask(self, backend: BackendSettings, options: SendOptions) -> None:
        """Request a provider's list of models, and note the list or the failure."""
        name, now, mark = backend.name, self._clock.now(), _key_mark(backend, options)
        assert self._lists is not None  # ``look`` reads them first
        try:
            async with asyncio.timeout(LIMIT_S):
                models = await list_models(name, server_of(backend, options))
        except TimeoutError:
            failed = _Failure(now, f"it did not answer within {LIMIT_S:g} s", is_refusal=False)
        except PyagentdError as error:  # it may have refused this client's key only
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
    """Return the address of a provider's server, without user name and password."""
    parts = urlsplit(backend.base_url or "")
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _key_mark(backend: BackendSettings, options: SendOptions) -> tuple[str, str]:
    """Return a provider's name and a hash of the client's key."""
    return backend.name, hashlib.sha256((key_of(backend, options) or "").encode(errors="replace")).hexdigest()


def _has_key(backend: BackendSettings, options: SendOptions) -> bool:
    return not backend.needs_key or bool((key_of(backend, options) or "").strip())
