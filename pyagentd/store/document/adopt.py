"""Makes log rows for text that no log has: an imported chat, a lost log, turns added in stock gptel.

Pure. The rows have the document's texts, so a later alignment links every piece exactly, and the model sees what
gptel would send: one step for each call, because a document does not show which calls were parallel. A call that
cannot be parsed stays in the document alone, with a note. Text after the last answer is a draft and becomes a message
when it is sent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyagentd.clock import claim
from pyagentd.errors import WireError
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.pieces import DocumentPiece, recorded_pieces
from pyagentd.store.document.reconcile import Piece, Recognition
from pyagentd.store.document.render import FENCE_CLOSE, REASONING_OPEN, reasoning_block, tool_body, writable
from pyagentd.store.document.text import Document, merge_spans
from pyagentd.store.journal import message_row, part_row
from pyagentd.wire.sexp import read_call

Fact = tuple[str, dict[str, Any]]  # type and data of a row

ORIGIN = "adopted"  # metadata of messages that were taken from a document
DRAFT = "draft"  # ... and that nobody has sent yet

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")  # what providers refuse in the id of a call
_BARE_PREFIX = "###"  # what is left of an empty prompt when trailing blanks are deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The rows to record, and the matching document.

    Attributes:
        facts: Type and data of the rows to append, in this order: messages, parts, edits.
        document: The document, with recovered roles and a unique id for every call.
        notes: Changes, and what could not be recorded, one line each, for the user.
    """

    facts: tuple[Fact, ...]
    document: Document
    notes: tuple[str, ...]


def adopt(
    alignment: Recognition, conversation: Conversation, *, session_id: str, now_ms: int, draft: bool = False
) -> Adoption:
    """Return rows for the text of a document that ``conversation`` lacks; recorded messages are not changed.

    If the document has no text of the log at all, it is another branch's log, and the whole document is adopted. With
    ``draft`` the text after the last answer is adopted, too (for an export; its message has origin "draft").
    """
    document, pieces = alignment.document, alignment.pieces
    known = {(piece.key[0], piece.key[2]) for piece in recorded_pieces(conversation)}
    if known.isdisjoint((piece.found.key[0], piece.found.key[2]) for piece in pieces):
        pieces = [Piece(piece.found, None, None) for piece in pieces]
    renamed = _unique_ids(pieces, conversation)
    maker = _Maker(document.body, session_id=session_id, now_ms=now_ms, ids=renamed)
    maker.take(pieces, draft=draft)
    named = ((span, renamed.get(span.start, span.id) if span.kind == "tool" else "") for span in document.spans)
    spans = [span._replace(id=id) for span, id in named]
    if changed := len(set(spans) - set(document.spans)):
        maker.notes.append(f"{changed} tool calls had no id of their own; each has one now")
    return Adoption(
        facts=tuple(maker.facts),
        document=replace(document, spans=merge_spans(spans)),
        notes=tuple(maker.notes),
    )


def _unique_ids(pieces: Sequence[Piece], conversation: Conversation) -> dict[int, str]:
    """Return a new id for every call that is not recorded, by its offset."""
    taken = {str(part.data["toolCallId"]) for part in conversation.parts.values() if part.is_tool}
    ids: dict[int, str] = {}
    for found, message, _ in pieces:
        if found.key[0] != "tool" or message is not None:
            continue
        ids[found.start] = claim(_NOT_IN_IDS.sub("_", found.key[1]) or "call", taken)
    return ids


@dataclass(slots=True)
class _Maker:
    """Makes rows from pieces, in the document's order."""

    body: str
    session_id: str
    now_ms: int
    ids: Mapping[int, str]
    facts: list[Fact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _message: dict[str, Any] | None = None  # the answer that is being put together
    _index: int = 0  # of its next part
    _begun: bool = False  # whether its step has begun

    def take(self, pieces: Sequence[Piece], *, draft: bool) -> None:
        answers = [index for index, piece in enumerate(pieces) if piece.found.key[0] != "user"]
        last = answers[-1] + 1 if answers else 0
        index, stop = 0, len(pieces) if draft else last
        while index < stop:
            found, message, _ = pieces[index]
            after = index + 1
            if message is not None:
                self._message = None
            elif found.key[0] == "user":
                while after < stop and _goes_on(found, pieces[after]):
                    after += 1
                self._user(found.start, pieces[after - 1].found.end, DRAFT if index >= last else ORIGIN)
            else:
                self._answer(found)
            index = after

    def _user(self, start: int, end: int, origin: str) -> None:
        self._message = None
        text = self.body[start:end]
        if text == _BARE_PREFIX:
            return
        message = self._new_message("user", origin)
        self._put(message, 0, {"type": "text", "text": text})

    def _answer(self, found: DocumentPiece) -> None:
        match found.key[0]:
            case "response":
                part_id = self._add({"type": "text", "text": found.key[2], "state": "done"})
                if writable(found.key[2]) != found.key[2]:
                    self._keep(part_id, found.key[2])
            case "reasoning":
                text = found.key[2].removeprefix(REASONING_OPEN).removesuffix(FENCE_CLOSE)
                if text and reasoning_block(text) == found.key[2]:
                    self._add({"type": "reasoning", "text": text, "state": "done"})
            case "tool":
                self._tool(found)

    def _tool(self, found: DocumentPiece) -> None:
        text, call_id = found.key[2], self.ids[found.start]
        try:
            name, arguments, end = read_call(text)
            data = {
                "type": f"tool-{name}",
                "toolCallId": call_id,
                "state": "output-available",
                "input": arguments,
                "output": text[end:].removeprefix("\n\n"),
            }
            printed = tool_body(data)
        except (WireError, RecursionError) as error:
            self.notes.append(
                f"The tool call {call_id} cannot be read and stays text: {' '.join(str(error).split())}"
            )
            return
        part_id = self._add(data)
        if printed != text:
            self._keep(part_id, text)
        self._begun = False  # what follows was said when the result was there

    def _add(self, data: Mapping[str, Any]) -> str:
        """Add a part to the answer, or begin one with it, and return the part's id."""
        if self._message is None:
            self._message = self._new_message("assistant", ORIGIN)
            self._index, self._begun = 0, False
        if not self._begun:
            self._put(self._message, self._index, {"type": "step-start"})
            self._index, self._begun = self._index + 1, True
        part_id = self._put(self._message, self._index, data)
        self._index += 1
        return part_id

    def _new_message(self, role: str, origin: str) -> dict[str, Any]:
        row = message_row(role=role, session_id=self.session_id, metadata={"origin": origin}, now_ms=self.now_ms)
        self.facts.append(("message", row))
        return row

    def _put(self, message: Mapping[str, Any], index: int, data: Mapping[str, Any]) -> str:
        row = part_row(
            message_id=message["id"], session_id=self.session_id, index=index, data=data, now_ms=self.now_ms
        )
        self.facts.append(("part", row))
        return str(row["id"])

    def _keep(self, part_id: str, text: str) -> None:
        """Record the document's text of a part as an edit, if it differs from our rendering."""
        self.facts.append(("edit", {"part_id": part_id, "text": text}))


def _goes_on(first: DocumentPiece, next: Piece) -> bool:
    """Return whether ``next`` continues the user's text that begins with ``first``."""
    return next.message is None and next.found.key[0] == "user" and next.found.region == first.region
