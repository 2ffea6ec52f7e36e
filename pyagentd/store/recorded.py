"""What the log tells of one message, one part and one run: the last row of each, and what the user made of it.

Whoever folds the log (``conversation``) fills these in; everybody else only reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Part:
    """A part of a message: its last row, and what the user made of it.

    Attributes:
        row: The last row.
        id: Its id.
        type: ``text``, ``reasoning``, ``step-start`` or ``tool-<Name>``.
        is_tool: Whether this is a tool call (with its result, once there is one).
        edited: The text the user put in its place, or None.
        hidden: Whether the user removed it.
        deltas: Streamed text that no full row has superseded yet.
    """

    __slots__ = ("deltas", "edited", "hidden", "id", "is_tool", "row", "type")

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.id: str = row["id"]
        self.type: str = row["type"]
        self.is_tool = self.type.startswith("tool-")
        self.edited: str | None = None
        self.hidden = False
        self.deltas: list[str] = []

    @property
    def data(self) -> Mapping[str, Any]:
        """The part in AI SDK form, as recorded; for the text use ``text``."""
        data: Mapping[str, Any] = self.row["data_json"]
        return data

    @property
    def text(self) -> str:
        """The recorded text of a text or reasoning part, with what has streamed so far."""
        text: str = self.data.get("text", "")
        return text + "".join(self.deltas) if self.deltas else text

    @property
    def result(self) -> tuple[str, bool] | None:
        """The text of a tool's result and whether it is an error; None while there is none."""
        match self.data.get("state"):
            case "output-available":
                return str(self.data.get("output", "")), False
            case "output-error":
                return str(self.data.get("errorText", "")), True
        return None


class Message:
    """A message: its last row, and its parts in order of their index.

    Attributes:
        row: The last row.
        id: Its id.
        role: ``user``, ``assistant`` or ``system``.
        parts: Its parts.
        hidden: Whether the user removed it.
    """

    __slots__ = ("hidden", "id", "parts", "role", "row")

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.id: str = row["id"]
        self.role: str = row["role"]
        self.parts: list[Part] = []
        self.hidden = False

    @property
    def text(self) -> str:
        """The text of all its text parts, as the user last left it."""
        texts = (part.text if part.edited is None else part.edited for part in self.texts())
        return "\n\n".join(text for text in texts if text)

    @property
    def recorded_text(self) -> str:
        """The text of all its text parts, as recorded first."""
        return "\n\n".join(part.text for part in self.texts() if part.text)

    @property
    def model_text(self) -> str:
        """What the model sees of the text as recorded: a hook may have changed it."""
        return str(self.row.get("metadata_json", {}).get("model_text") or self.recorded_text)

    @property
    def is_edited(self) -> bool:
        """Whether the user changed its text."""
        return any(part.edited is not None for part in self.texts())

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its metadata, as recorded."""
        metadata: Mapping[str, Any] = self.row.get("metadata_json", {})
        return metadata

    @property
    def is_rewound(self) -> bool:
        """Whether it was taken back: its text stays in the document, but nobody is sent it (DESIGN §3, rule 6)."""
        return bool(self.metadata.get("hidden_at"))

    @property
    def is_hidden(self) -> bool:
        """Whether the model no longer sees it: removed from the document, or rewound."""
        return self.hidden or self.is_rewound

    @property
    def is_waiting(self) -> bool:
        """Whether it is in the queue, or was and was cancelled there: no turn has begun with it."""
        return bool(self.metadata.get("queued_at") or self.metadata.get("queue_canceled_at"))

    def texts(self) -> Iterator[Part]:
        """Yield its text parts."""
        return (part for part in self.parts if part.type == "text")

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
    """A run: the data of its last row, and where it begins and ends in the log (0 while it goes on)."""

    data: dict[str, Any]
    first_seq: int
    last_seq: int

    @property
    def is_finished(self) -> bool:
        """Whether its one terminal row is there."""
        return self.data.get("state") != "started"

    @property
    def is_kept(self) -> bool:
        """Whether all its text has reached the document, so that nothing is to be put there again."""
        return self.data.get("state") == "kept"
