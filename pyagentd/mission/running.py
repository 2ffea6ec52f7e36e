"""One mission from its order to its step: checked, placed in the tree, run, closed (SPEC 004 Execution Flow)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyagentd.errors import PyagentdError
from pyagentd.lisp import encoding, values
from pyagentd.mission import checkpoint, loop, trace
from pyagentd.mission.budget import Budget, Scope, current, entered
from pyagentd.mission.checkpoint import CheckpointError, State
from pyagentd.mission.checks import ReadyMission, Refused, prepare
from pyagentd.mission.options import Message, Options
from pyagentd.mission.progress import End, Progress
from pyagentd.mission.prompt import Brief, system_prompt
from pyagentd.mission.runtime import Runtime
from pyagentd.mission.step import Fail, Step
from pyagentd.mission.telemetry import new_span
from pyagentd.mission.turn import Room

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
    runtime = runtime.within(around)
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
            progress, end = loop.run(room, before, lambda now: self._between(now, started - elapsed))
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
        for call in (call for turn in done for call in turn.tool_calls):
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
            trace=tuple(trace.turn_to_json(turn) for turn in progress.trace),
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
