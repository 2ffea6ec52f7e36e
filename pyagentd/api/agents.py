"""Operations on the agents of a session, on named agents and on their defaults."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from pyagentd.api.group import NOTHING, Client, Env, Group, Note, expand_home, reply_of, send_options
from pyagentd.api.models import checked_model, model_source
from pyagentd.clock import stamp
from pyagentd.errors import Ambiguous, BadRequest, NotFound, PyagentdError, Unconfirmed
from pyagentd.events import Event
from pyagentd.features import named_agents
from pyagentd.features.agents import (
    MAX_DEPTH,
    AgentNode,
    AgentSpawner,
    Assignment,
    agents_below,
    outcome_of,
    result_of,
)
from pyagentd.features.contexts import Contexts
from pyagentd.features.named_agents import MODEL_SETTING, AgentDefaults, AgentDestroyed, AgentSettings
from pyagentd.log import of_session
from pyagentd.policy.action import validate_pattern
from pyagentd.policy.presets import Result
from pyagentd.runtime.grants import local_subject
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.system_prompt import workplace_of
from pyagentd.store import atomic, metadata, paths, presetfile, sessions
from pyagentd.store import named_agents as agent_files
from pyagentd.store.db import agents
from pyagentd.store.db.agents import AgentRow, Status
from pyagentd.store.paths import BranchPlaces, BranchRef, describe_branch
from pyagentd.words import quantity


class AgentsReply(TypedDict):
    """The agents of a branch as a tree, in the reply or, if there are many, in a file."""

    agents: NotRequired[list[AgentNode]]
    path: NotRequired[str]  # of a JSON file with the same tree


class AgentAborted(TypedDict):
    """Whether an agent was stopped."""

    id: str
    aborted: bool  # it was running


_log = logging.getLogger(__name__)


class AgentResult(TypedDict):
    """The result of an agent, as its parent would get it."""

    ok: bool
    text: str


class AgentCreated(BranchPlaces):
    """A new named agent."""

    name: str
    dir: str
    welcome: str
    note: str | None  # about a model that could not be checked, or files left by an earlier agent of that name


class NamedAgent(TypedDict):
    """A named agent."""

    name: str
    dir: str
    session_id: str
    status: Status
    model: str | None
    effective_model: str | None  # its own, or its preset's
    permissions: str | Mapping[str, Any]  # a profile's name, or the profile itself
    created_at: str  # ISO 8601
    branch: str | None  # to attach to; nil if its files are missing
    state: str  # of its active branch
    error: str | None  # why its files cannot be read


class AgentList(TypedDict):
    """Named agents by name."""

    agents: list[NamedAgent]


class AgentConfigured(TypedDict):
    """A named agent with its configuration."""

    name: str
    dir: str
    config: AgentSettings
    effective_model: str | None  # the model that answers; nil if unknown
    model_source: str | None  # where it is set: "agent.json", "preset.md" or "the backend"
    note: str | None  # about a model that could not be checked with the client's environment


class AgentRenamed(BranchPlaces):
    """A named agent under its new name."""

    name: str
    dir: str
    config: AgentSettings
    note: None


class DestroyWarnings(TypedDict):
    """What destroying an agent would lose."""

    dir: str
    lines: list[str]  # for people


class SettingsReply(TypedDict):
    """The defaults of named agents: the current values, and those without any setting."""

    settings: AgentDefaults
    defaults: AgentDefaults
    note: str | None  # about a model that could not be checked with the client's environment
    profiles: list[str]  # the names that permissions may have


class Agents(Group):
    """Agents of a session; named agents and their defaults; agents made by other programs."""

    async def agents(self, client: Client, *, branch: str, call: str | None = None) -> AgentsReply:
        """Return the agents of a branch as a tree, or the one that a ``call`` started; by ``path`` if large."""
        tree = await agent_tree(self._kernel, self._ref(branch))
        found = [each for each in tree if call in (None, each["call_id"])]
        reply: AgentsReply = await self._rows_reply("agents", found)
        return reply

    async def abort_agent(self, client: Client, *, branch: str, agent: str) -> AgentAborted:
        """Stop one agent of a branch, named by its id or a prefix of it, and all agents below that one."""
        ids = {each["id"]: each["branch"] for each in _flat(await agent_tree(self._kernel, self._ref(branch)))}
        meant = [agent] if agent in ids else [id for id in ids if id.startswith(agent)]
        if not meant:
            raise NotFound(f"{branch} has no agent {agent}", hint="See: pyagentd agents SESSION")
        if len(meant) > 1:
            raise Ambiguous(f"{agent} fits {', '.join(meant)}", hint="Give more of the id")
        live = self._kernel.opened(ids[meant[0]])
        return {"id": meant[0], "aborted": live is not None and await self._kernel.abort(live)}

    async def abort_all(self, client: Client, *, branch: str) -> Note:
        """Stop the runs of a branch and of all its agents."""
        ref = self._ref(branch)
        number = 0
        for key in (ref.key, *(each["branch"] for each in _flat(await agent_tree(self._kernel, ref)))):
            live = self._kernel.opened(key)
            number += live is not None and await self._kernel.abort(live)
        return {"note": None if number else "Nothing is running"}

    # Agents spawned by a client instead of a model: ``jf/gptel-persistent-agent--task`` called from Lisp.
    #
    # They differ from others only in that the result goes to the client instead of the parent.

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
        env: Env = NOTHING,
        allow: Sequence[str] = (),
    ) -> BranchPlaces:
        """Start an agent below a branch or agent and return its id; ``agent_result`` waits until it has finished.

        It may read what its parent may read, or ``allowed_paths``, or with ``unrestricted`` everything.
        """
        parent = self._ref(branch)
        if len(paths.ancestors_of(parent)) >= MAX_DEPTH:
            raise BadRequest(f"Agents may be nested {MAX_DEPTH} deep", hint="Spawn it from an agent further up")
        options = send_options(client, env, allow)
        wanted = Assignment(
            preset=preset,
            description=description,
            prompt=prompt,
            read=() if unrestricted else tuple(allowed_paths) or None,
            deny=tuple(denied_paths),
        )
        async with self._kernel.using(parent) as live:
            await workplace_of(self._kernel, live)
            spawner = self._kernel.feature(AgentSpawner).spawner(live, options, run_id="")
            try:
                ref, _ = await spawner.launch(wanted)
            except PyagentdError as error:
                _log.error("agent %s: %s", preset, error, extra=of_session(parent.session_dir))
                raise
        return describe_branch(ref)

    async def agent_result(self, client: Client, *, branch: str) -> AgentResult:
        """Wait until an agent's run has ended; return its result as its parent would get it."""
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

    # Operations on the parts of an agent, one at a time: its directory, its preset, the preset's paths.
    #
    # For Emacs code that makes agents step by step (``jf/gptel--create-agent-directory`` and the
    # like). The daemon itself creates an agent in one step (``store.sessions``).

    async def create_agent_directory(self, client: Client, *, directory: str, preset: str, description: str) -> str:
        """Create an empty directory for an agent below the branch or agent in ``directory``; return its name."""
        parent = paths.ref_of(expand_home(directory))
        name = paths.agent_id(preset, stamp(self._kernel.clock.now()), description)
        making = sessions.build_directory(paths.agents_dir(parent.branch_dir), name)
        with _errors_logged(parent.session_dir), making as (_, place):
            pass
        _log.info("Created agent directory: %s", place, extra=of_session(parent.session_dir))
        return str(place)

    async def copy_preset_template(self, client: Client, *, preset: str, directory: str) -> str:
        """Copy the template ``preset`` to ``preset.md`` in ``directory``, a branch's or agent's; return the file."""
        place = expand_home(directory).absolute()
        if not place.is_dir():
            raise NotFound(f"{directory} is not a directory", hint="Make it first")
        with _errors_logged(place):
            _, text = self._kernel.presets.template(preset)
            atomic.write_text(paths.preset_file(place), text)
        _log.info("Copied preset template %s to %s", preset, place, extra=of_session(place))
        return str(paths.preset_file(place))

    async def load_preset(self, client: Client, *, directory: str) -> dict[str, Any] | None:
        """Return the keys of ``preset.md`` and its body as ``system``; nil when it is missing or not a preset."""
        place = expand_home(directory).absolute()
        front = metadata.read_preset_metadata(place)  # logs errors
        return None if front is None else {**front, "system": presetfile.read(paths.preset_file(place)).body.strip()}

    async def update_preset_paths(
        self, client: Client, *, file: str, allowed: Sequence[str] = (), denied: Sequence[str] = ()
    ) -> str:
        """Set ``paths`` of the preset in ``file``: ``allowed`` for reading, and ``denied``; return the file."""
        place = _preset(file)
        for pattern in (*allowed, *denied):
            validate_pattern(pattern)
        with _errors_logged(place.parent):
            presetfile.change(place, lambda preset: presetfile.with_paths(preset, read=allowed, deny=denied))
        if paths.scope_plan_file(place.parent).exists():
            metadata.touch_scope_plan(place.parent, self._kernel.clock.now())
        return str(place)

    async def agent_init(
        self,
        client: Client,
        *,
        name: str,
        system_prompt: str | None = None,
        model: str | None = None,
        permissions: str | Mapping[str, Any] | None = None,
        env: Env = NOTHING,
    ) -> AgentCreated:
        """Create an agent; ``permissions`` is a profile's name or a profile, as JSON or as ``{allow, ask}``."""
        note = ""
        if model:
            await asyncio.to_thread(atomic.make_dirs, self._kernel.config.sessions_dir)  # holds the lists of models
            checked = await checked_model(self._kernel, None, model, send_options(client, env, ()))
            model, note = checked.model, checked.note
        place = self._kernel.config.agents_dir.resolve() / name
        kept = agent_files.is_name(name) and await asyncio.to_thread((place / agent_files.AGENT_FILE).is_file)
        ref = await named_agents.create(
            self._kernel, name, system_prompt=system_prompt, model=model, permissions=_permissions(permissions)
        )
        if kept:
            saved = quantity(len(await self._kernel.feature(Contexts).history(ref)), "saved conversation")
            taken = f"Its kept files were taken up: configuration, docs, workspace, {saved}"
            note = f"{note}\n{taken}" if note else taken
        self._registry.add(ref)
        self._tell_written(ref)
        self._kernel.publish(Event("agents", "", 0))
        return {
            **describe_branch(ref),
            "name": name,
            "dir": str(ref.session_dir),
            "welcome": named_agents.introduction_of(self._kernel, ref),
            "note": note or None,
        }

    async def agent_list(self, client: Client, *, destroyed: bool = False, watch: bool = False) -> AgentList:
        """Return all named agents by name; with ``destroyed`` also destroyed ones.

        With ``watch`` the client receives an "agents" event when the list changes, and "task" events of all tasks, as
        long as it is connected.
        """
        if watch:
            self._follow(client, "agents")
        rows = await asyncio.to_thread(agents.known, self._kernel.state, destroyed=destroyed)
        return {"agents": [await asyncio.to_thread(self._agent_row, row) for row in rows]}

    async def agent_config(
        self,
        client: Client,
        *,
        name: str,
        key: str | None = None,
        value: Any = None,
        reset: bool = False,
        env: Env = NOTHING,
    ) -> AgentConfigured | AgentRenamed:
        """Return an agent's configuration, or set ``key`` (system_prompt, model, permissions, name) to ``value``.

        ``reset`` sets the key to its default. Without ``value`` and ``reset`` nothing changes.
        """
        note = ""
        if key in ("model", "permissions") and isinstance(value, str) and not value.strip():
            raise BadRequest(f"The {key} is empty", hint=f"To reset it: pyagentd agent config {name} {key} --reset")
        if key == "model" and value:
            place = await asyncio.to_thread(named_agents.agent_dir, self._kernel, name)
            preset = self._kernel.presets.of_branch(paths.ref_of(place))
            checked = await checked_model(self._kernel, preset, str(value), send_options(client, env, ()))
            value, note = checked.model, checked.note
        if key == "name" and (value is not None or reset):  # a name has no default
            return await self.agent_rename(client, name=name, new_name=str(value or ""))
        if key is not None and (value is not None or reset):
            given = _permissions(value) if key == "permissions" else value
            user = local_subject()
            await named_agents.set_setting(self._kernel, name, key, None if reset else given, user=user)
            self._publish(name, key)
        config = await named_agents.agent_settings(self._kernel, name)
        if key is not None and key not in config:
            raise NotFound(f"{key[:40]!r} is not a key of an agent", hint=f"Known: {', '.join(config)}")
        place = self._kernel.config.agents_dir.resolve() / name
        model = self._model_of(paths.ref_of(place))
        return {
            "name": name,
            "dir": str(place),
            "config": config,
            "effective_model": model,
            "model_source": model and model_source(self._kernel, paths.ref_of(place), model),
            "note": note or None,
        }

    async def agent_rename(self, client: Client, *, name: str, new_name: str) -> AgentRenamed:
        """Rename an agent with its directory, its session's id and all its records."""
        old = paths.ref_of(await asyncio.to_thread(named_agents.agent_dir, self._kernel, name))
        ref = await named_agents.rename(self._kernel, name, new_name, user=local_subject())
        self._registry.forget(old.session_dir)
        self._registry.add(ref)
        self._tell_written(old, ref)
        self._kernel.publish(Event("agents", "", 0))
        config = await named_agents.agent_settings(self._kernel, new_name)
        return {**describe_branch(ref), "name": new_name, "dir": str(ref.session_dir), "config": config, "note": None}

    async def destroy_warnings(self, client: Client, *, name: str, keep_files: bool = False) -> DestroyWarnings:
        """Return what destroying an agent would lose."""
        lines = await named_agents.destroy_warnings(self._kernel, name, keep_files=keep_files)
        return {"dir": str(self._kernel.config.agents_dir.resolve() / name), "lines": lines}

    async def agent_destroy(
        self, client: Client, *, name: str, keep_files: bool = False, confirmed: bool = False
    ) -> AgentDestroyed:
        """Destroy an agent.

        Without ``confirmed`` nothing is done: the error ``unconfirmed`` says what would be lost.
        """
        if not confirmed:
            lines = await named_agents.destroy_warnings(self._kernel, name, keep_files=keep_files)
            lost = "; ".join(lines) or "nothing"
            raise Unconfirmed(
                f"The agent {name} is not destroyed: this would be lost: {lost}", hint="Confirm it first"
            )
        done, gone = await named_agents.destroy(self._kernel, name, keep_files=keep_files, user=local_subject())
        self._registry.forget(Path(done["dir"]))
        self._tell_written(*gone)
        self._kernel.publish(Event("agents", "", 0))
        return done

    def _publish(self, name: str, key: str) -> None:
        """Notify the clients that watch an agent of its new configuration."""
        place = self._kernel.config.agents_dir.resolve() / name
        self._kernel.publish(Event("agents", "", 0))
        were = "were" if key == "permissions" else "was"
        for live in self._kernel.inside(place):
            live.say(f"The {key} of {name} {were} changed")

    def _model_of(self, ref: BranchRef) -> str | None:
        """Return an agent's model, or None if it cannot be determined."""
        try:
            return self._kernel.presets.of_branch(ref).model
        except PyagentdError:
            return None

    def _agent_row(self, row: AgentRow) -> NamedAgent:
        ref, wrong, lives = _branch(row), "", row.status != "destroyed"
        model: str | None = row.model
        permissions: str | Mapping[str, Any] = row.permissions
        if ref is not None and lives:
            try:
                file = agent_files.read(ref.session_dir)
                model, permissions = file.model, file.permissions or row.permissions
            except PyagentdError as error:
                wrong = error.message
        elif ref is None and lives:
            wrong = f"{row.dir} is gone"
        return reply_of(
            NamedAgent,
            row,
            model=model,
            effective_model=None if ref is None or wrong else self._model_of(ref),
            permissions=permissions,
            branch=ref.key if ref is not None else None,
            state=self._kernel.state_of(ref.key if ref is not None else ""),
            error=wrong or None,
        )

    async def settings(
        self,
        client: Client,
        *,
        key: str | None = None,
        value: Any = None,
        reset: bool = False,
        env: Env = NOTHING,
    ) -> SettingsReply:
        """Return the defaults of named agents, or set ``key`` to ``value``, or with ``reset`` to its default.

        ``idle_timeout`` also accepts 45min, 2h or never.
        """
        kernel, note = self._kernel, ""
        if key is not None and key not in named_agents.DEFAULTS:
            raise BadRequest(f"{key[:40]!r} is not a setting", hint=f"Known: {', '.join(named_agents.DEFAULTS)}")
        if key is None and (value is not None or reset):
            raise BadRequest("No key is given", hint=f"Known: {', '.join(named_agents.DEFAULTS)}")
        if key is not None and (value is not None or reset):
            if key == MODEL_SETTING and value and not reset:
                checked = await checked_model(kernel, None, str(value), send_options(client, env, ()))
                value, note = checked.model, checked.note
            wanted = None if reset else named_agents.checked_setting(kernel, key, value)
            await asyncio.to_thread(named_agents.put, kernel, key, wanted)
        held = await asyncio.to_thread(named_agents.read, kernel)
        profiles = named_agents.profile_names(kernel)
        return {"settings": held, "defaults": named_agents.DEFAULTS, "note": note or None, "profiles": profiles}


async def agent_tree(kernel: Kernel, ref: BranchRef) -> list[AgentNode]:
    """Return the agents of a branch like ``agents``, but without a limit."""

    def wanted(agent: BranchRef) -> Result:
        try:
            return kernel.presets.of_branch(agent).result
        except PyagentdError:
            return "all"

    opened = {
        live.key: (str(live.status["state"]), live.conversation.snapshot()) for live in kernel.inside(ref.branch_dir)
    }
    return await asyncio.to_thread(agents_below, ref, opened, wanted)


@contextmanager
def _errors_logged(directory: Path) -> Iterator[None]:
    """Log an error of a session or agent before it is raised."""
    try:
        yield
    except PyagentdError as error:
        _log.error("%s", error, extra=of_session(directory))
        raise


def _flat(agents: list[AgentNode]) -> list[AgentNode]:
    return [each for agent in agents for each in (agent, *_flat(agent["agents"]))]


def _preset(file: str) -> Path:
    """Return the preset file for ``file``: itself, or the one in that directory."""
    place = expand_home(file).absolute()
    return paths.preset_file(place) if place.is_dir() else place


def _branch(row: AgentRow) -> BranchRef | None:
    """Return the active branch of an agent; None if its files are missing."""
    try:
        return paths.ref_of(Path(row.dir))
    except PyagentdError:
        return None


def profile_word(permissions: Any) -> str:
    """Return the name of a profile, or "custom" for the agent's own rules."""
    if isinstance(permissions, str) and not permissions.startswith("{"):
        return permissions
    return "custom" if permissions else ""


def _permissions(value: Any) -> str | Mapping[str, Any] | None:
    """Parse permissions that a client sent: a profile's name, or a profile."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, Mapping):
        return value
    raise BadRequest("permissions are a profile's name, or (:allow (…) :ask (…))")
