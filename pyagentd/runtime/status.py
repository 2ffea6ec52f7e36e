"""The status of a session, the outcome of a run and of each tool call, in the form that clients receive."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, Literal

from pyagentd.errors import PyagentdError
from pyagentd.events import Event
from pyagentd.store.conversation import Conversation
from pyagentd.tools.spec import summary

# What a session is doing, as clients see it.
#
# Authoritative in memory and volatile: after a restart of the daemon everything reads idle. No state is terminal;
# ``error`` ends with the next turn. Every move is told as a ``status`` event, and so is every fact that changes.


class Session(StrEnum):
    """The state of a session."""

    IDLE = "idle"
    BUSY = "busy"
    RETRYING = "retrying"  # a request failed for now and is sent again
    WAITING = "waiting"  # a human is asked
    ERROR = "error"  # a run failed, or could not begin; what is queued waits until somebody goes on


class SessionStatus:
    """One session's state.

    Args:
        key: Its branch's.
        publish: Given a ``status`` event with all facts whenever one changes.
        extra: Returns further facts to tell.

    Attributes:
        state: Where the session is.
    """

    def __init__(self, key: str, publish: Callable[[Event], None], extra: Callable[[], Mapping[str, Any]]) -> None:
        self._key = key
        self._publish = publish
        self._extra = extra
        self.state = Session.IDLE
        self._facts: dict[str, Any] = {}
        self._run: dict[str, Any] = {}  # of them, those of the run
        self._queued = 0
        self._questions = 0

    @property
    def facts(self) -> dict[str, Any]:
        """What clients are told.

        ``state``, ``queued`` (how many messages wait); of a run ``run``, ``message_id``, ``started_at`` (epoch ms),
        ``phase`` and ``tools``; while retrying ``attempt`` (the failed one, from 1), ``max_attempts``, ``retry_at``
        (epoch ms) and ``message``; in an error ``message`` and ``code``.
        """
        return {"state": self.state.value, **self._facts, "queued": self._queued, **self._extra()}

    @property
    def failure(self) -> dict[str, str] | None:
        """What ``on_run_failed`` was told, until the error is over."""
        return self._facts if self.state is Session.ERROR else None

    def on_run_started(self, *, run: str, message_id: str, started_at: int) -> None:
        """Note that a run began."""
        self._questions = 0
        self._run = {"run": run, "message_id": message_id, "started_at": started_at}
        self._move(Session.BUSY, self._run)

    def set_phase(self, phase: str, **details: Any) -> None:
        """Note what the run does now; ``details`` hold until it does something else."""
        if self.state not in (Session.IDLE, Session.ERROR):
            now = Session.WAITING if self.state is Session.WAITING else Session.BUSY  # a human is asked all the same
            self._move(now, {**self._run, "phase": phase, **details})

    def set_retry(self, *, attempt: int, max_attempts: int, retry_at: int, message: str) -> None:
        """Note that the request failed and is sent again at ``retry_at`` (epoch ms)."""
        facts = {"attempt": attempt, "max_attempts": max_attempts, "retry_at": retry_at, "message": message}
        now = Session.WAITING if self.state is Session.WAITING else Session.RETRYING
        self._move(now, {**self._facts, **facts})

    @contextlib.contextmanager
    def while_asking(self) -> Iterator[None]:
        """Show that a human is asked, as long as any question of the run is open."""
        self._questions += 1
        if self._questions == 1:
            self._move(Session.WAITING, self._facts)
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions and self.state is Session.WAITING:
                self._move(Session.BUSY, self._facts)

    def on_run_ended(self) -> None:
        """Note that the run ended, and not in an error."""
        self._move(Session.IDLE, {})

    def on_run_failed(self, *, message: str, code: str) -> None:
        """Note that the run ended in an error, or that a queued message could not begin one."""
        self._move(Session.ERROR, {"message": message, "code": code})

    def clear_error(self) -> None:
        """Note that an error is over although nothing runs."""
        if self.state is Session.ERROR:
            self._move(Session.IDLE, {})

    def set_queued(self, number: int) -> None:
        """Note how many messages wait."""
        if number != self._queued:
            self._queued = number
            self.publish_facts()

    def publish_facts(self) -> None:
        """Tell the facts, since one of them or of ``extra`` has changed."""
        self._publish(Event("status", self._key, 0, (self.facts,)))

    def _move(self, state: Session, facts: dict[str, Any]) -> None:
        self.state, self._facts = state, facts
        self.publish_facts()


# How a run ended, as whoever waits for it is told.

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
    message: str = ""  # for a human: what went wrong, and what to do
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


# How calls of tools came out: the document does not say so, and whoever shows it wants to.
#
# A call failed when the model got its result as an error: it could not be made, was denied, or was cut off. What a
# tool itself says of its success, such as the exit code of a command, is in its result. Clients are told by
# ``tool`` events, each before the text of the call, and when they attach.

TOLD_MOST = 100  # calls that are told when a client attaches, the latest


def tool_event(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a ``tool`` event says of a call in a ``part`` row; None when it has no result yet, or is none."""
    data = row.get("data_json", {})
    if data.get("state") not in ("output-available", "output-error"):
        return None
    metadata, name = data.get("metadata") or {}, str(data["type"]).removeprefix("tool-")
    said = metadata.get("summary") or summary(name, data.get("input") or {}, error=str(data.get("errorText") or ""))
    return {
        "id": str(data["toolCallId"]),
        "name": name,
        "summary": str(said),
        "state": "failed" if data["state"] == "output-error" else "done",
        "denied": str(metadata.get("denied") or ""),
    }


def call_summaries(conversation: Conversation) -> list[tuple[str, str]]:
    """Return ids and summaries of the last calls in the conversation that have their result, the latest first."""
    found = (
        (call["id"], call["summary"])
        for message in reversed(conversation.messages.values())
        for part in reversed(message.parts)
        if part.is_tool and (call := tool_event(part.row)) is not None
    )
    return list(islice(found, TOLD_MOST))


def failed_calls(conversation: Conversation) -> list[str]:
    """Return the ids of the last calls that have failed, the latest first."""
    return list(islice(reversed(conversation.failed), TOLD_MOST))
