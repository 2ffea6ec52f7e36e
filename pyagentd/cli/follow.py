"""Following a run to its end: events to the view, asks to the user, Ctrl-C and time-outs to the right action.

One loop, nothing concurrent: events, the keyboard and Ctrl-C are looked at in turn, ten times a second at least.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from click import ClickException

from pyagentd.cli.ask import AskPrompt, Reply, edited
from pyagentd.cli.interrupt import Interrupts
from pyagentd.cli.output import note
from pyagentd.cli.views import View
from pyagentd.errors import BadRequest, NotFound, StoreError
from pyagentd.events import Event

if TYPE_CHECKING:
    from pyagentd.wire.client import DaemonClient

_TICK_S = 0.1
_ASKING_TICK_S = 0.01  # the keyboard is waited for instead
_SECOND_THOUGHTS_S = 2.0  # how long a second Ctrl-C turns detaching into aborting
_ABORT_S = 5.0

Reason = Literal["done", "error", "aborted", "restart", "detached", "timeout", "canceled"]


class Ending(NamedTuple):
    """Why following ended; ``detached`` and ``timeout`` leave the run going."""

    reason: Reason
    message: str = ""
    interrupted: bool = False  # by Ctrl-C


class Follower:
    """Follows one run.

    Args:
        link: Attached to the branch.
        branch: Its key.
        run_id: The run; None while its message is queued.
        view: Where its events go.
        human: Put asks to the user at this terminal.
        queued: The message whose run is followed, while it waits and there is none.
        asks: Those that wait for the user already.
    """

    def __init__(
        self,
        link: DaemonClient,
        branch: str,
        run_id: str | None,
        view: View,
        *,
        human: bool,
        queued: str | None = None,
        asks: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self._link = link
        self._branch = branch
        self._run_id = run_id
        self._view = view
        self._queued = queued
        self._human = human
        self._asks: deque[Mapping[str, Any]] = deque()  # the first one is on the screen
        self._prompt = AskPrompt()
        self._seq = 0
        for ask in asks if human else ():
            self._put(ask)

    def follow(self, timeout_s: float | None = None) -> Ending:
        """Show the run until it ends, the user leaves it, or ``timeout_s`` have passed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            with Interrupts() as interrupts:
                ending = self._until(deadline, lambda: interrupts.count > 0)
                if ending is None and interrupts.count:
                    ending = self._interrupted(interrupts)._replace(interrupted=True)
        finally:
            self._view.pause()
        return ending or Ending("timeout", f"No end after {timeout_s:g} s; the run goes on")

    def _until(self, deadline: float | None, stop: Callable[[], bool] = lambda: False) -> Ending | None:
        """Follow until the run's end; None when the deadline or ``stop`` comes first."""
        while not stop() and (deadline is None or time.monotonic() < deadline):
            if ending := self._turn():
                return ending
        return None

    def _turn(self) -> Ending | None:
        # One event a turn: a fast stream must not keep us from the keyboard.
        event = next(self._link.events(_ASKING_TICK_S if self._asks else _TICK_S), None)
        ending = self._take(event) if event else None
        if self._asks and not ending:
            self._poll_reply()
        elif event is None:
            self._view.idle()
        return ending

    def _take(self, event: Event) -> Ending | None:
        if event.branch == self._branch and event.seq:
            self._seq = event.seq
        if self._queued is not None:
            return self._wait(event, self._queued)
        self._view.show(event)
        match event.kind, event.args:
            case "run", ({"id": run_id, "phase": "finished", "reason": reason, **rest},) if run_id == self._run_id:
                return Ending(reason, str(rest.get("message") or ""))
            case "ask", ({"id": _} as ask,) if self._human:
                self._put(ask)
            case "answered", ({"id": ask_id},):
                self._withdraw(ask_id)
            case "resync", _:
                return self._resync()
        return None

    def _wait(self, event: Event, queued: str) -> Ending | None:
        """Look out for the run that answers the queued message; what others are told is not shown."""
        match event.kind, event.args:
            case "run", ({"id": run_id, "phase": "started", "message_id": message},) if message == queued:
                self._run_id, self._queued = run_id, None
                self._view.show(event)
            case "queue", ({"gone": {"id": message, "why": why} as gone},) if message == queued:
                if why == "canceled":
                    return Ending("canceled")
                self._run_id, self._queued = gone.get("run"), None
            case "status", ({"state": "error", **rest},):
                return Ending("error", str(rest.get("message") or ""))
            case "resync", _:
                return self._resync()
        return None

    # Asks

    def _put(self, ask: Mapping[str, Any]) -> None:
        if any(known["id"] == ask["id"] for known in self._asks):
            return
        self._asks.append(ask)
        if len(self._asks) == 1:
            self._view.pause()
            self._prompt.put(ask, self._branch)

    def _withdraw(self, ask_id: str) -> None:
        if self._asks and self._asks[0]["id"] == ask_id:
            note("answered elsewhere")
            self._next_ask()
        else:
            self._asks = deque(ask for ask in self._asks if ask["id"] != ask_id)

    def _next_ask(self) -> None:
        self._asks.popleft()
        if self._asks:
            self._prompt.put(self._asks[0], self._branch)

    def _poll_reply(self) -> None:
        if reply := self._prompt.poll(_TICK_S):
            try:
                self._answer(self._asks[0], reply)
            except NotFound as error:  # by somebody else, just now
                note(str(error))
            except (BadRequest, StoreError, ClickException) as error:
                note(str(error))
                self._prompt.put(self._asks[0], self._branch)
                return
            self._next_ask()

    def _answer(self, ask: Mapping[str, Any], reply: Reply) -> None:
        arguments = edited(ask) if reply.decision == "edit" else None
        if reply.decision == "edit" and arguments is None:
            raise BadRequest("Nothing was edited")
        decision = "allow" if reply.decision == "edit" else reply.decision
        self._link.call(
            "answer", ask=ask["id"], decision=decision, reason=reply.reason, input=arguments, answers=reply.answers
        )

    # Leaving

    def _interrupted(self, interrupts: Interrupts) -> Ending:
        self._view.pause()
        note("detached; the run goes on (Ctrl-C again aborts it)")
        until = time.monotonic() + _SECOND_THOUGHTS_S
        while interrupts.count < 2 and time.monotonic() < until:
            event = next(self._link.events(_TICK_S), None)
            if event and event.kind == "run" and (ending := self._take(event)):
                return ending
        if interrupts.count < 2:
            return Ending("detached")
        self._link.call("abort", branch=self._branch)
        return self._until(time.monotonic() + _ABORT_S) or Ending("aborted")

    def _resync(self) -> Ending | None:
        """Catch up after the daemon dropped what we were too slow for."""
        state = self._link.call("attach", branch=self._branch, seq=self._seq, mode="view")
        for seq, text, role in state.get("inserts") or ():
            self._view.show(Event("insert", self._branch, seq, (text, role)))
            self._seq = seq
        for ask in state.get("asks") or () if self._human else ():
            self._put(ask)
        match state["status"]:
            case {"state": "idle"}:
                return Ending("done")
            case {"state": "error", **rest}:
                return Ending("error", str(rest.get("message") or ""))
        return None
