"""What a human may add to the scope of a session when its model asks for it; pure.

Only the lists that allow can grow. What is denied, protected or outside the profile stays so: the decision looks at
these first, with a widening as without.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from pyagentd.policy.action import Action
from pyagentd.policy.guard import Context, once_key
from pyagentd.policy.patterns import exactly
from pyagentd.policy.presets import Preset
from pyagentd.policy.shell import ANY

Right = Literal["read", "write", "command", "pattern"]

ROAM_KEYS = ("subdirectory", "tags", "node_ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Widening:
    """Additions to one right."""

    right: Right
    patterns: tuple[str, ...]  # of paths; programs of commands; of notes ``KEY:VALUE``, see ``ROAM_KEYS``
    commands: tuple[str, ...] = ()  # whole command lines that were asked for

    def lists(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return what is added to which list of ``preset.md``: by section and key."""
        match self.right:
            case "read" | "write":
                return {("paths", self.right): self.patterns}
            case "command":
                return {("shell_commands", "allow"): self.patterns}
            case "pattern":
                found: dict[tuple[str, str], tuple[str, ...]] = {}
                for key, value in (pattern.split(":", 1) for pattern in self.patterns):
                    place = ("org_roam_patterns", key)
                    found[place] = (*found.get(place, ()), value)
                return found

    def preset(self, preset: Preset) -> Preset:
        """Return ``preset`` with the additions."""
        paths, shell, roam = preset.paths, preset.shell, preset.roam
        for (section, key), values in self.lists().items():
            match section, key:
                case "paths", "read":
                    paths = replace(paths, read=_joined(paths.read, values))
                case "paths", "write":
                    paths = replace(paths, write=_joined(paths.write, values))
                case "shell_commands", _:
                    shell = replace(shell, allow=_joined(shell.allow, values))
                case _, "subdirectory":
                    roam = replace(roam, subdirectory=_joined(roam.subdirectory, values))
                case _, "tags":
                    roam = replace(roam, tags=_joined(roam.tags, values))
                case _, "node_ids":
                    roam = replace(roam, node_ids=_joined(roam.node_ids, values))
        return replace(preset, paths=paths, shell=shell, roam=roam)

    def widen(self, context: Context, action: Action) -> Context | None:
        """Return ``context`` with the additions, as far as they concern ``action``; None when they do not.

        A file that was asked for by its very name needs no further question; one that a pattern covers does, and so
        does every command: a line that was asked for is inside the scope as it stands, and then its tool asks.
        """
        if action.kind != self.right and not (action.kind == "command" and self.right in ("read", "write")):
            return None
        named = (
            action.kind in ("read", "write")
            and len(action.paths) == 1
            and exactly(action.paths[0].resolved) in self.patterns
        )
        once = context.allow_once | {once_key(action)} if named else context.allow_once
        preset = self.preset(context.preset)
        if action.command is not None and action.command in self.commands:
            preset = replace(preset, shell=replace(preset.shell, allow=_joined(preset.shell.allow, (ANY,))))
        return replace(context, preset=preset, allow_once=once)


def _joined(had: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*had, *new)))
