"""What clients, triggers and agents hand in: every turn of the user's comes through one door, ``Host.submit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyagentd.agent.settings import SendOptions


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
    """

    text: str | None
    sha256: str = ""
    end: int = 0
    options: SendOptions
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    steer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What became of a submission.

    Attributes:
        message_id: The message's id.
        run_id: The run that answers it; None while it is queued.
        queued: Whether it waits for the run in flight.
        seq: The log's last row.
    """

    message_id: str
    run_id: str | None
    queued: bool
    seq: int
