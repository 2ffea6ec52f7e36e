"""Asks a human for a run: records the question, shows it to clients, and waits for the answer.

A resumed run finds the questions it had asked: an unanswered one is asked again under its id, an answered one is not.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyagentd.clock import new_id
from pyagentd.errors import StoreError
from pyagentd.runtime.approvals import Answer
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.settings import SendOptions
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel

_DEFAULTS: Mapping[str, Any] = {
    "kind": "tool",
    "choices": ["allow", "deny", "abort"],
    "remember": [],
    "covers": [],
    "project": None,
    "commands": [],
    "input": None,
    "path": None,
}


class Questions:
    """Asks humans for all runs.

    Args:
        kernel: The kernel; its board has the open questions.
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._board = kernel.asks
        self._trees = kernel.trees
        self._left: dict[str, dict[str, Mapping[str, Any]]] = {}  # ``ask`` rows of earlier daemons by run and id
        self._answered: dict[str, list[str]] = {}  # by run: ids of answered questions, until their calls end

    async def ask(
        self,
        branch: LiveBranch,
        run_id: str,
        ancestors: Sequence[BranchRef],
        fields: Mapping[str, Any],
        shown: Callable[[], object] = lambda: None,
    ) -> Answer:
        """Record a question, show it on the asking branch and on the root of its tree, and wait.

        Args:
            branch: The branch that asks.
            run_id: Its run.
            ancestors: The branches above, parent first.
            fields: Fields of the ``ask`` row; missing ones get a default.
            shown: Called when the question is shown.
        """
        known = self._pop_left(run_id, fields)
        if known is not None and known["decision"] is not None:
            return Answer(
                decision=known["decision"],
                reason=known.get("decided_reason") or "",
                input=known["input"] if known["input"] != fields.get("input") else None,  # it was edited
                answers=tuple(tuple(each) for each in known["answers"]) if "answers" in known else None,
                by=known.get("decided_by") or "",
                shown=known.get("preview"),
            )
        row = _row(branch, run_id, fields, known)
        seq = branch.recorder.record("ask", row)
        await branch.recorder.commit()
        self._kernel.hints.note(branch.ref, "ask", row["id"])
        ask = self._board.post(
            seq=seq,
            run_id=run_id,
            branches=(branch.key, ancestors[-1].key) if ancestors else (branch.key,),
            row=row,
            record=lambda answer: self._record(branch, row, answer),
        )
        self._trees.on_asked(ask.id)
        shown()
        try:
            with branch.state.while_asking(), self._clocks_stopped(branch, ancestors):
                return await ask.future
        finally:
            if branch.run is None or not branch.run.suspended:
                self._board.drop(ask)

    def post(self, branch: LiveBranch, fields: Mapping[str, Any], settle: Callable[[Answer], None]) -> None:
        """Show a question for which no run waits; it is recorded only when answered, and lost with the daemon.

        Args:
            branch: The branch where it is shown.
            fields: As for ``ask``.
            settle: Called with the answer.
        """
        row = _row(branch, "", fields, None)

        def record(answer: Answer) -> None:
            if (live := self._kernel.opened(branch.key)) is not None:
                live.recorder.record("ask", _answered_row(row, answer, live.recorder.now_ms()))
            settle(answer)

        self._board.post(seq=0, run_id="", branches=(branch.key,), row=row, record=record)

    async def answer(self, ask_id: str, answer: Answer, options: SendOptions) -> bool:
        """Settle a question; return whether this answer was the first.

        Args:
            ask_id: The id of the question.
            answer: The human's answer.
            options: Environment and keys of the client that answers, for resumed runs, whose own client is gone.

        Raises:
            NotFound: It is not open; the message says how it was settled, if known.
        """
        await self._trees.awake()
        for branch in () if self._board.has(ask_id) else self._kernel.all_opened:
            row = branch.conversation.asks.get(ask_id)  # settled by an earlier daemon
            if row is not None and row["decision"] is not None:
                self._board.note_settled(ask_id, Answer(decision=row["decision"], by=row.get("decided_by") or ""))
        late = self._trees.late.get(self._board.get(ask_id).branches[-1])
        if late is not None:
            late.take(options)
        return self._board.answer(ask_id, answer)

    def go_on(self, run_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Load the questions that a resumed run had asked before."""
        self._left[run_id] = {row["id"]: row for row in rows}

    def _pop_left(self, run_id: str, fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Remove and return the row of a question that was asked before; None if it is new.

        An unanswered question is recognised by its call, an answered one only if its action is the same too.
        """
        rows = self._left.get(run_id, {})
        for ask_id, row in rows.items():
            same = all(row.get(name, "tool") == fields.get(name, "tool") for name in ("tool_call_id", "kind"))
            if same and (row["decision"] is None or row.get("action") == fields.get("action")):
                return rows.pop(ask_id)
        return None

    def close_left(self, branch: LiveBranch, run_id: str) -> None:
        """Close the questions of a run whose calls have ended, including unanswered ones that are not needed."""
        left = self._left.pop(run_id, {}).values()
        for row in [each for each in left if each["decision"] is None]:
            answer = Answer(decision="allow", reason="no question any more")
            with contextlib.suppress(StoreError):  # the end of the run closes it
                self._record(branch, row, answer)
            self._board.note_settled(row["id"], answer)
            self._trees.on_asked(row["id"])
        self.forget(branch, run_id)

    def forget(self, branch: LiveBranch, run_id: str) -> None:
        """Delete the hints of a run's answered questions, which the next daemon need not look for."""
        for ask_id in self._answered.pop(run_id, ()):
            self._kernel.hints.note(branch.ref, "ask", ask_id, waits=False)

    def _record(self, branch: LiveBranch, row: Mapping[str, Any], answer: Answer) -> None:
        """Record the answer to a question."""
        branch.recorder.record("ask", _answered_row(row, answer, branch.recorder.now_ms()))
        if answer.decision != "abort":
            self._answered.setdefault(row["run_id"], []).append(row["id"])
        else:
            self._kernel.hints.note(branch.ref, "ask", row["id"], waits=False)

    @contextlib.contextmanager
    def _clocks_stopped(self, branch: LiveBranch, ancestors: Sequence[BranchRef]) -> Iterator[None]:
        """Stop the timers of a branch's run and of the runs above it while a human is asked."""
        above = (self._kernel.opened(ref.key) for ref in ancestors)
        with contextlib.ExitStack() as stack:
            for each in (branch, *above):
                if each is not None and each.run is not None:
                    stack.enter_context(each.run.stopwatch.paused())
            yield


def _row(
    branch: LiveBranch, run_id: str, fields: Mapping[str, Any], known: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the ``ask`` row; a question that is asked again keeps its id and time."""
    return {
        "id": known["id"] if known else new_id("ask"),
        "branch": branch.key,
        "agent": branch.ref.session_id if branch.ref.is_agent else None,
        "description": str(branch.conversation.session.get("description") or "") or None,  # the agent's task
        "run_id": run_id,
        **_DEFAULTS,
        **fields,
        "decision": None,
        "created_at": known["created_at"] if known else branch.recorder.now_ms(),
    }


def _answered_row(row: Mapping[str, Any], answer: Answer, now_ms: int) -> dict[str, Any]:
    """Return the ``ask`` row with its answer."""
    return {
        **row,
        "decision": answer.decision,
        "decided_reason": answer.reason,
        "decided_by": answer.by or None,
        "decided_at": now_ms,
        "input": answer.input or row["input"],
        **({} if answer.answers is None else {"answers": [list(each) for each in answer.answers]}),
    }
