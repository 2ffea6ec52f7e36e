"""How a conversation is opened: watching it, what was said in it, who can answer in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from acp import schema

from pyagentd.acp.wire import Daemon
from pyagentd.errors import Busy
from pyagentd.store.document.text import body_sha256, read

_ATTEMPTS: Final = 5


async def attach(daemon: Daemon, place: Path) -> Mapping[str, Any]:
    """Have the events of the branch in ``place`` sent from now on, and return the answer to ``attach``.

    Raises:
        Busy: The document changes all the time.
    """
    for _ in range(_ATTEMPTS):
        # A client attaches from a version it has (DESIGN §3 rule 5); another writer may be faster.
        sha256 = body_sha256((await asyncio.to_thread(read, place / "session.md")).body)
        state: Mapping[str, Any] = await daemon.call("attach", branch=str(place), sha256=sha256, mode="view")
        if not state.get("reread"):
            return state
    raise Busy(f"{place}/session.md changes faster than it can be read", mend="Try again")


async def shown(daemon: Daemon, branch: str) -> dict[str, Any]:
    """Return a conversation as ``show`` tells it: ``session``, ``messages``, and the last row ``seq`` in it."""
    answer = await daemon.call("show", branch=branch)
    text = answer.get("json") or await asyncio.to_thread(Path(answer["path"]).read_text, "utf-8")
    return {**json.loads(text), "seq": answer["seq"]}


def modes(agents: Iterable[Mapping[str, Any]], current: str) -> schema.SessionModeState:
    """Return the agents that can answer as modes; ``current`` is one even where its preset is gone."""
    found = [
        schema.SessionMode(id=str(each["name"]), name=str(each["name"]), description=str(each["description"] or ""))
        for each in agents
    ]
    if current not in {mode.id for mode in found}:
        found.insert(0, schema.SessionMode(id=current, name=current or "default"))
    return schema.SessionModeState(current_mode_id=current, available_modes=found)
