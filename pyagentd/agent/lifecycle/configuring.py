"""Reading and changing what a named agent is, by its user (SPEC 003, ``/agent config``).

The keys are those that a person sets: system prompt, model, permissions, name. A change is written to ``agent.json``
alone, counts from the next request on, and is audited with the old and the new value.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyagentd.agent.lifecycle import creating
from pyagentd.clock import epoch_ms
from pyagentd.errors import BadRequest
from pyagentd.store import named_agents, paths
from pyagentd.store.db import agents
from pyagentd.store.db.audit import Entry
from pyagentd.store.named_agents import AgentFile
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:
    from pyagentd.agent.host import Host

SHOWN = ("name", "channel_id", "model", "system_prompt", "permissions", "created_at")
SETTABLE = ("system_prompt", "model", "permissions")

_OF_THE_MODEL = {"backend", "model"}  # keys of a preset that are one in the file
_LONGEST = 500  # characters of an old or new value in the audit


async def shown(host: Host, name: str) -> dict[str, Any]:
    """Return what the ``agent.json`` of an agent says, without what it never decides; raises as ``agent_dir``."""
    directory = await asyncio.to_thread(creating.agent_dir, host, name)
    file = await asyncio.to_thread(named_agents.read, directory)
    return {key: file.values.get(key) for key in SHOWN}


async def change(host: Host, name: str, key: str, value: Any, *, user: str) -> AgentFile:
    """Set one key of an agent; return what its file said before.

    Args:
        host: Where it lives.
        name: The agent's.
        key: One of ``SETTABLE``.
        value: Its new value; None, or a text that is empty, for the default of the agent's preset (not of a prompt).
        user: Who wants that, for the audit.

    Raises:
        BadRequest, NotFound, PresetError, StoreError: As ``creating.create``; nothing was changed.
    """
    if key not in SETTABLE:
        raise BadRequest(f"{key[:40]!r} is no key of an agent", mend=f"Known: {', '.join((*SETTABLE, 'name'))}")
    directory = await asyncio.to_thread(creating.agent_dir, host, name)
    wanted = _checked(host, key, value)
    before = await asyncio.to_thread(named_agents.change, directory, {key: wanted})
    ref = paths.ref_of(directory)
    row = await asyncio.to_thread(agents.find, host.state, name)
    status = row.status if row is not None else "idle"
    after = await asyncio.to_thread(named_agents.read, directory)
    await asyncio.to_thread(agents.put, host.state, creating.row_of(host, after, ref, status=status))
    note(host, name, f"config:{key}", old=before.values.get(key), new=wanted, user=user)
    return before


async def keep(host: Host, ref: BranchRef, values: Mapping[str, Any], *, user: str) -> Mapping[str, Any]:
    """Write what ``agent.json`` owns of settings that a person put into the document of a named agent.

    Args:
        host: Where it lives.
        ref: A branch of it; of another session nothing is written.
        values: By the names of a preset.
        user: Whose they are, for the audit.

    Returns:
        What is left for ``preset.md``.

    Raises:
        NotFound, PresetError, StoreError: As ``change``; nothing was written.
    """
    if not host.named.is_named(ref) or not values.keys() & _OF_THE_MODEL:
        return values
    provider = values.get("backend") or (host.named.file(ref).model or "").rpartition("/")[0]
    name = values.get("model") or host.presets.of_branch(ref).model
    await change(host, ref.session_dir.name, "model", f"{provider}/{name}" if provider else name, user=user)
    return {key: value for key, value in values.items() if key not in _OF_THE_MODEL}


def note(host: Host, name: str, action: str, *, old: Any, new: Any, user: str) -> None:
    """Audit what a person changed of an agent: nobody was asked, since the one who may allow it did it."""
    host.ledger.note(
        Entry(
            at_ms=epoch_ms(host.clock.now()),
            session=name,
            branch_dir=str(host.config.agents_dir.resolve() / name),
            agent=None,
            run_id="",
            tool="agent",
            action=f"agent:{action}",
            decision="allow",
            rule="human",
            by=user,
            detail=json.dumps({"old": _short(old), "new": _short(new)}, ensure_ascii=False),
            user=user,
        )
    )


def _checked(host: Host, key: str, value: Any) -> Any:
    if key == "system_prompt":
        return creating.checked_prompt(str(value or ""))
    if value is None or value == "":
        return None if key == "model" else creating.DEFAULT_PERMISSIONS
    if key == "model":
        return creating.checked_model(host, str(value))
    return creating.checked_permissions(host, value)


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
