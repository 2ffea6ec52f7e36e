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

# The status of a session, as clients see it.
#
# It is kept in memory only: after a restart of the daemon every session is idle. No state is final; ``error`` ends
# with the next turn. Every change of the state or of a fact is published as a ``status`` event.


class Session(StrEnum):
    """The state of a session."""

    IDLE = "idle"
    BUSY = "busy"
    RETRYING = "retrying"  # a request failed and will be retried
    WAITING = "waiting"  # a human is asked
    ERROR = "error"  # a run failed, or could not begin; the queue waits until a user continues


class SessionStatus:
    """The status of one session.

    Args:
        key: Its branch's key.
        publish: Called with a ``status`` event with all facts whenever one changes.
        extra: Returns further facts to publish.

    Attributes:
        state: The state of the session.
    """

    def __init__(self, key: str, publish: Callable[[Event], None], extra: Callable[[], Mapping[str, Any]]) -> None:
        self._key = key
        self._publish = publish
        self._extra = extra
        self.state = Session.IDLE
        self._facts: dict[str, Any] = {}
        self._run: dict[str, Any] = {}  # the facts about the run
        self._queued = 0
        self._questions = 0

    @property
    def facts(self) -> dict[str, Any]:
        """The facts for clients.

        ``state``, ``queued`` (the number of messages); of a run ``run``, ``message_id``, ``started_at`` (epoch ms),
        ``phase`` and ``tools``; while retrying ``attempt`` (the failed one, from 1), ``max_attempts``, ``retry_at``
        (epoch ms) and ``message``; in an error ``message`` and ``code``.
        """
        return {"state": self.state.value, **self._facts, "queued": self._queued, **self._extra()}

    @property
    def failure(self) -> dict[str, str] | None:
        """The error from ``on_run_failed``, until it is cleared."""
        return self._facts if self.state is Session.ERROR else None

    def on_run_started(self, *, run: str, message_id: str, started_at: int) -> None:
        """Set the state to busy, with the facts about the run."""
        self._questions = 0
        self._run = {"run": run, "message_id": message_id, "started_at": started_at}
        self._move(Session.BUSY, self._run)

    def set_phase(self, phase: str, **details: Any) -> None:
        """Set the phase of the run; ``details`` are shown until the next phase."""
        if self.state not in (Session.IDLE, Session.ERROR):
            now = Session.WAITING if self.state is Session.WAITING else Session.BUSY  # a question stays open
            self._move(now, {**self._run, "phase": phase, **details})

    def set_retry(self, *, attempt: int, max_attempts: int, retry_at: int, message: str) -> None:
        """Show that the request failed and will be retried at ``retry_at`` (epoch ms)."""
        facts = {"attempt": attempt, "max_attempts": max_attempts, "retry_at": retry_at, "message": message}
        now = Session.WAITING if self.state is Session.WAITING else Session.RETRYING
        self._move(now, {**self._facts, **facts})

    @contextlib.contextmanager
    def while_asking(self) -> Iterator[None]:
        """Show the state ``waiting`` as long as any question of the run is open."""
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
        """Set the state to idle after a run without an error."""
        self._move(Session.IDLE, {})

    def on_run_failed(self, *, message: str, code: str) -> None:
        """Set the state to error after a failed run, or a queued message that could not start one."""
        self._move(Session.ERROR, {"message": message, "code": code})

    def clear_error(self) -> None:
        """Set the state from error to idle without a run."""
        if self.state is Session.ERROR:
            self._move(Session.IDLE, {})

    def set_queued(self, number: int) -> None:
        """Set the number of queued messages."""
        if number != self._queued:
            self._queued = number
            self.publish_facts()

    def publish_facts(self) -> None:
        """Publish the facts after one of them, or of ``extra``, changed."""
        self._publish(Event("status", self._key, 0, (self.facts,)))

    def _move(self, state: Session, facts: dict[str, Any]) -> None:
        self.state, self._facts = state, facts
        self.publish_facts()


# How a run ended.

Reason = Literal["done", "error", "aborted"]

STOPPED = "Stopped"  # the document's line below the text of a run that a user stopped
BY_PARENT = "aborted by parent"  # the message of an agent's run that was stopped with its parent's run
RESTART = "restart"  # the code, and in the log the reason, of a run cut off by the daemon's end


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    reason: Reason
    text: str  # the model's text in this run
    code: str = ""  # of the error, see errors.py
    message: str = ""  # for a human: what went wrong, and what to do
    tools: int = 0  # number of an agent's tool calls, if counted

    @property
    def recorded(self) -> str:
        """The reason for the log, which is the same whether the daemon was stopped or killed."""
        return RESTART if self.reason == "aborted" and self.code == RESTART else self.reason

    @property
    def error(self) -> dict[str, str] | None:
        """The error for the log and, below the run's text, for the document; None for a finished run."""
        match self.recorded:
            case "done":
                return None
            case "aborted":
                return {"code": "aborted", "message": self.message or STOPPED}
            case _:
                return {"code": self.code, "message": self.message}


def told_of(error: Exception) -> tuple[str, str]:
    """Return code and message of an error that ended a run."""
    if isinstance(error, PyagentdError):
        return error.code, str(error)
    return "internal", f"{type(error).__name__}: {error}"


# Outcomes of tool calls for clients, since the document does not contain them.
#
# A call failed when the model got its result as an error: it could not be made, was denied, or was cut off. A tool's
# own report of success, such as the exit code of a command, is part of its result. Clients get the outcomes in
# ``tool`` events, each before the text of the call, and when they attach.

TOLD_MOST = 100  # latest calls that a client gets when it attaches


def tool_event(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content of a ``tool`` event for a ``part`` row; None if it is not a call, or has no result yet."""
    data = row.get("data_json", {})
    if data.get("state") not in ("output-available", "output-error"):
        return None
    metadata, name = data.get("metadata") or {}, str(data["type"]).removeprefix("tool-")
    line = metadata.get("summary") or summary(name, data.get("input") or {}, error=str(data.get("errorText") or ""))
    return {
        "id": str(data["toolCallId"]),
        "name": name,
        "summary": str(line),
        "state": "failed" if data["state"] == "output-error" else "done",
        "denied": str(metadata.get("denied") or ""),
    }


def call_summaries(conversation: Conversation) -> list[tuple[str, str]]:
    """Return ids and summaries of the last calls with a result, latest first."""
    found = (
        (call["id"], call["summary"])
        for message in reversed(conversation.messages.values())
        for part in reversed(message.parts)
        if part.is_tool and (call := tool_event(part.row)) is not None
    )
    return list(islice(found, TOLD_MOST))


def failed_calls(conversation: Conversation) -> list[str]:
    """Return the ids of the last calls that failed, latest first."""
    return list(islice(reversed(conversation.failed), TOLD_MOST))
