"""The operations that clients can call: one short method each, grouped in classes by subject.

The whole interface is ``Service.operations``: every public method of the groups, under its name on the wire.
"""

import shutil
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pyagentd.api.agents import Agents
from pyagentd.api.approvals import Approvals
from pyagentd.api.background import Background
from pyagentd.api.commands import Builtin
from pyagentd.api.conversations import Conversations
from pyagentd.api.group import REPLIES, Process, methods
from pyagentd.api.history import Histories
from pyagentd.api.inspection import Inspection
from pyagentd.api.mcp import McpOperations
from pyagentd.api.missions import Missions
from pyagentd.api.models import ModelOperations
from pyagentd.api.reports import Reports
from pyagentd.api.sessions import Sessions
from pyagentd.api.views import Views
from pyagentd.features.indexer import Indexer
from pyagentd.features.slash_commands import Commands
from pyagentd.runtime.kernel import Kernel
from pyagentd.store.registry import Registry

GROUPS = (
    Sessions,
    Conversations,
    Histories,
    Approvals,
    Agents,
    Background,
    Missions,
    ModelOperations,
    McpOperations,
    Inspection,
    Views,
    Reports,
)
"""The classes whose public methods are the operations."""


class Service:
    """All operations of one daemon, and its built-in slash commands.

    ``stop`` ends the daemon, ``clients`` returns the number of connected clients.
    """

    def __init__(
        self,
        kernel: Kernel,
        registry: Registry,
        indexer: Indexer | None = None,
        *,
        stop: Callable[[], None],
        clients: Callable[[], int],
    ) -> None:
        shutil.rmtree(kernel.config.runtime_dir / REPLIES, ignore_errors=True)  # left by a daemon that was killed
        process = Process(stop=stop, clients=clients)
        self._operations = {
            name: getattr(group, method)
            for group in (each(kernel, registry, indexer, process) for each in GROUPS)
            for name, method in methods(type(group))
        }
        if (commands := kernel.find(Commands)) is not None:
            commands.builtin = Builtin(self._operations, commands)

    def operations(self) -> Mapping[str, Callable[..., Awaitable[Any]]]:
        """Return every operation by its name on the wire."""
        return self._operations
