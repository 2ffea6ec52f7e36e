"""Operations on agents: those of a session, named agents and their defaults, background commands, saved contexts."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyagentd import clock
from pyagentd.api.group import INLINE_LIMIT, Client, Group, expand_home, name_of, send_options
from pyagentd.api.models import checked_model
from pyagentd.clock import iso8601, stamp
from pyagentd.errors import Ambiguous, BadRequest, NotFound, PresetError, PyagentdError, StoreError, Unconfirmed
from pyagentd.events import Event
from pyagentd.features import named_agents
from pyagentd.features import tasks as telling
from pyagentd.features.agents import MAX_DEPTH, AgentSpawner, Assignment, Open, agents_below, outcome_of, result_of
from pyagentd.features.contexts import KEPT, Contexts
from pyagentd.features.named_agents import MODEL_SETTING, AgentRequest
from pyagentd.features.schedules import local_user
from pyagentd.features.tasks import Tasks, status_lines
from pyagentd.log import of_session
from pyagentd.policy.action import validate_pattern
from pyagentd.policy.presets import Result
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.settings import provider_of
from pyagentd.runtime.system_prompt import workspace_root
from pyagentd.runtime.turn_agent import answers_next
from pyagentd.store import atomic, contexts, metadata, paths, presetfile, sessions
from pyagentd.store import named_agents as agent_files
from pyagentd.store.atomic import write_bytes
from pyagentd.store.db import agents
from pyagentd.store.db.agents import AgentRow, ContextRow
from pyagentd.store.db.tasks import Task
from pyagentd.store.document import hidden
from pyagentd.store.paths import BranchRef, describe_branch
from pyagentd.wire.sexp import SexpError, encode, plist_to_dict


class Agents(Group):
    """The tree below one branch."""

    async def agents(self, client: Client, *, branch: str, form: str = "sexp") -> dict[str, Any]:
        """Return the agents of a branch as a tree: ``{agents: (A…)}``, or a large one as ``{path: FILE}``.

        A has ``id``, ``branch``, ``branch_dir``, ``preset``, ``description``, ``state`` ("running", "waiting",
        "finished", "aborted", "error", "idle"), ``background``, ``call_id``, ``tokens``, ``result`` and ``agents``,
        its own. FILE is an s-expression or, with ``form`` "json", JSON.
        """
        ref = self._ref(branch)
        found = await agent_tree(self._kernel, ref)
        data = json.dumps({"agents": found}).encode() if form == "json" else encode({"agents": found})
        if len(data) < INLINE_LIMIT:
            return {"agents": found}
        path = self._kernel.config.runtime_dir / f"agents-{ref.session_id}-{ref.branch_name}.{form}"
        await asyncio.to_thread(write_bytes, path, data, fsync=False)
        return {"path": str(path)}

    async def abort_agent(self, client: Client, *, branch: str, agent: str) -> dict[str, Any]:
        """Stop one agent below a branch, named by its id or the beginning of one, and all below it."""
        ids = {each["id"]: each["branch"] for each in _flat(await agent_tree(self._kernel, self._ref(branch)))}
        meant = [agent] if agent in ids else [id for id in ids if id.startswith(agent)]
        if not meant:
            raise NotFound(f"{branch} has no agent {agent}", hint="See: pyagentd agents SESSION")
        if len(meant) > 1:
            raise Ambiguous(f"{agent} fits {', '.join(meant)}", hint="Give more of the id")
        live = self._kernel.opened(ids[meant[0]])
        return {"id": meant[0], "aborted": live is not None and await self._kernel.abort(live)}

    async def abort_all(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Stop a branch's run and those of all its agents; ``aborted`` is their number, ``note`` says if none."""
        ref = self._ref(branch)
        number = 0
        for key in (ref.key, *(each["branch"] for each in _flat(await agent_tree(self._kernel, ref)))):
            live = self._kernel.opened(key)
            number += live is not None and await self._kernel.abort(live)
        return {"aborted": number, "note": None if number else "Nothing is running"}


async def agent_tree(kernel: Kernel, ref: BranchRef) -> list[dict[str, Any]]:
    """Return the agents of a branch as ``agents`` does, however many they are."""

    def wanted(agent: BranchRef) -> Result:
        try:
            return kernel.presets.of_branch(agent).result
        except PyagentdError:
            return "all"

    opened = {
        live.key: Open(str(live.status["state"]), live.conversation.snapshot())
        for live in kernel.inside(ref.branch_dir)
    }
    return await asyncio.to_thread(agents_below, ref, opened, wanted)


def _flat(agents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for agent in agents for each in (agent, *_flat(agent["agents"]))]


# Agents spawned by a client instead of a model: ``jf/gptel-persistent-agent--task`` called from Lisp.
#
# Such an agent is one like any other but that its result goes to the client who asks for it, and not to its parent.

_log = logging.getLogger(__name__)


class Spawning(Group):
    """Agents for whoever wants one."""

    async def spawn(
        self,
        client: Client,
        *,
        branch: str,
        preset: str,
        description: str,
        prompt: str,
        allowed_paths: Sequence[str] = (),
        unrestricted: bool = False,
        denied_paths: Sequence[str] = (),
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
        allow: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Start an agent under a branch or agent and say which; ``agent_result`` waits for its end.

        It may read what its parent may, or ``allowed_paths``, or with ``unrestricted`` everything.
        """
        parent = self._ref(branch)
        if len(paths.ancestors_of(parent)) >= MAX_DEPTH:
            raise BadRequest(f"Agents may be nested {MAX_DEPTH} deep", hint="Spawn it further up")
        options = send_options(client, env, key, allow)
        wanted = Assignment(
            preset=preset,
            description=description,
            prompt=prompt,
            read=() if unrestricted else tuple(allowed_paths) or None,
            deny=tuple(denied_paths),
        )
        async with self._kernel.using(parent) as live:
            await workspace_root(self._kernel, live)
            spawner = self._kernel.feature(AgentSpawner).spawner(live, options, run_id="")
            try:
                ref, _ = await spawner.launch(wanted)
            except PyagentdError as error:
                _log.error("agent %s: %s", preset, error, extra=of_session(parent.session_dir))
                raise
        return describe_branch(ref)

    async def agent_result(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Wait until an agent has no run any more; return what its parent would be told: ``{ok, text}``."""
        async with self._kernel.using(self._ref(branch)) as live:
            while (task := live.task) is not None:
                await asyncio.wait([task])
            outcome = outcome_of(
                live.conversation, live.conversation.last_run, self._kernel.presets.of_branch(live.ref).result
            )
        if outcome is None:
            raise NotFound(f"{live.ref.session_id} has not run yet", hint="Send it something")
        result = result_of(outcome)
        return {"ok": result.ok, "text": result.text}


# Operations on the pieces an agent is made of, one at a time: its directory, its preset, the preset's paths.
#
# For Emacs code that makes agents step by step (``jf/gptel--create-agent-directory`` and the
# like). The product itself makes an agent whole, or not at all (``store.sessions``).

_SCOPE = ("paths", "org_roam_patterns", "shell_commands")


class Pieces(Group):
    """Directories and presets of agents."""

    async def create_agent_directory(
        self, client: Client, *, directory: str, preset: str, description: str
    ) -> dict[str, Any]:
        """Make an empty directory for an agent under the branch, or agent, in ``directory``."""
        parent = paths.ref_of(expand_home(directory))
        name = clock.agent_id(preset, stamp(self._kernel.clock.now()), description)
        try:
            with sessions.build_directory(paths.agents_dir(parent.branch_dir), name) as (_, place):
                pass
        except StoreError as error:
            _log.error("%s", error, extra=of_session(parent.session_dir))
            raise
        _log.info("Created agent directory: %s", place, extra=of_session(parent.session_dir))
        return {"directory": str(place)}

    async def copy_preset_template(self, client: Client, *, preset: str, directory: str) -> dict[str, Any]:
        """Make the template ``preset`` the configuration of the branch or agent in ``directory``."""
        place = _existing(directory)
        try:
            _, text = self._kernel.presets.template(preset)
            atomic.write_text(paths.preset_file(place), text)
        except PyagentdError as error:
            _log.error("%s", error, extra=of_session(place))
            raise
        _log.info("Copied preset template %s to %s", preset, place, extra=of_session(place))
        return {"file": str(paths.preset_file(place))}

    async def load_preset(self, client: Client, *, directory: str) -> dict[str, Any] | None:
        """Return the keys of ``preset.md`` and its body as ``system``; nil when it is missing or no preset."""
        place = expand_home(directory).absolute()
        front = metadata.read_preset_metadata(place)  # logs what is wrong
        return None if front is None else {**front, "system": presetfile.read(paths.preset_file(place)).body.strip()}

    async def preset_scope(self, client: Client, *, file: str) -> dict[str, Any]:
        """Return what the preset in ``file`` (or in that directory) says about scope, and nothing else of it."""
        place = _preset(file)
        front = metadata.read_preset_metadata(place.parent)
        if front is None:
            raise PresetError(f"Failed to load preset from {place}", hint="See its front matter")
        return {key: front[key] for key in _SCOPE if key in front}

    async def update_preset_paths(
        self, client: Client, *, file: str, allowed: Sequence[str] = (), denied: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Set ``paths`` of the preset in ``file``: what may be read, and what else is denied."""
        place = _preset(file)
        for pattern in (*allowed, *denied):
            validate_pattern(pattern)
        try:
            presetfile.set_paths(place, allowed, presetfile.DEFAULT_WRITE, denied)
        except PyagentdError as error:
            _log.error("%s", error, extra=of_session(place.parent))
            raise
        if paths.scope_plan_file(place.parent).exists():
            metadata.touch_scope_plan(place.parent, self._kernel.clock.now())
        return {"file": str(place)}


def _existing(directory: str) -> Path:
    place = expand_home(directory).absolute()
    if not place.is_dir():
        raise NotFound(f"{directory} is no directory", hint="Make it first")
    return place


def _preset(file: str) -> Path:
    """Return the preset that ``file`` means; a directory means the one in it."""
    place = expand_home(file).absolute()
    return paths.preset_file(place) if place.is_dir() else place


# Operations on named agents: making, listing, configuring, renaming and destroying them.


class NamedAgents(Group):
    """Agents that have a name, a configuration and a workspace of their own."""

    async def agent_init(
        self,
        client: Client,
        *,
        name: str,
        system_prompt: str | None = None,
        model: str | None = None,
        permissions: str | Mapping[str, Any] | None = None,
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
    ) -> dict[str, Any]:
        """Make an agent; the answer has its ``name``, ``dir``, ``welcome`` and the names and places of its branch.

        ``permissions`` is the name of a profile, or one written out, as JSON or as ``{allow, ask}``. ``note``: what
        is to be said of a model that could not be checked with the client's ``env`` and ``key``, and of files that an
        agent of that name left, or nil.
        """
        note = ""
        if model:
            await asyncio.to_thread(atomic.make_dirs, self._kernel.config.sessions_dir)  # where lists of models are
            checked = await checked_model(self._kernel, None, model, send_options(client, env, key, ()))
            model, note = checked.model, checked.note
        wanted = AgentRequest(
            name=name, system_prompt=system_prompt, model=model, permissions=_permissions(permissions)
        )
        place = self._kernel.config.agents_dir.resolve() / name
        kept = agent_files.is_name(name) and await asyncio.to_thread((place / agent_files.AGENT_FILE).is_file)
        ref = await named_agents.create(self._kernel, wanted)
        if kept:
            saved = len(await self._kernel.feature(Contexts).archive.history(ref))
            many = "" if saved == 1 else "s"
            taken = f"Its kept files were taken up: configuration, docs, workspace, {saved} saved conversation{many}"
            note = f"{note}\n{taken}" if note else taken
        self._registry.add(ref)
        self._tell_written(ref)
        self._kernel.publish(Event("agents", "", 0))
        told = {"name": name, "dir": str(ref.session_dir), **describe_branch(ref)}
        return {**told, "welcome": named_agents.introduction_of(self._kernel, ref), "note": note or None}

    async def agent_list(self, client: Client, *, destroyed: bool = False, watch: bool = False) -> dict[str, Any]:
        """Return all named agents by name, ``{agents: (A…)}``, with ``destroyed`` those too that are gone.

        A has ``name``, ``dir``, ``session_id``, ``status``, ``model``, ``effective_model`` (its own, or that of its
        preset), ``permissions``, ``created_at``, ``branch`` (to attach to; nil without files), ``state`` of its
        active branch and ``error`` (what is wrong with its file).
        With ``watch`` the client is told by events of kind "agents" when something of that has changed, and by
        "task" of all tasks, as long as it is connected.
        """
        if watch:
            self._kernel.overseers.add(client)
        rows = await asyncio.to_thread(agents.known, self._kernel.state, destroyed=destroyed)
        found = [await asyncio.to_thread(self._listed, row) for row in rows]
        for each in found:
            each["state"] = self._kernel.state_of(each["branch"] or "")
        return {"agents": found}

    async def agent_config(
        self,
        client: Client,
        *,
        name: str,
        key: str | None = None,
        value: Any = None,
        reset: bool = False,
        env: Mapping[str, str] | Sequence[Any] = (),
        api_key: str | None = None,
    ) -> dict[str, Any]:
        """Return what an agent is, or set ``key`` (system_prompt, model, permissions, name) to ``value``.

        With ``reset`` the key gets its default. Without ``value`` and ``reset`` nothing is changed. The answer is
        ``{name, dir, config: {name, channel_id, model, system_prompt, permissions, created_at}, note}``; ``note``:
        what is to be said of a model that could not be checked with the client's ``env`` and ``api_key``, or nil.
        """
        note = ""
        if key == "model" and value:
            place = await asyncio.to_thread(named_agents.agent_dir, self._kernel, name)
            preset = self._kernel.presets.of_branch(paths.ref_of(place))
            checked = await checked_model(self._kernel, preset, str(value), send_options(client, env, api_key, ()))
            value, note = checked.model, checked.note
        if key == "name" and value:
            return {**await self.agent_rename(client, name=name, new_name=str(value)), "note": None}
        if key is not None and (value is not None or reset):
            given = _permissions(value) if key == "permissions" else value
            user = local_user()
            await named_agents.set_setting(self._kernel, name, key, None if reset else given, user=user)
            self._publish(name, key)
        config = await named_agents.agent_settings(self._kernel, name)
        if key is not None and key not in config:
            raise NotFound(f"{key[:40]!r} is no key of an agent", hint=f"Known: {', '.join(config)}")
        return {
            "name": name,
            "dir": str(self._kernel.config.agents_dir.resolve() / name),
            "config": config,
            "note": note or None,
        }

    async def agent_rename(self, client: Client, *, name: str, new_name: str) -> dict[str, Any]:
        """Give an agent another name: its directory, its session's id and everything recorded of it follow."""
        old = paths.ref_of(await asyncio.to_thread(named_agents.agent_dir, self._kernel, name))
        ref = await named_agents.rename(self._kernel, name, new_name, user=local_user())
        self._registry.forget(old.session_dir)
        self._registry.add(ref)
        self._tell_written(old, ref)
        self._kernel.publish(Event("agents", "", 0))
        config = await named_agents.agent_settings(self._kernel, new_name)
        return {"name": new_name, "dir": str(ref.session_dir), "config": config, **describe_branch(ref)}

    async def destroy_warnings(self, client: Client, *, name: str, keep_files: bool = False) -> dict[str, Any]:
        """Return what would be lost with an agent, to be told before it is destroyed; ``lines`` says all of it.

        The others are ``name``, ``dir``, counts of ``files`` (``size`` in bytes, ``more`` than were counted),
        ``uncommitted`` files and ``unpushed`` commits of its workspace (nil: not known), ``contexts``, ``messages``,
        ``asks``, ``runs``, ``schedules``; ``tasks`` that run; ``trash``: whether files would go there; ``branch``: of
        its workspace.
        """
        found = await named_agents.destroy_warnings(self._kernel, name)
        return {**found.to_wire(), "lines": found.lines(keep_files=keep_files)}

    async def agent_destroy(
        self, client: Client, *, name: str, keep_files: bool = False, confirmed: bool = False
    ) -> dict[str, Any]:
        """End an agent; the answer is ``{name, dir, files, saved, text}``.

        ``files`` is what became of its directory: kept, trashed or deleted; ``saved`` has the ids of conversations
        that were saved. Without ``confirmed`` nothing is done: the error, ``unconfirmed``, says what would be lost.
        """
        if not confirmed:
            lines = (await named_agents.destroy_warnings(self._kernel, name)).lines(keep_files=keep_files)
            lost = "; ".join(lines) or "nothing"
            raise Unconfirmed(f"The agent {name} is not destroyed: lost would be {lost}", hint="Confirm it first")
        done = await named_agents.destroy(self._kernel, name, keep_files=keep_files, user=local_user())
        self._registry.forget(done.directory)
        self._tell_written(*done.gone)
        self._kernel.publish(Event("agents", "", 0))
        told = {"name": name, "dir": str(done.directory), "files": done.files}
        return {**told, "saved": [row.id for row in done.saved], "text": done.text}

    def _publish(self, name: str, key: str) -> None:
        """Tell who watches an agent that another configuration holds."""
        place = self._kernel.config.agents_dir.resolve() / name
        self._kernel.publish(Event("agents", "", 0))
        were = "were" if key == "permissions" else "was"
        for live in self._kernel.inside(place):
            live.publish(Event("notice", live.key, 0, ({"text": f"The {key} of {name} {were} changed"},)))

    def _answering(self, ref: BranchRef) -> str | None:
        """Return the model that answers an agent; None where that cannot be told."""
        try:
            return self._kernel.presets.of_branch(ref).model
        except PyagentdError:
            return None

    def _listed(self, row: AgentRow) -> dict[str, Any]:
        ref, wrong = _branch(row), ""
        told: dict[str, Any] = {"model": row.model, "permissions": row.permissions}
        if ref is not None and row.status != "destroyed":
            try:
                file = agent_files.read(ref.session_dir)
                told = {"model": file.model, "permissions": file.permissions or row.permissions}
            except PyagentdError as error:
                wrong = error.message
        return {
            "effective_model": None if ref is None or wrong else self._answering(ref),
            "name": row.name,
            "dir": row.dir,
            "session_id": row.session_id,
            "status": row.status,
            **told,
            "created_at": row.created_at,
            "branch": ref.key if ref is not None else None,
            "error": wrong or (None if ref is not None or row.status == "destroyed" else f"{row.dir} is gone"),
        }


def _branch(row: AgentRow) -> BranchRef | None:
    """Return the active branch of an agent; None when its files are gone."""
    try:
        return paths.ref_of(Path(row.dir))
    except PyagentdError:
        return None


def _permissions(value: Any) -> str | Mapping[str, Any] | None:
    """Return permissions as a client gives them: a text, a mapping, or on the wire of Emacs a plist."""
    if value is None or isinstance(value, str):
        return value or None
    try:
        return value if isinstance(value, Mapping) else plist_to_dict(list(value))
    except (SexpError, TypeError) as error:
        raise BadRequest("permissions are a profile's name, or (:allow (…) :ask (…))") from error


# Operations on the defaults of named agents.


class Settings(Group):
    """What holds for agents where nobody says otherwise."""

    async def settings(
        self,
        client: Client,
        *,
        key: str | None = None,
        value: Any = None,
        reset: bool = False,
        env: Mapping[str, str] | Sequence[Any] = (),
        api_key: str | None = None,
    ) -> dict[str, Any]:
        """Return the settings, or set ``key`` to ``value``, or with ``reset`` to its default.

        The answer is ``{settings, defaults}``: what holds and what would, each with ``default_model`` (nil: that of
        the preset), ``default_permissions`` and ``idle_timeout`` (seconds, 0 never; also given as 45min, 2h, never).
        ``note``: what is to be said of a model that could not be checked with the client's ``env`` and ``api_key``.
        """
        kernel, note = self._kernel, ""
        if key is not None and key not in named_agents.DEFAULTS:
            raise BadRequest(f"{key[:40]!r} is no setting", hint=f"Known: {', '.join(named_agents.DEFAULTS)}")
        if key is None and (value is not None or reset):
            raise BadRequest("No key is given", hint=f"Known: {', '.join(named_agents.DEFAULTS)}")
        if key is not None and (value is not None or reset):
            if key == MODEL_SETTING and value and not reset:
                checked = await checked_model(kernel, None, str(value), send_options(client, env, api_key, ()))
                value, note = checked.model, checked.note
            wanted = None if reset else named_agents.checked_setting(kernel, key, value)
            await asyncio.to_thread(named_agents.put, kernel, key, wanted)
        held = await asyncio.to_thread(named_agents.read, kernel)
        return {"settings": held, "defaults": dict(named_agents.DEFAULTS), "note": note or None}


# Operations on commands in the background.

_SHOWN_BYTES = 30_000


class TaskOperations(Group):
    """What runs behind conversations."""

    async def tasks(self, client: Client, *, branch: str | None = None, watch: bool = False) -> dict[str, Any]:
        """Return the tasks of a session or named agent, or all: {tasks, text}, in the order in which they began.

        With ``watch`` the client is told of all tasks and named agents from now on, as ``agent_list``.
        """
        if watch:
            self._kernel.overseers.add(client)
        name = paths.root_of(self._ref(branch)).session_id if branch else None
        found = await self._kernel.feature(Tasks).of(name)
        text = telling.listing(name, found, self._kernel.clock.now())
        return {"tasks": [self._task_told(task) for task in found], "text": text}

    async def task_output(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Return a task with the end of what it printed, as ``output``; raises ``NotFound`` when that is gone."""
        task = await self._kernel.feature(Tasks).get(paths.root_of(self._ref(branch)).session_id, id)
        file = self._kernel.feature(Tasks).output(task)
        if not await asyncio.to_thread(file.is_file):
            raise NotFound(
                f"What {id} printed is not there any more: {file} is gone", hint=f"It ended: {task.status}"
            )
        return await self._task_shown(task)

    async def task_kill(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """End a task with all it started, and return it as it is then; one that has ended stays as it is."""
        task = await self._kernel.feature(Tasks).get(paths.root_of(self._ref(branch)).session_id, id)
        return await self._task_shown(await self._kernel.feature(Tasks).kill(task))

    async def agent_status(
        self, client: Client, *, branch: str, env: Mapping[str, str] | Sequence[Any] = (), key: str | None = None
    ) -> dict[str, Any]:
        """Return how a session or named agent stands: configuration, conversation, tasks; ``text`` says it all.

        ``model`` and ``backend`` are those that would answer a client with this ``env``.
        """
        kernel, ref, options = self._kernel, paths.root_of(self._ref(branch)), send_options(client, env, key, ())
        preset = kernel.presets.of_branch(ref)
        rows = await asyncio.to_thread(agents.known, kernel.state)
        life = next((row.status for row in rows if row.dir == str(ref.session_dir)), None)
        permissions: Any = preset.profile
        named = agent_files.named_dir(kernel.config.agents_dir.resolve(), ref) is not None
        if named:
            permissions = (await asyncio.to_thread(agent_files.read, ref.session_dir)).permissions or permissions
        async with kernel.using(ref) as live:
            try:
                answers = answers_next(kernel, live, options)
                backend = provider_of(answers, kernel.config, options)
                stand_in = kernel.config.backend(backend).kind == "offline"
            except PyagentdError:  # whoever sends is told
                answers, backend, stand_in = preset, preset.backend, False
            said = hidden.visible(live.conversation)
            messages = await asyncio.to_thread(contexts.count, live.conversation.snapshot())
            last = max((message.row.get("created_at") or 0 for message in said), default=0)
            state = live.status["state"]
            root = live.conversation.session.get("workspace_root")
            title = {} if named else {"title": str(live.conversation.session.get("title") or "")}
        saved = (await kernel.feature(Contexts).archive.history(ref))[:1]
        running = [task for task in await kernel.feature(Tasks).of(ref.session_id) if task.status == "running"]
        facts = {
            "agent": ref.session_id,
            **title,
            "model": answers.model,
            "backend": backend,
            "stand_in": stand_in,
            "permissions": permissions if isinstance(permissions, str) else "custom" if permissions else "",
            "status": life or state,
            "messages": messages,
            "asks": len(kernel.asks.within(str(ref.session_dir))),
            "last_at": iso8601(datetime.fromtimestamp(last / 1000, UTC)) if last else None,
            "git": await asyncio.to_thread(_git, Path(root)) if root else None,
            "saved": {"saved_at": saved[0].saved_at, "description": saved[0].description} if saved else None,
        }
        told = [self._task_told(task) for task in running]
        return {**facts, "tasks": told, "text": status_lines(facts, running, kernel.clock.now())}

    async def _task_shown(self, task: Task) -> dict[str, Any]:
        file = self._kernel.feature(Tasks).output(task)
        text, whole = await asyncio.to_thread(telling.tail, file, _SHOWN_BYTES)
        return {**self._task_told(task), "output": text, "whole": whole}

    def _task_told(self, task: Task) -> dict[str, Any]:
        directory = self._kernel.feature(Tasks).directory(task)
        return {
            "id": task.id,
            "agent": task.agent_name,
            "session": name_of(directory),
            "branch": str(directory),
            "command": task.command,
            "cwd": task.cwd,
            "status": task.status,
            "pid": task.pid,
            "exit_code": task.exit_code,
            "started_at": task.started_at,
            "ended_at": task.ended_at,
            "wake": task.wake,
            "output_path": task.output_path,
        }


def _git(directory: Path) -> dict[str, Any] | None:
    """Return branch and number of uncommitted files of a repository, None where there is none; blocks."""
    found = named_agents.repository_state(directory)
    return None if found is None else {"branch": found.branch, "uncommitted": found.uncommitted}


# Operations on contexts: conversations that are saved, cleared, taken up again, listed.


class ContextOperations(Group):
    """The conversations of a session or a named agent, one after the other."""

    async def context_save(
        self,
        client: Client,
        *,
        branch: str,
        description: str = "",
        env: Mapping[str, str] | Sequence[Any] = (),
        key: str | None = None,
    ) -> dict[str, Any]:
        """Save the conversation, which goes on; without ``description`` a model says what it is about."""
        options = send_options(client, env, key, ())
        async with self._kernel.using(self._ref(branch)) as live:
            return _told(await self._kernel.feature(Contexts).save(live, description, options=options))

    async def context_clear(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Put the conversation behind a boundary without saving it: the next message begins another."""
        async with self._kernel.using(self._ref(branch)) as live:
            cleared = await self._kernel.feature(Contexts).clear(live)
        return {"messages": cleared.messages, "note": KEPT}

    async def context_restore(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Let the saved conversation ``id``, or which begins like that, go on in the place of the present one."""
        async with self._kernel.using(self._ref(branch)) as live:
            return _told(await self._kernel.feature(Contexts).restore(live, id))

    async def context_get(self, client: Client, *, branch: str, id: str) -> dict[str, Any]:
        """Return the saved conversation of a branch's session or agent whose id is, or begins with, ``id``."""
        return _told(await self._kernel.feature(Contexts).archive.get(self._ref(branch), id))

    async def context_history(
        self, client: Client, *, branch: str | None = None, agent: str | None = None
    ) -> dict[str, Any]:
        """Return the saved conversations of a branch's session or agent, the last one first.

        ``agent`` names an agent that may be gone: the records of its conversations are kept. One whose ``gone`` is
        true has lost its file, and cannot be restored until that is put back.
        """
        if (branch is None) == (agent is None):
            raise BadRequest("Name a branch or an agent")
        archive = self._kernel.feature(Contexts).archive
        found = await archive.known(agent) if agent else await archive.history(self._ref(branch or ""))
        if agent and not found and await asyncio.to_thread(agents.find, self._kernel.state, agent) is None:
            raise NotFound(f"There is, and was, no agent called {agent[:80]!r}", hint="/agent list shows them")
        gone = await asyncio.to_thread(_gone, found)
        return {"contexts": [{**_told(row), "gone": row.file_path in gone} for row in found]}


def _gone(rows: Sequence[ContextRow]) -> set[str]:
    """Return the files that are not there; blocks."""
    return {row.file_path for row in rows if not Path(row.file_path).is_file()}


def _told(row: ContextRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "agent_name": row.agent_name,
        "description": row.description,
        "saved_at": row.saved_at,
        "trigger": row.trigger,
        "message_count": row.message_count,
        "file": row.file_path,
    }
