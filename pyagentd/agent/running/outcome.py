"""How a run ended, as whoever waits for it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyagentd.errors import PyagentdError

Reason = Literal["done", "error", "aborted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    reason: Reason
    text: str  # what the model said in this run
    code: str = ""  # of the error, see errors.py
    message: str = ""  # for a human: what went wrong, and the mend


def told_of(error: Exception) -> tuple[str, str]:
    """Return the code and the words for an error that ended a run."""
    if isinstance(error, PyagentdError):
        return error.code, str(error)
    return "internal", f"{type(error).__name__}: {error}"
