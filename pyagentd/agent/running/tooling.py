"""Which tools the model of a run is offered: the package's, and what session, agent and Emacs add, as permitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyagentd.agent.approving.authority import Authority
from pyagentd.agent.approving.expansion import Place, scope_expansion
from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.emacs.emacstools import action_name
from pyagentd.agent.emacs.equipped import run_tools
from pyagentd.agent.lifecycle import modelnames
from pyagentd.agent.lifecycle.selfedit import NAMES as SELFEDIT_TOOLS
from pyagentd.agent.lifecycle.selfedit import Self, selfedit_tools
from pyagentd.agent.missions.missiontool import Lending
from pyagentd.agent.running.settings import SendOptions, configured_provider, permitted_tools, variable_of
from pyagentd.agent.running.toolbox import Around, tools_around
from pyagentd.agent.tasks.tasktools import NAMES as TASK_TOOLS
from pyagentd.agent.tasks.tasktools import task_tools
from pyagentd.agent.triggering.wakeups import Sleeper, wakeup_tools
from pyagentd.agent.turns.turnagent import TurnPresets
from pyagentd.policy.presets import Preset
from pyagentd.store.paths import BranchRef
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.spec import ToolSpec

if TYPE_CHECKING:  # the host equips the runs it starts
    from pyagentd.agent.host import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Tooling:
    """The tools of one run.

    Attributes:
        host: Who starts it.
        branch: Where it runs.
        run_id: Its id.
        options: What its client wants.
        presets: Who answers there, and in the branches above.
        ancestors: Those, the nearest one first.
    """

    host: Host
    branch: LiveBranch
    run_id: str
    options: SendOptions
    presets: TurnPresets
    ancestors: tuple[BranchRef, ...]

    def of(self, preset: Preset, authority: Authority, skill: ToolSpec | None) -> dict[str, ToolSpec]:
        """Return the tools that the model is offered, by name; ``skill`` is the one that reads skills."""
        host, ref, ancestors = self.host, self.branch.ref, self.ancestors
        spawner = host.agents.spawner(self.branch, self.options, self.run_id)
        around = Around(
            spawner=spawner,
            depth=len(ancestors),
            authority=authority,
            web=host.config.web,
            variable=lambda name: variable_of(name, self.options),
            conversation=self.branch.conversation,
            lending=Lending(
                preset=preset,
                tools=tuple(permitted_tools(self.presets, ref, ancestors, preset.tools)),
                above=lambda: host.kindred.above(ref),
            ),
        )
        known: dict[str, ToolSpec] = builtin_tools() | tools_around(preset.tools, around)
        place = Place(
            ref=ref,
            preset=lambda: host.presets.of_branch(ref),
            tools=builtin_tools(),
            clock=host.clock,
            keeping=lambda: host.origins.keeping(ref),
        )
        known["request_scope_expansion"] = scope_expansion(place, authority)
        sleeper = Sleeper(ref=ref, calendar=host.schedules, env=self.options.env, now=host.clock.now)
        known |= wakeup_tools(sleeper)
        known |= task_tools(host.tasks.of_run(self.branch, self.options))
        if skill is not None:
            known[skill.name] = skill
        wanted = (*preset.tools, *map(action_name, preset.emacs_tools))
        if host.named.is_named(ref):
            known |= selfedit_tools(self._self())
            wanted = (*wanted, *(name for name in SELFEDIT_TOOLS if name not in wanted))
        permitted = permitted_tools(self.presets, ref, ancestors, wanted)
        if "Bash" in permitted:  # what it begins, they look at and end
            permitted += [name for name in TASK_TOOLS if name not in permitted]
        tools = {name: known[name] for name in permitted if name in known}

        def of_emacs(names: list[str]) -> list[str]:
            return permitted_tools(self.presets, ref, ancestors, names)

        return tools | run_tools(host, self.branch, wanted, known, of_emacs)

    def _self(self) -> Self:
        """Return the named agent whose run it is, for the tools by which it changes itself."""
        host, ref, options = self.host, self.branch.ref, self.options

        def model(name: str) -> str:
            backend = configured_provider(host.presets.of_branch(ref), host.config, options)
            return modelnames.written(name, host.models.known(options), backend=backend)

        host.models.look_soon(options)  # by the time it is wanted, there is a list
        return Self(directory=ref.session_dir, profiles=host.presets.profiles, model=model)
