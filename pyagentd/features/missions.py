"""Missions as runs of a session: a typed contract answered by programs instead of chat.

A preset whose front matter has ``signature:`` is a contract. A run of such a branch is a ``MissionRun``: the loop
of the room ``mission`` with callbacks of ours. Its model is the run's backend, so retry, ``requests.jsonl``, usage
and cost are those of any run; its tools are the run's tools (``program_tools``), called through the same
``ToolCaller`` and so with the same decision, questions, audit, hooks and snapshots.

A mission is recorded in rows like any run, so a replay shows what was shown live and the document reads as a
conversation: what the model writes around a program is text, the program is a call of the tool ``program``, what the
model reads next is that call's result, and the calls that the program makes follow it. Rows of type ``mission``
hold the task, the state of the loop after every turn (memory, context, turns, budget: a ``State``), and the end; an
interrupted mission continues from the last of them.

Missions nest: through the tool ``mission`` (``mission_tool``) and through agents that run as missions. A mission
shares the budget of turns of the nearest mission above it and is one deeper, however many chats are between.
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

# What a mission is asked: the contract of a preset, and the task that a message makes of it.
#
# ``signature:`` names inputs and result, ``prompt:`` is a template for what the model is told. Without a template
# the message itself is told. Inputs come from whoever starts the mission (the tool, the command line), else from the
# message: a JSON object, lines of ``name: value``, or all of it where the contract has one input.

EARLIER = "earlier"
"""The input that holds what was asked and answered before in the same session: ``[{prompt, answer}]``."""

MESSAGE = "message"
"""The input that holds a message which looks like a template and is none."""


GO_ON = frozenset({"continue", "resume", "go on"})
"""Messages after a mission that was cut off which have it go on."""

_GIVE = "Give them as the mission's context (--context FILE)"

_GLIMPSE = 200
"""Characters of one value in a task as people read it."""

_LINE = re.compile(r"\s*([A-Za-z_][\w-]*)\s*:\s*(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a run is to fulfil that is a mission.

    Attributes:
        preset: The contract; its prompt is a template for what the model is told, "" for the message itself.
        signature: Its inputs and result.
        given: What its message carries (metadata ``mission``): ``{context, template}``; with ``template`` what it
            says is a template, whose names must have values.
        cut_off: The run of the session's last mission, if that came to no answer.
        state: Where that stands; None while no turn of it has ended.
        first: What that was asked at first: ``{prompt, context}``.
        resumes: Whether this one goes on there, whatever its message says.
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
    """One mission: what the model is told, and what stands in ``ctx/``.

    Attributes:
        prompt: What the model is told, a template.
        context: Its data.
        state: What it goes on from, once a turn has ended.
        resumed: The run that it goes on from, or that it begins anew, else "".
        message: The same in words, for people.
    """

    prompt: str
    context: Mapping[str, Any] = field(default_factory=dict)
    state: State_ | None = None
    resumed: str = ""
    message: str = ""


def parse_readable(text: str, source: str) -> Signature:
    """Return the signature that a preset, a person or a model wrote.

    Raises:
        SignatureError: It is none; names ``source``, line and column, and shows the place.
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
    """Return the signature that a preset promises.

    Raises:
        PresetError: Its signature or its template cannot be read.
    """
    try:
        placeholders(preset.prompt)
        return parse_readable(preset.signature, f"`signature` of the preset {preset.name}")
    except PyagentdError as error:
        raise PresetError(error.message, hint=error.hint) from error


def task_of(mission: Assignment, view: Sequence[Message], said: str | None = None) -> Task:
    """Return what the message that ends ``view`` asks of a mission.

    In it messages that nobody answered are one with what follows them; ``said`` is the last one alone.

    Raises:
        BadRequest: It does not say what the inputs are.
    """
    message, before = _asked(view)
    message = message if said is None else said
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
    elif not _fits(message, context):  # it may hold braces that mean nothing
        return Task(prompt=f"{{{{{MESSAGE}}}}}", context={**context, MESSAGE: message}, message=message)
    return Task(prompt=message, context=context, message=expanded_template(message, context))


def expanded_template(template: str, context: Mapping[str, Any]) -> str:
    """Return a template as people read it, its values shortened and hidden where they are for programs only."""

    def glimpse(path: Sequence[str], value: Any) -> str:
        public = firewall.HIDDEN if any(map(firewall.is_firewalled, path)) else firewall.public(value)
        text = public if isinstance(public, str) else dump_json(public)
        return text if len(text) <= _GLIMPSE else f"{text[:_GLIMPSE]}…"

    try:
        return expand(template, context, glimpse)
    except PyagentdError:  # the mission says so
        return template


def _fits(message: str, context: Mapping[str, Any]) -> bool:
    """Return whether a message can be expanded as a template: a text that has no placeholder can."""
    if "{{" not in message:
        return True
    try:
        return {name.partition(".")[0] for name in placeholders(message)} <= context.keys()
    except PyagentdError:
        return False


def _inputs(names: Sequence[str], message: str) -> dict[str, Any]:
    """Return the inputs with these names as a message gives them."""
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
    """Return the mapping that a message is written as, in JSON or in lines; None when it is prose."""
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
    """Return what a line gives: JSON where it is some, else its text."""
    try:
        return reader.parse(text)
    except ValueError:
        return text.strip()


def _asked(view: Sequence[Message]) -> tuple[str, list[dict[str, str]]]:
    """Return the last message of the user, and what was asked and answered before it."""
    turns: list[dict[str, str]] = []
    for message in view:
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        if message.role == "user" and texts:
            turns.append({"prompt": "\n\n".join(texts), "answer": ""})
        elif message.role == "assistant" and texts and turns:
            turns[-1]["answer"] = texts[-1]
    return (turns[-1]["prompt"] if turns else "", [turn for turn in turns[:-1] if turn["answer"]])


# The value of a mission below this one, firewalled fields included, for the program that asked for it.
#
# The record of a call has what models and people may see. The program that called gets the value itself, read from
# the log of the mission that the call made, so that after a restart it is the same.
# What a hook made of the result stands: only the very text that the value gives is exchanged for it.


def private_value(ref: BranchRef, call_id: str, text: str) -> Any:
    """Return the value that a call of the tool ``mission`` came to, None where ``text`` says all of it. Blocks."""
    if firewall.HIDDEN not in text or (child := agents_by_call(ref).get(call_id)) is None:
        return None
    try:
        rows = read_rows(paths.journal_file(child.branch_dir))
    except (OSError, StoreError):
        return None
    ends = [row.data for row in rows if row.type == "mission" and row.data.get("phase") == "end"]
    value = ends[-1].get("value") if ends else None
    return value if value is not None and as_json(answer_of_value(firewall.public(value))) == text else None


# The rows of a mission: what was asked, where it stands after a turn, how it ended.
#
# A row of type ``mission`` has the run's id and a phase; of each phase the last row counts:
#
# start   {prompt, context, message, signature, inputs, tools, max_turns, resumed}: ``resumed`` is the run it goes on
#         from or begins anew, or ""; context is {} where it goes on; ``message`` is the prompt as people read it
# turn    {turn, state}: the loop after that turn, as ``State.to_json`` says it
# end     {ok, value, fail, usage}: the value with its firewalled fields, for programs and people


# The mission that a message begins, or goes on with.


def mission_of(run_id: str, preset: Preset, conversation: Conversation, given: Mapping[str, Any]) -> Assignment:
    """Return what a run is to fulfil whose preset promises a signature.

    Args:
        run_id: Its id; the log knows it where an earlier daemon began it.
        preset: As it holds for the run.
        conversation: What was said before.
        given: What the message carries: {context, template}, or {resume}, the id of a run.

    Raises:
        PresetError: The signature or the template cannot be read.
        BadRequest: That run cannot go on.
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


# A program that runs again after the daemon's end, without anything of it happening twice.
#
# Programs are deterministic: the same program on the same data makes the same calls. So the program that an earlier
# daemon left waiting is run again, and each call it makes is answered from the record where that has the result; one
# that had not begun is made now, asked about or not, and one that had begun waits for its agent, or is told that it
# was aborted.


class RecordedCall(NamedTuple):
    """A call that the record has: its result, if there is one, else what stands in for its tool, if anything does."""

    call: ToolCall
    result: ToolResult | None
    stand_in: ToolSpec | None


class Replay:
    """The last step of a mission as it was left.

    Attributes:
        program: The call that stands for the program; None when the step had none.
        text: What the model said, the program included.
    """

    def __init__(self, resumed: ResumedRun) -> None:
        self._resumed = resumed
        said = resumed.standing.step
        calls = [part for part in said if isinstance(part, ToolCall)]
        self.program = next((call for call in calls if call.name == PROGRAM), None)
        self._calls = [call for call in calls if call is not self.program]
        words = "\n\n".join(part.text for part in said if isinstance(part, Text))
        program = "" if self.program is None else f"```clojure\n{self.program.input.get('program', '')}\n```"
        self.text = f"{words}\n\n{program}".strip()

    def next(self, name: str, args: Mapping[str, Any]) -> RecordedCall | None:
        """Return the record of a call; None when the program makes a new one. Parallel calls come in any order."""
        called = (name, dict(args))
        call = next((each for each in self._calls if (each.name, dict(each.input)) == called), None)
        if call is None:
            return None
        self._calls.remove(call)
        result = self._resumed.standing.results.get(call.id)
        begun = call.id in self._resumed.begun and result is None
        return RecordedCall(call, result, self._resumed.stand_in(call) if begun else None)


# What the model says in a mission, taken apart: the words around a program, and the program.
#
# A text is kept back until it is whole, since where its program begins and ends is known only then; reasoning
# streams.

Item = PartStarted | PartDelta | PartFinished


class ReplayedAnswer:
    """The answer to one request."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}  # by the provider's index
        self._next = 0

    @property
    def text(self) -> str:
        """Everything that was said, as the loop reads it."""
        return "\n\n".join(text for text in self._texts.values() if text)

    def take(self, item: Item) -> Item | None:
        """Keep an item that is text and return None, else return it: the run records it."""
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
        """Yield ``text`` as a part that follows what was streamed."""
        if text:
            self._next += 1
            yield from as_one_part(self._next, text)

    def index(self) -> int:
        """Return an index that no part has yet."""
        self._next += 1
        return self._next


def as_one_part(index: int, text: str) -> Iterator[Item]:
    """Yield a text that is there at once as the part that it is."""
    yield PartStarted(index, "text")
    yield PartDelta(index, text)
    yield PartFinished(index, Text(text=text))


# The signature of a tool that says with a JSON Schema what it takes.

_NAME = re.compile(r"[A-Za-z_][\w-]*")
_PRIMITIVES = {"string": ":string", "integer": ":int", "number": ":float", "boolean": ":bool", "null": ":any"}


def signature_of(schema: Mapping[str, Any], returns: str = ":string") -> Signature | None:
    """Return what a tool takes, and that it gives ``returns``; None where a signature cannot say it."""
    fields = _fields(schema)
    if fields is None:
        return None
    fields.sort(key=lambda each: each.endswith("?"))  # what must be given comes first
    try:
        return parse(f"({', '.join(fields)}) -> {returns}")
    except SignatureError:  # a schema of somebody else's
        return None


def _fields(schema: Mapping[str, Any]) -> list[str] | None:
    """Return the properties of an object as a signature has them; None where it cannot have one's name."""
    properties, required = schema.get("properties") or {}, set(schema.get("required") or ())
    if not all(map(_NAME.fullmatch, properties)):
        return None
    return [f"{name} {_type(each)}{'' if name in required else '?'}" for name, each in properties.items()]


def _type(schema: Any) -> str:
    """Return the type that a schema describes, ``:any`` where it says more than a signature can."""
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


# The tools of a run as a mission's programs call them: ``(call "Read" {:file_path …})``.
#
# A call of a program is a call of the run: it has an id, is recorded, decided, asked about, audited and kept in
# snapshots like one that the model makes in a chat (``ToolCaller``). What the program gets is the tool's text,
# or data where the tool answers in JSON, with the firewalled fields that a mission below gave; a call that fails
# ends the program with the tool's words.

_AS_DATA = {"mission": ":any", "task": ":map"}
"""Tools whose text is JSON, and the type of it."""

EXPANSION = "request_scope_expansion"
_WITHIN = "Work within what you may reach, or end with `fail` and say what is missing."

Made = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
"""Makes one call of the run, given name and arguments."""

Whole = Callable[[ToolResult], Awaitable[Any]]
"""Returns the value that a result of the tool ``mission`` does not say all of; None where it does."""


def program_tools(tools: Mapping[str, ToolSpec], make: Made, whole: Whole) -> dict[str, Tool]:
    """Return the tools of a run for its programs, by name."""
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
        with suppress(ValueError):  # a hook added words
            return json.loads(result.text) if name in _AS_DATA else result.text
        return result.text

    signature = signature_of(spec.input_schema, _AS_DATA.get(name, ":string"))
    return Tool(name=name, function=call, signature=signature, description=spec.description)


# A run that is a mission: the loop of ``mission`` with the model, the tools and the log of a session.
#
# It begins, ends, is aborted and is told of as any run. One turn is a request to the model, whose answer is recorded
# when it is whole, and a program, which runs in a thread; a call that the program makes is made here, on the event
# loop, in its turn. What stands after a turn is recorded before the next request, so a mission whose daemon was
# killed goes on behind the last program that came to its end.

_ENDED = "The mission ended with this program."
_GIVEN_UP = "The call was cancelled, since another one beside it failed."


class Unfulfilled(PyagentdError):
    """A mission ended without its answer."""

    code = "mission-failed"

    def __init__(self, fail: Fail) -> None:
        super().__init__(f"The mission failed ({fail.reason}): {fail.message.rstrip('.')}")


class MissionRun(Run):
    """One mission; ``execute`` it once."""

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
        self._program: ToolCall | None = None  # the one that runs
        self._trouble: PyagentdError | None = None  # why the model could not be asked
        self._logged = False
        self._replay: Replay | None = None  # of the program that an earlier daemon left
        self._gate = Gate()  # calls that only look go in together, one that changes something alone

    async def _begin(self) -> Step:
        await self._recorder.commit()
        return self._pursue

    async def _go_on(self) -> Step:
        """Take up the program that the end of an earlier daemon left waiting."""
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
        # What is around it is what the tree of sessions says, whoever's task started this run.
        with self._kindred.running(self._ref, new) as at, enter(Scope(budget=at.budget, depth=at.depth - 1)):
            ending: MissionStep[Any] = await adelegate(
                task.prompt,
                llm=self._asked,
                signature=mission.signature,
                tools=program_tools(self._offer.tools, self._called, self._whole),
                context=task.context,
                max_turns=max_turns,
                mission_timeout_ms=None,  # the run has a stopwatch, which stands still while a human is asked
                llm_retry=Retry(max_attempts=1),  # the backend tries again
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
        """Return what the message says that began this run, as the model is to see it."""
        conversation = self._recorder.conversation
        run = conversation.runs.get(self.id)
        message = conversation.messages.get(run.data["message_id"]) if run else None
        if message is None:
            return None
        return message.text if message.is_edited else message.model_text

    # -- the model -----------------------------------------------------------------------------------------------

    async def _asked(self, request: Request) -> Answer:
        """Ask the model; the loop's callback."""
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
        told: Answer = {
            "content": self._replayed.text,
            "tokens": {"input": read, "output": usage.output + usage.reasoning},
        }
        prices = self._facts_of(self._settings.model, self._settings.provider).prices
        return told if prices is None else {**told, "cost_usd": prices.of(usage)}

    def _request(self) -> ModelRequest:
        assert self._sending is not None, "a mission's requests are the loop's"
        return self._sending

    def _take(self, item: RetryNotice | SentAgain | PartStarted | PartDelta | PartFinished) -> None:
        if isinstance(item, RetryNotice | SentAgain):
            super()._take(item)
            return
        kept = self._replayed.take(item)
        if kept is not None:
            super()._take(kept)
        elif self.state is RunPhase.WAIT:
            self._move(RunPhase.TYPE)

    def _finish_step(self, stop: StepFinished) -> None:
        """Record what was said around the program, and the program, before it is run."""
        response = parse_(self._replayed.text)
        for item in self._replayed.words(response.reasoning):
            super()._take(item)
        if response.program is not None:
            self._program = ToolCall(id=new_id("call"), name=PROGRAM, input={"program": response.program})
            super()._take(PartFinished(self._replayed.index(), self._program))
        super()._finish_step(stop)

    # -- the programs --------------------------------------------------------------------------------------------

    def _record_progress(self, event: Event) -> None:
        """Follow the loop: what a program came to is its call's result."""
        if event.name != "turn_stop" or self._program is None or self._aborted:
            return  # who is stopped has the end of its calls recorded by whoever stops it, or by nobody yet
        facts, program = event.metadata, self._program
        self._program = self._replay = None
        text = str(facts.get("feedback") or facts.get("message") or _ENDED)
        duration_ms = int(event.measurements.get("program_ms", event.measurements.get("duration_ms", 0)))
        self._answer.result(program, Envelope(ok=bool(facts.get("ok")), text=text, duration_ms=duration_ms))
        self._move(RunPhase.TRET)

    def _stands(self, state: State_) -> None:
        """Record where the loop stands after a turn."""
        if not self._aborted:
            self._put("turn", turn=state.turn, state=state.to_json())

    async def _called(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        """Make one call for the program that runs."""
        if self._aborted:
            raise ToolError("The mission was stopped")
        known = self._replay.next(name, args) if self._replay is not None else None
        if known is not None and known.result is not None:
            return known.result
        call = known.call if known is not None else ToolCall(id=new_id("call"), name=name, input=dict(args))
        if known is None:
            try:
                self._count_calls(1)
            except BudgetSpent as error:  # a program could go on with an error of a tool
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
            # Where the whole run ends, the ends of its calls are others' to record.
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
        """Return the value that a mission below gave this one's program, if its result hides some of it."""
        return await asyncio.to_thread(private_value, self._ref, result.id, result.text)

    def _end(self, phase: RunPhase, outcome: Any) -> Any:
        if self._replayed.text and self._program is None and self.state in (RunPhase.WAIT, RunPhase.TYPE):
            for item in self._replayed.words(self._replayed.text):  # what was said when it was cut off
                self._answer.take(item)
        return super()._end(phase, outcome)


def _messages(request: Request) -> tuple[Message, ...]:
    return tuple(Message(role=each["role"], parts=(Text(text=each["content"]),)) for each in request["messages"])
