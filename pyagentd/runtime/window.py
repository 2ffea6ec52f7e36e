"""Which end of a conversation stays verbatim; pure.

A tail begins with a turn of the user, or, where the last turn alone is too long, with a step of its answer: never
between a call and its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyagentd.messages import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from pyagentd.store.conversation import Conversation, estimated, output_stub
from pyagentd.store.conversation import Part as Part_

_CALL_TOKENS = 16  # what the frame of a call or a result takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A place where a tail may begin.

    Attributes:
        index: Of the first message of the view that stays.
        message_id: The recorded message that begins there.
        part_id: The ``step-start`` part of that message, "" when all of it stays.
    """

    index: int
    message_id: str
    part_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What stays.

    Attributes:
        cut: Where it begins.
        tokens: About how many it has.
        warning: What is to be said of it, or "".
    """

    cut: Cut
    tokens: int
    warning: str = ""


def cuts(view: Sequence[Message], conversation: Conversation) -> list[Cut]:
    """Return where a tail of ``view`` may begin, in order; the whole view is no tail."""
    steps = _steps(conversation)
    return [cut for index in range(1, len(view)) if (cut := _cut(view, index, steps)) is not None]


def chosen(view: Sequence[Message], places: Sequence[Cut], *, turns: int, budget: int) -> Tail | None:
    """Return the tail that stays, None when nothing can go.

    Args:
        view: What the model sees.
        places: Its ``cuts``.
        turns: How many turns of the user should stay.
        budget: How many tokens they may take.
    """
    left = _tokens_from(view)
    starts = [cut for cut in places if not cut.part_id]
    for number in range(min(turns, len(starts)), 0, -1):
        cut = starts[-number]
        if left[cut.index] <= budget:
            return Tail(cut=cut, tokens=left[cut.index], warning=_fewer(turns, number))
    last = starts[-1] if starts else None
    if last is not None and left[last.index] <= 2 * budget:
        return Tail(cut=last, tokens=left[last.index], warning=_fewer(turns, 1))
    within = [cut for cut in places if cut.part_id and (last is None or cut.index > last.index)]
    found = next((each for each in within if left[each.index] <= budget), within[-1] if within else last)
    if found is None:
        return None
    warning = "The last turn is too long to stay whole: its beginning was summarised too" if found.part_id else ""
    return Tail(cut=found, tokens=left[found.index], warning=warning or _fewer(turns, 1))


def tokens_of(messages: Sequence[Message]) -> int:
    """Return about how many tokens messages take."""
    return sum(_part_tokens(part) for message in messages for part in message.parts)


def _fewer(turns: int, number: int) -> str:
    if number >= min(turns, 2):
        return ""
    return "Only the last turn stays as it is: the one before takes too much of the model's window"


def _tokens_from(view: Sequence[Message]) -> list[int]:
    left = [0] * (len(view) + 1)
    for index in range(len(view) - 1, -1, -1):
        left[index] = left[index + 1] + tokens_of(view[index : index + 1])
    return left


def _part_tokens(part: Part) -> int:
    match part:
        case Text(text=text) | Reasoning(text=text):
            return estimated(text)
        case ToolCall(input=arguments):
            return _CALL_TOKENS + estimated(str(dict(arguments)))
        case ToolResult(text=text):
            return _CALL_TOKENS + estimated(text)
        case Media():
            return 0  # it is made of a link when this was counted already


def _cut(view: Sequence[Message], index: int, steps: dict[str, Cut]) -> Cut | None:
    message = view[index]
    if message.role == "user":
        return Cut(index=index, message_id=message.id) if message.id else None
    before = view[index - 1]
    if not any(isinstance(part, ToolResult) for part in before.parts):
        return None  # it answers a prompt, which would be gone
    calls = (steps.get(part.id) for part in message.parts if isinstance(part, ToolCall))
    found = next((cut for cut in calls if cut is not None), None)
    return None if found is None else Cut(index=index, message_id=found.message_id, part_id=found.part_id)


def _steps(conversation: Conversation) -> dict[str, Cut]:
    """Return for each recorded call where its step begins."""
    found: dict[str, Cut] = {}
    for message in conversation.messages.values():
        if message.role == "assistant" and not message.is_hidden:
            for start, part in _with_starts(message.parts):
                call = str(part.data["toolCallId"])
                found[call] = Cut(index=0, message_id=message.id, part_id=start.id)
    return found


def _with_starts(parts: Sequence[Part_]) -> Iterator[tuple[Part_, Part_]]:
    start: Part_ | None = None
    for part in parts:
        if part.type == "step-start":
            start = part
        elif part.is_tool and start is not None:
            yield start, part


# Which outputs of tools the model need not see any longer; pure.
#
# Old, big ones go: what was read or run can be read or run again. The most recent stay, and the state that some
# tools keep in their results.

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


def _stubbed(part: Part, calls: Mapping[str, str]) -> Part:
    if isinstance(part, ToolResult) and part.id in calls:
        return ToolResult(id=part.id, text=output_stub(part.text), is_error=part.is_error)
    return part


def _parts(view: Sequence[Message]) -> list[Part]:
    return [part for message in view for part in message.parts]
