"""Creating a named agent: SPEC 003 Creation Flow, step by step.

A channel of the specification is the agent's conversation, which any client may open (DD-18), and its welcome is what
is told to whoever opens a conversation in which nothing was said yet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.agent.lifecycle.overlay import profile_of
from pyagentd.agent.lifecycle.repository import init_repository
from pyagentd.agent.lifecycle.telling import left
from pyagentd.clock import epoch_ms, iso8601
from pyagentd.errors import BadRequest, Conflict, NotFound, PresetError
from pyagentd.policy.presets import DEFAULT_PRESET
from pyagentd.policy.profiles import BUILTIN
from pyagentd.store import atomic, named_agents, paths
from pyagentd.store.db import agents
from pyagentd.store.db.agents import AgentRow
from pyagentd.store.document.hidden import is_command
from pyagentd.store.named_agents import AgentFile, Material
from pyagentd.store.paths import BranchRef

if TYPE_CHECKING:  # the host is given by who asks
    from pyagentd.agent.branches.branch import LiveBranch
    from pyagentd.agent.host import Host

DEFAULT_PERMISSIONS = "standard"

MODEL_SETTING = "default_model"
PERMISSIONS_SETTING = "default_permissions"
"""Keys of ``state.settings``: what a new agent gets where nobody says."""

Permissions = str | Mapping[str, Any]

_OTHER = "Take another name"
_SHOWN = 300  # characters of a system prompt in a welcome

naming = asyncio.Lock()
"""Held while a name is claimed, or given up: that happens one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is said about an agent that is to be made; None: the defaults say."""

    name: str
    system_prompt: str | None = None
    model: str | None = None
    permissions: Permissions | None = None


async def create(host: Host, wanted: Wanted) -> BranchRef:
    """Make an agent and return its branch, registered and idle.

    Raises:
        BadRequest: The name, or the model, is not possible.
        Conflict: There is an agent of that name, or something else in its place.
        PresetError: The permissions, the template or the preset are malformed.
        StoreError: The disk refused, or git. Nothing is left behind in any case.
    """
    name = named_agents.checked(wanted.name)
    async with naming:
        await asyncio.to_thread(atomic.make_dirs, host.config.sessions_dir)  # where the table of agents is
        known, before = await _free(host, name)
        given = await _overrides(host, wanted, adopted=known)
        _, text = host.presets.template(DEFAULT_PRESET)
        template = host.config.agent_template or named_agents.shipped_template()
        if not named_agents.agent_file(template).is_file():
            raise NotFound(f"{template} has no agent.json", mend="Correct [agents] template in the configuration")
        material = Material(template=template, values=given, preset_name=DEFAULT_PRESET, preset_text=text)
        now = host.clock.now()
        place = host.config.agents_dir.resolve() / name
        row = AgentRow(
            name=name,
            dir=str(place),
            session_id=name,
            permissions=_written(given.get("permissions") or DEFAULT_PERMISSIONS),
            created_at=iso8601(now),
            status="created",
            changed_at=epoch_ms(now),
            intent="adopt" if known else "create",
        )
        await asyncio.to_thread(agents.register, host.state, row)
        make = named_agents.adopt if known else named_agents.make
        git = partial(init_repository, name=name)
        ref: BranchRef | None = None
        try:
            ref = await asyncio.to_thread(make, host.config.agents_dir, name, material, prepare=git, clock=host.clock)
            done = row_of(host, named_agents.read(place), ref, status="idle", intent=row.intent)
            await asyncio.to_thread(agents.put, host.state, done)
        except BaseException:
            if ref is not None and not known:  # what is there is what was made just now
                await asyncio.to_thread(atomic.discard, place)
            await asyncio.to_thread(_take_back, host, name, before)
            raise
        await complete(host, ref)
        return ref


async def complete(host: Host, ref: BranchRef) -> None:
    """Let people talk with an agent that was made or taken up, and note that it is complete."""
    host.departed.discard(ref.session_dir)
    host.origins.made(ref)
    async with host.using(ref) as branch:
        branch.record_session(workspace_root=named_agents.workspace_dir(ref.session_dir), agent=DEFAULT_PRESET)
    await asyncio.to_thread(agents.intend, host.state, ref.session_dir.name, None)


def row_of(
    host: Host, file: AgentFile, ref: BranchRef, *, status: agents.Status, intent: str | None = None
) -> AgentRow:
    """Return what the table of agents is to say of an agent with this ``file``."""
    now = host.clock.now()
    return AgentRow(
        name=ref.session_dir.name,
        dir=str(ref.session_dir),
        session_id=ref.session_id,
        channel_id=file.channel_id,
        model=file.model,
        permissions=_written(file.permissions or DEFAULT_PERMISSIONS),
        created_at=file.created_at or iso8601(now),
        status=status,
        changed_at=epoch_ms(now),
        intent=intent,
    )


def checked_permissions(host: Host, value: Permissions) -> Permissions:
    """Return permissions that a file may have: the name of a profile that there is, or one written out.

    A text that begins with a brace is the JSON of one. Raises ``PresetError``.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise PresetError(
                f"The permissions are no JSON: {error.msg}", mend='{"allow": […], "ask": […]}'
            ) from error
    known = {**BUILTIN, **host.presets.profiles}
    if isinstance(value, str) and value.strip() not in known:
        raise PresetError(
            f"There is no profile {value.strip()[:80]!r}",
            mend=f'Known: {", ".join(sorted(known))}; or write one out: {{"allow": […], "ask": […]}}',
        )
    try:
        profile_of(value, host.presets.profiles, source="permissions")
    except BadRequest as error:
        raise PresetError(error.message, mend=error.mend) from error
    return value


def checked_prompt(text: str) -> str:
    """Return a system prompt; raises ``BadRequest`` for one that says nothing."""
    if not text.strip():
        raise BadRequest("The system prompt is empty", mend="Say what the agent is and does")
    return text


def checked_model(host: Host, model: str) -> str:
    """Return ``[BACKEND/]MODEL``; raises ``BadRequest`` when it is no name, ``ConfigError`` for another backend."""
    text = model.strip()
    if not text or any(char.isspace() or not char.isprintable() for char in text):
        raise BadRequest(f"{model[:80]!r} is no model", mend="Give its name, or BACKEND/NAME")
    if backend := text.rpartition("/")[0]:
        host.config.backend(backend)
    return text


def welcome(host: Host, ref: BranchRef) -> str:
    """Return the introduction of a named agent: what it is told to be, and what it may do."""
    file = host.named.file(ref)
    prompt = " ".join((file.system_prompt or "").split())
    prompt = prompt if len(prompt) <= _SHOWN else prompt[: _SHOWN - 1] + "…"
    profile = file.permissions or DEFAULT_PERMISSIONS
    shown = profile if isinstance(profile, str) else "custom"
    said = f"Its system prompt: {prompt}" if prompt else "It has the system prompt of its preset."
    model = host.presets.of_branch(ref).model or "the default of its backend"
    head = f"This is the agent {file.name}, model: {model}"
    return f"{head}, permissions: {shown}. {said} Say what it is to do; /help lists commands."


def welcomes(host: Host, branch: LiveBranch) -> list[str]:
    """Return what whoever opens a branch is told.

    Of a named agent with whom nobody has talked yet, the welcome; of a conversation that was put behind since nobody
    went on, where it is.
    """
    if host.named.is_named(branch.ref) and all(map(is_command, branch.conversation.messages.values())):
        return [welcome(host, branch.ref)]
    return left(branch.conversation)


async def _free(host: Host, name: str) -> tuple[bool, AgentRow | None]:
    """See that a name is free (DD-17).

    Returns:
        Whether its directory is to be taken up again, and the row of the agent that was destroyed.
    """
    place = host.config.agents_dir.resolve() / name
    row = await asyncio.to_thread(agents.find, host.state, name)
    exists = place.exists() or place.is_symlink()
    await asyncio.to_thread(require_other_letters, host, name)
    if row is not None and row.status != "destroyed":
        if exists:
            raise Conflict(
                f"There is an agent called {name!r} already", mend="Take another name, or destroy it first"
            )
        await asyncio.to_thread(agents.forget, host.state, name)  # its directory was removed by hand
        row = None
    if exists and row is not None and row.intent == "remove":
        raise Conflict(f"{place} was to be removed and is still there", mend="Remove it, or restart the daemon")
    if exists and not (place.is_dir() and not place.is_symlink() and named_agents.agent_file(place).is_file()):
        raise Conflict(f"{place} exists already and is no agent", mend="Take another name, or move that away")
    if not exists and (host.config.sessions_dir / name / paths.BRANCHES_DIR).is_dir():
        raise Conflict(f"A session has the id {name!r} already", mend="Take another name")
    return exists, row


def require_other_letters(host: Host, name: str, *, besides: str = "") -> None:
    """See that no agent but ``besides`` has this name in other case: they could not be told apart; blocks.

    Raises:
        Conflict: One has.
    """
    for row in agents.known(host.state):
        if row.name not in (name, besides) and row.name.casefold() == name.casefold():
            raise Conflict(f"There is an agent called {row.name!r}, which differs in case alone", mend=_OTHER)


def _take_back(host: Host, name: str, before: AgentRow | None) -> None:
    """Have the table of agents say of a name what it said ``before``; records of it stay as they are."""
    agents.forget(host.state, name) if before is None else agents.put(host.state, before)


async def _overrides(host: Host, wanted: Wanted, *, adopted: bool) -> dict[str, Any]:
    """Return the keys of ``agent.json`` that are set; of one that is taken up only what was said."""
    values: dict[str, Any] = {}
    model, permissions = wanted.model, wanted.permissions
    if not adopted:
        model = model or await asyncio.to_thread(host.state.get, MODEL_SETTING)
        permissions = (
            permissions or await asyncio.to_thread(host.state.get, PERMISSIONS_SETTING) or DEFAULT_PERMISSIONS
        )
    if wanted.system_prompt is not None:
        values["system_prompt"] = checked_prompt(wanted.system_prompt)
    if model:
        values["model"] = checked_model(host, model)
    if permissions:
        values["permissions"] = checked_permissions(host, permissions)
    return values


def _written(permissions: Permissions) -> str:
    return permissions if isinstance(permissions, str) else json.dumps(permissions)


def agent_dir(host: Host, name: str) -> Path:
    """Return the directory of the agent ``name``.

    Raises:
        BadRequest: No agent may be called that.
        NotFound: There is none.
    """
    place = host.config.agents_dir.resolve() / named_agents.checked(name)
    row = agents.find(host.state, name)
    if (row is not None and row.status == "destroyed") or not named_agents.agent_file(place).is_file():
        if row is not None and row.status == "destroyed":
            raise NotFound(f"The agent {name} was destroyed", mend=f"`pyagentd agent init {name}` makes it anew")
        raise NotFound(f"There is no agent called {name!r}", mend="List them with `pyagentd agent list`")
    return place
