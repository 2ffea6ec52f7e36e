"""The turns of a mission, one after the other (SPEC 004 Step-wise Agentic Loop).

Each turn gives the next ``Progress``, and an ``End`` when the mission is over: a program returned or failed, or
something is used up.
"""

from __future__ import annotations

from collections.abc import Callable

from pyagentd.mission import stopping
from pyagentd.mission.progress import End, Progress
from pyagentd.mission.turn import Room, take


def run(room: Room, progress: Progress, between: Callable[[Progress], None]) -> tuple[Progress, End]:
    """Take turns until the mission is over; ``between`` is told of every turn that did not end it."""
    while True:
        if fail := stopping.before_turn(progress, room.mission.options, room.scope, room.runtime):
            return progress, End(fail=fail)
        progress, end = take(room, progress)
        if end:
            return progress, end
        between(progress)
