"""Which outputs of tools the model need not see any longer; pure.

Old, big ones go: what was read or run can be read or run again. The most recent stay, and the state that some tools
keep in their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyagentd.messages import Message, ToolCall, ToolResult
from pyagentd.messages import Part as Said
from pyagentd.store.conversation import Conversation, estimated, output_stub

KEEP_RECENT = 5  # results
LEAST = 400  # characters; less is not worth a stub
PROTECTED = frozenset({"TodoWrite", "task", "PersistentAgent", "mission", "question", "skill", "tool_search"})


def prunable(view: Sequence[Message], conversation: Conversation) -> dict[str, str]:
    """Return the outputs that may go: ids of recorded parts by call id."""
    known = {str(part.data["toolCallId"]): part for part in conversation.parts.values() if part.is_tool}
    names = {part.id: part.name for part in _parts(view) if isinstance(part, ToolCall)}
    results = [part for part in _parts(view) if isinstance(part, ToolResult)]
    found = {}
    for result in results[:-KEEP_RECENT]:
        part = known.get(result.id)
        big = len(result.text) >= LEAST and not result.is_error
        if part is not None and part.edited is None and big and names.get(result.id) not in PROTECTED:
            found[result.id] = part.id
    return found


def saving(view: Sequence[Message], calls: Mapping[str, str]) -> int:
    """Return about how many tokens a view has less without these outputs."""
    texts = (part.text for part in _parts(view) if isinstance(part, ToolResult) and part.id in calls)
    return sum(estimated(text) - estimated(output_stub(text)) for text in texts)


def pruned(view: Sequence[Message], calls: Mapping[str, str]) -> tuple[Message, ...]:
    """Return the view without the outputs of ``calls``."""
    return tuple(
        replace(message, parts=tuple(_stubbed(part, calls) for part in message.parts))
        if any(isinstance(part, ToolResult) and part.id in calls for part in message.parts)
        else message
        for message in view
    )


def _stubbed(part: Said, calls: Mapping[str, str]) -> Said:
    if isinstance(part, ToolResult) and part.id in calls:
        return ToolResult(id=part.id, text=output_stub(part.text), is_error=part.is_error)
    return part


def _parts(view: Sequence[Message]) -> list[Said]:
    return [part for message in view for part in message.parts]
