"""Delegating a mission: the function that everything else is about (SPEC 004 PtcRunner.SubAgent).

``delegate`` is synchronous and needs nothing but a callback; ``adelegate`` runs it in a thread and awaits coroutines
on the caller's loop. Called inside a tool of a mission, either becomes a mission below it and spends its budget.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ParamSpec

from pyagentd.mission.bridge import Bridge
from pyagentd.mission.budget import Budget
from pyagentd.mission.checkpoint import State
from pyagentd.mission.options import (
    MAX_TURNS,
    MEMORY_BYTES,
    MISSION_TIMEOUT_MS,
    PROGRAM_TIMEOUT_MS,
    Isolation,
    PromptLimit,
    Retry,
    Validation,
    options_of,
)
from pyagentd.mission.running import Order, run
from pyagentd.mission.runtime import Runtime
from pyagentd.mission.step import Step
from pyagentd.mission.telemetry import Listener


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
    signature_validation: Validation = "enabled",
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
