"""The defaults that a user sets for all named agents: what a new one gets, and when one is idle (SPEC 003 settings).

They are rows of ``settings`` in ``state.db``. A new agent gets the model and the permissions of the moment it is
made; the idle timeout holds for all agents from the next look at the clock on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyagentd.agent.lifecycle import creating
from pyagentd.agent.lifecycle.creating import DEFAULT_PERMISSIONS, MODEL_SETTING, PERMISSIONS_SETTING
from pyagentd.agent.lifecycle.idling import IDLE_S, IDLE_SETTING
from pyagentd.errors import BadRequest
from pyagentd.store import atomic

if TYPE_CHECKING:
    from pyagentd.agent.host import Host

DEFAULTS: dict[str, Any] = {MODEL_SETTING: None, PERMISSIONS_SETTING: DEFAULT_PERMISSIONS, IDLE_SETTING: IDLE_S}
"""Every key with what holds where nobody set it; model None: that of the preset; idle timeout in seconds, 0 never."""

_UNITS = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|)")
_LONGEST_S = 365 * 24 * 3600


def read(host: Host) -> dict[str, Any]:
    """Return every key with what holds now; blocks."""
    if not host.config.sessions_dir.is_dir():
        return dict(DEFAULTS)
    found = {key: host.state.get(key) for key in DEFAULTS}
    return {key: DEFAULTS[key] if value is None else value for key, value in found.items()}


def checked(host: Host, key: str, value: Any) -> Any:
    """Return ``value`` as it is kept under ``key``.

    Raises:
        BadRequest: There is no such key, or the value is none for it.
        PresetError: There is no such profile.
    """
    if key not in DEFAULTS:
        raise BadRequest(f"{key[:40]!r} is no setting", mend=f"Known: {', '.join(DEFAULTS)}")
    if key == PERMISSIONS_SETTING:
        if not isinstance(value, str | Mapping):
            raise BadRequest("The permissions are no profile", mend="Give its name, or its JSON")
        return creating.checked_permissions(host, value)
    return creating.checked_model(host, str(value)) if key == MODEL_SETTING else _seconds(value)


def put(host: Host, key: str, value: Any) -> None:
    """Keep a setting, None for its default; blocks. Raises as ``State.put``."""
    atomic.make_dirs(host.config.sessions_dir)
    host.state.put(key, value)


def _seconds(value: Any) -> int:
    """Return a span: a number of seconds, or a text such as 90, 45min, 2h, never."""
    text = str(value).strip().lower()
    found = _SPAN.fullmatch("0" if text == "never" else text)
    seconds = round(float(found[1]) * _UNITS[found[2]]) if found else -1
    if not 0 <= seconds <= _LONGEST_S:
        raise BadRequest(f"{text[:40]!r} is no span of time", mend="Give seconds, or 45min, 2h, never")
    return seconds
