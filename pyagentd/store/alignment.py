"""One document matched with one record: which piece is what, what the user made of it, what is to be recorded.

Roles are as the document has them; whether they are right is not decided here (``heal``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from pyagentd.store import recorded as record
from pyagentd.store.compaction import summary_in
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import Document
from pyagentd.store.matching import (
    joined_keys,
    link_moved,
    match,
    pair,
    restored_ids,
    with_known_blocks,
    with_known_ids,
)
from pyagentd.store.pieces import Found, found_pieces, original_text, recorded_pieces
from pyagentd.store.view import Seen, View


class Placed(NamedTuple):
    """A piece of the document and the recorded message it is, or was edited from; None when it is nobody's."""

    found: Found
    message: record.Message | None
    part: record.Part | None  # of answers


class Boundary(NamedTuple):
    """Where the model's view begins, and what it is shown in place of what came before."""

    start: int  # the first piece
    summary: str = ""
    pruned: frozenset[str] = frozenset()  # ids of parts whose output it is not shown


class Alignment:
    """One document matched with one record.

    ``links[i]`` is the recorded piece that found piece i is, ``sources[i]`` the one it was edited from, or -1.
    """

    def __init__(self, document: Document, conversation: Conversation, end: int | None) -> None:
        self.body = document.body
        self._parts = conversation.parts
        self._as_sent = conversation.as_sent
        self.recorded = recorded_pieces(conversation)
        self.found = with_known_ids(found_pieces(document, end), self.recorded)
        self.found = with_known_blocks(self.found, self.recorded)
        self.above = len(self.found)  # the number of pieces above ``end``
        if end is not None:
            self.above = sum(1 for piece in self.found if piece.end <= end)
        self.links = self._matched()
        if restored := restored_ids(conversation, self.recorded, self.found, self.links):
            self.recorded = recorded_pieces(conversation, restored)
            self.links = self._matched()
        self.moved = link_moved(self.recorded, self.found, self.links, self._last_answer())
        self.prompt_start = self._find_prompt()

    def _matched(self) -> list[int]:
        """Match what the record shows, then between that what it says is hidden: the user may have it back."""
        keys, found = joined_keys(self.body, self.recorded, self.found)
        visible = [number for number, piece in enumerate(self.recorded) if not piece.is_hidden]
        links = [visible[n] if n >= 0 else -1 for n in match([keys[n] for n in visible], found)]
        if len(visible) == len(keys) or -1 not in links:
            return links
        low, start = 0, 0
        for index in range(len(links) + 1):
            number = links[index] if index < len(links) else len(keys)
            if number < 0:
                continue
            gap = match(keys[low:number], found[start:index]) if start < index else []
            links[start:index] = [n + low if n >= 0 else -1 for n in gap]
            low, start = number + 1, index + 1
        together = match(keys, found)  # of equal texts the hidden one may be the one in between
        return max(links, together, key=lambda each: sum(1 for number in each if number >= 0))

    @property
    def known(self) -> int:
        """How many pieces are there as recorded."""
        return sum(1 for number in self.links if number >= 0)

    @property
    def known_answers(self) -> int:
        """How many pieces other than the user's are there as recorded."""
        return sum(1 for number in self.links if number >= 0 and self.recorded[number].key[0] != "user")

    @property
    def changed_answers(self) -> int:
        """How many such pieces the user or something else made something else of."""
        return sum(1 for number in self.sources if number >= 0 and self.recorded[number].key[0] != "user")

    def read(self) -> tuple[View, str, str]:
        """Return the view up to the end, the new prompt, and all user text with which the view ends."""
        boundary = self.boundary()
        view, last = View(summary=boundary.summary, pruned=boundary.pruned), ""
        index = boundary.start
        while index < self.above:
            stop = self._same_side(index)
            if self.found[index].key[0] == "compaction":
                stop = index + 1  # older than the boundary, or it stands behind where that lets the view begin
            elif self.found[index].key[0] == "user":
                view.begin_turn(owner.id if (owner := self.owners[index]) is not None else "")
                texts = list(self._user_texts(index, stop))
                last = "\n\n".join(texts)
                for text in texts:
                    view.add_user(text)
            else:
                last = ""
                view.add_answer([seen for i in range(index, stop) if (seen := self._seen(i)) is not None])
            index = stop
        new = "\n\n".join(self._user_texts(self.prompt_start, self.above))
        return view, new, last

    def boundary(self) -> Boundary:
        """Return where the view begins: by the latest compaction that stands above the end, or with the text."""
        marks = [index for index in range(self.above) if self.found[index].key[0] == "compaction"]
        last = max(marks, key=self._number, default=-1)
        if last < 0 or self._number(last) < 0:
            return Boundary(start=0)
        marker = self.recorded[self._number(last)]
        assert marker.part is not None, "only user text has none"
        facts = marker.part.data.get("metadata") or {}
        return Boundary(
            start=self._tail(marker.part.data.get("tail_start_id"), facts.get("tail_start_part_id"), last),
            summary=summary_in(self.found[last].key[2]),
            pruned=frozenset(facts.get("pruned") or ()),
        )

    def _tail(self, message_id: str | None, part_id: str | None, marker: int) -> int:
        """Return the first piece that is kept verbatim; of a tail that was removed, the first that followed it."""
        if message_id is None:
            return marker + 1
        kept = [number for number, piece in enumerate(self.recorded) if piece.message.id == message_id]
        if part_id is not None and (start := self._parts.get(part_id)) is not None:
            index = start.row["index"]
            within = [n for n in kept if (part := self.recorded[n].part) is not None and part.row["index"] > index]
            kept = within or kept
        if not kept:
            return marker + 1
        tail = set(kept)
        exact = next((index for index in range(self.above) if self._number(index) in tail), None)
        if exact is not None:
            return exact
        return next((index for index in range(self.above) if self._number(index) > kept[0]), marker + 1)

    def _number(self, index: int) -> int:
        """Return the recorded piece that found piece ``index`` is or was made from, or -1."""
        return self.links[index] if self.links[index] >= 0 else self.sources[index]

    def last_message(self) -> str:
        """Return the id of the recorded message of the user that ends right above the end, "" when none does."""
        last = self.above - 1
        while last >= 0 and self.found[last].key[0] == "compaction":
            last -= 1
        if last < 0 or self.prompt_start <= last or self.found[last].key[0] != "user":
            return ""
        return self.recorded[self.links[last]].message.id

    def placed(self) -> Iterator[Placed]:
        """Yield every piece of the document with what it is in the record."""
        for index, found in enumerate(self.found):
            number = self.links[index] if self.links[index] >= 0 else self.sources[index]
            known = self.recorded[number] if number >= 0 else None
            yield Placed(found, known.message if known else None, known.part if known else None)

    def edits(self) -> Iterator[dict[str, Any]]:
        """Yield the ``edit`` rows that bring the record up to the document."""
        kept: dict[int, int] = {}  # recorded piece: found piece
        for index, number in enumerate(self.links):
            kept[number] = index
        made: dict[int, int] = {number: index for index, number in enumerate(self.sources) if number >= 0}
        seen: set[str] = set()
        for number, piece in enumerate(self.recorded):
            if piece.part is not None:
                yield from self._part_edit(piece.part, number, kept.get(number), made.get(number))
            elif piece.message.id not in seen:
                seen.add(piece.message.id)
                yield from self._message_edit(piece.message, number)

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
        index = start
        while index < stop:
            first, owner = index, self.owners[index]
            index += 1
            while index < stop and self.owners[index] is owner and self._adjoins(index):
                index += 1
            if owner is not None and self._is_message(owner, first, index):
                text = owner.recorded_text if self.recorded[self.links[first]].restored else owner.text
                yield owner.model_text if self._as_sent and text == owner.recorded_text else text
            else:
                yield self.body[self.found[first].start : self.found[index - 1].end]

    @cached_property
    def extents(self) -> dict[str, tuple[int, int]]:
        """Return the first and last piece of every message of the user, by id; its text may have grown between."""
        extents: dict[str, tuple[int, int]] = {}
        for index in range(len(self.found)):
            owner = self._owner(index)
            if owner is None or owner.role != "user":
                continue
            first, last = extents.get(owner.id, (index, index))
            between = range(last + 1, index)
            joined = self.found[index].region == self.found[first].region
            if joined and all(self._owner(n) is None and not self._is_prompt(n) for n in between):
                extents[owner.id] = first, index
        return extents

    @cached_property
    def owners(self) -> list[record.Message | None]:
        """Return for each piece the message of the user that it is of."""
        owners: list[record.Message | None] = [None] * len(self.found)
        for first, last in self.extents.values():
            owners[first : last + 1] = [self._owner(first)] * (last + 1 - first)
        return owners

    def _owner(self, index: int) -> record.Message | None:
        number = self.links[index] if self.links[index] >= 0 else self.sources[index]
        return self.recorded[number].message if number >= 0 else None

    def _is_prompt(self, index: int) -> bool:
        return self.prompt_start <= index < self.above

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
        if found.key[0] == "compaction" or (number < 0 and found.key[0] == "reasoning"):
            return None
        known = number if number >= 0 else source
        return Seen(found, known, self.recorded[known] if known >= 0 else None, number >= 0)

    # -- edits -------------------------------------------------------------------------------------------------

    @cached_property
    def sources(self) -> list[int]:
        """Pair what was not found as recorded with what stands in its place: its recorded piece, or -1, for each."""
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
                pair(gap, free, self.found, self.recorded, sources)
                gap, number = [], anchor + 1
        return sources

    def _part_edit(
        self, part: record.Part, number: int, kept: int | None, made: int | None
    ) -> Iterator[dict[str, Any]]:
        if kept is not None:
            if part.hidden or self.recorded[number].restored:
                yield _edit(part, self.recorded[number].key[2])
        elif made is not None and part.type != "reasoning":
            yield _edit(part, self.found[made].key[2])
        elif not self.recorded[number].is_hidden:
            yield {"part_id": part.id, "hidden": True}

    def _message_edit(self, message: record.Message, number: int) -> Iterator[dict[str, Any]]:
        if message.id not in self.extents:
            if not message.is_hidden:
                yield {"message_id": message.id, "hidden": True}
            return
        first, last = self.extents[message.id]
        if not self._is_message(message, first, last + 1):
            text = self.body[self.found[first].start : self.found[last].end]
            edited = {"text": text} if text != message.recorded_text else {}
            yield {"message_id": message.id, **edited}
        elif self.recorded[number].restored:
            yield {"message_id": message.id}
        elif message.hidden:
            edited = {"text": message.text} if message.is_edited else {}
            yield {"message_id": message.id, **edited}


def _edit(part: record.Part, text: str) -> dict[str, Any]:
    """Return the data of the row that makes ``text`` what the part shows; what was recorded needs no text."""
    return {"part_id": part.id} if text == original_text(part) else {"part_id": part.id, "text": text}
