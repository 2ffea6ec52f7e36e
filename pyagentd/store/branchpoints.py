"""Where a branch can begin, and what of a conversation lies before that point: document and log.

Pure. A branch begins at a prompt of the user (neighbours A.2), before it or right behind it. What the document keeps
is decided by position, what the log keeps by message: one that stands in the document goes with the text, one that
does not (removed by the user, empty) goes with its prompt, or with its time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyagentd.store.align import Placed, placed
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import BLANK, Document, Span, regions
from pyagentd.store.journal import Row
from pyagentd.store.recorded import RunState

_NEVER = 1 << 62  # a row's number that comes after all others

Fact = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPoint:
    """A prompt at which a branch can begin.

    Attributes:
        number: Its place among the prompts, from 1.
        message_id: The recorded message it is, or None: it was never sent.
        start: Offset (code points from 0) where it begins, with its heading ``###`` if it has one.
        end: Offset behind its last character that is no blank.
        text: The prompt without heading.
        reach: The offsets from and up to which a position means this prompt: blanks around it count.
    """

    number: int
    message_id: str | None
    start: int
    end: int
    text: str
    reach: tuple[int, int]

    def cut(self, *, include: bool) -> int:
        """Return the offset up to which a branch keeps the document."""
        return self.end if include else self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A document read for branching; ``document`` has its roles recovered if they were lost."""

    document: Document
    rows: Sequence[Row]
    conversation: Conversation
    pieces: Sequence[Placed]
    points: Sequence[BranchPoint]


def outline(document: Document, rows: Sequence[Row]) -> Outline:
    """Return where in ``document`` a branch can begin; ``rows`` are its log as ``read_rows`` gives it."""
    conversation = Conversation(rows)
    document, pieces = placed(document, conversation)
    points = tuple(_points(document, pieces))
    return Outline(document=document, rows=rows, conversation=conversation, pieces=pieces, points=points)


def cut(document: Document, offset: int) -> Document:
    """Return the document up to ``offset`` (code points from 0), exactly.

    A span that begins before the offset is kept and one that begins there is not; only the start counts. A span that
    reaches over the offset is clipped, since bounds beyond the end of the text make a file that neither gptel nor we
    would read: they would be taken for shifted, and all roles with them. Nothing kept means nothing at all: no
    settings either, as in a new session.
    """
    if offset <= 0:
        return Document()
    spans = tuple(span._replace(end=min(span.end, offset)) for span in document.spans if span.start < offset)
    return replace(document, body=document.body[:offset], spans=spans)


def kinds(spans: Sequence[Span]) -> int:
    """Return how many types of bounds ``spans`` make in the file."""
    return len({span.kind for span in spans})


class Before:
    """What of a log lies before a branch point.

    Args:
        outline: The whole conversation.
        point: Where the branch begins.
        include: Whether the prompt itself is before the point.
    """

    def __init__(self, outline: Outline, point: BranchPoint, *, include: bool) -> None:
        self._rows = outline.rows
        self._conversation = outline.conversation
        self._point = point.message_id
        self._pieces = outline.pieces
        self._cut = point.cut(include=include)
        self._placed = {piece.message.id for piece in self._pieces if piece.message}
        self._above = {piece.message.id for piece in self._pieces if piece.message and self._is_above(piece)}
        self._first: dict[str, int] = {}
        for row in self._rows:
            if row.type == "message":
                self._first.setdefault(row.data["id"], row.seq)
        answers = [id for id, message in self._conversation.messages.items() if message.role != "user"]
        told = sorted((self._first[id], id) for id in answers)
        self._answers = {run_id: _between(told, run) for run_id, run in self._conversation.runs.items()}
        self._prompt_of = {
            answer: self._conversation.runs[run_id].data["message_id"]
            for run_id, answers in self._answers.items()
            for answer in answers
        }
        self._answered = {prompt for answer, prompt in self._prompt_of.items() if answer in self._above}
        self._time = self._time_of_point()

    def open_run(self) -> RunState | None:
        """Return a run before the point that has not ended, if there is one."""
        return next((run for run in self._kept_runs() if not run.is_finished), None)

    def facts(self) -> list[Fact]:
        """Return the rows of a new log, type and data each, from which opening it inserts nothing."""
        kept: list[Fact] = [(row.type, _ungranted(row)) for row in self._rows if self._keeps_row(row)]
        hidden: list[Fact] = [("edit", {"part_id": part, "hidden": True}) for part in self._cut_off()]
        ends: list[Fact] = [("run", {**run.data, "state": "kept"}) for run in self._kept_runs() if not run.is_kept]
        return [*kept, *hidden, *ends]

    def keeps(self, message_id: str) -> bool:
        """Return whether a message is before the point."""
        if message_id in self._placed:
            return message_id in self._above
        prompt = self._prompt_of.get(message_id)
        if prompt is not None:
            return prompt != self._point and self.keeps(prompt)
        return message_id in self._answered or self._first.get(message_id, _NEVER) < self._time

    def keeps_run(self, run_id: str) -> bool:
        """Return whether a run is before the point: its prompt and, if it has one, its answer."""
        run = self._conversation.runs.get(run_id)
        if run is None or run.data["message_id"] == self._point or not self.keeps(run.data["message_id"]):
            return False
        answers = self._answers[run_id]
        return not answers or any(map(self.keeps, answers))

    def _is_above(self, piece: Placed) -> bool:
        return piece.found.start < self._cut

    def _time_of_point(self) -> int:
        """Return the row before which a message that stands nowhere is before the point."""
        if self._point is not None:
            return self._first[self._point]
        below = self._placed - self._above  # the prompt was never sent; what stands behind it is later
        return min((self._first[message] for message in below), default=_NEVER)

    def _kept_runs(self) -> Iterator[RunState]:
        return (run for run_id, run in self._conversation.runs.items() if self.keeps_run(run_id))

    def _keeps_row(self, row: Row) -> bool:
        data = row.data
        match row.type:
            case "session":
                return True
            case "message":
                return self.keeps(data["id"])
            case "run":
                return self.keeps_run(data["id"])
            case "ask":
                return self.keeps_run(data.get("run_id", ""))
        if (part_id := data.get("part_id")) is not None:
            part = self._conversation.parts.get(part_id)
            return part is not None and self.keeps(part.row["message_id"])
        if (message_id := data.get("message_id")) is not None:
            return self.keeps(message_id)
        return row.seq < self._time  # of a later version

    def _cut_off(self) -> Iterator[str]:
        """Yield the parts of kept messages of which all text was cut off."""
        above = {piece.part.id for piece in self._pieces if piece.part and self._is_above(piece)}
        for piece in self._pieces:
            if piece.part and piece.message and piece.message.id in self._above and piece.part.id not in above:
                above.add(piece.part.id)
                yield piece.part.id


def _ungranted(row: Row) -> Mapping[str, Any]:
    """Return the data of a row; what a human granted to a session is not granted to a branch of it."""
    if row.type == "session" and row.data.get("permissions_json"):
        return {**row.data, "permissions_json": []}
    return row.data


def _between(told: Sequence[tuple[int, str]], run: RunState) -> list[str]:
    """Return the answers that were told, in rows numbered as given, while a run went on."""
    start = bisect_left(told, (run.first_seq, ""))
    end = bisect_left(told, (run.last_seq or _NEVER, ""))
    return [id for _, id in told[start:end]]


def _points(document: Document, pieces: Sequence[Placed]) -> Iterator[BranchPoint]:
    prompts = list(_prompts(pieces))
    homes = regions(document)
    for index, prompt in enumerate(prompts):
        first, last = prompt[0].found, prompt[-1].found
        home = homes[first.region]
        before = prompts[index - 1][-1].found.end if index else 0
        after = prompts[index + 1][0].found.start if index + 1 < len(prompts) else home.end
        start = _skip_blank(document.body, max(before, home.start), first.start)
        yield BranchPoint(
            number=index + 1,
            message_id=prompt[0].message.id if prompt[0].message else None,
            start=start if index or document.body[:start].strip(BLANK) else 0,
            end=last.end,
            text=document.body[first.start : last.end],
            reach=(max(before, home.start), min(after, home.end)),
        )


def _prompts(pieces: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Yield the user's pieces, together what is one message, or text of one region that was never sent."""
    prompt: list[Placed] = []
    for piece in pieces:
        if prompt and (piece.found.region != prompt[-1].found.region or piece.message is not prompt[-1].message):
            yield prompt
            prompt = []
        if piece.found.key[0] == "user":
            prompt.append(piece)
    if prompt:
        yield prompt


def _skip_blank(body: str, start: int, end: int) -> int:
    return end - len(body[start:end].lstrip(BLANK))
