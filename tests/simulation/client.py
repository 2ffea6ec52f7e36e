"""Somebody who watches a branch and makes its text of what is told, as Emacs does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pyagentd.events import Event, Kind
from pyagentd.store.document import PROMPT_PREFIX, body_sha256

Said = list[Any]


class Client:
    """A client that shows a branch.

    Attributes:
        branch: The name of the branch that it watches, "" for none.
        seq: What the daemon had recorded when it attached.
        text: The document as it is shown.
        events: All that it was told since.
        ends: How often it was told of the end of each run.
    """

    name = "a client"
    human = True

    def __init__(self) -> None:
        self.branch = ""
        self.seq = 0
        self.text = ""
        self.events: list[Event] = []
        self.ends: Counter[str] = Counter()
        self._marker = 0

    def watch(self, text: str, answer: Mapping[str, Any]) -> None:
        """Begin with a text and with what the daemon answered to its hash; what was told meanwhile follows."""
        self.branch, self.seq, self.text = answer["branch"], answer["seq"], text
        self._marker = len(text) if answer["marker"] is None else answer["marker"] - 1
        for _, inserted, _ in answer["inserts"]:
            self._insert(inserted)
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
            case "insert", (str(text), _):
                self._insert(text)
            case "prompt", (str(text), place):
                if place is None:
                    self._marker = len(self.text)
                elif place["sha256"] == body_sha256(self.text):
                    self._marker = place["position"] - 1
                if not self.text.endswith(PROMPT_PREFIX, 0, self._marker):
                    text = f"\n\n{PROMPT_PREFIX}{text}" if self.text else PROMPT_PREFIX + text
                self._insert(text)
            case "compacting", (place,):
                self._marker = place["position"] - 1
                if place["sha256"] != body_sha256(self.text):
                    self._marker = self.text.rindex(place["behind"]) + len(place["behind"])
            case "roles", (roles,) if roles.get("marker") and roles["sha256"] == body_sha256(self.text):
                self._marker = roles["marker"] - 1

    def _insert(self, text: str) -> None:
        self.text = self.text[: self._marker] + text + self.text[self._marker :]
        self._marker += len(text)


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
