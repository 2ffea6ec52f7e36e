"""Reply options for clients: sends ``reply-options`` events."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from pyagentd.events import Event
from pyagentd.runtime.feature import Feature, HistoryChanged, RunEnded
from pyagentd.store.conversation import Conversation

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel


# Options that the prose of an answer offers, for clients to show as buttons.
#
# A picked option becomes an ordinary user message: nothing here is part of the conversation. Pure; only the end of
# the answer is parsed, and in doubt there are no options, since the user can always type.

MOST = 9  # options; each has a digit for a key
_LABEL = 60  # characters on a button
_TEXT = 400  # characters of an option
_LINES = 200  # lines at the end of an answer that are parsed
_LINE = 2_000  # characters of a line that are parsed: its end for a question, its start for an item

_FENCE = re.compile(r"(`{3,}|~{3,})")
_ITEM = re.compile(r"(?P<indent> {0,3})(?:(?P<mark>[-*+•])|\(?(?P<name>\d{1,2}|[A-Za-z])[.)])[ \t]+(?P<text>\S.*)")
_BOLD = re.compile(r"(\*\*|__)(?P<label>.+?)\1(?P<rest>.*)", re.DOTALL)
_MARKUP = re.compile(r"\*\*|__|`|(?<!\w)\*(?=\S)|(?<=\S)\*(?!\w)")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_PICKING = re.compile(r"\b(which|choose|pick|prefer|select)\b", re.IGNORECASE)
_SEVERAL = re.compile(
    r"\b(which ones|all that apply|any of (?:these|them|those)|one or more|which of (?:these|them|those) \w+s)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?]\s")
_STEM = re.compile(
    r"^(?:(?:so|ok|okay|now|then|and|but|please)[, ]+)*"
    r"(?:(?:shall|should|can|could|may) (?:i|we)|(?:do|would) you (?:want|like|prefer|rather)(?: me| us)?(?: to)?"
    r"|would you rather|which (?:one )?(?:do|would) you (?:want|like|prefer)|is it|is that|are you|was it)\s+",
    re.IGNORECASE,
)
_NO_OPTION = re.compile(r"^(?:not|something else|anything else|another|other(?:s)?|so|both)$", re.IGNORECASE)
_MOST_WORDS = 8  # of an option in a sentence


class ReplyOptionRow(TypedDict):
    """One reply option."""

    label: str  # on its button
    text: str  # the user's message if it is chosen


class ReplyOptionsReply(TypedDict):
    """The options of an answer: two at least, or none."""

    options: list[ReplyOptionRow]
    several: bool  # several options may be chosen together


NONE: ReplyOptionsReply = {"options": [], "several": False}


def current_options(conversation: Conversation) -> ReplyOptionsReply:
    """Return the options of the last answer, if no message follows it."""
    for message in reversed(conversation.messages.values()):
        if message.is_hidden:
            continue
        if message.role != "assistant" or not message.parts:
            return NONE
        last = next((part for part in reversed(message.parts) if part.type != "step-start"), None)
        return (
            parse_options(last.text if last.edited is None else last.edited) if last and last.type == "text" else NONE
        )
    return NONE


def parse_options(answer: str) -> ReplyOptionsReply:
    """Parse the options at the end of an answer: a list with a question, or "A or B?"."""
    lines = answer.rstrip().splitlines()
    if lines and _FENCE.match(lines[-1]):
        return NONE  # it ends with code
    prose = _without_code(lines)[-_LINES:]
    return _last_list(prose) or _in_a_sentence(_last_line(prose)) or NONE


def _without_code(lines: Sequence[str]) -> list[str]:
    """Return the lines outside fences; an unclosed fence reaches to the end."""
    prose: list[str] = []
    fence = ""
    for line in lines:
        found = _FENCE.match(line)
        if fence:
            fence = "" if found and found[0].startswith(fence) else fence
        elif found:
            fence = found[0]
        else:
            prose.append(line)
    return prose


def _last_list(prose: Sequence[str]) -> ReplyOptionsReply | None:
    """Return the items of the last list, if a question is right before or right after it."""
    last = next((at for at in range(len(prose), 0, -1) if _is_item_or_more(prose[at - 1])), 0)
    lines = list(prose[:last])
    question_after = " ".join(" ".join(prose[last:]).split())
    items: list[str] = []
    style = None
    while lines:
        line = lines.pop()
        item = _ITEM.fullmatch(line)
        if item is None:
            if line.startswith((" ", "\t")) or (not line.strip() and items and lines and _more_above(lines)):
                continue  # the item above continues, or a blank line between items
            lines.append(line)
            break
        own = "mark" if item["mark"] else "digit" if item["name"].isdigit() else "letter"
        if style not in (None, own) or len(item["indent"]) > 1:
            if len(item["indent"]) > 1:
                continue
            lines.append(line)
            break
        style = own
        items.append(item["text"][:_LINE])
    before = _last_line(lines)
    if not 2 <= len(items) <= MOST or not _asks(before, question_after):
        return None
    options = list(map(_option, reversed(items)))
    if len({each["text"] for each in options}) < len(options):
        return None
    return {"options": options, "several": bool(_SEVERAL.search(f"{before} {question_after}"))}


def _is_item_or_more(line: str) -> bool:
    return _ITEM.fullmatch(line) is not None or (line.startswith(("  ", "\t")) and bool(line.strip()))


def _more_above(lines: Sequence[str]) -> bool:
    above = next((line for line in reversed(lines) if line.strip()), "")
    return _is_item_or_more(above)


def _last_line(lines: Sequence[str]) -> str:
    return next((line.strip()[-_LINE:] for line in reversed(lines) if line.strip()), "")


def _asks(before: str, after: str) -> bool:
    """Return whether the text around a list asks for a choice."""
    if after:
        return len(after) <= 300 and "?" in after and bool(_PICKING.search(after) or _ends_asking(before))
    return _ends_asking(before)


def _ends_asking(line: str) -> bool:
    plain = _plain(line)
    return plain.endswith("?") or (plain.endswith(":") and ("?" in plain or bool(_PICKING.search(plain))))


def _option(item: str) -> ReplyOptionRow:
    bold = _BOLD.match(item)
    whole = _plain(item)
    name = _plain(bold["label"]) if bold else re.split(r"\s+[–—-]\s+|:\s", whole, maxsplit=1)[0]
    name = name.strip().rstrip(":.,;")
    text = name if bold or len(whole) > _TEXT else whole.rstrip(".;,")
    return {"label": _cut(name or whole, _LABEL), "text": text[:_TEXT]}


def _in_a_sentence(last: str) -> ReplyOptionsReply | None:
    """Return the alternatives in a question that ends the last line: "Postgres, MySQL or SQLite?"."""
    if not last.endswith("?") or _ITEM.fullmatch(last):
        return None
    question = _SENTENCE_END.split(last)[-1]
    sentence = _plain(question).strip().rstrip("?").strip()
    if " or " not in sentence:
        return None
    _, colon, rest = sentence.rpartition(": ")
    words = rest if colon else _STEM.sub("", sentence)
    if not colon and words == sentence and not re.fullmatch(r"[\w'-]+(?:, [\w'-]+)*,? or [\w'-]+", words):
        return None  # the options cannot be told apart from the rest of the sentence
    parts = [_STEM.sub("", part.strip(" ,")) for part in re.split(r",? or |, ", words)]
    if not 2 <= len(parts) <= MOST or not all(map(_can_be_said, parts)):
        return None
    options: list[ReplyOptionRow] = [
        {"label": _cut(each, _LABEL), "text": each} for each in (part[:1].upper() + part[1:] for part in parts)
    ]
    return {"options": options, "several": False} if len({each["text"] for each in options}) == len(options) else None


def _can_be_said(part: str) -> bool:
    return bool(part) and len(part.split()) <= _MOST_WORDS and not _NO_OPTION.fullmatch(part)


def _plain(text: str) -> str:
    return " ".join(_MARKUP.sub("", _LINK.sub(r"\1", text)).split())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


class Suggestions(Feature):
    """Sends the reply options of an answer to the clients of its branch."""

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        kernel.bus.on(RunEnded, self._run_ended)
        kernel.bus.on(HistoryChanged, self._history_changed)

    def _run_ended(self, ended: RunEnded) -> None:
        if ended.outcome.reason == "done" and ended.branch.sinks:
            found = current_options(ended.branch.conversation)
            if found["options"]:
                ended.branch.publish(Event("reply-options", ended.branch.key, 0, (found,)))

    def _history_changed(self, changed: HistoryChanged) -> None:
        branch = changed.branch
        if branch.sinks:
            branch.publish(Event("reply-options", branch.key, 0, (current_options(branch.conversation),)))
