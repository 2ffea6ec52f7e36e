"""Where a run goes on in a document whose exact saved state is unknown.

Somebody else (an editor that vanished, a daemon that died) put part of the run's text into the document, and the user
may have edited above and inside it. What is there already is recognised by text and role; the rest is returned to be
inserted. Text that was in a known state of the file and is gone was removed by the user and does not come back. All
other text that is not recognised is inserted, so nothing is lost: only when a save was never reported and the same
save holds an edit of the last words that were streaming, these words come twice, as edited and as the model said
them. Text is taken to be there by mistake only where the user wrote a whole paragraph of the answer (8 characters
or more in its role, 24 where the roles are lost) below the place where the run goes on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from pyagentd.events import InsertRole
from pyagentd.store.difference import matches
from pyagentd.store.document import PROMPT_PREFIX, Span
from pyagentd.store.render import RUN_CLOSE, RUN_OPEN, Insert

_SURE = 24  # characters from which equal text is hardly chance
_LIKELY = 8


class _Block(NamedTuple):
    """Neighbouring inserts of one part and role as one text; ``offset`` counts from the run's first character."""

    text: str
    role: InsertRole
    part_id: str
    offset: int

    @property
    def end(self) -> int:
        return self.offset + len(self.text)


def locate(
    body: str, spans: Sequence[Span], anchor: int, inserts: Sequence[Insert], *, written: int = 0
) -> tuple[int, tuple[Insert, ...]]:
    """Find how much of a run the body holds.

    Args:
        body: The document's text.
        spans: Its roles; without any, text alone decides.
        anchor: Where the run's first insert went, if nothing above was edited since.
        inserts: Everything the run inserted so far, in order.
        written: The row up to which the file is known to have held them; what of that is missing was removed.

    Returns:
        The offset at which the run goes on, and the inserts it lacks; the first may be the rest of one.
    """
    place = _Place(body, spans, list(_blocks(inserts)))
    position, known = place.find(max(0, min(anchor, len(body))))
    known = max(known, sum(len(insert.text) for insert in inserts if insert.seq <= written))
    return position, tuple(_rest(inserts, known))


class _Place:
    def __init__(self, body: str, spans: Sequence[Span], blocks: Sequence[_Block]) -> None:
        self._body = body
        self._spans = spans
        self._starts = [span.start for span in spans]
        self._blocks = blocks

    def find(self, anchor: int) -> tuple[int, int]:
        """Return the offset in the body where the run goes on, and how many of its characters are there."""
        position, known = self._follow(anchor, 0)
        if not self._shows(known):
            # Nothing of the run at the anchor: text above was edited, or nothing was inserted yet.
            found = self._find_anywhere(anchor if self._ends_prompt(anchor) else 0)
            if found is None:
                return (anchor, 0) if self._is_chance(anchor, known) else (position, known)
            position, known = found
        while (later := self._find_later(position, known)) is not None:
            position, known = later
        return self._inside_edited(position, known)

    def _follow(self, position: int, known: int) -> tuple[int, int]:
        """Go on as long as body and run agree in text and role.

        Blank lines before a heading of the user's are not taken for those before more of the run.
        """
        start = position
        for block in self._blocks:
            if block.end <= known:
                continue
            text = block.text[max(0, known - block.offset) :]
            agreeing = self._agreeing(position, text, block.role)
            position, known = position + agreeing, known + agreeing
            if agreeing < len(text):
                break
        for blank in range(1, min(len(RUN_OPEN), position - start) + 1):
            if self._body.startswith(RUN_CLOSE, position - blank):
                return position - blank, known - blank
        return position, known

    def _agreeing(self, position: int, text: str, role: InsertRole) -> int:
        """Return how many characters of ``text`` stand at ``position`` in that role."""
        available = min(len(text), self._role_end(position, role) - position)
        if available == len(text) and self._body.startswith(text, position):
            return available
        agreeing = 0
        while agreeing < available and self._body[position + agreeing] == text[agreeing]:
            agreeing += 1
        by_chance = role is not None and not self._spans and agreeing < _LIKELY
        return 0 if by_chance and position + agreeing < len(self._body) else agreeing

    def _role_end(self, position: int, role: InsertRole) -> int:
        """Return how far the text from ``position`` on has the role; ``position`` itself when it has not."""
        if not self._spans:
            return len(self._body)
        index = bisect_right(self._starts, position) - 1
        span = self._spans[index] if index >= 0 and self._spans[index].end > position else None
        if role is None:
            following = self._starts[index + 1] if index + 1 < len(self._starts) else len(self._body)
            return position if span else following
        return span.end if span and (span.kind, span.id) == _span_role(role) else position

    def _shows(self, known: int) -> bool:
        """Return whether so many characters of the run include some of an answer or a tool."""
        return any(block.role is not None and block.offset < known for block in self._blocks)

    def _is_chance(self, anchor: int, known: int) -> bool:
        """Return whether all that agrees are blank lines of the user's: those before a heading that stands below.

        Of a separator that belongs to the text behind it, blank lines alone are never there.
        """
        begins = self._blocks[0] if self._blocks else None
        if begins is not None and begins.role is None and begins.part_id:
            return True
        return known <= len(RUN_OPEN) and self._body.startswith(RUN_CLOSE, anchor)

    def _ends_prompt(self, position: int) -> bool:
        """Return whether text of the user, or a hidden answer, ends here: the position is likely still right."""
        if self._body[position : position + 2].strip():
            return False
        if self._ends_hidden(position):
            return True
        before = self._body[position - 1 : position]
        return bool(before.strip()) and self._role_end(position - 1, None) >= position

    def _ends_hidden(self, position: int) -> bool:
        """Return whether hidden text ends here, with or without the heading below it."""
        if self._body.endswith(RUN_CLOSE, 0, position) and self._role_end(position - 1, None) >= position:
            position -= len(RUN_CLOSE)
        index = bisect_right(self._starts, position - 1) - 1
        span = self._spans[index] if index >= 0 else None
        if span is None or (span.end, span.kind) != (position, "ignore"):
            return False
        return self._body.startswith((RUN_OPEN, PROMPT_PREFIX), span.start)

    def _find_anywhere(self, low: int) -> tuple[int, int] | None:
        """Return the place after the run's last block that surely stands somewhere from ``low`` on, or None."""
        for block in reversed(self._blocks):
            if len(block.text) >= _SURE and block.role is not None:
                start = self._body.rfind(block.text, low)  # of equal answers the last is this run's
                if start >= 0 and self._role_end(start, block.role) >= start + len(block.text):
                    return self._follow(start + len(block.text), block.end)
        first = next((block for block in self._blocks if block.role is not None), None)
        start = self._body.rfind(first.text[:_SURE], low) if first else -1
        if first and start >= 0 and self._role_end(start, first.role) >= start + min(_SURE, len(first.text)):
            return self._follow(start, first.offset)
        return None

    def _find_later(self, position: int, known: int) -> tuple[int, int] | None:
        """Return the place after the run's last block that stands below ``position``, or None."""
        zone_end = self._zone_end(position)
        for block in reversed(self._blocks):
            if block.offset < known or block.end == known:
                break
            if block.role is None or len(block.text) < (_SURE if block.role == "ignore" else _LIKELY):
                continue
            start = self._body.find(block.text, position, zone_end)
            while start >= 0:
                if self._role_end(start, block.role) >= start + len(block.text):
                    return self._follow(start + len(block.text), block.end)
                start = self._body.find(block.text, start + 1, zone_end)
        return None

    def _zone_end(self, position: int) -> int:
        """Return where the next prompt begins: what stands below it is of other runs."""
        if not self._spans:
            return len(self._body)
        heading = self._body.find(RUN_CLOSE, position)
        while heading >= 0 and self._role_end(heading, None) == heading:
            heading = self._body.find(RUN_CLOSE, heading + 1)
        return len(self._body) if heading < 0 else heading

    def _inside_edited(self, position: int, known: int) -> tuple[int, int]:
        """Go past the rest of a text that the user edited while it was growing."""
        block = next((b for b in self._blocks if b.offset < known < b.end), None)
        if block is None or block.role is None:
            return position, known
        end = self._role_end(position, block.role) if self._spans else self._paragraphs_end(position)
        if end == position:
            return position, known
        for old, new, size in reversed(matches(block.text[known - block.offset :], self._body[position:end])):
            if size >= (_LIKELY if self._spans else _SURE):
                position, known = position + new + size, known + old + size
                break
        return (end if self._spans else position), known

    def _paragraphs_end(self, position: int) -> int:
        heading = self._body.find(RUN_CLOSE, position)
        return len(self._body) if heading < 0 else heading


def _blocks(inserts: Sequence[Insert]) -> Iterator[_Block]:
    offset = 0
    for (role, part_id), group in groupby(inserts, key=lambda insert: (insert.role, insert.part_id)):
        text = "".join(insert.text for insert in group)
        yield _Block(text, role, part_id, offset)
        offset += len(text)


def _rest(inserts: Sequence[Insert], known: int) -> Iterator[Insert]:
    """Yield the inserts without the first ``known`` characters."""
    for insert in inserts:
        if known < len(insert.text):
            yield insert._replace(text=insert.text[known:])
        known = max(0, known - len(insert.text))


def _span_role(role: InsertRole) -> tuple[str, str]:
    return role if isinstance(role, tuple) else (role or "", "")
