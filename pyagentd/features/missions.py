"""Missions as runs of a session: a typed contract that the model fulfils with programs instead of chat.

A preset whose front matter has ``signature:`` is a contract. Its branch runs as a ``MissionRun``: the loop of the
package ``mission`` with callbacks into the session. The model is called through the run's backend, so retry,
``requests.jsonl``, usage and cost are those of any run; the tools are the run's tools (``program_tools``), called
through the same ``ToolCaller``, so with the same policy decisions, questions, audit, hooks and snapshots.

A mission is recorded in rows like any run, so a replay shows what was shown live and the document reads as a
conversation: the model's text around a program is text, the program is a call of the tool ``program``, the feedback
to the model is that call's result, and the calls that the program makes follow it. Rows of type ``mission`` hold the
task, the state of the loop after every turn (memory, context, turns, budget: a ``State``), and the end; an
interrupted mission continues from the last of them.

Missions nest: through the tool ``mission`` (``mission_tool``) and through agents that run as missions. A mission
shares the turn budget of the nearest mission above it and is one level deeper, however many chats are in between.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from pyagentd import reader
from pyagentd.clock import new_id
from pyagentd.errors import BadRequest, BudgetSpent, PresetError, PyagentdError, StoreError, ToolError
from pyagentd.features.mission_tool import (
    NAME,
    PROGRAM,
    RunningMissions,
    answer_of_value,
    as_json,
    dump_json,
    first_request,
    last_progress,
    unfinished_mission,
)
from pyagentd.lisp.parallel import is_abandoned
from pyagentd.llm.backend import (
    ModelRequest,
    PartDelta,
    PartFinished,
    PartStarted,
    RetryNotice,
    SentAgain,
    StepFinished,
)
from pyagentd.llm.catalog import ModelFacts
from pyagentd.messages import Message, Text, ToolCall, ToolResult
from pyagentd.mission import firewall
from pyagentd.mission.budget import Budget, Scope, enter
from pyagentd.mission.checkpoint import CheckpointError
from pyagentd.mission.checkpoint import State as State_
from pyagentd.mission.delegation import adelegate
from pyagentd.mission.options import MAX_TURNS, PARALLEL, TURN_BUDGET, Answer, Request, Retry
from pyagentd.mission.response import parse as parse_
from pyagentd.mission.runtime import Event
from pyagentd.mission.signature import Signature, SignatureError, parse
from pyagentd.mission.step import Fail, plain
from pyagentd.mission.step import Step as MissionStep
from pyagentd.mission.template import expand, placeholders
from pyagentd.mission.tools import Tool
from pyagentd.policy.guard import EXPAND
from pyagentd.policy.presets import Preset
from pyagentd.runtime.feature import Gate
from pyagentd.runtime.opening import ResumedRun
from pyagentd.runtime.run import Run, RunPhase, Step, describe_call
from pyagentd.store import paths
from pyagentd.store.conversation import Conversation
from pyagentd.store.journal import read_rows
from pyagentd.store.metadata import agents_by_call
from pyagentd.store.paths import BranchRef
from pyagentd.tools.invoke import Envelope
from pyagentd.tools.spec import ToolSpec

# The input of a mission: the contract of a preset, and the task made from it and a message.
#
# ``signature:`` names inputs and result, ``prompt:`` is a template for the prompt. Without a template the message is
# the prompt. Inputs come from the caller (the tool, the command line), else from the message: a JSON object, lines of
# ``name: value``, or all of it if the contract has one input.

EARLIER = "earlier"
"""The input with the earlier prompts and answers of the same session: ``[{prompt, answer}]``."""

MESSAGE = "message"
"""The input with a message that looks like a template but is none."""


GO_ON = frozenset({"continue", "resume", "go on"})
"""Messages that resume a mission that was cut off."""

_GIVE = "Give them as the mission's context (--context FILE)"

_GLIMPSE = 200
"""Characters of one value in a task that is shown to people."""

_LINE = re.compile(r"\s*([A-Za-z_][\w-]*)\s*:\s*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The contract of a mission run, and the mission that it may resume.

    Attributes:
        preset: The contract; its prompt is a template for the mission's prompt, "" to use the message itself.
        signature: Its inputs and result.
        given: The message's metadata ``mission``: ``{context, template}``; with ``template`` the message is a
            template whose names must have values.
        cut_off: The run of the session's last mission, if that did not finish.
        state: The last recorded state of that mission; None if none of its turns has ended.
        first: The original request of that mission: ``{prompt, context}``.
        resumes: Whether to resume that mission, whatever the message says.
    """

    preset: Preset
    signature: Signature
    given: Mapping[str, Any] = field(default_factory=dict)
    cut_off: str = ""
    state: State_ | None = None
    first: Mapping[str, Any] | None = None
    resumes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The prompt and data of one mission.

    Attributes:
        prompt: The prompt, a template.
        context: Its data, shown in ``ctx/``.
        state: The state to continue from, if a turn has ended.
        resumed: The run that it continues or begins anew, else "".
        message: The prompt with its values, for people.
    """

    prompt: str
    context: Mapping[str, Any] = field(default_factory=dict)
    state: State_ | None = None
    resumed: str = ""
    message: str = ""


def parse_readable(text: str, source: str) -> Signature:
    """Parse a signature that a preset, a person or a model wrote.

    Raises:
        SignatureError: It is invalid; names ``source``, line and column, and shows the place.
    """
    try:
        return parse(text)
    except SignatureError as error:
        place = f", line {error.line}, column {error.column}" if error.line else ""
        shown = f"{caret}\n" if (caret := error.caret()) else ""
        raise SignatureError(
            f"{shown}{source}{place}: {error.message}",
            source=error.source,
            line=error.line,
            column=error.column,
            hint=error.hint,
        ) from error


def promised_signature(preset: Preset) -> Signature:
    """Return the signature of a preset.

    Raises:
        PresetError: Its signature or its template is malformed.
    """
    try:
        placeholders(preset.prompt)
        return parse_readable(preset.signature, f"`signature` of the preset {preset.name}")
    except PyagentdError as error:
        raise PresetError(error.message, hint=error.hint) from error


def task_of(mission: Assignment, view: Sequence[Message], last: str | None = None) -> Task:
    """Return the task that the message at the end of ``view`` gives a mission.

    ``view`` merges unanswered messages with the one after them; ``last`` is the last message alone.

    Raises:
        BadRequest: It does not give the inputs.
    """
    message, before = _asked(view)
    message = message if last is None else last
    if mission.cut_off and (mission.resumes or message.strip().rstrip(".!").lower() in GO_ON):
        first, state = mission.first or {}, mission.state
        shown, resumed = str(first.get("message") or ""), mission.cut_off
        if state is not None:
            return Task(prompt=state.prompt, state=state, resumed=resumed, message=shown)
        return Task(
            prompt=first.get("prompt", ""), context=first.get("context") or {}, resumed=resumed, message=shown
        )
    template, params, given = mission.preset.prompt, mission.signature.params, mission.given.get("context")
    context: dict[str, Any] = {EARLIER: before} if before else {}
    is_template = bool(mission.given.get("template")) and not template
    if isinstance(given, Mapping):
        context |= given
    elif not is_template:
        context |= _inputs([each.name for each in params], message)
    if template:
        return Task(prompt=template, context=context, message=expanded_template(template, context))
    if is_template:
        needed = [each for each in params if not each.optional and not each.type.is_optional]
        if lacking := [each.name for each in needed if each.name not in context]:
            raise BadRequest(f"The signature has inputs without a value: {', '.join(lacking)}", hint=_GIVE)
    elif not _fits(message, context):  # braces in it may be plain text
        return Task(prompt=f"{{{{{MESSAGE}}}}}", context={**context, MESSAGE: message}, message=message)
    return Task(prompt=message, context=context, message=expanded_template(message, context))


def expanded_template(template: str, context: Mapping[str, Any]) -> str:
    """Expand a template for people to read; long values are shortened, firewalled ones hidden."""

    def glimpse(path: Sequence[str], value: Any) -> str:
        public = firewall.HIDDEN if any(map(firewall.is_firewalled, path)) else firewall.public(value)
        text = public if isinstance(public, str) else dump_json(public)
        return text if len(text) <= _GLIMPSE else f"{text[:_GLIMPSE]}…"

    try:
        return expand(template, context, glimpse)
    except PyagentdError:  # the mission reports it
        return template


def _fits(message: str, context: Mapping[str, Any]) -> bool:
    """Return whether a message can be expanded as a template; one without placeholders always can."""
    if "{{" not in message:
        return True
    try:
        return {name.partition(".")[0] for name in placeholders(message)} <= context.keys()
    except PyagentdError:
        return False


def _inputs(names: Sequence[str], message: str) -> dict[str, Any]:
    """Read the inputs with these names from a message."""
    if not names:
        return {}
    written = _written(message)
    if written is not None and set(written) & set(names):
        return written
    if len(names) == 1:
        return {names[0]: message}
    raise BadRequest(
        f"This is a mission with the inputs {', '.join(names)}, and the message does not say what they are",
        hint=f"Write one a line, as in `{names[0]}: …`, or a JSON object",
    )


def _written(message: str) -> dict[str, Any] | None:
    """Parse a message as JSON or ``name: value`` lines; None if it is prose."""
    text = message.strip()
    if text.startswith("{"):
        try:
            found = reader.parse(text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None
    lines = [_LINE.fullmatch(line) for line in text.splitlines() if line.strip()]
    if not lines or None in lines:
        return None
    return {found[1]: _value(found[2]) for found in lines if found is not None}


def _value(text: str) -> Any:
    """Parse the value of a line: JSON if it is valid, else the text."""
    try:
        return reader.parse(text)
    except ValueError:
        return text.strip()


def _asked(view: Sequence[Message]) -> tuple[str, list[dict[str, str]]]:
    """Return the last message of the user, and the earlier prompts with their answers."""
    turns: list[dict[str, str]] = []
    for message in view:
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        if message.role == "user" and texts:
            turns.append({"prompt": "\n\n".join(texts), "answer": ""})
        elif message.role == "assistant" and texts and turns:
            turns[-1]["answer"] = texts[-1]
    return (turns[-1]["prompt"] if turns else "", [turn for turn in turns[:-1] if turn["answer"]])


# The value of a mission called by a program, firewalled fields included, for that program.
#
# The recorded result of a call has only what models and people may see. The calling program gets the value itself,
# read from the log of the called mission, so that it is the same after a restart. If a hook changed the result, that
# counts: the value is used only when the result is exactly the value's public text.


def private_value(ref: BranchRef, call_id: str, text: str) -> Any:
    """Return the value of a ``mission`` call, None if ``text`` has all of it; blocks."""
    if firewall.HIDDEN not in text or (child := agents_by_call(ref).get(call_id)) is None:
        return None
    try:
        rows = read_rows(paths.journal_file(child.branch_dir))
    except (OSError, StoreError):
        return None
    ends = [row.data for row in rows if row.type == "mission" and row.data.get("phase") == "end"]
    value = ends[-1].get("value") if ends else None
    return value if value is not None and as_json(answer_of_value(firewall.public(value))) == text else None


# The rows of a mission: its task, its state after a turn, its end.
#
# A row of type ``mission`` has the run's id and a phase; the last row of each phase counts:
#
# start   {prompt, context, message, signature, inputs, tools, max_turns, resumed}: ``resumed`` is the run that it
#         continues or begins anew, or ""; context is {} if it continues; ``message`` is the prompt for people
# turn    {turn, state}: the loop after that turn, ``State.to_json``
# end     {ok, value, fail, usage}: the value with its firewalled fields, for programs and people


# The mission that a message begins or resumes.


def mission_of(run_id: str, preset: Preset, conversation: Conversation, given: Mapping[str, Any]) -> Assignment:
    """Return the contract of a run whose preset has a signature.

    Args:
        run_id: Its id; the log knows it if an earlier daemon began the run.
        preset: The preset of the run.
        conversation: The conversation so far.
        given: The message's mission metadata: {context, template}, or {resume}, the id of a run.

    Raises:
        PresetError: The signature or the template is malformed.
        BadRequest: That run cannot be resumed.
    """
    own = conversation.missions.get(run_id)
    if own is None:
        resumes = bool(given.get("resume"))
        cut_off = str(given.get("resume") or "") or unfinished_mission(conversation)
    else:
        cut_off = run_id if "turn" in own else str(own["start"].get("resumed") or "")
        resumes = bool(cut_off)
    first, row = first_request(conversation, cut_off), last_progress(conversation, cut_off)
    if cut_off and first is None and row is None:
        raise BadRequest(f"{cut_off} is not a mission that can go on", hint="Send the task again")
    try:
        state = None if row is None else State_.from_json(row["state"])
    except CheckpointError as error:
        raise BadRequest(f"The state of {cut_off} cannot be read: {error}", hint="Send the task again") from error
    return Assignment(
        preset=preset,
        signature=promised_signature(preset),
        given=given,
        cut_off=cut_off,
        state=state,
        first=first,
        resumes=resumes,
    )


# Rerunning a program after a restart of the daemon, without repeating its effects.
#
# Programs are deterministic: the same program on the same data makes the same calls. So the unfinished program is run
# again, and each call whose result is recorded gets that result; a call that had not begun is made now; one that had
# begun waits for its agent, or fails as aborted.


class RecordedCall(NamedTuple):
    """A recorded call: its result, or a substitute for its tool, if there is one."""

    call: ToolCall
    result: ToolResult | None
    stand_in: ToolSpec | None


class Replay:
    """The recorded last step of a mission.

    Attributes:
        program: The call that holds the program; None if the step had none.
        text: The model's answer, the program included.
    """

    def __init__(self, resumed: ResumedRun) -> None:
        self._resumed = resumed
        step = resumed.standing.step
        calls = [part for part in step if isinstance(part, ToolCall)]
        self.program = next((call for call in calls if call.name == PROGRAM), None)
        self._calls = [call for call in calls if call is not self.program]
        words = "\n\n".join(part.text for part in step if isinstance(part, Text))
        program = "" if self.program is None else f"```clojure\n{self.program.input.get('program', '')}\n```"
        self.text = f"{words}\n\n{program}".strip()

    def next(self, name: str, args: Mapping[str, Any]) -> RecordedCall | None:
        """Return the record of a call; None if the call is new. Parallel calls come in any order."""
        called = (name, dict(args))
        call = next((each for each in self._calls if (each.name, dict(each.input)) == called), None)
        if call is None:
            return None
        self._calls.remove(call)
        result = self._resumed.standing.results.get(call.id)
        begun = call.id in self._resumed.begun and result is None
        return RecordedCall(call, result, self._resumed.stand_in(call) if begun else None)


# The model's answer in a mission, split into the program and the text around it.
#
# Text is held back until it is complete, since the program's bounds are known only then; reasoning streams.

Item = PartStarted | PartDelta | PartFinished


class ReplayedAnswer:
    """The model's answer to one request."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}  # by the provider's index
        self._next = 0

    @property
    def text(self) -> str:
        """The whole text of the answer, for the loop to parse."""
        return "\n\n".join(text for text in self._texts.values() if text)

    def take(self, item: Item) -> Item | None:
        """Hold back an item that is text and return None, else return it to be recorded."""
        self._next = max(self._next, item.index + 1)
        match item:
            case PartStarted(kind="text", index=index):
                self._texts[index] = ""
            case PartDelta(index=index, text=text) if index in self._texts:
                self._texts[index] += text
            case PartFinished(index=index, part=Text(text=text)):
                self._texts[index] = text
            case _:
                return item
        return None

    def words(self, text: str) -> Iterator[Item]:
        """Yield ``text`` as a part after the streamed ones."""
        if text:
            self._next += 1
            yield from as_one_part(self._next, text)

    def index(self) -> int:
        """Return the index of a new part."""
        self._next += 1
        return self._next


def as_one_part(index: int, text: str) -> Iterator[Item]:
    """Yield the items of a complete text part."""
    yield PartStarted(index, "text")
    yield PartDelta(index, text)
    yield PartFinished(index, Text(text=text))


# The signature of a tool, from its JSON Schema.

_NAME = re.compile(r"[A-Za-z_][\w-]*")
_PRIMITIVES = {"string": ":string", "integer": ":int", "number": ":float", "boolean": ":bool", "null": ":any"}


def signature_of(schema: Mapping[str, Any], returns: str = ":string") -> Signature | None:
    """Return a signature for a tool's JSON Schema with the result ``returns``; None if that is not possible."""
    fields = _fields(schema)
    if fields is None:
        return None
    fields.sort(key=lambda each: each.endswith("?"))  # required fields come first
    try:
        return parse(f"({', '.join(fields)}) -> {returns}")
    except SignatureError:  # a schema from a third party
        return None


def _fields(schema: Mapping[str, Any]) -> list[str] | None:
    """Return the properties of an object as signature fields; None if a name is not valid there."""
    properties, required = schema.get("properties") or {}, set(schema.get("required") or ())
    if not all(map(_NAME.fullmatch, properties)):
        return None
    return [f"{name} {_type(each)}{'' if name in required else '?'}" for name, each in properties.items()]


def _type(schema: Any) -> str:
    """Return the signature type of a JSON Schema; ``:any`` if it has no equivalent."""
    if not isinstance(schema, Mapping):
        return ":any"
    match schema.get("type"):
        case "array":
            return f"[{_type(schema.get('items'))}]" if schema.get("items") else "[:any]"
        case "object":
            return f"{{{', '.join(fields)}}}" if (fields := _fields(schema)) else ":map"
        case str() as name:
            return _PRIMITIVES.get(name, ":any")
    return ":any"


# The tools of a run for a mission's programs: ``(call "Read" {:file_path …})``.
#
# A program's call is a call of the run: it has an id, is recorded, authorised, audited and snapshotted like one that
# the model makes in a chat (``ToolCaller``). The program gets the tool's text, or data if the tool answers
# in JSON, with the firewalled fields of a called mission; a failed call ends the program with the tool's error text.

_AS_DATA = {"mission": ":any", "task": ":map"}
"""Tools whose result is JSON, with its type."""

EXPANSION = "request_scope_expansion"
_WITHIN = "Work within what you may reach, or end with `fail` and say what is missing."

Made = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
"""Makes one call of the run, from name and arguments."""

Whole = Callable[[ToolResult], Awaitable[Any]]
"""Returns the value behind a result of the tool ``mission``; None if the text has all of it."""


def program_tools(tools: Mapping[str, ToolSpec], make: Made, whole: Whole) -> dict[str, Tool]:
    """Return the tools of a run for a mission's programs, by name."""
    advice = "" if EXPANSION in tools else _WITHIN
    return {name: _tool(name, spec, make, whole, advice) for name, spec in tools.items()}


def _tool(name: str, spec: ToolSpec, make: Made, whole: Whole, advice: str) -> Tool:
    async def call(args: dict[str, Any]) -> Any:
        given = {key: value for key, value in args.items() if value is not None}
        result = await make(name, given)
        if result.is_error:
            raise ToolError(result.text.replace(EXPAND, advice) if advice else result.text)
        if name == NAME and (value := await whole(result)) is not None:
            return value
        with suppress(ValueError):  # a hook may have added text
            return json.loads(result.text) if name in _AS_DATA else result.text
        return result.text

    signature = signature_of(spec.input_schema, _AS_DATA.get(name, ":string"))
    return Tool(name=name, function=call, signature=signature, description=spec.description)


# A mission run: the loop of ``mission`` with the model, the tools and the log of a session.
#
# It starts, ends, is aborted and is reported like any run. One turn is a request to the model, whose answer is
# recorded when complete, and a program, which runs in a thread; its calls are made here, on the event loop. The state
# after a turn is recorded before the next request, so after a crash the mission continues behind the last finished
# program.

_ENDED = "The mission ended with this program."
_GIVEN_UP = "The call was cancelled, since another one beside it failed."


class Unfulfilled(PyagentdError):
    """A mission that ended without an answer."""

    code = "mission-failed"

    def __init__(self, fail: Fail) -> None:
        super().__init__(f"The mission failed ({fail.reason}): {fail.message.rstrip('.')}")


class MissionRun(Run):
    """The run of one mission; call ``execute`` once."""

    def __init__(
        self,
        *,
        mission: Assignment,
        ref: BranchRef,
        kindred: RunningMissions,
        facts_of: Callable[[str, str], ModelFacts],
        **run: Any,
    ) -> None:
        super().__init__(**run)
        self._mission = mission
        self._ref = ref
        self._kindred = kindred
        self._facts_of = facts_of

        self._replayed = ReplayedAnswer()
        self._sending: ModelRequest | None = None
        self._program: ToolCall | None = None  # the running program
        self._trouble: PyagentdError | None = None  # why the request to the model failed
        self._logged = False
        self._replay: Replay | None = None  # of the program that an earlier daemon left unfinished
        self._gate = Gate()  # parallel-safe calls run together, others alone

    async def _begin(self) -> Step:
        await self._prepare()
        await self._recorder.commit()
        return self._pursue

    async def _go_on(self) -> Step:
        """Rerun the program that was unfinished when an earlier daemon stopped."""
        assert self._resumed is not None
        await self._recorder.commit()
        self._replay = Replay(self._resumed)
        return self._pursue

    async def _pursue(self) -> None:
        mission, preset = self._mission, self._mission.preset
        max_turns = preset.max_turns or MAX_TURNS
        task = task_of(mission, self._view, self._prompt_text())
        if self._resumed is None:
            self._put(
                "start",
                prompt=task.prompt,
                context=plain(task.context),
                message=task.message,
                signature=mission.signature.render(),
                inputs=sorted(task.context),
                tools=sorted(self._offer.tools),
                max_turns=max_turns,
                resumed=task.resumed,
            )
        before = task.state.budget if task.state is not None else {}
        new = partial(Budget, turns=max(TURN_BUDGET, max_turns), used=int(before.get("turns_used", 0)))
        # Budget and depth follow from the tree of sessions, whichever task started this run.
        with self._kindred.running(self._ref, new) as at, enter(Scope(budget=at.budget, depth=at.depth - 1)):
            ending: MissionStep[Any] = await adelegate(
                task.prompt,
                llm=self._asked,
                signature=mission.signature,
                tools=program_tools(self._offer.tools, self._called, self._whole),
                context=task.context,
                max_turns=max_turns,
                mission_timeout_ms=None,  # the run has a stopwatch, which is paused while a human is asked
                llm_retry=Retry(max_attempts=1),  # the backend retries
                system_prompt=lambda own: "\n\n".join(filter(None, (self._settings.system, own))),
                resume_from=task.state,
                on_checkpoint=self._stands,
                tool_time_counts=False,
                isolation=preset.isolation,
                parallel=preset.parallel or PARALLEL,
                telemetry=self._record_progress,
            )
        if self._trouble is not None:
            raise self._trouble
        fail = None if ending.fail is None else plain(asdict(ending.fail))
        self._put("end", ok=ending.ok, value=plain(ending.value), fail=fail, usage=asdict(ending.usage))
        if not ending.ok:
            raise Unfulfilled(ending.fail or Fail(reason="unknown", message="nobody said why"))
        self._answer.begin_step()
        with self._recorder.together():
            for item in as_one_part(0, answer_of_value(firewall.public(ending.value))):
                self._answer.take(item)
        self._note = "; ".join(ending.warnings)

    def _put(self, phase: str, **facts: Any) -> None:
        self._recorder.record("mission", {"id": self.id, "phase": phase, **facts})

    def _prompt_text(self) -> str | None:
        """Return the text of the message that began this run, as the model is to see it."""
        conversation = self._recorder.conversation
        run = conversation.runs.get(self.id)
        message = conversation.messages.get(run.data["message_id"]) if run else None
        if message is None:
            return None
        return message.text if message.is_edited else message.model_text

    # -- the model -----------------------------------------------------------------------------------------------

    async def _asked(self, request: Request) -> Answer:
        """Send a request to the model; the loop's callback."""
        if self._replay is not None and self._program is None and self.state is RunPhase.INIT:
            self._program = self._replay.program
            self._move(RunPhase.TOOL, tools=[PROGRAM], turn=request["turn"])
            return {"content": self._replay.text}
        try:
            await self._recorder.commit()
            self._log.flush()
            return await self._answered(request)
        except PyagentdError as error:
            self._trouble = error
            raise

    async def _answered(self, request: Request) -> Answer:
        if not self._logged:
            self._log.system_prompt(request["system"], self._recorder.now_ms())
            self._logged = True
        before = self._answer.usage
        self._settings.limits.check(self._turns, before)
        self._turns += 1
        self._replayed, self._program = ReplayedAnswer(), None
        self._sending = replace(super()._request(), system=request["system"], messages=_messages(request), tools=())
        self._move(RunPhase.WAIT, turn=request["turn"])
        self._answer.begin_step()
        stop = await self._send()
        if self._program is None:
            self._move(RunPhase.TRET)
        else:
            self._move(RunPhase.TOOL, tools=[PROGRAM], turn=request["turn"])
        usage = stop.usage
        read = usage.input + usage.cache_read + usage.cache_write
        answer: Answer = {
            "content": self._replayed.text,
            "tokens": {"input": read, "output": usage.output + usage.reasoning},
        }
        prices = self._facts_of(self._settings.model, self._settings.provider).prices
        return answer if prices is None else {**answer, "cost_usd": prices.of(usage)}

    def _request(self) -> ModelRequest:
        assert self._sending is not None, "a mission's requests are the loop's"
        return self._sending

    def _handle_item(self, item: RetryNotice | SentAgain | PartStarted | PartDelta | PartFinished) -> None:
        if isinstance(item, RetryNotice | SentAgain):
            super()._handle_item(item)
            return
        kept = self._replayed.take(item)
        if kept is not None:
            super()._handle_item(kept)
        elif self.state is RunPhase.WAIT:
            self._move(RunPhase.TYPE)

    def _finish_step(self, stop: StepFinished) -> None:
        """Record the program and the text around it before the program runs."""
        response = parse_(self._replayed.text)
        for item in self._replayed.words(response.reasoning):
            super()._handle_item(item)
        if response.program is not None:
            self._program = ToolCall(id=new_id("call"), name=PROGRAM, input={"program": response.program})
            super()._handle_item(PartFinished(self._replayed.index(), self._program))
        super()._finish_step(stop)

    # -- the programs --------------------------------------------------------------------------------------------

    def _record_progress(self, event: Event) -> None:
        """Record a program's outcome as its call's result; the loop's callback."""
        if event.name != "turn_stop" or self._program is None or self._aborted:
            return  # the end of an aborted run's calls is recorded by the code that aborts it, or later
        facts, program = event.metadata, self._program
        self._program = self._replay = None
        text = str(facts.get("feedback") or facts.get("message") or _ENDED)
        duration_ms = int(event.measurements.get("program_ms", event.measurements.get("duration_ms", 0)))
        self._answer.result(program, Envelope(ok=bool(facts.get("ok")), text=text, duration_ms=duration_ms))
        self._move(RunPhase.TRET)

    def _stands(self, state: State_) -> None:
        """Record the state of the loop after a turn."""
        if not self._aborted:
            self._put("turn", turn=state.turn, state=state.to_json())

    async def _called(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        """Make one call for the running program."""
        if self._aborted:
            raise ToolError("The mission was stopped")
        known = self._replay.next(name, args) if self._replay is not None else None
        if known is not None and known.result is not None:
            return known.result
        call = known.call if known is not None else ToolCall(id=new_id("call"), name=name, input=dict(args))
        if known is None:
            try:
                self._count_calls(1)
            except BudgetSpent as error:  # a program could catch a tool's error and continue
                self.fail(error)
                raise ToolError("The mission was stopped") from None
            self._answer.take(PartFinished(self._replayed.index(), call))
        self._tell("busy", tools=[describe_call(call)])
        stand_ins = {call.id: known.stand_in} if known is not None and known.stand_in is not None else {}
        started = time.monotonic()
        try:
            async with self._gate.alone() if self._changes(name) else self._gate.beside():
                if self._aborted:
                    raise ToolError("The mission was stopped")
                (result,) = await self._calling.complete((call,), {}, stand_ins)
        except asyncio.CancelledError:
            # When the whole run ends, others record the ends of its calls.
            is_stopping = self._aborted or self._task is None or self._task.cancelling() > 0
            if is_abandoned() and not is_stopping:
                spent = int((time.monotonic() - started) * 1000)
                self._answer.result(call, Envelope(ok=False, text=_GIVEN_UP, duration_ms=spent))
            raise
        return result

    def _changes(self, name: str) -> bool:
        spec = self._offer.tools.get(name)
        return spec is not None and not spec.parallel_safe

    async def _whole(self, result: ToolResult) -> Any:
        """Return the full value of a called mission if its result hides some of it."""
        return await asyncio.to_thread(private_value, self._ref, result.id, result.text)

    def _end(self, phase: RunPhase, outcome: Any) -> Any:
        if self._replayed.text and self._program is None and self.state in (RunPhase.WAIT, RunPhase.TYPE):
            for item in self._replayed.words(self._replayed.text):  # the text before it was cut off
                self._answer.take(item)
        return super()._end(phase, outcome)


def _messages(request: Request) -> tuple[Message, ...]:
    return tuple(Message(role=each["role"], parts=(Text(text=each["content"]),)) for each in request["messages"])
