"""Text wins, structure enriches: the model's view from the document and the record (DESIGN §3).

Where a piece of the document equals what was recorded, the exact recorded parts are used; where the user edited it,
the edited text; what the user removed is hidden. Pure: it says which edits to record and records nothing. Roles
that something outside destroyed are recovered first (``heal``), and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyagentd.messages import Message
from pyagentd.store import conversation as record
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import Document, Span
from pyagentd.store.heal import heal
from pyagentd.store.locate import locate as locate
from pyagentd.store.pieces import (
    Found,
    Recorded,
    found_pieces,
    link_moved,
    match,
    recorded_pieces,
    with_known_ids,
)
from pyagentd.store.render import tool_body, writable
from pyagentd.store.view import Seen, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """What the document up to a position means.

    Attributes:
        view: What the model sees, the new prompt included.
        new_prompt: The user's text after the last recorded prompt or answer, "" when there is none.
        last_prompt: All text of the user with which the view ends, new or not: what a repeated send asks again.
        edits: Data of ``edit`` rows to record, over the whole document and not only up to the position.
        notes: What could not be read or was recovered, for the user.
        spans: Recovered roles of the whole body, None when the document's own were right.
    """

    view: tuple[Message, ...]
    new_prompt: str
    last_prompt: str
    edits: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()
    spans: tuple[Span, ...] | None = None


def align(document: Document, conversation: Conversation, end: int | None = None) -> Aligned:
    """Return what ``document`` up to offset ``end`` (code points from 0; None: all of it) means."""
    recorded = recorded_pieces(conversation)
    alignment = _Alignment(document, recorded, end)
    healed = heal(document, recorded, alignment.found, alignment.links) if alignment.has_losses() else None
    if healed is not None:
        alignment = _Alignment(healed, recorded, end)
    view, new_prompt, last_prompt = alignment.read()
    if healed is not None:
        view.notes.append("The roles in this document were lost or shifted; they were recovered from the log.")
    return Aligned(
        view=view.finished(),
        new_prompt=new_prompt,
        last_prompt=last_prompt,
        edits=tuple(alignment.edits()),
        notes=tuple(view.notes),
        spans=healed.spans if healed is not None else None,
    )


class _Alignment:
    """One document matched with one record.

    ``links[i]`` is the recorded piece that found piece i is, ``sources[i]`` the one it was edited from, or -1.
    """

    def __init__(self, document: Document, recorded: list[Recorded], end: int | None) -> None:
        self.body = document.body
        self.recorded = recorded
        self.found = with_known_ids(found_pieces(document, end), recorded)
        self.above = len(self.found)  # the number of pieces above ``end``
        if end is not None:
            self.above = sum(1 for piece in self.found if piece.end <= end)
        self.links = match([piece.key for piece in recorded], [piece.key for piece in self.found])
        self.moved = link_moved(recorded, self.found, self.links, self._last_answer())
        self.prompt_start = self._find_prompt()
        self.sources = self._find_sources() if -1 in self.links else [-1] * len(self.links)

    def has_losses(self) -> bool:
        """Whether an answer that should be in the document was not found there."""
        linked = set(self.links)
        return len(linked) < len(self.recorded) and any(
            piece.key[0] != "user" and not piece.is_hidden and number not in linked
            for number, piece in enumerate(self.recorded)
        )

    def read(self) -> tuple[View, str, str]:
        """Return the view up to the end, the new prompt, and all user text with which the view ends."""
        view, last = View(), ""
        index = 0
        while index < self.above:
            stop = self._same_side(index)
            if self.found[index].key[0] == "user":
                texts = list(self._user_texts(index, stop))
                last = "\n\n".join(texts)
                for text in texts:
                    view.add_user(text)
            else:
                last = ""
                view.add_answer([seen for i in range(index, stop) if (seen := self._seen(i)) is not None])
            index = stop
        new = "\n\n".join(text for _, text in self._slices(self.prompt_start, self.above))
        return view, new, last

    def edits(self) -> Iterator[dict[str, Any]]:
        """Yield the ``edit`` rows that bring the record up to the document."""
        kept: dict[int, int] = {}  # recorded piece: found piece
        for index, number in enumerate(self.links):
            kept[number] = index
        made: dict[int, int] = {number: index for index, number in enumerate(self.sources) if number >= 0}
        seen: set[str] = set()
        for number, piece in enumerate(self.recorded):
            if piece.part is not None:
                yield from self._part_edit(piece.part, piece, kept.get(number), made.get(number))
            elif piece.message.id not in seen:
                seen.add(piece.message.id)
                yield from self._message_edit(piece.message, number, kept, made)

    # -- user text ---------------------------------------------------------------------------------------------

    def _last_answer(self) -> int:
        """Return the number after the last piece above the end that is no user text."""
        return next((i + 1 for i in range(self.above - 1, -1, -1) if self.found[i].key[0] != "user"), 0)

    def _find_prompt(self) -> int:
        """Return the first piece of the new prompt: after the last answer and the last prompt that is as recorded."""
        start = self.above
        while start > 0 and self.found[start - 1].key[0] == "user":
            number = self.links[start - 1]
            if number >= 0 and self._is_whole(start - 1):
                break
            start -= 1
        for index in range(start, self.above):
            self.links[index] = -1
        return start

    def _is_whole(self, last: int) -> bool:
        """Return whether piece ``last`` ends a message of which every piece is there and as recorded."""
        number = self.links[last]
        message = self.recorded[number].message
        if number + 1 < len(self.recorded) and self.recorded[number + 1].message is message:
            return False
        while number >= 0 and self.recorded[number].message is message:
            if last < 0 or self.links[last] != number:
                return False
            number, last = number - 1, last - 1
        return True

    def _user_texts(self, start: int, stop: int) -> Iterator[str]:
        """Yield the user's texts between two pieces: recorded messages exactly, the rest as it stands."""
        for message, text in self._slices(start, stop):
            yield message.text if message is not None else text

    def _slices(self, start: int, stop: int) -> Iterator[tuple[record.Message | None, str]]:
        """Yield for user pieces of one message, or of none, the message if it is unchanged, and their text."""
        index = start
        while index < stop:
            first, owner = index, self._owner(index)
            index += 1
            while index < stop and self._owner(index) is owner and self._adjoins(index):
                index += 1
            whole = owner is not None and self._is_message(owner, first, index)
            yield owner if whole else None, self.body[self.found[first].start : self.found[index - 1].end]

    def _owner(self, index: int) -> record.Message | None:
        number = self.links[index] if self.links[index] >= 0 else self.sources[index]
        return self.recorded[number].message if number >= 0 else None

    def _adjoins(self, index: int) -> bool:
        return self.found[index].region == self.found[index - 1].region

    def _is_message(self, message: record.Message, start: int, stop: int) -> bool:
        number = self.links[start]
        return (
            number >= 0
            and (number == 0 or self.recorded[number - 1].message is not message)
            and self.links[start:stop] == list(range(number, number + stop - start))
            and self._is_whole(stop - 1)
        )

    # -- answers -----------------------------------------------------------------------------------------------

    def _same_side(self, index: int) -> int:
        """Return the number after the last piece from ``index`` on that is of the same side of the conversation."""
        is_user = self.found[index].key[0] == "user"
        stop = index + 1
        while stop < self.above and (self.found[stop].key[0] == "user") == is_user:
            stop += 1
        return stop

    def _seen(self, index: int) -> Seen | None:
        found, number, source = self.found[index], self.links[index], self.sources[index]
        if number < 0 and found.key[0] == "reasoning":
            return None
        known = number if number >= 0 else source
        return Seen(found, known, self.recorded[known] if known >= 0 else None, number >= 0)

    # -- edits -------------------------------------------------------------------------------------------------

    def _find_sources(self) -> list[int]:
        """Pair what was not found as recorded with what stands in its place."""
        sources = [-1] * len(self.found)
        linked = {number for number in self.links if number >= 0}
        number = 0
        gap: list[int] = []
        for index in range(len(self.found) + 1):
            anchor = self.links[index] if index < len(self.found) else len(self.recorded)
            if anchor < 0:
                if not self.prompt_start <= index < self.above:
                    gap.append(index)
            elif index not in self.moved:
                free = [n for n in range(number, anchor) if n not in linked]
                _pair(gap, free, self.found, self.recorded, sources)
                gap, number = [], anchor + 1
        return sources

    def _part_edit(
        self, part: record.Part, piece: Recorded, kept: int | None, made: int | None
    ) -> Iterator[dict[str, Any]]:
        if kept is not None:
            if part.hidden:
                yield _edit(part, piece.key[2])
        elif made is not None and piece.key[0] != "reasoning":
            yield _edit(part, self.found[made].key[2])
        elif not piece.is_hidden:
            yield {"part_id": part.id, "hidden": True}

    def _message_edit(
        self, message: record.Message, number: int, kept: dict[int, int], made: dict[int, int]
    ) -> Iterator[dict[str, Any]]:
        numbers = range(number, number + sum(1 for _ in _pieces_of(self.recorded, number)))
        places = [kept.get(n, made.get(n)) for n in numbers]
        present = [place for place in places if place is not None]
        if not present:
            if not message.is_hidden:
                yield {"message_id": message.id, "hidden": True}
        elif any(n not in kept for n in numbers):
            first = min(present)
            last = max(place for place in present if self.found[place].region == self.found[first].region)
            text = self.body[self.found[first].start : self.found[last].end]
            yield {"message_id": message.id, "text": text}
        elif message.hidden:
            yield {"message_id": message.id, "text": message.text}


def _edit(part: record.Part, text: str) -> dict[str, Any]:
    """Return the data of the row that makes ``text`` what the part shows; what was recorded needs no text."""
    original = tool_body(part.data) if part.is_tool else writable(part.text)
    return {"part_id": part.id} if text == original else {"part_id": part.id, "text": text}


def _pieces_of(recorded: Sequence[Recorded], number: int) -> Iterator[Recorded]:
    message = recorded[number].message
    while number < len(recorded) and recorded[number].message is message:
        yield recorded[number]
        number += 1


def _pair(
    gap: Iterable[int], free: list[int], found: Sequence[Found], recorded: Sequence[Recorded], sources: list[int]
) -> None:
    """Give every piece in a gap the free recorded piece of its kind that is most like it, in order."""
    for index in gap:
        key = found[index].key
        same = [number for number in free if recorded[number].key[0] == key[0]]
        if same:
            best = max(same, key=lambda number: _likeness(recorded[number].key, key))
            sources[index] = best
            free = [number for number in free if number > best]


def _likeness(one: tuple[str, str, str], other: tuple[str, str, str]) -> tuple[bool, int]:
    """Compare call ids, then how far the texts agree from both ends."""
    left, right = one[2], other[2]
    length = min(len(left), len(right), 2000)
    head = next((i for i in range(length) if left[i] != right[i]), length)
    tail = next((i for i in range(1, length - head + 1) if left[-i] != right[-i]), length - head + 1)
    return bool(one[1]) and one[1] == other[1], head + tail
