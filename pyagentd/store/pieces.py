"""Document and record cut into the same pieces.

A piece is what can be compared: a fragment of a user's text, an answer, a reasoning block, a tool call with its
result. Which piece of the one is which of the other is found in ``matching``.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pyagentd.store.compaction import COMPACTION, COMPACTION_OPEN, compaction_block
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import BLANK, PROMPT_PREFIX, Document, Region, regions
from pyagentd.store.recorded import Message, Part
from pyagentd.store.render import FENCE_CLOSE, REASONING_OPEN, reasoning_block, tool_body, writable

PieceKind = Literal["user", "response", "tool", "reasoning", "compaction"]
Key = tuple[PieceKind, str, str]  # kind, call id, text

_HEADING = re.compile(rf"\n{PROMPT_PREFIX}")
_OPENING = re.compile(rf"^(?:{re.escape(REASONING_OPEN)}|{re.escape(COMPACTION_OPEN)} \()", re.MULTILINE)
_TOOL_END = f"{FENCE_CLOSE}\n"
_BARE_PREFIX = PROMPT_PREFIX.rstrip()  # what deleting trailing spaces leaves of an empty prompt


@dataclass(slots=True, eq=False)
class Step:
    """One request to the model: its recorded parts, and the numbers of the pieces they show as."""

    parts: list[Part]
    pieces: list[int] = field(default_factory=list)


class Recorded(NamedTuple):
    """A piece as recorded, with the user's recorded edits; user text has no part, answers have a step.

    ``joint`` is what stands between a fragment and the one before it in the same message. ``restored`` says that the
    record has an edit which the document no longer shows: the piece is as it was recorded first.
    """

    key: Key
    message: Message
    part: Part | None = None
    step: Step | None = None
    joint: str = ""
    restored: bool = False

    @property
    def is_hidden(self) -> bool:
        """Whether the record already says that the document does not show it."""
        return self.message.is_hidden or (self.part is not None and self.part.hidden)


class Found(NamedTuple):
    """A piece as the document has it; offsets of the trimmed text in the body, ``region`` its region's number."""

    key: Key
    start: int
    end: int
    region: int


def recorded_pieces(conversation: Conversation, restored: Container[str] = ()) -> list[Recorded]:
    """Return what the document should show of the record, in its order.

    Messages and parts whose ids are in ``restored`` are taken as they were recorded first, whatever edits there are.
    """
    pieces: list[Recorded] = []
    for message, parts in laid_out(conversation):
        if message.role == "user":
            pieces += _user_pieces(message, restored=message.id in restored)
        else:
            step = Step(parts)
            for part in _in_layout(parts):
                if (piece := _part_piece(message, part, step, restored=part.id in restored)) is not None:
                    step.pieces.append(len(pieces))
                    pieces.append(piece)
    return pieces


def laid_out(conversation: Conversation) -> Iterator[tuple[Message, list[Part]]]:
    """Yield messages in the order of the document, answers step by step, with the parts of each step.

    A compaction that was made during a run stands behind the step it followed, though its message is younger.
    """
    within = markers_within(conversation)
    markers = {message.id for each in within.values() for message in each}
    for message in conversation.messages.values():
        if message.role == "user":
            yield message, []
        elif message.id not in markers:
            for parts in message.steps():
                yield message, parts
                for part in parts if within else ():
                    yield from ((marker, marker.parts) for marker in within.get(part.id, ()))


def markers_within(conversation: Conversation) -> dict[str, list[Message]]:
    """Return the compactions that were made within answers, by the id of the part that each stands behind.

    One whose answer is not in the conversation stands where it is in the log.
    """
    within: dict[str, list[Message]] = {}
    for message in conversation.messages.values():
        after = message.row.get("metadata_json", {}).get("after") if message.parts and _is_marker(message) else None
        part = conversation.parts.get(after or "")
        if part is not None and part.row["message_id"] in conversation.messages:
            within.setdefault(part.id, []).append(message)
    return within


def _is_marker(message: Message) -> bool:
    return message.parts[0].type == COMPACTION


def _user_pieces(message: Message, *, restored: bool) -> Iterator[Recorded]:
    text, end = message.recorded_text if restored else message.text, 0
    for number, (a, b) in enumerate(fragments(text)):
        joint = text[end:a] if number else ""
        yield Recorded(("user", "", text[a:b]), message, joint=joint, restored=restored)
        end = b


def _part_piece(message: Message, part: Part, step: Step, *, restored: bool) -> Recorded | None:
    is_edited = part.edited is not None and part.type != "reasoning"
    text = part.edited if is_edited and not restored else original_text(part)
    if not text or (part.type == "text" and text.isspace()):
        return None
    return Recorded(key_of(part, text), message, part, step, restored=restored)


def key_of(part: Part, text: str) -> Key:
    """Return the key of the piece that a part of an answer shows as when its text is ``text``."""
    if part.is_tool:
        return "tool", str(part.data["toolCallId"]), text
    kinds: dict[str, PieceKind] = {"reasoning": "reasoning", COMPACTION: "compaction"}
    return kinds.get(part.type, "response"), "", text


def _in_layout(parts: Sequence[Part]) -> Iterator[Part]:
    """Yield parts in the order in which a step is rendered: texts as they came, then calls with results."""
    yield from (part for part in parts if part.type in ("text", "reasoning", COMPACTION))
    yield from (part for part in parts if part.is_tool and part.result is not None)


def original_text(part: Part) -> str:
    """Return the text of the piece that a part of an answer shows as, before any edit."""
    if part.is_tool:
        return tool_body(part.data)
    if part.type == "reasoning":
        return reasoning_block(part.text) if part.text else ""
    if part.type == COMPACTION:
        return writable(compaction_block(part.data))
    return writable(part.text)


def found_pieces(document: Document, end: int | None = None) -> list[Found]:
    """Return the pieces of the whole body; a region that contains ``end`` is cut there."""
    pieces: list[Found] = []
    body = document.body
    for number, region in enumerate(_cut(regions(document), end)):
        start, stop, kind, call_id = region
        if kind is None:
            pieces += [Found(("user", "", body[a:b]), a, b, number) for a, b in fragments(body, start, stop)]
            continue
        text = body[start:stop]
        if kind == "ignore":
            opening = _OPENING.search(text)  # the closing fence of a tool block may stand before it
            if opening and text[: opening.start()] in ("", _TOOL_END):  # else it is text of a hidden turn
                block = text[opening.start() :]
                called: PieceKind = "compaction" if block.startswith(COMPACTION_OPEN) else "reasoning"
                pieces.append(Found((called, "", block), start + opening.start(), stop, number))
        elif not text.isspace():
            pieces.append(Found((kind, call_id, text), start, stop, number))
    return pieces


def fragments(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a user's text between prompt prefixes, trimmed as gptel trims.

    A heading inside a prompt looks like a prompt prefix; that does not matter as long as both sides are cut alike.
    What deleting trailing blanks leaves of an empty prompt is none, unless it is all of a recorded text.
    """
    stop = len(text) if end is None else end
    cuts = list(_HEADING.finditer(text, start, stop))
    begins = [start, *(cut.end() for cut in cuts)]
    ends = [*(cut.start() for cut in cuts), stop]
    for begin, right in zip(begins, ends, strict=True):
        piece = text[begin:right].rstrip(BLANK)
        right = begin + len(piece)
        piece = piece.lstrip(BLANK)
        may_be_bare = begin > start or end is None
        while piece.startswith(PROMPT_PREFIX):
            piece = piece.removeprefix(PROMPT_PREFIX).lstrip(BLANK)
            may_be_bare = True
        if piece and (may_be_bare or piece != _BARE_PREFIX):
            yield right - len(piece), right


def _cut(found: list[Region], end: int | None) -> Iterator[Region]:
    for region in found:
        if end is not None and region.start < end < region.end:
            yield region._replace(end=end)
            yield region._replace(start=end)
        else:
            yield region
