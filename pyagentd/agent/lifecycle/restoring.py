"""A saved conversation put back as the one that goes on: the turns it consists of, and their rows (SPEC 003).

In the log it is one run that nobody computed: its first prompt begins it, further ones stand in it as those do with
which a user steers a run. So the document, and everybody who watches it, gets the text the way of all runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyagentd.messages import Text, ToolCall, ToolResult
from pyagentd.store.contexts import messages_of
from pyagentd.store.document.pieces import ABORTED, BEGINNING
from pyagentd.store.document.render import writable
from pyagentd.store.journal import message_row, part_row

Fact = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class Turn:
    """What the user said, and the steps in which it was answered: texts and calls in the model's order."""

    prompt: str
    steps: list[list[Text | ToolCall]] = field(default_factory=list)


@dataclass(slots=True)
class Restored:
    """A saved conversation: its turns, and the results of its calls by their ids."""

    turns: list[Turn]
    results: dict[str, str]


def restored(entries: Iterable[Mapping[str, Any]]) -> Restored:
    """Return the turns of a saved conversation; one that begins with an answer gets a prompt that says so."""
    turns: list[Turn] = []
    results: dict[str, str] = {}
    for message in messages_of(entries):
        if message.role == "assistant":
            if not turns:
                turns.append(Turn(BEGINNING))
            turns[-1].steps.append([part for part in message.parts if isinstance(part, Text | ToolCall)])
            continue
        results |= {part.id: part.text for part in message.parts if isinstance(part, ToolResult)}
        said = [text for part in message.parts if isinstance(part, Text) and (text := writable(part.text.strip()))]
        if not said:
            continue
        if turns and not turns[-1].steps:
            turns[-1].prompt = "\n\n".join([turns[-1].prompt, *said])
        else:
            turns.append(Turn("\n\n".join(said)))
    return Restored(turns, results)


def facts_of_turns(
    found: Restored, *, session_id: str, run_id: str, metadata: Mapping[str, Any], now_ms: int
) -> Iterator[Fact]:
    """Yield the rows of all turns, without the first one's prompt.

    Args:
        found: The conversation.
        session_id: Whose messages they become.
        run_id: The run in which they stand.
        metadata: Of each message.
        now_ms: The time, epoch ms.
    """
    for number, turn in enumerate(found.turns):
        if number:
            yield from _prompt(turn.prompt, session_id, {"origin": "client", "steered": run_id, **metadata}, now_ms)
        if turn.steps:
            yield from _answer(turn.steps, found.results, session_id, metadata, now_ms)


def _prompt(text: str, session_id: str, metadata: Mapping[str, Any], now_ms: int) -> Iterator[Fact]:
    message = message_row(role="user", session_id=session_id, metadata=metadata, now_ms=now_ms)
    yield "message", message
    data = {"type": "text", "text": text}
    yield (
        "part",
        part_row(message_id=message["id"], session_id=session_id, index=0, kind="text", data=data, now_ms=now_ms),
    )


def _answer(
    steps: Sequence[Sequence[Text | ToolCall]],
    results: Mapping[str, str],
    session_id: str,
    metadata: Mapping[str, Any],
    now_ms: int,
) -> Iterator[Fact]:
    message = message_row(role="assistant", session_id=session_id, metadata=metadata, now_ms=now_ms)
    yield "message", message
    index = 0
    for step in steps:
        for data in ({"type": "step-start"}, *(_data(part, results) for part in step)):
            row = part_row(
                message_id=message["id"],
                session_id=session_id,
                index=index,
                kind=str(data["type"]),
                data=data,
                now_ms=now_ms,
            )
            if "toolCallId" in data:
                row |= {"tool_call_id": data["toolCallId"], "tool_state": data["state"]}
            yield "part", row
            index += 1


def _data(part: Text | ToolCall, results: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": writable(part.text), "state": "done"}
    call = {"type": f"tool-{part.name}", "toolCallId": part.id, "input": dict(part.input)}
    if part.id in results:
        return {**call, "state": "output-available", "output": writable(results[part.id])}
    return {**call, "state": "output-error", "errorText": ABORTED}
