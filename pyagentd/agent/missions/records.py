"""The rows of a mission: what was asked, where it stands after a turn, how it ended.

A row of type ``mission`` has the run's id and a phase; of each phase the last row counts:

start   {prompt, context, message, signature, inputs, tools, max_turns, resumed}: ``resumed`` is the run it goes on
        from or begins anew, or ""; context is {} where it goes on; ``message`` is the prompt as people read it
turn    {turn, state}: the loop after that turn, as ``State.to_json`` says it
end     {ok, value, fail, usage}: the value with its firewalled fields, for programs and people
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pyagentd.agent.branches.recorder import Recorder
from pyagentd.agent.missions.contract import Assignment, Task
from pyagentd.agent.missions.cutoff import begun, standing
from pyagentd.agent.missions.valuetext import plain
from pyagentd.errors import BadRequest
from pyagentd.mission.checkpoint import CheckpointError, State
from pyagentd.mission.step import Step
from pyagentd.store.conversation import Conversation


class Record:
    """Where the rows of one mission go."""

    def __init__(self, recorder: Recorder, run_id: str) -> None:
        self._recorder = recorder
        self._run_id = run_id

    def started(self, mission: Assignment, task: Task, tools: list[str]) -> None:
        """Record what is asked."""
        contract = mission.contract
        self._put(
            "start",
            {
                "prompt": task.prompt,
                "context": plain(task.context),
                "message": task.message,
                "signature": contract.signature.render(),
                "inputs": sorted(task.context),
                "tools": tools,
                "max_turns": contract.max_turns,
                "resumed": task.resumed,
            },
        )

    def stands(self, state: State) -> None:
        """Record where the loop stands after a turn."""
        self._put("turn", {"turn": state.turn, "state": state.to_json()})

    def ended(self, step: Step) -> None:
        """Record how it ended."""
        fail = None if step.fail is None else plain(asdict(step.fail))
        self._put("end", {"ok": step.ok, "value": plain(step.value), "fail": fail, "usage": asdict(step.usage)})

    def _put(self, phase: str, facts: Mapping[str, Any]) -> None:
        self._recorder.record("mission", {"id": self._run_id, "phase": phase, **facts})


def state_of(conversation: Conversation, run_id: str) -> State | None:
    """Return where the mission of a run stands; None when no turn of it has come to its end.

    Raises:
        BadRequest: That run was no mission.
    """
    row = standing(conversation, run_id)
    if row is None:
        if begun(conversation, run_id) is None:
            raise BadRequest(f"{run_id} is no mission that can go on", mend="Send the task again")
        return None
    try:
        return State.from_json(row["state"])
    except CheckpointError as error:
        raise BadRequest(f"Where {run_id} stands cannot be read: {error}", mend="Send the task again") from error
