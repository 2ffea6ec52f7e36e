"""Operations on the defaults of named agents (SPEC 003 Session Persistence Summary: server defaults)."""

from __future__ import annotations

import asyncio
from typing import Any

from pyagentd.agent.lifecycle import defaults
from pyagentd.errors import BadRequest
from pyagentd.service.group import Client, Group


class Settings(Group):
    """What holds for agents where nobody says otherwise."""

    async def settings(
        self, client: Client, *, key: str | None = None, value: Any = None, reset: bool = False
    ) -> dict[str, Any]:
        """Return the settings, or set ``key`` to ``value``, or with ``reset`` to its default.

        The answer is ``{settings, defaults}``: what holds and what would, each with ``default_model`` (nil: that of
        the preset), ``default_permissions`` and ``idle_timeout`` (seconds, 0 never; also given as 45min, 2h, never).
        """
        host = self._host
        if key is not None and key not in defaults.DEFAULTS:
            raise BadRequest(f"{key[:40]!r} is no setting", mend=f"Known: {', '.join(defaults.DEFAULTS)}")
        if key is None and (value is not None or reset):
            raise BadRequest("No key is given", mend=f"Known: {', '.join(defaults.DEFAULTS)}")
        if key is not None and (value is not None or reset):
            wanted = None if reset else defaults.checked(host, key, value)
            await asyncio.to_thread(defaults.put, host, key, wanted)
        return {"settings": await asyncio.to_thread(defaults.read, host), "defaults": dict(defaults.DEFAULTS)}
