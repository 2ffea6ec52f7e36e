"""Where the user's own instructions and skills are.

They are beside ``config.toml``, where Claude Code keeps them, and wherever ``[skills] paths`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyagentd.config.file import ConfigFile

KEYS = frozenset({"paths"})  # of [skills]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlaces:
    """Places of the user's own; none of them need exist."""

    instructions: tuple[Path, ...] = ()  # files; the first that exists counts
    skills: tuple[Path, ...] = ()  # directories of the user's skills
    more_skills: tuple[Path, ...] = ()  # those that the configuration names


def own_places(file: ConfigFile, env: Mapping[str, str]) -> OwnPlaces:
    """Return the places for a process with this configuration and environment."""
    directory, home = file.path.parent, env.get("HOME")
    claude = (Path(home) / ".claude",) if home else ()
    named = (directory.joinpath(Path(text).expanduser()) for text, _ in file.texts("skills", "paths"))
    return OwnPlaces(
        instructions=(directory / "AGENTS.md", *(each / "CLAUDE.md" for each in claude)),
        skills=(directory / "skills", *(each / "skills" for each in claude)),
        more_skills=tuple(named),
    )
