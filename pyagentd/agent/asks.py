"""Questions to a human: asked once, answered once, shown where somebody looks.

An ask belongs to the run that needs the answer and is shown on that run's branch and on the root of its tree, so
that a sub-agent's question is never hidden behind its parent (DESIGN §7). The first answer wins; aborting a run
answers all its asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pyagentd.errors import NotFound
from pyagentd.events import Event

Decision = Literal["allow", "deny", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the human decided, and why if they said."""

    decision: Decision
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One open question."""

    id: str
    run_id: str
    branches: tuple[str, ...]  # where it is shown: the asking branch first, then the root of its tree
    row: Mapping[str, Any]  # the `ask` row as recorded; also what clients are told
    future: asyncio.Future[Answer]


class AskBoard:
    """All open questions of the daemon."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self._publish = publish
        self._open: dict[str, Ask] = {}

    def post(self, *, seq: int, run_id: str, branches: tuple[str, ...], row: Mapping[str, Any]) -> Ask:
        """Show a recorded ask (``row``, at ``seq`` of the first branch) and return it, to wait for its answer."""
        ask = Ask(
            id=str(row["id"]),
            run_id=run_id,
            branches=branches,
            row=row,
            future=asyncio.get_running_loop().create_future(),
        )
        self._open[ask.id] = ask
        for branch in branches:
            self._publish(Event("ask", branch, seq if branch == branches[0] else 0, (dict(row),)))
        return ask

    def answer(self, ask_id: str, answer: Answer) -> bool:
        """Settle an ask; return whether this answer was the first.

        Raises:
            NotFound: No ask with this id is open.
        """
        ask = self._open.pop(ask_id, None)
        if ask is None:
            raise NotFound(f"No question {ask_id} is open", mend="It may have been answered elsewhere")
        first = not ask.future.done()
        if first:
            ask.future.set_result(answer)
        for branch in ask.branches:
            self._publish(Event("answered", branch, 0, ({"id": ask.id, "decision": answer.decision},)))
        return first

    def abort_run(self, run_id: str) -> None:
        """Answer every open ask of a run with ``abort``."""
        for ask in [a for a in self._open.values() if a.run_id == run_id]:
            self.answer(ask.id, Answer(decision="abort"))

    def open_for(self, branch: str) -> list[Mapping[str, Any]]:
        """Return the rows of the asks shown on ``branch``, oldest first."""
        return [ask.row for ask in self._open.values() if branch in ask.branches]

    def all(self) -> list[Mapping[str, Any]]:
        """Return the rows of all open asks, oldest first."""
        return [ask.row for ask in self._open.values()]
