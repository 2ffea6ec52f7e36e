"""A mission looked over without running it (SPEC 004 Dry Run Mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyagentd.mission import checks
from pyagentd.mission.step import Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What ``delegate`` would refuse.

    Attributes:
        problems: Each as the failure it would be; empty when the mission can run.
    """

    problems: tuple[Fail, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the mission can run."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return "\n".join(f"{each.reason}: {each.message}" for each in self.problems) or "nothing stands against it"


def validate(prompt: str, **options: Any) -> Validation:
    """Return what stands against ``delegate(prompt, **options)``: all of it, not only the first problem.

    Looked at are placeholders, signatures, names and kinds of tools, the context's types, the registry of models,
    and with ``signature_validation="strict"`` tools without a contract. Nothing is called; ``llm`` may be left out.
    """
    return Validation(problems=tuple(checks.problems(prompt, **options)))
