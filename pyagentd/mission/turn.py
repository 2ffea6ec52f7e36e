"""One turn of a mission: ask the model, find its program, run it, say what came of it (SPEC 004 Turn Merge).

What the model got wrong is told to it and costs this turn, nothing else (DD-4).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyagentd import lisp
from pyagentd.lisp.data import check_data
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.extent import check_extent
from pyagentd.mission import feedback, hints, response, stopping
from pyagentd.mission.asking import Answered, ask
from pyagentd.mission.budget import Scope
from pyagentd.mission.checks import ReadyMission
from pyagentd.mission.options import Message, Request
from pyagentd.mission.outcome import Outcome, fail_of, is_function, merged, replaced
from pyagentd.mission.progress import End, Progress
from pyagentd.mission.retry import GaveUp
from pyagentd.mission.runtime import Runtime
from pyagentd.mission.step import Fail, Turn, Usage
from pyagentd.mission.telemetry import new_span
from pyagentd.mission.toolbox import Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What all turns of a mission share.

    Attributes:
        mission: What is to be done.
        system: The system prompt.
        scope: What it may spend.
        span: Of the mission.
        runtime: The world.
    """

    mission: ReadyMission
    system: str
    scope: Scope
    span: str
    runtime: Runtime


def take(room: Room, before: Progress) -> tuple[Progress, End | None]:
    """Take the next turn; return where the mission stands after it, and its end if this was it."""
    return _Taking(room=room, before=before, number=before.turn + 1, span=new_span()).take()


@dataclass(slots=True, kw_only=True)
class _Taking:
    """One turn while it is taken."""

    room: Room
    before: Progress
    number: int
    span: str
    toolbox: Toolbox = field(init=False)
    started_at: int = field(init=False)
    started: float = field(init=False)
    spent: Usage = field(init=False)

    def __post_init__(self) -> None:
        room = self.room
        self.toolbox = Toolbox(
            tools=room.mission.tools,
            catalog=room.mission.catalog,
            validation=room.mission.options.signature_validation,
            firewall=room.mission.firewall,
            scope=room.scope,
            span=self.span,
            runtime=room.runtime,
        )
        self.started_at = room.runtime.now_ms()
        self.started = room.runtime.monotonic()
        self.spent = room.scope.spent.minus(Usage(turns=1))  # this one was taken before it began

    def take(self) -> tuple[Progress, End | None]:
        self.room.runtime.tell("turn_start", self.span, self.room.span, metadata={"turn": self.number})
        try:
            answered = self._ask()
        except GaveUp as error:
            message = f"The model did not answer after {error.attempts} attempts: {error}"
            details = {"reason": error.reason, "attempts": error.attempts}
            late = stopping.at_any_time(self.room.scope, self.room.runtime)
            fail = late or Fail(reason="llm_error", message=message, details=details)
            return self._ended("", response.Response(program=None), self._nothing(fail, ending=True))
        said = response.parse(answered.text)
        if refused := self._refused(answered.tells_cost):
            return self._ended(answered.text, said, self._nothing(refused, ending=True))
        return self._ended(answered.text, said, self._outcome(said, answered.text))

    def _ask(self) -> Answered:
        mission = self.room.mission
        request: Request = {
            "system": self.room.system,
            "messages": [*self.before.messages],
            "turn": self.number,
            "prompt": mission.text,
            "tool_names": [*mission.tools],
            "llm_opts": dict(mission.options.llm_opts),
        }
        retry = mission.options.llm_retry
        return ask(mission.llm, request, retry, scope=self.room.scope, span=self.span, runtime=self.room.runtime)

    def _refused(self, tells_cost: bool) -> Fail | None:
        """Return why what the model said is not even run."""
        if self.room.scope.limits_cost() and not tells_cost:
            message = 'max_cost_usd needs an LLM that says what an answer costs: {"content": …, "cost_usd": …}'
            return Fail(reason="validation_error", message=message)
        return stopping.at_any_time(self.room.scope, self.room.runtime)

    def _outcome(self, said: response.Response, text: str) -> Outcome:
        if said.program is None:
            fail = Fail(reason="no_program", message="The answer had no program")
            return replace(self._nothing(fail), feedback=feedback.of_nothing(text))
        about = {"turn": self.number, "program": said.program, "reasoning": said.reasoning}
        self.room.runtime.tell("program_start", self.span, self.room.span, metadata=about)
        try:
            result = self._run(said.program)
        except LispError as error:
            earlier = [turn.program for turn in self.before.trace]
            tools = {**self.room.mission.catalog, **self.room.mission.tools}
            return self._failed(hints.with_hint(error, tools, earlier))
        return self._ran(result, said.program)

    def _run(self, program: str) -> lisp.Result:
        room, options = self.room, self.room.mission.options
        left_ms = (room.scope.deadline - room.runtime.monotonic()) * 1000
        limits = lisp.Limits(
            timeout_ms=max(1, int(min(options.timeout_ms, left_ms))),
            memory_bytes=options.memory_bytes,
            tool_time_counts=options.tool_time_counts,
        )
        result = lisp.compile(program).run(
            self.before.context,
            self.before.memory,
            tools=self.toolbox.call,
            limits=limits,
            cancelled=room.runtime.cancelled,
            isolation=options.isolation,
        )
        try:
            check_extent(result.value, limits)  # it is validated, shown and stored as if nothing in it were shared
            if not is_function(result.value):  # of which nothing is kept
                check_data(result.value)
        except LispError as error:
            error.undone = result.put
            raise
        return result

    def _failed(self, error: LispError) -> Outcome:
        details = {} if error.line is None else {"line": error.line, "column": error.column}
        fail = Fail(reason=error.reason, message=error.message, details=details)
        if self.room.mission.single_shot:
            return self._nothing(fail, ending=True)
        told = feedback.of_error(
            error,
            self.room.mission.firewall,
            self.toolbox.warnings,
            called=[call.name for call in self.toolbox.calls if call.error is None],
        )
        return replace(self._nothing(fail), feedback=told)

    def _ran(self, result: lisp.Result, program: str) -> Outcome:
        outcome = Outcome(value=result.value, context=self.before.context, memory=result.memory)
        self.room.mission.firewall.guard(result.value)
        mistyped = hints.missing(program, self.before.context)
        self.toolbox.warnings += mistyped
        match result.signal:
            case "fail":
                return replace(outcome, end=End(fail=fail_of(result.value)))
            case "return" if mistyped and self._may_ask_again(mistyped):
                fail = Fail(reason="validation_error", message=" ".join(mistyped))
                return replace(
                    outcome, error=fail, feedback=feedback.of_mistyped(mistyped, self.room.mission.firewall)
                )
            case "return":
                return self._returned(outcome)
        if self.room.mission.single_shot:
            return self._returned(outcome)
        context, names = merged(self.before.context, result.value)
        self.toolbox.warnings += hints.printed(program, result.value)
        given = replaced(self.room.mission.context, names)
        told = feedback.of_value(result.value, names, self.room.mission.firewall, [*given, *self.toolbox.warnings])
        return replace(outcome, context=context, feedback=told)

    def _may_ask_again(self, mistyped: list[str]) -> bool:
        """Return whether a doubtful return costs nothing but a turn: it is asked about once."""
        told = any(mistyped[0] in turn.feedback for turn in self.before.trace)
        last = self.number >= self.room.mission.options.max_turns or not self.room.scope.budget.left
        return not (told or last or self.toolbox.calls or self.room.mission.single_shot)

    def _returned(self, outcome: Outcome) -> Outcome:
        mission = self.room.mission
        mode = mission.options.signature_validation
        done = replace(outcome, end=End(value=outcome.value))
        if is_function(outcome.value):
            return self._refused_function(outcome)
        if mission.signature is None or mode == "disabled":
            return done
        problems = mission.signature.validate(outcome.value, strict=mode == "strict")
        if not problems:
            return done
        said = "The returned value does not fit the signature: " + "; ".join(map(str, problems))
        if mode == "warn_only":
            self.toolbox.warnings.append(said)
            return done
        details = {"problems": [{"path": each.path, "message": each.message} for each in problems]}
        fail = Fail(reason="validation_error", message=said, details=details)
        if mission.single_shot:
            return replace(outcome, error=fail, end=End(fail=fail))
        told = feedback.of_return(outcome.value, problems, mission.signature, mission.firewall)
        return replace(outcome, error=fail, feedback=told)

    def _refused_function(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a turn whose program returned a function; as of any value refused, memory stays."""
        fail = Fail(reason="validation_error", message="The returned value is a function, which is no data")
        refused = replace(outcome, value=None, error=fail)
        if self.room.mission.single_shot:
            return replace(refused, end=End(fail=fail))
        return replace(refused, feedback=feedback.of_function(self.room.mission.firewall, self.toolbox.warnings))

    def _nothing(self, fail: Fail, *, ending: bool = False) -> Outcome:
        """Return the outcome of a turn without a value."""
        end = End(fail=fail) if ending else None
        return Outcome(error=fail, context=self.before.context, memory=self.before.memory, end=end)

    def _ended(self, text: str, said: response.Response, outcome: Outcome) -> tuple[Progress, End | None]:
        room = self.room
        told = "" if outcome.end else self._with_turns_left(outcome.feedback)
        usage = room.scope.spent.minus(self.spent)
        took = round((room.runtime.monotonic() - self.started) * 1000)
        error = outcome.error or (outcome.end.fail if outcome.end else None)
        turn = Turn(
            number=self.number,
            program=said.program,
            lisp_value=outcome.value,
            error=error,
            tool_calls=tuple(self.toolbox.calls),
            feedback=told,
            usage=replace(usage, duration_ms=took),
            started_at=self.started_at,
            duration_ms=took,
            reasoning=said.reasoning,
        )
        self._tell(turn)
        messages: tuple[Message, ...] = self.before.messages
        if text or told:
            messages += ({"role": "assistant", "content": text if text.strip() else "(nothing)"},)
        if told:
            messages += ({"role": "user", "content": told},)
        after = Progress(
            turn=self.number,
            context=outcome.context,
            memory=outcome.memory,
            messages=messages,
            trace=(*self.before.trace, turn),
            failures=self.before.failures + 1 if outcome.error else 0,
            warnings=(*self.before.warnings, *self.toolbox.warnings),
        )
        return after, outcome.end

    def _with_turns_left(self, told: str) -> str:
        left = feedback.turns_left(self.number, self.room.mission.options.max_turns, self.room.scope.budget.left)
        return f"{told}\n\n{left}" if left else told

    def _tell(self, turn: Turn) -> None:
        numbers = {
            "duration_ms": turn.duration_ms,
            "input_tokens": turn.usage.input_tokens,
            "output_tokens": turn.usage.output_tokens,
            "tool_calls": len(turn.tool_calls),
        }
        about = {
            "turn": turn.number,
            "program": turn.program,
            "reasoning": turn.reasoning,
            "feedback": turn.feedback or None,
            "ok": turn.error is None,
            "reason": turn.error.reason if turn.error else None,
            "message": turn.error.message if turn.error else None,
            "tool_calls": turn.tool_calls,
        }
        self.room.runtime.tell("turn_stop", self.span, self.room.span, numbers, about)
