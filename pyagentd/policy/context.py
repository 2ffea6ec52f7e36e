"""The rules that hold for one decision."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyagentd.policy.presets import Preset
from pyagentd.policy.profiles import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The rules that hold for one decision, read anew for each."""

    preset: Preset
    interactive: bool  # a human can be asked
    profile: Profile | None = None  # None: every action, and a tool's ``confirm`` decides
    ancestor_denies: tuple[str, ...] = ()  # ``paths.deny`` of every session above an agent (DD-7)
    ancestor_commands: tuple[str, ...] = ()  # ... and their ``shell_commands.deny``
    ancestor_profiles: tuple[
        Profile, ...
    ] = ()  # ... and their profiles: what one of them denies, an agent may not do
    ancestor_read_only: bool = False  # ... and whether one of them only looks, see ``readonly``
    protected: tuple[str, ...] = ()  # the daemon's own places, never written by a tool
    readable: tuple[str, ...] = ()  # in the read scope besides the preset's: the run's own spooled output
    grants: tuple[re.Pattern[str], ...] = ()  # match a whole action that then needs no confirmation: --allow
    remembered: tuple[re.Pattern[str], ...] = ()  # the same, given by a human as answer to an ask
    allow_once: frozenset[str] = frozenset()  # what a human allowed, exactly: ``guard.once_key``
