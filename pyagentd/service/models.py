"""Operations on models: which can be had, and which one answers in a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyagentd.agent.host import Host
from pyagentd.agent.lifecycle import configuring
from pyagentd.agent.lifecycle.models import Checked
from pyagentd.agent.running.settings import SendOptions, configured_provider, provider_of
from pyagentd.agent.triggering.triggers import local_user
from pyagentd.agent.turns.turnagent import answers_next
from pyagentd.events import Event
from pyagentd.policy.presets import DEFAULT_PRESET, Preset
from pyagentd.service.group import Client, Group
from pyagentd.service.options import send_options
from pyagentd.store import paths, presetfile
from pyagentd.store.modellists import FILE_NAME

Env = Mapping[str, str] | Sequence[Any]


class ModelOperations(Group):
    """Models and who has them."""

    async def models(
        self, client: Client, *, refresh: bool = False, env: Env = (), key: str | None = None
    ) -> dict[str, Any]:
        """Return the providers with their models, as a run of this client could have them: ``{providers, file}``.

        Each has ``name``, ``valid`` (there is a key for it, which was not refused), ``models``, ``checked_at`` (when
        it listed them; nil: it has not, and these are known by name), ``trouble`` (why not, or nil) and ``stand_in``
        (no model answers there: it is for trying things out). A list that is younger than a day is not asked for
        again, unless with ``refresh``.
        """
        found = await self._host.models.look(send_options(client, env, key, ()), refresh=refresh)
        told = [
            {
                "name": name,
                "valid": each.valid,
                "models": list(each.models),
                "checked_at": each.checked_at,
                "trouble": each.trouble or None,
                "stand_in": each.stand_in,
            }
            for name, each in found.items()
        ]
        return {"providers": told, "file": str(self._host.config.sessions_dir / FILE_NAME)}

    async def model(
        self, client: Client, *, branch: str, model: str | None = None, env: Env = (), key: str | None = None
    ) -> dict[str, Any]:
        """Return which model answers in a conversation, or have it be ``model`` from the next request on.

        Of a named agent that is written to ``agent.json``, of others to ``preset.md``. The answer is ``{model,
        backend, note}``; ``note``: what is to be said of a model that could not be checked, or nil.
        """
        host, ref, options = self._host, self._ref(branch), send_options(client, env, key, ())
        note = ""
        if model is not None:
            checked = await checked_model(host, host.presets.of_branch(ref), model, options)
            note = checked.note
            if host.named.is_named(ref):
                await configuring.change(host, ref.session_dir.name, "model", checked.model, user=local_user())
            else:
                provider, _, name = checked.model.rpartition("/")
                with host.origins.keeping(ref):
                    values = {"model": name} | ({"backend": provider} if provider else {})
                    presetfile.set_values(paths.preset_file(ref.branch_dir), values)
            if (live := host.opened(ref.key)) is not None:
                live.publish(Event("notice", live.key, 0, ({"text": f"The model is {checked.model} from now on"},)))
        async with host.using(ref) as live:
            preset = answers_next(host, live, options)
        return {"model": preset.model, "backend": provider_of(preset, host.config, options), "note": note or None}


async def checked_model(host: Host, preset: Preset | None, model: str, options: SendOptions) -> Checked:
    """Return a model that a person gives a conversation with this preset, None for that of a new agent.

    Raises:
        BadRequest, ConfigError: See ``Models.checked``.
    """
    own = preset or host.presets.template(DEFAULT_PRESET)[0]
    return await host.models.checked(model, options, backend=configured_provider(own, host.config, options))
