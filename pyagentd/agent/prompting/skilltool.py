"""The skill tool: reads one of the skills that the system prompt lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from weakref import WeakKeyDictionary

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.prompting.skills import Skill, content
from pyagentd.errors import ToolError
from pyagentd.tools.spec import Args, Target, ToolContext, ToolSpec

NAME = "skill"

_bodies: WeakKeyDictionary[LiveBranch, dict[str, str]] = WeakKeyDictionary()


def skill_tool(branch: LiveBranch, names: Mapping[str, str], found: Callable[[], Mapping[str, Skill]]) -> ToolSpec:
    """Return the tool for the runs of one session.

    Args:
        branch: Where they are: what was read once is the same for as long as it is open.
        names: The skills that its system prompt lists.
        found: Returns the skills that there are now.
    """
    read = _bodies.setdefault(branch, {})

    async def run(args: Args, ctx: ToolContext) -> str:
        name = args["name"]
        if name not in read:
            skill = found().get(name)
            if skill is None:
                raise ToolError(
                    f"The skill {name} is not there any more. Go on without it and say so in your answer."
                )
            read[name] = content(skill)
        return read[name]

    return ToolSpec(
        name=NAME,
        description="Read one of the skills listed in <skills> before you do what it is about.",
        input_schema={
            "type": "object",
            "properties": {"name": {"type": "string", "enum": sorted(names), "description": "Which skill"}},
            "required": ["name"],
            "additionalProperties": False,
        },
        kind="meta",
        repeatable=True,
        parallel_safe=True,
        run=run,
        describe=lambda args, ctx: Target(detail=args["name"]),
    )
