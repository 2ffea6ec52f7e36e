"""Operations on the defaults of named agents (SPEC 003 Session Persistence Summary: server defaults)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pyagentd.agent.lifecycle import defaults
from pyagentd.agent.lifecycle.creating import MODEL_SETTING
from pyagentd.errors import BadRequest
from pyagentd.service.group import Client, Group
from pyagentd.service.models import checked_model
from pyagentd.service.options import send_options


class Settings(Group):
    """What holds for agents where nobody says otherwise."""

    async def settings(
        self,
        client: Client,
        *,
        key: str | None = None,
        value: Any = None,
        reset: bool = False,
        env: Mapping[str, str] | Sequence[Any] = (),
        api_key: str | None = None,
    ) -> dict[str, Any]:
        """Return the settings, or set ``key`` to ``value``, or with ``reset`` to its default.

        The answer is ``{settings, defaults}``: what holds and what would, each with ``default_model`` (nil: that of
        the preset), ``default_permissions`` and ``idle_timeout`` (seconds, 0 never; also given as 45min, 2h, never).
        ``note``: what is to be said of a model that could not be checked with the client's ``env`` and ``api_key``.
        """
        host, note = self._host, ""
        if key is not None and key not in defaults.DEFAULTS:
            raise BadRequest(f"{key[:40]!r} is no setting", mend=f"Known: {', '.join(defaults.DEFAULTS)}")
        if key is None and (value is not None or reset):
            raise BadRequest("No key is given", mend=f"Known: {', '.join(defaults.DEFAULTS)}")
        if key is not None and (value is not None or reset):
            if key == MODEL_SETTING and value and not reset:
                checked = await checked_model(host, None, str(value), send_options(client, env, api_key, ()))
                value, note = checked.model, checked.note
            wanted = None if reset else defaults.checked(host, key, value)
            await asyncio.to_thread(defaults.put, host, key, wanted)
        held = await asyncio.to_thread(defaults.read, host)
        return {"settings": held, "defaults": dict(defaults.DEFAULTS), "note": note or None}
