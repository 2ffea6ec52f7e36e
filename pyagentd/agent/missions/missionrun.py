"""A run that is a mission: the loop of ``mission`` with the model, the tools and the log of a session.

It begins, ends, is aborted and is told of as any run. One turn is a request to the model, whose answer is recorded
when it is whole, and a program, which runs in a thread; a call that the program makes is made here, on the event
loop, in its turn. What stands after a turn is recorded before the next request, so a mission whose daemon was killed
goes on behind the last program that came to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyagentd.agent.missions.contract import Assignment, Contract, Task, task_of
from pyagentd.agent.missions.kindred import Kindred, Place
from pyagentd.agent.missions.privatevalues import private_value
from pyagentd.agent.missions.programs import PROGRAM
from pyagentd.agent.missions.programtools import program_tools
from pyagentd.agent.missions.records import Record
from pyagentd.agent.missions.replaying import Replay
from pyagentd.agent.missions.said import Said, whole
from pyagentd.agent.missions.valuetext import shown
from pyagentd.agent.running.calling import describe
from pyagentd.agent.running.machine import Signal as S
from pyagentd.agent.running.machine import State as Phase
from pyagentd.agent.running.run import Run, Step
from pyagentd.clock import new_id
from pyagentd.errors import PyagentdError, ToolError
from pyagentd.llm.backend import ModelRequest, PartDelta, PartFinished, PartStarted, Retrying, SentAgain, StepFinished
from pyagentd.messages import Message, Text, ToolCall, ToolResult
from pyagentd.mission import firewall
from pyagentd.mission.budget import Scope, entered
from pyagentd.mission.checkpoint import State
from pyagentd.mission.costs import cost_of
from pyagentd.mission.delegation import adelegate
from pyagentd.mission.options import Answer as Told
from pyagentd.mission.options import Request, Retry
from pyagentd.mission.step import Fail
from pyagentd.mission.step import Step as Ending
from pyagentd.mission.telemetry import Event
from pyagentd.store.paths import BranchRef
from pyagentd.tools.invoke import Envelope

_ENDED = "The mission ended with this program."


class Unfulfilled(PyagentdError):
    """A mission ended without its answer."""

    code = "mission-failed"

    def __init__(self, fail: Fail) -> None:
        super().__init__(f"The mission failed ({fail.reason}): {fail.message.rstrip('.')}")


class MissionRun(Run):
    """One mission; ``execute`` it once.

    Args:
        mission: What is asked.
        ref: Where it runs.
        kindred: Which missions run above it.
        run: What every run needs.
    """

    def __init__(self, *, mission: Assignment, ref: BranchRef, kindred: Kindred, **run: Any) -> None:
        super().__init__(**run)
        self._mission = mission
        self._ref = ref
        self._kindred = kindred
        self._record = Record(self._recorder, self.id)
        self._said = Said()
        self._sending: ModelRequest | None = None
        self._program: ToolCall | None = None  # the one that runs
        self._trouble: PyagentdError | None = None  # why the model could not be asked
        self._logged = False
        self._replay: Replay | None = None  # of the program that an earlier daemon left

    async def _begin(self) -> Step:
        await self._prepare()
        return self._pursue

    async def _go_on(self) -> Step:
        """Take up the program that the end of an earlier daemon left waiting."""
        assert self._resumed is not None
        await self._prepare()
        self._replay = Replay(self._resumed)
        return self._pursue

    async def _pursue(self) -> None:
        mission = self._mission
        task = task_of(mission, self._view.messages, self._prompted())
        if self._resumed is None:
            self._record.started(mission, task, sorted(self._offer.tools))
        with self._kindred.running(self._ref, mission.contract.max_turns) as place:
            ending = await self._delegated(task, place)
        if self._trouble is not None:
            raise self._trouble
        self._record.ended(ending)
        if not ending.ok:
            raise Unfulfilled(ending.fail or Fail(reason="unknown", message="nobody said why"))
        self._conclude(shown(firewall.public(ending.value)))
        self._note = "; ".join(ending.warnings)

    def _prompted(self) -> str | None:
        """Return what the message says that began this run, as the model is to see it."""
        conversation = self._recorder.conversation
        run = conversation.runs.get(self.id)
        message = conversation.messages.get(run.data["message_id"]) if run else None
        if message is None:
            return None
        return message.text if message.is_edited else message.model_text

    async def _delegated(self, task: Task, place: Place) -> Ending:
        """Run the loop to its end."""
        contract = self._mission.contract
        # What is around it is what the tree of sessions says, whoever's task started this run.
        with entered(Scope(budget=place.budget, depth=place.depth - 1)):
            return await self._loop(contract, task)

    async def _loop(self, contract: Contract, task: Task) -> Ending:
        return await adelegate(
            task.prompt,
            llm=self._asked,
            signature=contract.signature,
            tools=program_tools(self._offer.tools, self._called, self._whole),
            context=task.context,
            max_turns=contract.max_turns,
            mission_timeout_ms=None,  # the run has a stopwatch, which stands still while a human is asked
            llm_retry=Retry(max_attempts=1),  # the backend tries again
            system_prompt=lambda own: "\n\n".join(filter(None, (self._settings.system, own))),
            resume_from=task.state,
            on_checkpoint=self._stands,
            tool_time_counts=False,
            isolation=contract.isolation,
            telemetry=self._heard,
        )

    # -- the model -----------------------------------------------------------------------------------------------

    async def _asked(self, request: Request) -> Told:
        """Ask the model; the loop's callback."""
        if self._replay is not None and self._program is None and self.state is Phase.INIT:
            self._program = self._replay.program
            self._move(S.RESUME, tools=[PROGRAM], turn=request["turn"])
            return {"content": self._replay.text}
        try:
            await self._recorder.commit(also=self._log.flush)
            return await self._answered(request)
        except PyagentdError as error:
            self._trouble = error
            raise

    async def _answered(self, request: Request) -> Told:
        if not self._logged:
            self._log.system_prompt(request["system"], self._recorder.now_ms())
            self._logged = True
        before = self._answer.usage
        self._settings.limits.check(self._turns, before)
        self._turns += 1
        self._said, self._program = Said(), None
        self._sending = replace(super()._request(), system=request["system"], messages=_messages(request), tools=())
        self._move(S.REQUEST, turn=request["turn"])
        self._answer.begin_step()
        stop = await self._send()
        if self._program is None:
            self._move(S.PAUSE)
        else:
            self._move(S.CALLS, tools=[PROGRAM], turn=request["turn"])
        usage = stop.usage
        read = usage.input + usage.cache_read + usage.cache_write
        told: Told = {
            "content": self._said.text,
            "tokens": {"input": read, "output": usage.output + usage.reasoning},
        }
        cost = cost_of(self._settings.model, usage)
        return told if cost is None else {**told, "cost_usd": cost}

    def _request(self) -> ModelRequest:
        assert self._sending is not None, "a mission's requests are the loop's"
        return self._sending

    def _take(self, item: Retrying | SentAgain | PartStarted | PartDelta | PartFinished) -> None:
        if isinstance(item, Retrying | SentAgain):
            super()._take(item)
            return
        kept = self._said.take(item)
        if kept is not None:
            super()._take(kept)
        elif self.state is Phase.WAIT:
            self._move(S.ANSWER)

    def _finish_step(self, stop: StepFinished) -> None:
        """Record what was said around the program, and the program, before it is run."""
        response = self._said.response()
        for item in self._said.words(response.reasoning):
            super()._take(item)
        if response.program is not None:
            self._program = ToolCall(id=new_id("call"), name=PROGRAM, input={"program": response.program})
            super()._take(PartFinished(self._said.index(), self._program))
        super()._finish_step(stop)

    # -- the programs --------------------------------------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        """Follow the loop: what a program came to is its call's result."""
        if event.name != "turn_stop" or self._program is None or self._aborted:
            return  # who is stopped has the end of its calls recorded by whoever stops it, or by nobody yet
        facts, program = event.metadata, self._program
        self._program = self._replay = None
        text = str(facts.get("feedback") or facts.get("message") or _ENDED)
        duration_ms = int(event.measurements.get("program_ms", event.measurements.get("duration_ms", 0)))
        self._answer.result(program, Envelope(ok=bool(facts.get("ok")), text=text, duration_ms=duration_ms))
        self._move(S.RESULTS)

    def _stands(self, state: State) -> None:
        """Record where the loop stands after a turn."""
        if not self._aborted:
            self._record.stands(state)

    async def _called(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        """Make one call for the program that runs."""
        if self._aborted:
            raise ToolError("The mission was stopped")
        known = self._replay.next(name, args) if self._replay is not None else None
        if known is not None and known.result is not None:
            return known.result
        call = known.call if known is not None else ToolCall(id=new_id("call"), name=name, input=dict(args))
        if known is None:
            self._answer.take(PartFinished(self._said.index(), call))
        self._tell("busy", tools=[describe(call)])
        stand_ins = {call.id: known.stand_in} if known is not None and known.stand_in is not None else {}
        (result,) = await self._calling.complete((call,), {}, stand_ins)
        return result

    async def _whole(self, result: ToolResult) -> Any:
        """Return the value that a mission below gave this one's program, if its result hides some of it."""
        return await asyncio.to_thread(private_value, self._ref, result.id, result.text)

    def _conclude(self, text: str) -> None:
        """Say the answer."""
        self._answer.begin_step()
        with self._recorder.together():
            for item in whole(0, text):
                self._answer.take(item)

    def _end(self, signal: S, outcome: Any) -> Any:
        if self._said.text and self._program is None and self.state in (Phase.WAIT, Phase.TYPE):
            self._keep_said()
        return super()._end(signal, outcome)

    def _keep_said(self) -> None:
        """Record what the model had said when it was cut off."""
        for item in self._said.words(self._said.text):
            self._answer.take(item)


def _messages(request: Request) -> tuple[Message, ...]:
    return tuple(Message(role=each["role"], parts=(Text(text=each["content"]),)) for each in request["messages"])
