"""The ``TodoWrite`` tool: the agent's todo list, which each call replaces as a whole.

The list is the argument of the last visible call: only that call's part in ``messages.jsonl`` holds it, so it
survives every restart, and a rewind restores the list of that time. Each session and each agent has its own. Clients
get it in ``todo`` events and when they attach.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyagentd.errors import ToolError
from pyagentd.events import Event
from pyagentd.policy.action import Target, canonical_tool
from pyagentd.runtime.branch import LiveBranch
from pyagentd.runtime.feature import BranchOpened, Feature, HistoryChanged
from pyagentd.store.conversation import Conversation
from pyagentd.store.journal import Row
from pyagentd.tools.spec import Args, Output, ToolContext, ToolSpec, object_schema
from pyagentd.words import quantity

if TYPE_CHECKING:
    from pyagentd.runtime.kernel import Kernel
    from pyagentd.runtime.run_setup import RunBuilder

NAME = "TodoWrite"

STATES = ("pending", "in_progress", "completed")

_DESCRIPTION = """\
Keep the list of steps of a task with several steps; the user sees it. Each call replaces the whole list. Write it \
when you begin, mark a step in_progress before you work on it (one at a time) and completed as soon as it is done, \
and add steps you discover. Not for a task of one step."""

_SCHEMA: Mapping[str, Any] = object_schema(
    {
        "todos": {
            "type": "array",
            "maxItems": 100,
            "description": "The whole list, in order; [] clears it",
            "items": object_schema(
                {
                    "content": {"type": "string", "minLength": 1, "description": "The step: Run the tests"},
                    "status": {"type": "string", "enum": list(STATES)},
                    "activeForm": {"type": "string", "minLength": 1, "description": "While on it: Running the tests"},
                }
            ),
        }
    }
)

Item = dict[str, str]
"""``content``, ``status`` and ``active_form`` of a step."""


async def _run(args: Args, ctx: ToolContext) -> Output:
    items = todo_items(args["todos"])
    doing = [item["content"] for item in items if item["status"] == "in_progress"]
    if len(doing) > 1:
        raise ToolError(
            f"{len(doing)} steps are in_progress ({'; '.join(doing)}); one at a time. The list was not changed."
        )
    left = sum(item["status"] != "completed" for item in items)
    return Output(
        text=f"The list has {quantity(len(items), 'step')}, {left} of them not completed." if items else "No list."
    )


TODO_WRITE = ToolSpec(
    name=NAME,
    description=_DESCRIPTION,
    input_schema=_SCHEMA,
    kind="meta",
    repeatable=True,
    run=_run,
    describe=lambda args, ctx: Target(detail=quantity(len(args["todos"]), "step")),
)


class Todo(Feature):
    """Offers the tool, and sends the todo lists of branches to their clients."""

    tool_names = (NAME,)

    def __init__(self, kernel: "Kernel") -> None:
        super().__init__(kernel)
        kernel.bus.on(BranchOpened, lambda opened: opened.branch.observers.append(partial(_publish, opened.branch)))
        kernel.bus.on(HistoryChanged, self._history_changed)

    def tools_for(self, run: "RunBuilder") -> Sequence[ToolSpec]:
        """Return the ``TodoWrite`` tool."""
        return (TODO_WRITE,)

    def _history_changed(self, changed: HistoryChanged) -> None:
        branch = changed.branch
        if branch.sinks:
            branch.publish(Event("todo", branch.key, 0, ({"items": current_items(branch.conversation)},)))


def _publish(branch: LiveBranch, row: Row) -> None:
    """Send the list in a row to a branch's clients."""
    if (items := of_part(row.data)) is not None:
        branch.publish(Event("todo", branch.key, 0, ({"items": items},)))


def todo_items(todos: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return a list as sent to clients."""
    return [
        {"content": each["content"], "status": each["status"], "active_form": each["activeForm"]} for each in todos
    ]


def of_part(row: Mapping[str, Any]) -> list[Item] | None:
    """Return the list in a ``part`` row of the tool; None for any other row."""
    data = row.get("data_json", {})
    if data.get("state") != "output-available" or canonical_tool(str(row["type"]).removeprefix("tool-")) != NAME:
        return None
    try:
        return todo_items(data["input"]["todos"])
    except (KeyError, TypeError):  # another tool of that name
        return None


def current_items(conversation: Conversation) -> list[Item]:
    """Return the current list, [] if there is none."""
    types = (type for type in conversation.by_type if canonical_tool(type.removeprefix("tool-")) == NAME)
    parts = [part for type in types for part in conversation.by_type[type]]
    parts.sort(key=lambda part: part.row.get("created_at") or 0)
    for part in reversed(parts):
        message = conversation.messages.get(part.row["message_id"])
        if message is None or message.is_hidden or part.hidden:
            continue
        if (found := of_part(part.row)) is not None:
            return found
    return []
