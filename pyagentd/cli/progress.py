"""What a waiting user sees: a spinner that says what the run is waiting for.

On stderr and on a terminal only; ``rich`` is imported when there is first something to show.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyagentd.cli.output import printable

if TYPE_CHECKING:
    from rich.status import Status

_TEXTS = {"busy": "Waiting for the model…", "waiting": "Waiting for an answer to a question…"}


class Progress:
    """The spinner; hidden while text is being printed."""

    def __init__(self) -> None:
        self._enabled = sys.stdout.isatty() and sys.stderr.isatty()
        self._state = _TEXTS["busy"]
        self._agents: dict[str, str] = {}
        self._todo = ""
        self._status: Status | None = None

    def state(self, status: Mapping[str, Any]) -> None:
        """Take note of a ``status`` event."""
        state = str(status.get("state"))
        if state == "retrying":
            self._state = retrying(status)
        elif state == "busy" and status.get("tools"):
            self._state = f"Running {', '.join(status['tools'])}…"
        elif state == "busy" and status.get("phase") == "COMPACT":
            self._state = "Compacting the conversation…"
        else:
            self._state = _TEXTS.get(state, self._state)

    def agent(self, agent: Mapping[str, Any]) -> None:
        """Take note of an ``agent`` event; the words are those of the overlay in Emacs (SPEC 000)."""
        name = f"{agent.get('preset')}: {agent.get('description')}"
        match agent.get("state"):
            case "finished":
                self._agents.pop(str(agent["id"]), None)
            case "tool":
                self._agents[str(agent["id"])] = f"{name} — Calling Tools... (+{agent.get('count') or 0})"
            case _:
                self._agents[str(agent["id"])] = f"{name} — Waiting..."

    def todo(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Take note of a ``todo`` event."""
        done = sum(item["status"] == "completed" for item in items)
        doing = next((item["active_form"] for item in items if item["status"] == "in_progress"), "")
        self._todo = f"todo {done}/{len(items)}{f': {doing}' if doing else ''}" if items else ""

    def show(self) -> None:
        """Show or update the spinner."""
        if not self._enabled:
            return
        text = "\n".join(filter(None, [self._todo, *(self._agents.values() or [self._state])]))
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        from rich.text import Text

        self._status.update(Text(printable(text)))

    def hide(self) -> None:
        """Take the spinner away."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def retrying(status: Mapping[str, Any]) -> str:
    """Return what a ``retrying`` status says: the failed attempt, when the next one is, and why."""
    attempt, most, retry_at = status.get("attempt"), status.get("max_attempts"), status.get("retry_at")
    which = f" ({attempt} of {most} failed)" if attempt and most else ""
    when = ""
    if retry_at:
        due = datetime.fromtimestamp(retry_at / 1000).astimezone()
        when = f" at {due:%H:%M:%S}"
    return " ".join(filter(None, (f"Retrying{which}{when}…", status.get("message"))))
