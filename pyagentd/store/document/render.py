"""Renders a run as document text; the only module that decides about the layout.

It is a fold over the rows of a run; each row yields the texts it adds at the run's marker, with gptel's text
property. The layout is stock gptel's: reasoning and tool calls in fences that the model does not see (the fences are
``ignore``, the call with its result is ``(tool . ID)``), answers as ``response``. A compaction is such a fence, too;
one on the user's request comes after the last answer, before the next prompt. The result is deterministic: byte for
byte the same for parts in deltas or whole, and for any width of a window.

The rows of a run must be recorded in this order: of one step first all text and reasoning, then the results of its
calls, in any order; they are rendered in the order of the calls.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from pyagentd.events import InsertRole
from pyagentd.store.conversation import COMPACTION, compaction_block
from pyagentd.store.document.text import PROMPT_PREFIX
from pyagentd.store.journal import Row
from pyagentd.wire.sexp import print_call, print_json

REASONING_OPEN = "``` reasoning\n"
TOOL_OPEN = "``` tool "
FENCE_CLOSE = "\n```"
RUN_OPEN = "\n\n"
RUN_CLOSE = f"\n\n{PROMPT_PREFIX}"
_CALL_WIDTH = 60
_CALL_CUT = " ...)"
_SURROGATE = re.compile("[\ud800-\udfff]")

Block = Literal["start", "text", "reasoning", "tool", "error", "compaction"]

# Between two blocks, as stock gptel separates them; a tool block ends with a newline of its own.
_BETWEEN: Mapping[tuple[Block, Block], str] = {
    ("start", "text"): "",
    ("start", "reasoning"): "\n",
    ("start", "tool"): "\n",
    ("start", "error"): "",
    ("start", "compaction"): "",
    ("tool", "text"): "",
    ("tool", "tool"): "",
    ("tool", "reasoning"): "\n",
    ("tool", "error"): "\n",
    ("tool", "compaction"): "\n",
}


class Insert(NamedTuple):
    """A text for the run's marker; ``part_id`` is "" for separators, ``seq`` the row it comes from."""

    text: str
    role: InsertRole
    part_id: str
    seq: int


class Renderer:
    """Renders rows; feed it every row of a branch, or all rows from the start of a run."""

    def __init__(self) -> None:
        # The user's messages: whether each was said to a run in flight, and so stands in its text.
        self._prompts: dict[str, bool] = {}
        self._begin()

    def feed(self, row: Row) -> list[Insert]:
        """Return the texts that ``row`` adds to the document."""
        self._seq = row.seq
        self._inserts: list[Insert] = []
        match row.type:
            case "delta":
                part_id = row.data["part_id"]
                if part_id in self._shown:
                    self._show(part_id, row.data["text"])
            case "message" if row.data["role"] == "user":
                steered = bool(row.data.get("metadata_json", {}).get("steered"))
                self._prompts[row.data["id"]] = steered or self._prompts.get(row.data["id"], False)
            case "part" if row.data["message_id"] not in self._prompts:
                self._feed_part(row.data)
            case "part" if self._prompts[row.data["message_id"]]:
                self._show_steering(row.data)
            case "run" if row.data["state"] == "started":
                self._begin()
                self._shows_tools = row.data.get("tool_results") is not False
                self._compacts = row.data.get("kind") == "compaction"
                if not self._compacts:
                    self._put(RUN_OPEN)
            case "run" if row.data["state"] == "finished" and not self._compacts:
                self._finish(row.data.get("error"))
        inserts, self._inserts = self._inserts, []
        return inserts

    def _begin(self) -> None:
        self._compacts = False  # whether all it does is to compact: between an answer and the prompt that follows
        self._shows_tools = True  # else calls are in the log only: `include-tool-results: false`
        self._last: Block = "start"
        self._open = ""  # the reasoning part whose fence is open
        self._shown: dict[str, int] = {}  # text and reasoning parts of the run: how much of their text is shown
        self._reasoning: set[str] = set()
        self._calls: dict[str, Mapping[str, Any] | None] = {}  # calls of the step not shown yet, with their results

    def _feed_part(self, row: Mapping[str, Any]) -> None:
        part_id, type, data = row["id"], row["type"], row["data_json"]
        if type in ("text", "reasoning"):
            if type == "reasoning":
                self._reasoning.add(part_id)
            self._show(part_id, data["text"][self._shown.setdefault(part_id, 0) :])
            if part_id == self._open and data.get("state") != "streaming":
                self._close()
        elif type.startswith("tool-"):
            self._feed_tool(part_id, data)
        elif type == "step-start" and part_id not in self._shown:  # it comes again with what the step cost
            self._shown[part_id] = 0
            self._end_step()
        elif type == COMPACTION and part_id not in self._shown:
            self._show_compaction(part_id, data)

    def _show(self, part_id: str, text: str) -> None:
        """Render more of a text or reasoning part."""
        if not text:
            return
        reasoning = part_id in self._reasoning
        if not self._shown[part_id]:
            self._separate("reasoning" if reasoning else "text")
            if reasoning:
                self._open = part_id
                self._put(REASONING_OPEN, "ignore", part_id)
        self._shown[part_id] += len(text)
        self._put(text, "ignore" if reasoning else "response", part_id)

    def _feed_tool(self, part_id: str, data: Mapping[str, Any]) -> None:
        finished = data["state"] in ("output-available", "output-error")
        if part_id in self._shown:
            return
        self._calls[part_id] = data if finished else None
        while self._calls:
            first, result = next(iter(self._calls.items()))
            if result is None:
                break
            del self._calls[first]
            self._show_tool(first, result)

    def _show_tool(self, part_id: str, data: Mapping[str, Any]) -> None:
        self._shown[part_id] = 1
        if not self._shows_tools:
            return
        self._separate("tool")
        self._put(tool_head(data), "ignore", part_id)
        self._put(tool_body(data), ("tool", data["toolCallId"]), part_id)
        self._put(FENCE_CLOSE + "\n", "ignore", part_id)

    def _show_compaction(self, part_id: str, data: Mapping[str, Any]) -> None:
        self._shown[part_id] = 1
        self._end_step()
        if self._compacts:
            self._put(RUN_OPEN, None, part_id)  # no heading follows that would part it from what stands below
        self._separate("compaction")
        self._put(compaction_block(data), "ignore", part_id)

    def _show_steering(self, row: Mapping[str, Any]) -> None:
        """Render a steering message of the user as a prompt within the run."""
        if row["id"] in self._shown:
            return
        self._shown[row["id"]] = 1
        self._close()
        self._end_step()
        self._put(RUN_CLOSE)
        self._put(row["data_json"]["text"], None, row["id"])
        self._put(RUN_OPEN)
        self._last = "start"

    def _end_step(self) -> None:
        """Render results that waited for the result of an earlier call, which never came."""
        calls, self._calls = self._calls, {}
        for part_id, data in calls.items():
            if data is not None:
                self._show_tool(part_id, data)

    def _finish(self, error: Mapping[str, Any] | None) -> None:
        self._close()
        self._end_step()
        if error:
            self._separate("error")
            self._put(error_block(error["message"]), "ignore")
        self._put(RUN_CLOSE)

    def _separate(self, next: Block) -> None:
        self._close()
        self._put(separator(self._last, next))
        self._last = next

    def _close(self) -> None:
        if self._open:
            self._put(FENCE_CLOSE, "ignore", self._open)
            self._open = ""

    def _put(self, text: str, role: InsertRole = None, part_id: str = "") -> None:
        text = writable(text)
        last = self._inserts[-1] if self._inserts else None
        if last is not None and last.role == role and last.part_id == part_id:
            self._inserts[-1] = last._replace(text=last.text + text)
        elif text:
            self._inserts.append(Insert(text, role, part_id, self._seq))


def replay(rows: Iterable[Row], after: int) -> list[Insert]:
    """Return the inserts of rows numbered higher than ``after``; ``rows`` begin with a run or with the log."""
    renderer = Renderer()
    return [insert for row in rows for insert in renderer.feed(row) if row.seq > after]


def prompt_text(body: str, text: str, *, is_agent: bool) -> str:
    """Return the text that a message from another client adds to the end of ``body``.

    An agent's document begins with its prompt alone.
    """
    if not body:
        return text if is_agent else PROMPT_PREFIX + text
    if body.endswith(PROMPT_PREFIX):
        return text
    return RUN_CLOSE + text  # below whatever the user left there


def separator(last: Block, next: Block) -> str:
    """Return the separator of two adjacent blocks of a run."""
    return _BETWEEN.get((last, next), "\n\n")


def error_block(message: str) -> str:
    """Return the note on a failed run, with role ``ignore``."""
    return writable(f"``` error\n{message}{FENCE_CLOSE}")


def reasoning_block(text: str) -> str:
    """Return the text of a reasoning part in the document, with role ``ignore``."""
    return f"{REASONING_OPEN}{writable(text)}{FENCE_CLOSE}"


def tool_head(data: Mapping[str, Any]) -> str:
    """Return the first line of a tool block, an abbreviation of the call on which the block folds."""
    arguments = print_json(data["input"])[1:-1] if data["input"] else ""
    call = f"({_tool_name(data)} {arguments})" if arguments else f"({_tool_name(data)})"
    if len(call) > _CALL_WIDTH:
        call = call[: _CALL_WIDTH - len(_CALL_CUT)] + _CALL_CUT
    return writable(TOOL_OPEN + call.replace("\n", " "))


def tool_body(data: Mapping[str, Any]) -> str:
    """Return the text of a tool block with the exact call and its result."""
    result = data.get("output", "") if data["state"] == "output-available" else data.get("errorText", "")
    return writable(f"\n{print_call(_tool_name(data), data['input'])}\n\n{result}")


def writable(text: str) -> str:
    """Return ``text`` with lone surrogates, which a file cannot hold, replaced one for one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def _tool_name(data: Mapping[str, Any]) -> str:
    return str(data["type"]).removeprefix("tool-")
