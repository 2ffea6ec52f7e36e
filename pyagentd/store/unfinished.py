"""Which agents under a branch were left in the middle, by a killed process or a disk that refused.

Looks at the end of each log only: the last word about a run is that all its text is in the document. What is to be
done about the others is decided where they are opened.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyagentd.errors import StoreError
from pyagentd.messages import Message, Part, ToolResult
from pyagentd.store import atomic, conversation, paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.document.reconcile import View, model_parts
from pyagentd.store.journal import read_rows, row_of
from pyagentd.store.paths import BranchRef

_TAIL: Final = 4096  # bytes; the last rows of a run that ended well are short


def unfinished_agents(branch_dir: Path) -> list[BranchRef]:
    """Return the agents below ``branch_dir``, at any depth, whose last run may lack its end or some of its text.

    Drafts that a killed process left beside their files are removed.
    """
    return list(_unfinished(branch_dir))


def _unfinished(branch_dir: Path) -> Iterator[BranchRef]:
    home = paths.agents_dir(branch_dir)
    try:
        places = sorted(home.iterdir())
    except OSError:  # none, or none that can be seen
        return
    for place in places:
        if paths.session_file(place).is_file():
            atomic.sweep(place)
            if not is_finished(paths.journal_file(place)):
                yield paths.agent_ref(place)
            yield from _unfinished(place)


def is_finished(log: Path) -> bool:
    """Return whether the log at ``log`` ends with the word that all text of its last run is in the document."""
    try:
        fd = atomic.open_read(log)
    except (FileNotFoundError, StoreError):
        return True
    try:
        end = os.fstat(fd).st_size
        tail = atomic.read_fd(fd, _TAIL, max(0, end - _TAIL), log)
    except StoreError:
        return True
    finally:
        atomic.close_fd(fd)
    for line in reversed(tail.split(b"\n")):
        row = row_of(line)
        if row is not None and row.type == "run":
            return row.data.get("state") == "kept"
        if row is not None and row.type in ("message", "part", "delta"):
            return False
    return not tail


# Which runs of a tree only waited when their daemon ended: for a human, or for agents that did.
#
# Reads logs and writes nothing. A run waits when the log has a question of one of its unfinished calls without an
# answer, or with one that nothing has come of while calls have not begun, or an agent of such a call that waits
# itself; and when somebody still waits for it in turn: the branch at the root needs nobody, an agent in the
# background neither, any other the call that spawned it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """A run that waits, of which nobody knows yet."""

    ref: BranchRef
    run_id: str
    asks: tuple[str, ...]  # ids of its questions without an answer
    answered: tuple[str, ...]  # ids of those whose answer nothing has come of yet
    is_first: bool  # no other run waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far the answer of a run that waits has come.

    Attributes:
        message: The recorded message it is, the last one where the user steered the run.
        earlier: The answers before that.
        done: Its finished requests as the model saw them: what it said, and the results.
        step: What it said in the last one.
        results: Results of that one's calls that are recorded, by call id.
    """

    message: conversation.Message
    earlier: tuple[conversation.Message, ...]
    done: tuple[Message, ...]
    step: tuple[Part, ...]
    results: Mapping[str, ToolResult]


def look(root: BranchRef) -> dict[str, Suspended]:
    """Return the runs that wait in the tree of a branch of a session, by branch key, those above first.

    Raises:
        StoreError: A log cannot be read.
    """
    unfinished = unfinished_agents(root.branch_dir)
    if paths.session_file(root.branch_dir).is_file() and not is_finished(paths.journal_file(root.branch_dir)):
        unfinished.append(root)
    return _wanted(root, _waiting(unfinished))


def standing(conversation: Conversation) -> Standing | None:
    """Return how far the last run came, None when it has no call without a result."""
    message = next(
        (conversation.messages[part.row["message_id"]] for part in _open_calls(conversation)),
        None,
    )
    if message is None:
        return None
    said = _said_in_run(conversation, message)
    *before, last = message.steps()
    view = View()
    for each in said:
        if each.role == "user":
            view.add_user(each.text)
            continue
        for step in each.steps():
            view.add_recorded(step)
    for step in before:
        view.add_recorded(step)
    results = {}
    for part in last:
        if part.is_tool and (result := part.result) is not None:
            call_id = str(part.data["toolCallId"])
            results[call_id] = ToolResult(id=call_id, text=result[0], is_error=result[1])
    earlier = tuple(each for each in said if each.role == "assistant")
    return Standing(
        message=message, earlier=earlier, done=view.made(), step=tuple(model_parts(last)), results=results
    )


def _said_in_run(conversation: Conversation, last: conversation.Message) -> list[conversation.Message]:
    """Return what was said in the last run before the message ``last``, by the model and by who steered it."""
    run = conversation.last_run
    prompt = str(run.data.get("message_id")) if run else ""
    if prompt not in conversation.messages:
        return []
    order = list(conversation.messages)
    between = order[order.index(prompt) + 1 : order.index(last.id)]
    return [message for id in between if not (message := conversation.messages[id]).is_hidden]


@dataclass(frozen=True, slots=True)
class _Candidate:
    ref: BranchRef
    run: Mapping[str, Any]
    session: Mapping[str, Any]
    calls: frozenset[str]  # without a result
    asks: tuple[str, ...]
    answered: tuple[str, ...]


def _waiting(refs: Iterable[BranchRef]) -> dict[str, _Candidate]:
    """Return those whose runs wait for something, by key; whoever waits for them comes later."""
    waiting: dict[str, _Candidate] = {}
    for ref in sorted(refs, key=lambda each: len(each.branch_dir.parts), reverse=True):
        candidate = _candidate(ref)
        if candidate is None:
            continue
        agents = (agent for agent in waiting.values() if _is_awaited(agent, ref.key, candidate))
        if candidate.asks or candidate.answered or any(agents):
            waiting[ref.key] = candidate
    return waiting


def _wanted(root: BranchRef, waiting: Mapping[str, _Candidate]) -> dict[str, Suspended]:
    """Leave out those for which nobody waits any more."""
    wanted: dict[str, Suspended] = {}
    for key, candidate in reversed([*waiting.items()]):
        above = str(candidate.ref.branch_dir.parent.parent)
        first = key == root.key or bool(candidate.session.get("background"))
        if first or (above in wanted and _is_awaited(candidate, above, waiting[above])):
            wanted[key] = Suspended(
                ref=candidate.ref,
                run_id=candidate.run["id"],
                asks=candidate.asks,
                answered=candidate.answered,
                is_first=first,
            )
    return wanted


def _is_awaited(agent: _Candidate, key: str, above: _Candidate) -> bool:
    session = agent.session
    return (
        str(agent.ref.branch_dir.parent.parent) == key
        and session.get("parent_run_id") == above.run["id"]
        and session.get("parent_call_id") in above.calls
    )


def _candidate(ref: BranchRef) -> _Candidate | None:
    conversation = Conversation(read_rows(paths.journal_file(ref.branch_dir)))
    run = conversation.last_run
    if run is None or run.is_finished:
        return None
    calls = _open_call_ids(conversation)
    asks = tuple(ask["id"] for ask in _asks_about(conversation, calls) if ask["decision"] is None)
    return _Candidate(ref, run.data, conversation.session, calls, asks, answered(conversation))


def answered(conversation: Conversation) -> tuple[str, ...]:
    """Return the questions of the last run whose answer nothing has come of, while calls of it have not begun."""
    calls = _open_call_ids(conversation)
    if calls <= conversation.begun:
        return ()
    return tuple(ask["id"] for ask in _asks_about(conversation, calls) if ask["decision"] not in (None, "abort"))


def _asks_about(conversation: Conversation, calls: frozenset[str]) -> list[dict[str, Any]]:
    run = conversation.last_run
    if run is None:
        return []
    asks = conversation.asks.values()
    return [ask for ask in asks if ask.get("run_id") == run.data["id"] and ask.get("tool_call_id") in calls]


def _open_call_ids(conversation: Conversation) -> frozenset[str]:
    return frozenset(str(part.data["toolCallId"]) for part in _open_calls(conversation))


def _open_calls(conversation: Conversation) -> Iterator[conversation.Part]:
    return (part for part in conversation.parts.values() if part.data.get("state") == "input-available")
