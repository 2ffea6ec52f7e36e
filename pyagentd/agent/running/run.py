"""One execution of the loop for a branch: ask the model, run the tools it wants, until it is done.

Each step is a method that returns the next step, and every move is checked against ``machine.TRANSITIONS``. A run
ends with exactly one outcome on every path (DESIGN §6): success, empty answer, provider error, abort, exception.
What the model sees is in its ``View`` while the run lasts; it is rebuilt from document and log for the next.

Step boundary: before every request to the model, the first one included, the view takes what the user steered with,
then is made to fit the model. Both see a view whose last message is the user's, unless the provider only took a
breath (``pause_turn``).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from pyagentd.agent.approving.authority import Authority
from pyagentd.agent.branches.opening import RESTARTED
from pyagentd.agent.branches.recorder import Recorder
from pyagentd.agent.compacting.tail import tokens_of
from pyagentd.agent.running.answer import Answer
from pyagentd.agent.running.budget import Stopwatch
from pyagentd.agent.running.calling import Calling, bounded, describe
from pyagentd.agent.running.machine import Signal as S
from pyagentd.agent.running.machine import State, advance
from pyagentd.agent.running.offer import Offer
from pyagentd.agent.running.outcome import BY_PARENT, RESTART, Outcome, told_of
from pyagentd.agent.running.resuming import Resumed
from pyagentd.agent.running.runsettings import RunSettings
from pyagentd.agent.running.view import Steering, View, no_steering
from pyagentd.clock import new_id
from pyagentd.errors import ContextOverflow, PyagentdError, StoreError
from pyagentd.llm.backend import (
    ModelRequest,
    PartDelta,
    PartFinished,
    PartStarted,
    Retrying,
    SentAgain,
    StepFinished,
    ToolSchema,
)
from pyagentd.messages import Message, ToolCall, ToolResult
from pyagentd.store.conversation import estimated
from pyagentd.store.orglog import OrgLog
from pyagentd.tools.spec import ToolSpec, schema_of

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable["Step | None"]]


class Run:
    """One run; ``execute`` it once.

    Args:
        run_id: Its id.
        session_id: Whose messages it makes.
        recorder: Where its facts go.
        view: What the model sees, the prompt last.
        settings: What holds while it lasts.
        prepare: Called first; makes the prompt safe on disk.
        observe: Told every move.
        steering: What the user steers it with, see ``Steering``.
        resumed: Where it goes on, when an earlier daemon began it; then ``view`` ends with its answer so far.

    Attributes:
        suspended: Whether it was left without an end, for the next daemon.
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
        observe: Callable[[Run, Mapping[str, Any]], None],
        steering: Steering = no_steering,
        resumed: Resumed | None = None,
    ) -> None:
        self.id = run_id
        self.state = State.INIT
        self._view = View(view, fit=settings.fit, steering=steering)
        self._recorder = recorder
        self._settings = settings
        self._prepare = prepare
        self._observe = observe
        self._log = OrgLog(settings.context.branch_dir)
        self._answer = Answer(
            recorder,
            session_id=session_id,
            model={"provider_id": settings.provider or None, "model_id": settings.model},
            called=self._log.tool,
            metadata={**({"agent": settings.agent} if settings.agent else {}), **digested(settings.system)},
            root=str(settings.context.root),
        )
        self._offer = settings.offer or Offer(settings.tools)
        self._calling = Calling(
            tools=self._offer.tools,
            context=settings.context,
            authority=settings.authority,
            began=self._answer.began,
            record=self._answer.result,
        )
        self.stopwatch = Stopwatch(settings.limits.time_s, self.fail)
        self._note = ""
        self._turns = 0
        self._resumed = resumed
        if resumed is not None:
            self._answer.resume(resumed.standing)
            self._turns = 1 + sum(message.role == "assistant" for message in resumed.standing.done)
        self._retry_now: Callable[[], None] = _nothing
        self.suspended = False
        self._aborted = False
        self._why = ""
        self._cut_off = False
        self._failure: PyagentdError | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def authority(self) -> Authority:
        """Who decides what it may do."""
        return self._settings.authority

    async def execute(self) -> Outcome:
        """Run to the end and return the outcome; ended early by ``abort``.

        Raises:
            asyncio.CancelledError: It was suspended.
        """
        try:
            # A task of its own: abort stops the steps and never what is recorded about their end.
            self._task = asyncio.create_task(self._steps())
            with self.stopwatch.running():
                await self._task
            text = self._answer.last_text if self._settings.result == "last" else self._answer.text
            return self._end(S.FINISH, Outcome(reason="done", text=text, message=self._note))
        except asyncio.CancelledError:
            if self.suspended:
                raise
            if self._failure is not None:
                return self._fail(S.FAIL, self._error(self._failure.code, str(self._failure)))
            code, why = (RESTART, RESTARTED) if self._cut_off else ("", self._why)
            return self._fail(S.ABORT, Outcome(reason="aborted", text=self._answer.text, code=code, message=why))
        except PyagentdError as error:
            return self._fail(S.FAIL, self._error(error.code, str(error)))
        except Exception as error:  # the run's supervisor: nothing may end a run without an outcome
            log.exception("run %s failed", self.id)
            return self._fail(S.FAIL, self._error(*told_of(error)))

    def abort(self, why: str = "") -> None:
        """Stop the run wherever it is, even before it began; it ends with the outcome ``aborted``, saying ``why``."""
        if not self._aborted:
            self._why = why
            if self._task is not None:  # once: a second time would stop the stopping
                self._task.cancel()
        self._aborted = True

    def suspend(self) -> None:
        """Stop the run and leave it in the log as it is: the next daemon goes on with it."""
        if not self._aborted:
            self.suspended = True
            self.abort()

    def cut_off(self) -> None:
        """Stop the run because the daemon ends: aborted as others are, but nobody wanted it, so that is said."""
        if not self._aborted:
            self._cut_off = True
            self.abort()

    def fail(self, error: PyagentdError) -> None:
        """Stop the run wherever it is; it ends with ``error``, unless it was aborted before."""
        if not self._aborted:
            self._failure = error
            self.abort()

    def retry_now(self) -> None:
        """End the wait before a request is sent again, if there is one."""
        self._retry_now()

    async def _steps(self) -> None:
        step: Step | None = self._begin if self._resumed is None else self._go_on
        while step is not None:
            if self._aborted:
                raise asyncio.CancelledError
            step = await step()

    async def _begin(self) -> Step:
        await self._prepare()
        await self._settings.ready()
        self._log.system_prompt(self._settings.system, self._recorder.now_ms())
        return self._call_model

    async def _renew(self) -> None:
        """Have what a named agent's configuration says now hold for the next request (SPEC 003)."""
        before = self._settings
        if before.fresh is None or (now := await before.fresh(before)) is before:
            return
        self._settings = now
        self._view.refit(now.fit)
        if (now.provider, now.model) != (before.provider, before.model):
            self._answer.answered_by({"provider_id": now.provider or None, "model_id": now.model})
        if now.system != before.system:
            self._log.system_prompt(now.system, self._recorder.now_ms())

    async def _call_model(self) -> Step | None:
        await self._renew()
        self._settings.limits.check(self._turns, self._answer.usage)
        if await self._view.steer():
            self._answer.begin_message()
        await self._view.fit(self._answer.last_usage)
        self._turns += 1
        self._move(S.REQUEST)
        self._answer.begin_step()
        return self._after_answer((await self._send_fitting()).stop_reason)

    async def _send_fitting(self) -> StepFinished:
        """Send the request; while the server finds it too long, one that is shorter."""
        while True:
            try:
                return await self._send()
            except ContextOverflow:
                if self.state is not State.WAIT or not await self._view.fit(self._answer.last_usage, overflow=True):
                    raise
            self._tell("busy")

    async def _send(self) -> StepFinished:
        stop: StepFinished | None = None
        request = self._request()
        async with aclosing(self._settings.backend.stream(request)) as batches:
            async for batch in batches:
                with self._recorder.together():
                    for item in batch:
                        if isinstance(item, StepFinished):
                            stop = self._counted(item, request)
                            self._finish_step(stop)
                        else:
                            self._take(item)
        assert stop is not None, "a backend's stream ends with StepFinished or raises"
        return stop

    def _counted(self, stop: StepFinished, request: ModelRequest) -> StepFinished:
        """Return the end of a step with its tokens: estimated where the server says that it read none."""
        if stop.usage.input or stop.usage.cache_read or stop.usage.cache_write:
            return stop
        read = estimated(request.system) + sum(estimated(str(tool)) for tool in request.tools)
        said = stop.usage.output or tokens_of([self._answer.step_message()])
        usage = replace(stop.usage, input=max(1, read + tokens_of(request.messages)), output=said)
        return replace(stop, usage=usage, estimated=True)

    def _finish_step(self, stop: StepFinished) -> None:
        if self.state is State.WAIT:
            self._move(S.ANSWER)  # an empty answer is an answer
        self._answer.finish_step(stop.stop_reason, stop.usage, estimated=stop.estimated)

    def _take(self, item: Retrying | SentAgain | PartStarted | PartDelta | PartFinished) -> None:
        if isinstance(item, Retrying):
            self._retry_now = item.now
            facts = {"attempt": item.attempt, "max_attempts": item.max_attempts, "delay_s": item.delay_s}
            self._tell("retrying", **facts, message=item.message)
            return
        if isinstance(item, SentAgain):
            self._tell("busy")
            return
        if self.state is State.WAIT:
            self._move(S.ANSWER)
        if isinstance(item, PartFinished) and isinstance(item.part, ToolCall):
            item = PartFinished(item.index, bounded(item.part, self._settings.context.spool_dir))
        self._answer.take(item)

    def _after_answer(self, stop_reason: str) -> Step | None:
        message = self._answer.step_message()
        if message.parts:
            self._view.add(message)
        if stop_reason == "refusal":
            self._note = "The model refused to answer"
        elif self._answer.calls:
            return self._run_tools
        elif stop_reason == "pause_turn" and message.parts:  # without any it would be asked the same for ever
            self._move(S.PAUSE)
            return self._call_model
        elif stop_reason == "max_tokens":
            self._note = f"The answer reached the limit of {self._settings.max_tokens} tokens"
        return None

    async def _run_tools(self) -> Step:
        calls = self._answer.calls
        self._move(S.CALLS, tools=[describe(call) for call in calls])
        return await self._complete(calls, {}, {})

    async def _go_on(self) -> Step:
        """Take up the calls of the last request where the end of an earlier daemon left them."""
        resumed = self._resumed
        assert resumed is not None
        await self._prepare()
        await self._settings.ready()
        calls, results = self._answer.calls, resumed.standing.results
        self._view.add(self._answer.step_message())
        self._move(S.RESUME, tools=[describe(call) for call in calls])
        begun = (call for call in calls if call.id in resumed.begun and call.id not in results)
        return await self._complete(calls, results, {call.id: resumed.stand_in(call) for call in begun})

    async def _complete(
        self, calls: tuple[ToolCall, ...], results: Mapping[str, ToolResult], stand_ins: Mapping[str, ToolSpec]
    ) -> Step:
        """Make the calls that have no result yet, and give the model all results."""
        made = await self._calling.complete(calls, results, stand_ins)
        await self._recorder.commit(also=self._log.flush)
        self._view.add(Message(role="user", parts=made))
        self._move(S.RESULTS)
        return self._call_model

    def _request(self) -> ModelRequest:
        settings = self._settings
        return ModelRequest(
            model=settings.model,
            system=settings.system,
            messages=self._view.messages,
            tools=tuple(ToolSchema(**schema_of(spec)) for spec in self._offer.offered()),
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            thinking_budget=settings.thinking_budget,
        )

    def _move(self, signal: S, **details: Any) -> None:
        self.state = advance(self.state, signal)
        self._tell("busy", **details)

    def _tell(self, status: str, **details: Any) -> None:
        self._observe(self, {"state": status, "phase": self.state.value, **details})

    def _error(self, code: str, message: str) -> Outcome:
        return Outcome(reason="error", text=self._answer.text, code=code, message=message)

    def _end(self, signal: S, outcome: Outcome) -> Outcome:
        try:
            aborted = outcome.message or "aborted"
            why = aborted if signal is S.ABORT else f"not run: {outcome.message}"
            # What a call's agent was doing ended with this run, unless the daemon ended both.
            self._answer.close(why, awaited=why if self._cut_off else BY_PARENT)
        finally:
            self._log.flush()
        self.state = advance(self.state, signal)
        return outcome

    def _fail(self, signal: S, outcome: Outcome) -> Outcome:
        try:
            return self._end(signal, outcome)
        except StoreError:  # the outcome is told, and recorded when the branch is opened anew
            self.state = advance(self.state, signal)
            return outcome


def digested(system: str) -> dict[str, str]:
    """Return what an assistant message says of the system prompt it followed (neighbours B.2)."""
    return {"system_prompt_digest": hashlib.sha256(system.encode("utf-8", "replace")).hexdigest()}


def _nothing() -> None:
    """Do nothing: no request waits to be sent again."""


def new_run_id() -> str:
    """Return a fresh id for a run."""
    return new_id("run")
