"""The end of a background agent, as its parent is told; and who remembers that somebody is to be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyagentd.agent.run import Outcome
from pyagentd.agent.spawn import result_of
from pyagentd.store.paths import BranchRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The end of an agent, for its parent."""

    id: str
    description: str
    outcome: Outcome

    @property
    def text(self) -> str:
        """What the parent's model reads."""
        state = {"done": "finished", "aborted": "was aborted", "error": "failed"}[self.outcome.reason]
        return f"Background agent {self.id} ({self.description}) {state}:\n\n{result_of(self.outcome).text}"


class Hints(Protocol):
    """Remembers, beside the logs, which branches to open when the daemon starts."""

    def note(self, branch: BranchRef, kind: str, id: str) -> None:
        """Remember that ``branch`` waits for something."""

    def forget(self, branch: BranchRef, kind: str, id: str) -> None:
        """Forget it again."""


def agents_in(row: dict[str, object]) -> tuple[str, ...]:
    """Return the agents whose ends a message tells, from its row."""
    metadata = row.get("metadata_json")
    found = metadata.get("agents") if isinstance(metadata, dict) else None
    return tuple(found) if isinstance(found, list) else ()
