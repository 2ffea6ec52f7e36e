"""What the model sees, computed from the log alone and in the plainest way: the reference for every request.

Written from the guide (neighbours B.2 and B.3) and not from the product: no document, no alignment, no caches.
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
    order: list[str] = field(default_factory=list)  # messages of people, as they were answered
    answered: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, file: Path) -> Log:
        """Read ``messages.jsonl``; a torn last line is not there yet."""
        log = cls()
        for line in file.read_text("utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                row = json.loads(line)
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
                if data["id"] not in {id for id, _ in self.run_rows}:
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


def view(log: Log) -> tuple[Message, ...]:
    """Return what the model sees."""
    said: list[tuple[Role, list[Part]]] = []
    for role, parts in _turns(log):
        if not parts:
            continue
        if said and said[-1][0] == role:
            said[-1][1].extend(parts)
        else:
            said.append((role, parts))
    return tuple(Message(role=role, parts=tuple(parts)) for role, parts in said)


def _turns(log: Log) -> Iterator[tuple[Role, list[Part]]]:
    visible = [message for message in log.messages.values() if not hidden(message) and not queued(message)]
    visible, summary = _after_compaction(log, visible)
    for message in visible:
        parts = [log.rows[part] for part in log.parts.get(message["id"], [])]
        if message["role"] == "user":
            text = "\n\n".join(part["data_json"]["text"] for part in parts)
            if summary:
                yield "user", [Text(text=summary)]
                summary = ""
            yield "user", [Text(text=text)]
        else:
            for step in _steps(parts):
                yield from _step(step)
    if summary:
        yield "user", [Text(text=summary)]


def _after_compaction(log: Log, visible: list[Data]) -> tuple[list[Data], str]:
    """Return what the last summary left, and the summary as the model reads it."""
    for number in reversed(range(len(visible))):
        for part in log.parts.get(visible[number]["id"], []):
            data = log.rows[part]["data_json"]
            if data["type"] == "data-compaction":
                tail = data["tail_start_id"]
                ids = [message["id"] for message in visible]
                start = ids.index(tail) if tail in ids else number
                kept = [message for message in visible[start:] if not _is_marker(log, message)]
                return kept, f"<conversation_summary>\n{data['summary']}\n</conversation_summary>"
    return visible, ""


def _is_marker(log: Log, message: Data) -> bool:
    return any(log.rows[part]["type"] == "data-compaction" for part in log.parts.get(message["id"], []))


def _steps(parts: Iterable[Data]) -> Iterator[list[Data]]:
    step: list[Data] = []
    for part in parts:
        if part["type"] == "step-start" and step:
            yield step
            step = []
        elif part["type"] != "step-start":
            step.append(part)
    yield step


def _step(parts: Iterable[Data]) -> Iterator[tuple[Role, list[Part]]]:
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
            results.append(_result(data))
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
