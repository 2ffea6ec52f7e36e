"""Which message is meant: a prompt to go back to or to ask again, a variant to show."""

from __future__ import annotations

from pyagentd.agent.revising.looking import candidates
from pyagentd.errors import NotFound
from pyagentd.store.conversation import Conversation, Message
from pyagentd.store.document import hidden
from pyagentd.store.document.hidden import Variant


def chosen_prompt(conversation: Conversation, message_id: str) -> Message:
    """Return the visible message of the user's with an id.

    Raises:
        NotFound: There is none; the error lists those there are.
    """
    found = hidden.prompts(conversation)
    for prompt in found:
        if prompt.id == message_id:
            return prompt
    what = "is no prompt that can be chosen" if message_id in conversation.messages else "is not in this branch"
    raise NotFound(f"Message {message_id} {what}", mend=candidates(found))


def variants_of(conversation: Conversation, message_id: str) -> list[Variant]:
    """Return what was said at different times where a message stands, itself included, oldest first.

    Raises:
        NotFound: There is no such message, or it does not follow anything that is shown.
    """
    message = conversation.messages.get(message_id)
    if message is None:
        raise NotFound(f"Message {message_id} is not in this branch", mend=candidates(conversation))
    if not message.is_hidden:
        return hidden.variants(conversation, hidden.before(conversation, message_id))
    after = str(message.metadata.get("hidden_after", ""))
    if message.is_rewound and hidden.is_shown(conversation, after):
        found = hidden.variants(conversation, after)
        if any(variant.first.id == message_id for variant in found):
            return found
    raise NotFound(f"Message {message_id} is hidden together with what came before it", mend="Choose that first")


def prompt_of(conversation: Conversation, message_id: str | None) -> Message:
    """Return the prompt of a message's turn: what the user sent, not what was said while it was answered.

    Args:
        conversation: Where.
        message_id: The prompt or an answer to it; None means the last one.

    Raises:
        NotFound: It is not shown, or there is none.
    """
    shown = hidden.visible(conversation)
    if message_id is not None:
        ids = [message.id for message in shown]
        if message_id not in ids:
            raise NotFound(f"Message {message_id} is not shown in this branch", mend=candidates(conversation))
        shown = shown[: ids.index(message_id) + 1]
    for message in reversed(shown):
        steered = message.metadata.get("steered") and not message.metadata.get("context")  # of a restored one: a turn
        if message.role == "user" and not steered:
            return message
    raise NotFound("There is no prompt to ask again", mend="Write and send one first")
