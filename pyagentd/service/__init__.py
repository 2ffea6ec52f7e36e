"""What the daemon offers its clients: one short method per operation, in groups by what they are about.

The whole interface is ``Service.operations``: every public method of the groups, under its name on the wire.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pyagentd.agent.host import Host
from pyagentd.agent.indexer import Indexer
from pyagentd.service.agents import Agents
from pyagentd.service.approvals import Approvals
from pyagentd.service.branches import Branches
from pyagentd.service.commands.builtin import Builtin
from pyagentd.service.compaction import Compaction
from pyagentd.service.contexts import ContextOperations
from pyagentd.service.conversations import Conversations
from pyagentd.service.daemon import Daemon
from pyagentd.service.emacs import EmacsOperations
from pyagentd.service.exchange import Exchange
from pyagentd.service.history import Histories
from pyagentd.service.hooks import HookOperations
from pyagentd.service.inspection import Inspection
from pyagentd.service.lifecycle import Lifecycle
from pyagentd.service.mcp import McpOperations
from pyagentd.service.missions import Missions
from pyagentd.service.models import ModelOperations
from pyagentd.service.namedagents import NamedAgents
from pyagentd.service.pieces import Pieces
from pyagentd.service.presets import PresetTemplates
from pyagentd.service.queue import Queue
from pyagentd.service.schedules import Scheduling
from pyagentd.service.search import Search
from pyagentd.service.sessions import Sessions
from pyagentd.service.settings import Settings
from pyagentd.service.slash import SlashCommands
from pyagentd.service.snapshots import SnapshotOperations
from pyagentd.service.spawning import Spawning
from pyagentd.service.tasks import TaskOperations
from pyagentd.service.turnagents import TurnAgents
from pyagentd.service.usage import Spending
from pyagentd.store.registry import Registry


class Service(
    Conversations,
    Compaction,
    ContextOperations,
    Queue,
    Histories,
    Agents,
    Approvals,
    Branches,
    Sessions,
    Lifecycle,
    McpOperations,
    Missions,
    ModelOperations,
    NamedAgents,
    Pieces,
    PresetTemplates,
    Spawning,
    Spending,
    TurnAgents,
    TaskOperations,
    Scheduling,
    Inspection,
    Search,
    Exchange,
    HookOperations,
    EmacsOperations,
    Settings,
    SlashCommands,
    SnapshotOperations,
    Daemon,
):
    """All operations, on one host; those that people type behind a slash are its commands."""

    def __init__(
        self,
        host: Host,
        registry: Registry,
        indexer: Indexer | None = None,
        *,
        stop: Callable[[], None],
        clients: Callable[[], int],
    ) -> None:
        super().__init__(host, registry, indexer, stop=stop, clients=clients)
        commands = host.commands
        commands.sources.insert(0, Builtin(self.operations(), commands))

    def operations(self) -> Mapping[str, Callable[..., Awaitable[Any]]]:
        """Return every operation by its name on the wire."""
        names = [name for name, _ in inspect.getmembers(type(self), inspect.iscoroutinefunction)]
        # An operation called like a word of the language, such as `import_`, has its name without the line.
        return {name.rstrip("_").replace("_", "-"): getattr(self, name) for name in names if not name.startswith("_")}
