"""What one run needs: from preset, Local Variables, configuration and its client's wishes to ``RunSettings``.

Everything that can be wrong (preset, backend, key, pattern) is found here, before anything of the run is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyagentd.agent.approving.authority import Authority
from pyagentd.agent.approving.confining import shell_scope
from pyagentd.agent.approving.ledger import RunWitness, local_user
from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.branches.override import Override, effective, overridden, printed, settings_of
from pyagentd.agent.compacting.fitting import fitting
from pyagentd.agent.emacs.equipped import run_buffers
from pyagentd.agent.hooking.hooks import Moment
from pyagentd.agent.hooking.projecthooks import guarded
from pyagentd.agent.lifecycle.docs import docs_section
from pyagentd.agent.mcp.joining import joining
from pyagentd.agent.prompting import skilltool
from pyagentd.agent.prompting.prompt import system_prompt
from pyagentd.agent.prompting.skills import index
from pyagentd.agent.prompting.surroundings import Surroundings, skills_of, surroundings
from pyagentd.agent.running.attached import AttachedBackend
from pyagentd.agent.running.budget import limits_of
from pyagentd.agent.running.offer import Offer, found_before
from pyagentd.agent.running.resuming import DeferredBackend
from pyagentd.agent.running.runsettings import RunSettings
from pyagentd.agent.running.settings import (
    DEFAULT_MAX_TOKENS,
    THINKING_TOKENS,
    SendOptions,
    answering,
    backend_for,
    policy_context,
    provider_of,
)
from pyagentd.agent.running.tooling import Tooling
from pyagentd.agent.turns.turnagent import Named, TurnPresets, named, turn_presets
from pyagentd.events import Event
from pyagentd.llm.backend import Backend
from pyagentd.llm.catalog import facts
from pyagentd.llm.tracing import TracingBackend
from pyagentd.policy.patterns import under
from pyagentd.policy.presets import Preset
from pyagentd.store import paths
from pyagentd.store.db.projection import Projection
from pyagentd.store.document.text import Settings
from pyagentd.store.trace import TraceWriter
from pyagentd.tools.spec import ToolContext, ToolSpec

if TYPE_CHECKING:  # the host equips the runs it starts
    from pyagentd.agent.host import Host
    from pyagentd.agent.missions.contract import Assignment


class Renewal:
    """What a named agent's run asks before every request: see ``Equipping.renewed``.

    Attributes:
        preset: As it was when it was last asked.
    """

    def __init__(self, equipping: Equipping, turn: Named, preset: Preset, place: Surroundings, skills: str) -> None:
        self._equipping = equipping
        self.turn, self.preset, self.place, self.skills = turn, preset, place, skills

    async def __call__(self, now: RunSettings) -> RunSettings:
        """Return the settings that hold from now on."""
        return await self._equipping.renewed(now, self)


class Equipping:
    """One run that is about to begin or to go on.

    Args:
        host: Who starts it.
        branch: Where it runs.
        run_id: Its id.
        options: What its client wants.
        message: Metadata of the message it answers (``agent``, ``model``, ``trigger``, …).
    """

    def __init__(
        self,
        host: Host,
        branch: LiveBranch,
        run_id: str,
        options: SendOptions,
        *,
        message: Mapping[str, Any] | None = None,
    ) -> None:
        self._host = host
        self._branch = branch
        self._run_id = run_id
        self._options = options
        self._message = message or {}
        self._presets: TurnPresets
        self._override: Override = {}
        self._ancestors = paths.ancestors_of(branch.ref)
        self._top = self._ancestors[-1] if self._ancestors else branch.ref

    async def settings(self, seen: Settings, *, model: str | None = None) -> RunSettings:
        """Return what holds for the run.

        Args:
            seen: The Local Variables of the document.
            model: Of a run that is resumed: who answered so far; the server is found when it is needed.

        Raises:
            PyagentdError: Something of it is no good.
        """
        host, branch = self._host, self._branch
        turn, place = named(branch.conversation, self._message), await surroundings(host, branch)
        root = place.root
        self._presets = turn_presets(host.presets, branch.ref, self._ancestors, branch.conversation, turn.agent)
        skill = await self._skill(place)
        branch.turn = self._presets
        preset = turn.answered_by(self._preset(seen))
        resumed = model is not None
        backend, model = self._backend(preset, model)
        if not resumed:
            moment = self._moment(root)
            model = await host.hooks.model_resolve(moment, model, preset=preset.name, backend=preset.backend)
        await host.grants.load(self._top, root)
        authority = self._authority(root)
        tooling = Tooling(
            host=host,
            branch=branch,
            run_id=self._run_id,
            options=self._options,
            presets=self._presets,
            ancestors=self._ancestors,
        )
        tools = tooling.of(preset, authority, skill)
        told = index(place.skills) if skill in tools.values() else ""
        known = facts(model, host.config)
        window = known.context_window if known.window_known else None
        offer, family = Offer(tools, found_before(branch.conversation), window=window), (branch.ref, *self._ancestors)
        settings = RunSettings(
            backend=self._traced(backend),
            model=model,
            provider=provider_of(preset, host.config, self._options),
            system=await self._system(preset, place, told, model),
            tools=tools,
            offer=offer,
            ready=joining(host.servers, self._presets, family, preset, root, self._options, offer),
            context=self._tool_context(root, authority),
            authority=authority,
            temperature=preset.temperature,
            **self._longest(preset, model),
            result=preset.result,
            limits=limits_of(preset),
            tool_results=preset.include_tool_results or branch.ref.is_agent,  # SPEC 000 Tool results included
            agent=turn.agent,
            mission=self._mission(preset),
        )
        if host.named.is_named(branch.ref):
            settings = replace(settings, fresh=Renewal(self, turn, preset, place, told))
        return fitting(host, branch, self._run_id, settings)

    async def _system(self, preset: Preset, place: Surroundings, skills: str, model: str) -> str:
        """Return the system prompt; of a named agent its documents follow its own words."""
        ref, body = self._branch.ref, preset.body
        if self._host.named.is_named(ref):
            docs = await asyncio.to_thread(docs_section, ref.session_dir)
            body = "\n\n".join(part for part in (body, docs) if part)
        return system_prompt(
            body,
            place.environment,
            instructions=place.instructions,
            skills=skills,
            model=model,
            called_by_agent=ref.is_agent and preset.caller == "agent",
        )

    def _traced(self, backend: Backend) -> Backend:
        directory = self._branch.ref.branch_dir
        trace = TraceWriter(directory, self._run_id)
        return TracingBackend(AttachedBackend(backend, directory), trace, self._host.clock)

    async def renewed(self, now: RunSettings, renewal: Renewal) -> RunSettings:
        """Return the settings of a named agent's run as its configuration is now; see ``runsettings.Fresh``.

        What the user set in the document, or named in a message, holds as before.
        """
        host, branch = self._host, self._branch
        own = overridden(self._answering(), self._override)
        preset = renewal.turn.answered_by(own)
        changes: dict[str, Any] = {}
        if (preset.backend, preset.model) != (renewal.preset.backend, renewal.preset.model):
            backend, model = backend_for(preset, host.config, self._options)
            moment = self._moment(renewal.place.root)
            model = await host.hooks.model_resolve(moment, model, preset=preset.name, backend=preset.backend)
            provider = provider_of(preset, host.config, self._options)
            changes = {"backend": self._traced(backend), "model": model, "provider": provider}
            changes |= self._longest(preset, model)
        renewal.preset = preset
        system = await self._system(preset, renewal.place, renewal.skills, changes.get("model", now.model))
        if not changes and system == now.system:
            return now
        return fitting(host, branch, self._run_id, replace(now, system=system, **changes))

    def _preset(self, seen: Settings) -> Preset:
        """Return the preset of the run; what the document sets holds for every agent, but whose tools are its own."""
        own = self._host.presets.of_branch(self._branch.ref)
        override = self._branch.override(own, seen)
        self._branch.write_settings(given=printed(settings_of(own)), effective=effective(own, override), seen=seen)
        if self._presets.name:
            override = {name: value for name, value in override.items() if name != "tools"}
        self._override = override
        return overridden(self._answering(), override)

    def _answering(self) -> Preset:
        return answering(self._presets.of_branch(self._branch.ref), self._host.config, self._options)

    def _longest(self, preset: Preset, model: str) -> dict[str, Any]:
        """Return the most tokens for an answer and for thinking, which share the model's limit."""
        answer, thinking = preset.max_tokens or DEFAULT_MAX_TOKENS, THINKING_TOKENS.get(preset.thinking, 0)
        whole = facts(model, self._host.config).longest(answer + thinking)
        thinking = min(thinking, max(whole - answer, whole // 2))
        return {"max_tokens": whole - thinking, "thinking_budget": thinking or None}

    def _mission(self, preset: Preset) -> Assignment | None:
        """Return what the run is to fulfil, if it is a mission."""
        if not preset.signature:
            return None
        from pyagentd.agent.missions.beginning import mission_of  # the language is loaded when the first one comes

        return mission_of(self._run_id, preset, self._branch.conversation, self._message.get("mission") or {})

    async def _skill(self, place: Surroundings) -> ToolSpec | None:
        """Return the tool that reads the session's skills, and have what lies beside them be readable."""
        ref = self._branch.ref
        if not place.skills or skilltool.NAME not in self._presets.of_branch(ref).tools:
            return None
        found = (await asyncio.to_thread(skills_of, self._host.config, place.root)).found
        known = {name: skill for name, skill in found.items() if name in place.skills}
        beside = tuple(under(str(skill.file.parent)) for skill in known.values())
        self._presets = self._presets.reading(ref, beside)
        return skilltool.skill_tool(self._branch, place.skills, lambda: known)

    def _backend(self, preset: Preset, model: str | None) -> tuple[Backend, str]:
        if model is None:
            return backend_for(preset, self._host.config, self._options)
        return DeferredBackend(lambda: backend_for(preset, self._host.config, self._options)), model

    def _commands(self) -> bool:
        """Return whether the run may run commands."""
        return "Bash" in self._presets.of_branch(self._branch.ref).tools

    def _moment(self, root: Path) -> Moment:
        return Moment(
            branch=self._branch, root=root, run_id=self._run_id, options=self._options, witness=self._witness()
        )

    def _authority(self, root: Path) -> Authority:
        """Return who decides what the run may do in the workspace ``root``."""
        host, branch = self._host, self._branch
        return Authority(
            context=policy_context(
                self._presets,
                branch.ref,
                self._ancestors,
                self._options,
                host.config,
                remembered=lambda: host.grants.patterns(self._top, root),
            ),
            ask_human=lambda fields: host.questions.ask(branch, self._run_id, self._ancestors, fields),
            stop=branch.stop,
            witness=self._witness(),
            leaving=lambda: host.closing,
            unasked=self._tell_unasked,
        )

    def _tell_unasked(self, tool: str, action: str) -> None:
        """Tell whoever watches, here or above, that something was denied because nobody could be asked."""
        ref = self._branch.ref
        agent = ref.session_id if ref.is_agent else None
        for watched in (ref, *self._ancestors):
            told = {"asker": ref.key, "agent": agent, "tool": tool, "action": action}
            self._host.publish(Event("denied", watched.key, 0, (told,)))

    def _witness(self) -> RunWitness:
        """Return who notes the run's decisions for the audit."""
        host, ref = self._host, self._branch.ref
        return RunWitness(
            ledger=host.ledger,
            clock=host.clock,
            session=self._top.session_id,
            branch_dir=Projection(host.state, host.config.sessions_dir).key(ref.branch_dir),
            agent=ref.session_id if ref.is_agent else None,
            run_id=self._run_id,
            user=None if self._message.get("trigger") else local_user(),
        )

    def _tool_context(self, root: Path, authority: Authority) -> ToolContext:
        host, branch = self._host, self._branch
        return ToolContext(
            root=root,
            branch_dir=branch.ref.branch_dir,
            spool_dir=paths.files_dir(branch.ref.branch_dir),
            readable=authority.readable,
            env=self._options.env,
            scope=guarded(shell_scope(self._presets, branch.ref, self._ancestors, host.config), root),
            notify=lambda text: branch.publish(Event("notice", branch.key, 0, ({"text": text},))),
            keeping=host.snapshots.of_run(branch, self._run_id, root, commands=self._commands()),
            hooks=host.hooks.of_run(self._moment(root)),
            tasks=host.tasks.of_run(branch, self._options),
            buffers=run_buffers(host, branch),
        )
