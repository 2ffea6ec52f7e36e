"""How a run ended, as whoever waits for it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyagentd.errors import PyagentdError

Reason = Literal["done", "error", "aborted"]

STOPPED = "Stopped"  # what the document says below the text of a run that a user stopped
BY_PARENT = "aborted by parent"  # the message of an agent's run that was stopped with the run that waits for it
RESTART = "restart"  # the code, and in the log the reason, of a run that the daemon's end cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    reason: Reason
    text: str  # what the model said in this run
    code: str = ""  # of the error, see errors.py
    message: str = ""  # for a human: what went wrong, and the mend
    tools: int = 0  # how many calls an agent made, where that was counted

    @property
    def recorded(self) -> str:
        """The reason as the log and its readers have it: the same whether the daemon was stopped or killed."""
        return RESTART if self.reason == "aborted" and self.code == RESTART else self.reason

    @property
    def error(self) -> dict[str, str] | None:
        """What the log, and with it the document, says below what was said; None of a run that finished."""
        match self.recorded:
            case "done":
                return None
            case "aborted":
                return {"code": "aborted", "message": self.message or STOPPED}
            case _:
                return {"code": self.code, "message": self.message}


def told_of(error: Exception) -> tuple[str, str]:
    """Return the code and the words for an error that ended a run."""
    if isinstance(error, PyagentdError):
        return error.code, str(error)
    return "internal", f"{type(error).__name__}: {error}"
