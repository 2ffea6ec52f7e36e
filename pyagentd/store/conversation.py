"""The conversation of a branch, folded from the rows of its log.

It has the session, messages, parts, runs, asks and edits; the last row of an id wins. The document is not known here:
``align`` in ``document/reconcile.py`` matches it with this record. A part that was still streaming when the log ended
has the text of its deltas.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from copy import copy
from typing import Any, Final, NamedTuple

from pyagentd.errors import StoreError
from pyagentd.messages import Usage
from pyagentd.store import paths
from pyagentd.store.journal import Row, read_rows
from pyagentd.store.paths import BranchRef
from pyagentd.words import quantity, short_tokens

# Messages, parts and runs: the last row of each, with the user's edits. Only ``Conversation`` changes them.


class Part:
    """A part of a message: its last row, and the user's edits of it.

    Attributes:
        type: ``text``, ``reasoning``, ``step-start`` or ``tool-<Name>``.
        data: The part in AI SDK form, as recorded; for the text use ``text``.
        edited: The user's text that replaces it, or None.
        hidden: Whether the user removed it.
        deltas: Streamed text that no full row has replaced yet; None if there is none.
    """

    __slots__ = ("data", "deltas", "edited", "hidden", "id", "is_tool", "row", "type")

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.data: Mapping[str, Any] = row["data_json"]
        self.id: str = row["id"]
        self.type: str = row["type"]
        self.is_tool = self.type.startswith("tool-")
        self.edited: str | None = None
        self.hidden = False
        self.deltas: list[str] | None = None

    @property
    def text(self) -> str:
        """The recorded text of a text or reasoning part, with the deltas so far."""
        text: str = self.data.get("text", "")
        return text + "".join(self.deltas) if self.deltas else text

    @property
    def result(self) -> tuple[str, bool] | None:
        """The text of a tool's result and whether it is an error; None without a result."""
        match self.data.get("state"):
            case "output-available":
                return str(self.data.get("output", "")), False
            case "output-error":
                return str(self.data.get("errorText", "")), True
        return None


class Message:
    """A message: its last row, and its parts in order of their index.

    Attributes:
        metadata: Its metadata, as recorded.
        hidden: Whether the user removed it.
    """

    __slots__ = ("hidden", "id", "metadata", "parts", "role", "row")

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.metadata: Mapping[str, Any] = row.get("metadata_json", {})
        self.id: str = row["id"]
        self.role: str = row["role"]
        self.parts: list[Part] = []
        self.hidden = False

    @property
    def text(self) -> str:
        """The text of all its text parts, with the user's edits."""
        texts = [part.text if part.edited is None else part.edited for part in self.parts if part.type == "text"]
        return "\n\n".join(filter(None, texts))

    @property
    def recorded_text(self) -> str:
        """The text of all its text parts, without the user's edits."""
        return "\n\n".join(filter(None, [part.text for part in self.parts if part.type == "text"]))

    @property
    def model_text(self) -> str:
        """The recorded text as the model sees it: a hook may have changed it."""
        return str(self.metadata.get("model_text") or self.recorded_text)

    @property
    def is_edited(self) -> bool:
        """Whether the user edited its text."""
        return any(part.type == "text" and part.edited is not None for part in self.parts)

    @property
    def is_rewound(self) -> bool:
        """Whether it was rewound: its text stays in the document, but is not sent to a model."""
        return bool(self.metadata.get("hidden_at"))

    @property
    def is_hidden(self) -> bool:
        """Whether the model no longer sees it: removed from the document, or rewound."""
        return self.hidden or bool(self.metadata.get("hidden_at"))

    @property
    def is_waiting(self) -> bool:
        """Whether it is in the queue, or was cancelled there: no turn has begun with it."""
        return bool(self.metadata.get("queued_at") or self.metadata.get("queue_canceled_at"))

    def steps(self) -> Iterator[list[Part]]:
        """Yield its parts, one list for each request to the model."""
        step: list[Part] = []
        for part in self.parts:
            if part.type != "step-start":
                step.append(part)
            elif step:
                yield step
                step = []
        if step:
            yield step


class RunState(NamedTuple):
    """A run: the data of its last row, and the numbers of its first and last row (0 while it goes on)."""

    data: dict[str, Any]
    first_seq: int
    last_seq: int

    @property
    def is_finished(self) -> bool:
        """Whether its terminal row was recorded."""
        return self.data.get("state") != "started"

    @property
    def is_kept(self) -> bool:
        """Whether all its text is in the document, so that none must be inserted again."""
        return self.data.get("state") == "kept"


class Conversation:
    """The state after the rows that were applied so far."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.session: dict[str, Any] = {}
        self.messages: dict[str, Message] = {}  # in the order in which they belong in the document
        self.queued: dict[str, Message] = {}  # those that wait for their turn, and those taken back before it
        self.parts: dict[str, Part] = {}
        self.runs: dict[str, RunState] = {}
        self.asks: dict[str, dict[str, Any]] = {}
        self.begun: set[str] = set()  # ids of the calls that began to do what cannot be done twice
        self.agents: dict[str, dict[str, Any]] = {}  # those in the background: whether their result is still owed
        self.missions: dict[str, dict[str, dict[str, Any]]] = {}  # by run, then by phase: its last row of that
        self.last_seq = 0
        self.as_sent = True  # whether the model sees what hooks made of messages; a log from elsewhere may lie
        self.open_parts: dict[str, None] = {}  # ids of texts that stream, and of calls without a result
        self.naming: set[str] = set()  # ids of the user's messages that ever named an agent or a model
        self.roles: tuple[str, str] | None = None  # recovered for a document, see ``KnownRoles``
        self.last_edit = 0  # the number of the last row that says what the user made of the text
        self.by_type: dict[str, list[Part]] = {}  # parts as they came
        self.failed: dict[str, None] = {}  # ids of the calls whose result is an error
        self.hidings: dict[str, None] = {}  # ids under which messages were hidden together, in the order of the log
        self._fired: set[str] = set()
        self._touched: dict[str, int] = {}  # by message, the one touched last behind: the row that did
        for row in rows:
            self.apply(row)

    def apply(self, row: Row) -> None:
        """Apply a row; unknown types, of later versions, change nothing."""
        self.last_seq = row.seq
        match row.type:
            case "delta":
                if (part := self.parts.get(row.data["part_id"])) is not None:
                    part.deltas = part.deltas or []
                    part.deltas.append(row.data["text"])
            case "part":
                self._apply_part(row.data)
                self._touch(row.data["message_id"])
            case "message":
                self._apply_message(row.data)
                self._touch(row.data["id"])
            case "run":
                self._apply_run(row)
            case "session":
                self.session = row.data
            case "ask":
                self.asks[row.data["id"]] = row.data
            case "call":
                self.begun.add(row.data["id"])
            case "agent":
                self.agents[row.data["id"]] = row.data
            case "mission":
                self.missions[row.data["id"]] = known = dict(self.missions.get(row.data["id"], {}))
                known[row.data["phase"]] = row.data
            case "edit":
                self._apply_edit(row.data)
                self.last_edit = row.seq

    def touched_since(self, seq: int, messages: Set[str]) -> bool:
        """Return whether any row after number ``seq`` is about one of these messages, or may be."""
        if self.last_edit > seq:
            return True
        for message_id, last in reversed(self._touched.items()):
            if last <= seq:
                break
            if message_id in messages:
                return True
        return False

    def snapshot(self) -> "Conversation":
        """Return a copy for a thread that reads it while further rows are applied here."""
        copied = copy(self)
        copied.messages, copied.parts, copied.runs = dict(self.messages), dict(self.parts), dict(self.runs)
        copied.queued = dict(self.queued)
        copied._touched = dict(self._touched)
        copied.open_parts, copied.naming = dict(self.open_parts), set(self.naming)
        copied.hidings = dict(self.hidings)
        return copied

    def with_rows(self, rows: Iterable[Mapping[str, Any]]) -> "Conversation":
        """Return a copy with other rows for some of its messages."""
        copied = self.snapshot()
        for row in rows:
            copied.messages[row["id"]] = copy(copied.messages[row["id"]])
            copied._apply_message(dict(row))
        return copied

    def with_edits(self, edits: Iterable[Mapping[str, Any]]) -> "Conversation":
        """Return a copy with edits of the user applied."""
        copied = self.snapshot()
        own: set[str] = set()  # ids of the messages that are no longer those of this one
        for edit in edits:
            part = copied.parts.get(edit.get("part_id", ""))
            message_id = part.row["message_id"] if part is not None else edit.get("message_id", "")
            if (message := copied.messages.get(message_id)) is None:
                continue
            if message_id not in own:
                own.add(message_id)
                message = copied.messages[message_id] = copy(message)
                message.parts = [copy(part) for part in message.parts]
                copied.parts.update((part.id, part) for part in message.parts)
            copied._apply_edit(edit)
        return copied

    def without_rewound(self) -> "Conversation":
        """Return the conversation without rewound messages; itself if there are none."""
        if not any(message.is_rewound for message in self.messages.values()):
            return self
        copied = self.snapshot()
        copied.messages = {id: message for id, message in self.messages.items() if not message.is_rewound}
        return copied

    @property
    def last_run(self) -> RunState | None:
        """The latest run, or None."""
        return next(reversed(self.runs.values()), None)

    def canonical(self) -> dict[str, Any]:
        """Return the whole record as plain rows: ``{"session", "messages": [{"message", "parts"}]}``."""
        return {
            "session": self.session,
            "messages": [
                {"message": _canonical_message(message), "parts": [_canonical_part(part) for part in message.parts]}
                for message in (*self.messages.values(), *self.queued.values())
            ],
        }

    def _apply_message(self, data: dict[str, Any]) -> None:
        metadata = data.get("metadata_json", {})
        if data["role"] == "user" and (metadata.get("agent") or metadata.get("model")):
            self.naming.add(data["id"])
        if op := metadata.get("hidden_op"):
            self.hidings.setdefault(op)
        message = self.messages.get(data["id"])
        if message is not None:
            message.row, message.metadata = data, metadata
            return
        message = self.queued.get(data["id"]) or Message(data)
        message.row, message.metadata = data, metadata
        if metadata.get("queued_at") or metadata.get("queue_canceled_at"):
            self.queued[message.id] = message
        else:  # it fires: behind the answers it waited for, whatever came in between
            self.queued.pop(message.id, None)
            self.messages[message.id] = message

    def _touch(self, message_id: str) -> None:
        self._touched.pop(message_id, None)
        self._touched[message_id] = self.last_seq

    def _apply_part(self, data: dict[str, Any]) -> None:
        if (part := self.parts.get(data["id"])) is not None:
            part.row, part.data, part.deltas = data, data["data_json"], None
        else:
            message = self.messages.get(data["message_id"]) or self.queued.get(data["message_id"])
            if message is None:
                return  # a log that was cut by hand; a part without its message cannot be shown anywhere
            self.parts[data["id"]] = part = Part(data)
            message.parts.append(part)
            self.by_type.setdefault(data["type"], []).append(part)
            if len(message.parts) > 1 and message.parts[-2].row["index"] > data["index"]:
                message.parts.sort(key=lambda other: other.row["index"])
        state, call = data["data_json"].get("state"), data["data_json"].get("toolCallId")
        if state in ("streaming", "input-available"):
            self.open_parts.setdefault(data["id"])
        else:
            self.open_parts.pop(data["id"], None)
        if state == "output-error":
            self.failed[str(call)] = None
        elif self.failed and call is not None:
            self.failed.pop(str(call), None)

    def _apply_run(self, row: Row) -> None:
        known = self.runs.get(row.data["id"])
        message_id = row.data["message_id"]
        if known is None and message_id in self.messages and message_id not in self._fired:
            # A message from the queue moves behind the answers it waited for; answering it again moves nothing.
            self._fired.add(message_id)
            self._touch(message_id)
            self.messages[message_id] = self.messages.pop(message_id)
        first, last = (known.first_seq, known.last_seq) if known else (row.seq, 0)
        if not last and row.data["state"] != "started":
            last = row.seq
        self.runs[row.data["id"]] = RunState(row.data, first, last)

    def _apply_edit(self, data: Mapping[str, Any]) -> None:
        """Apply an edit: a new text, a removal, or neither, which restores the recorded text."""
        hidden, text = bool(data.get("hidden")), data.get("text")
        match data.get("roles"):
            case [str(read), str(bounds)]:  # a log from elsewhere may have anything
                self.roles = read, bounds
        message = self.messages.get(data.get("message_id", ""))
        part = self.parts.get(data.get("part_id", ""))
        if message is not None:
            message.hidden = hidden
            for number, own in enumerate(part for part in message.parts if part.type == "text"):
                own.edited = "" if number and text is not None else text
        elif part is not None:
            part.hidden, part.edited = hidden, text


def _canonical_message(message: Message) -> dict[str, Any]:
    if not message.hidden:
        return message.row
    return {**message.row, "metadata_json": {**message.row.get("metadata_json", {}), "hidden": True}}


def _canonical_part(part: Part) -> dict[str, Any]:
    data = dict(part.data)
    notes: dict[str, Any] = {}
    if part.deltas:
        data["text"] = part.text
    if part.edited is not None and part.is_tool:
        notes["edited"] = part.edited
    elif part.edited is not None:
        data["text"] = part.edited
    if part.hidden:
        notes["hidden"] = True
    if notes:
        data["metadata"] = {**data.get("metadata", {}), **notes}
    return {**part.row, "data_json": data}


# The provider's token counts of an answer: as a whole, and of each of its requests. Pure.


class Request(NamedTuple):
    """The usage of one request, and its start in epoch ms."""

    at_ms: int
    usage: Usage


def usage_of(recorded: object) -> Usage:
    """Return a recorded usage; values that are no numbers count as 0."""
    values = recorded if isinstance(recorded, dict) else {}
    names = ("input", "output", "reasoning", "cache_read", "cache_write")
    return Usage(**{key: n if type(n := values.get(key)) is int and n > 0 else 0 for key in names})


def message_usage(message: Message) -> Usage:
    """Return the usage of all requests of a message."""
    metadata: dict[str, Any] = message.row.get("metadata_json") or {}
    return usage_of(metadata.get("usage"))


def requests_of(message: Message) -> Iterator[Request]:
    """Yield each request of an answer; in older logs all of them count as one."""
    at_ms = message.row.get("created_at") or 0
    begun = [part for part in message.parts if part.type == "step-start"]
    steps = [Request(part.row.get("created_at") or at_ms, usage_of(part.data.get("usage"))) for part in begun]
    yield from (step for step in steps if step.usage.total)
    left = usage_beyond(message_usage(message), sum((step.usage for step in steps), Usage()))
    if left.total:
        yield Request(at_ms, left)


def usage_beyond(whole: Usage, part: Usage) -> Usage:
    """Return the difference of ``whole`` and ``part``, bucket by bucket."""
    return Usage(**{key: max(0, count - getattr(part, key)) for key, count in whole.to_dict().items()})


# The marker of a compaction on disk and in the document.
#
# The model sees a summary instead of the messages before it, which stay in log and document. The marker is one
# synthetic assistant message with one part of type ``data-compaction``. ``data_json`` of the part is::
#
#     {"type": "data-compaction", "summary": Markdown, "tail_start_id": message id or null, "auto": bool,
#      "summary_tokens": int, "metadata": {…}}
#
# ``metadata`` has: ``messages`` and ``tokens`` that were summarised (for people),
# ``tail_start_part_id`` when the tail begins within an answer (its ``step-start`` part), ``pruned`` (ids of the tool
# calls' parts whose output the model is no longer shown), ``only_pruned`` when nothing else was done: the summary is
# that of the marker before then, "" if there was none.
#
# In the document a marker is a block that the model is not shown, foldable on its first line; the summary in it is
# the user's to edit.

COMPACTION: Final = "data-compaction"
COMPACTION_OPEN: Final = "``` compaction"
_CLOSE: Final = "\n```"
_PRUNING: Final = (
    "The model is no longer shown these tool outputs. They are still in this document and in the log, and the model "
    "can make the calls again."
)


def compaction_data(
    *, summary: str, tail_start_id: str | None, auto: bool, summary_tokens: int, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ``data_json`` of a marker's part, without empty entries of ``metadata``."""
    return {
        "type": COMPACTION,
        "summary": summary,
        "tail_start_id": tail_start_id,
        "auto": auto,
        "summary_tokens": summary_tokens,
        "metadata": {key: value for key, value in metadata.items() if value},
    }


def compaction_block(data: Mapping[str, Any]) -> str:
    """Return the text of a marker for the document, before characters are replaced that no file can hold."""
    return f"{COMPACTION_OPEN} ({_head(data)})\n{data.get('summary') or _PRUNING}{_CLOSE}"


def summary_in(block: str) -> str:
    """Return the summary in a marker's block of the document, which the user may have edited."""
    _, _, rest = block.partition("\n")
    summary = rest.removesuffix(_CLOSE)
    return "" if summary == _PRUNING else summary


def summary_message(summary: str) -> str:
    """Return a summary as the model sees it, at the beginning of a user message."""
    return f"<conversation_summary>\n{summary}\n</conversation_summary>"


def output_stub(text: str) -> str:
    """Return the text that replaces a pruned tool output."""
    return f"<output pruned, ~{estimated_tokens(text)} tokens>"


def estimated_tokens(text: str) -> int:
    """Return the approximate number of tokens in ``text``: a quarter of its bytes, which suits all scripts."""
    return (len(text) + 3) // 4 if text.isascii() else (len(text.encode("utf-8", "replace")) + 3) // 4


def describe_compaction(data: Mapping[str, Any]) -> str:
    """Return the effect of a marker as a noun phrase, for people."""
    facts: Mapping[str, Any] = data.get("metadata") or {}
    what = [f"~{short_tokens(facts.get('tokens') or 0)} tokens"] if facts.get("tokens") else []
    if data.get("summary") and not facts.get("only_pruned"):
        return ", ".join([quantity(facts.get("messages") or 0, "message"), *what])
    pruned = facts.get("pruned")
    count = len(pruned) if isinstance(pruned, list | tuple) else 0
    return ", ".join([f"{quantity(count, 'tool output')} pruned", *what])


def _head(data: Mapping[str, Any]) -> str:
    return f"{'automatic: ' if data.get('auto') else ''}{describe_compaction(data)}"


def read_conversation(ref: BranchRef) -> Conversation:
    """Return the conversation in the log of a branch, an empty one if it cannot be read."""
    try:
        return Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    except StoreError:  # it is told where somebody opens it
        return Conversation()
