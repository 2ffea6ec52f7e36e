"""What a daemon that was killed left half done with named agents: completed or taken back by the next one.

Nobody talks with an agent before this is done. What cannot be done now, since the disk refuses, waits for the next
start; nothing here keeps the daemon from starting.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

from pyagentd.agent.lifecycle import creating, destroying, renaming
from pyagentd.agent.triggering.triggers import local_user
from pyagentd.clock import epoch_ms
from pyagentd.errors import PyagentdError
from pyagentd.store import named_agents, paths, trash
from pyagentd.store.db import agents
from pyagentd.store.db.agents import AgentRow

if TYPE_CHECKING:
    from pyagentd.agent.host import Host

log = logging.getLogger(__name__)

_DRAFT = re.compile(r"\.([A-Za-z0-9_-]{1,64})\.[0-9a-f]{16}")  # of a directory that is being made, or deleted

_ABANDONED_S = 3600.0  # another daemon, with its own sessions, may be making one there


async def recover(host: Host) -> None:
    """See to every agent with which something was begun, and learn which are gone."""
    try:
        rows = await asyncio.to_thread(agents.known, host.state, destroyed=True)
    except PyagentdError as error:  # as before there is any session
        log.info("no agent is known: %s", error)
        return
    host.departed |= {Path(row.dir) for row in rows if row.status == "destroyed"}
    begun = set()
    for row in rows:
        if intent := row.intent or ("create" if row.status == "created" else ""):
            begun.add(row.name)
            try:
                await _settle(host, row, *intent.split())
            except PyagentdError as error:
                log.error("agent %s: %s", row.name, error)
    await asyncio.to_thread(_discard_drafts, host.config.agents_dir.resolve(), begun)


async def _settle(host: Host, row: AgentRow, intent: str, name: str = "") -> None:
    """See to an agent with an intent and its word: the other name, or which directory is to go."""
    place = Path(row.dir)
    log.info("agent %s: a daemon ended at %r", row.name, row.intent)
    match intent:
        case "create" | "adopt" if row.status != "created":
            await creating.complete(host, paths.ref_of(place))
        case "create" if not named_agents.agent_file(place).is_file():
            await asyncio.to_thread(agents.forget, host.state, row.name)
        case "create":  # it was complete when it got its name
            ref = paths.ref_of(place)
            made = creating.row_of(host, host.named.file(ref), ref, status="idle", intent=intent)
            await asyncio.to_thread(agents.put, host.state, made)
            await creating.complete(host, ref)
        case "adopt":  # what was merged into it, if anything, is merged again by who takes it up
            now_ms = epoch_ms(host.clock.now())
            await asyncio.to_thread(agents.set_status, host.state, row.name, "destroyed", now_ms=now_ms)
            host.departed.add(place)
        case "remove" if await asyncio.to_thread(destroying.identity, place) not in ("", name):
            log.warning("agent %s: %s was put there since it was removed, and stays", row.name, place)
            await destroying.complete(host, row, "leave", user=local_user())
        case "remove" | "leave":
            await destroying.complete(host, row, intent, user=local_user())
        case renaming.RENAME:
            new = place.with_name(name)
            if not await asyncio.to_thread(_has_moved, place, new):
                await asyncio.to_thread(agents.intend, host.state, row.name, None)
                return
            await asyncio.to_thread(renaming.adapt, host, place, new)
            await renaming.follow(host, place, new, user=local_user())
        case renaming.RENAMED:
            await renaming.follow(host, place.with_name(name), place, user=local_user())


def _has_moved(old: Path, new: Path) -> bool:
    return not old.exists() and named_agents.agent_file(new).is_file()


def _discard_drafts(root: Path, begun: Container[str]) -> None:
    """Remove what was being made, or deleted, under a name of its own: of the agents ``begun``, and what is old."""
    for entry in root.iterdir() if root.is_dir() else ():
        found = None if entry.is_symlink() else _DRAFT.fullmatch(entry.name)
        if found and (found[1] in begun or _is_abandoned(entry)):
            trash.discard(entry)


def _is_abandoned(draft: Path) -> bool:
    try:
        return draft.lstat().st_ctime < time.time() - _ABANDONED_S
    except FileNotFoundError:  # whoever was making it is done
        return False
