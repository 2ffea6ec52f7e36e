"""Questions to a human: asked once, answered once, shown where somebody looks.

An ask belongs to the run that needs the answer and is shown on that run's branch and on the root of its tree, so
that a sub-agent's question is never hidden behind its parent (DESIGN §7). The first answer wins and is recorded
before anybody acts on it; aborting a run answers all its asks. A daemon that stops leaves them open in the log, and
the next one asks them again under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyagentd.errors import NotFound, StoreError
from pyagentd.events import Event

Decision = Literal["allow", "session", "always", "answer", "deny", "abort"]

_REMEMBERED = 512  # settled asks


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the human decided.

    Attributes:
        decision: ``session`` and ``always`` allow and remember what the ask offered; ``answer`` is to a question of
            the model's; ``abort`` stops the run.
        reason: Why, if they said; the model is told.
        input: Edited arguments of the call as JSON text; None: as the model gave them.
        answers: To the model's questions, a list of words for each; None when it asked none.
        by: The client through which it came, "" when it was none.
    """

    decision: Decision
    reason: str = ""
    input: str | None = None
    answers: tuple[tuple[str, ...], ...] | None = None
    by: str = ""


def _no_record(answer: Answer) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One open question."""

    id: str
    run_id: str
    branches: tuple[str, ...]  # where it is shown: the asking branch first, then the root of its tree
    row: Mapping[str, Any]  # the `ask` row as recorded; also what clients are told
    future: asyncio.Future[Answer]
    record: Callable[[Answer], object] = field(default=_no_record)


class AskBoard:
    """All open questions of the daemon."""

    def __init__(self, publish: Callable[[Event], None]) -> None:
        self._publish = publish
        self._open: dict[str, Ask] = {}
        self._settled: dict[str, Answer] = {}  # the last ones, oldest first

    def post(
        self,
        *,
        seq: int,
        run_id: str,
        branches: tuple[str, ...],
        row: Mapping[str, Any],
        record: Callable[[Answer], object] = _no_record,
    ) -> Ask:
        """Show an ask and return it, to wait for its answer.

        Args:
            seq: The number of ``row`` in the log of the first branch.
            run_id: Who waits for it.
            branches: Where it is shown.
            row: It as recorded.
            record: Called with the answer, before anybody learns of it.
        """
        future = asyncio.get_running_loop().create_future()
        ask = Ask(id=str(row["id"]), run_id=run_id, branches=branches, row=row, future=future, record=record)
        self._open[ask.id] = ask
        for branch in branches:
            self._publish(Event("ask", branch, seq if branch == branches[0] else 0, (dict(row),)))
        return ask

    def has(self, ask_id: str) -> bool:
        """Return whether an ask is open."""
        return ask_id in self._open

    def knows(self, ask_id: str) -> bool:
        """Return whether an ask is open, or was settled lately."""
        return ask_id in self._open or ask_id in self._settled

    def get(self, ask_id: str) -> Ask:
        """Return an open ask.

        Raises:
            NotFound: No ask with this id is open; says what became of it, as far as that is known.
        """
        if (ask := self._open.get(ask_id)) is not None:
            return ask
        settled = self._settled.get(ask_id)
        if settled is None:
            raise NotFound(f"No question {ask_id} is open", mend="It may have been answered elsewhere")
        if settled.decision == "abort":
            raise NotFound(f"The run that asked {ask_id} was stopped; nobody waits for the answer")
        by = f" by {settled.by}" if settled.by else ""
        raise NotFound(f"The question {ask_id} was answered already{by}: {settled.decision}")

    def answer(self, ask_id: str, answer: Answer) -> bool:
        """Settle an ask; return whether this answer was the first.

        Raises:
            NotFound: No ask with this id is open.
        """
        ask = self.get(ask_id)
        del self._open[ask_id]
        first = not ask.future.done()
        try:
            ask.record(answer)
        except StoreError as error:  # the run ends with it: what is not recorded does not happen
            if first:
                ask.future.set_exception(error)
        else:
            if first:
                ask.future.set_result(answer)
        self.note_settled(ask_id, answer)
        for branch in ask.branches:
            told = {"id": ask.id, "decision": answer.decision, "by": answer.by or None}
            self._publish(Event("answered", branch, 0, (told,)))
        return first

    def note_settled(self, ask_id: str, answer: Answer) -> None:
        """Remember for a while what became of an ask, for whoever answers it late."""
        self._settled[ask_id] = answer
        while len(self._settled) > _REMEMBERED:
            del self._settled[next(iter(self._settled))]

    def abort_run(self, run_id: str) -> None:
        """Answer every open ask of a run with ``abort``."""
        for ask in self.of_run(run_id):
            self.answer(ask.id, Answer(decision="abort"))

    def drop(self, ask: Ask) -> None:
        """Settle an ask for which nobody waits any more with ``abort``, unless it is settled."""
        if self._open.get(ask.id) is ask:
            self.answer(ask.id, Answer(decision="abort"))

    def leave_run(self, run_id: str) -> None:
        """Wait for the answers of a run no longer: they stay open in the log, for the next daemon."""
        for ask in self.of_run(run_id):
            del self._open[ask.id]
            ask.future.cancel()

    def of_run(self, run_id: str) -> list[Ask]:
        """Return the open asks of a run, oldest first."""
        return [ask for ask in self._open.values() if ask.run_id == run_id]

    def open_for(self, branch: str) -> list[Mapping[str, Any]]:
        """Return the rows of the asks shown on ``branch``, oldest first."""
        return [ask.row for ask in self._open.values() if branch in ask.branches]

    def within(self, directory: str) -> list[Mapping[str, Any]]:
        """Return the rows of the asks of branches in ``directory``, oldest first."""
        return [ask.row for ask in self._open.values() if ask.branches[0].startswith(f"{directory}/")]

    def all(self) -> list[Mapping[str, Any]]:
        """Return the rows of all open asks, oldest first."""
        return [ask.row for ask in self._open.values()]
