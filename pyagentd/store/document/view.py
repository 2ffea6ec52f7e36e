"""The model's view of a document: messages that are always valid, from pieces in the document's order.

Knows what a provider demands (roles alternate, the user begins, every call is answered once in the message that
follows) and how to keep a recorded step exact. Steps that the user touched lose their reasoning, whose signature
covers what is no longer there. What cannot be read is left out and said in ``notes``.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyagentd.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from pyagentd.store import conversation
from pyagentd.store.conversation import output_stub, wrapped
from pyagentd.store.document.pieces import DocumentPiece, RecordedPiece, Step
from pyagentd.store.document.text import BLANK
from pyagentd.wire.sexp import LispError, read_call

ABORTED = "aborted"
BEGINNING = "(The beginning of this conversation was removed.)"


class ViewPiece(NamedTuple):
    """A piece of an answer as the document has it, and what it is in the record.

    ``number`` is the recorded piece it is or, when not ``exact``, the one the user made it from; -1 when unknown.
    """

    found: DocumentPiece
    number: int
    recorded: RecordedPiece | None
    exact: bool

    @property
    def step(self) -> Step | None:
        """The recorded step it belongs to."""
        return self.recorded.step if self.recorded else None


@dataclass(slots=True)
class View:
    """Messages under construction."""

    messages: list[tuple[Role, list[Part]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    turns: list[tuple[int, str]] = field(default_factory=list)  # where messages of the user begin, and their ids
    summary: str = ""  # of what came before
    pruned: Container[str] = ()  # ids of parts whose output is not shown
    _ids: set[str] = field(default_factory=set)

    def begin_turn(self, message_id: str) -> None:
        """Note that a message of the user follows, "" when it has no id yet."""
        if not self.messages or self.messages[-1][0] == "assistant":
            self.turns.append((len(self.messages), message_id))

    def add_user(self, text: str) -> None:
        """Add text of the user."""
        if text and not text.isspace():
            self._extend("user", [Text(text=text)])

    def add_answer(self, pieces: Sequence[ViewPiece]) -> None:
        """Add pieces of answers that follow each other without user text between them."""
        start = 0
        for index in range(1, len(pieces) + 1):
            step = pieces[start].step
            if index == len(pieces) or step is None or pieces[index].step is not step:
                self._add_step(step, pieces[start:index])
                start = index

    def add_recorded(self, parts: Iterable[conversation.Part]) -> None:
        """Add a step as it was recorded, whatever the document says."""
        self._add_parts(parts, ())

    def finished(self) -> tuple[Message, ...]:
        """Return the messages of a whole conversation."""
        if self.messages and self.messages[0][0] == "assistant" and not self.summary:
            self._prepend(BEGINNING)
        if self.summary:
            self._prepend(wrapped(self.summary))
        return self.made()

    def _prepend(self, text: str) -> None:
        """Let the user say ``text`` first: in a message of its own unless they begin anyway."""
        if self.messages and self.messages[0][0] == "user":
            self.messages[0][1].insert(0, Text(text=text))
        else:
            self.messages.insert(0, ("user", [Text(text=text)]))
            self.turns = [(index + 1, id) for index, id in self.turns]

    def made(self) -> tuple[Message, ...]:
        """Return the messages."""
        ids = dict(self.turns)
        messages = enumerate(self.messages)
        return tuple(Message(role=role, parts=tuple(parts), id=ids.get(n, "")) for n, (role, parts) in messages)

    def _add_step(self, step: Step | None, pieces: Sequence[ViewPiece]) -> None:
        if step is not None and all(p.exact for p in pieces) and [p.number for p in pieces] == step.pieces:
            restored = {p.recorded.part for p in pieces if p.recorded and p.recorded.restored}
            untouched = all(part.edited is None or part in restored for part in step.parts)
            self._add_parts((part for part in step.parts if untouched or part.type != "reasoning"), restored)
            return
        texts: list[Part] = []
        calls: list[tuple[ToolCall, ToolResult]] = []
        for piece in pieces:
            if piece.found.key[0] == "tool":
                calls += self._read_tool(piece)
            elif piece.found.key[0] == "response":
                if calls:  # the user moved an answer behind the calls it came before
                    self._add(texts, calls)
                    texts, calls = [], []
                texts.append(Text(text=piece.found.key[2]))
        self._add(texts, calls)

    def _add_parts(self, parts: Iterable[conversation.Part], restored: Container[conversation.Part | None]) -> None:
        """Add a recorded step as it was, with the edits that were made since but for the ``restored`` parts."""
        said: list[Part] = []
        calls: list[tuple[ToolCall, ToolResult]] = []
        for part in parts:
            if part.is_tool:
                made = self._tool(part, None if part in restored else part.edited)
                said += [call for call, _ in made]
                calls += made
            elif part.type == "text":
                said.append(Text(text=part.text if part.edited is None or part in restored else part.edited))
            elif part.type == "reasoning" and (reasoning := _reasoning(part)) is not None:
                said.append(reasoning)
        self._add(said, calls)

    def _read_tool(self, piece: ViewPiece) -> list[tuple[ToolCall, ToolResult]]:
        part = piece.recorded.part if piece.recorded else None
        if part is not None and piece.exact:
            return self._tool(part, None if piece.recorded and piece.recorded.restored else part.edited)
        return self._edited_tool(part, piece.found.key[2], piece.found.key[1])

    def _tool(self, part: conversation.Part, edited: str | None) -> list[tuple[ToolCall, ToolResult]]:
        if edited is not None:
            return self._edited_tool(part, edited)
        result = _recorded_result(part)
        return [(_recorded_call(part), pruned_result(result) if part.id in self.pruned else result)]

    def _edited_tool(
        self, part: conversation.Part | None, text: str, call_id: str = ""
    ) -> list[tuple[ToolCall, ToolResult]]:
        """Read a call and its result from the text in the document."""
        if part is not None:
            call_id = str(part.data["toolCallId"])
        try:
            name, arguments, end = read_call(text)
        except LispError as error:
            self.notes.append(f"The tool call {call_id} is left out: {' '.join(str(error).split())}")
            return []
        result = text[end:].removeprefix("\n\n") if part is not None else text[end:].strip(BLANK)
        is_error = part is not None and part.data.get("state") == "output-error"
        call_id = call_id or "call"
        call = ToolCall(id=call_id, name=name, input=arguments)
        return [(call, ToolResult(id=call_id, text=result, is_error=is_error))]

    def _add(self, said: list[Part], calls: list[tuple[ToolCall, ToolResult]]) -> None:
        """Add one assistant message with its calls (at the end unless already placed) and the answers to them."""
        said = [part for part in said if not isinstance(part, Text) or part.text.strip()]
        placed = {part.id for part in said if isinstance(part, ToolCall)}
        said += [call for call, _ in calls if call.id not in placed]
        while said and isinstance(said[-1], Reasoning):
            said.pop()
        names = {call.id: self._unique(call.id) for call, _ in calls}
        if any(old != new for old, new in names.items()):
            said = [_renamed(part, names) for part in said]
        if said:
            self._extend("assistant", said)
        if calls:
            self._extend("user", [_renamed(result, names) for _, result in calls])

    def _unique(self, call_id: str) -> str:
        """Return ``call_id``, or another one when the document has the same call twice (copied text)."""
        unique, number = call_id, 2
        while unique in self._ids:
            unique, number = f"{call_id}-{number}", number + 1
        self._ids.add(unique)
        return unique

    def _extend(self, role: Role, parts: list[Part]) -> None:
        if self.messages and self.messages[-1][0] == role:
            self.messages[-1][1].extend(parts)
        else:
            self.messages.append((role, parts))


def model_parts(parts: Iterable[conversation.Part]) -> Iterator[Part]:
    """Yield what the model said in a recorded step, without the results of its calls."""
    for part in parts:
        if part.is_tool:
            yield _recorded_call(part)
        elif part.type == "text":
            yield Text(text=part.text)
        elif part.type == "reasoning" and (reasoning := _reasoning(part)) is not None:
            yield reasoning


def pruned_result(result: ToolResult) -> ToolResult:
    """Return what the model is shown of a result whose output was pruned."""
    return ToolResult(id=result.id, text=output_stub(result.text), is_error=result.is_error)


def _recorded_call(part: conversation.Part) -> ToolCall:
    data = part.data
    return ToolCall(id=str(data["toolCallId"]), name=str(data["type"]).removeprefix("tool-"), input=data["input"])


def _recorded_result(part: conversation.Part) -> ToolResult:
    text, is_error = part.result or (ABORTED, True)
    return ToolResult(id=str(part.data["toolCallId"]), text=text, is_error=is_error)


def _reasoning(part: conversation.Part) -> Reasoning | None:
    """Return the reasoning if the provider would take it back: it was finished, so it is signed or opaque."""
    recorded: Mapping[str, Mapping[str, Any]] = part.data.get("providerMetadata", {})
    for provider, metadata in recorded.items():
        signature, redacted = metadata.get("signature"), metadata.get("redactedData")
        if signature or redacted:
            return Reasoning(text=part.text, signature=signature, redacted=redacted, provider=provider)
    return None


def _renamed(part: Part, names: Mapping[str, str]) -> Part:
    match part:
        case ToolCall(id=old, name=name, input=arguments) if names.get(old, old) != old:
            return ToolCall(id=names[old], name=name, input=arguments)
        case ToolResult(id=old, text=text, is_error=is_error) if names.get(old, old) != old:
            return ToolResult(id=names[old], text=text, is_error=is_error)
    return part
