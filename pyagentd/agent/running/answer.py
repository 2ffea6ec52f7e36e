"""The model's answer as it becomes rows: one assistant message, its parts in the order they began.

Another message begins where the user steered the run: theirs stands in between.

Follows the stream of ``llm`` and the envelopes of ``tools``; knows the shape of ``message`` and ``part`` rows
(neighbours B.2: ``data_json`` is the part as the AI SDK writes it) and nothing of the loop around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, assert_never

from pyagentd.agent.branches.recorder import Recorder
from pyagentd.llm.backend import PartDelta, PartFinished, PartStarted
from pyagentd.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult, Usage
from pyagentd.store import conversation as record
from pyagentd.store.journal import message_row, part_row
from pyagentd.store.unfinished import Standing
from pyagentd.tools.invoke import Envelope
from pyagentd.tools.summary import summary

_AWAITED = frozenset({"tool-PersistentAgent", "tool-task", "tool-mission"})  # calls that wait for an agent


@dataclass(slots=True)
class _Streaming:
    """A text or reasoning part that is still growing."""

    row: dict[str, Any]
    texts: list[str] = field(default_factory=list)

    def done(self) -> dict[str, Any]:
        data = self.row["data_json"] | {"text": "".join(self.texts), "state": "done"}
        return {**self.row, "data_json": data}


class Answer:
    """Records the assistant message of a run, step by step.

    Args:
        recorder: Where its rows go.
        session_id: Whose message it is.
        model: Who answers: ``{"provider_id", "model_id"}``.
        called: Told of every call that has its result: the part as recorded, and when (epoch ms).
        metadata: Of its messages, beside the model.
        root: The workspace root, for summaries of calls.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        session_id: str,
        model: Mapping[str, Any],
        called: Callable[[Mapping[str, Any], int], None],
        metadata: Mapping[str, Any] = MappingProxyType({}),
        root: str = "",
    ) -> None:
        self._root = root
        self._recorder = recorder
        self._called = called
        self._session_id = session_id
        self._model = model
        self._metadata = metadata
        self._message: dict[str, Any] | None = None
        self._parts_recorded = 0
        self._step_begun = False
        self._step: dict[str, Any] | None = None  # the row of the current step's first part
        self._streaming: dict[int, _Streaming] = {}  # by the provider's block index
        self._calls: dict[str, dict[str, Any]] = {}  # rows of calls without a result, by call id
        self._parts: list[Part] = []  # of the current step, finished ones only
        self._texts: list[str] = []
        self._last_from = 0  # which of them is the first after the last call
        self.usage = Usage()  # of the run
        self.last_usage: Usage | None = None  # of its last request
        self._message_usage = Usage()

    def resume(self, standing: Standing) -> None:
        """Go on with a message that an earlier daemon began: its last step is the current one."""
        message = standing.message
        self._message = {**message.row, "metadata_json": dict(message.row["metadata_json"])}
        self._parts_recorded = 1 + max(part.row["index"] for part in message.parts)
        self._step_begun = True
        self._parts = list(standing.step)
        for part in (part for each in (*standing.earlier, message) for part in each.parts):
            if part.type == "text" and part.text:
                self._texts += ["\n\n", part.text] if self._texts else [part.text]
            elif part.is_tool:
                self._last_from = len(self._texts)
                if part.result is None:
                    self._calls[str(part.data["toolCallId"])] = dict(part.row)
        self._message_usage = _usage_of(message)
        self.usage = sum(map(_usage_of, standing.earlier), self._message_usage)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the current step, in the order the model made them."""
        return tuple(part for part in self._parts if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        """All text of the run so far: what a parent receives as the agent's result (SPEC 000, DD-15)."""
        return "".join(self._texts)

    @property
    def last_text(self) -> str:
        """The text after the last tool call: the result where the preset says ``result: last`` (DD-15)."""
        return "".join(self._texts[self._last_from :]).lstrip("\n")

    def answered_by(self, model: Mapping[str, Any]) -> None:
        """Note that another model answers; a message that has begun is still that of the one who began it."""
        self._model = model

    def begin_step(self) -> None:
        """Start a new model request of the same message."""
        self._step_begun = False
        self._step = None
        self._parts = []

    def begin_message(self) -> None:
        """Let what the model says next be another message: the user said something in between."""
        self._message = None
        self._parts_recorded = 0
        self._message_usage = Usage()

    def step_message(self) -> Message:
        """Return what the model said in this step, for the next request."""
        return Message(role="assistant", parts=tuple(self._parts))

    def take(self, item: PartStarted | PartDelta | PartFinished) -> None:
        """Record one item of the stream."""
        match item:
            case PartStarted():
                # A call is recorded when its arguments are complete: half a call is of no use to anybody.
                if item.kind != "tool":
                    self._start(item.index, item.kind)
            case PartDelta():
                if (part := self._streaming.get(item.index)) is not None:
                    self._grow(part, item.text)
            case PartFinished():
                self._finish(item.index, item.part)
            case _:
                assert_never(item)

    def began(self, call: ToolCall) -> None:
        """Record that a call is about to do what cannot be done twice: a later daemon does not make it again."""
        self._recorder.record("call", {"id": call.id})

    def result(self, call: ToolCall, envelope: Envelope) -> ToolResult:
        """Record the outcome of a call and return it as the model will see it."""
        row = self._calls.pop(call.id)
        metadata: dict[str, Any] = {"duration_ms": envelope.duration_ms}
        if envelope.truncated:
            metadata |= {"truncated": True, "output_path": str(envelope.output_path)}
        said = summary(
            call.name,
            call.input,
            brief=envelope.brief,
            error="" if envelope.ok else envelope.text,
            denied=envelope.denied,
            root=self._root,
        )
        metadata["summary"] = said
        if envelope.denied:
            metadata["denied"] = envelope.denied
        if envelope.snapshot:
            metadata["snapshot"] = dict(envelope.snapshot)
        if envelope.ok:
            outcome = {"state": "output-available", "output": envelope.text}
        else:
            outcome = {"state": "output-error", "errorText": envelope.text}
        self._put_call(row, outcome | {"metadata": metadata})
        return ToolResult(id=call.id, text=envelope.text, is_error=not envelope.ok)

    def close(self, reason: str, *, awaited: str = "") -> None:
        """End every part that is still open: text stops where it stopped, calls get ``reason`` as their error.

        ``awaited`` is that of calls for whose agents the run waited.
        """
        for part in self._streaming.values():
            self._put(part.done())
        self._streaming.clear()
        for call, row in self._calls.items():
            waited = row["type"] in _AWAITED and call in self._recorder.conversation.begun
            why = awaited if waited and awaited else reason
            said = summary(row["type"].removeprefix("tool-"), row["data_json"]["input"], error=why, root=self._root)
            self._put_call(row, {"state": "output-error", "errorText": why, "metadata": {"summary": said}})
        self._calls.clear()

    def finish_step(self, stop_reason: str, usage: Usage, *, estimated: bool = False) -> None:
        """Record what the step cost, or is estimated to have cost, and why the provider stopped."""
        self.usage += usage
        self.last_usage = usage
        self._message_usage += usage
        message = self._ensure_message()
        ended: dict[str, Any] = {
            "usage": asdict(self._message_usage),
            "last_usage": asdict(usage),
            "stop_reason": stop_reason,
        }
        if estimated or "usage_estimated" in message["metadata_json"]:
            ended["usage_estimated"] = estimated
        message["metadata_json"] = {**message["metadata_json"], **ended}
        message["updated_at"] = self._recorder.now_ms()
        self._recorder.record("message", message)
        if self._step is not None:
            self._put({**self._step, "data_json": {**self._step["data_json"], "usage": asdict(usage)}})

    def _start(self, index: int, kind: str) -> _Streaming:
        if kind == "text" and self._texts:
            self._texts.append("\n\n")  # two texts are two paragraphs for whoever reads the result
        row = self._new_part(kind, {"type": kind, "text": "", "state": "streaming"})
        self._streaming[index] = part = _Streaming(row)
        self._put(row)
        return part

    def _grow(self, part: _Streaming, text: str) -> None:
        part.texts.append(text)
        if part.row["type"] == "text":
            self._texts.append(text)
        self._recorder.delta(part.row["id"], text)

    def _finish(self, index: int, part: Part) -> None:
        self._parts.append(part)
        match part:
            case ToolCall():
                data = {"type": f"tool-{part.name}", "toolCallId": part.id, "state": "input-available"}
                if part.unreadable:
                    data["rawInput"] = part.unreadable
                row = self._new_part(data["type"], data | {"input": dict(part.input)})
                self._calls[part.id] = row | {"tool_call_id": part.id, "tool_state": "input-available"}
                self._last_from = len(self._texts)
                self._put(self._calls[part.id])
            case Text() | Reasoning():
                streaming = self._streaming.pop(index, None) or self._start(index, _kind(part))
                self._streaming.pop(index, None)
                done = streaming.done()
                self._put({**done, "data_json": done["data_json"] | _provider_metadata(part)})
            case _:
                raise TypeError(f"a model does not answer with {type(part).__name__}")

    def _new_part(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        message = self._ensure_message()
        if not self._step_begun:
            self._step_begun = True
            self._step = self._part_row(message, "step-start", {"type": "step-start"})
            self._put(self._step)
        return self._part_row(message, kind, data)

    def _part_row(self, message: Mapping[str, Any], kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        row = part_row(
            message_id=message["id"],
            session_id=self._session_id,
            index=self._parts_recorded,
            kind=kind,
            data=data,
            now_ms=self._recorder.now_ms(),
        )
        self._parts_recorded += 1
        return row

    def _put(self, row: Mapping[str, Any]) -> None:
        self._recorder.record("part", {**row, "updated_at": self._recorder.now_ms()})

    def _put_call(self, row: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        data = {**row["data_json"], **outcome}
        self._put({**row, "data_json": data, "tool_state": data["state"]})
        self._called(data, self._recorder.now_ms())

    def _ensure_message(self) -> dict[str, Any]:
        if self._message is None:
            self._message = message_row(
                role="assistant",
                session_id=self._session_id,
                metadata={"model": self._model, **self._metadata},
                now_ms=self._recorder.now_ms(),
            )
            self._recorder.record("message", self._message)
        return self._message


def _usage_of(message: record.Message) -> Usage:
    return Usage(**message.row["metadata_json"].get("usage", {}))


def _kind(part: Text | Reasoning) -> str:
    return "text" if isinstance(part, Text) else "reasoning"


def _provider_metadata(part: Text | Reasoning) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    kept = {"signature": part.signature, "redactedData": part.redacted}
    return {
        "text": part.text,
        "providerMetadata": {"anthropic": {key: value for key, value in kept.items() if value is not None}},
    }
