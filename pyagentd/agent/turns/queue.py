"""What clients, triggers and agents hand in: every turn of the user's comes through one door, ``Host.submit``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyagentd.agent.running.settings import SendOptions
from pyagentd.errors import BadRequest

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")


Commanding = Literal["human", "never", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A message for the model.

    Attributes:
        text: What it says; None takes the prompt that ends at offset ``end`` (code points from 0) of the saved
            document, whose body has hash ``sha256``.
        options: What its client wants of the run that answers it.
        id: Of the message, made by the client: the same submission twice is one message.
        metadata: Of the message's row: ``agent``, ``model`` {provider_id, model_id}, ``trigger``, ``origin``, …
        steer: Have the run in flight read it at its next step, if there is one before the run ends.
        command: Whether it can be a slash command: as it looks, and one that changes something only where a human
            is; ``never``, what it looks like; or one all the same, whatever it changes.
    """

    text: str | None
    sha256: str = ""
    end: int = 0
    options: SendOptions
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    steer: bool = False
    command: Commanding = "human"

    @property
    def is_persons(self) -> bool:
        """Whether a person sent it: only a person goes on after an error."""
        return is_persons(self.metadata)

    @property
    def payload(self) -> str:
        """What tells it from another submission with the same id."""
        said = [self.text, None if self.text is not None else [self.sha256, self.end], self.steer]
        named = {key: self.metadata.get(key) for key in ("agent", "model")}
        return hashlib.sha256(json.dumps([said, named], sort_keys=True).encode()).hexdigest()[:32]

    def check(self) -> None:
        """Raise ``BadRequest`` for an id that is none, and for a steering message that stands in the document."""
        if self.id is not None and not _ID.fullmatch(self.id):
            raise BadRequest(f"{self.id!r} is no id", mend="Up to 100 letters, digits, and _ . : -")
        if self.steer and self.text is None:
            raise BadRequest("A message that steers a run is sent as text", mend="Use the operation prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What became of a submission.

    Attributes:
        message_id: The message's id.
        run_id: The run that answers it; None while it is queued.
        queued: Whether it waits for the run in flight.
        seq: The log's last row.
        ended: Of a submission that came before and is over, how: as its run ended, or ``canceled``; else "".
    """

    message_id: str
    run_id: str | None
    queued: bool
    seq: int
    ended: str = ""


def is_persons(metadata: Mapping[str, Any]) -> bool:
    """Return whether a message with this metadata is a person's: not a trigger's and not an agent's."""
    return not metadata.get("trigger") and metadata.get("origin") != "agent"
