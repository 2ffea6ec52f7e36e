"""A client that writes down everything it is shown, and whose user allows everything."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.wire.client import connect

_ATTEMPTS = 20


class Recorder:
    """Watches a branch and its agents over a connection of its own, in a thread, until the daemon is gone.

    Attributes:
        events: All events, as they came.
        shown: By branch, the text that was shown of each run, in pieces; a run begins with its ``run`` event.
    """

    def __init__(self, runtime_dir: Path, branch_dir: Path, on_event: Callable[[], None] = lambda: None) -> None:
        self.events: list[Event] = []
        self.shown: dict[str, list[list[str]]] = {}
        self._on_event = on_event
        self._link = connect(runtime_dir, human=True, name="recorder")
        self.daemon_pid = int(self._link.greeting["pid"])
        self._stopped = False
        self._watch(str(branch_dir))
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave; what was shown stays known."""
        self._stopped = True
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._link.close()

    def _run(self) -> None:
        with contextlib.suppress(PyagentdError):  # the daemon was killed
            while not self._stopped:
                for event in self._link.events(0.05):
                    self._take(event)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        match event.kind, event.args:
            case "insert", (text, _):
                self.shown.setdefault(event.branch, [[]])[-1].append(text)
            case "run", ({"phase": "started"},):
                self.shown.setdefault(event.branch, []).append([])
            case "agent", ({"branch_dir": place},) if place not in self.shown:
                self._watch(place)
            case "ask", ({"id": ask},):
                with contextlib.suppress(PyagentdError):
                    self._link.call("answer", ask=ask, decision="allow")
            case "resync", _:
                self._watch(event.branch, event.seq)
        self._on_event()

    def _watch(self, branch: str, seq: int | None = None) -> None:
        self.shown.setdefault(branch, [[]])
        answer = self._link.call("attach", branch=branch, seq=seq)
        self.shown[branch][-1] += [text for _, text, _ in answer["inserts"] or ()]
        for ask in answer.get("asks") or ():
            with contextlib.suppress(PyagentdError):
                self._link.call("answer", ask=ask["id"], decision="allow")
