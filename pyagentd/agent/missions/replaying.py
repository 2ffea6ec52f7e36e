"""A program that runs again after the daemon's end, without anything of it happening twice.

Programs are deterministic: the same program on the same data makes the same calls. So the program that an earlier
daemon left waiting is run again, and each call it makes is answered from the record where that has the result; one
that had not begun is made now, asked about or not, and one that had begun waits for its agent, or is told that it was
aborted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyagentd.agent.missions.programs import PROGRAM
from pyagentd.agent.running.resuming import Resumed
from pyagentd.messages import Text, ToolCall, ToolResult
from pyagentd.tools.spec import ToolSpec


class Recorded(NamedTuple):
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

    def __init__(self, resumed: Resumed) -> None:
        self._resumed = resumed
        said = resumed.standing.step
        calls = [part for part in said if isinstance(part, ToolCall)]
        self.program = next((call for call in calls if call.name == PROGRAM), None)
        self._calls = deque(call for call in calls if call is not self.program)
        words = "\n\n".join(part.text for part in said if isinstance(part, Text))
        program = "" if self.program is None else f"```clojure\n{self.program.input.get('program', '')}\n```"
        self.text = f"{words}\n\n{program}".strip()

    def next(self, name: str, args: Mapping[str, Any]) -> Recorded | None:
        """Return the record of the next call if it is this one; None when the program makes a new call."""
        if not self._calls or (self._calls[0].name, dict(self._calls[0].input)) != (name, dict(args)):
            self._calls.clear()
            return None
        call = self._calls.popleft()
        result = self._resumed.standing.results.get(call.id)
        begun = call.id in self._resumed.begun and result is None
        return Recorded(call, result, self._resumed.stand_in(call) if begun else None)
