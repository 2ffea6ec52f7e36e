"""The ``task`` tool: the guide's way to delegate (neighbours B.6), the same agents as PersistentAgent's.

``task({subagent_type, prompt, background?, metadata?})`` gives ``{output}``, or ``{session_id}`` of an agent in the
background. What it may read is what its parent may (DD-6); everything else is the preset's, as for any agent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyagentd.agent.delegating.spawn import Assignment, Spawner, agent_tool, result_of
from pyagentd.agent.running.outcome import Outcome
from pyagentd.tools.spec import Args, Output, ToolSpec

NAME = "task"

_DESCRIBED = 60  # characters of a prompt that name its task


def task(spawner: Spawner, *, depth: int) -> ToolSpec:
    """Return the tool for a run of a branch that is ``depth`` agents below its root."""
    return agent_tool(spawner, depth=depth, name=NAME, schema=_schema, wanted=_assignment, told=as_output)


def as_output(outcome: Outcome) -> Output:
    """Return what an agent came to as this tool's result; an error stays as it is."""
    output = result_of(outcome)
    return replace(output, text=json.dumps({"output": output.text}, ensure_ascii=False)) if output.ok else output


def described(prompt: str) -> str:
    """Return a few words that say what a prompt is about: the beginning of its first line."""
    line = " ".join(next(filter(str.strip, prompt.splitlines()), "").lstrip("#").split())
    if len(line) <= _DESCRIBED:
        return line or "task"
    return line[:_DESCRIBED].rsplit(" ", 1)[0]


def _assignment(args: Args, call_id: str) -> Assignment:
    return Assignment(
        preset=args["subagent_type"],
        description=described(args["prompt"]),
        prompt=args["prompt"],
        background=bool(args.get("background")),
        call_id=call_id,
        metadata=args.get("metadata") or {},
    )


def _schema(names: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "subagent_type": {"type": "string", "enum": list(names), "description": "Which kind of agent"},
            "prompt": {
                "type": "string",
                "minLength": 1,
                "description": "The whole task, for a reader who knows nothing else",
            },
            "background": {
                "type": "boolean",
                "description": "Do not wait: you get its session_id now and its result later, as a message",
            },
            "metadata": {"type": "object", "description": "Kept with the agent's session; nobody acts on it"},
        },
        "required": ["subagent_type", "prompt"],
        "additionalProperties": False,
    }
