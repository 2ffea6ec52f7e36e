"""A model that does everything that is written to disk, by what it is asked and not by how often.

So a turn that was cut short confuses nobody. Every text has a mark of its own, ``<17> ``, to find it again by.
"""

from __future__ import annotations

import itertools

from tests.server import Block, Request, answer, refusal, text, thinking, tool_use
from tests.server.answers import Scripted

EVERYTHING = "Do everything."
FAIL = "Fail now."
_serial = itertools.count(1)


class Model:
    """A rule for a ``ModelServer``.

    Args:
        agent: The preset of the agents it spawns.
        pause_s: Before each delta of a prompt's first answer, so that some are written one by one.
    """

    def __init__(self, *, agent: str = "main", pause_s: float = 0.012) -> None:
        self._agent = agent
        self._pause_s = pause_s

    def __call__(self, request: Request) -> Scripted:
        if not request.body.get("tools"):  # nobody but who wants a title offers none
            return answer("A title")
        prompt, steps = _asked(request)
        if prompt.endswith(FAIL):
            return refusal(400, "invalid_request_error", f"<{next(_serial)}> was asked to fail")
        return answer(*self._blocks(prompt, steps), pause_s=0.0 if steps else self._pause_s)

    def _blocks(self, prompt: str, steps: int) -> tuple[Block, ...]:
        words = " ".join(f"word{number}" for number in range(12))
        said = text(f"<{next(_serial)}> {words}.", chunks=6)
        read, found = tool_use("Read", file_path="a.txt"), tool_use("Glob", pattern="*.txt")
        if prompt.endswith("Look around."):
            return (said,) if steps else (said, read, found)
        if not prompt.endswith(EVERYTHING) or steps > 2:
            return (said,)
        task = {"preset": self._agent, "description": "look around", "prompt": "Look around."}
        match steps:
            case 0:
                thought = thinking(f"Hm <{next(_serial)}>.", chunks=2)
                return (thought, said, read, found, tool_use("Read", file_path="missing.txt"))
            case 1:
                return (said, tool_use("Write", file_path=f"b{next(_serial)}.txt", content="beta\n"))
            case _:
                return (said, tool_use("PersistentAgent", **task), tool_use("PersistentAgent", **task))


def _asked(request: Request) -> tuple[str, int]:
    """Return the last prompt, and how often tools were called since."""
    steps = 0
    for message in reversed(request.messages):
        if message["role"] != "user":
            continue
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        said = [block["text"] for block in blocks if block["type"] == "text"]
        if said:
            return said[-1].strip(), steps
        steps += 1
    return "", steps
