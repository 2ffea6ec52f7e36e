"""A parent that delegates to one agent: what the model says, what the client sees, what is on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from tests.runtime.world import Watcher, World, attached
from tests.server import Request, answer, tool_use

GRANT = "tool:PersistentAgent:.*"


def spawn(preset: str = "helper", description: str = "find it", prompt: str = "Find it.", **more: Any) -> Any:
    return tool_use("PersistentAgent", preset=preset, description=description, prompt=prompt, **more)


def delegate(world: World, *said: Any, call: Any = None) -> None:
    """Script: the parent spawns, the agent says what it is given to say, the parent ends."""
    world.server.say(answer(call or spawn()), *said, "Done")


def agents_of(ref: BranchRef) -> list[BranchRef]:
    home = paths.agents_dir(ref.branch_dir)
    return [paths.ref_of(place) for place in sorted(home.iterdir())] if home.is_dir() else []


def agent_of(ref: BranchRef) -> BranchRef:
    (agent,) = agents_of(ref)
    return agent


async def converse(
    world: World, ref: BranchRef, prompt: str = "Delegate.", *, grants: tuple[str, ...] = (GRANT,), human: bool = True
) -> Watcher:
    """Run a prompt to its end; return what a client that watched saw."""
    watcher, options = Watcher(), replace(world.granted(*grants), interactive=human)
    async with world.kernel.using(ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text=prompt, options=options)
        await watcher.until(lambda: ends(watcher, ref))
        branch.detach(watcher)
    return watcher


def ends(watcher: Watcher, ref: BranchRef) -> list[dict[str, Any]]:
    """How runs of a branch ended, as a client was told."""
    return [event.args[0] for event in watcher.of("run", ref.key) if event.args[0]["phase"] == "finished"]


def results(request: Request) -> list[str]:
    """The tool results that a request brings the model."""
    return [_text(block) for block in request.messages[-1]["content"] if block["type"] == "tool_result"]


def _text(block: dict[str, Any]) -> str:
    content = block["content"]
    return content if isinstance(content, str) else "".join(each["text"] for each in content)


def system_of(request: Request) -> str:
    return json.dumps(request.body["system"])


def tools_of(request: Request) -> set[str]:
    return {tool["name"] for tool in request.body.get("tools", [])}
