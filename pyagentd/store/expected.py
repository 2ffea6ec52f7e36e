"""The document as the record would show it, were it written today.

What somebody made of a document is found by comparing it with this text. It is close to the real one but for what the
user wrote and never sent, and for the user's blank lines. Hidden messages are in it: where their text has come back,
it has its role again.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyagentd.store.compaction import COMPACTION
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import PROMPT_PREFIX, Kind, Span, merged
from pyagentd.store.pieces import Recorded, fragments, laid_out, original_text
from pyagentd.store.recorded import Message, Part
from pyagentd.store.render import (
    FENCE_CLOSE,
    RUN_CLOSE,
    RUN_OPEN,
    Block,
    error_block,
    separator,
    tool_head,
)


class Expected(NamedTuple):
    """A text with its roles; ``places`` has the range of each recorded piece, in the order of the pieces."""

    body: str
    spans: tuple[Span, ...]
    places: tuple[tuple[int, int], ...]


def expected(conversation: Conversation, recorded: Sequence[Recorded]) -> Expected:
    """Return the document that shows ``recorded``, which are the pieces of ``conversation``."""
    layout = _Layout(recorded)
    errors: dict[str, list[str]] = defaultdict(list)
    runs = Counter(run.data.get("message_id", "") for run in conversation.runs.values())
    for message_id, block in error_blocks(conversation):
        if runs[message_id] == 1:  # else nobody knows between which answers it stands
            errors[message_id].append(block)
    due: list[str] = []
    for message, parts in laid_out(conversation):
        if message.role == "user":
            steers = bool(message.metadata.get("steered"))  # its run goes on, and what it failed of stands at its end
            layout.end_turn([] if steers else due)
            layout.add_prompt(message)
            due = due if steers else errors[message.id]
        else:
            if any(part.type == COMPACTION and not part.data.get("auto") for part in parts):
                layout.add_errors(due)  # somebody asked for it when the run had ended
                due = []
            layout.add_step(message, parts)
    layout.end_turn(due)
    layout.end()
    return Expected("".join(layout.texts), tuple(merged(layout.spans)), tuple(layout.places))


def error_blocks(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Yield for each run that failed the id of the prompt and what the document says about it."""
    for run in conversation.runs.values():
        if (error := run.data.get("error")) and run.data.get("kind") != "compaction":
            yield run.data.get("message_id", ""), error_block(str(error.get("message", "")))


class _Layout:
    def __init__(self, recorded: Sequence[Recorded]) -> None:
        self.texts: list[str] = []
        self.spans: list[Span] = []
        self.places: list[tuple[int, int]] = []
        self._recorded = deque(recorded)
        self._size = 0
        self._joint = ""  # what comes before the next text, and is hidden if that is
        self._last: Block = "start"
        self._hidden = False  # whether all that is put has the role `ignore`: turns that were taken back

    def add_prompt(self, message: Message) -> None:
        self._hidden = _is_rewound(message)
        if not self._size:
            self._put(PROMPT_PREFIX)
        self._join()
        text, start = message.text, self._size
        self.places += [(start + a, start + b) for a, b in fragments(text)]
        while self._recorded and self._recorded[0].message is message:
            self._recorded.popleft()
        self._put(text)
        self._joint = RUN_OPEN
        self._last = "start"

    def add_step(self, message: Message, parts: Sequence[Part]) -> None:
        self._hidden = _is_rewound(message)
        for part in parts:
            if part.type == COMPACTION:
                self._add_compaction(part)
            elif not part.is_tool:
                self._add_text(part)
        for part in parts:
            if part.is_tool and part.result is not None:
                self._add_tool(part)

    def end_turn(self, errors: Sequence[str]) -> None:
        """Put what ends the turn before, if there was one."""
        if self._size:
            self.add_errors(errors)
            self._joint += RUN_CLOSE

    def add_errors(self, errors: Sequence[str]) -> None:
        """Put what is said of a run that failed."""
        for error in errors:
            self._separate("error")
            self._put(error, "ignore")

    def end(self) -> None:
        """Put what ends the document, where the next prompt will be."""
        self._hidden = False
        self._join()

    def _add_text(self, part: Part) -> None:
        piece = self._next_of(part)
        text = piece.key[2] if piece else part.text
        if text:
            self._separate("reasoning" if part.type == "reasoning" else "text")
            self._put_piece(text, "ignore" if part.type == "reasoning" else "response", piece)

    def _add_compaction(self, part: Part) -> None:
        piece = self._next_of(part)
        self._separate("compaction")
        self._put_piece(piece.key[2] if piece else original_text(part), "ignore", piece)

    def _add_tool(self, part: Part) -> None:
        self._separate("tool")
        piece = self._next_of(part)
        self._put(tool_head(part.data), "ignore")
        if piece is not None:
            self._put_piece(piece.key[2], "tool", piece)
        self._put(FENCE_CLOSE + "\n", "ignore")

    def _next_of(self, part: Part) -> Recorded | None:
        """Return the recorded piece of a part, if it shows as one; pieces come in the order in which they show."""
        return self._recorded.popleft() if self._recorded and self._recorded[0].part is part else None

    def _put_piece(self, text: str, kind: Kind, piece: Recorded | None) -> None:
        self._join()
        if piece is not None:
            self.places.append((self._size, self._size + len(text)))
        self._put(text, kind, piece.key[1] if piece is not None else "")

    def _separate(self, next: Block) -> None:
        self._joint += separator(self._last, next)
        self._last = next

    def _join(self) -> None:
        joint, self._joint = self._joint, ""
        if joint:
            self._put(joint)

    def _put(self, text: str, kind: Kind | None = None, id: str = "") -> None:
        self._join()
        kind = "ignore" if self._hidden else kind
        if kind is not None:
            self.spans.append(Span(self._size, self._size + len(text), kind, id if kind == "tool" else ""))
        self.texts.append(text)
        self._size += len(text)


def _is_rewound(message: Message) -> bool:
    """Return whether its text stays in the document without being sent (DESIGN §3, rule 6)."""
    return bool(message.row.get("metadata_json", {}).get("hidden_at"))
