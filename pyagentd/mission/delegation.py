"""``delegate``: run a mission. Also its dry run, and running its programs again without a model.

``delegate`` is synchronous; ``adelegate`` runs it in a thread and awaits coroutines on the caller's event loop.
Called inside a tool of a mission, either runs a child of that mission, within its budget.
"""

import asyncio
import logging
import re
import sqlite3
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial
from typing import Any, Generic, Unpack, cast, overload

from pyagentd.errors import PyagentdError, UserError
from pyagentd.lisp import serialization, values
from pyagentd.mission import checkpoint, checks, template, turn
from pyagentd.mission import signature as signatures
from pyagentd.mission import step as trace
from pyagentd.mission.budget import Budget, Scope, current, current_call, enter
from pyagentd.mission.checkpoint import CheckpointError, State
from pyagentd.mission.checks import CannotStart, ReadyMission, prepare
from pyagentd.mission.options import (
    Arguments,
    Context,
    DelegateOptions,
    Message,
    ModelLike,
    Request,
    ToolLike,
    arguments_of,
    check_known,
    seconds,
)
from pyagentd.mission.runtime import Bridge, Runtime, error_text, new_span, run_here
from pyagentd.mission.signature import ANY, Field, Signature
from pyagentd.mission.step import Fail, Step, T, Usage, failed_step
from pyagentd.mission.tools import LLMTool, Tool, normalize
from pyagentd.mission.turn import Progress

_log = logging.getLogger(__name__)


MAX_CONCURRENCY = 8


def _run(given: Mapping[str, Any], runtime: Runtime) -> Step[Any]:
    """Run a mission, given the arguments of ``delegate``; in a tool of another mission, as a child of that one."""
    check_known(given)
    args, parent, call = arguments_of(given), current(), current_call()
    services = {name: given[name] for name in ("monotonic", "epoch", "sleep") if name in given}
    stops = [runtime.cancelled, given.get("cancelled"), parent.runtime.cancelled if parent else None]
    runtime = replace(
        runtime,
        **services,
        listener=given.get("telemetry"),
        cancelled=lambda: any(stop() for stop in stops if stop),
    )
    if parent:  # without a listener or event loop a child uses its parent's
        runtime = replace(
            runtime,
            listener=runtime.listener or parent.runtime.listener,
            wait_for=runtime.wait_for if runtime.wait_for is not run_here else parent.runtime.wait_for,
        )
    span, parent_span = new_span(), call.span_id if call else None
    about = {"prompt": args.prompt, "depth": parent.depth + 1 if parent else 0}
    runtime.emit("mission_start", span, parent_span, metadata=about)
    started = runtime.monotonic()
    if call:
        call.start_child()
    step = _step(args, runtime, parent, span)
    step = replace(step, usage=replace(step.usage, duration_ms=round((runtime.monotonic() - started) * 1000)))
    if call:
        call.add_child(step)
    outcome = {"ok": step.ok, "reason": step.fail.reason if step.fail else None, "step": step}
    runtime.emit("mission_stop", span, parent_span, trace.usage_to_json(step.usage), {**about, **outcome})
    return step


def _step(args: Arguments, runtime: Runtime, parent: Scope | None, span: str) -> Step[Any]:
    try:
        resumed = checkpoint.load(args.resume_from, args.checkpoint_dir) if args.resume_from is not None else None
        models = args.models if args.models is not None or parent is None else parent.models
        mission = prepare(args, models, caller=parent.llm if parent else None)
    except CannotStart as error:
        return Step(ok=False, fail=error.fails[0])
    except CheckpointError as error:
        return failed_step("checkpoint_error", str(error))
    scope = _scope(args, mission, runtime, parent, resumed)
    signature = mission.signature.render() if mission.signature else None
    if scope.depth > scope.budget.depth:
        message = f"Missions can be nested {scope.budget.depth} levels deep, and this one would be deeper"
        return Step(ok=False, fail=Fail(reason="max_depth_exceeded", message=message), signature=signature)
    elapsed_ms = resumed.budget.get("elapsed_ms", 0) if resumed else 0
    started = runtime.monotonic() - elapsed_ms / 1000
    asked: Message = {"role": "user", "content": mission.text}
    first = Progress(context=mission.context, memory=mission.memory, messages=(asked,), warnings=mission.warnings)
    if resumed:
        try:
            first = _restore_progress(mission, resumed)
        except (KeyError, TypeError, AttributeError, ValueError):
            damaged = "The checkpoint is damaged: its trace, messages or context cannot be read"
            return failed_step("checkpoint_error", damaged)
    with enter(scope):
        progress, end = turn.run(mission, scope, span, first, lambda now: _save(args, scope, signature, now, started))
    if parent and parent.firewall:
        parent.firewall.adopt(mission.firewall)
    memory_bytes = serialization.size(dict(progress.memory)) if progress.memory else 0
    return Step(
        ok=end.fail is None,
        value=end.result,
        lisp_value=end.value,
        fail=end.fail,
        memory=values.to_python(dict(progress.memory)),
        signature=signature,
        trace=progress.trace,
        usage=replace(scope.spent, memory_bytes=memory_bytes),
        lisp_context=progress.context,
        warnings=tuple(dict.fromkeys(progress.warnings)),
    )


def _scope(
    args: Arguments, mission: ReadyMission, runtime: Runtime, parent: Scope | None, resumed: State | None
) -> Scope:
    options = mission.options
    before = resumed.budget if resumed else {}
    deadline, inherited = parent.deadline if parent else float("inf"), True
    limit_s = None if options.mission_timeout_s is None else seconds(options.mission_timeout_s)
    if limit_s is not None:
        own = runtime.monotonic() + limit_s - before.get("elapsed_ms", 0) / 1000
        inherited = deadline < own
        deadline = min(own, deadline)
    shared = args.budget or (parent.budget if parent else None)
    return Scope(
        budget=shared
        or Budget(turns=options.tree_turns, depth=options.max_depth, used=int(before.get("turns_used", 0))),
        depth=parent.depth + 1 if parent else 0,
        deadline=deadline,
        limit_ms=None if inherited or limit_s is None else round(limit_s * 1000),
        max_cost_usd=options.max_cost_usd,
        llm=mission.llm,
        models=args.models or (parent.models if parent else {}),
        firewall=mission.firewall,
        runtime=runtime,
        parent=parent,
        spent=trace.usage_from_json(resumed.usage) if resumed else Usage(),
    )


def _restore_progress(mission: ReadyMission, resumed: State) -> Progress:
    done = tuple(map(trace.turn_from_json, resumed.trace))
    for finished in done:
        for call in finished.tool_calls:
            mission.firewall.learn(call.lisp_result)
    mission.firewall.learn_from_program(dict(resumed.context))
    mission.firewall.learn_from_program(dict(resumed.memory))
    return Progress(
        turn=resumed.turn,
        context=resumed.context,
        memory=resumed.memory,
        messages=tuple(Message(role=each["role"], content=each["content"]) for each in resumed.messages),
        trace=done,
        failures=resumed.consecutive_failures,
        warnings=mission.warnings,
    )


def _save(args: Arguments, scope: Scope, signature: str | None, progress: Progress, started: float) -> None:
    """Write the checkpoint of a turn; a failure is logged and the mission continues."""
    if args.checkpoint_dir is None and args.on_checkpoint is None:
        return
    state = State(
        prompt=args.prompt,
        signature=signature,
        turn=progress.turn,
        memory=progress.memory,
        context=progress.context,
        messages=tuple(dict(each) for each in progress.messages),
        usage=trace.usage_to_json(scope.spent),
        budget={
            "turns_used": scope.budget.used,
            "cost_usd": scope.spent.cost_usd,
            "elapsed_ms": round((scope.runtime.monotonic() - started) * 1000),
        },
        trace=tuple(map(trace.plain, progress.trace)),
        consecutive_failures=progress.failures,
    )
    try:
        if args.checkpoint_dir is not None:
            checkpoint.save(args.checkpoint_dir, state)
        if args.on_checkpoint is not None:
            args.on_checkpoint(state)
    except PyagentdError as error:
        _log.warning("The checkpoint of turn %d could not be saved: %s", progress.turn, error)
    except Exception:  # of ``on_checkpoint``
        _log.exception("What is called with checkpoints failed at turn %d", progress.turn)


@overload
def delegate(prompt: str, *, llm: ModelLike, signature: type[T], **options: Unpack[DelegateOptions]) -> Step[T]: ...
@overload
def delegate(
    prompt: str,
    *,
    llm: ModelLike,
    signature: str | Signature | None = None,
    **options: Unpack[DelegateOptions],
) -> Step[Any]: ...
def delegate(prompt: str, *, llm: ModelLike, **options: Any) -> Step[Any]:
    """Run a mission, in which a model fulfils ``prompt`` by writing programs, and return its step.

    Args:
        prompt: The mission; ``{{name}}`` stands for a value of the context.
        llm: The callback, or the name of a model in the registry. It gets a ``Request`` and returns text or
            ``{"content", "tokens", "cost_usd"}``; any exception that it raises is a failure that is retried.
        signature: The contract: ``"(query :string) -> {count :int, _ids [:int]}"``; a dataclass, ``TypedDict`` or
            pydantic model, and the result is then an instance of it; or None for any result.
        tools: The tools that programs can call: a list of functions, or a dict by name.
        context: The values of ``ctx/`` in programs: a dict, an instance with fields, or a ``Step``, which passes on
            its value and signature.
        limits: The limits of the mission.
        options: Single limits, by the names in ``Limits`` or as the specification's ``timeout_ms`` and
            ``mission_timeout_ms``, and:

            - tool_catalog: Tools that the model is shown for planning and cannot call.
            - context_signature: The types of the context.
            - memory: The values of ``memory/`` at the start.
            - prompt_limit: How much of a large value is shown to the model.
            - llm_retry: When a failing callback is called again.
            - signature_validation: ``enabled``; ``warn_only``; ``disabled``; ``strict``, which also refuses
              undeclared fields, tools without a signature and a context without its fields.
            - checkpoint_dir: The directory in which a checkpoint is written after each turn.
            - resume_from: A checkpoint to continue from: a state, a file, or a name in ``checkpoint_dir``.
            - on_checkpoint: Called with the state after each turn.
            - isolation: With ``process``, each program runs in a child process.
            - system_prompt: Replaces the generated one; or a function of it; or a mapping with ``prefix``,
              ``suffix``, ``language_spec``, ``output_format``.
            - llm_opts: Passed to the callback in each request.
            - models: The registry of models, searched before the process-wide one.
            - budget: The turns and depth of a whole tree of missions, shared; by default the parent's, or a new one.
            - telemetry: Called with each event; by default the parent's listener.
            - cancelled: Called regularly; the mission ends when it returns true.
            - monotonic, epoch, sleep: The clocks, in seconds; ``sleep`` waits between retries.

    Returns:
        The step. Errors of the model, the tools or the programs are in it and never raised.

    Raises:
        TypeError: There is no such option.
    """
    return _run({"prompt": prompt, "llm": llm, **options}, Runtime())


@overload
async def adelegate(
    prompt: str, *, llm: ModelLike, signature: type[T], **options: Unpack[DelegateOptions]
) -> Step[T]: ...
@overload
async def adelegate(
    prompt: str,
    *,
    llm: ModelLike,
    signature: str | Signature | None = None,
    **options: Unpack[DelegateOptions],
) -> Step[Any]: ...
async def adelegate(prompt: str, *, llm: ModelLike, **options: Any) -> Step[Any]:
    """Run a mission without blocking the event loop; arguments and result are those of ``delegate``.

    Programs run in a thread. Coroutine functions as callback or tools are awaited here, on the caller's loop, where
    the listeners are called too. Cancelling it stops the program at its next check.
    """
    given, bridge = {"prompt": prompt, "llm": llm, **options}, Bridge()
    for listener in ("telemetry", "on_checkpoint"):
        if given.get(listener) is not None:
            given[listener] = bridge.on_loop(given[listener])
    given.setdefault("sleep", bridge.sleep)
    runtime = Runtime(wait_for=bridge.wait_for, cancelled=bridge.cancelled)
    return await bridge.run(lambda: _run(given, runtime))


# Dry run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Why ``delegate`` would refuse a mission: the failures that it would end with."""

    problems: tuple[Fail, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the mission can run."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return "\n".join(f"{each.reason}: {each.message}" for each in self.problems) or "the mission can run"


def validate(prompt: str, **options: Any) -> Validation:
    """Return every reason why ``delegate(prompt, **options)`` would not start.

    Checks placeholders, signatures, names and kinds of tools, the context's types, the registry of models, and with
    ``signature_validation="strict"`` tools without a signature. Nothing is called; ``llm`` may be left out.

    Raises:
        TypeError: There is no such option.
    """
    check_known(options)
    llm = checks.no_llm if options.get("llm") is None else options["llm"]
    try:
        prepare(arguments_of({**options, "prompt": prompt, "llm": llm}), options.get("models"))
    except CannotStart as refused:
        return Validation(problems=refused.fails)
    return Validation()


# Running the programs of a mission again, without a model.
#
# The programs of a step run in order over another context until one of them returns. Checks, limits and trace are
# those of any mission.


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The programs of a finished mission; calling it runs them again without a model."""

    programs: tuple[str, ...]  # of the turns that had one and did not fail
    signature: str | None = None  # what they return

    def __call__(self, context: Any = None, **options: Any) -> Step[Any]:
        """Run the programs over ``context``; ``options`` are those of ``delegate``, most of all ``tools``."""
        arguments = {"signature": self.signature, "max_turns": len(self.programs), **options}
        left = iter(self.programs)

        def answer(request: Request) -> str:
            return f"```clojure\n{next(left)}\n```"

        return delegate("(run again)", llm=answer, context=context, **arguments)


def compiled(step: Step[Any]) -> Compiled:
    """Return the programs of a successful ``step``, to run over other contexts.

    Raises:
        UserError: The step failed, or it has no programs.
    """
    programs = tuple(turn.program for turn in step.trace if turn.program and turn.error is None)
    if not step.ok or not programs:
        raise UserError("Only a mission that succeeded has programs worth running again")
    return Compiled(programs=programs, signature=step.signature)


# Missions in parallel: ``gather`` and ``gather_sync``.
#
# Each mission has its own memory and context; the steps are returned in the order of the missions, failed ones
# included. Inside a mission's tool they use that mission's budget. ``gather_sync`` runs them in the caller's
# executor or in its own threads; with a process pool, prompt and options must be picklable.


@dataclass(frozen=True, init=False)
class Mission(Generic[T]):
    """A reusable mission: the arguments of ``delegate``, of which ``llm`` can be given later."""

    prompt: str
    options: Mapping[str, Any]

    @overload
    def __init__(
        self,
        prompt: str,
        *,
        signature: type[T],
        llm: ModelLike | None = None,
        **options: Unpack[DelegateOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: "Mission[Any]",
        prompt: str,
        *,
        signature: str | Signature | None = None,
        llm: ModelLike | None = None,
        **options: Unpack[DelegateOptions],
    ) -> None: ...
    def __init__(self, prompt: str, **options: Any) -> None:
        check_known(options)
        object.__setattr__(self, "prompt", prompt)
        object.__setattr__(self, "options", options)

    def run(self, context: Context | None = None, **more: Any) -> Step[T]:
        """Run the mission.

        Args:
            context: Replaces the context that the mission was made with.
            more: Further arguments of ``delegate``, which take precedence.
        """
        return cast("Step[T]", delegate(self.prompt, **self._context_values(context, more)))

    async def arun(self, context: Context | None = None, **more: Any) -> Step[T]:
        """Run the mission without blocking the event loop; see ``run``."""
        return cast("Step[T]", await adelegate(self.prompt, **self._context_values(context, more)))

    def map(
        self,
        items: Iterable[object],
        *,
        max_concurrency: int = MAX_CONCURRENCY,
        executor: Executor | None = None,
        **more: Any,
    ) -> list[Step[T]]:
        """Run the mission for each item, several at a time, and return the steps in order, failed ones included.

        Args:
            items: The contexts; or, for a mission with one parameter (or else one placeholder), values of that.
            max_concurrency: The largest number that run at once.
            executor: Runs them; None creates a thread pool for this call. For a process pool, the mission's arguments
                must be picklable. ``over.run_over`` writes the results as they come, and can be resumed.
            more: Further arguments of ``delegate`` for all of them.
        """
        missions = [self._for_item(each, more) for each in items]
        return gather_sync(missions, max_concurrency=max_concurrency, executor=executor)

    async def amap(
        self, items: Iterable[object], *, max_concurrency: int = MAX_CONCURRENCY, **more: Any
    ) -> list[Step[T]]:
        """Run the mission for each item without blocking the event loop; see ``map``."""
        return await gather([self._for_item(each, more) for each in items], max_concurrency=max_concurrency)

    def as_tool(self, name: str | None = None, description: str | None = None) -> LLMTool:
        """Return the mission as a tool of other missions; called as a function, the tool returns the value.

        Args:
            name: Its name in ``tools=[…]``; not needed where tools are given by name.
            description: Shown to the calling model.

        Raises:
            ToolsError: Prompt and signature do not fit each other.
            SubAgentError: In a call: the mission failed.
        """
        own = {key: self.options[key] for key in ("llm", "tools") if self.options.get(key) is not None}
        rest = {key: value for key, value in self.options.items() if key not in ("llm", "tools", "signature")}
        contract = signatures.parse(self.options.get("signature") or ":any")
        if not contract.params:
            contract = replace(contract, params=tuple(Field(each, ANY) for each in self._parameters()))
        return LLMTool(
            prompt=self.prompt, signature=contract, name=name, description=description, options=rest, **own
        )

    def _context_values(self, context: Context | None, more: Mapping[str, Any]) -> dict[str, Any]:
        given = {**self.options, **more}
        if context is not None:
            given["context"] = context
        if given.get("llm") is None and (parent := current()) is not None:
            given["llm"] = parent.llm
        return {"llm": None, **given}

    def _parameters(self) -> list[str]:
        """Return the names of the signature's parameters, or else of the placeholders in the prompt."""
        declared = self.options.get("signature")
        params = signatures.parse(declared).params if declared is not None else ()
        names = [each.name for each in params] or [each.split(".")[0] for each in template.placeholders(self.prompt)]
        return list(dict.fromkeys(names))

    def _for_item(self, item: object, more: Mapping[str, Any]) -> "Mission[T]":
        is_instance = is_dataclass(item) and not isinstance(item, type)
        if not (isinstance(item, Mapping | Step) or is_instance or hasattr(item, "model_dump")):
            names = self._parameters()
            if len(names) != 1:
                has = f"has the parameters {', '.join(names)}" if names else "has no parameters"
                raise UserError(f"{item!r} is not a context, and the mission {has}", hint="Give a dict for each item")
            item = {names[0]: item}
        return Mission(self.prompt, **{**self.options, **more, "context": item})


mission = Mission
"""``Mission`` under the name of a function: ``mission("…", llm=…)``."""


Runnable = Mission[Any] | tuple[str, Mapping[str, Any]] | Mapping[str, Any]
"""A mission, ``(prompt, options)``, or a dict of a prompt and options."""


async def gather(
    missions: Iterable[Runnable], *, max_concurrency: int = MAX_CONCURRENCY, **common: Any
) -> list[Step[Any]]:
    """Run missions at the same time and return their steps in order.

    Args:
        missions: The missions.
        max_concurrency: The largest number that run at once.
        common: Options for all missions; a mission's own take precedence.

    Cancelling it cancels the missions.
    """
    slots = asyncio.Semaphore(_check_limit(max_concurrency))

    async def run(each: Mission[Any]) -> Step[Any]:
        async with slots:
            try:
                return await each.arun()
            except Exception as error:  # an exception must not lose the results of the other missions
                return _failed_step(error)

    return list(await asyncio.gather(*(run(each) for each in _as_missions(missions, common))))


def gather_sync(
    missions: Iterable[Runnable],
    *,
    max_concurrency: int = MAX_CONCURRENCY,
    executor: Executor | None = None,
    **common: Any,
) -> list[Step[Any]]:
    """Run missions in an executor and return their steps in order.

    Args:
        missions: The missions.
        max_concurrency: The largest number that are submitted at once.
        executor: Runs them; None creates a thread pool for this call.
        common: Options for all missions; a mission's own take precedence.

    Raises:
        UserError: The executor is Dask's.
    """
    todo = _as_missions(missions, common)
    limit = _check_limit(max_concurrency)
    if executor is not None and type(executor).__module__.startswith("distributed."):
        # Dask's executor never reports a result that was lost with its worker while it was fetched.
        raise UserError(
            "Dask's own executor can wait for ever when a worker is lost",
            hint='pyagentd.mission.over.run_over(…, executor="dask://HOST:PORT") runs on a Dask cluster',
        )
    if executor is not None:
        return _window(executor, todo, limit)
    with ThreadPoolExecutor(min(limit, len(todo)) or 1, thread_name_prefix="mission") as own:
        return _window(own, todo, limit)


def _window(executor: Executor, todo: list[Mission[Any]], limit: int) -> list[Step[Any]]:
    """Run ``todo`` with at most ``limit`` of them in the executor at any time."""
    steps: list[Step[Any] | None] = [None] * len(todo)
    running: dict[Future[Step[Any]], int] = {}
    waiting = iter(enumerate(todo))
    try:
        while True:
            while len(running) < limit and (following := next(waiting, None)) is not None:
                index, each = following
                call = each.run
                if isinstance(executor, ThreadPoolExecutor):  # so that its threads see the calling mission's budget
                    call = partial(copy_context().run, call)
                try:
                    running[executor.submit(call)] = index
                except Exception as error:  # a broken pool must not lose the results of the others
                    steps[index] = _failed_step(error)
            if not running:
                return [step for step in steps if step is not None]
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                index = running.pop(done)
                try:
                    steps[index] = done.result()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # not picklable, a broken pool, a bug in a callback
                    steps[index] = _failed_step(error)
    finally:
        for future in running:
            future.cancel()


def _failed_step(error: BaseException) -> Step[Any]:
    return failed_step("error", f"The mission could not be run: {error_text(error) or type(error).__name__}")


def _as_missions(missions: Iterable[Runnable], common: Mapping[str, Any]) -> list[Mission[Any]]:
    return [Mission(each.prompt, **{**common, **each.options}) for each in map(_mission, missions)]


def _mission(given: Runnable) -> Mission[Any]:
    match given:
        case Mission():
            return given
        case (str() as prompt, Mapping() as options):
            return Mission(prompt, **options)
        case Mapping() if isinstance(given.get("prompt"), str):
            return Mission(given["prompt"], **{key: value for key, value in given.items() if key != "prompt"})
    raise UserError(f"{given!r} is not a mission", hint="Give mission(prompt, llm=…), (prompt, options), or a dict")


def _check_limit(limit: int) -> int:
    if limit < 1:
        raise UserError(f"max_concurrency is {limit}, and nothing would ever run", hint="Give at least 1")
    return limit


# Tool discovery, for missions with more tools than fit well into a prompt.
#
# A first mission chooses tools from the registry, which it can search by words; the mission itself gets only those.
# Both use one budget. The first mission's prompt lists the tools that match the words of the task.

# Ranking tools by a text: SQLite's full-text search over names, parameters and descriptions.
#
# Words of a name count three times as much as those of a description. Words are compared in lower case and by their
# stems; ``get_expenses``, ``getExpenses`` and ``get-expenses`` are the same two words.

_WORD = re.compile(r"[^\W\d_]+|\d+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_COMMON = frozenset(_WORD.findall("a an and any by for from get in into is it its of on or that the this to with"))
_NAME_WEIGHT = 3


def rank_tools(query: str, tools: Mapping[str, Tool], limit: int = 10) -> list[Tool]:
    """Return the tools that share a word with ``query``, the best first; ties in alphabetical order."""
    wanted = " OR ".join(f'"{word}"' for word in _words(query).split())
    if not wanted:
        return []
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute(
            "CREATE VIRTUAL TABLE tools USING fts5 (tool UNINDEXED, name, takes, about, tokenize = 'porter')"
        )
        for name, tool in tools.items():
            takes = " ".join(each.name for each in tool.signature.params) if tool.signature else ""
            row = (name, *map(_words, (tool.name, takes, tool.description)))
            index.execute("INSERT INTO tools VALUES (?, ?, ?, ?)", row)
        best = "SELECT tool FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 0, ?), tool LIMIT ?"
        return [tools[name] for (name,) in index.execute(best, (wanted, _NAME_WEIGHT, max(0, limit)))]


def _words(text: str) -> str:
    """Return the words of ``text`` without common ones, with a blank between each two."""
    return " ".join(word for word in _WORD.findall(_HUMP.sub(" ", text)) if word.lower() not in _COMMON)


LIMIT = 10
_FOUND = 8  # results of one search, by default

_PROMPT = """Choose the tools that are needed for the task below; do not carry it out.

Task: {prompt}

{found}
find_tools looks for others by words. Return the names of the tools that are needed, {limit} at most, no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The tools that the first mission chose, by name, and its step."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    step: Step[Any]


def find_tools(registry: Mapping[str, Tool]) -> Tool:
    """Return a tool that searches ``registry`` by words."""

    def find_tools(query: str, limit: int = _FOUND) -> list[dict[str, str]]:
        """Find tools by words of their names, parameters and descriptions; the best first."""
        return [
            {"name": tool.name, "call": tool.schema(), "description": tool.description}
            for tool in rank_tools(query, registry, min(limit, 50))
        ]

    return normalize({"find_tools": find_tools})["find_tools"]


def discover(
    prompt: str, *, registry: Mapping[str, ToolLike], llm: ModelLike, limit: int = LIMIT, **options: Any
) -> Discovery:
    """Choose the tools of ``registry`` that ``prompt`` needs.

    Args:
        prompt: The task, its placeholders filled or not.
        registry: All tools, as ``delegate`` takes them.
        llm: The model that chooses.
        limit: The largest number to choose.
        options: Further options of ``delegate`` for the first mission.

    Raises:
        ToolsError: Something in the registry is not a tool.
    """
    known = normalize(registry)
    first = rank_tools(prompt, known, limit)
    found = "\n".join(f"- {tool.schema()}  {tool.description}".rstrip() for tool in first)
    text = _PROMPT.format(prompt=prompt, found=f"It may need these:\n{found}\n" if found else "", limit=limit)
    step = delegate(
        text.replace("{{", r"\{{"),  # the task's placeholders must not be filled in here
        llm=llm,
        signature="{tools [:string]}",
        tools={"find_tools": find_tools(known)},
        **options,
    )
    if not step.ok:
        return Discovery(step=step)
    chosen = {name: known[name] for name in step.value["tools"][:limit] if name in known}
    if chosen or not step.value["tools"]:
        return Discovery(tools=chosen, step=step)
    names = ", ".join(map(str, step.value["tools"]))
    return Discovery(step=failed_step("tool_not_found", f"None of the tools that were chosen exists: {names}"))


def delegate_discovering(
    prompt: str,
    *,
    registry: Mapping[str, ToolLike],
    llm: ModelLike,
    limit: int = LIMIT,
    discovery_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Step[Any]:
    """Run a mission with the tools of ``registry`` that it needs.

    Args:
        prompt: The mission.
        registry: All tools.
        llm: The model that chooses the tools and then works.
        limit: The largest number of tools to choose.
        discovery_options: Options of ``delegate`` for the first mission, such as another ``llm``.
        options: Options of the mission; its ``tools`` are added to the chosen ones.
    """
    if current() is None and "budget" not in options:
        limits = arguments_of({"prompt": prompt, "llm": llm, **options}).options
        options["budget"] = Budget(turns=limits.tree_turns, depth=limits.max_depth)
    try:
        own = normalize(options.pop("tools", None))
        choosing = {"llm": llm, "budget": options.get("budget"), **(discovery_options or {})}
        found = discover(prompt, registry=registry, limit=limit, **choosing)
    except UserError as error:
        return failed_step(getattr(error, "reason", "validation_error"), str(error))
    if not found.step.ok:
        return found.step
    return delegate(prompt, llm=llm, tools={**own, **found.tools}, **options)
