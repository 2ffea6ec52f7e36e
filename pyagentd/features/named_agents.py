"""Named agents: create, configure, rename, destroy and recover them, with their workspaces.

The conversation of an agent begins with its introduction, which is not sent to the model.
"""

import asyncio
import json
import logging
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from pyagentd import installation, reader
from pyagentd.clock import epoch_ms, iso8601, seconds_of
from pyagentd.errors import BadRequest, Busy, Conflict, NotFound, PresetError, PyagentdError, StoreError
from pyagentd.events import one_line, truncate
from pyagentd.features.contexts import IDLE_S, Contexts, left_notice
from pyagentd.features.schedules import Schedules
from pyagentd.features.slash_commands import record_command
from pyagentd.features.tasks import Tasks
from pyagentd.policy.presets import DEFAULT_PRESET, read_profile
from pyagentd.policy.profiles import BUILTIN
from pyagentd.reader import Source
from pyagentd.runtime import system_prompt as instructions
from pyagentd.runtime.feature import Feature
from pyagentd.runtime.grants import local_subject
from pyagentd.runtime.settings import parse_model
from pyagentd.store import atomic, contexts, metadata, named_agents, paths, presetfile
from pyagentd.store import sessions as trash
from pyagentd.store.db import agents, schedules, tasks
from pyagentd.store.db.agents import AgentRow
from pyagentd.store.db.audit import Entry
from pyagentd.store.named_agents import AgentFile, Material
from pyagentd.store.paths import BranchRef
from pyagentd.words import quantity, size

if TYPE_CHECKING:
    from pyagentd.runtime.branch import LiveBranch
    from pyagentd.runtime.kernel import Kernel

log = logging.getLogger(__name__)


# Git in a repository that an agent may have written to: only its own configuration counts; no hooks, no monitors.
#
# Environment variables cannot redirect git, and it neither fetches nor prompts. Filters that a configuration names
# still run when files are read or written: for an untrusted repository, ``repository_state`` looks for them first.

_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
_OWN = {
    "PATH": installation.PATH,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch missing objects by running a configured program
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def run_git(directory: Path, *words: str, timeout_s: float) -> str:
    """Run git in ``directory`` and return its output.

    Blocks, for ``timeout_s`` seconds at most.

    Raises:
        StoreError: git is not installed, times out or fails.
    """
    git = installation.program("git")
    if git is None:
        raise StoreError("git is not installed", hint="An agent's workspace is a git repository: install git")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [git, *_OPTIONS, "-C", str(directory), *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=environment | _OWN,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreError(f"git {words[0]} in {directory}: {error}") from error
    if done.returncode:
        raise StoreError(f"git {words[0]} in {directory}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done.stdout


# The git repository of a named agent's workspace.

_TIMEOUT_S = 60.0
_PLACEHOLDER = ".gitkeep"


def init_repository(workspace: Path, name: str) -> None:
    """Make ``workspace`` a git repository and commit its files; a workspace with a ``.git`` stays unchanged.

    Later commits there are made as the agent ``name``. Neither hooks nor templates of the user run.

    Raises:
        StoreError: git is not installed, or fails.
    """
    if (workspace / ".git").exists():
        return
    if not any(workspace.iterdir()):
        (workspace / _PLACEHOLDER).touch()
    for words in (
        ("init", "--quiet", "--template=", "--initial-branch=main"),
        ("config", "user.name", name),
        ("config", "user.email", f"{name}@pyagentd.local"),
        ("add", "--all"),
        ("commit", "--quiet", "--allow-empty", "--no-verify", "--no-gpg-sign", "--message", "Workspace"),
    ):
        run_git(workspace, *words, timeout_s=_TIMEOUT_S)
    (workspace / ".git/hooks").mkdir(exist_ok=True)  # it is watched while commands run, so it must exist


DEFAULT_PERMISSIONS = "standard"

MODEL_SETTING = "default_model"
PERMISSIONS_SETTING = "default_permissions"
"""Keys of ``state.settings``: defaults of a new agent."""

Permissions = str | Mapping[str, Any]

_OTHER = "Choose another name"
_SHOWN = 300  # characters of a system prompt in a welcome

naming = asyncio.Lock()
"""Held while a name is claimed or given up, so that one happens at a time."""


async def create(
    kernel: "Kernel",
    name: str,
    *,
    system_prompt: str | None = None,
    model: str | None = None,
    permissions: Permissions | None = None,
) -> BranchRef:
    """Create an agent and return its branch, registered and idle; arguments that are None come from the defaults.

    Raises:
        BadRequest: The name or the model is invalid.
        Conflict: An agent of that name exists, or something else at its path.
        PresetError: The permissions, the template or the preset are malformed.
        StoreError: Writing or git failed. Nothing is left behind in any case.
    """
    named_agents.validate_name(name)
    async with naming:
        await asyncio.to_thread(atomic.make_dirs, kernel.config.sessions_dir)  # where the table of agents is
        known, before = await asyncio.to_thread(_free, kernel, name)
        if not known:  # an adopted agent has its own
            model = model or await asyncio.to_thread(kernel.state.get, MODEL_SETTING)
            permissions = permissions or await asyncio.to_thread(kernel.state.get, PERMISSIONS_SETTING)
            permissions = permissions or DEFAULT_PERMISSIONS
        given: dict[str, Any] = {}
        if system_prompt is not None:
            given["system_prompt"] = checked_prompt(system_prompt)
        if model:
            given["model"] = parse_model(model, kernel.config)
        if permissions:
            given["permissions"] = checked_permissions(kernel, permissions)
        _, text = kernel.presets.template(DEFAULT_PRESET)
        template = kernel.config.agent_template or installation.shipped("template")
        if not named_agents.agent_file(template).is_file():
            raise NotFound(f"{template} has no agent.json", hint="Correct [agents] template in the configuration")
        material = Material(template=template, values=given, preset_name=DEFAULT_PRESET, preset_text=text)
        now = kernel.clock.now()
        place = kernel.config.agents_dir.resolve() / name
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
        await asyncio.to_thread(agents.register, kernel.state, row)
        make = named_agents.adopt if known else named_agents.make
        git = partial(init_repository, name=name)
        ref: BranchRef | None = None
        try:
            ref = await asyncio.to_thread(
                make, kernel.config.agents_dir, name, material, prepare=git, clock=kernel.clock
            )
            done = row_of(kernel, named_agents.read(place), ref, status="idle", intent=row.intent)
            await asyncio.to_thread(agents.put, kernel.state, done)
        except BaseException:
            if ref is not None and not known:  # the directory was created just now
                await asyncio.to_thread(atomic.discard, place)
            if before is None:
                await asyncio.to_thread(agents.forget, kernel.state, name)
            else:  # its records stay unchanged
                await asyncio.to_thread(agents.put, kernel.state, before)
            raise
        await complete(kernel, ref)
        return ref


async def complete(kernel: "Kernel", ref: BranchRef) -> None:
    """Finish the creation of an agent: clear conversations from before it was destroyed, and write the welcome."""
    kernel.departed.discard(ref.session_dir)
    kernel.origins.note_made(ref)
    if (saved := kernel.find(Contexts)) is not None:
        for timeline in metadata.branches(ref.session_dir):
            async with kernel.using(timeline) as branch:
                await saved.put_behind(branch, "destroy", when="when the agent was destroyed")
    async with kernel.using(ref) as branch:
        branch.record_session(workspace_root=named_agents.workspace_dir(ref.session_dir), agent=DEFAULT_PRESET)
        line = f"/agent init {ref.session_dir.name}"
        await record_command(kernel, branch, line, name="agent init", answer=introduction_of(kernel, ref))
    await asyncio.to_thread(agents.intend, kernel.state, ref.session_dir.name, None)


def row_of(
    kernel: "Kernel", file: AgentFile, ref: BranchRef, *, status: agents.Status, intent: str | None = None
) -> AgentRow:
    """Return the row of an agent with this ``file`` for the table of agents."""
    now = kernel.clock.now()
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


def profile_names(kernel: "Kernel") -> list[str]:
    """Return the names of the permission profiles: the built-in ones, then the user's own."""
    return [*BUILTIN, *kernel.presets.profiles]


def checked_permissions(kernel: "Kernel", value: Permissions) -> Permissions:
    """Return valid permissions for an agent file: the name of a known profile, or a profile itself.

    A text that begins with a brace is parsed as the JSON of a profile. Raises ``PresetError``.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = reader.parse(value)
        except ValueError as error:
            raise PresetError(f"The permissions are not JSON: {error}", hint='{"allow": […], "ask": […]}') from error
    known = profile_names(kernel)
    if isinstance(value, str) and value.strip() not in known:
        raise PresetError(
            f"There is no profile {value.strip()[:80]!r}",
            hint=f'Known: {", ".join(sorted(known))}; or write one out: {{"allow": […], "ask": […]}}',
        )
    try:
        read_profile(value, kernel.presets.profiles, Source.at("permissions", PresetError), ("permissions",))
    except BadRequest as error:
        raise PresetError(error.message, hint=error.hint) from error
    return value


def checked_prompt(text: str) -> str:
    """Return a system prompt; raises ``BadRequest`` for a blank one."""
    if not text.strip():
        raise BadRequest("The system prompt is empty", hint="Say what the agent is and does")
    return text


def introduction_of(kernel: "Kernel", ref: BranchRef) -> str:
    """Return the introduction of a named agent: its model, permissions and system prompt."""
    file = kernel.named.file(ref)
    prompt = one_line(file.system_prompt, _SHOWN)
    profile = file.permissions or DEFAULT_PERMISSIONS
    shown = profile if isinstance(profile, str) else "custom"
    system = f"Its system prompt: {prompt}" if prompt else "It has the system prompt of its preset."
    model = kernel.presets.of_branch(ref).model or "the default of its backend"
    head = f"This is the agent {file.name}, model: {model}"
    return f"{head}, permissions: {shown}. {system} Say what it is to do; /help lists commands."


def opening_notes(kernel: "Kernel", branch: "LiveBranch") -> list[str]:
    """Return the notes to show when a branch is opened.

    For an empty conversation of a named agent, its introduction; otherwise, the notice of a cleared conversation.
    """
    if kernel.named.is_named(branch.ref) and not branch.conversation.messages:
        return [introduction_of(kernel, branch.ref)]
    return left_notice(branch.conversation)


def _free(kernel: "Kernel", name: str, *, besides: str = "") -> tuple[bool, AgentRow | None]:
    """Require that a name is free, and that no agent but ``besides`` differs from it in case alone; blocks.

    Returns:
        Whether the directory of a destroyed agent is there to be adopted, and the row of that agent.
    """
    for other in agents.known(kernel.state):
        if other.name not in (name, besides) and other.name.casefold() == name.casefold():
            raise Conflict(f"There is an agent called {other.name!r}, which differs in case alone", hint=_OTHER)
    place = kernel.config.agents_dir.resolve() / name
    row = agents.find(kernel.state, name)
    exists = place.exists() or place.is_symlink()
    if row is not None and row.status != "destroyed":
        if exists:
            raise Conflict(
                f"There is an agent called {name!r} already", hint="Choose another name, or destroy it first"
            )
        agents.forget(kernel.state, name)  # its directory was removed by hand
        row = None
    if exists and not (place.is_dir() and not place.is_symlink() and named_agents.agent_file(place).is_file()):
        raise Conflict(f"{place} exists already and is not an agent", hint="Choose another name, or move that away")
    if not exists and (kernel.config.sessions_dir / name / paths.BRANCHES_DIR).is_dir():
        raise Conflict(f"A session has the id {name!r} already", hint="Choose another name")
    return exists, row


def _written(permissions: Permissions) -> str:
    return permissions if isinstance(permissions, str) else json.dumps(permissions)


def agent_dir(kernel: "Kernel", name: str) -> Path:
    """Return the directory of the agent ``name``.

    Raises:
        BadRequest: The name is invalid.
        NotFound: There is no such agent.
    """
    place = kernel.config.agents_dir.resolve() / named_agents.validate_name(name)
    row = agents.find(kernel.state, name)
    if row is not None and row.status == "destroyed":
        raise NotFound(f"The agent {name} was destroyed", hint=f"`pyagentd agent init {name}` makes it anew")
    if not named_agents.agent_file(place).is_file():
        raise NotFound(f"There is no agent called {name!r}", hint="List them with `pyagentd agent list`")
    return place


# Reading and changing the settings of a named agent, by its user.
#
# The keys are system prompt, model, permissions and name. A change is written to ``agent.json`` alone, applies from
# the next request on, and is audited with the old and the new value.


class AgentSettings(TypedDict):
    """The keys of an agent's ``agent.json`` that are shown."""

    name: str
    channel_id: str | None
    model: str | None
    system_prompt: str | None
    permissions: str | Mapping[str, Any] | None
    created_at: str | None


SETTABLE = ("system_prompt", "model", "permissions")

_OF_THE_MODEL = {"backend", "model"}  # keys of a preset that are one key in the file
_LONGEST = 500  # characters of an old or new value in the audit


async def agent_settings(kernel: "Kernel", name: str) -> AgentSettings:
    """Return the shown keys of an agent's ``agent.json``; raises as ``agent_dir``."""
    directory = await asyncio.to_thread(agent_dir, kernel, name)
    file = await asyncio.to_thread(named_agents.read, directory)
    return cast(AgentSettings, {key: file.values.get(key) for key in AgentSettings.__annotations__})


async def set_setting(kernel: "Kernel", name: str, key: str, value: Any, *, user: str) -> None:
    """Set one key of an agent, one of ``SETTABLE``.

    None or an empty text sets the default of the agent's preset; a system prompt must not be empty.

    Raises:
        BadRequest, NotFound, PresetError, StoreError: As ``create``; nothing was changed.
    """
    if key not in SETTABLE:
        raise BadRequest(f"{key[:40]!r} is not a key of an agent", hint=f"Known: {', '.join((*SETTABLE, 'name'))}")
    directory = await asyncio.to_thread(agent_dir, kernel, name)
    wanted: Any
    if key == "system_prompt":
        wanted = checked_prompt(str(value or ""))
    elif value is None or value == "":
        wanted = None if key == "model" else DEFAULT_PERMISSIONS
    else:
        wanted = parse_model(str(value), kernel.config) if key == "model" else checked_permissions(kernel, value)
    file = await asyncio.to_thread(named_agents.read, directory)
    row = await asyncio.to_thread(agents.find, kernel.state, name)
    status = row.status if row is not None else "idle"
    after = replace(file, values={**file.values, key: wanted})
    made = row_of(kernel, after, paths.ref_of(directory), status=status)  # raises if another key is invalid
    before = await asyncio.to_thread(named_agents.change, directory, {key: wanted})
    await asyncio.to_thread(agents.put, kernel.state, made)
    audit_change(kernel, name, f"config:{key}", old=before.values.get(key), new=wanted, user=user)


async def keep_document_settings(
    kernel: "Kernel", ref: BranchRef, values: Mapping[str, Any], *, user: str
) -> Mapping[str, Any]:
    """Write the settings that ``agent.json`` owns and a person put into the document of a named agent.

    Returns what is left for ``preset.md``; for any other session, all of it. ``values`` have the names of a preset.

    Raises:
        NotFound, PresetError, StoreError: As ``set_setting``; nothing was written.
    """
    if not kernel.named.is_named(ref) or not values.keys() & _OF_THE_MODEL:
        return values
    provider = values.get("backend") or (kernel.named.file(ref).model or "").rpartition("/")[0]
    name = values.get("model") or kernel.presets.of_branch(ref).model
    await set_setting(kernel, ref.session_dir.name, "model", f"{provider}/{name}" if provider else name, user=user)
    return {key: value for key, value in values.items() if key not in _OF_THE_MODEL}


def audit_change(kernel: "Kernel", name: str, action: str, *, old: Any, new: Any, user: str) -> None:
    """Audit a person's change of an agent; it needed no approval, since the person who would approve it made it."""
    kernel.ledger.note(
        Entry(
            at_ms=kernel.clock.now_ms(),
            session=name,
            branch_dir=str(kernel.config.agents_dir.resolve() / name),
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


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _LONGEST else truncate(text, _LONGEST)


# Destroying a named agent, step by step.
#
# Its conversation is saved first, and its row is marked destroyed before its files are touched. What a daemon leaves
# unfinished the next one completes (``recover``, which knows the intents ``remove`` and ``leave``, each with the
# directory's ``identity``). Records of it are kept: its row, those of its saved conversations, the audit.

Files = Literal["kept", "trashed", "deleted"]
"""What became of an agent's directory; ``deleted``: its disk has no trash."""


class AgentDestroyed(TypedDict):
    """The result of destroying an agent."""

    name: str
    dir: str
    files: Files  # what happened to its directory
    saved: list[str]  # ids of the saved conversations, one for each branch
    text: str  # a summary for people


async def destroy(
    kernel: "Kernel", name: str, *, keep_files: bool, user: str
) -> tuple[AgentDestroyed, list[BranchRef]]:
    """Stop all work of an agent, and remove its directory or leave it for another ``create`` to adopt.

    Returns the result, and the agent's branches and sub-agents before.

    Raises:
        BadRequest, NotFound: As ``agent_dir``.
        Busy: It is being destroyed already, or the daemon is stopping.
        StoreError: A write failed; the agent still exists, although its work was stopped.
    """
    return await asyncio.shield(kernel.spawn(_destroy(kernel, name, keep_files, user)))


async def _destroy(
    kernel: "Kernel", name: str, keep_files: bool, user: str
) -> tuple[AgentDestroyed, list[BranchRef]]:
    place = await asyncio.to_thread(agent_dir, kernel, name)
    if kernel.closing:
        raise Busy("The daemon is stopping", hint="Try again in a moment")
    timelines = metadata.branches(place)
    gone = [each for timeline in timelines for each in metadata.with_agents(timeline)]
    saved: list[str] = []
    archive, commands = kernel.find(Contexts), kernel.find(Tasks)
    async with AsyncExitStack() as held:
        branches = [await held.enter_async_context(kernel.using(timeline)) for timeline in timelines]
        async with kernel.removing(place, stop=kernel.abort):
            for branch in branches:
                if archive is not None and (kept := await archive.keep(branch, "destroy")) is not None:
                    saved.append(kept.id)
            if commands is not None:
                await commands.end_within(place)
            await held.aclose()
            async with naming:
                row = await asyncio.to_thread(agents.find, kernel.state, name)
                if row is None:  # its directory is older than the database
                    row = row_of(kernel, named_agents.read(place), paths.ref_of(place), status="idle")
                    await asyncio.to_thread(agents.put, kernel.state, row)
                now_ms, intent = kernel.clock.now_ms(), "leave" if keep_files else "remove"
                noted = f"{intent} {await asyncio.to_thread(identity, place)}"
                await asyncio.to_thread(
                    agents.set_status, kernel.state, name, "destroyed", now_ms=now_ms, intent=noted
                )
                files = await destroying_complete(kernel, row, intent, user=user)
    where = {
        "kept": f"Its files are kept in {place}: `pyagentd agent init {name}` takes them up",
        "trashed": f"{place} is in the trash",
        "deleted": f"{place} was deleted: there is no trash for it",
    }
    text = f"Destroyed the agent {name}. {where[files]}."
    return {"name": name, "dir": str(place), "files": files, "saved": saved, "text": text}, gone


async def destroying_complete(kernel: "Kernel", row: AgentRow, intent: str, *, user: str) -> Files:
    """Complete the destruction of an agent that is marked destroyed; ``row`` is its row from before that.

    The intent is to ``remove`` its files, or to ``leave`` them.

    Raises:
        StoreError: The files could not be removed; the row is restored.
    """
    place = Path(row.dir)
    kernel.departed.add(place)
    files: Files = "kept"
    if intent == "remove":
        try:
            files = await asyncio.to_thread(_removed, place)
        except StoreError:
            await asyncio.to_thread(agents.put, kernel.state, row)
            if row.status != "destroyed":
                kernel.departed.discard(place)
            raise
    if (saved := kernel.find(Contexts)) is not None:
        saved.forget(place)
    if (planned := kernel.find(Schedules)) is not None:
        await planned.forget(place)
    audit_change(kernel, row.name, "destroy", old=None, new={"files": files}, user=user)
    await asyncio.to_thread(kernel.ledger.flush)  # audited even if the daemon is killed from here on
    await asyncio.to_thread(agents.intend, kernel.state, row.name, None)
    return files


def _removed(place: Path) -> Files:
    """Move a directory to the trash, or delete it if there is no trash; blocks. Raises ``StoreError``."""
    has_trash = trash.has_trash(place.parent)
    if place.is_dir():  # a daemon that was killed may have done this
        (trash.move_to_trash if has_trash else trash.delete)(place)
    return "trashed" if has_trash else "deleted"


def identity(place: Path) -> str:
    """Return a string that identifies a directory and changes when it is moved away and back; blocks.

    It is "" if there is none: device, inode and ctime, which a move changes.
    """
    try:
        found = place.lstat()
    except OSError:
        return ""
    return f"{found.st_dev}.{found.st_ino}.{found.st_ctime_ns}"


# Renaming a named agent: its directory, its session's id and its records change with it.
#
# It must be idle: no run, no task, no schedule. A rename that fails half-way is undone.

RENAME, RENAMED = "rename", "renamed"
"""Intents, followed by a name: the agent's new name, and its old one."""


async def rename(kernel: "Kernel", name: str, new_name: str, *, user: str) -> BranchRef:
    """Rename the agent ``name`` to ``new_name`` and return its active branch.

    Raises:
        BadRequest, NotFound: As ``agent_dir``.
        Conflict: The new name is taken.
        Busy: It is answering, a task of it runs, or turns of it are scheduled.
        PresetError: A file that contains the name is malformed; the agent keeps its old name.
        StoreError: A write failed; the agent keeps its old name.
    """
    named_agents.validate_name(new_name)
    old = await asyncio.to_thread(agent_dir, kernel, name)
    new = old.parent / new_name
    if name == new_name:
        return paths.ref_of(old)
    await asyncio.to_thread(_require_rest, kernel, name, old)
    async with naming, kernel.removing(old, to=new):
        if (await asyncio.to_thread(_free, kernel, new_name, besides=name))[0]:
            raise Conflict(f"The name {new_name!r} is taken", hint=_OTHER)
        await asyncio.to_thread(_move, kernel, old, new)
    return await follow(kernel, old, new, user=user)


async def follow(kernel: "Kernel", old: Path, new: Path, *, user: str) -> BranchRef:
    """Update what refers to an agent by its directory after a move; return its active branch."""
    ref = paths.ref_of(new)
    kernel.departed.discard(new)
    kernel.origins.note_made(ref)
    for timeline in metadata.branches(new):
        for each in metadata.with_agents(timeline):
            async with kernel.using(each) as branch:
                root = str(branch.conversation.session.get("workspace_root") or named_agents.workspace_dir(new))
                moved = f"{new}{root[len(str(old)) :]}" if f"{root}/".startswith(f"{old}/") else root
                branch.record_session(workspace_root=Path(moved))
                await instructions.renew_workplace(kernel, branch)
    if (saved := kernel.find(Contexts)) is not None:
        saved.moved(old, new)
    audit_change(kernel, new.name, "config:name", old=old.name, new=new.name, user=user)
    await asyncio.to_thread(kernel.ledger.flush)  # audited even if the daemon is killed from here on
    await asyncio.to_thread(agents.intend, kernel.state, new.name, None)
    return ref


def _require_rest(kernel: "Kernel", name: str, directory: Path) -> None:
    if running := tasks.find(kernel.state, agent_name=name, status="running"):
        raise Busy(f"{name} has {quantity(len(running), 'running task')}", hint="Wait for them, or kill them")
    if due := schedules.within(kernel.state, kernel.projection.key(directory)):
        raise Busy(
            f"{name} has {quantity(len(due), 'scheduled turn')}",
            hint="Remove them first: pyagentd schedule",
        )


def _move(kernel: "Kernel", old: Path, new: Path) -> None:
    """Move an agent's directory and update its files; blocks."""
    row_of(kernel, named_agents.read(old), paths.ref_of(old), status="idle")
    _rewrite(old, old=old, new=old)  # raises for unreadable files before anything has moved
    agents.intend(kernel.state, old.name, f"{RENAME} {new.name}")
    try:
        atomic.move(old, new)
        try:
            adapt(kernel, old, new)
        except BaseException:
            try:
                _rewrite(new, old=new, new=old)
            finally:
                atomic.move(new, old)
            raise
    except BaseException:
        if old.is_dir():  # otherwise the next daemon completes the rename
            agents.intend(kernel.state, old.name, None)
        raise


def adapt(kernel: "Kernel", old: Path, new: Path) -> None:
    """Update the files of an agent whose directory was moved, and the database; blocks."""
    row = agents.find(kernel.state, old.name)
    _rewrite(new, old=old, new=new)
    status = row.status if row is not None else "idle"
    made = row_of(kernel, named_agents.read(new), paths.ref_of(new), status=status, intent=f"{RENAMED} {old.name}")
    agents.rename(kernel.state, old.name, made, old_dir=str(old))


def _rewrite(place: Path, *, old: Path, new: Path) -> None:
    """Replace ``old`` with ``new`` in the files of the agent in ``place``."""
    named_agents.change(place, {"name": new.name})
    for timeline in metadata.branches(place):
        metadata.set_scope_plan_values(timeline.branch_dir, {"session_id": new.name})
        for agent in metadata.agents(timeline.branch_dir):
            metadata.set_scope_plan_values(agent, {"parent_session_id": new.name})
        for each in metadata.with_agents(timeline):
            preset = paths.preset_file(each.branch_dir)
            data = presetfile.content(preset) if preset.is_file() else b""
            if (changed := data.replace(os.fsencode(f"{old}/"), os.fsencode(f"{new}/"))) != data:
                atomic.write_bytes(preset, changed)


# Recovery: what a killed daemon left unfinished with named agents, the next one completes or undoes.
#
# Agents cannot be used before this is done. What fails now is tried again at the next start; nothing here keeps the
# daemon from starting.

_DRAFT = re.compile(r"\.([A-Za-z0-9_-]{1,64})\.[0-9a-f]{16}")  # a directory being created or deleted

_ABANDONED_S = 3600.0  # another daemon, with its own sessions, may be creating it


class NamedAgents(Feature):
    """Recovers the named agents that an earlier daemon left in the middle of an operation."""

    async def start(self) -> None:
        """Complete or undo those operations."""
        await recover(self.kernel)


async def recover(kernel: "Kernel") -> None:
    """Complete or undo every unfinished operation on an agent, and note which agents are destroyed."""
    try:
        rows = await asyncio.to_thread(agents.known, kernel.state, destroyed=True)
    except PyagentdError as error:  # such as before the first session
        log.info("the named agents cannot be read: %s", error)
        return
    kernel.departed |= {Path(row.dir) for row in rows if row.status == "destroyed"}
    begun = set()
    for row in rows:
        if intent := row.intent or ("create" if row.status == "created" else ""):
            begun.add(row.name)
            try:
                await _settle(kernel, row, *intent.split())
            except PyagentdError as error:
                log.error("agent %s: %s", row.name, error)
    await asyncio.to_thread(_discard_drafts, kernel.config.agents_dir.resolve(), begun)


async def _settle(kernel: "Kernel", row: AgentRow, intent: str, name: str = "") -> None:
    """Complete or undo an operation; ``name`` is the intent's argument: another name, or a directory's identity."""
    place = Path(row.dir)
    log.info("agent %s: an operation of an earlier daemon stopped at %r", row.name, row.intent)
    match intent:
        case "create" | "adopt" if row.status != "created":
            await complete(kernel, paths.ref_of(place))
        case "create" if not named_agents.agent_file(place).is_file():
            await asyncio.to_thread(agents.forget, kernel.state, row.name)
        case "create":  # it was complete before it got its name
            ref = paths.ref_of(place)
            made = row_of(kernel, kernel.named.file(ref), ref, status="idle", intent=intent)
            await asyncio.to_thread(agents.put, kernel.state, made)
            await complete(kernel, ref)
        case "adopt":  # if the template was merged already, the next adoption merges it again
            now_ms = kernel.clock.now_ms()
            await asyncio.to_thread(agents.set_status, kernel.state, row.name, "destroyed", now_ms=now_ms)
            kernel.departed.add(place)
        case "remove" if await asyncio.to_thread(identity, place) not in ("", name):
            log.warning("agent %s: kept %s, which was put there after it was removed", row.name, place)
            await destroying_complete(kernel, row, "leave", user=local_subject())
        case "remove" | "leave":
            await destroying_complete(kernel, row, intent, user=local_subject())
        case _ if intent == RENAME:
            new = place.with_name(name)
            if not await asyncio.to_thread(_has_moved, place, new):
                await asyncio.to_thread(agents.intend, kernel.state, row.name, None)
                return
            await asyncio.to_thread(adapt, kernel, place, new)
            await follow(kernel, place, new, user=local_subject())
        case _ if intent == RENAMED:
            await follow(kernel, place.with_name(name), place, user=local_subject())


def _has_moved(old: Path, new: Path) -> bool:
    return not old.exists() and named_agents.agent_file(new).is_file()


def _discard_drafts(root: Path, begun: Set[str]) -> None:
    """Remove drafts of directories being made or deleted: those of the agents ``begun``, and old ones."""
    for name in begun:
        for draft in (trash.draft_of(root / name), *(root / name).glob(f"{trash.DRAFT}*")):
            trash.discard(draft)
    for entry in root.iterdir() if root.is_dir() else ():
        found = None if entry.is_symlink() else _DRAFT.fullmatch(entry.name)
        if found and (found[1] in begun or _is_abandoned(entry)):
            trash.discard(entry)


def _is_abandoned(draft: Path) -> bool:
    try:
        return draft.lstat().st_ctime < time.time() - _ABANDONED_S
    except FileNotFoundError:  # it was completed meanwhile
        return False


# What exists only in a workspace's repository: files that are not committed, commits that are not pushed.
#
# An agent may have written to the repository. Git must not run anything that its configuration or its submodules
# name, nor fetch; if the configuration names a program all the same, or includes other files, nothing is reported.

_WORKTREE_TIMEOUT_S = 5.0
_RUNS = re.compile(
    r"filter\.|include(if)?\.|extensions\.worktreeconfig$|core\.(worktree|gitproxy|sshcommand|alternaterefscommand)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """The state of a git work tree."""

    branch: str  # "" when none is checked out
    uncommitted: int  # files and new directories
    unpushed: int  # commits that are on no remote, without the first one of a history


def repository_state(directory: Path) -> Worktree | None:
    """Return the state of the repository whose work tree is ``directory``; None if it is none or cannot be queried.

    Blocks, for some seconds at most.
    """
    if not (directory / ".git").exists():
        return None
    names = _git_output(directory, "config", "--name-only", "--list")  # of all files that git reads here
    if names is None or any(_RUNS.match(name) for name in names.splitlines()):
        return None
    branch = _git_output(directory, "symbolic-ref", "--quiet", "--short", "HEAD")
    changed = _git_output(directory, "status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all")
    commits = _git_output(directory, "rev-list", "--count", "--min-parents=1", "--branches", "--not", "--remotes")
    if changed is None or commits is None:
        return None
    return Worktree(branch=(branch or "").strip(), uncommitted=changed.count("\0"), unpushed=int(commits))


def _git_output(directory: Path, *words: str) -> str | None:
    try:
        return run_git(directory, *words, timeout_s=_WORKTREE_TIMEOUT_S)
    except StoreError:
        return None


# What would be lost with a named agent: shown to its user before it is destroyed.

_MOST_FILES = 100_000


async def destroy_warnings(kernel: "Kernel", name: str, *, keep_files: bool) -> list[str]:
    """Return what would be lost with the agent ``name``, as texts for people; raises as ``agent_dir``."""
    place = await asyncio.to_thread(agent_dir, kernel, name)
    messages = 0
    for timeline in metadata.branches(place):
        async with kernel.using(timeline) as branch:  # an open ask is asked again when its branch is opened
            messages += await asyncio.to_thread(contexts.count, branch.conversation.snapshot())
    runs = sum(branch.run is not None for branch in kernel.inside(place))
    began = [] if (running := kernel.find(Tasks)) is None else await running.of(name)
    due = await asyncio.to_thread(schedules.within, kernel.state, kernel.projection.key(place))
    ended = [f"{quantity(runs, 'answer')} in flight, cut off"] if runs else []
    ended += [
        f"the running command {each.command!r} ({each.id}), ended" for each in began if each.status == "running"
    ]
    if asks := kernel.asks.within(str(place)):
        ended.append(f"{quantity(len(asks), 'open question')}, dismissed")
    if due:
        ended.append(f"{quantity(len(due), 'scheduled turn')}, cancelled")
    return ended if keep_files else [*await asyncio.to_thread(lambda: list(_removed_files(place, messages))), *ended]


def _removed_files(place: Path, messages: int) -> Iterator[str]:
    """Yield what would be lost with the directory of an agent; ``messages`` is its number of messages; blocks."""
    files, bytes_, more = _count_files(place)
    where = "go to the trash" if trash.has_trash(place) else "are deleted for good: there is no trash for them"
    yield f"{'more than ' if more else ''}{quantity(files, 'file')} ({size(bytes_)}) in {place} {where}"
    if (worktree := repository_state(named_agents.workspace_dir(place))) is not None:
        if worktree.uncommitted:
            yield f"{quantity(worktree.uncommitted, 'file')} in its workspace not committed"
        if worktree.unpushed:
            yield f"{quantity(worktree.unpushed, 'commit')} in its workspace not pushed anywhere"
    if saved := len(list(named_agents.saved_dir(place).glob("*.json"))):
        yield quantity(saved, "saved conversation")
    if messages:
        yield f"the conversation that goes on ({quantity(messages, 'message')}), saved with the files"


def _count_files(place: Path) -> tuple[int, int, bool]:
    """Return the number of files in a directory, their size, and whether there are more than were counted."""
    files = bytes_ = 0
    for directory, _, names in os.walk(place):
        for name in names:
            if files >= _MOST_FILES:
                return files, bytes_, True
            files += 1
            try:
                bytes_ += (Path(directory) / name).lstat().st_size
            except OSError:  # gone meanwhile
                continue
    return files, bytes_, False


# The defaults that a user sets for all named agents: for a new one, and when one counts as idle.
#
# They are rows of ``settings`` in ``state.db``. A new agent gets the model and the permissions set at its creation;
# a new idle timeout applies to all agents from the next check on.


class AgentDefaults(TypedDict):
    """Defaults of named agents."""

    default_model: str | None  # nil: the preset's
    default_permissions: str | Mapping[str, Any]
    idle_timeout: float  # in seconds; 0 is never


DEFAULTS: AgentDefaults = {"default_model": None, "default_permissions": DEFAULT_PERMISSIONS, "idle_timeout": IDLE_S}
"""The values of keys that are not set; model None: the preset's; idle timeout in seconds, 0 is never."""

_LONGEST_S = 365 * 24 * 3600


def read(kernel: "Kernel") -> AgentDefaults:
    """Return every key with its current value; blocks."""
    if not kernel.config.sessions_dir.is_dir():
        return DEFAULTS
    found = {key: kernel.state.get(key) for key in DEFAULTS}
    return cast(AgentDefaults, {**DEFAULTS, **{key: value for key, value in found.items() if value is not None}})


def checked_setting(kernel: "Kernel", key: str, value: Any) -> Any:
    """Return ``value`` as it is stored under ``key``.

    Raises:
        BadRequest: Unknown key, or invalid value.
        PresetError: Unknown profile.
    """
    if key not in DEFAULTS:
        raise BadRequest(f"{key[:40]!r} is not a setting", hint=f"Known: {', '.join(DEFAULTS)}")
    if key == PERMISSIONS_SETTING:
        if not isinstance(value, str | Mapping):
            raise BadRequest("The permissions are not a profile", hint="Give its name, or its JSON")
        return checked_permissions(kernel, value)
    return parse_model(str(value), kernel.config) if key == MODEL_SETTING else _seconds(value)


def put(kernel: "Kernel", key: str, value: Any) -> None:
    """Store a setting, None for its default; blocks. Raises as ``State.put``."""
    atomic.make_dirs(kernel.config.sessions_dir)
    kernel.state.put(key, value)


def _seconds(value: Any) -> int:
    """Return seconds from a number of seconds, or a text such as 90, 45min, 2h, never."""
    text = str(value).strip()
    try:
        seconds = 0 if text.lower() == "never" else seconds_of(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _LONGEST_S:
        raise BadRequest(f"{text[:40]!r} is not a span of time", hint="Give seconds, or 45min, 2h, never")
    return round(seconds)
