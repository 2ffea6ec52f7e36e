"""The tools that need more than a place: the loop, a human, the log, the network. Which of them a run can be given.

``tools.builtin`` has those that work on files and commands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from pyagentd.agent.authority import Authority
from pyagentd.agent.question import question
from pyagentd.agent.spawn import Spawner, persistent_agent
from pyagentd.agent.task import task
from pyagentd.agent.todo import TODO_WRITE
from pyagentd.tools.spec import ToolSpec

NAMES = ("PersistentAgent", "task", "question", "TodoWrite")
"""Their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a run's tools may need.

    Attributes:
        spawner: Makes agents.
        depth: How many agents the run's branch is below its root.
        authority: Who asks humans.
    """

    spawner: Spawner
    depth: int
    authority: Authority


def tools_around(wanted: Collection[str], around: Around) -> dict[str, ToolSpec]:
    """Return those of ``wanted`` that are made here, by name; each only when it is wanted, some take a look around."""
    makers: dict[str, Callable[[], ToolSpec]] = {
        "PersistentAgent": lambda: persistent_agent(around.spawner, depth=around.depth),
        "task": lambda: task(around.spawner, depth=around.depth),
        "question": lambda: question(around.authority),
        "TodoWrite": lambda: TODO_WRITE,
    }
    return {name: make() for name, make in makers.items() if name in wanted}
