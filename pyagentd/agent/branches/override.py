"""Local Variables that the user changed: an override of the preset for that branch (DD-38).

The block at the end of a document says what gptel's user would see: model, backend, tools, temperature, maximum
tokens. What we wrote there last is recorded; a value that differs from it was put there by somebody else and holds
for the branch's runs until it is kept (written to ``preset.md``) or dropped. A value that is missing says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyagentd.policy.aliases import canonical_tool
from pyagentd.policy.presets import Preset
from pyagentd.store.local_variables import Settings

FIELDS = ("model", "backend", "tools", "temperature", "max_tokens")

Override = Mapping[str, Any]
"""Values that the user set, by the names in ``FIELDS``."""


def settings_of(preset: Preset) -> Settings:
    """Return what the document's Local Variables say about a preset, in gptel's terms (DD-2)."""
    return Settings(
        model=preset.model or None,
        backend=preset.backend,
        tools=preset.tools,
        temperature=preset.temperature,
        max_tokens=preset.max_tokens,
    )


def find_override(block: Settings, written: Settings | None, preset: Preset) -> Override:
    """Return what the user set.

    Args:
        block: What the document says.
        written: What we wrote there last; None when we never did.
        preset: The branch's configuration; what is as it says is no override.
    """
    own = settings_of(preset)
    base = own if written is None else written
    return {
        name: getattr(block, name)
        for name in FIELDS
        if getattr(block, name) is not None
        and getattr(block, name) != getattr(base, name)
        and getattr(block, name) != getattr(own, name)
    }


def overridden(preset: Preset, override: Override) -> Preset:
    """Return the preset that holds for a run of a branch with this override."""
    values = dict(override)
    if "tools" in values:
        values["tools"] = tuple(canonical_tool(name) for name in values["tools"])
    return replace(preset, **values)


def merged(found: Settings, seen: Settings | None, wanted: Settings) -> Settings:
    """Return ``wanted`` with what was changed in the file since it was ``seen``, where ``found`` is there now."""
    if seen is None:
        return wanted
    changed = {
        name: getattr(found, name)
        for name in FIELDS
        if getattr(found, name) is not None and getattr(found, name) != getattr(seen, name)
    }
    return replace(wanted, **changed)


def to_json(settings: Settings) -> dict[str, Any]:
    """Return the settings as the session's metadata keep them."""
    values = {name: getattr(settings, name) for name in FIELDS}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def from_json(data: Mapping[str, Any] | None) -> Settings | None:
    """Return what ``to_json`` made, None for None."""
    if data is None:
        return None
    tools = data.get("tools")
    return Settings(
        model=data.get("model"),
        backend=data.get("backend"),
        tools=None if tools is None else tuple(tools),
        temperature=data.get("temperature"),
        max_tokens=data.get("max_tokens"),
    )
