"""The tools that need more than a place: the loop, a human, the log, the network. Which of them a run can be given.

``tools.builtin`` has those that work on files and commands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from pyagentd.agent.approving.authority import Authority
from pyagentd.agent.delegating.spawn import Spawner, persistent_agent
from pyagentd.agent.delegating.task import task
from pyagentd.agent.dialogue.question import question
from pyagentd.agent.dialogue.todo import TODO_WRITE
from pyagentd.agent.missions.missiontool import Lending, mission_tool
from pyagentd.config.tables import WebSettings
from pyagentd.store.conversation import Conversation
from pyagentd.tools.spec import ToolSpec
from pyagentd.tools.web import key_variable, web_fetch, web_search

NAMES = ("PersistentAgent", "task", "mission", "question", "TodoWrite", "WebFetch", "WebSearch", "tool_search")
"""Their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a run's tools may need.

    Attributes:
        spawner: Makes agents.
        depth: How many agents the run's branch is below its root.
        authority: Who asks humans.
        web: What may be reached on the web, and how.
        variable: Returns the value of a variable of the client's environment, else of ours; "" without any.
        conversation: What was said and done so far.
        lending: What a mission may be given.
    """

    spawner: Spawner
    depth: int
    authority: Authority
    web: WebSettings
    variable: Callable[[str], str]
    conversation: Conversation
    lending: Lending


def tools_around(wanted: Collection[str], around: Around) -> dict[str, ToolSpec]:
    """Return those of ``wanted`` that are made here, by name; others are not made: some take a look around."""
    makers: dict[str, Callable[[], ToolSpec]] = {
        "PersistentAgent": lambda: persistent_agent(around.spawner, depth=around.depth),
        "task": lambda: task(around.spawner, depth=around.depth),
        "mission": lambda: mission_tool(around.spawner, depth=around.depth, lending=around.lending),
        "question": lambda: question(around.authority),
        "TodoWrite": lambda: TODO_WRITE,
        "WebFetch": lambda: web_fetch(allow_private=around.web.allow_private),
        "WebSearch": lambda: web_search(
            around.web,
            key=lambda: around.variable(key_variable(around.web)),
            used=lambda: _calls(around.conversation, "WebSearch"),
        ),
    }
    return {name: make() for name, make in makers.items() if name in wanted}


def _calls(conversation: Conversation, tool: str) -> int:
    """Return how many calls of a tool a session has made that have their result."""
    parts = (part for part in conversation.parts.values() if part.type == f"tool-{tool}")
    return sum(part.result is not None for part in parts)
