"""Where the events of a run go: a terminal or pipe as text, or one JSON object a line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pyagentd.cli.output import dim, note, print_json, shown
from pyagentd.cli.progress import Progress
from pyagentd.cli.stream import Piece, Transcript
from pyagentd.events import Event

_POSITIONAL: Mapping[str, tuple[str, ...]] = {"insert": ("text", "role"), "prompt": ("text", "place")}


class View(Protocol):
    """Shows a run."""

    def show(self, event: Event) -> None:
        """Show one event."""
        ...

    def idle(self) -> None:
        """Nothing has come for a moment."""
        ...

    def pause(self) -> None:
        """Leave the last line finished and the terminal to somebody else; also at the end."""
        ...


class JsonView:
    """One event a line."""

    def show(self, event: Event) -> None:
        """Print ``event``."""
        print_json(event_object(event))

    def idle(self) -> None:
        """Do nothing."""

    def pause(self) -> None:
        """Do nothing."""


class TextView:
    """The answer as it comes on stdout; what the wait is for on stderr."""

    def __init__(self) -> None:
        self._transcript = Transcript()
        self._progress = Progress()

    def show(self, event: Event) -> None:
        """Print what ``event`` adds."""
        match event.kind, event.args:
            case "insert", (str() as text, role):
                self._print(text, role)
            case "tool", (Mapping() as call,):
                self._write(self._transcript.tool(str(call.get("summary") or call.get("name"))))
            case "status", (Mapping() as status,):
                self._progress.state(status)
            case "todo", (Mapping() as todo,):
                self._progress.todo(todo.get("items") or ())
            case "agent", (Mapping() as agent,):
                self._progress.agent(agent)
            case "notice", (Mapping() as notice,):
                self.pause()
                note(str(notice.get("text", "")))

    def idle(self) -> None:
        """Show what the wait is for, unless a line is being written."""
        if self._transcript.at_line_start:
            self._progress.show()

    def pause(self) -> None:
        """Finish the line."""
        self._progress.hide()
        for piece in self._transcript.end():
            sys.stdout.write(piece.text)
        sys.stdout.flush()

    def _print(self, text: str, role: Any) -> None:
        self._write(self._transcript.insert(text, role))

    def _write(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._progress.hide()
            said = shown(piece.text, sys.stdout)
            sys.stdout.write(dim(said, sys.stdout) if piece.style == "dim" else said)
        sys.stdout.flush()


def event_object(event: Event) -> dict[str, Any]:
    """Return ``event`` as the object ``--json`` prints: ``kind``, ``branch``, ``seq`` and its arguments by name.

    An argument whose name is taken (an ask names the branch that asks, which may be an agent's) gets ``event_`` in
    front of the envelope's: ``{"branch": asker, "event_branch": shown on}``.
    """
    envelope: dict[str, Any] = {"kind": str(event.kind), "branch": event.branch, "seq": event.seq}
    if names := _POSITIONAL.get(event.kind):
        return envelope | dict(zip(names, event.args, strict=False))
    arguments: dict[str, Any] = event.args[0] if event.args and isinstance(event.args[0], dict) else {}
    clashes = envelope.keys() & arguments.keys()
    return {(f"event_{name}" if name in clashes else name): value for name, value in envelope.items()} | arguments
