"""Sessions whose preset promises a signature, and what a model says in a mission."""

from __future__ import annotations

import json
from typing import Any

from pyagentd.store.paths import BranchRef
from tests.runtime.world import World, rows

COUNTS = "{count :int, names [:string]}"
RETURN = '(call "return" {:count 1 :names []})'


def said(program: str, words: str = "I look.") -> str:
    return f"{words}\n\n```clojure\n{program}\n```"


def contract(
    world: World, name: str, signature: str = COUNTS, tools: str = "Read, Glob, Bash", more: str = ""
) -> None:
    """Write a preset that is a mission."""
    world.preset(name, model=f"model-{name}\nsignature: {json.dumps(signature)}\n{more}", tools=tools)


def contracted(world: World, signature: str = COUNTS, tools: str = "Read, Glob, Bash", more: str = "") -> BranchRef:
    """Make a session that is a mission."""
    contract(world, "counter", signature, tools, more)
    return world.session(preset="counter")


def phases(ref: BranchRef) -> dict[str, dict[str, Any]]:
    """The last row of each phase of the missions in a log."""
    return {row.data["phase"]: row.data for row in rows(ref) if row.type == "mission"}
