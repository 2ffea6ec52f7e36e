"""A mission's programs once more, without a model.

What a model wrote once for one context runs again for another: the programs of a step, in their order, until one of
them returns. Everything else is as in every mission: checking, limits, trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyagentd.errors import UserError
from pyagentd.mission.delegation import delegate
from pyagentd.mission.options import Request
from pyagentd.mission.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Programs that fulfil a contract; calling it runs them.

    Attributes:
        programs: The source of each turn that had a program and did not fail.
        signature: What they return, or None.
    """

    programs: tuple[str, ...]
    signature: str | None = None

    def __call__(self, context: Any = None, **options: Any) -> Step:
        """Run them over ``context``; ``options`` are those of ``delegate``, ``tools`` above all."""
        asked = {"signature": self.signature, "max_turns": len(self.programs), **options}
        return delegate("(run again)", llm=self._llm(), context=context, **asked)

    def _llm(self) -> Callable[[Request], str]:
        left = iter(self.programs)

        def answer(request: Request) -> str:
            return f"```clojure\n{next(left)}\n```"

        return answer


def compiled(step: Step) -> Compiled:
    """Return the programs of ``step``, a success, for other contexts.

    Raises:
        UserError: The step failed, or it has no programs.
    """
    programs = tuple(turn.program for turn in step.trace if turn.program and turn.error is None)
    if not step.ok or not programs:
        raise UserError("Only a mission that succeeded has programs worth running again")
    return Compiled(programs=programs, signature=step.signature)
