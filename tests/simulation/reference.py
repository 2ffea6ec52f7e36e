"""What the model sees, computed from the log alone and in the plainest way: the reference for every request.

Written from the shape of the rows, and not from the product: no document, no alignment, no caches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyagentd.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult

Data = dict[str, Any]


@dataclass
class Log:
    """The last row of everything, messages in the order in which they were said."""

    messages: dict[str, Data] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)  # ids by message
    rows: dict[str, Data] = field(default_factory=dict)  # of parts
    run_rows: list[tuple[str, Data]] = field(default_factory=list)
    began: dict[str, int] = field(default_factory=dict)  # the row with which each run began
    order: list[str] = field(default_factory=list)  # messages of people, as they were answered
    answered: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, file: Path) -> Log:
        """Read ``messages.jsonl``; a torn last line is not there yet."""
        log = cls()
        for line in file.read_text("utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                row = json.loads(line)
                if row["type"] == "run":
                    log.began.setdefault(row["data"]["id"], row["seq"])
                log._take(row["type"], row["data"])
        return log

    def text(self, message: str) -> str:
        """Return what a message says."""
        return "\n\n".join(self.rows[part]["data_json"]["text"] for part in self.parts.get(message, []))

    def _take(self, kind: str, data: Data) -> None:
        match kind:
            case "message":
                self._say(data)
            case "part":
                if data["id"] not in self.rows:
                    self.parts.setdefault(data["message_id"], []).append(data["id"])
                self.rows[data["id"]] = json.loads(json.dumps(data))
            case "delta":
                part = self.rows[data["part_id"]]["data_json"]
                part["text"] = part.get("text", "") + data["text"]
            case "run":
                if data.get("kind") != "compaction" and data["id"] not in {id for id, _ in self.run_rows}:
                    self._answer(data["message_id"])
                self.run_rows.append((data["id"], data))
            case "edit":
                raise AssertionError(f"nobody edited, and the log says {data}")

    def _say(self, data: Data) -> None:
        before = self.messages.get(data["id"])
        self.messages[data["id"]] = data
        if before is not None and queued(before) and not queued(data) and not hidden(data):
            self._last(data["id"])  # it was steered in, or is about to be answered

    def _answer(self, message: str) -> None:
        if message not in self.answered:
            self.answered.add(message)
            self.order.append(message)
            self._last(message)

    def _last(self, message: str) -> None:
        self.messages[message] = self.messages.pop(message)


def hidden(message: Mapping[str, Any]) -> bool:
    """Return whether a message was rewound or cancelled."""
    return bool(message["metadata_json"].get("hidden_at"))


def queued(message: Mapping[str, Any]) -> bool:
    """Return whether a message waits."""
    return bool(message["metadata_json"].get("queued_at"))


def changes(log: Log) -> frozenset[str]:
    """Return what changed the view other than at its end: the messages hidden since they were said, and markers."""
    gone = {
        id for id, row in log.messages.items() if hidden(row) and not row["metadata_json"].get("queue_canceled_at")
    }
    markers = {row["id"] for row in log.rows.values() if row["type"] == "data-compaction"}
    return frozenset(gone | markers)


@dataclass(frozen=True)
class Unit:
    """A message of a person, a step of an answer, or a marker; ``parts`` are rows."""

    message: Data
    parts: tuple[Data, ...]

    @property
    def marker(self) -> Data | None:
        """What it says if it is a compaction."""
        first = self.parts[0] if self.parts else None
        data: Data | None = first["data_json"] if first and first["type"] == "data-compaction" else None
        return data


def view(log: Log) -> tuple[Message, ...]:
    """Return what the model sees."""
    units, summary, pruned = _after_compaction(_units(log))
    said: list[tuple[Role, list[Part]]] = [("user", [Text(text=summary)])] if summary else []
    for unit in units:
        if hidden(unit.message) or unit.marker:
            continue
        for role, parts in _said(unit, pruned):
            if parts and said and said[-1][0] == role:
                said[-1][1].extend(parts)
            elif parts:
                said.append((role, parts))
    return tuple(Message(role=role, parts=tuple(parts)) for role, parts in said)


def _units(log: Log) -> list[Unit]:
    """Return everything that was said, in its order, hidden or not; a marker made within an answer stands there."""
    units: list[Unit] = []
    for message in log.messages.values():
        rows = [log.rows[part] for part in log.parts.get(message["id"], [])]
        steps = [tuple(step) for step in _steps(rows)] if message["role"] == "assistant" else [tuple(rows)]
        made = [Unit(message, step) for step in steps]
        after = message["metadata_json"].get("after")
        if queued(message):
            continue
        place = next((n for n, unit in enumerate(units) if after in {row["id"] for row in unit.parts}), None)
        at = len(units) if place is None else place + 1
        units[at:at] = made
    return units


def _after_compaction(units: list[Unit]) -> tuple[list[Unit], str, set[str]]:
    """Return what the last compaction left, its summary as the model reads it, and whose output is not shown."""
    markers = [unit for unit in units if unit.marker and not hidden(unit.message)]
    if not markers:
        return units, "", set()
    last = max(markers, key=lambda unit: unit.message["id"])
    data = last.marker or {}
    facts = data.get("metadata", {})
    start = units.index(last) + 1
    if data["tail_start_id"] is not None:
        within = [n for n, unit in enumerate(units) if unit.message["id"] == data["tail_start_id"]]
        step = facts.get("tail_start_part_id")
        exact = [n for n in within if step in {row["id"] for row in units[n].parts}]
        start = (exact or within or [start])[0]
    summary = f"<conversation_summary>\n{data['summary']}\n</conversation_summary>" if data["summary"] else ""
    return units[start:], summary, set(facts.get("pruned", ()))


def _said(unit: Unit, pruned: set[str]) -> Iterator[tuple[Role, list[Part]]]:
    if unit.message["role"] == "user":
        yield "user", [Text(text="\n\n".join(row["data_json"]["text"] for row in unit.parts))]
    else:
        yield from _step(unit.parts, pruned)


def _steps(parts: Iterable[Data]) -> Iterator[list[Data]]:
    """Yield the parts of each request's answer, the ``step-start`` with which it begins included."""
    step: list[Data] = []
    for part in parts:
        if part["type"] == "step-start" and step:
            yield step
            step = []
        step.append(part)
    yield step


def _step(parts: Iterable[Data], pruned: set[str]) -> Iterator[tuple[Role, list[Part]]]:
    said: list[Part] = []
    results: list[Part] = []
    for part in parts:
        data = part["data_json"]
        if part["type"] == "text" and data["text"].strip():
            said.append(Text(text=data["text"]))
        elif part["type"] == "reasoning":
            signature = data.get("providerMetadata", {}).get("anthropic", {}).get("signature")
            if signature:
                said.append(Reasoning(text=data["text"], signature=signature))
        elif part["type"].startswith("tool-"):
            said.append(ToolCall(id=data["toolCallId"], name=part["type"][5:], input=data["input"]))
            result = _result(data)
            if part["id"] in pruned:
                stub = f"<output pruned, ~{(len(result.text) + 3) // 4} tokens>"
                result = ToolResult(id=result.id, text=stub, is_error=result.is_error)
            results.append(result)
    while said and isinstance(said[-1], Reasoning):
        said.pop()
    yield "assistant", said
    yield "user", results


def _result(data: Data) -> ToolResult:
    match data.get("state"):
        case "output-available":
            return ToolResult(id=data["toolCallId"], text=data["output"])
        case "output-error":
            return ToolResult(id=data["toolCallId"], text=data["errorText"], is_error=True)
    return ToolResult(id=data["toolCallId"], text="aborted", is_error=True)
