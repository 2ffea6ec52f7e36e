"""What a run is given of Emacs: buffers, and those of its tools that the preset wants and nothing denies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyagentd.agent.branches.branch import LiveBranch
from pyagentd.agent.emacs.buffers import RunBuffers
from pyagentd.agent.emacs.emacstools import action_name, chosen, emacs_tool
from pyagentd.agent.emacs.offered import OfferedTool
from pyagentd.tools.spec import ToolSpec

if TYPE_CHECKING:  # the host has the clients
    from pyagentd.agent.host import Host


_TOOLS = "emacs_tools"
"""In the session's row: the definitions that a run had last."""


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

    While no Emacs shows it, those that it had last stay, and say so when they are called: what the model is told
    first is the same with and without an Emacs, and the provider's cache holds.

    Args:
        host: Who knows the clients.
        branch: Where it runs; the clients that show it are asked.
        wanted: The ``tools`` of its preset.
        taken: Names that mean other tools.
        permitted: Returns those of some names, as action strings have them, that no profile denies altogether.
    """
    offered = {name: tool for name, (_, tool) in host.emacs.tools(host.hooks.watching(branch)).items()}
    known = offered or _had(branch)
    found = chosen(wanted, known, taken)
    if offered:
        branch.note_metadata(**{_TOOLS: [asdict(offered[name]) for name in found.values()]})
    allowed = set(permitted([action_name(name) for name in found.values()]))
    return {
        told: emacs_tool(host.emacs, lambda: host.hooks.watching(branch), known[name], name=told)
        for told, name in found.items()
        if action_name(name) in allowed
    }


def _had(branch: LiveBranch) -> dict[str, OfferedTool]:
    """Return the tools that a run of ``branch`` had last."""
    kept = branch.conversation.session.get("metadata_json", {}).get(_TOOLS, ())
    return {tool["name"]: OfferedTool(**tool) for tool in kept}
