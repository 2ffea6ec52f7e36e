"""A conversation as the daemon records it and as an editor types it, for tests: rows and document grow together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from pyagentd.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.files import apply
from pyagentd.store.document.render import Insert, Renderer
from pyagentd.store.document.text import Document
from pyagentd.store.journal import Row


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call with its result; None: none ever came."""

    name: str = "Bash"
    input: dict[str, Any] = field(default_factory=dict)
    result: str | None = "done"
    is_error: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """One answer of the model: reasoning, texts, calls; ``order`` is the order in which results come."""

    reasoning: str | None = None
    texts: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    order: int = 0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A prompt and its answer."""

    prompt: str
    steps: tuple[Step, ...] = ()
    error: str | None = None


class Talk:
    """Plays turns; ``chunk`` is the size of streamed deltas, 0 for whole parts only."""

    def __init__(self, turns: Iterable[Turn] = (), *, chunk: int = 4) -> None:
        self.chunk = chunk
        self.rows: list[Row] = []
        self.inserts: list[Insert] = []
        self.document = Document()
        self.marker = 0
        self._ids = itertools.count(1)
        self._renderer = Renderer()
        for turn in turns:
            self.play(turn)

    @property
    def conversation(self) -> Conversation:
        return Conversation(self.rows)

    def play(self, turn: Turn) -> None:
        self.type("" if self.document.body else "### ")
        self.type(turn.prompt)
        message = self.user(turn.prompt)
        run = self.start(message)
        self.answer(turn.steps)
        self.finish(run, error={"code": "x", "message": turn.error} if turn.error else None)

    def type(self, text: str) -> None:
        """Type at the end, as the user does."""
        self.document = replace(self.document, body=self.document.body + text)
        self.marker = len(self.document.body)

    def record(self, kind: str, /, **data: Any) -> None:
        row = Row(len(self.rows) + 1, kind, data)
        self.rows.append(row)
        for insert in self._renderer.feed(row):
            self.inserts.append(insert)
            self.document, self.marker = apply(self.document, self.marker, insert)

    def user(self, text: str) -> str:
        message = self.message("user")
        self.part(message, 0, "text", {"type": "text", "text": text})
        return message

    def steer(self, text: str, run: dict[str, Any]) -> str:
        """Say something to a run that goes on."""
        message = self.message("user", steered=run["id"])
        self.part(message, 0, "text", {"type": "text", "text": text})
        return message

    def message(self, role: str, **metadata: Any) -> str:
        id = f"msg_{next(self._ids)}"
        self.record("message", id=id, session_id="s", role=role, metadata_json=metadata, created_at=1, updated_at=1)
        return id

    def start(self, message_id: str) -> dict[str, Any]:
        run = {"id": f"run_{next(self._ids)}", "message_id": message_id, "interactive": True}
        self.record("run", **run, state="started")
        return run

    def finish(self, run: dict[str, Any], *, error: dict[str, str] | None = None) -> None:
        self.record("run", **run, state="finished", reason="error" if error else "done", error=error)

    def answer(self, steps: Sequence[Step]) -> None:
        message = self.message("assistant") if steps else ""
        index = itertools.count()
        for step in steps:
            self.part(message, next(index), "step-start", {"type": "step-start"})
            if step.reasoning is not None:
                meta = {"anthropic": {"signature": f"sig-{len(self.rows)}"}}
                self.stream(message, next(index), "reasoning", step.reasoning, providerMetadata=meta)
            for text in step.texts:
                self.stream(message, next(index), "text", text)
            self.call(message, index, step)

    def stream(self, message: str, index: int, type: str, text: str, **extra: Any) -> None:
        id = None
        if self.chunk:
            id = self.part(message, index, type, {"type": type, "text": "", "state": "streaming"})
            for start in range(0, len(text), self.chunk):
                self.record("delta", part_id=id, text=text[start : start + self.chunk])
        self.part(message, index, type, {"type": type, "text": text, "state": "done", **extra}, id=id)

    def call(self, message: str, index: Any, step: Step) -> None:
        started = []
        for call in step.calls:
            number, call_id = next(index), f"toolu_{next(self._ids)}"
            data = {"type": f"tool-{call.name}", "toolCallId": call_id, "input": call.input}
            id = self.part(message, number, data["type"], {**data, "state": "input-available"})
            started.append((call, number, id, data))
        orders = list(itertools.islice(itertools.permutations(started), 24))
        for call, number, id, data in orders[step.order % len(orders)] if orders else ():
            if call.result is None:
                continue
            end = (
                {"state": "output-error", "errorText": call.result}
                if call.is_error
                else {"state": "output-available", "output": call.result}
            )
            self.part(message, number, data["type"], {**data, **end}, id=id)

    def part(self, message: str, index: int, type: str, data: dict[str, Any], *, id: str | None = None) -> str:
        id = id or f"prt_{next(self._ids)}"
        extra = {"tool_call_id": data["toolCallId"], "tool_state": data["state"]} if "toolCallId" in data else {}
        self.record(
            "part",
            id=id,
            message_id=message,
            session_id="s",
            index=index,
            type=type,
            data_json=data,
            **extra,
            created_at=1,
            updated_at=1,
        )
        return id


def expected_view(rows: Iterable[Row]) -> tuple[Message, ...]:
    """The model's view of an untouched conversation, told straight from the rows."""
    messages: list[tuple[Role, list[Part]]] = []
    for role, part in itertools.chain.from_iterable(expected_units(rows).values()):
        if messages and messages[-1][0] == role:
            messages[-1][1].append(part)
        else:
            messages.append((role, [part]))
    return tuple(Message(role=role, parts=tuple(parts)) for role, parts in messages)


def expected_units(rows: Iterable[Row]) -> dict[str, list[tuple[Role, Part]]]:
    """What a message of the user or one step of the model is in the view, by the id of the message or first part."""
    units: dict[str, list[tuple[Role, Part]]] = {}
    for message in Conversation(rows).messages.values():
        if message.role == "user":
            units[message.id] = [("user", Text(text=message.text))]
            continue
        for step in message.steps():
            if any(p.text.strip() or p.result or (p.type == "reasoning" and p.text) for p in step):
                units[step[0].id] = _expected_step(step)  # of others nothing is in the document
    return units


def _expected_step(step: Sequence[Any]) -> list[tuple[Role, Part]]:
    said: list[Part] = []
    results: list[Part] = []
    for part in step:
        if part.type == "text" and part.text.strip():
            said.append(Text(text=part.text))
        elif part.type == "reasoning":
            signature = part.data["providerMetadata"]["anthropic"]["signature"]
            said.append(Reasoning(text=part.text, signature=signature))
        elif part.is_tool:
            id, name = part.data["toolCallId"], part.type.removeprefix("tool-")
            said.append(ToolCall(id=id, name=name, input=part.data["input"]))
            text, is_error = part.result or ("aborted", True)
            results.append(ToolResult(id=id, text=text, is_error=is_error))
    while said and isinstance(said[-1], Reasoning):
        said.pop()
    return [*(("assistant", part) for part in said), *(("user", part) for part in results)]


def assert_valid(view: Sequence[Message]) -> None:
    """The rules of the Messages API."""
    assert not view or view[0].role == "user"
    seen: set[str] = set()
    for before, message in itertools.pairwise([None, *view]):
        assert message is not None and message.parts
        assert before is None or before.role != message.role
        assert all(part.text.strip() for part in message.parts if isinstance(part, Text))
        called = [part.id for part in before.parts if isinstance(part, ToolCall)] if before else []
        results = [part.id for part in message.parts if isinstance(part, ToolResult)]
        assert results == called
        assert all(isinstance(part, ToolResult) for part in message.parts[: len(results)])
        assert not seen.intersection(results)
        seen.update(results)
        assert message.role == "assistant" or not isinstance(message.parts[-1], ToolCall)
    if view:
        assert not any(isinstance(part, ToolCall) for part in view[-1].parts)


words = st.text(
    st.sampled_from('ab \n`#()"\\:?é😀\u0301\t') | st.characters(codec="utf-8", exclude_characters="\r"), max_size=30
)
snippets = st.sampled_from(
    [
        "OK",
        "```\ncode\n```",
        "\n\n### ",
        "``` tool (X)\n",
        "``` reasoning\n",
        "<!-- End: -->",
        "Local Variables:",
        "🇩🇪",
    ]
)
texts = st.lists(words | snippets, max_size=4).map("".join)
prompts = texts.map(lambda text: text.strip()).filter(
    lambda text: bool(text) and not text.startswith("#") and not text.isspace()
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
calls = st.builds(
    Call,
    name=st.sampled_from(["Bash", "Read", "mcp__x"]),
    input=st.dictionaries(st.sampled_from(["command", "path", "a b", "q?;", "é"]), json_values, max_size=3),
    result=texts,
    is_error=st.booleans(),
)
steps = st.builds(
    Step,
    reasoning=st.none() | texts,
    texts=st.lists(texts, max_size=2).map(tuple),
    calls=st.lists(calls, max_size=3).map(tuple),
    order=st.integers(0, 23),
)
turns = st.builds(
    Turn, prompt=prompts, steps=st.lists(steps, max_size=3).map(tuple), error=st.none() | st.just("no\nmore")
)
talks = st.lists(turns, min_size=1, max_size=4)

# conversations of few texts, so that many are alike, or begin or end alike
_alike = st.sampled_from(
    [
        "OK",
        "a",
        "0",
        "\n0",
        "0\nOK",
        "0\n\n00",
        "OK\n\nOK",
        "### z",
        "### z\n\nmore",
        "\n\n### ",
        "x\n\n### y",
        "b\n\n### c\n\nd",
        "One\n\nTwo",
        "The same text twice.",
        "``` reasoning\nfake\n```",
        "Look: ``` tool (X)\n",
    ]
)
_alike_calls = st.builds(
    Call,
    name=st.sampled_from(["Bash", "Read"]),
    input=st.sampled_from([{}, {"command": "ls"}]),
    result=st.sampled_from(["", "0", "OK", "far " * 20 + "\nnear", "### z", "0\n\n00"]),
)
_alike_steps = st.builds(
    Step,
    reasoning=st.sampled_from([None, None, "", "0", "a b\n\nc"]),
    texts=st.lists(_alike, max_size=2).map(tuple),
    calls=st.lists(_alike_calls, max_size=2).map(tuple),
)
_alike_turns = st.builds(
    Turn,
    prompt=st.sampled_from(["a", "ab", "0", "OK", "x\n\n### y", "x\n\n### y\n\n### y", "b\n\n### c\n\nd"]),
    steps=st.lists(_alike_steps, max_size=3).map(tuple),
    error=st.sampled_from([None, None, "no\nmore"]),
)
alike_talks = st.lists(_alike_turns, min_size=1, max_size=3)
