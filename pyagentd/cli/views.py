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


class Noting:
    """What every view notes of a run.

    Attributes:
        denied: Calls that were denied because nobody could be asked, as ``denied`` events say.
        message_id: The prompt that the last run that began answers.
    """

    def __init__(self) -> None:
        self.denied: list[Mapping[str, Any]] = []
        self.message_id: str | None = None

    def note(self, event: Event) -> None:
        """Take note of ``event``."""
        match event.kind, event.args:
            case "denied", (Mapping() as call,):
                self.denied.append(call)
            case "run", ({"phase": "started", "message_id": str(message)},):
                self.message_id = message


class ResultView(Noting):
    """Nothing until the end."""

    def show(self, event: Event) -> None:
        """Take note of ``event``."""
        self.note(event)

    def idle(self) -> None:
        """Do nothing."""

    def pause(self) -> None:
        """Do nothing."""


class JsonView(ResultView):
    """One event a line."""

    def show(self, event: Event) -> None:
        """Print ``event``."""
        self.note(event)
        print_json(event_object(event))


class TextView(Noting):
    """The answer as it comes on stdout; what the wait is for on stderr.

    Into a pipe or a file stdout holds the answer alone; what the model does goes to stderr.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: set[str] = set()
        self._terminal = sys.stdout.isatty()
        self._transcript = Transcript(apart=not self._terminal)
        self._progress = Progress()

    def show(self, event: Event) -> None:
        """Print what ``event`` adds."""
        self.note(event)
        match event.kind, event.args:
            case "insert", (str() as text, role):
                self._print(text, role)
            case "tool", (Mapping() as call,) if call.get("id") not in self._calls:
                self._calls.add(str(call.get("id")))
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
            stream = sys.stderr if piece.style == "dim" and not self._terminal else sys.stdout
            said = shown(piece.text, stream)
            stream.write(dim(said, stream) if piece.style == "dim" else said)
        sys.stdout.flush()
        sys.stderr.flush()


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
