"""A run: ask the model, call the tools it asks for, repeat until it is done.

Each step is a method that returns the next step. A run ends with exactly one outcome on every path: success, empty
answer, provider error, abort, exception.
The model's view is in memory while the run lasts; it is rebuilt from document and log for the next.

Step boundary: before every request to the model, the first one included, steering messages are added to the view,
and then the view is fitted to the model's window. In both cases the last message of the view is the user's, unless
the provider only paused the turn (``pause_turn``).
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import sys
from asyncio import get_running_loop
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol, assert_never

from pyagentd import reader
from pyagentd.errors import BudgetSpent, ContextOverflow, PyagentdError, StoreError
from pyagentd.llm.backend import (
    MAX_ARGUMENTS,
    Backend,
    ModelRequest,
    PartDelta,
    PartFinished,
    PartStarted,
    RetryNotice,
    SentAgain,
    StepFinished,
    ToolSchema,
    encode,
)
from pyagentd.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult, Usage
from pyagentd.policy.action import Action, Target, canonical_tool
from pyagentd.runtime.approvals import AskedCall, Authority, CallPosition
from pyagentd.runtime.opening import RESTARTED, ResumedRun, decided_before
from pyagentd.runtime.recorder import Recorder
from pyagentd.runtime.status import BY_PARENT, RESTART, Outcome, told_of
from pyagentd.runtime.usage import tokens_of
from pyagentd.store import conversation
from pyagentd.store.conversation import Conversation, estimated_tokens
from pyagentd.store.journal import message_row, part_row
from pyagentd.store.registry import RunProgress
from pyagentd.store.trace import OrgLog
from pyagentd.tools import invoke as spool
from pyagentd.tools.invoke import EditedCall, Envelope, invoke
from pyagentd.tools.spec import Args, CallHooks, Output, ToolContext, ToolSpec, schema_of, summary

log = logging.getLogger(__name__)


# The model's answer becomes rows: one assistant message, its parts in the order they began, ``data_json`` as the AI
# SDK writes it. When the user steers the run, the user's message is recorded and a new assistant message begins.

_AWAITED = frozenset({"tool-PersistentAgent", "tool-task", "tool-mission"})  # calls that wait for an agent


@dataclass(slots=True)
class _GrowingPart:
    """A text or reasoning part that is being streamed."""

    row: dict[str, Any]
    texts: list[str] = field(default_factory=list)

    def done(self) -> dict[str, Any]:
        data = self.row["data_json"] | {"text": "".join(self.texts), "state": "done"}
        return {**self.row, "data_json": data}


@dataclass(slots=True, kw_only=True, eq=False)
class AnswerRecorder:
    """Records the assistant message of a run, step by step."""

    recorder: Recorder  # of the branch
    session_id: str  # of the message
    # The model of the next message, ``{"provider_id", "model_id"}``; a message that has begun keeps its own.
    model: Mapping[str, Any]
    # Called with every call that has its result: the part as recorded, and the time (epoch ms).
    called: Callable[[Mapping[str, Any], int], None]
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of its messages, beside the model
    root: str = ""  # the workspace root, for summaries of calls
    usage: Usage = field(init=False, default_factory=Usage)  # of the run
    last_usage: Usage | None = field(init=False, default=None)  # of its last request
    _message: dict[str, Any] | None = field(init=False, default=None)
    _parts_recorded: int = field(init=False, default=0)
    _step_begun: bool = field(init=False, default=False)
    _step: dict[str, Any] | None = field(init=False, default=None)  # the row of the current step's first part
    _streaming: dict[int, _GrowingPart] = field(init=False, default_factory=dict)  # by the provider's block index
    _calls: dict[str, dict[str, Any]] = field(init=False, default_factory=dict)  # those without a result, by call id
    _parts: list[Part] = field(init=False, default_factory=list)  # of the current step, finished ones only
    _texts: list[str] = field(init=False, default_factory=list)
    _last_from: int = field(init=False, default=0)  # index of the first text after the last call
    _message_usage: Usage = field(init=False, default_factory=Usage)

    def resume(self, standing: RunProgress) -> None:
        """Continue a message that an earlier daemon began: its last step is the current one."""
        message = standing.message
        self._message = {**message.row, "metadata_json": dict(message.row["metadata_json"])}
        self._parts_recorded = 1 + max(part.row["index"] for part in message.parts)
        self._step_begun = True
        self._parts = list(standing.step)
        for part in (part for each in (*standing.earlier, message) for part in each.parts):
            if part.type == "text" and part.text:
                self._texts += ["\n\n", part.text] if self._texts else [part.text]
            elif part.is_tool:
                self._last_from = len(self._texts)
                if part.result is None:
                    self._calls[str(part.data["toolCallId"])] = dict(part.row)
        self._message_usage = _usage_of(message)
        self.usage = sum(map(_usage_of, standing.earlier), self._message_usage)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the current step, in the order the model made them."""
        return tuple(part for part in self._parts if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        """All text of the run so far: the agent's result for its parent."""
        return "".join(self._texts)

    @property
    def last_text(self) -> str:
        """The text after the last tool call: the result where the preset says ``result: last``."""
        return "".join(self._texts[self._last_from :]).lstrip("\n")

    def begin_step(self) -> None:
        """Start a new model request of the same message."""
        self._step_begun = False
        self._step = None
        self._parts = []

    def begin_message(self) -> None:
        """Start a new message for what follows, because the user steered the run."""
        self._message = None
        self._parts_recorded = 0
        self._message_usage = Usage()

    def step_message(self) -> Message:
        """Return the assistant message of this step, for the next request."""
        return Message(role="assistant", parts=tuple(self._parts))

    def take(self, item: PartStarted | PartDelta | PartFinished) -> None:
        """Record one item of the stream."""
        match item:
            case PartStarted():
                # A call is recorded when its arguments are complete: half a call is useless.
                if item.kind != "tool":
                    self._start(item.index, item.kind)
            case PartDelta():
                if (part := self._streaming.get(item.index)) is not None:
                    part.texts.append(item.text)
                    if part.row["type"] == "text":
                        self._texts.append(item.text)
                    self.recorder.delta(part.row["id"], item.text)
            case PartFinished():
                self._finish(item.index, item.part)
            case _:
                assert_never(item)

    def began(self, call: ToolCall) -> None:
        """Record that a call with side effects begins, so that a later daemon does not repeat it."""
        self.recorder.record("call", {"id": call.id})

    def result(self, call: ToolCall, envelope: Envelope) -> ToolResult:
        """Record the outcome of a call and return the result for the model."""
        row = self._calls.pop(call.id)
        metadata: dict[str, Any] = {"duration_ms": envelope.duration_ms}
        if envelope.truncated:
            metadata |= {"truncated": True, "output_path": str(envelope.output_path)}
        summary_line = summary(
            call.name,
            call.input,
            brief=envelope.brief,
            error="" if envelope.ok else envelope.text,
            denied=envelope.denied,
            root=self.root,
        )
        metadata["summary"] = summary_line
        if envelope.denied:
            metadata["denied"] = envelope.denied
        if envelope.snapshot:
            metadata["snapshot"] = dict(envelope.snapshot)
        if envelope.ok:
            outcome = {"state": "output-available", "output": envelope.text}
        else:
            outcome = {"state": "output-error", "errorText": envelope.text}
        self._put_call(row, outcome | {"metadata": metadata})
        return ToolResult(id=call.id, text=envelope.text, is_error=not envelope.ok)

    def close(self, reason: str, *, awaited: str = "") -> None:
        """End every open part: text is kept as far as it came, calls get ``reason`` as their error.

        Calls whose agents the run waited for get ``awaited`` instead, if it is not empty.
        """
        for part in self._streaming.values():
            self._put(part.done())
        self._streaming.clear()
        for call, row in self._calls.items():
            waited = row["type"] in _AWAITED and call in self.recorder.conversation.begun
            why = awaited if waited and awaited else reason
            line = summary(row["type"].removeprefix("tool-"), row["data_json"]["input"], error=why, root=self.root)
            self._put_call(row, {"state": "output-error", "errorText": why, "metadata": {"summary": line}})
        self._calls.clear()

    def finish_step(self, stop_reason: str, usage: Usage, *, estimated: bool = False) -> None:
        """Record the usage of the step, reported or estimated, and why the provider stopped."""
        self.usage += usage
        self.last_usage = usage
        self._message_usage += usage
        message = self._ensure_message()
        ended: dict[str, Any] = {
            "usage": self._message_usage.to_dict(),
            "last_usage": usage.to_dict(),
            "stop_reason": stop_reason,
        }
        if estimated or "usage_estimated" in message["metadata_json"]:
            ended["usage_estimated"] = estimated
        message["metadata_json"] = {**message["metadata_json"], **ended}
        message["updated_at"] = self.recorder.now_ms()
        self.recorder.record("message", message)
        if self._step is not None:
            self._put({**self._step, "data_json": {**self._step["data_json"], "usage": usage.to_dict()}})

    def _start(self, index: int, kind: str) -> _GrowingPart:
        if kind == "text" and self._texts:
            self._texts.append("\n\n")  # each text is a paragraph of the result
        row = self._new_part({"type": kind, "text": "", "state": "streaming"})
        self._streaming[index] = part = _GrowingPart(row)
        self._put(row)
        return part

    def _finish(self, index: int, part: Part) -> None:
        self._parts.append(part)
        match part:
            case ToolCall():
                data = {"type": sys.intern(f"tool-{part.name}"), "toolCallId": part.id, "state": "input-available"}
                if part.unreadable:
                    data["rawInput"] = part.unreadable
                self._calls[part.id] = self._new_part(data | {"input": part.input})
                self._last_from = len(self._texts)
                self._put(self._calls[part.id])
            case Text() | Reasoning():
                kind = "text" if isinstance(part, Text) else "reasoning"
                streaming = self._streaming.get(index) or self._start(index, kind)
                del self._streaming[index]
                done = streaming.done()
                data = done["data_json"] | {"text": part.text}
                if isinstance(part, Reasoning):
                    kept = {"signature": part.signature, "redactedData": part.redacted}
                    known = {key: value for key, value in kept.items() if value is not None}
                    data["providerMetadata"] = {part.provider: known}
                elif part.phase is not None:
                    data["providerMetadata"] = {"openai": {"phase": part.phase}}
                self._put({**done, "data_json": data})
            case _:
                raise TypeError(f"a model does not answer with {type(part).__name__}")

    def _new_part(self, data: Mapping[str, Any]) -> dict[str, Any]:
        message = self._ensure_message()
        if not self._step_begun:
            self._step_begun = True
            self._step = self._new_part({"type": "step-start"})
            self._put(self._step)
        row = part_row(
            message_id=message["id"],
            session_id=self.session_id,
            index=self._parts_recorded,
            data=data,
            now_ms=self.recorder.now_ms(),
        )
        self._parts_recorded += 1
        return row

    def _put(self, row: Mapping[str, Any]) -> None:
        self.recorder.record("part", {**row, "updated_at": self.recorder.now_ms()})

    def _put_call(self, row: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        data = {**row["data_json"], **outcome}
        self._put({**row, "data_json": data, "tool_state": data["state"]})
        self.called(data, self.recorder.now_ms())

    def _ensure_message(self) -> dict[str, Any]:
        if self._message is None:
            self._message = message_row(
                role="assistant",
                session_id=self.session_id,
                metadata={"model": self.model, **self.metadata},
                now_ms=self.recorder.now_ms(),
            )
            self.recorder.record("message", self._message)
        return self._message


def _usage_of(message: conversation.Message) -> Usage:
    return Usage(**message.row["metadata_json"].get("usage", {}))


class FitToWindow(Protocol):
    """Fits a view to the model's window.

    It may record a compaction, and may raise a ``PyagentdError``, which ends the run.
    """

    def __call__(
        self, view: Sequence[Message], last: Usage | None, *, overflow: bool = False
    ) -> Awaitable[tuple[Message, ...] | None]:
        """Return a shorter view, or None to keep this one.

        Args:
            view: The messages to be sent.
            last: Usage of the run's last request, None before its first one.
            overflow: Whether the model's server just refused the view as too long.
        """
        ...


Steering = Callable[[], Awaitable[Sequence[str]]]
"""Records the user's steering messages and returns their texts; called at step boundaries."""


class RunPhase(StrEnum):
    """The phase of a run; the names are those of gptel's states."""

    INIT = "INIT"  # created, nothing sent
    WAIT = "WAIT"  # a request is on its way to the model
    TYPE = "TYPE"  # the model is answering
    TOOL = "TOOL"  # the tools it asked for are running
    TRET = "TRET"  # the step is recorded and another one follows
    COMPACT = "COMPACT"  # the conversation is being summarised, without an answer
    DONE = "DONE"  # the model finished its answer
    ERRS = "ERRS"  # the provider, the disk or the daemon failed
    ABRT = "ABRT"  # it was aborted


# Limits of a run from its preset: turns, tool calls, tokens and time.
#
# Limits are checked between two requests to the model, so an answer is never cut and its calls have their results;
# only the time limit also interrupts. Time spent waiting for a human does not count. A run that exceeds a limit ends
# with the error ``budget`` and keeps its text so far.


MAX_CALLS = 5000  # tool calls of one run whose preset sets no limit; an ordinary run needs far fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a run; None means no limit."""

    turns: int | None = None  # requests to the model
    calls: int = MAX_CALLS  # of tools
    tokens: int | None = None  # all buckets of all requests of the run together
    time_s: float | None = None

    def check(self, turns: int, usage: Usage) -> None:
        """Check that one more request is within the limits.

        Raises:
            BudgetSpent: ``turns`` requests or their ``usage`` reached a limit.
        """
        if self.turns is not None and turns >= self.turns:
            raise BudgetSpent(f"Agent stopped: turn limit ({self.turns}) reached")
        if self.tokens is not None and usage.total >= self.tokens:
            raise BudgetSpent(f"Agent stopped: token limit ({self.tokens:,}) reached")

    def check_calls(self, calls: int) -> None:
        """Check that a run may make ``calls`` tool calls in total, the next ones included.

        Raises:
            BudgetSpent: That exceeds the limit.
        """
        if calls > self.calls:
            raise BudgetSpent(f"Agent stopped: limit of tool calls ({self.calls:,}) reached")


@dataclass(slots=True, eq=False)
class RunTimer:
    """Ends a run when its time is up."""

    time_s: float | None  # the limit in seconds; None means no limit
    expire: Callable[[BudgetSpent], None]  # called once with the error when the time is up
    timer: asyncio.TimerHandle | None = field(init=False, default=None)  # None while the clock is paused
    _spent_s: float = field(init=False, default=0.0)
    _pauses: int = field(init=False, default=0)
    _since: float = field(init=False, default=0.0)
    _counting: bool = field(init=False, default=False)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count the time the block takes."""
        if self.time_s is None:
            yield
            return
        self._counting = True
        self._go_on()
        try:
            yield
        finally:
            self._counting = False
            self._halt()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing while the block waits for a human; blocks may overlap."""
        self._pauses += 1
        if self._pauses == 1:
            self._halt()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and self._counting:
                self._go_on()

    def _go_on(self) -> None:
        loop = get_running_loop()
        self._since = loop.time()
        self.timer = loop.call_later(max(0.0, (self.time_s or 0.0) - self._spent_s), self._on_expired)

    def _halt(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self._spent_s += get_running_loop().time() - self._since

    def _on_expired(self) -> None:
        self.timer = None
        self.expire(BudgetSpent(f"Agent stopped: time limit ({self.time_s:g} s) reached"))


# The tool calls of one answer: which of them run concurrently, and how each gets its result.

_SHOWN = 500  # characters of unreadable arguments that are shown


Around = Callable[[ToolCall, Awaitable[Envelope]], Awaitable[Envelope]]
"""Wraps one call, which is made when the second argument is awaited; returns its outcome."""


@dataclass(slots=True, kw_only=True, eq=False)
class ToolCaller:
    """Makes the calls of one run."""

    tools: Mapping[str, ToolSpec]  # by name
    context: ToolContext  # passed to each tool
    authority: Authority  # decides whether a call is allowed
    answer: AnswerRecorder  # records the outcome of each call, and the start of those with side effects
    around: Around | None  # wraps each call

    async def complete(
        self,
        calls: tuple[ToolCall, ...],
        results: Mapping[str, ToolResult],
        stand_ins: Mapping[str, ToolSpec],
    ) -> tuple[ToolResult, ...]:
        """Make the calls that have no result yet, and return the results of all calls, in order.

        Args:
            calls: The calls of the model.
            results: Results that exist already, by call id.
            stand_ins: Tools that replace those the model named, by call id; they need no authorisation.

        Raises:
            StoreError: A result could not be recorded.
        """
        known = dict(results)
        for group in self._groups(calls):
            waiting = [call for call in group if call.id not in known]
            if len(waiting) == 1:
                known[waiting[0].id] = await self._make(waiting[0], stand_ins.get(waiting[0].id), CallPosition())
                continue
            position: CallPosition | None = None
            try:
                async with asyncio.TaskGroup() as tasks:
                    made = []
                    for call in waiting:
                        position = CallPosition(position)
                        made.append(tasks.create_task(self._make(call, stand_ins.get(call.id), position)))
            except ExceptionGroup as failures:  # tools never raise; recording their results may
                raise failures.exceptions[0] from None
            known.update((result.id, result) for result in (task.result() for task in made))
        return tuple(known[call.id] for call in calls)

    def _groups(self, calls: tuple[ToolCall, ...]) -> list[list[ToolCall]]:
        """Group the calls: adjacent parallel-safe calls run together, every other call runs alone."""
        groups: list[list[ToolCall]] = []
        joinable = False
        for call in calls:
            spec = self.tools.get(call.name)
            parallel = spec is None or spec.parallel_safe
            if parallel and joinable:
                groups[-1].append(call)
            else:
                groups.append([call])
            joinable = parallel
        return groups

    async def _make(self, call: ToolCall, stand_in: ToolSpec | None, position: CallPosition) -> ToolResult:
        try:
            outcome = self._invoke(call, stand_in, position)
            made = await (outcome if self.around is None else self.around(call, outcome))
        finally:
            position.leave()
        return self.answer.result(call, made)

    async def _invoke(self, call: ToolCall, stand_in: ToolSpec | None, position: CallPosition) -> Envelope:
        if stand_in is not None:
            return await invoke(stand_in, {}, self.context, decided_before)
        spec = self.tools.get(call.name)
        if spec is None:
            known = ", ".join(sorted(self.tools)) or "none"
            self.authority.note_refused(None, call, "There is no such tool here")
            return Envelope(ok=False, text=f"There is no tool {call.name!r}. Available: {known}.", duration_ms=0)
        if call.unreadable:
            return Envelope(ok=False, text=_unreadable(call), duration_ms=0)
        hooks = None if self.context.hooks is None else _CallHooks(self.context.hooks, call)
        context = replace(self.context, call_id=call.id, hooks=hooks)
        decided = False

        async def authorise(action: Action) -> EditedCall | None:
            nonlocal decided
            decided = True
            asked = call if hooks is None else hooks.call
            wanted = spec
            if spec.confirming is not None:
                wanted = replace(spec, confirm=await spec.confirming(dict(asked.input), context))
            try:
                return await self.authority.authorise(AskedCall(asked, wanted, action, context), position)
            finally:
                position.leave()

        def began() -> None:
            if spec.kind != "read" and not spec.repeatable:
                self.answer.began(call)

        made = await invoke(spec, dict(call.input), context, authorise, began)
        if not (made.ok or decided or (hooks is not None and hooks.asked)):
            self.authority.note_refused(spec, call, made.text)
        return made


@dataclass(slots=True)
class _CallHooks:
    """Runs the hooks of one call, and keeps the call as they changed it, for the question to a human."""

    hooks: CallHooks
    call: ToolCall
    asked: bool = False  # whether the hooks ran; a refusal after that is noted elsewhere

    async def before(
        self, tool: str, args: Mapping[str, Any], action_of: Callable[[Mapping[str, Any]], Action], call_id: str
    ) -> Mapping[str, Any] | None:
        self.asked = True
        changed = await self.hooks.before(tool, args, action_of, call_id)
        if changed is not None:
            self.call = replace(self.call, input=dict(changed))
        return changed

    async def after(
        self, tool: str, args: Mapping[str, Any], text: str, ok: bool, duration_ms: int, call_id: str
    ) -> str:
        return await self.hooks.after(tool, args, text, ok, duration_ms, call_id)


def describe_call(call: ToolCall) -> str:
    """Return a call as one short line for people: ``Read presets/plan.md``."""
    values = [str(value) for value in call.input.values() if isinstance(value, str | int | float)]
    line = " ".join([call.name, *values[:2]]).replace("\n", " ")
    return line if len(line) <= 80 else line[:79] + "…"


def with_bounded_arguments(call: ToolCall, spool_dir: Path) -> ToolCall:
    """Return a call; arguments that are too long are cut to their beginning and saved to a file in full."""
    if len(call.unreadable) <= MAX_ARGUMENTS:
        return call
    try:
        kept = str(spool.save(spool_dir, call.name if call.name.isidentifier() else "call", call.unreadable))
    except OSError as error:
        kept = f"not kept: {error.strerror}"
    size = len(call.unreadable)
    return replace(call, unreadable=f"{call.unreadable[:_SHOWN]}… ({size} characters)", spooled=kept)


def _unreadable(call: ToolCall) -> str:
    """Return the error text for a call whose arguments cannot be read."""
    if call.spooled:
        return (
            f"{call.name} was not run: its arguments have more than {MAX_ARGUMENTS} characters. "
            f"What came is in a file ({call.spooled}). They began: {call.unreadable}\n"
            "Call it again with less, in several calls if need be."
        )
    try:
        reader.parse(call.unreadable)
        why = "it is another value"
    except ValueError as error:
        why = str(error)
    shown = call.unreadable if len(call.unreadable) <= _SHOWN else f"{call.unreadable[:_SHOWN]}…"
    return (
        f"{call.name} was not run: its arguments are not a JSON object ({why}). They were: {shown}\n"
        "Call it again with one complete JSON object that fits the tool's schema."
    )


# Which of a run's tools are offered to the model: all, or the core tools and those it searched for.
#
# When the descriptions of the other tools take more than ``MOST_TOKENS``, the model is offered the core tools and
# ``tool_search``; tools that a search finds are offered from the next request on. The tools come first in a request,
# so a change to them invalidates a provider's cache of the conversation. Therefore the list only grows at its end, in
# the order in which tools were found, and a session's next run begins with all that were found according to its log.

NAME = "tool_search"
MOST_TOKENS = 10_000  # of all tools but the core ones, without a search
_SHARE = 10  # they may take a tenth of a small window
MOST_FOUND = 10

CORE = (
    "Read", "Write", "Edit", "Glob", "Grep", "Bash", "PersistentAgent", "task", "mission", "question", "TodoWrite",
    "WebSearch", "WebFetch", "skill", "request_scope_expansion", "TaskOutput", "KillTask",
    "self_edit_system_prompt", "self_edit_docs", "self_edit_permissions", "self_edit_model",
)  # fmt: skip
"""The tools that are offered however many there are."""

_OFFER_SHOWN = 200  # characters of a description
_WORD = re.compile(r"[a-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_DESCRIPTION = """\
Find tools that are available and not yet offered to you, by what they do or by name{servers}. Returns up to 10; \
from your next step on you can call them like any other."""

_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "minLength": 1, "description": "A few words, such as: create issue"}},
    "required": ["query"],
    "additionalProperties": False,
}


class ToolOffer:
    """The tools that one run offers to the model.

    Args:
        tools: All tools of the run, by name.
        found: Returns names of tools that were found before, in order; unknown names are ignored.
        window: Size of the model's window in tokens; None if unknown.

    Attributes:
        tools: All tools, and the search tool if there is one.
    """

    def __init__(
        self, tools: Mapping[str, ToolSpec], found: Callable[[], Iterable[str]] = tuple, *, window: int | None = None
    ) -> None:
        self._before = found
        self._most = MOST_TOKENS if window is None else min(MOST_TOKENS, window // _SHARE)
        self.tools: dict[str, ToolSpec] = {}
        self.add(tools)

    def add(self, tools: Mapping[str, ToolSpec], *, servers: Sequence[str] = ()) -> None:
        """Add tools that ``servers`` announced; only before the first request."""
        self._schemas: tuple[ToolSchema, ...] = ()
        usual = {**self.tools, **tools}
        usual.pop(NAME, None)
        self._searched: dict[str, ToolSpec] = {}
        tokens = 0
        for name, spec in usual.items():
            if name not in CORE:
                self._searched[name] = spec
                tokens += estimated_tokens(str(schema_of(spec)))
        self._all = tokens <= self._most
        before = () if self._all else self._before()
        self._found = dict.fromkeys(filter(self._searched.__contains__, before))
        self.tools.clear()  # ``ToolCaller`` shares this mapping
        self.tools.update(usual if self._all else {**usual, NAME: self._search(servers)})

    def schemas(self) -> tuple[ToolSchema, ...]:
        """Return the schemas of the offered tools for the next request; the list only grows at its end.

        Equal lists are the same object, across runs.
        """
        names = [name for name in self.tools if self._all or name not in self._searched]
        names += () if self._all else self._found
        if len(self._schemas) != len(names):
            specs = map(self.tools.__getitem__, names)
            described = [(spec.name, spec.description, dict(spec.input_schema)) for spec in specs]
            self._schemas = _schemas(encode(described))
        return self._schemas

    def _search(self, servers: Sequence[str]) -> ToolSpec:
        async def run(args: Args, ctx: ToolContext) -> Output:
            matches = best_matching_tools(args["query"], self._searched)
            self._found |= dict.fromkeys(matches)
            found = [{"id": name, "description": self._searched[name].description[:_OFFER_SHOWN]} for name in matches]
            return Output(text=json.dumps({"matches": found}, ensure_ascii=False))

        return ToolSpec(
            name=NAME,
            description=_DESCRIPTION.format(servers=f", of the servers {', '.join(servers)}" if servers else ""),
            input_schema=_SCHEMA,
            kind="meta",
            repeatable=True,
            run=run,
            describe=lambda args, ctx: Target(detail=args["query"]),
            parallel_safe=True,
        )


@lru_cache(maxsize=64)
def _schemas(data: bytes) -> tuple[ToolSchema, ...]:
    described = json.loads(data)
    return tuple(ToolSchema(name=name, description=text, input_schema=schema) for name, text, schema in described)


def best_matching_tools(query: str, tools: Mapping[str, ToolSpec]) -> list[str]:
    """Return the names of the tools that match ``query`` best, best first; none without a common word.

    A word counts more the fewer tools have it, and more in a name than in a description.
    """
    wanted = _words(query)
    texts = {name: (_words(name), _words(spec.description)) for name, spec in tools.items()}
    common = Counter(word for name, about in texts.values() for word in name | about)
    scores = {
        name: sum((3.0 * (word in in_name) + (word in about)) / common[word] for word in wanted if common[word])
        for name, (in_name, about) in texts.items()
    }
    ranked = sorted((name for name, score in scores.items() if score > 0), key=lambda name: (-scores[name], name))
    return ranked[:MOST_FOUND]


def found_before(conversation: Conversation) -> Sequence[str]:
    """Return the names of all tools that searches in a conversation found, in the order found."""
    names: dict[str, None] = {}
    for type, parts in conversation.by_type.items():
        if canonical_tool(type.removeprefix("tool-")) != NAME:
            continue
        for part in parts:
            if part.data.get("state") == "output-available":
                with contextlib.suppress(ValueError, KeyError, TypeError):  # ignore output of another format
                    matches = json.loads(str(part.data.get("output", "")))["matches"]
                    names |= dict.fromkeys([str(match["id"]) for match in matches])
    return list(names)


def _words(text: str) -> set[str]:
    """Return the words of a text for matching: lower case, singular, none under 3 letters, CamelCase also split."""
    words = {*_WORD.findall(text.lower()), *_WORD.findall(_HUMP.sub(" ", text).lower())}
    return {word.removesuffix("s") for word in words if len(word) > 2}


# The settings of a run, from preset, configuration and client; made by ``run_setup``.

Fresh = Callable[["RunSettings"], Awaitable["RunSettings"]]
"""Returns the current settings of a named agent; the same object when nothing changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of a run; fixed while it lasts, except when ``fresh`` replaces them."""

    backend: Backend
    model: str
    provider: str = ""  # the backend's name
    system: str
    tools: Mapping[str, ToolSpec]
    offer: ToolOffer | None = None  # which of them are offered to the model; None: made from ``tools``
    context: ToolContext
    authority: Authority
    max_tokens: int
    temperature: float | None = None
    thinking_budget: int | None = None
    limits: Limits = field(default_factory=Limits)
    tool_results: bool = True  # whether the document shows calls and their results
    result: Literal["all", "last"] = "all"  # which text of a finished run is its result, see ``agents.answer_text``
    fit: FitToWindow | None = None  # called at every step boundary
    make: "Callable[..., Run] | None" = None  # constructor of a special run; same arguments as ``Run``
    agent: str = ""  # the agent that answers, if it is not the one that the session was opened with
    ready: Callable[[], Awaitable[None]] | None = None  # waits until tool servers are ready for the first request
    fresh: Fresh | None = None  # called before every request; None: the settings never change
    around: Around | None = None  # wraps every tool call
    kept: dict[object, Any] = field(default_factory=dict)  # the backend's cache of the last request
    log: OrgLog | None = None  # of the branch, if it is kept from one run to the next


Step = Callable[[], Awaitable["Step | None"]]


class Run:
    """One run; ``execute`` it once.

    Args:
        run_id: Its id.
        session_id: The session of its messages.
        recorder: The recorder of the branch.
        view: The messages that the model sees, the prompt last.
        settings: Its settings.
        prepare: Awaited before its first request; writes the document.
        observe: Called at every change of its status.
        steering: Returns steering messages of the user, see ``Steering``.
        resumed: The recorded state of a run that an earlier daemon began; ``view`` then ends with its answer so far.

    Attributes:
        suspended: Whether it was stopped without an end, for the next daemon to resume.
        authority: Decides which tool calls are allowed.
        retry_now: Ends the wait before a request is retried, if any.
    """

    def __init__(
        self,
        *,
        run_id: str,
        session_id: str,
        recorder: Recorder,
        view: tuple[Message, ...],
        settings: RunSettings,
        prepare: Callable[[], Awaitable[None]],
        observe: "Callable[[Run, Mapping[str, Any]], None]",
        steering: Steering | None = None,
        resumed: ResumedRun | None = None,
    ) -> None:
        self.id = run_id
        self.state = RunPhase.INIT
        self._view = list(view)  # the messages of the next request
        self._steering = steering
        self._recorder = recorder
        self._settings = settings
        self._prepare = prepare
        self._observe = observe
        self._log = settings.log or OrgLog(settings.context.branch_dir)
        digest = hashlib.sha256(settings.system.encode("utf-8", "replace")).hexdigest()
        self._answer = AnswerRecorder(
            recorder=recorder,
            session_id=session_id,
            model={"provider_id": settings.provider or None, "model_id": settings.model},
            called=self._log.tool,
            metadata={**({"agent": settings.agent} if settings.agent else {}), "system_prompt_digest": digest},
            root=str(settings.context.root),
        )
        self._offer = settings.offer or ToolOffer(settings.tools)
        self._calling = ToolCaller(
            tools=self._offer.tools,
            context=settings.context,
            authority=settings.authority,
            answer=self._answer,
            around=settings.around,
        )
        self.stopwatch = RunTimer(settings.limits.time_s, self.fail)
        self._note = ""
        self._turns = 0
        self._calls = 0
        self._resumed = resumed
        if resumed is not None:
            self._answer.resume(resumed.standing)
            self._turns = 1 + sum(message.role == "assistant" for message in resumed.standing.done)
            done = (part for message in resumed.standing.done for part in message.parts)
            self._calls = len(self._answer.calls) + sum(isinstance(part, ToolCall) for part in done)
        self.authority = settings.authority
        self.retry_now: Callable[[], None] = lambda: None
        self.suspended = False
        self._aborted = False
        self._why = ""
        self._cut_off = False
        self._failure: PyagentdError | None = None
        self._task: asyncio.Task[None] | None = None
        # The log is synced in the background while the next request is made and sent; ``_send`` waits for that before
        # it records any of the answer. A run that ends before an answer reports a failure when it records its end.
        self._securing: asyncio.Future[None] | None = None

    async def execute(self) -> Outcome:
        """Run to the end and return the outcome; ended early by ``abort``.

        Raises:
            asyncio.CancelledError: It was suspended.
        """
        try:
            # A separate task, so that ``abort`` cancels the steps and never the recording of the end.
            self._task = asyncio.create_task(self._steps())
            with self.stopwatch.running():
                await self._task
            text = self._answer.last_text if self._settings.result == "last" else self._answer.text
            return self._end(RunPhase.DONE, Outcome(reason="done", text=text, message=self._note))
        except asyncio.CancelledError:
            if self.suspended:
                raise
            if self._failure is not None:
                return self._end_in_error(self._failure)
            code, why = (RESTART, RESTARTED) if self._cut_off else ("", self._why)
            return self._end(RunPhase.ABRT, Outcome(reason="aborted", text=self._answer.text, code=code, message=why))
        except PyagentdError as error:
            return self._end_in_error(error)
        except Exception as error:  # every run must end with an outcome
            log.exception("run %s failed", self.id)
            return self._end_in_error(error)

    def abort(self, why: str = "") -> None:
        """Stop the run in any phase, even before it began; it ends as ``aborted``, with the message ``why``."""
        if not self._aborted:
            self._why = why
            if self._task is not None:  # once: a second cancellation would interrupt the clean-up
                self._task.cancel()
        self._aborted = True

    def suspend(self) -> None:
        """Stop the run and leave it unfinished in the log, for the next daemon to resume."""
        if not self._aborted:
            self.suspended = True
            self.abort()

    def cut_off(self) -> None:
        """Abort the run because the daemon stops; the outcome gives that reason."""
        if not self._aborted:
            self._cut_off = True
            self.abort()

    def fail(self, error: PyagentdError) -> None:
        """Stop the run in any phase; it ends with ``error``, unless it was aborted before."""
        if not self._aborted:
            self._failure = error
            self.abort()

    async def _steps(self) -> None:
        step: Step | None = self._begin if self._resumed is None else self._go_on
        while step is not None:
            if self._aborted:
                raise asyncio.CancelledError
            step = await step()

    async def _begin(self) -> Step:
        self._securing = self._recorder.commit()
        await self._prepare()
        if self._settings.ready is not None:
            await self._settings.ready()
        self._log.system_prompt(self._settings.system, self._recorder.now_ms())
        return self._call_model

    async def _renew(self, fresh: Fresh) -> None:
        """Apply the current configuration of a named agent to the next request."""
        before = self._settings
        if (now := await fresh(before)) is before:
            return
        self._settings = now
        if (now.provider, now.model) != (before.provider, before.model):
            self._answer.model = {"provider_id": now.provider or None, "model_id": now.model}
        if now.system != before.system:
            self._log.system_prompt(now.system, self._recorder.now_ms())

    async def _call_model(self) -> Step | None:
        if self._settings.fresh is not None:
            await self._renew(self._settings.fresh)
        self._settings.limits.check(self._turns, self._answer.usage)
        # Steering texts are added to the last message of the view, if that is the user's.
        last = self._view[-1]
        if self._steering is not None and last.role == "user" and (texts := await self._steering()):
            self._view[-1] = replace(last, parts=(*last.parts, *(Text(text=text) for text in texts)))
            self._answer.begin_message()
        await self._fit()
        self._turns += 1
        self._move(RunPhase.WAIT)
        self._answer.begin_step()
        while True:  # shorten and resend while the server refuses the request as too long
            try:
                stop = await self._send()
                break
            except ContextOverflow:
                if self.state is not RunPhase.WAIT or not await self._fit(overflow=True):
                    raise
            self._tell("busy")
        return self._after_answer(stop.stop_reason)

    async def _fit(self, *, overflow: bool = False) -> bool:
        """Fit the view to the model's window, see ``FitToWindow``; return whether it changed."""
        if (fit := self._settings.fit) is None:
            return False
        made = await fit(self._view, self._answer.last_usage, overflow=overflow)
        if made is not None:
            self._view = list(made)
        return made is not None

    async def _send(self) -> StepFinished:
        stop: StepFinished | None = None
        request = self._request()
        async with aclosing(self._settings.backend.stream(request)) as batches:
            async for batch in batches:
                if self._securing is not None:
                    securing, self._securing = self._securing, None
                    await securing
                with self._recorder.together():
                    for item in batch:
                        if isinstance(item, StepFinished):
                            stop = self._with_usage(item, request)
                            self._finish_step(stop)
                        else:
                            self._handle_item(item)
        assert stop is not None, "a backend's stream ends with StepFinished or raises"
        return stop

    def _with_usage(self, stop: StepFinished, request: ModelRequest) -> StepFinished:
        """Return the end of a step with its usage, estimated if the server reports no input tokens."""
        if stop.usage.input or stop.usage.cache_read or stop.usage.cache_write:
            return stop
        read = estimated_tokens(request.system) + sum(estimated_tokens(str(tool)) for tool in request.tools)
        output = stop.usage.output or tokens_of([self._answer.step_message()])
        usage = replace(stop.usage, input=max(1, read + tokens_of(request.messages)), output=output)
        return replace(stop, usage=usage, estimated=True)

    def _finish_step(self, stop: StepFinished) -> None:
        if self.state is RunPhase.WAIT:
            self._move(RunPhase.TYPE)  # an empty answer is an answer
        self._answer.finish_step(stop.stop_reason, stop.usage, estimated=stop.estimated)

    def _handle_item(self, item: RetryNotice | SentAgain | PartStarted | PartDelta | PartFinished) -> None:
        if isinstance(item, RetryNotice):
            self.retry_now = item.now
            facts = {"attempt": item.attempt, "max_attempts": item.max_attempts, "delay_s": item.delay_s}
            self._tell("retrying", **facts, message=item.message)
            return
        if isinstance(item, SentAgain):
            self._tell("busy")
            return
        if self.state is RunPhase.WAIT:
            self._move(RunPhase.TYPE)
        if isinstance(item, PartFinished) and isinstance(item.part, ToolCall):
            item = PartFinished(item.index, with_bounded_arguments(item.part, self._settings.context.spool_dir))
        self._answer.take(item)

    def _after_answer(self, stop_reason: str) -> Step | None:
        message = self._answer.step_message()
        if message.parts:
            self._view.append(message)
        if stop_reason == "refusal":
            self._note = "The model refused to answer"
        elif self._answer.calls:
            return self._run_tools
        elif stop_reason == "pause_turn" and message.parts:  # an empty message would repeat the same request for ever
            self._move(RunPhase.TRET)
            return self._call_model
        elif stop_reason == "max_tokens":
            limit = self._settings.max_tokens
            self._note = f"The answer reached the limit of {limit} tokens (max_tokens): ask for the rest, or raise it"
        return None

    async def _run_tools(self) -> Step:
        calls = self._answer.calls
        self._count_calls(len(calls))
        return await self._complete(calls, {}, {})

    def _count_calls(self, number: int) -> None:
        """Count calls that are about to be made.

        Raises:
            BudgetSpent: The run may not make as many.
        """
        self._calls += number
        self._settings.limits.check_calls(self._calls)

    async def _go_on(self) -> Step:
        """Resume the calls of the last request that an earlier daemon left unfinished."""
        resumed = self._resumed
        assert resumed is not None
        await self._recorder.commit()
        if self._settings.ready is not None:
            await self._settings.ready()
        calls, results = self._answer.calls, resumed.standing.results
        self._view.append(self._answer.step_message())
        begun = (call for call in calls if call.id in resumed.begun and call.id not in results)
        return await self._complete(calls, results, {call.id: resumed.stand_in(call) for call in begun})

    async def _complete(
        self, calls: tuple[ToolCall, ...], results: Mapping[str, ToolResult], stand_ins: Mapping[str, ToolSpec]
    ) -> Step:
        """Make the calls that have no result yet, and add all results to the view."""
        self._move(RunPhase.TOOL, tools=[describe_call(call) for call in calls])
        made = await self._calling.complete(calls, results, stand_ins)
        self._securing = self._recorder.commit()
        asyncio.get_running_loop().call_soon(self._log.flush)  # while the next request is on its way
        self._view.append(Message(role="user", parts=made))
        self._move(RunPhase.TRET)
        return self._call_model

    def _request(self) -> ModelRequest:
        settings = self._settings
        return ModelRequest(
            model=settings.model,
            system=settings.system,
            messages=tuple(self._view),
            tools=self._offer.schemas(),
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            thinking_budget=settings.thinking_budget,
            kept=settings.kept,
        )

    def _move(self, phase: RunPhase, **details: Any) -> None:
        self.state = phase
        self._tell("busy", **details)

    def _tell(self, status: str, **details: Any) -> None:
        self._observe(self, {"state": status, "phase": self.state.value, **details})

    def _end_in_error(self, error: Exception) -> Outcome:
        code, message = told_of(error)
        return self._end(RunPhase.ERRS, Outcome(reason="error", text=self._answer.text, code=code, message=message))

    def _end(self, phase: RunPhase, outcome: Outcome) -> Outcome:
        try:
            aborted = outcome.message or "aborted"
            why = aborted if phase is RunPhase.ABRT else f"not run: {outcome.message}"
            # An awaited agent is ended by its parent's end, unless the daemon stopped both.
            self._answer.close(why, awaited=why if self._cut_off else BY_PARENT)
        except StoreError:
            if phase is RunPhase.DONE:
                raise  # it ends in this error
            # The outcome is published, and recorded when the branch is reopened.
        finally:
            self._log.flush()
        self.state = phase
        return outcome
