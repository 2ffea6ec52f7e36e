"""Operations on the pieces an agent is made of, one at a time: its directory, its preset, the preset's paths.

For code written to the specifications, which makes agents step by step (``jf/gptel--create-agent-directory`` and its
neighbours). The product itself makes an agent whole, or not at all (``store.sessions``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyagentd import clock as ids
from pyagentd.clock import stamp
from pyagentd.errors import NotFound, PresetError, PyagentdError, StoreError
from pyagentd.log import of_session
from pyagentd.policy.patterns import validate_pattern
from pyagentd.service.group import Client, Group, expanded
from pyagentd.store import atomic, metadata, paths, presetfile, sessions

_log = logging.getLogger(__name__)

_SCOPE = ("paths", "org_roam_patterns", "shell_commands")


class Pieces(Group):
    """Directories and presets of agents."""

    async def create_agent_directory(
        self, client: Client, *, directory: str, preset: str, description: str
    ) -> dict[str, Any]:
        """Make an empty directory for an agent under the branch, or agent, in ``directory``."""
        parent = paths.ref_of(expanded(directory))
        name = ids.agent_id(preset, stamp(self._host.clock.now()), description)
        try:
            with sessions.built(paths.agents_dir(parent.branch_dir), name) as (_, place):
                pass
        except StoreError as error:
            _log.error("%s", error, extra=of_session(parent.session_dir))
            raise
        _log.info("Created agent directory: %s", place, extra=of_session(parent.session_dir))
        return {"directory": str(place)}

    async def copy_preset_template(self, client: Client, *, preset: str, directory: str) -> dict[str, Any]:
        """Make the template ``preset`` the configuration of the branch or agent in ``directory``."""
        place = _existing(directory)
        try:
            _, text = self._host.presets.template(preset)
            atomic.write_text(paths.preset_file(place), text)
        except PyagentdError as error:
            _log.error("%s", error, extra=of_session(place))
            raise
        _log.info("Copied preset template %s to %s", preset, place, extra=of_session(place))
        return {"file": str(paths.preset_file(place))}

    async def load_preset(self, client: Client, *, directory: str) -> dict[str, Any] | None:
        """Return the keys of ``preset.md`` and its body as ``system``; nil when it is missing or no preset."""
        place = expanded(directory).absolute()
        front = metadata.read_preset_metadata(place)  # logs what is wrong
        return None if front is None else {**front, "system": presetfile.read(paths.preset_file(place)).body.strip()}

    async def preset_scope(self, client: Client, *, file: str) -> dict[str, Any]:
        """Return what the preset in ``file`` (or in that directory) says about scope, and nothing else of it."""
        place = _preset(file)
        front = metadata.read_preset_metadata(place.parent)
        if front is None:
            raise PresetError(f"Failed to load preset from {place}", mend="See its front matter")
        return {key: front[key] for key in _SCOPE if key in front}

    async def update_preset_paths(
        self, client: Client, *, file: str, allowed: Sequence[str] = (), denied: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Set ``paths`` of the preset in ``file``: what may be read, and what else is denied (DD-7, DD-8)."""
        place = _preset(file)
        for pattern in (*allowed, *denied):
            validate_pattern(pattern)
        try:
            presetfile.set_paths(place, allowed, presetfile.DEFAULT_WRITE, denied)
        except PyagentdError as error:
            _log.error("%s", error, extra=of_session(place.parent))
            raise
        if paths.scope_plan_file(place.parent).exists():
            metadata.touch_scope_plan(place.parent, self._host.clock.now())
        return {"file": str(place)}


def _existing(directory: str) -> Path:
    place = expanded(directory).absolute()
    if not place.is_dir():
        raise NotFound(f"{directory} is no directory", mend="Make it first")
    return place


def _preset(file: str) -> Path:
    """Return the preset that ``file`` means; a directory means the one in it."""
    place = expanded(file).absolute()
    return paths.preset_file(place) if place.is_dir() else place
