"""Matches a document with its log: the places of recorded texts, the user's edits, and the model's view.

The document decides which text the model sees. The log adds what the document does not show (reasoning, ids, exact
calls). These guarantees hold for any edit by any program:

- A message of the user or a step of the model that the edit does not touch is sent exactly as it was recorded.
- Messages are valid for a provider: roles alternate, and each call has its one result.
- Aligning again, with the edits recorded, finds the same messages and no more edits. For this a message of the user
  stands in one place, that with most of it, since an edit is recorded as one text; what is shown is matched before
  what is hidden; and ``align`` answers what it would answer once its edits are recorded.
- Where the document is again as it was, the messages are too.

The order in which texts are matched: whole messages and answers in order; pieces of messages between these; what is
hidden between those; what moved; last, what was edited with what stands in its place, by likeness.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from pyagentd.clock import claim
from pyagentd.events import InsertRole
from pyagentd.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from pyagentd.store import conversation
from pyagentd.store.conversation import COMPACTION, Conversation, output_stub, summary_in, summary_message
from pyagentd.store.document.heal import Loss, heal, loss
from pyagentd.store.document.pieces import (
    SURE,
    DocumentPiece,
    RecordedPiece,
    Step,
    common_text,
    fill,
    found_pieces,
    fragments,
    joined_keys,
    keep_together,
    link_moved,
    match,
    match_whole,
    original_text,
    pair_in_gap,
    recorded_pieces,
    restored_ids,
    with_known_blocks,
    with_known_ids,
)
from pyagentd.store.document.render import RUN_CLOSE, RUN_OPEN, Insert
from pyagentd.store.document.text import BLANK, PROMPT_PREFIX, Document, KnownRoles, Span, known_roles
from pyagentd.wire.sexp import SexpError, read_call

# The model's view of a document: messages that are always valid, from pieces in the document's order.
#
# They satisfy the rules of providers (roles alternate, the user begins, every call is answered once in the following
# message), and keep recorded steps exact. Steps that the user edited lose their reasoning, whose signature would not
# match. Text that cannot be parsed is left out, with a line in ``notes``.


ABORTED = "aborted"
BEGINNING = "(The beginning of this conversation was removed.)"


class ViewPiece(NamedTuple):
    """A piece of an answer in the document, and its recorded piece.

    ``number`` is that of the equal recorded piece or, if not ``exact``, of the one it was edited from; -1 if unknown.
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
    ids: set[str] = field(default_factory=set)  # of the calls in it, and of those before

    def begin_turn(self, message_id: str) -> None:
        """Begin a message of the user, with the id "" if it has none yet."""
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

    def to_whole_messages(self) -> tuple[Message, ...]:
        """Return the messages of a whole conversation."""
        if self.messages and self.messages[0][0] == "assistant" and not self.summary:
            self._prepend(BEGINNING)
        if self.summary:
            self._prepend(summary_message(self.summary))
        return self.to_messages()

    def _prepend(self, text: str) -> None:
        """Insert ``text`` as the beginning of the first user message, or as a new one before an answer."""
        if self.messages and self.messages[0][0] == "user":
            self.messages[0][1].insert(0, Text(text=text))
        else:
            self.messages.insert(0, ("user", [Text(text=text)]))
            self.turns = [(index + 1, id) for index, id in self.turns]

    def to_messages(self) -> tuple[Message, ...]:
        """Return the messages."""
        ids = dict(self.turns)
        messages = enumerate(self.messages)
        return tuple(Message(role=role, parts=tuple(parts), id=ids.get(n, "")) for n, (role, parts) in messages)

    def _add_step(self, step: Step | None, pieces: Sequence[ViewPiece]) -> None:
        if step is not None and all(p.exact for p in pieces) and [p.number for p in pieces] == step.pieces:
            restored = {p.recorded.part for p in pieces if p.recorded and p.recorded.restored}
            untouched = all(part.edited is None or part in restored for part in step.parts)
            self.add_recorded((part for part in step.parts if untouched or part.type != "reasoning"), restored)
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
                texts.append(_text(piece.recorded.part if piece.recorded else None, piece.found.key[2]))
        self._add(texts, calls)

    def add_recorded(
        self, parts: Iterable[conversation.Part], restored: Container[conversation.Part | None] = ()
    ) -> None:
        """Add a recorded step with the user's edits, except those of ``restored`` parts."""
        said: list[Part] = []
        calls: list[tuple[ToolCall, ToolResult]] = []
        for part in parts:
            if part.is_tool:
                made = self._tool(part, None if part in restored else part.edited)
                said += [call for call, _ in made]
                calls += made
            elif part.type == "text":
                said.append(_text(part, part.text if part.edited is None or part in restored else part.edited))
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
        output, is_error = part.result or (ABORTED, True)
        result = ToolResult(id=str(part.data["toolCallId"]), text=output, is_error=is_error)
        return [(_recorded_call(part), pruned_result(result) if part.id in self.pruned else result)]

    def _edited_tool(
        self, part: conversation.Part | None, text: str, call_id: str = ""
    ) -> list[tuple[ToolCall, ToolResult]]:
        """Read a call and its result from the text in the document."""
        if part is not None:
            call_id = str(part.data["toolCallId"])
        try:
            name, arguments, end = read_call(text)
        except SexpError as error:
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
        if calls:
            placed = {part.id for part in said if isinstance(part, ToolCall)}
            said += [call for call, _ in calls if call.id not in placed]
        while said and isinstance(said[-1], Reasoning):
            said.pop()
        # The document may have a call twice.
        names = {call.id: claim(call.id, self.ids) for call, _ in calls} if calls else {}
        if names and any(old != new for old, new in names.items()):
            said = [_with_new_names(part, names) for part in said]
        if said:
            self._extend("assistant", said)
        if calls:
            self._extend("user", [_with_new_names(result, names) for _, result in calls])

    def _extend(self, role: Role, parts: list[Part]) -> None:
        if self.messages and self.messages[-1][0] == role:
            self.messages[-1][1].extend(parts)
        else:
            self.messages.append((role, parts))


def model_parts(parts: Iterable[conversation.Part]) -> Iterator[Part]:
    """Yield the model's parts of a recorded step, without the results of its calls."""
    for part in parts:
        if part.is_tool:
            yield _recorded_call(part)
        elif part.type == "text":
            yield _text(part, part.text)
        elif part.type == "reasoning" and (reasoning := _reasoning(part)) is not None:
            yield reasoning


def pruned_result(result: ToolResult) -> ToolResult:
    """Return the model's view of a result whose output was pruned."""
    return ToolResult(id=result.id, text=output_stub(result.text), is_error=result.is_error)


def _recorded_call(part: conversation.Part) -> ToolCall:
    data = part.data
    return ToolCall(id=str(data["toolCallId"]), name=str(data["type"]).removeprefix("tool-"), input=data["input"])


def _text(part: conversation.Part | None, text: str) -> Text:
    """Return ``text``, that of ``part`` or an edited one, with the phase that the provider gave the part."""
    given = part.data.get("providerMetadata", {}).get("openai") if part is not None else None
    phase = given.get("phase") if isinstance(given, dict) else None
    return Text(text=text, phase=phase if isinstance(phase, str) else None)


def _reasoning(part: conversation.Part) -> Reasoning | None:
    """Return the reasoning if the provider accepts it again: it was finished, so it is signed or opaque."""
    for provider, metadata in part.data.get("providerMetadata", {}).items():
        if not isinstance(metadata, dict):
            continue
        signature, redacted = metadata.get("signature"), metadata.get("redactedData")
        if signature or redacted:
            return Reasoning(text=part.text, signature=signature, redacted=redacted, provider=provider)
    return None


def _with_new_names(part: Part, names: Mapping[str, str]) -> Part:
    match part:
        case ToolCall(id=old, name=name, input=arguments) if names.get(old, old) != old:
            return ToolCall(id=names[old], name=name, input=arguments)
        case ToolResult(id=old, text=text, is_error=is_error) if names.get(old, old) != old:
            return ToolResult(id=names[old], text=text, is_error=is_error)
    return part


# Recognising recorded text in a document.
#
# ``recognise`` is the one entry: it compares a document with the expected one, and returns the matching pieces, the
# roles of the text, the end of the recorded text, and the user's edits. Destroyed roles are recovered first
# (``heal``). ``align`` returns the model's view of the result, and ``locate`` the place where a run continues that is
# only partly in the document. Pure: nothing is recorded or written here.


class Piece(NamedTuple):
    """A piece of the document and the recorded message that it equals or was edited from, or None."""

    found: DocumentPiece
    message: conversation.Message | None
    part: conversation.Part | None  # of answers


class Boundary(NamedTuple):
    """The beginning of the model's view, and the summary of what came before."""

    start: int  # the first piece
    summary: str = ""
    pruned: frozenset[str] = frozenset()  # ids of parts whose output it is not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """The model's view of a log whose last row has the number ``seq``."""

    seq: int
    messages: Set[str]  # the ids of all of it
    view: tuple[Message, ...]  # ends with an answer
    calls: Set[str]  # the ids in that


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The interpretation of a document up to a position.

    Attributes:
        view: The model's view, with the new prompt.
        new_prompt: The user's text after the last recorded prompt or answer, or "".
        last_prompt: All text of the user at the end of the view, recorded or not, which sending again repeats.
        last_message: The id of the recorded message at the end of the view, "" if new text follows it.
        edits: The data of ``edit`` rows to record, for the whole document and not only up to the position.
        notes: Unreadable and recovered text, for the user.
        spans: The recovered roles of the whole body, None if the document's own were right.
        seen: The model's view without the new prompt, if the text above it is exactly the recorded one; else None.
    """

    view: tuple[Message, ...]
    new_prompt: str
    last_prompt: str
    edits: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()
    spans: tuple[Span, ...] | None = None
    last_message: str = ""
    seen: ModelView | None = field(default=None, compare=False)


def _prompt(texts: Iterable[str]) -> str:
    """Return texts of the user as one prompt; one of white space alone, in any script, is empty."""
    prompt = "\n\n".join(texts)
    return "" if prompt.isspace() else prompt


class Recognition:
    """One document matched with one log.

    Attributes:
        document: The document, with recovered roles.
        lost: Why roles had to be recovered; None if the document's own were right.
        recorded: The pieces that the document should show, without rewound turns.
        found: The pieces of the document.
        links: For each found piece the number of the equal recorded piece, or -1.
        sources: For each found piece the number of the recorded piece that it was edited from, or -1.
    """

    def __init__(self, document: Document, conversation: Conversation, end: int | None) -> None:
        self.document = document
        self.lost: Loss | None = None
        self.body = document.body
        self._messages = conversation.messages
        self._parts = conversation.parts
        self._as_sent = conversation.as_sent
        self.recorded = recorded_pieces(conversation)
        self.found = with_known_ids(found_pieces(document, end), self.recorded)
        self.found = with_known_blocks(self.found, self.recorded)
        self.above = len(self.found)  # the number of pieces above ``end``
        if end is not None:
            self.above = sum(1 for piece in self.found if piece.end <= end)
        self.links, self.moved = self._match_pieces()
        restored = restored_ids(self.body, conversation, self.recorded, self.found, self.links)
        while restored:
            self.recorded = recorded_pieces(conversation, restored)
            self.links, self.moved = self._match_pieces()
            linked = set(self.links)
            absent = {
                piece.id for number, piece in enumerate(self.recorded) if piece.restored and number not in linked
            }
            if not absent:
                break
            if not (restored := restored - absent):  # what looked like it is another text
                self.recorded = recorded_pieces(conversation)
                self.links, self.moved = self._match_pieces()
        self._put_together()
        self.prompt_start = self._find_prompt()

    def _match_pieces(self) -> tuple[list[int], set[int]]:
        """Return the links, and the numbers of the found pieces that were moved."""
        links = self._match_in_order()
        answers = [index for index in range(self.above) if self.found[index].key[0] != "user"]
        return links, link_moved(self.recorded, self.found, links, answers[-1] + 1 if answers else 0)

    def _match_in_order(self) -> list[int]:
        """Match visible recorded pieces, then hidden ones between them, which the user may have restored."""
        keys, found = joined_keys(self.body, self.recorded, self.found)
        visible = [number for number, piece in enumerate(self.recorded) if not piece.is_hidden]
        links = match_whole(self.body, self.recorded, self.found, visible)
        if links != list(range(len(keys))):
            fill(links, visible, keys, found)
            keep_together(links, self.recorded, keys, found)
            # The first piece of a message may look like a later fragment: without blank lines before its heading.
            fill(links, visible, [piece.key for piece in self.recorded], [piece.key for piece in self.found])
        if len(visible) == len(keys) or -1 not in links:
            return links
        fill(links, range(len(keys)), keys, found)
        together = match(keys, found)  # of equal texts the hidden one may be the one in between
        shown = set(visible)
        return max(links, together, key=lambda each: (len(shown.intersection(each)), -each.count(-1)))

    def _put_together(self) -> None:
        """Keep each user message in one place, the one with most of it, because it is recorded as one text."""
        runs: dict[str, list[list[int]]] = defaultdict(list)
        before = -1  # the last piece that is linked
        for index, number in enumerate(self.links):
            if number < 0:
                continue
            message = self.recorded[number].message
            joined = before >= 0 and self.recorded[self.links[before]].message is message
            if message.role == "user":
                if joined and self.found[before].region == self.found[index].region:
                    runs[message.id][-1].append(index)
                else:
                    runs[message.id].append([index])
            before = index
        for own in runs.values():
            best = max(own, key=lambda run: (len(run), self.moved.isdisjoint(run)))
            for index in (index for run in own if run is not best for index in run):
                self.links[index] = -1
                self.moved.discard(index)

    @property
    def spans(self) -> tuple[Span, ...] | None:
        """The recovered roles of the whole body, None if the document's own were right."""
        return self.document.spans if self.lost is not None else None

    @property
    def pieces(self) -> list[Piece]:
        """The pieces of the document with their recorded messages."""
        pieces = []
        for index, found in enumerate(self.found):
            number = self._number(index)
            known = self.recorded[number] if number >= 0 else None
            pieces.append(Piece(found, known.message if known else None, known.part if known else None))
        return pieces

    @property
    def record_end(self) -> int:
        """The offset behind the last recorded text: below it is only the draft."""
        said = (found.end for index, found in enumerate(self.found) if self._number(index) >= 0)
        return max((*(span.end for span in self.document.spans), *said), default=0)

    def exact(self, *, prompts: bool | None = None) -> int:
        """Return the number of pieces that equal recorded ones: all, only prompts, or only answers."""
        found = [number for number in self.links if number >= 0]
        return sum(1 for number in found if prompts is None or self._is_user(number) == prompts)

    def _is_user(self, number: int) -> bool:
        return self.recorded[number].key[0] == "user"

    def align(self) -> Alignment:
        """Return the interpretation of the document up to the end."""
        boundary = self.boundary()
        view, last = View(summary=boundary.summary, pruned=boundary.pruned), ""
        index = boundary.start
        while index < self.above:
            stop = self._end_of_side(index)
            if self.found[index].key[0] == "compaction":
                stop = index + 1  # older than the boundary, or it stands behind where that lets the view begin
            elif self.found[index].key[0] == "user":
                view.begin_turn(owner.id if (owner := self.owners[index]) is not None else "")
                texts = list(self._user_texts(index, stop))
                last = _prompt(texts)
                for text in texts:
                    view.add_user(text)
            else:
                last = ""
                view.add_answer([seen for i in range(index, stop) if (seen := self._view_piece(i)) is not None])
            index = stop
        new = _prompt(self._user_texts(self.prompt_start, self.above))
        return Alignment(
            view=view.to_whole_messages(),
            new_prompt=new,
            last_prompt=last,
            edits=self.edits,
            notes=(*view.notes, *self.notes),
            spans=self.spans,
            last_message=self.last_message(),
        )

    def boundary(self) -> Boundary:
        """Return the beginning of the view: the latest compaction above the end, or the beginning of the text."""
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
        """Return the first piece of the verbatim tail; if it was removed, the first piece after it."""
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
        """Return the recorded piece that found piece ``index`` equals or was edited from, or -1."""
        return self.links[index] if self.links[index] >= 0 else self.sources[index]

    def last_message(self) -> str:
        """Return the id of the recorded user message that ends right above the end, or ""."""
        last = self.above - 1
        while last >= 0 and self.found[last].key[0] == "compaction":
            last -= 1
        if last < 0 or self.prompt_start <= last or self.found[last].key[0] != "user":
            return ""
        return self.recorded[self.links[last]].message.id

    @cached_property
    def edits(self) -> tuple[dict[str, Any], ...]:
        """The data of the ``edit`` rows that record the changes of the whole document."""
        return tuple(self._edits())

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on recovered roles, and on text missing at the end."""
        return (*self.document.damage, *self._recovery_notes(), *self._end_notes())

    def _recovery_notes(self) -> Iterator[str]:
        """Say that roles were recovered, except those of turns just rewound, which are about to be written."""
        if self.lost is None or not self.recorded:
            return
        if self.lost != "resurfaced":
            yield RECOVERED
        if changed := sum(1 for number in self.sources if number >= 0 and not self._is_user(number)):
            count = "one was" if changed == 1 else f"{changed} were"
            yield f"Of the recorded answers and results {count} changed meanwhile; what stands there now is read"

    def _end_notes(self) -> Iterator[str]:
        """Say that the document ends before the log: it is an older version, or its end was removed."""
        hidden = {edit.get("message_id") or edit.get("part_id") for edit in self.edits if edit.get("hidden")}
        count = 0
        for message in reversed(self._messages.values()) if hidden else ():
            shown = [part.id for part in message.parts if part.type != "step-start" and not part.hidden]
            if message.id not in hidden and not (shown and hidden.issuperset(shown)):
                break
            count += 1
        if count > 1:
            yield f"The last {count} messages of the log are not in this document: they are hidden, not deleted"

    def _edits(self) -> Iterator[dict[str, Any]]:
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

    def _find_prompt(self) -> int:
        """Return the first piece of the new prompt: after the last answer and the last unchanged recorded prompt."""
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
        """Return whether piece ``last`` ends a message of which all pieces are present and unchanged."""
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
        """Yield the user's texts between two pieces: recorded messages exactly, the rest from the document."""
        index = start
        while index < stop:
            first, owner = index, self.owners[index]
            index += 1
            region = self.found[first].region
            while index < stop and self.owners[index] is owner and self.found[index].region == region:
                index += 1
            if owner is not None and self._is_message(owner, first, index):
                text = owner.recorded_text if self.recorded[self.links[first]].restored else owner.text
                yield owner.model_text if self._as_sent and text == owner.recorded_text else text
            else:
                yield self.body[self.found[first].start : self.found[index - 1].end]

    @cached_property
    def extents(self) -> dict[str, tuple[int, int]]:
        """Return the first and last piece of every user message, by id; text may have been added between them."""
        extents: dict[str, tuple[int, int]] = {}
        for index in range(len(self.found)):
            owner = self._owner(index)
            if owner is None or owner.role != "user":
                continue
            first, last = extents.get(owner.id, (index, index))
            between = range(last + 1, index)
            joined = self.found[index].region == self.found[first].region
            prompt = range(self.prompt_start, self.above)
            if joined and all(self._owner(n) is None and n not in prompt for n in between):
                extents[owner.id] = first, index
        return extents

    @cached_property
    def owners(self) -> list[conversation.Message | None]:
        """Return for each piece its user message."""
        owners: list[conversation.Message | None] = [None] * len(self.found)
        for first, last in self.extents.values():
            owners[first : last + 1] = [self._owner(first)] * (last + 1 - first)
        return owners

    def _owner(self, index: int) -> conversation.Message | None:
        number = self._number(index)
        return self.recorded[number].message if number >= 0 else None

    def _is_message(self, message: conversation.Message, start: int, stop: int) -> bool:
        number = self.links[start]
        return (
            number >= 0
            and (number == 0 or self.recorded[number - 1].message is not message)
            and self.links[start:stop] == list(range(number, number + stop - start))
            and self._is_whole(stop - 1)
        )

    # -- answers -----------------------------------------------------------------------------------------------

    def _end_of_side(self, index: int) -> int:
        """Return the end of the pieces from ``index`` on that are by the same side of the conversation."""
        is_user = self.found[index].key[0] == "user"
        stop = index + 1
        while stop < self.above and (self.found[stop].key[0] == "user") == is_user:
            stop += 1
        return stop

    def _view_piece(self, index: int) -> ViewPiece | None:
        found, number, is_exact = self.found[index], self._number(index), self.links[index] >= 0
        if found.key[0] == "compaction" or (not is_exact and found.key[0] == "reasoning"):
            return None
        return ViewPiece(found, number, self.recorded[number] if number >= 0 else None, is_exact)

    # -- edits -------------------------------------------------------------------------------------------------

    @cached_property
    def sources(self) -> list[int]:
        """Pair each unmatched found piece with the recorded piece that it replaces; -1 for none."""
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
                pair_in_gap(gap, free, self.found, self.recorded, sources)
                gap, number = [], anchor + 1
        return sources

    def _part_edit(
        self, part: conversation.Part, number: int, kept: int | None, made: int | None
    ) -> Iterator[dict[str, Any]]:
        if kept is not None:
            if part.hidden or self.recorded[number].restored:
                yield _edit(part, self.recorded[number].key[2])
        elif made is not None and part.type != "reasoning":
            yield _edit(part, self.found[made].key[2])
        elif not self.recorded[number].is_hidden:
            yield {"part_id": part.id, "hidden": True}

    def _message_edit(self, message: conversation.Message, number: int) -> Iterator[dict[str, Any]]:
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


def _edit(part: conversation.Part, text: str) -> dict[str, Any]:
    """Return the data of an edit of a part to ``text``; without text if that is the recorded one."""
    return {"part_id": part.id} if text == original_text(part) else {"part_id": part.id, "text": text}


# Finding the place where a run continues in a document whose exact saved state is unknown.
#
# Another program (an editor that vanished, a daemon that died) wrote part of the run's text into the document, and
# the user may have edited above and inside it. Present text is recognised by content and role; the rest is returned,
# to be inserted. Text that was in a known state of the file and is gone was removed by the user and does not come
# back. All other text that is not recognised is inserted, so nothing is lost: only if a save was never reported, and
# it contains an edit of the last streamed words, these words come twice, edited and original. Text is recognised by
# mistake only if the user wrote a whole paragraph of the answer (8 characters or more in its role, 24 if the roles
# are lost) below the place where the run continues.

_LIKELY = 8
_HEADINGS = (RUN_CLOSE, f"\n\n\n{PROMPT_PREFIX}")  # the latter parts in Emacs what is typed while an answer arrives


class _Block(NamedTuple):
    """Adjacent inserts of one part and role as one text; ``offset`` counts from the run's first character."""

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
    """Find how much of a run the body contains.

    Args:
        body: The document's text.
        spans: Its roles; without any, only the text counts.
        anchor: The place of the run's first insert, if nothing above was edited since.
        inserts: Everything the run inserted so far, in order.
        written: The row up to which the file is known to have contained them; missing ones of these were removed.

    Returns:
        The offset at which the run continues, and the missing inserts; the first may be the rest of one.
    """
    place = _Place(body, spans, list(_blocks(inserts)))
    position, known = place.find(max(0, min(anchor, len(body))))
    known = max(known, sum(len(insert.text) for insert in inserts if insert.seq <= written))
    return position, tuple(_locate_rest(inserts, known))


class _Place:
    def __init__(self, body: str, spans: Sequence[Span], blocks: Sequence[_Block]) -> None:
        self._body = body
        self._spans = spans
        self._starts = [span.start for span in spans]
        self._blocks = blocks

    def find(self, anchor: int) -> tuple[int, int]:
        """Return the offset in the body where the run continues, and how many of its characters are there."""
        position, known = self._follow(anchor, 0)
        if not any(block.role is not None and block.offset < known for block in self._blocks):
            # No text of the run is at the anchor: text above was edited, or nothing was inserted yet.
            found = self._find_anywhere(anchor if self._ends_prompt(anchor) else 0)
            if found is None:
                return (anchor, 0) if self._is_chance(anchor, known) else (position, known)
            position, known = found
        while (later := self._find_later(position, known)) is not None:
            position, known = later
        return self._inside_edited(position, known)

    def _follow(self, position: int, known: int) -> tuple[int, int]:
        """Advance as long as body and run agree in text and role.

        Blank lines before a heading of the user do not count as those before more of the run.
        """
        start = position
        for block in self._blocks:
            if block.end <= known:
                continue
            text = block.text[max(0, known - block.offset) :]
            agreeing = self._matching_length(position, text, block.role)
            position, known = position + agreeing, known + agreeing
            if agreeing < len(text):
                break
        for blank in range(min(len(RUN_OPEN), position - start), 0, -1):
            if self._body.startswith(_HEADINGS, position - blank):
                return position - blank, known - blank
        return position, known

    def _matching_length(self, position: int, text: str, role: InsertRole) -> int:
        """Return how many characters of ``text`` are at ``position`` with that role."""
        available = min(len(text), self._role_end(position, role) - position)
        if available == len(text) and self._body.startswith(text, position):
            return available
        agreeing = 0
        while agreeing < available and self._body[position + agreeing] == text[agreeing]:
            agreeing += 1
        by_chance = role is not None and not self._spans and agreeing < _LIKELY
        return 0 if by_chance and position + agreeing < len(self._body) else agreeing

    def _role_end(self, position: int, role: InsertRole) -> int:
        """Return the end of the text from ``position`` on that has the role."""
        if not self._spans:
            return len(self._body)
        index = bisect_right(self._starts, position) - 1
        span = self._spans[index] if index >= 0 and self._spans[index].end > position else None
        if role is None:
            following = self._starts[index + 1] if index + 1 < len(self._starts) else len(self._body)
            return position if span else following
        return (
            span.end
            if span and (span.kind, span.id) == (role if isinstance(role, tuple) else (role, ""))
            else position
        )

    def _is_chance(self, anchor: int, known: int) -> bool:
        """Return whether only blank lines of the user agree, those before a heading below.

        A separator of the run is never present without the text behind it.
        """
        begins = self._blocks[0] if self._blocks else None
        if begins is not None and begins.role is None and begins.part_id:
            return True
        return known <= len(RUN_OPEN) and self._body.startswith(_HEADINGS, anchor)

    def _ends_prompt(self, position: int) -> bool:
        """Return whether text of the user or a hidden answer ends here, so that the position is probably right."""
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
        """Return the place after the last block of the run that is certainly found from ``low`` on, or None."""
        for block in reversed(self._blocks):
            if len(block.text) >= SURE and block.role is not None:
                start = self._body.rfind(block.text, low)  # of equal answers the last is this run's
                if start >= 0 and self._role_end(start, block.role) >= start + len(block.text):
                    return self._follow(start + len(block.text), block.end)
        first = next((block for block in self._blocks if block.role is not None), None)
        start = self._body.rfind(first.text[:SURE], low) if first else -1
        if first and start >= 0 and self._role_end(start, first.role) >= start + min(SURE, len(first.text)):
            return self._follow(start, first.offset)
        return None

    def _find_later(self, position: int, known: int) -> tuple[int, int] | None:
        """Return the place after the last block of the run that is found below ``position``, or None."""
        zone_end = self._zone_end(position)
        for block in reversed(self._blocks):
            if block.offset < known or block.end == known:
                break
            if block.role is None or len(block.text) < (SURE if block.role == "ignore" else _LIKELY):
                continue
            start = self._body.find(block.text, position, zone_end)
            while start >= 0:
                if self._role_end(start, block.role) >= start + len(block.text):
                    return self._follow(start + len(block.text), block.end)
                start = self._body.find(block.text, start + 1, zone_end)
        return None

    def _zone_end(self, position: int) -> int:
        """Return the beginning of the next prompt, below which text belongs to other runs."""
        if not self._spans:
            return len(self._body)
        heading = self._heading(position)
        while heading < len(self._body) and self._role_end(heading, None) == heading:
            heading = self._heading(heading + 1)
        return heading

    def _inside_edited(self, position: int, known: int) -> tuple[int, int]:
        """Skip the rest of a text that the user edited while it was streaming."""
        block = next((b for b in self._blocks if b.offset < known < b.end), None)
        if block is None or block.role is None:
            return position, known
        end = self._role_end(position, block.role) if self._spans else self._heading(position)
        if end == position:
            return position, known
        for old, new, size in reversed(common_text(block.text[known - block.offset :], self._body[position:end])):
            if size >= (_LIKELY if self._spans else SURE):
                position, known = position + new + size, known + old + size
                break
        return (end if self._spans else position), known

    def _heading(self, position: int) -> int:
        """Return the beginning of the next heading, in any role; else the end."""
        heading = self._body.find(RUN_CLOSE, position)
        return len(self._body) if heading < 0 else heading


def _blocks(inserts: Sequence[Insert]) -> Iterator[_Block]:
    offset = 0
    for (role, part_id), group in groupby(inserts, key=lambda insert: (insert.role, insert.part_id)):
        text = "".join(insert.text for insert in group)
        yield _Block(text, role, part_id, offset)
        offset += len(text)


def _locate_rest(inserts: Sequence[Insert], known: int) -> Iterator[Insert]:
    """Yield the inserts without the first ``known`` characters."""
    for insert in inserts:
        if known < len(insert.text):
            yield insert._replace(text=insert.text[known:])
        known = max(0, known - len(insert.text))


# Text wins, structure enriches: the model's view from the document and the log.
#
# For a piece of the document that equals a recorded one, the exact recorded parts are used; for an edited one, the
# edited text; removed ones are hidden.

_PASSES = 8  # two are almost always enough
RECOVERED = "The roles in this document were lost or shifted; they were recovered from the log"


def recognise(document: Document, conversation: Conversation, end: int | None = None) -> Recognition:
    """Match ``document`` with ``conversation``, after recovering lost roles.

    Args:
        document: The document.
        conversation: The log.
        end: The offset (code points from 0) of the body up to which a prompt is read; None for all of it. Text below
            is matched, too, but is no new prompt.
    """
    if conversation.roles is not None and (known := KnownRoles(*conversation.roles).restored(document)) is not None:
        alignment = recognise(known, conversation, end)
        alignment.lost = alignment.lost or "lost"
        return alignment
    shown = conversation.without_rewound()
    alignment = Recognition(document, shown, end)
    kind = loss(document, conversation, alignment.recorded, alignment.found, alignment.links)
    if kind is None:
        return alignment
    healed = heal(document, conversation)
    if healed.spans == document.spans and not (document.stale and document.spans):
        return alignment
    better = Recognition(healed, shown, end)
    better.lost = kind
    if kind == "shifted" and better.exact() < alignment.exact():
        return alignment
    if kind == "missing" and (
        better.exact(prompts=False) <= 2 * alignment.exact(prompts=False)
        or better.exact(prompts=True) < alignment.exact(prompts=True)
    ):  # the bounds may be right: few more answers are found without them, or fewer prompts
        return alignment
    return better


def align(document: Document, conversation: Conversation, end: int | None = None) -> Alignment:
    """Return the interpretation of ``document`` up to offset ``end`` (code points from 0; None: all of it).

    It is computed as if the edits were recorded already, so aligning again gives the same result without edits.
    """
    aligned = _align_until_stable(document, conversation, end)
    view, new = aligned.view, aligned.new_prompt
    if new and view[-1].parts == (Text(text=new),):
        view, new = view[:-1], ""
    spans, latest = document.spans, next(reversed(conversation.messages.values()), None)
    if (
        (new or aligned.edits or aligned.notes or aligned.spans is not None or document.stale)
        or (end is not None and spans and spans[-1].end > end)
        or any(message is not None and message.role == "user" for message in (latest, *view[-1:]))
        or (conversation.last_edit and _is_any_removed(conversation))
    ):
        return aligned
    calls = {part.id for message in view for part in message.parts if isinstance(part, ToolCall)}
    seen = ModelView(seq=conversation.last_seq, messages=set(conversation.messages), view=view, calls=calls)
    return replace(aligned, seen=seen)


def _align_until_stable(document: Document, conversation: Conversation, end: int | None) -> Alignment:
    """Return the interpretation of a document after its edits are recorded, and these edits."""
    as_read = document
    first = last = recognise(document, conversation, end).align()
    edits: dict[str, dict[str, Any]] = {}
    spans = first.spans
    for _ in range(_PASSES):
        if not last.edits:
            break
        edits |= {edit.get("part_id") or edit["message_id"]: edit for edit in last.edits}
        if spans is not None:
            document = replace(document, spans=spans, stale=False)
        conversation = conversation.with_edits(last.edits)
        last = recognise(document, conversation, end).align()
        spans = spans if last.spans is None else last.spans
    made = list(edits.values())
    if made and spans is not None:
        again = recognise(as_read, conversation, end).align()
        if (again.view, again.edits, again.spans) != (last.view, (), spans):
            # With these edits recorded, the same roles would not be found again: they are recorded, too.
            made[0] = {**made[0], "roles": list(known_roles(as_read, spans))}
    notes = tuple(dict.fromkeys(first.notes + last.notes))
    return replace(last, edits=tuple(made), notes=notes, spans=spans)


def _is_any_removed(conversation: Conversation) -> bool:
    """Return whether the log has removed text that would be recognised if the user restored it."""
    messages = conversation.messages.values()
    return any(message.hidden or any(part.hidden for part in message.parts) for message in messages)


def align_turn(
    seen: ModelView, document: Document, conversation: Conversation, end: int, laid: int
) -> Alignment | None:
    """Return the result of ``align`` without recognition: a turn costs only what is new in it.

    In an ordinary turn the text above the marker is the daemon's own rendering, and only the prompt below it is new.
    The model's view is the earlier one, followed by the messages recorded since. Anything else (an edit, a rewind, a
    compaction, other roles) is left to ``align``.

    Args:
        seen: The view of an earlier alignment.
        document: The document.
        conversation: The log.
        end: As for ``align``.
        laid: The end of the text that was aligned then, with its prompt and the daemon's rendering since.

    Returns:
        None if the document must be recognised.
    """
    body = document.body
    if end < laid or not body.endswith(RUN_CLOSE, 0, laid) or document.stale or document.damage:
        return None
    if document.spans and document.spans[-1].end > laid:
        return None
    if conversation.open_parts or conversation.touched_since(seen.seq, seen.messages):
        return None
    new = {}
    for message in reversed(conversation.messages.values()):
        if message.id in seen.messages:
            break
        new[message.id] = message
    if len(new) + len(seen.messages) != len(conversation.messages):
        return None
    view = View(ids=set(seen.calls))
    for message in reversed(new.values()):
        if message.is_hidden or any(part.type == COMPACTION for part in message.parts):
            return None
        if message.role == "user":
            view.begin_turn(message.id)
            view.add_user(message.model_text if conversation.as_sent else message.recorded_text)
        else:
            for step in message.steps():
                view.add_recorded(step)
    made = view.to_messages()
    if made and (made[0].role, made[-1].role) != ("user", "assistant"):
        return None
    messages = seen.messages | new.keys()
    seen = ModelView(seq=conversation.last_seq, messages=messages, view=seen.view + made, calls=view.ids)
    found = list(fragments(body, laid - len(RUN_CLOSE), end))
    prompt = _prompt([body[found[0][0] : found[-1][1]]] if found else [])
    asked = (Message(role="user", parts=(Text(text=prompt),)),) if prompt else ()
    return Alignment(view=seen.view + asked, new_prompt=prompt, last_prompt=prompt, edits=(), seen=seen)
