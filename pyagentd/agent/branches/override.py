"""Local Variables that the user changed: an override of the preset for that branch (DD-38).

The block at the end of a document says what gptel's user would see: model, backend, tools, temperature, maximum
tokens. What we wrote there last is recorded; a value that differs from it was put there by somebody else and holds
for the branch's runs until it is kept (written to ``preset.md``) or dropped. A value that is missing says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyagentd.policy.action import canonical_tool, is_ours
from pyagentd.policy.presets import Preset
from pyagentd.store.document.text import Settings

FIELDS = ("model", "backend", "tools", "temperature", "max_tokens")

_GPTELS = re.compile(r"(?!mcp__)[^:*\s]+")  # neither a server's tool nor a name for several

Override = Mapping[str, Any]
"""Values that the user set, by the names in ``FIELDS``."""


def settings_of(preset: Preset) -> Settings:
    """Return what a preset says, in gptel's terms; ``printed`` is what of it the document has (DD-2)."""
    return Settings(
        model=preset.model or None,
        backend=preset.backend,
        tools=preset.tools,
        temperature=preset.temperature,
        max_tokens=preset.max_tokens,
    )


def printed(settings: Settings) -> Settings:
    """Return what the document's Local Variables say of a preset's ``settings``: of the tools those gptel can have.

    Stock gptel warns of each that it does not know, and ours it cannot have. None that it can have is no word about
    tools.
    """
    if settings.tools is None:
        return settings
    tools = tuple(name for name in settings.tools if not is_ours(name) and _GPTELS.fullmatch(name))
    return replace(settings, tools=tools or None)


def find_override(block: Settings, written: Settings | None, preset: Preset) -> Override:
    """Return what the user set.

    Args:
        block: What the document says.
        written: What we wrote there last; None when we never did.
        preset: The branch's configuration; what is as it says is no override.
    """
    own = settings_of(preset)
    known = (own, printed(own) if written is None else written)
    return {
        name: getattr(block, name)
        for name in FIELDS
        if getattr(block, name) is not None
        and not any(_same(getattr(block, name), getattr(settings, name)) for settings in known)
    }


def _same(said: Any, known: Any) -> bool:
    # gptel writes nil where none of its own tools is on.
    return bool(said == known or (said == () and known is None))


def effective(preset: Preset, override: Override) -> Settings:
    """Return what the document's Local Variables say of a branch with this override."""
    holds = settings_of(overridden(preset, override))
    return holds if "tools" in override else printed(holds)


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
