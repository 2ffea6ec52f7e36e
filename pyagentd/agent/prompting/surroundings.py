"""Where a session works: its workspace root, and what the system prompt tells about it.

Environment, project instructions and the list of skills are made once per session and kept in its log, so that the
prefix which a provider caches stays the same from the first request to the last; a compaction, which begins a new
prefix anyway, has them made anew (``renew``). Nothing that a log says gives a right: what of a skill may be read
follows from where it is found now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.prompting.instructions import find_instructions
from pyagentd.agent.prompting.prompt import environment
from pyagentd.agent.prompting.skills import Skills, find_skills, shipped_skills
from pyagentd.agent.turns.turnagent import TAKEN_OVER
from pyagentd.clock import Clock
from pyagentd.config import Config
from pyagentd.config.locations import OwnPlaces
from pyagentd.events import Event


class Home(Protocol):
    """What of the host is needed here."""

    config: Config

    @property
    def clock(self) -> Clock:
        """The time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where one session works, as its system prompt tells it."""

    root: Path
    environment: str
    instructions: str = ""
    skills: Mapping[str, str]  # descriptions by name


async def surroundings(home: Home, branch: LiveBranch) -> Surroundings:
    """Return where a session works; found and recorded when its first run needs it."""
    metadata = branch.conversation.session.get("metadata_json", {})
    if any(name not in metadata for name in TAKEN_OVER):
        await _record(home, branch, keep=metadata)
    session = branch.conversation.session
    metadata = session["metadata_json"]
    return Surroundings(
        root=Path(session["workspace_root"]),
        environment=str(metadata["environment"]),
        instructions=str(metadata["instructions"]),
        skills={str(name): str(said) for name, said in dict(metadata["skills"]).items()},
    )


async def renew(home: Home, branch: LiveBranch) -> None:
    """Look again where a session works, and record it: to be called when its conversation is compacted."""
    await _record(home, branch, keep={})


async def workspace_root(home: Home, branch: LiveBranch) -> Path:
    """Return a session's workspace root."""
    return (await surroundings(home, branch)).root


def skills_of(config: Config, root: Path | None) -> Skills:
    """Return the skills that there are now for sessions in ``root``; blocks."""
    own: OwnPlaces = config.own
    return find_skills(root, user=own.skills, shipped=shipped_skills(), config=own.more_skills)


async def _record(home: Home, branch: LiveBranch, *, keep: Mapping[str, Any]) -> None:
    """Record what is found; of what was recorded before, the facts in ``keep`` stay."""
    root = Path(branch.conversation.session.get("workspace_root") or Path.home())  # one that was made without us
    found, notes = await asyncio.to_thread(_look, home, root)
    kept = {name: keep[name] for name in TAKEN_OVER if name in keep}
    branch.record_session(workspace_root=root, metadata={**found, **kept})
    for note in notes:
        branch.publish(Event("notice", branch.key, 0, ({"text": note},)))


def _look(home: Home, root: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    instructions, skills = find_instructions(root, home.config.own.instructions), skills_of(home.config, root)
    found = {
        "environment": environment(root, home.clock.now()),
        "instructions": instructions.text,
        "skills": {skill.name: skill.description for skill in skills.found.values()},
    }
    return found, (*instructions.notes, *skills.notes)
