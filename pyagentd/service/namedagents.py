"""Operations on named agents: making, listing, configuring, renaming and destroying them (SPEC 003)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyagentd.agent.lifecycle import configuring, creating, destroying, losses, renaming
from pyagentd.agent.lifecycle.creating import Wanted
from pyagentd.agent.triggering.triggers import local_user
from pyagentd.errors import BadRequest, NotFound, PyagentdError, Unconfirmed
from pyagentd.events import Event
from pyagentd.service.group import Client, Group, described
from pyagentd.service.models import checked_model
from pyagentd.service.options import send_options
from pyagentd.store import atomic, named_agents, paths
from pyagentd.store.db import agents
from pyagentd.store.db.agents import AgentRow
from pyagentd.store.paths import BranchRef
from pyagentd.wire.sexp import SexpError, plist_to_dict


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
            await asyncio.to_thread(atomic.make_dirs, self._host.config.sessions_dir)  # where lists of models are
            checked = await checked_model(self._host, None, model, send_options(client, env, key, ()))
            model, note = checked.model, checked.note
        wanted = Wanted(name=name, system_prompt=system_prompt, model=model, permissions=_permissions(permissions))
        place = self._host.config.agents_dir.resolve() / name
        kept = named_agents.is_name(name) and await asyncio.to_thread((place / named_agents.AGENT_FILE).is_file)
        ref = await creating.create(self._host, wanted)
        if kept:
            saved = len(await self._host.contexts.archive.history(ref))
            many = "" if saved == 1 else "s"
            taken = f"Its kept files were taken up: configuration, docs, workspace, {saved} saved conversation{many}"
            note = f"{note}\n{taken}" if note else taken
        self._registry.add(ref)
        self._tell_written(ref)
        self._host.publish(Event("agents", "", 0))
        told = {"name": name, "dir": str(ref.session_dir), **described(ref)}
        return {**told, "welcome": creating.welcome(self._host, ref), "note": note or None}

    async def agent_list(self, client: Client, *, destroyed: bool = False, watch: bool = False) -> dict[str, Any]:
        """Return all named agents by name, ``{agents: (A…)}``, with ``destroyed`` those too that are gone.

        A has ``name``, ``dir``, ``session_id``, ``status``, ``model``, ``effective_model`` (its own, or that of its
        preset), ``permissions``, ``created_at``, ``branch`` (to attach to; nil without files), ``state`` of its
        active branch and ``error`` (what is wrong with its file).
        With ``watch`` the client is told by events of kind "agents" when something of that has changed, and by
        "task" of all tasks, as long as it is connected.
        """
        if watch:
            self._host.overseers.add(client)
        rows = await asyncio.to_thread(agents.known, self._host.state, destroyed=destroyed)
        found = [await asyncio.to_thread(self._listed, row) for row in rows]
        for each in found:
            each["state"] = self._host.state_of(each["branch"] or "")
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
            place = await asyncio.to_thread(creating.agent_dir, self._host, name)
            preset = self._host.presets.of_branch(paths.ref_of(place))
            checked = await checked_model(self._host, preset, str(value), send_options(client, env, api_key, ()))
            value, note = checked.model, checked.note
        if key == "name" and value:
            return await self.agent_rename(client, name=name, new_name=str(value))
        if key is not None and (value is not None or reset):
            given = _permissions(value) if key == "permissions" else value
            user = local_user()
            await configuring.change(self._host, name, key, None if reset else given, user=user)
            self._publish(name, key)
        config = await configuring.shown(self._host, name)
        if key is not None and key not in config:
            raise NotFound(f"{key[:40]!r} is no key of an agent", mend=f"Known: {', '.join(config)}")
        return {
            "name": name,
            "dir": str(self._host.config.agents_dir.resolve() / name),
            "config": config,
            "note": note or None,
        }

    async def agent_rename(self, client: Client, *, name: str, new_name: str) -> dict[str, Any]:
        """Give an agent another name: its directory, its session's id and everything recorded of it follow."""
        old = paths.ref_of(await asyncio.to_thread(creating.agent_dir, self._host, name))
        ref = await renaming.rename(self._host, name, new_name, user=local_user())
        self._registry.forget(old.session_dir)
        self._registry.add(ref)
        self._tell_written(old, ref)
        self._host.publish(Event("agents", "", 0))
        config = await configuring.shown(self._host, new_name)
        return {"name": new_name, "dir": str(ref.session_dir), "config": config, **described(ref)}

    async def agent_losses(self, client: Client, *, name: str, keep_files: bool = False) -> dict[str, Any]:
        """Return what would be lost with an agent, to be told before it is destroyed; ``lines`` says all of it.

        The others are ``name``, ``dir``, counts of ``files`` (``size`` in bytes, ``more`` than were counted),
        ``uncommitted`` files and ``unpushed`` commits of its workspace (nil: not known), ``contexts``, ``messages``,
        ``asks``, ``runs``, ``schedules``; ``tasks`` that run; ``trash``: whether files would go there; ``branch``: of
        its workspace.
        """
        found = await losses.of(self._host, name)
        return {**found.told(), "lines": found.lines(keep_files=keep_files)}

    async def agent_destroy(
        self, client: Client, *, name: str, keep_files: bool = False, confirmed: bool = False
    ) -> dict[str, Any]:
        """End an agent; the answer is ``{name, dir, files, saved, text}``.

        ``files`` is what became of its directory: kept, trashed or deleted; ``saved`` has the ids of conversations
        that were saved. Without ``confirmed`` nothing is done: the error, ``unconfirmed``, says what would be lost.
        """
        if not confirmed:
            lines = (await losses.of(self._host, name)).lines(keep_files=keep_files)
            lost = "; ".join(lines) or "nothing"
            raise Unconfirmed(f"The agent {name} is not destroyed: lost would be {lost}", mend="Confirm it first")
        done = await destroying.destroy(self._host, name, keep_files=keep_files, user=local_user())
        self._registry.forget(done.directory)
        self._tell_written(*done.gone)
        self._host.publish(Event("agents", "", 0))
        told = {"name": name, "dir": str(done.directory), "files": done.files}
        return {**told, "saved": [row.id for row in done.saved], "text": done.text}

    def _publish(self, name: str, key: str) -> None:
        """Tell who watches an agent that another configuration holds."""
        place = self._host.config.agents_dir.resolve() / name
        self._host.publish(Event("agents", "", 0))
        were = "were" if key == "permissions" else "was"
        for live in self._host.inside(place):
            live.publish(Event("notice", live.key, 0, ({"text": f"The {key} of {name} {were} changed"},)))

    def _answering(self, ref: BranchRef) -> str | None:
        """Return the model that answers an agent; None where that cannot be told."""
        try:
            return self._host.presets.of_branch(ref).model
        except PyagentdError:
            return None

    def _listed(self, row: AgentRow) -> dict[str, Any]:
        ref, wrong = _branch(row), ""
        told: dict[str, Any] = {"model": row.model, "permissions": row.permissions}
        if ref is not None and row.status != "destroyed":
            try:
                file = named_agents.read(ref.session_dir)
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
