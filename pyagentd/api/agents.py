"""Operations on the agents of a session: which there are, what they did, and stopping one."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd import clock
from pyagentd.api.group import INLINE_LIMIT, Client, Group, expanded, send_options
from pyagentd.clock import stamp
from pyagentd.errors import Ambiguous, BadRequest, NotFound, PresetError, PyagentdError, StoreError
from pyagentd.features.agents import MAX_DEPTH, AgentSpawner, Assignment, Open, agents_below, outcome_of, result_of
from pyagentd.log import of_session
from pyagentd.policy.action import validate_pattern
from pyagentd.policy.presets import Result
from pyagentd.runtime.system_prompt import workspace_root
from pyagentd.store import atomic, metadata, paths, presetfile, sessions
from pyagentd.store.atomic import write_bytes
from pyagentd.store.paths import BranchRef, described
from pyagentd.wire.sexp import encode


class Agents(Group):
    """The tree below one branch."""

    async def agents(self, client: Client, *, branch: str, form: str = "sexp") -> dict[str, Any]:
        """Return the agents of a branch as a tree: ``{agents: (A…)}``, or a large one as ``{path: FILE}``.

        A has ``id``, ``branch``, ``branch_dir``, ``preset``, ``description``, ``state`` ("running", "waiting",
        "finished", "aborted", "error", "idle"), ``background``, ``call_id``, ``tokens``, ``result`` and ``agents``,
        its own. FILE is an s-expression or, with ``form`` "json", JSON.
        """
        ref = self._ref(branch)
        found = await self._tree(ref)
        data = json.dumps({"agents": found}).encode() if form == "json" else encode({"agents": found})
        if len(data) < INLINE_LIMIT:
            return {"agents": found}
        path = self._kernel.config.runtime_dir / f"agents-{ref.session_id}-{ref.branch_name}.{form}"
        await asyncio.to_thread(write_bytes, path, data, fsync=False)
        return {"path": str(path)}

    async def abort_agent(self, client: Client, *, branch: str, agent: str) -> dict[str, Any]:
        """Stop one agent below a branch, named by its id or the beginning of one, and all below it."""
        ids = {each["id"]: each["branch"] for each in _flat(await self._tree(self._ref(branch)))}
        meant = [agent] if agent in ids else [id for id in ids if id.startswith(agent)]
        if not meant:
            raise NotFound(f"{branch} has no agent {agent}", mend="See: pyagentd agents SESSION")
        if len(meant) > 1:
            raise Ambiguous(f"{agent} fits {', '.join(meant)}", mend="Give more of the id")
        live = self._kernel.opened(ids[meant[0]])
        return {"id": meant[0], "aborted": live is not None and await self._kernel.abort(live)}

    async def _tree(self, ref: BranchRef) -> list[dict[str, Any]]:
        opened = {
            live.key: Open(str(live.status["state"]), live.conversation.snapshot())
            for live in self._kernel.inside(ref.branch_dir)
        }
        return await asyncio.to_thread(agents_below, ref, opened, self._wanted)

    def _wanted(self, ref: BranchRef) -> Result:
        try:
            return self._kernel.presets.of_branch(ref).result
        except PyagentdError:
            return "all"


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
            raise BadRequest(f"Agents may be nested {MAX_DEPTH} deep", mend="Spawn it further up")
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
        return described(ref)

    async def agent_result(self, client: Client, *, branch: str) -> dict[str, Any]:
        """Wait until an agent has no run any more; return what its parent would be told: ``{ok, text}``."""
        async with self._kernel.using(self._ref(branch)) as live:
            while (task := live.task) is not None:
                await asyncio.wait([task])
            outcome = outcome_of(
                live.conversation, live.conversation.last_run, self._kernel.presets.of_branch(live.ref).result
            )
        if outcome is None:
            raise NotFound(f"{live.ref.session_id} has not run yet", mend="Send it something")
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
        parent = paths.ref_of(expanded(directory))
        name = clock.agent_id(preset, stamp(self._kernel.clock.now()), description)
        try:
            with sessions.built(paths.agents_dir(parent.branch_dir), name) as (_, place):
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
        place = expanded(directory).absolute()
        front = metadata.read_preset_metadata(place)  # logs what is wrong
        return None if front is None else {**front, "system": presetfile.read(paths.preset_file(place)).body.strip()}

    async def preset_scope(self, client: Client, *, file: str) -> dict[str, Any]:
        """Return what the preset in ``file`` (or in that directory) says about scope, and nothing else of it."""
        place = _preset(file)
        front = metadata.read_preset_metadata(place.parent)
        if front is None:
            raise PresetError(f"Failed to load preset from {place}", mend="See its front matter")
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
    place = expanded(directory).absolute()
    if not place.is_dir():
        raise NotFound(f"{directory} is no directory", mend="Make it first")
    return place


def _preset(file: str) -> Path:
    """Return the preset that ``file`` means; a directory means the one in it."""
    place = expanded(file).absolute()
    return paths.preset_file(place) if place.is_dir() else place
