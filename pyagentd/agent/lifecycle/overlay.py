"""The effective configuration of a named agent: its preset with what its ``agent.json`` says laid over (DD-32).

Whoever asks gets what the file says now: the guard before every decision, a run before every request. A file that
cannot be read is an error and never ignored, since it may be what holds the agent back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyagentd.errors import NotFound, PresetError, StoreError
from pyagentd.policy.presets import Keys, Preset
from pyagentd.policy.profiles import Profile
from pyagentd.store import named_agents
from pyagentd.store.named_agents import AgentFile
from pyagentd.store.paths import BranchRef

_REMEMBERED = 64  # files

_Stamp = tuple[int, int, int]


class Overlay:
    """What the configuration files of all named agents say.

    Args:
        root: The agents root.
        profiles: The user's own profiles by name, which a file may name beside the built-in ones.
    """

    def __init__(self, root: Path, profiles: Mapping[str, Profile]) -> None:
        self._root = root.resolve()
        self._profiles = profiles
        self._known: dict[Path, tuple[_Stamp, AgentFile, Mapping[str, Any]]] = {}

    def is_named(self, ref: BranchRef) -> bool:
        """Return whether ``ref`` is a branch of a named agent; its sub-agents are not."""
        return not ref.is_agent and ref.session_dir.parent == self._root

    def directory(self, ref: BranchRef) -> Path | None:
        """Return the directory of the named agent whose branch ``ref`` is, None of everything else."""
        return ref.session_dir if self.is_named(ref) else None

    def laid(self, preset: Preset, ref: BranchRef) -> Preset:
        """Return ``preset`` with what the agent's file says; as it is when ``ref`` is no named agent's.

        Raises:
            PresetError: The file is missing or malformed, or names what is not there.
            StoreError: The disk refused.
        """
        if not self.is_named(ref):
            return preset
        return replace(preset, **self._read(ref.session_dir)[1])

    def file(self, ref: BranchRef) -> AgentFile:
        """Return the file of the named agent whose branch ``ref`` is; raises as ``laid``."""
        return self._read(ref.session_dir)[0]

    def _read(self, directory: Path) -> tuple[AgentFile, Mapping[str, Any]]:
        path = named_agents.agent_file(directory)
        try:
            status = path.stat()
        except FileNotFoundError as error:
            raise PresetError(f"{path} is missing", mend="Restore it: it says what the agent may do") from error
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror or error}") from error
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._known.get(directory)
        if known is None or known[0] != stamp:
            try:
                file = named_agents.read(directory)
            except NotFound as error:
                raise PresetError(error.message, mend=error.mend) from error
            known = (stamp, file, overlaid(file, self._profiles))
            while len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[directory] = known
        return known[1], known[2]


def overlaid(file: AgentFile, profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """Return the fields of a preset that ``file`` sets.

    Raises:
        PresetError: A value is of the wrong kind, or there is no such profile.
    """
    fields: dict[str, Any] = {}
    if file.system_prompt is not None:
        fields["body"] = file.system_prompt.strip()
    if file.model is not None:
        backend, _, fields["model"] = file.model.rpartition("/")
        fields |= {"backend": backend} if backend else {}
    if file.permissions is not None:
        fields["profile"] = profile_of(file.permissions, profiles, source=str(file.path))
    return fields


def profile_of(
    permissions: str | Mapping[str, Any], profiles: Mapping[str, Profile], *, source: str
) -> Profile | str | None:
    """Return the profile that ``permissions`` name or write out: ``{"allow": [REGEX…], "ask": [REGEX…]}``.

    Raises:
        PresetError: There is no profile of that name, or an expression is none; names ``source``.
    """
    return Keys({"permissions": permissions}, source).profile("permissions", "permissions", profiles)
