"""Somebody who watches a branch and makes its text of what is told, as Emacs does; ``editor`` writes it, too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyagentd.events import Event, InsertRole, Kind
from pyagentd.store.document.files import Edit, Hunk, apply, apply_edit, offset_after
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import Document, Span

Said = list[Any]


class Client:
    """A client that shows a branch.

    Attributes:
        branch: The name of the branch that it watches, "" for none.
        seq: What the daemon had recorded when it attached.
        shown: The document as it is shown, with its roles.
        revision: Which state of the document that is.
        own: The edit that it is making.
        events: All that it was told since.
        ends: How often it was told of the end of each run.
    """

    name = "a client"
    human = True

    def __init__(self) -> None:
        self.branch = ""
        self.seq = 0
        self.shown = Document()
        self.revision = 0
        self.own: Edit = ()
        self.events: list[Event] = []
        self.ends: Counter[str] = Counter()
        self.marker = 0

    @property
    def text(self) -> str:
        """The text that is shown."""
        return self.shown.body

    def watch(self, answer: Mapping[str, Any]) -> None:
        """Begin with what the daemon answered to a client without a text; what was told meanwhile follows."""
        self.branch, self.seq, self.revision = answer["branch"], answer["seq"], answer["revision"]
        for _, hunks in answer["edits"]:
            self._change(_edit(hunks))
        self.shown = replace(self.shown, spans=_spans(answer["roles"]))
        self.marker = len(self.text) if answer["marker"] is None else answer["marker"] - 1
        for event in self.events:
            self._show(event)

    def push(self, event: Event) -> None:
        """Take one event."""
        self.events.append(event)
        if event.kind == "run" and event.args[0]["phase"] == "finished":
            self.ends[event.args[0]["id"]] += 1
        if self.branch:
            self._show(event)

    def reset(self, branch: str, seq: int) -> None:
        """Nothing is kept for sending later."""

    def check(self) -> None:
        """What it was told is in order, and every run ended once."""
        numbers = [event.seq for event in self.events if event.seq]
        assert numbers == sorted(numbers)
        assert set(self.ends.values()) <= {1}

    def _show(self, event: Event) -> None:
        match event.kind, event.args:
            case "insert", (str(text), role):
                self._insert(text, role)
            case "prompt", (_, place):
                self.marker = place["position"] - 1
                self._insert(place["insert"], None)
            case "compacting" | "fired", (place,):
                self.marker = place["position"] - 1
            case "edit", (edit,):
                self._change(self.own if edit.get("own") else _edit(edit["hunks"]))
                self.revision = edit["revision"]
            case "roles", (roles,):
                self.shown = replace(self.shown, spans=_spans(roles["spans"]))
                self.revision = roles["revision"]
                if roles.get("marker"):
                    self.marker = roles["marker"] - 1

    def _change(self, edit: Edit) -> None:
        self.shown = apply_edit(self.shown, edit)
        self.marker = offset_after(self.marker, edit, before=True)

    def _insert(self, text: str, role: Any) -> None:
        self.shown, self.marker = apply(self.shown, self.marker, Insert(text, _role(role), "", 0))
        self.revision += len(text)


def _edit(hunks: Iterable[tuple[int, int, str, Any]]) -> Edit:
    """Return an edit as it is told."""
    return tuple(Hunk(begin - 1, end - 1, text, _spans(roles or ())) for begin, end, text, roles in hunks)


def _spans(told: Iterable[tuple[int, int, Any]]) -> tuple[Span, ...]:
    """Return roles as they are told as those of a document."""
    roles = ((begin - 1, end - 1, _role(role)) for begin, end, role in told)
    return tuple(
        Span(begin, end, "tool", role[1]) if isinstance(role, tuple) else Span(begin, end, role)
        for begin, end, role in roles
        if role is not None
    )


def _role(told: Any) -> InsertRole:
    match told:
        case None:
            return None
        case (_, call_id):
            return "tool", str(call_id)
    return "ignore" if str(told) == "ignore" else "response"


def arrived(branch: str, kind: Kind, seq: int, first: str, *rest: Any) -> Event:
    """Return an event of a replay as it would have been told."""
    match kind, rest:
        case "insert", (role,):
            told = tuple(map(str, role)) if isinstance(role, list | tuple) else role and str(role)
            return Event(kind, branch, seq, (first, told))
        case "prompt", _:
            return Event(kind, branch, seq, (first,))
    return Event(kind, branch, seq, (json.loads(first),))


def lasting(events: Iterable[Event]) -> list[Said]:
    """Return what events say that is recorded, text put together wherever it was cut."""
    found: list[Said] = []
    for event in events:
        if event.kind == "insert":
            text, role = event.args
            if found and found[-1][0] == "insert" and found[-1][2] == role:
                found[-1][1] += text
            else:
                found.append(["insert", text, role])
        elif event.kind == "prompt":
            found.append(["prompt", event.args[0]])
        elif event.seq and event.kind in ("run", "ask"):
            found.append([event.kind, event.args[0]["id"], event.args[0].get("phase")])
    return found
