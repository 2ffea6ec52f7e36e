"""The audit's way to disk: noted in memory by whoever decides, written in batches by a thread of its own.

A decision never waits for the disk, and nothing that was noted is lost while the daemon lives: what the disk refuses
stays in the queue and is tried again with the next batch. ``close`` writes the rest.
"""

from __future__ import annotations

import logging
import os
import pwd
import threading
from collections import deque
from dataclasses import dataclass

from pyagentd.clock import Clock, epoch_ms
from pyagentd.errors import StoreError
from pyagentd.store.db import audit
from pyagentd.store.db.audit import Decided, Entry
from pyagentd.store.db.state import Damaged, State

log = logging.getLogger(__name__)

BATCH_S = 0.2  # decisions are gathered for so long
MOST_WAITING = 100_000  # entries that a disk which refuses leaves in memory; beyond this the oldest go to the log


class Ledger:
    """The audit of one daemon; its thread begins with the first entry.

    Args:
        state: The database; closed by somebody else, after ``close``.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: deque[Entry] = deque()
        self._wake = threading.Condition()
        self._begun = self._ended = 0  # attempts to write a batch
        self._hurry = False  # somebody waits for the batch
        self._closing = False
        self._thread: threading.Thread | None = None
        self._problem = ""

    def note(self, entry: Entry) -> None:
        """Take ``entry``; returns at once."""
        with self._wake:
            self._waiting.append(entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="audit", daemon=True)
                self._thread.start()
            elif len(self._waiting) == 1 or self._problem:  # otherwise it gathers already
                self._wake.notify()

    def flush(self) -> str:
        """Have everything noted so far written; return why that failed, or "". Blocks, for a thread."""
        with self._wake:
            if self._thread is None or not self._waiting:
                return ""
            until = self._begun + 1  # an attempt that has begun may lack the last entries
            self._hurry = True
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._ended >= until or self._closing or not self._waiting)
            return self._problem if self._waiting else ""

    def close(self) -> None:
        """Write what is left and end the thread; blocks for as long."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        closing = False
        while not closing:
            batch, closing = self._gathered()
            written = self._write(batch)
            with self._wake:
                for _ in batch if written else ():
                    self._waiting.popleft()
                self._ended += 1
                self._wake.notify_all()
                if not written and not closing:
                    self._await_another_try()

    def _gathered(self) -> tuple[list[Entry], bool]:
        """Wait for entries and return them, and whether they are the last."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closing)
            if not self._closing:
                self._wake.wait_for(lambda: self._hurry or self._closing, BATCH_S)
            self._hurry = False
            self._begun += 1
            return list(self._waiting), self._closing

    def _await_another_try(self) -> None:
        """Wait for the next entry, or for somebody who wants to read."""
        while len(self._waiting) > MOST_WAITING:
            log.error("audit entry that the disk never took: %s", self._waiting.popleft())
        known = len(self._waiting)
        self._wake.wait_for(lambda: self._closing or self._hurry or len(self._waiting) != known)

    def _write(self, batch: list[Entry]) -> bool:
        try:
            try:
                audit.append(self._state, batch)
            except Damaged:  # there is a new file now
                audit.append(self._state, batch)
        except StoreError as error:
            self._note_problem(str(error), len(batch))
        except Exception as error:  # the edge of this thread: the audit must not end with one entry
            log.exception("the audit could not be written")
            self._note_problem(f"{type(error).__name__}: {error}", len(batch))
        else:
            self._problem = ""
            return True
        return False

    def _note_problem(self, problem: str, entries: int) -> None:
        if problem != self._problem:
            log.error("the audit is not on disk (%d entries wait): %s", entries, problem)
        self._problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWitness:
    """Notes the decisions of one run."""

    ledger: Ledger
    clock: Clock
    session: str  # id of the session at the root of the tree
    branch_dir: str  # as in the audit
    agent: str | None
    run_id: str
    user: str | None = None  # who began the run; None: nobody did, it was due

    def __call__(
        self,
        tool: str,
        action: str,
        decision: Decided,
        rule: str,
        reason: str = "",
        by: str | None = None,
        *,
        change: str | None = None,
    ) -> None:
        """Note one decision (see ``audit.Entry``); ``change`` is its ``detail``."""
        entry = Entry(
            at_ms=epoch_ms(self.clock.now()),
            session=self.session,
            branch_dir=self.branch_dir,
            agent=self.agent,
            run_id=self.run_id,
            tool=tool,
            action=action,
            decision=decision,
            rule=rule,
            reason=reason,
            by=by,
            detail=change,
            user=self._answered_by(by),
        )
        self.ledger.note(entry)

    def _answered_by(self, client: str | None) -> str | None:
        """Return the user who decided, or began the run; whoever answers is the one whose daemon this is."""
        return self.user if client is None else local_user()


def local_user() -> str:
    """Return the login name of the user whose daemon this is: nobody else reaches it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
