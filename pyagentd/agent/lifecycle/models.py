"""Which models can be had: those that providers list for the keys that are known (SPEC 003 Model).

A provider is asked for its list when somebody wants to know, with a time limit; the answer is kept for a day in
``available_models.json``. Where it cannot be had, the models that are known by name stand in (``llm.catalog``): a
person may then take another one, and is told so; a model that edits itself may not.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit, urlunsplit

from pyagentd.agent.lifecycle.modelnames import Provider, found_in, mend, syntax, unknown
from pyagentd.agent.running.settings import SendOptions, key_of, server_of
from pyagentd.clock import Clock, iso8601
from pyagentd.config import BackendSettings, Config
from pyagentd.errors import BadRequest, NoKey, PyagentdError, did_you_mean
from pyagentd.llm import catalog
from pyagentd.llm.factory import list_models
from pyagentd.store import modellists
from pyagentd.store.modellists import ModelList

log = logging.getLogger(__name__)

LIMIT_S = 10.0  # to ask one provider
FRESH = timedelta(days=1)
AGAIN = timedelta(minutes=10)  # after a provider could not be asked

_OF_THE_TABLE = ("anthropic", "offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A model that somebody may have: how it is written, and what is to be said about it."""

    model: str
    note: str = ""


class Models:
    """The models of one daemon's providers.

    Args:
        config: Which providers there are.
        clock: How old a list is.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lists: dict[str, ModelList] | None = None
        self._troubles: dict[str, tuple[datetime, str]] = {}  # by provider: when and why it could not be asked
        self._refused: dict[tuple[str, str], tuple[datetime, str]] = {}  # by provider and key (hashed), likewise
        self._asking = asyncio.Lock()
        self._soon: asyncio.Task[None] | None = None

    def known(self, options: SendOptions) -> Mapping[str, Provider]:
        """Return the providers by name, as a client with these options reaches them, without asking them.

        Where the environment names one backend for everything, there is no other.
        """
        return {
            name: replace(self._provider(backend, options), stand_in=backend.kind == "offline")
            for name, backend in self._backends(options).items()
        }

    async def look(self, options: SendOptions, *, refresh: bool = False) -> Mapping[str, Provider]:
        """Return the same, with the lists of providers that were not asked for a day; ``refresh`` asks all."""
        async with self._asking:
            if self._lists is None:
                self._lists = await asyncio.to_thread(modellists.read, self._config.sessions_dir)
            due = [
                backend
                for backend in self._backends(options).values()
                if _has_key(backend, options) and (refresh or not self._is_fresh(backend, options))
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

    async def close(self) -> None:
        """Ask nobody any more."""
        if self._soon is not None:
            self._soon.cancel()
            await asyncio.wait([self._soon])

    async def checked(self, model: str, options: SendOptions, *, backend: str) -> Checked:
        """Return how a person's ``[PROVIDER/]NAME`` is written; one that cannot be checked is taken, and said.

        Args:
            model: What they wrote.
            options: Of their client.
            backend: The provider that is asked for it where they name none.

        Raises:
            BadRequest: It is no name, or nobody has it.
            ConfigError: There is no such provider.
        """
        text = syntax(model, self._config)
        found = await self.look(options)
        if (made := found_in(text, found, backend=backend)) is not None:
            return Checked(model=made)
        provider, _, name = text.rpartition("/")
        written = text
        if backend not in found:  # the client's environment names another one for everything
            backend = next(iter(found))
            written = text if provider or found[backend].stand_in else f"{backend}/{name}"
        asked = {each: known for each, known in found.items() if each in (provider or backend, backend)}
        if troubled := next(((each, known) for each, known in asked.items() if known.trouble), None):
            where, known = troubled
            if known.has(name):
                return Checked(model=written, note=f"{text} could not be tried: {where}: {known.trouble}")
            near = did_you_mean(name, known.models)
            said = f"{text} is taken as it is, for nobody could be asked for it: {where}: {known.trouble}"
            return Checked(model=written, note=f"{said}. {near}" if near else said)
        raise BadRequest(unknown(text), mend=mend(name, found))

    def _provider(self, backend: BackendSettings, options: SendOptions) -> Provider:
        listed = (self._lists or {}).get(backend.name)
        if listed is not None and listed.server != _address(backend):
            listed = None
        own = (backend.model,) if backend.model else ()
        trouble = self._troubles.get(backend.name, (None, ""))[1]
        refused = self._refused.get((backend.name, _key_mark(backend, options)))
        if refused is not None:
            trouble = refused[1]
        if not (has_key := _has_key(backend, options)):
            trouble = "no key is known here"
        valid = has_key and refused is None
        if listed is None or not listed.valid:
            usual = catalog.shipped() if backend.name in _OF_THE_TABLE else ()
            return Provider(valid=valid, models=_joined(own, self._config.models, usual), trouble=trouble)
        models = _joined(own, listed.models, self._config.models)
        return Provider(valid=valid, models=models, checked_at=listed.checked_at, trouble=trouble)

    def _backends(self, options: SendOptions) -> dict[str, BackendSettings]:
        config, env = self._config, options.env
        override = env.get("PYAGENTD_BACKEND") if env else config.backend_override
        names = [config.backend(override, env).name] if override else list(config.backends)
        return {name: config.backend(name, env) for name in names}

    def _is_fresh(self, backend: BackendSettings, options: SendOptions) -> bool:
        now, listed = self._clock.now(), (self._lists or {}).get(backend.name)
        refused = self._refused.get((backend.name, _key_mark(backend, options)))
        for tried in (self._troubles.get(backend.name), refused):
            if tried is not None and now - tried[0] < AGAIN:
                return True
        if refused is not None:  # this key may have been mended since
            return False
        if listed is None or not listed.valid or listed.server != _address(backend):
            return False
        try:
            return now - datetime.fromisoformat(listed.checked_at) < FRESH
        except (ValueError, TypeError):
            return False

    async def _ask(self, backend: BackendSettings, options: SendOptions) -> None:
        """Have a provider list its models, and note what it says; what goes wrong is noted too."""
        name, now, trouble = backend.name, self._clock.now(), ""
        assert self._lists is not None  # they are read before anybody is asked
        at, server, mark = iso8601(now), _address(backend), (backend.name, _key_mark(backend, options))
        try:
            async with asyncio.timeout(LIMIT_S):
                models = await list_models(name, server_of(backend, options))
            self._lists[name] = ModelList(valid=True, models=models, checked_at=at, server=server)
            self._refused.pop(mark, None)
        except NoKey as error:  # another client may have another key
            log.info("models of %s: %s", name, error.message)
            self._refused[mark] = now, error.message
            return
        except TimeoutError:
            trouble = f"it did not answer within {LIMIT_S:g} s"
        except PyagentdError as error:
            trouble = error.message
        if trouble:
            log.info("models of %s: %s", name, trouble)
            self._troubles[name] = now, trouble
        else:
            self._troubles.pop(name, None)


def _joined(*parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in parts for name in part))


def _address(backend: BackendSettings) -> str:
    """Return where a provider's server is, without the name and the password that the address may have."""
    parts = urlsplit(backend.base_url or "")
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _key_mark(backend: BackendSettings, options: SendOptions) -> str:
    """Return what tells the key of a client from others and does not say it."""
    return hashlib.sha256((key_of(backend.key_env, options) or "").encode(errors="replace")).hexdigest()


def _has_key(backend: BackendSettings, options: SendOptions) -> bool:
    if backend.kind == "offline" or backend.key_env is None:
        return True
    return bool((key_of(backend.key_env, options) or "").strip())
