"""What a command of a branch may touch: its preset's word, the sessions above it, and our own places."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyagentd import installation
from pyagentd.agent.running.settings import Configured
from pyagentd.config import Config
from pyagentd.store import named_agents, paths
from pyagentd.store.paths import BranchRef
from pyagentd.tools.sandbox.scope import ShellScope


def shell_scope(
    presets: Configured, ref: BranchRef, ancestors: tuple[BranchRef, ...], config: Config
) -> Callable[[], ShellScope]:
    """Return a function that reads the rules for one command, so a change of ``preset.md`` counts at once.

    What a session above an agent denies stays denied; all else is what the agent's own preset says.
    """
    family = (ref, *ancestors)
    top = paths.session_dir_of(family[-1].branch_dir)
    agents = config.agents_dir.resolve()
    # A named agent works in a directory of its own, so what decides about it is protected place by place.
    tops = () if named_agents.is_below(agents, top) else (top,)
    places = (config.sessions_dir, config.presets_dir, config.file, *tops, *named_agents.decisive_places(agents))
    protected = _resolved(*places, *installation.installed())
    hidden = _resolved(config.runtime_dir)
    closed = _resolved(config.sessions_dir, agents)  # what others said, and snapshots of what is in other projects

    def scope() -> ShellScope:
        own, *above = (presets.of_branch(each) for each in family)
        return ShellScope(
            read=own.paths.read,
            write=own.paths.write,
            deny=tuple(dict.fromkeys(pattern for each in (own, *above) for pattern in each.paths.deny)),
            protected=protected,
            hidden=hidden,
            closed=closed,
            own=(str(top.resolve()),),
            records=tuple(each.key for each in family),
            commands=own.shell.allow,
            network=own.shell.network,
            confine=own.shell.confine,
            wanted=config.confinement,
        )

    return scope


def _resolved(*places: Path) -> tuple[str, ...]:
    return tuple(str(place.resolve()) for place in places)
