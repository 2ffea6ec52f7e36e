"""Turns that were taken back: which belong together, what comes instead, which rows hide and show them.

A turn that is rewound, edited or asked again stays in the log; each of its messages says in its metadata when and by
what it was hidden (``hidden_at``, ``hidden_by``: neighbours B.2), together with which others (``hidden_op``) and
behind which message all of them stood (``hidden_after``, "" for the beginning). So one rewind can be reversed, and
what was said behind the same message at different times are variants of each other. Pure; what is done about the
document's text is in ``hiding``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pyagentd.clock import new_id
from pyagentd.store.conversation import Conversation
from pyagentd.store.recorded import Message

By = Literal["rewind", "edit", "variant", "context", "command"]

_KEYS = ("hidden_at", "hidden_by", "hidden_op", "hidden_after")
CONTEXT: By = "context"  # all that was visible: a boundary, behind which another conversation begins (DD-43)
COMMAND: By = "command"  # a slash command with its answer, which no model ever saw: they belong to no turn
COMPACTION = "compaction"  # as origin of a message: it belongs to the turn around it and is no turn's beginning


class Group(NamedTuple):
    """Messages that were hidden together, in their order; ``after`` is the message they followed, "" for none."""

    op: str
    by: str
    after: str
    messages: tuple[Message, ...]


class Variant(NamedTuple):
    """One of several things said behind the same message; ``group`` is None for the one that is shown."""

    messages: tuple[Message, ...]
    group: Group | None

    @property
    def first(self) -> Message:
        """The message that is called the variant: the first that is no compaction."""
        return next((message for message in self.messages if not is_marker(message)), self.messages[0])


def visible(conversation: Conversation) -> list[Message]:
    """Return the messages that the conversation consists of now, without those that wait in the queue."""
    return [message for message in conversation.messages.values() if not message.is_hidden and not message.is_waiting]


def is_marker(message: Message) -> bool:
    """Return whether a message is a compaction."""
    return message.metadata.get("origin") == COMPACTION


def is_command(message: Message) -> bool:
    """Return whether a message is a slash command, or the answer to one."""
    return message.metadata.get("hidden_by") == COMMAND


def mark(by: By, *, now_ms: int) -> dict[str, Any]:
    """Return the metadata of messages that are hidden together from the beginning, behind whatever is there."""
    return {"hidden_at": now_ms, "hidden_by": by, "hidden_op": new_id("hid"), "hidden_after": ""}


def prompts(conversation: Conversation) -> list[Message]:
    """Return the user's messages to which one can rewind, compacted ones too."""
    return [message for message in visible(conversation) if message.role == "user"]


def continuation(conversation: Conversation, after: str) -> list[Message]:
    """Return what is visible behind the message ``after``, "" for all."""
    shown = visible(conversation)
    ids = [message.id for message in shown]
    return shown[ids.index(after) + 1 :] if after else shown


def before(conversation: Conversation, message_id: str) -> str:
    """Return the id of the visible message that ``message_id``, a visible one, follows; "" for the first."""
    last = ""
    for message in visible(conversation):
        if message.id == message_id:
            break
        if not is_marker(message):
            last = message.id
    return last


def groups(conversation: Conversation) -> list[Group]:
    """Return what was hidden together and is hidden still, in the order in which that was done."""
    found: dict[str, list[Message]] = {}
    for message in conversation.messages.values():
        if (op := message.metadata.get("hidden_op")) and message.is_rewound and not is_command(message):
            found.setdefault(op, []).append(message)
    return [
        Group(op, str(own[0].metadata["hidden_by"]), str(own[0].metadata["hidden_after"]), tuple(own))
        for op, own in sorted(found.items())
    ]


def groups_since(conversation: Conversation) -> list[Group]:
    """Return the groups of the conversation that goes on: what is before the last boundary belongs to others."""
    found = groups(conversation)
    last = max((number for number, group in enumerate(found, 1) if group.by == CONTEXT), default=0)
    return found[last:]


def variants(conversation: Conversation, after: str) -> list[Variant]:
    """Return all that was said behind the message ``after`` at different times, oldest first."""
    found = [Variant(group.messages, group) for group in groups_since(conversation) if group.after == after]
    if shown := continuation(conversation, after):
        found.append(Variant(tuple(shown), None))
    order = {id: number for number, id in enumerate(conversation.messages)}
    return sorted(found, key=lambda variant: order[variant.first.id])


def last_rewind(conversation: Conversation) -> Group | None:
    """Return what the last rewind hid, if it is hidden still; also what was hidden for an answer that never came."""
    for group in reversed(groups_since(conversation)):
        if group.by == "rewind" or (
            is_shown(conversation, group.after) and not continuation(conversation, group.after)
        ):
            return group
    return None


def is_shown(conversation: Conversation, message_id: str) -> bool:
    """Return whether a message is visible; "" stands for the beginning."""
    message = conversation.messages.get(message_id)
    return not message_id or (message is not None and not message.is_hidden)


def hide(messages: Iterable[Message], *, by: By, after: str, now_ms: int, **notes: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows that hide messages together; ``notes`` become metadata of each of them."""
    op = new_id("hid")
    for message in messages:
        hidden = {"hidden_at": now_ms, "hidden_by": by, "hidden_op": op, "hidden_after": after, **notes}
        yield _with(message, {**message.metadata, **hidden}, now_ms)


def show(messages: Iterable[Message], *, now_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the rows that make hidden messages visible again."""
    for message in messages:
        kept = {key: value for key, value in message.metadata.items() if key not in _KEYS and key != "restored"}
        yield _with(message, kept, now_ms)


def _with(message: Message, metadata: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    return {**message.row, "metadata_json": dict(metadata), "updated_at": now_ms}
