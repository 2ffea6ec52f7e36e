"""Somebody who watches a branch and makes its text of what is told, as Emacs does; ``editor`` writes it, too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyagentd.events import Event, InsertRole, Kind
from pyagentd.store.document.files import apply
from pyagentd.store.document.render import Insert
from pyagentd.store.document.text import PROMPT_PREFIX, Document, Span, body_sha256

Said = list[Any]


class Client:
    """A client that shows a branch.

    Attributes:
        branch: The name of the branch that it watches, "" for none.
        seq: What the daemon had recorded when it attached.
        shown: The document as it is shown, with its roles.
        is_stale: Whether somebody edited the document since: it is to be read again.
        events: All that it was told since.
        ends: How often it was told of the end of each run.
    """

    name = "a client"
    human = True

    def __init__(self) -> None:
        self.branch = ""
        self.seq = 0
        self.shown = Document()
        self.is_stale = False
        self.events: list[Event] = []
        self.ends: Counter[str] = Counter()
        self.marker = 0

    @property
    def text(self) -> str:
        """The text that is shown."""
        return self.shown.body

    def watch(self, shown: Document, answer: Mapping[str, Any]) -> None:
        """Begin with a text and with what the daemon answered to its hash; what was told meanwhile follows."""
        self.branch, self.seq, self.shown = answer["branch"], answer["seq"], shown
        if answer["roles"] is not None:
            self.shown = replace(self.shown, spans=_spans(answer["roles"]))
        self.marker = len(self.text) if answer["marker"] is None else answer["marker"] - 1
        for _, inserted, role in answer["inserts"]:
            self._insert(inserted, role)
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
            case "prompt", (str(text), place):
                if place is None:
                    self.marker = len(self.text)
                elif place["sha256"] == body_sha256(self.text):
                    self.marker = place["position"] - 1
                if not self.text.endswith(PROMPT_PREFIX, 0, self.marker):
                    text = f"\n\n{PROMPT_PREFIX}{text}" if self.text else PROMPT_PREFIX + text
                self._insert(text, None)
            case "compacting", (place,) if not self.is_stale:
                self.marker = place["position"] - 1
                if place["sha256"] != body_sha256(self.text):
                    self.marker = self.text.rindex(place["behind"]) + len(place["behind"])
            case "fired", (fired,) if fired["sha256"] == body_sha256(self.text):
                self.marker = fired["position"] - 1
            case "changed", _:
                self.is_stale = True
            case "roles", (roles,) if roles["sha256"] == body_sha256(self.text):
                self.shown = replace(self.shown, spans=_spans(roles["spans"]))
                if roles.get("marker"):
                    self.marker = roles["marker"] - 1

    def _insert(self, text: str, role: Any) -> None:
        self.shown, self.marker = apply(self.shown, self.marker, Insert(text, _role(role), "", 0))


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
