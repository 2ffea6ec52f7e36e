"""The end of a background agent, as its parent is told."""

from __future__ import annotations

from dataclasses import dataclass

from pyagentd.agent.delegating.spawn import result_of
from pyagentd.agent.running.outcome import Outcome


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


def agents_in(row: dict[str, object]) -> tuple[str, ...]:
    """Return the agents whose ends a message tells, from its row."""
    metadata = row.get("metadata_json")
    found = metadata.get("agents") if isinstance(metadata, dict) else None
    return tuple(found) if isinstance(found, list) else ()
