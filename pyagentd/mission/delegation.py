"""Delegating a mission: the function that everything else is about.

``delegate`` is synchronous and needs nothing but a callback; ``adelegate`` runs it in a thread and awaits coroutines
on the caller's loop. Called inside a tool of a mission, either becomes a mission below it and spends its budget.
"""

import inspect
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ParamSpec

from pyagentd.errors import PyagentdError, UserError
from pyagentd.lisp import encoding, values
from pyagentd.mission import checkpoint, checks, turn
from pyagentd.mission import step as trace
from pyagentd.mission.budget import Budget, Scope, current, entered
from pyagentd.mission.checkpoint import CheckpointError, State
from pyagentd.mission.checks import ReadyMission, Refused, prepare
from pyagentd.mission.options import (
    MAX_TURNS,
    MEMORY_BYTES,
    MISSION_TIMEOUT_MS,
    PROGRAM_TIMEOUT_MS,
    Isolation,
    Message,
    Options,
    PromptLimit,
    Request,
    Retry,
    ValidationMode,
    options_of,
)
from pyagentd.mission.prompt import Brief, system_prompt
from pyagentd.mission.runtime import Bridge, Runtime, run_here
from pyagentd.mission.step import Fail, Step
from pyagentd.mission.telemetry import Listener, new_span
from pyagentd.mission.turn import End, Progress, Room

# One mission from its order to its step: checked, placed in the tree, run, closed.

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What somebody asked for; the attributes are those of ``delegate``."""

    prompt: str
    llm: Any
    signature: Any = None
    tools: Any = None
    tool_catalog: Any = None
    context: Any = None
    context_signature: Any = None
    memory: Mapping[str, Any] | None = None
    models: Mapping[str, Any] | None = None
    budget: Budget | None = None
    checkpoint_dir: str | Path | None = None
    resume_from: State | str | Path | None = None
    on_checkpoint: Callable[[State], None] | None = None
    options: Options = field(default_factory=Options)


def run(order: Order, runtime: Runtime) -> Step:
    """Run the mission and return its end."""
    around = current()
    if around:  # its end is the end of those below it, and its listener and event loop serve those that have no own
        own, above = runtime.cancelled, around.cancelled
        runtime = replace(
            runtime,
            cancelled=lambda: own() or above(),
            listener=runtime.listener or around.telemetry,
            awaited=runtime.awaited if runtime.awaited is not run_here else around.awaited or run_here,
        )
    span, parent = new_span(), around.span_id if around else None
    about = {"prompt": order.prompt, "depth": around.depth + 1 if around else 0}
    runtime.tell("mission_start", span, parent, metadata=about)
    started = runtime.monotonic()
    step = _step(order, runtime, around, span)
    step = replace(step, usage=replace(step.usage, duration_ms=round((runtime.monotonic() - started) * 1000)))
    if around:
        around.ended(step)
    outcome = {"ok": step.ok, "reason": step.fail.reason if step.fail else None, "step": step}
    runtime.tell("mission_stop", span, parent, trace.usage_to_json(step.usage), {**about, **outcome})
    return step


def _step(order: Order, runtime: Runtime, around: Scope | None, span: str) -> Step:
    try:
        resumed = checkpoint.load(order.resume_from, order.checkpoint_dir) if order.resume_from is not None else None
        mission = _mission(order, around)
    except Refused as refused:
        return Step(ok=False, fail=refused.fails[0])
    except CheckpointError as error:
        return Step(ok=False, fail=Fail(reason="checkpoint_error", message=str(error)))
    scope = _scope(order, mission, runtime, around, resumed)
    signature = mission.signature.render() if mission.signature else None
    if scope.depth > scope.budget.depth:
        message = f"Missions can be nested {scope.budget.depth} levels deep, and this one would be deeper"
        return Step(ok=False, fail=Fail(reason="max_depth_exceeded", message=message), signature=signature)
    return _Running(order, mission, scope, span, runtime, signature).run(resumed)


def _mission(order: Order, around: Scope | None) -> ReadyMission:
    return prepare(
        order.prompt,
        llm=order.llm,
        signature=order.signature,
        tools=order.tools,
        tool_catalog=order.tool_catalog,
        context=order.context,
        context_signature=order.context_signature,
        memory=order.memory,
        models=order.models if order.models is not None or around is None else around.models,
        caller=around.llm if around else None,
        options=order.options,
    )


def _scope(
    order: Order, mission: ReadyMission, runtime: Runtime, around: Scope | None, resumed: State | None
) -> Scope:
    options = mission.options
    before = resumed.budget if resumed else {}
    own = float("inf")
    if options.mission_timeout_ms is not None:
        own = runtime.monotonic() + (options.mission_timeout_ms - before.get("elapsed_ms", 0)) / 1000
    shared = order.budget or (around.budget if around else None)
    scope = Scope(
        budget=shared or Budget(used=int(before.get("turns_used", 0))),
        depth=around.depth + 1 if around else 0,
        deadline=min(own, around.deadline) if around else own,
        max_cost_usd=options.max_cost_usd,
        llm=mission.llm,
        models=order.models or (around.models if around else {}),
        signature_validation=options.signature_validation,
        firewall=mission.firewall,
        telemetry=runtime.listener,
        parent=around,
        cancelled=runtime.cancelled,
        awaited=runtime.awaited,
    )
    if resumed:
        scope.resume(trace.usage_from_json(resumed.usage))
    return scope


@dataclass(frozen=True, slots=True)
class _Running:
    """A mission that has its place in the tree."""

    order: Order
    mission: ReadyMission
    scope: Scope
    span: str
    runtime: Runtime
    signature: str | None

    def run(self, resumed: State | None) -> Step:
        mission = self.mission
        room = Room(mission=mission, system=self._system(), scope=self.scope, span=self.span, runtime=self.runtime)
        started = self.runtime.monotonic()
        elapsed = (resumed.budget.get("elapsed_ms", 0) if resumed else 0) / 1000
        before = self._start(resumed)
        with entered(self.scope):
            progress, end = turn.run(room, before, lambda now: self._between(now, started - elapsed))
        if self.scope.parent and self.scope.parent.firewall:
            self.scope.parent.firewall.adopt(mission.firewall)
        return self._closed(progress, end)

    def _system(self) -> str:
        mission = self.mission
        brief = Brief(
            mission=mission.text,
            context=mission.context,
            memory=mission.memory,
            declared=mission.declared,
            returns=mission.signature.returns_only() if mission.signature else None,
            tools=mission.tools,
            catalog=mission.catalog,
            options=mission.options,
            single_shot=mission.single_shot,
        )
        return system_prompt(brief, mission.firewall)

    def _start(self, resumed: State | None) -> Progress:
        mission = self.mission
        if resumed is None:
            first: Message = {"role": "user", "content": mission.text}
            return Progress(
                context=mission.context, memory=mission.memory, messages=(first,), warnings=mission.warnings
            )
        done = tuple(trace.turn_from_json(each) for each in resumed.trace)
        for finished in done:
            for call in finished.tool_calls:
                mission.firewall.learn(call.lisp_result)
        mission.firewall.guard(dict(resumed.context))
        mission.firewall.guard(dict(resumed.memory))
        return Progress(
            turn=resumed.turn,
            context=resumed.context,
            memory=resumed.memory,
            messages=tuple(Message(role=each["role"], content=each["content"]) for each in resumed.messages),
            trace=done,
            failures=resumed.consecutive_failures,
            warnings=mission.warnings,
        )

    def _between(self, progress: Progress, started: float) -> None:
        """Write the checkpoint of a turn; one that cannot be written does not cost the mission."""
        order = self.order
        if order.checkpoint_dir is None and order.on_checkpoint is None:
            return
        state = self._state(progress, started)
        try:
            if order.checkpoint_dir is not None:
                checkpoint.save(order.checkpoint_dir, state)
            if order.on_checkpoint is not None:
                order.on_checkpoint(state)
        except PyagentdError as error:
            _log.warning("The checkpoint of turn %d could not be kept: %s", progress.turn, error)

    def _state(self, progress: Progress, started: float) -> State:
        spent = self.scope.spent
        return State(
            prompt=self.order.prompt,
            signature=self.signature,
            turn=progress.turn,
            memory=progress.memory,
            context=progress.context,
            messages=tuple(dict(each) for each in progress.messages),
            usage=trace.usage_to_json(spent),
            budget={
                "turns_used": self.scope.budget.used,
                "cost_usd": spent.cost_usd,
                "elapsed_ms": round((self.runtime.monotonic() - started) * 1000),
            },
            trace=tuple(map(trace.turn_to_json, progress.trace)),
            consecutive_failures=progress.failures,
        )

    def _closed(self, progress: Progress, end: End) -> Step:
        usage = replace(self.scope.spent, memory_bytes=encoding.size(dict(progress.memory)) if progress.memory else 0)
        return Step(
            ok=end.fail is None,
            value=values.to_python(end.value),
            lisp_value=end.value,
            fail=end.fail,
            memory=values.to_python(dict(progress.memory)),
            signature=self.signature,
            trace=progress.trace,
            usage=usage,
            lisp_context=progress.context,
            warnings=tuple(dict.fromkeys(progress.warnings)),
        )


def delegate(
    prompt: str,
    *,
    llm: Any,
    signature: Any = None,
    tools: Any = None,
    tool_catalog: Any = None,
    context: Any = None,
    context_signature: Any = None,
    memory: Mapping[str, Any] | None = None,
    max_turns: int = MAX_TURNS,
    timeout_ms: int = PROGRAM_TIMEOUT_MS,
    mission_timeout_ms: int | None = MISSION_TIMEOUT_MS,
    prompt_limit: PromptLimit | Mapping[str, int] | None = None,
    llm_retry: Retry | Mapping[str, Any] | None = None,
    signature_validation: ValidationMode = "enabled",
    max_cost_usd: float | None = None,
    max_consecutive_failures: int | None = None,
    checkpoint_dir: str | Path | None = None,
    resume_from: State | str | Path | None = None,
    on_checkpoint: Callable[[State], None] | None = None,
    memory_bytes: int = MEMORY_BYTES,
    isolation: Isolation = "none",
    tool_time_counts: bool = True,
    system_prompt: str | Callable[[str], str] | Mapping[str, str] | None = None,
    llm_opts: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    telemetry: Listener | None = None,
    cancelled: Callable[[], bool] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    epoch: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Step:
    """Have a model fulfil ``prompt`` by writing programs, and return how that ended.

    Args:
        prompt: The mission; ``{{name}}`` stands for a value of the context.
        llm: The callback, or the name of a model in the registry. It gets a ``Request`` and gives text or
            ``{"content", "tokens", "cost_usd"}``; whatever it raises is a failure that is retried.
        signature: The contract: ``"(query :string) -> {count :int, _ids [:int]}"``, a type, or None for any result.
        tools: What programs can call, by name.
        tool_catalog: What is shown for planning only.
        context: What programs find in ``ctx/``; a ``Step`` passes on its value and signature.
        context_signature: The types of the context.
        memory: What programs find in ``memory/``.
        max_turns: Answers of the model before the mission has failed.
        timeout_ms: Of one program.
        mission_timeout_ms: Of the mission; None for no limit of its own.
        prompt_limit: How much of a large value the model is shown.
        llm_retry: When a failing callback is called again.
        signature_validation: ``enabled``; ``warn_only``; ``disabled``; ``strict``, which also refuses undeclared
            fields, tools without a signature and a context without its fields.
        max_cost_usd: What the mission and those below it may cost.
        max_consecutive_failures: Failed turns in a row before it gives up.
        checkpoint_dir: Where a file is written after every turn.
        resume_from: A checkpoint to go on from: a state, a file, or a name in ``checkpoint_dir``.
        on_checkpoint: Gets the state after every turn.
        memory_bytes: Size of the program's memory.
        isolation: ``process`` runs programs in a process of their own.
        tool_time_counts: Whether the time inside tools counts against ``timeout_ms``.
        system_prompt: Instead of the generated one; a function of it; or a mapping with ``prefix``, ``suffix``,
            ``language_spec``, ``output_format``.
        llm_opts: Passed on to the callback.
        models: The registry that names are looked up in, before the process-wide one.
        budget: The turns of a whole tree of missions; by default that of the mission around, or 20 turns.
        telemetry: Told of every event; by default the listener of the mission around.
        cancelled: Asked now and then; true ends the mission.
        monotonic: Seconds, for deadlines.
        epoch: Seconds since the epoch, for facts.
        sleep: Waits between retries.

    Returns:
        The step; it never raises for what the mission, its model or its tools do.
    """
    return _run({**locals()}, Runtime())


_P = ParamSpec("_P")


def _as(sync: Callable[_P, Step]) -> Callable[[Callable[..., Any]], Callable[_P, Coroutine[Any, Any, Step]]]:
    """Return a decorator for a function with the parameters of ``sync``."""

    def made(function: Callable[..., Any]) -> Callable[_P, Coroutine[Any, Any, Step]]:
        function.__signature__ = inspect.signature(sync)  # type: ignore[attr-defined]
        return function

    return made


@_as(delegate)
async def adelegate(*args: Any, **named: Any) -> Step:
    """Do what ``delegate`` does, without blocking the event loop; parameters and result are the same.

    Programs run in a thread. Coroutine functions as callback or tools are awaited here, on the caller's loop, where
    the listeners are called too. Cancelling it stops the program at its next check.
    """
    bound = inspect.signature(delegate).bind(*args, **named)
    bound.apply_defaults()
    given, bridge = bound.arguments, Bridge()
    for listener in ("telemetry", "on_checkpoint"):
        if given[listener] is not None:
            given[listener] = bridge.on_loop(given[listener])
    if given["sleep"] is time.sleep:
        given["sleep"] = bridge.sleep
    runtime = Runtime(awaited=bridge.awaited, cancelled=bridge.cancelled)
    return await bridge.run(lambda: _run(given, runtime))


def _run(given: Mapping[str, Any], runtime: Runtime) -> Step:
    """Run what the arguments of ``delegate`` say."""
    asked = given["cancelled"]
    ends = runtime.cancelled
    runtime = replace(
        runtime,
        monotonic=given["monotonic"],
        epoch=given["epoch"],
        sleep=given["sleep"],
        listener=given["telemetry"],
        cancelled=ends if asked is None else lambda: ends() or asked(),
    )
    named = {each.name: given[each.name] for each in fields(Order) if each.name in given}
    return run(Order(**named, options=options_of(**{**given, "llm_opts": given["llm_opts"] or {}})), runtime)


# A mission looked over without running it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What ``delegate`` would refuse.

    Attributes:
        problems: Each as the failure it would be; empty when the mission can run.
    """

    problems: tuple[Fail, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the mission can run."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return "\n".join(f"{each.reason}: {each.message}" for each in self.problems) or "nothing stands against it"


def validate(prompt: str, **options: Any) -> Validation:
    """Return what stands against ``delegate(prompt, **options)``: all of it, not only the first problem.

    Looked at are placeholders, signatures, names and kinds of tools, the context's types, the registry of models,
    and with ``signature_validation="strict"`` tools without a contract. Nothing is called; ``llm`` may be left out.
    """
    return Validation(problems=tuple(checks.problems(prompt, **options)))


# A mission's programs once more, without a model.
#
# What a model wrote once for one context runs again for another: the programs of a step, in their order, until one of
# them returns. Everything else is as in every mission: checking, limits, trace.


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Programs that fulfil a contract; calling it runs them.

    Attributes:
        programs: The source of each turn that had a program and did not fail.
        signature: What they return, or None.
    """

    programs: tuple[str, ...]
    signature: str | None = None

    def __call__(self, context: Any = None, **options: Any) -> Step:
        """Run them over ``context``; ``options`` are those of ``delegate``, ``tools`` above all."""
        asked = {"signature": self.signature, "max_turns": len(self.programs), **options}
        return delegate("(run again)", llm=self._llm(), context=context, **asked)

    def _llm(self) -> Callable[[Request], str]:
        left = iter(self.programs)

        def answer(request: Request) -> str:
            return f"```clojure\n{next(left)}\n```"

        return answer


def compiled(step: Step) -> Compiled:
    """Return the programs of ``step``, a success, for other contexts.

    Raises:
        UserError: The step failed, or it has no programs.
    """
    programs = tuple(turn.program for turn in step.trace if turn.program and turn.error is None)
    if not step.ok or not programs:
        raise UserError("Only a mission that succeeded has programs worth running again")
    return Compiled(programs=programs, signature=step.signature)
