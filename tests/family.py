"""A model's script for three levels of agents, two of which ask a human at the same time.

The root spawns `second`, which asks, and `middle`, which spawns `third`, which asks. Every answer depends only on the
conversation that is sent, so a conversation that goes on elsewhere gets the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.server import Answer, Request, answer, tool_use

Rule = Callable[[Request], Answer]


def family(*, preset: str, second: str = "echo two", third: str = "echo three") -> Rule:
    """Return a rule for every request of the family; ``second`` and ``third`` are commands that are asked about."""

    def spawn(name: str, prompt: str) -> Any:
        return tool_use("PersistentAgent", id=f"call_{name}", preset=preset, description=name, prompt=prompt)

    def rule(request: Request) -> Answer:
        prompt, results = _prompt(request), _results(request)
        if results:
            return answer(f"{prompt}: {' / '.join(results)}")
        match prompt:
            case "Root":
                return answer("I delegate.", spawn("second", "Second"), spawn("middle", "Middle"))
            case "Second":
                return answer(tool_use("Bash", id="call_two", command=second))
            case "Middle":
                return answer(spawn("third", "Third"))
        return answer("I begin.", tool_use("Bash", id="call_three", command=third))

    return rule


def _prompt(request: Request) -> str:
    content = request.messages[0]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    return str(text).strip().removeprefix("### ")


def _results(request: Request) -> list[str]:
    found = []
    for block in request.messages[-1]["content"]:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            said = block["content"]
            text = said if isinstance(said, str) else said[0]["text"] if said else ""
            found.append(str(text).strip())
    return found
