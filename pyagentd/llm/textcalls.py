"""Tool calls that a model writes as text, for servers that do not parse them or accept no tools; pure.

Small models write calls in the notation that they were trained on; a server that knows it sends calls, another sends
the text. ``TextCalls`` filters the items of such a server's decoder: text that could be a call is held back, and
becomes a call if it ends the answer, names an offered tool, and can be parsed. All other text is passed on. For a
server that accepts no tools, the system prompt describes them in the notation of Hermes and Qwen.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyagentd.llm.backend import (
    MAX_ARGUMENTS,
    ModelRequest,
    PartDelta,
    PartFinished,
    PartStarted,
    StepFinished,
    StreamItem,
    ToolSchema,
    dumps,
)
from pyagentd.llm.http import MAX_CALLS, Decoder, Json, SseEvent, api_name, arguments
from pyagentd.messages import Message, Part, Text, ToolCall, ToolResult

# The notations:
#
#   Hermes, Qwen 2 and 3   <tool_call>\n{"name": "Read", "arguments": {"path": "a"}}\n</tool_call>
#   Qwen 3 Coder           <tool_call><function=Read><parameter=path>\na\n</parameter></function></tool_call>
#   Mistral                [TOOL_CALLS] [{"name": "Read", "arguments": {"path": "a"}}] or [TOOL_CALLS]Read[ARGS]{…}
#   Llama 3                {"name": "Read", "parameters": {"path": "a"}} behind <|python_tag|>, in a fence, or alone

_MARKS = ("<tool_call>", "<function=", "[TOOL_CALLS]", "<|python_tag|>")
_FIRST_MARKS = ("{", "[{", "```json\n{", "```\n{")  # only at the start of an answer, which may well be JSON
_LONGEST_MARK = max(map(len, (*_MARKS, *_FIRST_MARKS)))
_MOST_BLANKS = 1000  # characters at the start of an answer that are held back
_MARK = re.compile(rf"^[ \t]*(?:{'|'.join(map(re.escape, _MARKS))})", re.MULTILINE)
_TAGGED = re.compile(r"\s*<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_MISTRAL = re.compile(r"\s*(?:\[TOOL_CALLS\])?\s*([\w.-]+)(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\])?\s*(?=\{)")
_FENCE = re.compile(r"```(?:json)?\n(.*?)\n?```", re.DOTALL)
_NAMED = re.compile(r'"name"\s*:\s*"([^"]+)"')
_BETWEEN = re.compile(r"[\s;,]*")

Found = tuple[str, Json, str]  # the name of an offered tool, the arguments, or their text if it is not JSON


class NotACall(Exception):
    """The text is no call."""


def calls_in(text: str, tools: Mapping[str, ToolSchema]) -> list[Found]:
    """Return the calls of ``tools`` in ``text``; none if it contains anything else."""
    text = text.strip()
    try:
        if text.startswith(("<tool_call>", "<function=")):
            found = [_parse_tagged(body, tools) for body in _whole(_TAGGED if text[1] == "t" else _FUNCTION, text)]
        elif text.startswith("[TOOL_CALLS]"):
            found = _of_mistral(text, tools)
        else:
            text = text.removeprefix("<|python_tag|>").strip()
            fenced = _FENCE.fullmatch(text)
            found = [_of_json(value, tools) for value in _values(fenced[1] if fenced else text)]
    except (NotACall, RecursionError):
        return []
    return found if len(found) <= MAX_CALLS else []


def _whole(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Yield the matches of ``pattern``, which must cover all of ``text``."""
    at = 0
    while at < len(text):
        match = pattern.match(text, at)
        if match is None:
            raise NotACall
        yield (match[1] if pattern is _TAGGED else match[0]).strip()
        at = match.end()


def _parse_tagged(body: str, tools: Mapping[str, ToolSchema]) -> Found:
    if function := _FUNCTION.fullmatch(body):
        name, inner = function[1], function[2].strip()
        tool = _offered_tool(name, tools)
        if inner.startswith("{"):
            return _read_call(tool, arguments(inner), inner)
        given: Json = {}
        at = 0
        while at < len(inner):
            parameter = _PARAMETER.match(inner, at)
            if parameter is None:
                return _read_call(tool, None, inner)
            given[parameter[1].strip()] = _typed_value(parameter[2], parameter[1].strip(), tool)
            at = parameter.end()
        return _read_call(tool, given, inner)
    value = arguments(body)
    if value is not None:
        return _of_json(value, tools)
    named = _NAMED.search(body)  # a malformed call: it is passed on, so that the model gets an error
    return _read_call(_offered_tool(named[1] if named else "", tools), None, body)


def _of_mistral(text: str, tools: Mapping[str, ToolSchema]) -> list[Found]:
    rest = text.removeprefix("[TOOL_CALLS]").strip()
    if rest.startswith(("[", "{")):
        return [_of_json(value, tools) for value in _values(rest)]
    found, at = [], 0
    while at < len(text):
        match = _MISTRAL.match(text, at)
        if match is None:
            raise NotACall
        given, at = _value(text, match.end())
        found.append(_read_call(_offered_tool(match[1], tools), given, ""))
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
    return found


def _of_json(value: object, tools: Mapping[str, ToolSchema]) -> Found:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise NotACall
    given = value.get("arguments", value.get("parameters"))
    if value.keys() - {"name", "arguments", "parameters", "id", "type"} or given is None:
        raise NotACall
    tool = _offered_tool(value["name"], tools)
    if isinstance(given, str):  # JSON in JSON
        return _read_call(tool, arguments(given), given)
    return _read_call(tool, given, "")


def _values(text: str) -> Iterator[object]:
    """Yield the JSON values in ``text``, which follow each other; the values of an array one by one."""
    at = 0
    while at < len(text):
        value, at = _value(text, at)
        yield from value if isinstance(value, list) and value else (value,)
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return json.JSONDecoder().raw_decode(text, at)
    except ValueError:
        raise NotACall from None


def _offered_tool(name: str, tools: Mapping[str, ToolSchema]) -> ToolSchema:
    if (tool := tools.get(name)) is None:
        raise NotACall
    return tool


def _read_call(tool: ToolSchema, given: object, text: str) -> Found:
    readable = isinstance(given, dict)
    if not readable and not text:
        raise NotACall
    return tool.name, given if isinstance(given, dict) else {}, "" if readable else text


def _typed_value(text: str, parameter: str, tool: ToolSchema) -> object:
    """Convert a parameter written without quotes to the type in the tool's schema."""
    schema = (tool.input_schema.get("properties") or {}).get(parameter)
    if not isinstance(schema, Mapping) or schema.get("type") in (None, "string"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class TextCalls(Decoder):
    """Wraps a decoder, and turns calls in the text of its answer into tool calls.

    Args:
        inner: The wrapped decoder.
        request: The request that is answered.
    """

    def __init__(self, inner: Decoder, request: ModelRequest) -> None:
        super().__init__(request)
        self._inner = inner
        self._tools = {name: tool for tool in request.tools for name in (api_name(tool.name, 64), tool.name)}
        self._numbers: dict[int, int] = {}  # of parts, by the number that the other decoder gives them
        self._held: list[str] = []  # text that may be a call
        self._in_call = False  # whether a call has begun in that
        self._shown: list[str] = []  # text of the same part that was passed on
        self._is_blank = True  # whether that text is blank
        self._done: PartFinished | None = None  # the finished text part, held until the next item
        self._read_call = False

    def decode(self, events: Iterable[SseEvent]) -> list[StreamItem]:
        """Return the items for ``events``."""
        return self._read(self._inner.decode(events))

    def end(self) -> list[StreamItem]:
        """Return the last items."""
        return self._read(self._inner.end())

    def _read(self, given: Iterable[StreamItem]) -> list[StreamItem]:
        items: list[StreamItem] = []
        for item in given:
            self._pass_on(item, items)
        self.finished, self.failure = self._inner.finished, self._inner.failure
        if self.failure is not None:  # pass on the held text as text
            self._show("".join(self._held), items)
            self._held.clear()
        return items

    def _pass_on(self, item: StreamItem, items: list[StreamItem]) -> None:
        if self._done is not None:
            self._end_text(self._done, items, item.stop_reason if isinstance(item, StepFinished) else "")
        match item:
            case PartStarted(kind="text"):
                self._held, self._in_call, self._shown, self._is_blank = [], False, [], True
            case PartDelta(index=index) if index not in self._numbers:  # of a text part, which has no number yet
                self._hold(item.text, items)
            case PartFinished(part=Text()):
                self._done = item
            case StepFinished(stop_reason="end_turn") if self._read_call:
                items.append(StepFinished("tool_use", item.usage, item.estimated))
            case PartStarted(index=index):
                items.append(PartStarted(self._number(index), item.kind, item.call_id, item.name))
            case PartDelta(index=index):
                items.append(PartDelta(self._number(index), item.text))
            case PartFinished(index=index):
                items.append(PartFinished(self._number(index), item.part))
            case _:
                items.append(item)

    def _number(self, index: int) -> int:
        if index not in self._numbers:
            self._numbers[index] = self._next
            self._next += 1
        return self._numbers[index]

    def _hold(self, text: str, items: list[StreamItem]) -> None:
        if self._in_call:
            self._held.append(text)  # all further text may belong to it
            return
        text = "".join((*self._held, text))
        at = _start(text, first=self._is_blank, line=not self._shown or self._shown[-1][-1] == "\n")
        self._show(text[:at], items)
        self._held = [text[at:]]
        self._in_call = len(text[at:].lstrip()) >= _LONGEST_MARK

    def _show(self, text: str, items: list[StreamItem]) -> None:
        if not text:
            return
        if not self._shown:
            items.append(PartStarted(self._next, "text"))
        self._shown.append(text)
        self._is_blank = self._is_blank and text.isspace()
        items.append(PartDelta(self._next, text))

    def _end_text(self, done: PartFinished, items: list[StreamItem], reason: str) -> None:
        """End the text part, and pass on the calls at its end."""
        self._done = None
        held = "".join(self._held)
        self._held.clear()
        calls = calls_in(held, self._tools) if len(held) <= MAX_ARGUMENTS else []
        if reason == "max_tokens" and any(unreadable for _, _, unreadable in calls):
            calls = []  # the last one was cut off
        self._show("" if calls else held, items)
        if self._shown:
            part = Text(text="".join(self._shown)) if calls else done.part
            items.append(PartFinished(self._number(done.index), part))
        for name, given, unreadable in calls:
            self._read_call = True
            id = self._unique_id("")
            items.append(PartStarted(self._next, "tool", id, name))
            part = ToolCall(id=id, name=name, input=given, unreadable=unreadable)
            items.append(PartFinished(self._next, part))
            self._next += 1


def _start(text: str, *, first: bool, line: bool) -> int:
    """Return where a call may begin in an unfinished text, or its length if nowhere.

    Args:
        text: The text that is not passed on yet.
        first: Whether only blanks precede it in the answer.
        line: Whether it begins a line.
    """
    stripped = text.lstrip()
    if first and (_may_begin(stripped, (*_MARKS, *_FIRST_MARKS)) if stripped else len(text) <= _MOST_BLANKS):
        return 0
    for match in _MARK.finditer(text):
        if match.start() or line:
            return match.start()
    last = text.rfind("\n") + 1
    return last if (last or line) and _may_begin(text[last:].lstrip(" \t"), _MARKS) else len(text)


def _may_begin(text: str, marks: Iterable[str]) -> bool:
    """Return whether ``text`` begins with a mark, or is the beginning of one."""
    return any(text.startswith(mark) or (text and mark.startswith(text)) for mark in marks)


# For a server that accepts no tools: tools, calls and results as text.

_HOW = """\
# Tools

You may call the tools below. To call some, end your answer with one such block for each and write nothing behind it:

<tool_call>
{"name": "NAME", "arguments": {"ARGUMENT": "VALUE"}}
</tool_call>

What they return comes with the next message, each in <tool_response>. These are the tools, and the JSON Schemas of
their arguments:
"""


def describe_tools(tools: Iterable[ToolSchema]) -> str:
    """Return the section of a system prompt that describes ``tools``."""
    schemas = ((api_name(each.name, 64), each.description, dict(each.input_schema)) for each in tools)
    lines = (dumps({"name": name, "description": words, "parameters": schema}) for name, words, schema in schemas)
    return "\n".join([_HOW, *lines])


def in_words(message: Message) -> Message:
    """Return a message with its tool calls and results as text."""
    return Message(role=message.role, parts=tuple(_in_words(part) for part in message.parts))


def _in_words(part: Part) -> Part:
    match part:
        case ToolCall():
            call = dumps({"name": api_name(part.name, 64), "arguments": dict(part.input)})
            return Text(text=f"\n<tool_call>\n{call}\n</tool_call>")
        case ToolResult():
            failed = "Error: " if part.is_error and not part.text.lower().startswith("error") else ""
            return Text(text=f"<tool_response>\n{failed}{part.text or '(no output)'}\n</tool_response>")
    return part
