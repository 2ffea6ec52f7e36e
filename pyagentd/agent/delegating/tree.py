"""The agents below a branch, at any depth, and what became of each; reads their logs, blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from pyagentd.agent.delegating.kin import children
from pyagentd.agent.delegating.results import outcome_of
from pyagentd.agent.delegating.spawn import result_of
from pyagentd.agent.running.outcome import Outcome
from pyagentd.errors import StoreError
from pyagentd.policy.presets import Result
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.journal import read_rows
from pyagentd.store.paths import BranchRef

AgentState = Literal["running", "waiting", "finished", "aborted", "error", "idle"]

_ENDED: Mapping[str, AgentState] = {"done": "finished", "aborted": "aborted", "error": "error"}


class Open(NamedTuple):
    """A branch that is open: what it is doing (the status clients see), and what is recorded."""

    state: str
    conversation: Conversation


def agents_below(
    ref: BranchRef, opened: Mapping[str, Open], wanted: Callable[[BranchRef], Result]
) -> list[dict[str, Any]]:
    """Return the agents of a branch by name, each with its own in ``agents``.

    Args:
        ref: The branch.
        opened: What of it is open, by key.
        wanted: Returns what of an agent's text is its result.

    Returns:
        ``id``, ``branch``, ``branch_dir``, ``preset``, ``description``, ``state``, ``background``, ``call_id`` (of
        the call that made it), ``tokens`` (all of its runs), ``result`` (what its last run came to, as a parent is
        told; None while there is none).
    """
    return [_described(child, opened, wanted) for child in children(ref)]


def _described(ref: BranchRef, opened: Mapping[str, Open], wanted: Callable[[BranchRef], Result]) -> dict[str, Any]:
    known = opened.get(ref.key) or Open("idle", _read(ref))
    conversation = known.conversation
    outcome = outcome_of(conversation, conversation.last_run, wanted(ref))
    return {
        "id": ref.session_id,
        "branch": ref.key,
        "branch_dir": str(ref.branch_dir),
        "preset": conversation.session.get("agent") or None,
        "description": conversation.session.get("description") or None,
        "state": _state(known.state, conversation, outcome),
        "background": bool(conversation.session.get("background")),
        "call_id": conversation.session.get("parent_call_id") or None,
        "tokens": _tokens(conversation),
        "result": None if outcome is None else result_of(outcome).text,
        "agents": agents_below(ref, opened, wanted),
    }


def _read(ref: BranchRef) -> Conversation:
    try:
        return Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    except StoreError:  # it is told where somebody opens it
        return Conversation()


def _state(status: str, conversation: Conversation, outcome: Outcome | None) -> AgentState:
    match status:
        case "busy" | "retrying":
            return "running"
        case "waiting":
            return "waiting"
    if outcome is not None:
        return _ENDED[outcome.reason]
    # A run without its end that nobody executes waits for somebody to open it after its daemon ended.
    return "waiting" if any(ask["decision"] is None for ask in conversation.asks.values()) else "idle"


def _tokens(conversation: Conversation) -> int:
    usages = (message.row.get("metadata_json", {}).get("usage") for message in conversation.messages.values())
    return sum(sum(usage.values()) for usage in usages if usage)
