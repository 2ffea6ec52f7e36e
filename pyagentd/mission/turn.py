"""The turns of a mission: ask the model, run the program in its answer, send feedback; until the mission ends.

A mistake in a program is reported to the model and costs one turn.
"""

import asyncio
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from pyagentd import lisp
from pyagentd.errors import TransientProviderError, did_you_mean
from pyagentd.lisp import serialization, values
from pyagentd.lisp.builtins.functions import is_function
from pyagentd.lisp.errors import LispError
from pyagentd.lisp.values import Keyword, check_data
from pyagentd.mission import prompt, response
from pyagentd.mission.budget import Activity, Scope, call_within, may_block
from pyagentd.mission.checks import ReadyMission, named_entries
from pyagentd.mission.firewall import well_formed
from pyagentd.mission.options import LLM, LLMError, Message, Options, Request, Retry, seconds
from pyagentd.mission.runtime import error_text, new_span
from pyagentd.mission.step import Fail, Turn, Usage
from pyagentd.mission.tools import Tool, Toolbox
from pyagentd.words import quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A mission between two turns."""

    turn: int = 0  # the number of the last finished one
    context: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    trace: tuple[Turn, ...] = ()
    failures: int = 0  # failed turns in a row
    warnings: tuple[str, ...] = ()  # conversions, and mismatches under ``warn_only``


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a mission ended."""

    value: Any = None  # what it returned, as a value of the language
    result: Any = None  # the same as Python, of the type that the signature names
    fail: Fail | None = None


# A request to the model: calling the LLM callback, with retries, telemetry and cost.
#
# Retries. Only failures of the callback are retried: it raised, or returned something that is not an answer. Mistakes
# in the model's program (syntax, types, tools) are reported to the model; they cost a turn, not an attempt.

_T = TypeVar("_T")

LONGEST_WAIT_S = 60.0
"""The longest wait that a server's retry-after can ask for."""


class AttemptsFailed(Exception):
    """Every attempt failed, or the last failure must not be retried; it is the ``__cause__``."""

    def __init__(self, reason: str, message: str, attempts: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.attempts = attempts


def reason_of(error: BaseException) -> str:
    """Return the name of a callback's failure in ``retryable_errors``: such as ``rate_limit``."""
    match error:
        case LLMError(reason=reason):
            return reason
        case TimeoutError() | asyncio.TimeoutError():
            return "timeout"
        case TransientProviderError(retry_after=after) if after is not None:
            return "rate_limit"
        case ConnectionError() | TransientProviderError():
            return "server_error"
    status = getattr(error, "status_code", getattr(getattr(error, "response", None), "status_code", None))
    match status:
        case 408:
            return "timeout"
        case 429:
            return "rate_limit"
        case int() if status >= 500:
            return "server_error"
        case int() if status >= 400:
            return "client_error"
    return "unknown"


def delay_s(retry: Retry, failures: int) -> float:
    """Return the seconds to wait after ``failures`` failures in a row."""
    match retry.backoff:
        case "exponential":
            return seconds(retry.base_s) * 2.0 ** (failures - 1)
        case "linear":
            return seconds(retry.base_s) * failures


def with_retries(
    call: Callable[[], _T],
    retry: Retry,
    *,
    sleep: Callable[[float], None],
    seconds_left: Callable[[], float],
) -> _T:
    """Return the result of ``call``, retried as ``retry`` allows; any ``Exception`` is a failure.

    ``seconds_left`` returns how long the mission may still last; instead of a longer wait it gives up.

    Raises:
        AttemptsFailed: No attempt succeeded.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            return call()
        except Exception as error:
            reason = reason_of(error)
            after = getattr(error, "retry_after", None) or getattr(error.__cause__, "retry_after", None)
            asked = min(float(after), LONGEST_WAIT_S) if isinstance(after, int | float) else 0.0
            wait = max(delay_s(retry, attempt), asked)
            listed = retry.retryable_errors is None or reason in retry.retryable_errors
            hopeless = not listed or getattr(error, "final", False)
            if hopeless or attempt >= retry.max_attempts or wait >= seconds_left():
                raise AttemptsFailed(reason, error_text(error) or type(error).__name__, attempt) from error
        sleep(wait)


def ask(llm: LLM, request: Request, retry: Retry, *, scope: Scope, span: str) -> tuple[str, bool]:
    """Return the model's answer to ``request``, and whether the callback reports its cost.

    Its usage is counted for ``scope``; ``span`` is the turn's.

    Raises:
        AttemptsFailed: No attempt succeeded.
    """
    runtime = scope.runtime

    def attempt() -> tuple[str, bool]:
        own, started = new_span(), runtime.monotonic()
        runtime.emit("llm_start", own, span, metadata={"turn": request["turn"], "messages": len(request["messages"])})
        scope.spend(Usage(llm_requests=1))
        try:
            reply = call_within(scope, "the model", llm, request, blocks=may_block(llm, runtime))
            text, usage, reports_cost = _parse_answer(reply)
        except Exception as error:
            took = _ms(runtime.monotonic() - started)
            scope.add_time("model", took / 1000)
            about = {"turn": request["turn"], "reason": reason_of(error), "message": error_text(error)}
            runtime.emit("llm_exception", own, span, {"duration_ms": took}, about)
            raise
        scope.spend(usage)
        text = well_formed(text)
        numbers = {
            "duration_ms": _ms(runtime.monotonic() - started),
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cost_usd": usage.cost_usd,
        }
        scope.add_time("model", runtime.monotonic() - started)
        runtime.emit("llm_stop", own, span, numbers, {"turn": request["turn"], "content": text})
        return text, reports_cost

    return with_retries(
        attempt,
        retry,
        sleep=runtime.sleep,
        seconds_left=lambda: 0 if runtime.cancelled() else scope.deadline - runtime.monotonic(),
    )


def _parse_answer(reply: Any) -> tuple[str, Usage, bool]:
    """Return an answer's text and usage, and whether its cost is reported."""
    match reply:
        case str():
            return reply, Usage(), False
        case Mapping() if isinstance(reply.get("content"), str):
            tokens = reply.get("tokens") or {}
            cost = _number(reply.get("cost_usd"))
            counted = Usage(
                input_tokens=int(_count(tokens, "input") or 0),
                output_tokens=int(_count(tokens, "output") or 0),
                cost_usd=cost or 0.0,
            )
            return reply["content"], counted, cost is not None
    raise LLMError("invalid_answer", f'An LLM callback gives text or {{"content": text}}, got {type(reply).__name__}')


def _count(tokens: Any, name: str) -> float | None:
    if isinstance(tokens, Mapping):
        return _number(tokens.get(name) or tokens.get(f"{name}_tokens"))
    return _number(tokens) if name == "output" else None


def _number(reply: Any) -> float | None:
    """Return ``reply`` as a finite number from 0, or None; an invalid token count must not make an answer fail."""
    try:
        number = float(reply)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < math.inf else None


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


# The outcome of a program: its value added to the context, or its failure.

_NAME = re.compile(r"[A-Za-z0-9_*+!?<>=-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a program, with context and memory after it."""

    value: Any = None  # of the program, or what it returned
    error: Fail | None = None  # why the turn failed
    feedback: str = ""  # what the model reads next, without the line about the turns left
    context: Mapping[str, Any]
    memory: Mapping[str, Any]
    end: End | None = None  # of the mission, if the program ended it


def merge_result(context: Mapping[str, Any], value: Any) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the context with a program's ``value`` added, and the names under which it was added.

    The entries of a map become names of the context. Any other value is added as ``last``; so is a map with keys that
    cannot be written after ``ctx/``, such as groups by city or by e-mail.
    """
    if is_function(value):
        return context, ()
    by_name = named_entries(value) if isinstance(value, dict) else {}
    writable = {name: item for name, item in by_name.items() if _NAME.fullmatch(name)}
    if not writable or len(writable) < len(value):
        return {**context, "last": value, **writable}, ("last", *(name for name in writable if name != "last"))
    return {**context, **writable}, tuple(writable)


def fail_of(value: Any) -> Fail:
    """Return the failure that ``(call "fail" value)`` means; a value that is not a map becomes its message."""
    if type(value) is not dict:
        return Fail(reason="failed", message="The program gave up" if value is None else _words(value))
    reason, text, op = (values.find(value, Keyword(name), None) for name in ("reason", "message", "op"))
    plain = values.to_python(value)
    details = plain.get("details")
    rest = {key: item for key, item in plain.items() if key not in ("reason", "message", "op", "details")}
    return Fail(
        reason=_words(reason or "failed").removeprefix(":"),
        message=_words(text) if text else "The program gave no message",
        op=None if op is None else _words(op),
        details={
            **rest,
            **({} if details is None else details if isinstance(details, dict) else {"details": details}),
        },
    )


def _words(value: Any) -> str:
    """Return the text of a value in a failure: of a keyword its name, of data the notation of programs."""
    return value.name if type(value) is Keyword else serialization.text(value)


# Hints about mistakes in programs that depend on the mission: its tools, its data, earlier programs.

_UNDEFINED: Final = re.compile(r"undefined variable: (\S+)")
_DEFINES: Final = re.compile(r"\(def(?:n-?|once)?\s+([^\s()\[\]{}\"]+)")
_READS: Final = re.compile(r"(?<![\w\"/])ctx/([\w*+!?<>=-]+)")
_PRINTS: Final = re.compile(r"\((?:println|print|prn|pr|tap>)[\s)]")
_NEAR: Final = 0.8


def with_hint(error: LispError, tools: Mapping[str, Tool], before: Iterable[str | None]) -> LispError:
    """Return ``error`` with a hint about what to write instead of an undefined name, if there is one.

    ``tools`` are those that the mission offers or shows, ``before`` its earlier programs.
    """
    unknown = _UNDEFINED.fullmatch(error.message)
    hint = unknown and _hint_for(unknown[1], tools, before)
    if not hint:
        return error
    made = LispError(error.reason, error.message, hint=hint)
    return made.at(error.line, error.column, error.source)


def _hint_for(name: str, tools: Mapping[str, Tool], before: Iterable[str | None]) -> str:
    for spelled in (name, name.removeprefix("tool/"), name.removeprefix("tools/"), name.replace("-", "_")):
        if spelled in tools:
            signature = tools[spelled].signature
            args = " ".join(f":{each.name} …" for each in signature.params) if signature else "…"
            return f'Call a tool as (call "{spelled}" {{{args}}}).'
    if any(name in _DEFINES.findall(program) for program in before if program):
        return (
            f"What def names lasts for one program. Define it again, or keep data with (memory/put :{name} …) "
            f"and read memory/{name} in later programs."
        )
    return ""


def mistyped_names(program: str, context: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each name that a program reads from the context and has probably mistyped."""
    found = []
    for name in dict.fromkeys(_READS.findall(program)):
        if name in context:
            continue
        if meant := did_you_mean(name, context, shown="ctx/{}", inside=True, cutoff=_NEAR):
            found.append(f"There is no ctx/{name}, it is nil; {meant}")
    return found


# Limits: the mission's own, those of its parents, and cancellation.


def stop_before_turn(progress: Progress, options: Options, scope: Scope) -> Fail | None:
    """Take a turn from the budget and return None, or return why the mission may not take another one."""
    limit = options.max_consecutive_failures
    if limit is not None and progress.failures >= limit:
        return _stop("max_consecutive_failures_exceeded", f"{quantity(limit, 'turn')} in a row failed", progress)
    if progress.turn >= options.max_turns:
        message = f"The mission did not end within {quantity(options.max_turns, 'turn')}"
        return _stop("max_turns_exceeded", message, progress)
    if fail := limit_reached(scope):
        return fail
    if not scope.budget.take_turn():
        message = f"The mission and its children used all of their {quantity(scope.budget.turns, 'turn')}"
        return _stop("turn_budget_exhausted", message, progress)
    scope.spend(Usage(turns=1))
    return None


def limit_reached(scope: Scope) -> Fail | None:
    """Return why the mission must end now, even within a turn, or None."""
    if scope.runtime.cancelled():
        return Fail(reason="cancelled", message="The mission was cancelled")
    if scope.runtime.monotonic() >= scope.deadline:
        return _out_of_time(scope)
    if over := scope.over_cost_limit():
        message = f"The mission cost ${over.spent.cost_usd:.4f}, and ${over.max_cost_usd:g} is the most"
        return Fail(reason="max_cost_exceeded", message=message)
    return None


_FASTER: Final[dict[Activity, str]] = {
    "model": "Allow more time (mission_timeout_s), take a faster model, or ask for less in one mission",
    "tools": "Allow more time (mission_timeout_s), or call fewer or faster tools",
    "programs": "Allow more time (mission_timeout_s), or give the mission less data",
}


def _out_of_time(scope: Scope) -> Fail:
    """Return the failure of a mission at its deadline: which deadline, and where the time went."""
    spent = {each: scope.times.get(each, 0.0) for each in _FASTER}
    limit = "what was left of its parent's time" if scope.limit_ms is None else f"{scope.limit_ms / 1000:g} s"
    took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in spent.items())
    left = "".join(f". {each[0].upper()}{each[1:]}" for each in scope.left_behind)
    most = max(_FASTER, key=lambda each: spent[each])
    return Fail(
        reason="mission_timeout",
        message=f"The mission exceeded its time limit, {limit} ({took}). {_FASTER[most]}{left}",
        details={
            "clock": "mission",
            "limit_ms": scope.limit_ms,
            **{f"{name}_ms": round(seconds * 1000) for name, seconds in spent.items()},
            **({"left_behind": list(scope.left_behind)} if scope.left_behind else {}),
        },
    )


def _stop(reason: str, message: str, progress: Progress) -> Fail:
    """Return a failure of the whole mission that also names the error of its last turn."""
    last = progress.trace[-1].error if progress.trace else None
    if last is None:
        return Fail(reason=reason, message=message)
    details = {"last_error": {"reason": last.reason, "message": last.message}}
    return Fail(reason=reason, message=f"{message}; the last one failed: {last.message}", details=details)


class _TurnRun:
    """One turn in progress."""

    def __init__(self, mission: ReadyMission, scope: Scope, before: Progress, mission_span: str) -> None:
        self.mission, self.scope, self.before, self.mission_span = mission, scope, before, mission_span
        self.number, self.span = before.turn + 1, new_span()
        self.toolbox = Toolbox(
            tools=mission.tools,
            catalog=mission.catalog,
            validation=mission.options.signature_validation,
            firewall=mission.firewall,
            scope=scope,
            span=self.span,
        )
        self.started_at = scope.runtime.now_ms()
        self.started = scope.runtime.monotonic()
        self.spent = scope.spent.minus(Usage(turns=1))  # the turn was taken from the budget before it started

    def take(self, system: str) -> tuple[Progress, End | None]:
        mission, scope = self.mission, self.scope
        scope.runtime.emit("turn_start", self.span, self.mission_span, metadata={"turn": self.number})
        request: Request = {
            "system": system,
            "messages": [*self.before.messages],
            "turn": self.number,
            "prompt": mission.text,
            "tool_names": [*mission.tools],
            "llm_opts": dict(mission.options.llm_opts),
        }
        retry = mission.options.llm_retry
        try:
            text, reports_cost = ask(mission.llm, request, retry, scope=scope, span=self.span)
        except AttemptsFailed as error:
            message = f"The model did not answer after {quantity(error.attempts, 'attempt')}: {error}"
            details = {"reason": error.reason, "attempts": error.attempts}
            late = limit_reached(scope)
            fail = late or Fail(reason="llm_error", message=message, details=details)
            return self._finish("", response.Response(program=None), self._no_value(fail, ending=True))
        answer = response.parse(text)
        if scope.limits_cost() and not reports_cost:
            message = 'max_cost_usd needs an LLM that says what an answer costs: {"content": …, "cost_usd": …}'
            refused: Fail | None = Fail(reason="validation_error", message=message)
        else:
            refused = limit_reached(scope)
        outcome = self._no_value(refused, ending=True) if refused else self._outcome(answer, text)
        return self._finish(text, answer, outcome)

    def _outcome(self, answer: response.Response, text: str) -> Outcome:
        if answer.program is None:
            fail = Fail(reason="no_program", message="The answer had no program")
            return replace(self._no_value(fail), feedback=prompt.no_program_feedback(text))
        about = {"turn": self.number, "program": answer.program, "reasoning": answer.reasoning}
        self.scope.runtime.emit("program_start", self.span, self.mission_span, metadata=about)
        try:
            result = self._run(answer.program)
        except LispError as error:
            late = limit_reached(self.scope) if error.reason == "timeout" else None
            if late:
                return self._no_value(late, ending=True)
            earlier = [turn.program for turn in self.before.trace]
            tools = {**self.mission.catalog, **self.mission.tools}
            return self._error_outcome(with_hint(error, tools, earlier))
        return self._value_outcome(result, answer.program)

    def _run(self, program: str) -> lisp.Result:
        scope, options, monotonic = self.scope, self.mission.options, self.scope.runtime.monotonic
        started, in_tools = monotonic(), scope.times.get("tools", 0.0)
        left_ms = (scope.deadline - started) * 1000
        limits = lisp.Limits(
            timeout_ms=max(1, int(min(seconds(options.timeout_s) * 1000, left_ms))),
            memory_bytes=options.memory_bytes,
            tool_time_counts=options.tool_time_counts,
            parallel=options.parallel,
        )
        try:
            result = lisp.compile(program).run(
                self.before.context,
                self.before.memory,
                tools=self.toolbox.call,
                limits=limits,
                cancelled=lambda: scope.runtime.cancelled() or monotonic() >= scope.deadline,
                isolation=options.isolation,
            )
            try:
                if not is_function(result.value):  # a function is not kept
                    check_data(result.value)
            except LispError as error:
                error.undone = result.put
                raise
            return result
        finally:
            self.toolbox.warnings += self.toolbox.noticed.items
            waited = scope.times.get("tools", 0.0) - in_tools
            scope.add_time("programs", max(0.0, monotonic() - started - waited))

    def _error_outcome(self, error: LispError) -> Outcome:
        details = {} if error.line is None else {"line": error.line, "column": error.column}
        fail = Fail(reason=error.reason, message=error.message, details=details)
        called = [call.name for call in self.toolbox.calls if call.error is None]
        feedback = prompt.error_feedback(error, self.mission.firewall, self.toolbox.warnings, called=called)
        return self._fail_turn(self._no_value(fail), fail, feedback)

    def _value_outcome(self, result: lisp.Result, program: str) -> Outcome:
        outcome = Outcome(value=result.value, context=self.before.context, memory=result.memory)
        self.mission.firewall.learn_from_program(result.value)
        mistyped = mistyped_names(program, self.before.context)
        self.toolbox.warnings += mistyped
        # The model is asked about a doubtful return once, and only if that costs no more than a turn.
        already_asked = any(each in turn.feedback for each in mistyped[:1] for turn in self.before.trace)
        last = self.number >= self.mission.options.max_turns or not self.scope.budget.left
        may_ask = not (already_asked or last or self.toolbox.calls or self.mission.single_shot)
        match result.signal:
            case "fail":
                return replace(outcome, end=End(fail=fail_of(result.value)))
            case "return" if mistyped and may_ask:
                fail = Fail(reason="validation_error", message=" ".join(mistyped))
                feedback = prompt.mistyped_feedback(mistyped, self.mission.firewall)
                return self._fail_turn(outcome, fail, feedback)
            case "return":
                return self._return_outcome(outcome)
        if self.mission.single_shot:
            return self._return_outcome(outcome)
        context, names = merge_result(self.before.context, result.value)
        if result.value is None and _PRINTS.search(program):
            self.toolbox.warnings.append(
                "What is printed is not shown; you read what a program evaluates to, so end it with what you want "
                "to see"
            )
        given = [
            f"ctx/{name} now holds the result of this program; its earlier value is gone"
            for name in names
            if name in self.mission.context and name != "last"
        ]
        feedback = prompt.value_feedback(result.value, names, self.mission.firewall, [*given, *self.toolbox.warnings])
        return replace(outcome, context=context, feedback=feedback)

    def _return_outcome(self, outcome: Outcome) -> Outcome:
        mission, mode = self.mission, self.mission.options.signature_validation
        if is_function(outcome.value):
            message, hint = "The returned value is a function, which is not data", "Call it and return what it gives."
            error = LispError("validation_error", message, hint=hint)
            feedback = prompt.error_feedback(error, mission.firewall, self.toolbox.warnings)
            fail = Fail(reason="validation_error", message=message)
            return self._fail_turn(replace(outcome, value=None), fail, feedback)
        done = replace(outcome, end=End(value=outcome.value, result=values.to_python(outcome.value)))
        if mission.signature is None or mode == "disabled":
            return done
        problems = mission.signature.validate(outcome.value, strict=mode == "strict")
        if not problems:
            result, problems = mission.signature.instance(values.to_python(outcome.value))
            done = replace(done, end=End(value=outcome.value, result=result))
        if not problems:
            return done
        message = "The returned value does not fit the signature: " + "; ".join(map(str, problems))
        if mode == "warn_only":
            self.toolbox.warnings.append(message)
            return done
        details = {"problems": [{"path": each.path, "message": each.message} for each in problems]}
        fail = Fail(reason="validation_error", message=message, details=details)
        feedback = prompt.mismatch_feedback(outcome.value, problems, mission.signature, mission.firewall)
        return self._fail_turn(outcome, fail, feedback)

    def _fail_turn(self, outcome: Outcome, fail: Fail, feedback: str) -> Outcome:
        """Return the outcome of a failed turn: the model reads the feedback, or the mission ends if it cannot."""
        if self.mission.single_shot:
            return replace(outcome, error=fail, end=End(fail=fail))
        return replace(outcome, error=fail, feedback=feedback)

    def _no_value(self, fail: Fail, *, ending: bool = False) -> Outcome:
        """Return the outcome of a turn without a value."""
        end = End(fail=fail) if ending else None
        return Outcome(error=fail, context=self.before.context, memory=self.before.memory, end=end)

    def _finish(self, text: str, answer: response.Response, outcome: Outcome) -> tuple[Progress, End | None]:
        scope, feedback = self.scope, ""
        if not outcome.end:
            left = prompt.turns_left(self.number, self.mission.options.max_turns, scope.budget.left)
            feedback = f"{outcome.feedback}\n\n{left}" if left else outcome.feedback
        usage = scope.spent.minus(self.spent)
        took = _ms(scope.runtime.monotonic() - self.started)
        error = outcome.error or (outcome.end.fail if outcome.end else None)
        turn = Turn(
            number=self.number,
            program=answer.program,
            lisp_value=outcome.value,
            error=error,
            tool_calls=tuple(self.toolbox.calls),
            feedback=feedback,
            usage=replace(usage, duration_ms=took),
            started_at=self.started_at,
            duration_ms=took,
            reasoning=answer.reasoning,
        )
        numbers = {
            "duration_ms": took,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "tool_calls": len(turn.tool_calls),
        }
        about = {
            "turn": turn.number,
            "program": turn.program,
            "reasoning": turn.reasoning,
            "feedback": turn.feedback or None,
            "ok": error is None,
            "reason": error.reason if error else None,
            "message": error.message if error else None,
            "tool_calls": turn.tool_calls,
        }
        scope.runtime.emit("turn_stop", self.span, self.mission_span, numbers, about)
        messages: tuple[Message, ...] = self.before.messages
        if text or feedback:
            messages += ({"role": "assistant", "content": text if text.strip() else "(nothing)"},)
        if feedback:
            messages += ({"role": "user", "content": feedback},)
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


def run(
    mission: ReadyMission, scope: Scope, span: str, progress: Progress, between: Callable[[Progress], None]
) -> tuple[Progress, End]:
    """Take turns until the mission ends; call ``between`` after every turn that did not end it."""
    system = prompt.system_prompt(mission)
    while True:
        if fail := stop_before_turn(progress, mission.options, scope):
            return progress, End(fail=fail)
        progress, end = _TurnRun(mission, scope, progress, span).take(system)
        if end:
            return progress, end
        between(progress)
