"""Rewound turns and variants: the rows that hide them and show them again, and the text that returns.

A turn that is rewound, edited or regenerated stays in the log; the metadata of each of its messages says when and by
what it was hidden (``hidden_at``, ``hidden_by``), with which others (``hidden_op``), and which message they followed
(``hidden_after``, "" for the beginning). So one rewind can be reversed, and messages that followed the same message
at different times are variants of each other. Pure.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from pyagentd.clock import new_id
from pyagentd.store.conversation import Conversation, Message
from pyagentd.store.document.files import Hunk, apply_edit
from pyagentd.store.document.heal import compare, error_note_spans, expected_text
from pyagentd.store.document.pieces import recorded_pieces
from pyagentd.store.document.reconcile import Piece, recognise
from pyagentd.store.document.render import FENCE_CLOSE, RUN_CLOSE, RUN_OPEN
from pyagentd.store.document.text import PROMPT_PREFIX, Document, Span, merge_spans, outside

By = Literal["rewind", "edit", "variant", "context", "command"]

_KEYS = ("hidden_at", "hidden_by", "hidden_op", "hidden_after")
CONTEXT: By = "context"  # all that was visible: a boundary, behind which another conversation begins
COMMAND: By = "command"  # a slash command with its answer, which no model ever saw: they belong to no turn
COMPACTION = "compaction"  # as origin of a message: it belongs to the turn around it and is no turn's beginning


class Group(NamedTuple):
    """Messages that were hidden together, in order; ``after`` is the message that they followed, "" for none."""

    op: str
    by: str
    after: str
    messages: tuple[Message, ...]


class Variant(NamedTuple):
    """One of several continuations after the same message; ``group`` is None for the visible one."""

    messages: tuple[Message, ...]
    group: Group | None

    @property
    def first(self) -> Message:
        """The message that names the variant: the first that is not a compaction."""
        return next((message for message in self.messages if not is_marker(message)), self.messages[0])


def visible(conversation: Conversation) -> list[Message]:
    """Return the visible messages, without those in the queue."""
    return [message for message in conversation.messages.values() if _is_shown(message)]


def is_visible(conversation: Conversation) -> bool:
    """Return whether there is any visible message."""
    return any(_is_shown(message) for message in reversed(conversation.messages.values()))


def _is_shown(message: Message) -> bool:
    return not message.is_hidden and not message.is_waiting


def is_marker(message: Message) -> bool:
    """Return whether a message is a compaction."""
    return message.metadata.get("origin") == COMPACTION


def is_command(message: Message) -> bool:
    """Return whether a message is a slash command, or the answer to one."""
    return message.metadata.get("hidden_by") == COMMAND


def mark(by: By, *, now_ms: int) -> dict[str, Any]:
    """Return the metadata of messages that are recorded as hidden, together, after the existing ones."""
    return {"hidden_at": now_ms, "hidden_by": by, "hidden_op": new_id("hid"), "hidden_after": ""}


def prompts(conversation: Conversation) -> list[Message]:
    """Return the user's messages that can be rewound to, also compacted ones."""
    return [message for message in visible(conversation) if message.role == "user"]


def continuation(conversation: Conversation, after: str) -> list[Message]:
    """Return the visible messages after the message ``after``, "" for all."""
    shown = visible(conversation)
    ids = [message.id for message in shown]
    return shown[ids.index(after) + 1 :] if after else shown


def before(conversation: Conversation, message_id: str) -> str:
    """Return the id of the visible message before the visible ``message_id``; "" for the first."""
    last = ""
    for message in visible(conversation):
        if message.id == message_id:
            break
        if not is_marker(message):
            last = message.id
    return last


def groups(conversation: Conversation) -> list[Group]:
    """Return the groups that are still hidden, in the order in which they were hidden."""
    found: dict[str, list[Message]] = {}
    for message in conversation.messages.values():
        if (op := message.metadata.get("hidden_op")) and message.is_rewound and not is_command(message):
            found.setdefault(op, []).append(message)
    return [
        Group(op, str(own[0].metadata.get("hidden_by")), str(own[0].metadata.get("hidden_after", "")), tuple(own))
        for op in conversation.hidings  # the clock may have gone back, ids with it
        if (own := found.get(op))
    ]


def groups_since(conversation: Conversation) -> list[Group]:
    """Return the groups of the current conversation: those before the last boundary belong to earlier ones."""
    found = groups(conversation)
    last = max((number for number, group in enumerate(found, 1) if group.by == CONTEXT), default=0)
    return found[last:]


def variants(conversation: Conversation, after: str) -> list[Variant]:
    """Return the variants after the message ``after``, oldest first."""
    found = [Variant(group.messages, group) for group in groups_since(conversation) if group.after == after]
    if shown := continuation(conversation, after):
        found.append(Variant(tuple(shown), None))
    order = {id: number for number, id in enumerate(conversation.messages)}
    return sorted(found, key=lambda variant: order[variant.first.id])


def last_rewind(conversation: Conversation) -> Group | None:
    """Return the group that the last rewind hid, or an answer that never came, if it is still hidden."""
    for group in reversed(groups_since(conversation)):
        if group.by == "rewind" or (
            is_shown(conversation, group.after) and not continuation(conversation, group.after)
        ):
            return group
    return None


def is_shown(conversation: Conversation, message_id: str) -> bool:
    """Return whether a message is visible; "" is the beginning."""
    message = conversation.messages.get(message_id)
    return not message_id or (message is not None and not message.is_hidden)


def hide(messages: Iterable[Message], *, by: By, after: str, now_ms: int, **notes: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows that hide messages together; ``notes`` become metadata of each of them."""
    op = new_id("hid")
    for message in messages:
        hidden = {"hidden_at": now_ms, "hidden_by": by, "hidden_op": op, "hidden_after": after, **notes}
        yield _with(message, {**message.metadata, **hidden}, now_ms)


def show(messages: Iterable[Message], *, now_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the rows that make hidden messages visible again."""
    for message in messages:
        kept = {key: value for key, value in message.metadata.items() if key not in _KEYS and key != "restored"}
        yield _with(message, kept, now_ms)


def _with(message: Message, metadata: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    return {**message.row, "metadata_json": dict(metadata), "updated_at": now_ms}


# Hiding turns and showing them again in a document: the text stays, roles change.
#
# The text of a hidden turn has the role ``ignore``, with the blank lines and the heading before it: a region of
# hidden text begins with an empty line, or with the document, which distinguishes it from the fences of a visible
# answer. Shown again, the text gets its recorded roles, wherever it still is. Pure.

Range = tuple[int, int]

_MISSES = 20  # texts of hidden turns that the user removed or changed, beyond which a region shows none
_FOLDED = "… turns that were taken back"
_TOOL_END = FENCE_CLOSE + "\n"


class AnswerPlace(NamedTuple):
    """A document with changed roles, and the place for the answer to a prompt; offsets are code points from 0."""

    document: Document
    marker: int


def change_roles(document: Document, before: Conversation, after: Conversation) -> Document:
    """Return ``document`` with the roles after a change of the hidden messages from ``before`` to ``after``."""
    gone = {id for id in after.messages if after.messages[id].is_rewound and not before.messages[id].is_rewound}
    back = {id for id in after.messages if before.messages[id].is_rewound and not after.messages[id].is_rewound}
    alignment = recognise(document, before)
    document = alignment.document
    if gone:
        document = _ignore_ranges(document, _ranges(document, alignment.pieces, gone))
    return _with_roles(document, after, back) if back else document


def answer_place(document: Document, conversation: Conversation, message_id: str) -> AnswerPlace:
    """Return the place for another answer to a visible prompt: behind its hidden answers.

    The heading below them is hidden, too, because the new answer is followed by its own.
    """
    alignment = recognise(document, conversation)
    document, pieces = alignment.document, alignment.pieces
    own = [index for index, piece in enumerate(pieces) if piece.message and piece.message.id == message_id]
    if not own:
        return AnswerPlace(document, len(document.body))
    low = pieces[own[-1]].found.end
    high = pieces[own[-1] + 1].found.start if own[-1] + 1 < len(pieces) else len(document.body)
    hidden = [span for span in document.spans if span.kind == "ignore" and low <= span.start and span.end <= high]
    if not hidden:
        return AnswerPlace(document, low)
    start, end = hidden[0].start, hidden[-1].end
    if document.body.startswith(RUN_CLOSE, end):
        end += len(RUN_CLOSE)
    return AnswerPlace(_ignore_ranges(document, [(start, end)]), end)


def hidden_ranges(document: Document, conversation: Conversation) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return the regions of the document with hidden turns, each with the ids of its messages, in order.

    Commands are no turns: their text stays visible, and separates the turns around it.
    """
    texts = [piece for piece in recorded_pieces(conversation) if piece.message.is_rewound]
    found: list[tuple[int, int, tuple[str, ...]]] = []
    number = 0
    for start, end, kind, _ in document.spans:
        ids: dict[str, None] = {}
        low, index, misses = start, number, 0
        begin, is_turn = start, True
        while kind == "ignore" and index < len(texts) and low < end and misses < _MISSES:
            place = document.body.find(texts[index].key[2], low, end)
            misses = misses + 1 if place < 0 else 0
            if place >= 0:
                message = texts[index].message
                if is_command(message) is is_turn:
                    if ids and is_turn:
                        found.append((begin, low, tuple(ids)))
                    begin, is_turn, ids = low, not is_turn, {}
                ids[message.id] = None
                low, number = place + len(texts[index].key[2]), index + 1
            index += 1
        if ids and is_turn:
            found.append((begin, end, tuple(ids)))
    return found


def fold_hidden(document: Document) -> str:
    """Return the text for people, with each region of hidden turns as one line."""
    shown, position = [], 0
    for start, end, kind, _ in document.spans:
        if kind == "ignore" and document.body.startswith((RUN_OPEN, PROMPT_PREFIX), start):
            shown += [document.body[position:start], RUN_OPEN if start else "", _FOLDED]
            position = end
    return "".join([*shown, document.body[position:]])


def _ranges(document: Document, pieces: Sequence[Piece], gone: set[str]) -> Iterator[Range]:
    """Yield the ranges of the messages ``gone``, including the text between them."""
    starts = [span.start for span in document.spans]
    first = -1
    for index in range(len(pieces) + 1):
        message = pieces[index].message if index < len(pieces) else None
        if message is not None and message.id in gone:
            first = index if first < 0 else first
        elif first >= 0:
            start = _end(document, pieces[first - 1]) if first else 0
            end = _end(document, pieces[index - 1])
            limit = pieces[index].found.start if index < len(pieces) else len(document.body)
            for span in document.spans[bisect_left(starts, end) :]:  # a note that the run failed
                if span.kind != "ignore" or span.end > limit:
                    break
                end = span.end
            yield start, end
            first = -1


def _end(document: Document, piece: Piece) -> int:
    """Return the end of a piece, including the fence that closes it."""
    end = piece.found.end
    is_fenced = piece.found.key[0] == "tool" and document.body.startswith(_TOOL_END, end)
    return end + len(_TOOL_END) if is_fenced else end


def _with_roles(document: Document, after: Conversation, back: set[str]) -> Document:
    """Give the text of the messages ``back`` its recorded roles."""
    recorded = recorded_pieces(after)
    found = compare(after, recorded, document.body)
    places = [
        place
        for piece, place in zip(recorded, found.places, strict=True)
        if place is not None and piece.message.id in back
    ]
    ranges = [
        (span.start, span.end)
        for span in document.spans
        if span.kind == "ignore" and any(start < span.end and span.start < end for start, end in places)
    ]
    shown = _replace_roles(document, ranges, [part for range in ranges for part in _clip(found.spans, *range)])
    return _replace_roles(shown, (), error_note_spans(shown.body, after, shown.spans))


def _clip(spans: Iterable[Span], start: int, end: int) -> Iterator[Span]:
    for span in spans:
        if span.start < end and start < span.end:
            yield span._replace(start=max(span.start, start), end=min(span.end, end))


def _replace_roles(document: Document, ranges: Sequence[Range], spans: Iterable[Span]) -> Document:
    """Return the document with the roles in ``ranges`` replaced by ``spans``."""
    kept = list(document.spans)
    for start, end in ranges:
        kept = [part for span in kept for part in outside(span, start, end)]
    return replace(document, spans=merge_spans(sorted([*kept, *spans])))


def _ignore_ranges(document: Document, ranges: Iterable[Range]) -> Document:
    chosen = list(ranges)
    return _replace_roles(document, chosen, (Span(start, end, "ignore") for start, end in chosen))


# Making the document again from the log, for a session whose ``session.md`` is gone.
#
# Recorded removals and edits of the user are respected; drafts that were never sent are in no log.


def rebuild(conversation: Conversation, *, is_agent: bool = False) -> Document:
    """Return a document with every message of ``conversation`` that the user did not remove.

    Rewound turns are included, with their role. A document that ends with a prompt ends right behind it, and an
    agent's begins with its prompt alone.
    """
    shown = expected_text(conversation, recorded_pieces(conversation), removed=False)
    document = Document(body=shown.body, spans=shown.spans)
    last = next((message for message in reversed(conversation.messages.values()) if not message.hidden), None)
    if last is not None and last.role == "user" and not last.is_rewound:
        document = replace(document, body=document.body.removesuffix(RUN_CLOSE).removesuffix(RUN_OPEN))
    begins = is_agent and document.body.startswith(PROMPT_PREFIX)
    return apply_edit(document, (Hunk(0, len(PROMPT_PREFIX), ""),)) if begins else document
