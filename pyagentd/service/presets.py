"""Operations on the presets that sessions and agents are made from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd.agent.missions import missiontool
from pyagentd.agent.presets import ProjectPresets, Template
from pyagentd.agent.prompting import skilltool
from pyagentd.agent.running import toolbox
from pyagentd.config import Config
from pyagentd.errors import BadRequest, ConfigError, PyagentdError, nearest
from pyagentd.policy.presets import Preset
from pyagentd.service.group import Client, Group, expanded, workplace
from pyagentd.store import presetfile
from pyagentd.tools.builtin import builtin_tools

_SHOWN_BYTES = 300_000  # of the texts of all presets in one answer
_DESCRIPTION = 500  # characters of one, as far as they are told

TOOLS = frozenset({*builtin_tools(), *toolbox.NAMES, skilltool.NAME, "request_scope_expansion"})  # that there are
_KEYS = (
    "backend", "model", "description", "mode", "temperature", "max-tokens", "thinking", "tools",
    "include-tool-results", "paths", "shell-commands", "org-roam-patterns", "result", "caller", "read-only",
    "profile", "permissions", "max-turns", "time-budget", "token-budget", "signature", "prompt", "isolation",
)  # fmt: skip

_log = logging.getLogger(__name__)


class PresetTemplates(Group):
    """Presets of the package, the user and the project."""

    async def presets(self, client: Client, *, root: str | None = None) -> dict[str, Any]:
        """Return the presets for sessions in the project ``root``; a broken one with its ``error``.

        The answer is ``{presets: (P…), untrusted: (P…)}``. P is ``{name, source, origin, description, mode}`` or, of
        a broken one, ``{name, source, origin, error}``; ``origin`` is shipped, user or project. ``untrusted`` are
        presets of the project that wait for the user's word; they have a ``hash``, for ``trust-presets``, and their
        ``text`` with that of the scripts that their servers run, as far as there is room. A ``warning`` tells what a
        preset names that is not there.
        """
        found = await asyncio.to_thread(self._for_project, root)
        room, untrusted = _SHOWN_BYTES, []
        for template in found.found:
            if not template.trusted and template.data is not None:
                untrusted.append(await asyncio.to_thread(_told, found, template, self._host.config))
                room -= len(template.data)
                room -= sum(len(code) for _, code in template.scripts)
                if room >= 0:
                    untrusted[-1]["text"] = _shown(template.data, template.scripts)
        config = self._host.config
        usable = await asyncio.to_thread(lambda: [_told(found, each, config) for each in found.usable.values()])
        return {"presets": usable, "untrusted": untrusted}

    async def trust_presets(self, client: Client, *, root: str, hashes: Sequence[str]) -> dict[str, Any]:
        """Trust presets of the project ``root`` by their ``hash``; the answer names those ``trusted`` now.

        What has changed since the hash was told, or is broken, is not trusted.
        """
        found = await asyncio.to_thread(self._for_project, root)
        wanted = [template for template in found.found if template.hash in hashes and not template.trusted]
        unknown = set(hashes) - {template.hash for template in found.found}
        if unknown:
            raise BadRequest(
                f"{expanded(root)} has no preset with the hash {min(unknown)}",
                mend="It has changed since: look at it again (pyagentd presets)",
            )
        await asyncio.to_thread(lambda: [found.read(template) for template in wanted])
        self._host.presets.trust.add(template.hash for template in wanted if template.hash)
        for template in wanted:
            _log.info("%s trusts the preset %s (%s)", client.name, template.file, template.hash)
        return {"trusted": [template.name for template in wanted]}

    def _for_project(self, root: str | None) -> ProjectPresets:
        place = expanded(root) if root else None
        return self._host.presets.for_project(workplace(str(place)) if place and place.is_dir() else place)


def _shown(data: bytes, scripts: Sequence[tuple[Path, bytes]]) -> str:
    files = (f"\n--- {path}\n{code.decode(errors='replace')}" for path, code in scripts)
    return "".join((data.decode(errors="replace"), *files))


def _told(found: ProjectPresets, template: Template, config: Config) -> dict[str, Any]:
    row: dict[str, Any] = {"name": template.name, "source": str(template.file), "origin": template.origin}
    if template.hash is not None:
        row["hash"] = template.hash
    try:
        preset = found.read(template)
        if preset.signature:
            missiontool.promised(preset)
        data = presetfile.content(template.file, links=True) if template.data is None else template.data
        misspelt = _misspelt(presetfile.decoded(data, template.file).front)
    except PyagentdError as error:
        return {**row, "error": str(error)}
    row |= {"description": preset.description[:_DESCRIPTION], "mode": preset.mode}
    warning = "; ".join([*_doubts(preset, config), *misspelt])
    return {**row, "warning": warning} if warning else row


def _misspelt(front: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys that mean nothing and look much like one that does."""
    for key in map(str, front):
        if (dashed := key.replace("_", "-")) not in _KEYS and (meant := nearest(dashed, _KEYS, cutoff=0.8)):
            yield f"`{key}` is no key; is `{meant}` meant?"


def _doubts(preset: Preset, config: Config) -> Iterator[str]:
    """Yield what a preset names and is not there: no error, since another machine may have it."""
    if unknown := [tool for tool in preset.tools if tool not in TOOLS]:
        yield f"there is no tool {', '.join(unknown)}"
    try:
        config.backend(preset.backend)
    except ConfigError as error:
        yield error.message
