"""What tests of the store share: a clock that stands still and a preset."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyagentd.clock import Clock
from pyagentd.store.paths import BranchRef
from pyagentd.store.sessions import create_agent, create_session

PRESET = "---\nbackend: Claude\nmodel: claude-sonnet-4-5\n---\nHelp.\n"
NOON = datetime(2026, 2, 5, 12, 30, 52, tzinfo=UTC)


class StandingClock(Clock):
    def now(self) -> datetime:
        return NOON


STAMP = NOON.astimezone().strftime("%Y%m%d%H%M%S")


def new_session(root: Path, name: str = "React Refactoring") -> BranchRef:
    return create_session(root, name, preset_name="minimal", preset_text=PRESET, clock=StandingClock())


def new_agent(parent: BranchRef, description: str = "find module", preset: str = "explorer") -> BranchRef:
    return create_agent(
        parent, preset_name=preset, preset_text=PRESET, description=description, read=["/p/**"], clock=StandingClock()
    )


def tree(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}
