"""What a run is given of Emacs: buffers, and those of its tools that the preset wants and nothing denies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.emacs.buffers import RunBuffers
from pyagentd.agent.emacs.emacstools import action_name, chosen, emacs_tool
from pyagentd.tools.spec import ToolSpec

if TYPE_CHECKING:  # the host has the clients
    from pyagentd.agent.host import Host


def run_buffers(host: Host, branch: LiveBranch) -> RunBuffers:
    """Return who asks the user's Emacsen about files, for a run of ``branch``."""
    return RunBuffers(host.emacs, lambda: host.hooks.watching(branch))


def run_tools(
    host: Host,
    branch: LiveBranch,
    wanted: Collection[str],
    taken: Collection[str],
    permitted: Callable[[list[str]], Collection[str]],
) -> dict[str, ToolSpec]:
    """Return the tools of Emacs for a run of ``branch``, by the name under which the model is told of them.

    Args:
        host: Who knows the clients.
        branch: Where it runs; the clients that show it are asked.
        wanted: The ``tools`` of its preset.
        taken: Names that mean other tools.
        permitted: Returns those of some names, as action strings have them, that no profile denies altogether.
    """
    offered = {name: tool for name, (_, tool) in host.emacs.tools(host.hooks.watching(branch)).items()}
    found = chosen(wanted, offered, taken)
    allowed = set(permitted([action_name(name) for name in found.values()]))
    return {
        told: emacs_tool(host.emacs, lambda: host.hooks.watching(branch), offered[name], name=told)
        for told, name in found.items()
        if action_name(name) in allowed
    }
