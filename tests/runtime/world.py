"""A kernel with everything real but the person and the model: files on disk, and a model's server on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyagentd.api import Service
from pyagentd.clock import Clock, Pulse
from pyagentd.config import load_config
from pyagentd.config.tables import compile_action
from pyagentd.daemon import FEATURES
from pyagentd.events import Event
from pyagentd.features.indexer import Indexer
from pyagentd.features.titles import Titles
from pyagentd.runtime.branch import ClientText, LiveBranch
from pyagentd.runtime.branch import attach_client as attach
from pyagentd.runtime.document_sync import DocumentVersion
from pyagentd.runtime.feature import Feature
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.presets import Presets
from pyagentd.runtime.settings import SendOptions
from pyagentd.store import sessions
from pyagentd.store.document import text as document
from pyagentd.store.document.files import Hunk
from pyagentd.store.journal import Journal, Row
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry
from tests.server import ModelServer, refusal

PRESET = """\
---
description: {name}
mode: all
backend: {backend}
model: {model}
temperature: {temperature}
tools: [{tools}]
paths:
  read: ["{root}/**"]
  write: ["{root}/**"]
shell_commands:
  allow: ["*"]
---
You are {name}.
"""
TOOLS = "Read, Write, Glob, Bash, PersistentAgent"
OVERLOADED = refusal(529, "overloaded_error", "Overloaded", headers={"retry-after": "0"})


class FixedClock(Clock):
    """Always the same second."""

    def now(self) -> datetime:
        return datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


class Calls:
    """The operations of a service as methods: ``calls.session_metadata(client, directory=…)``."""

    def __init__(self, service: Service, registry: Registry, indexer: Indexer | None = None) -> None:
        self.operations, self.registry, self.indexer = service.operations, registry, indexer

    def __getattr__(self, name: str) -> Any:
        return self.operations()[name.rstrip("_").replace("_", "-")]


class Watcher:
    """A client: keeps what it was told, and waits for it."""

    name = "a test"
    human = True

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._told = asyncio.Event()

    def push(self, event: Event) -> None:
        self.events.append(event)
        self._told.set()

    def reset(self, branch: str, seq: int) -> None:
        pass

    def of(self, kind: str, branch: str | None = None) -> list[Event]:
        return [event for event in self.events if event.kind == kind and branch in (None, event.branch)]

    def text(self, branch: str) -> str:
        """Everything that was put into the document since this client attached."""
        shown = [event for event in self.events if event.kind in ("insert", "prompt") and event.branch == branch]
        return "".join(event.args[0] for event in shown)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):  # a machine may be busy; a test that hangs ends
            while not condition():
                self._told.clear()
                await self._told.wait()

    async def phase(self, branch: LiveBranch, phase: str) -> None:
        await self.until(lambda: any(e.args[0].get("phase") == phase for e in self.of("status", branch.key)))

    async def finished(self, branch: LiveBranch | str) -> dict[str, Any]:
        """Wait for the end of the branch's run and return what was said about it."""
        key = branch if isinstance(branch, str) else branch.key

        def ends() -> list[Event]:
            return [event for event in self.of("run", key) if event.args[0]["phase"] == "finished"]

        def ended() -> bool:
            """Return whether a status followed the end; other events of the session may stand between and after."""
            found = ends()
            return bool(found) and any(
                event.kind in ("status", "resync") for event in self.events[self.events.index(found[0]) :]
            )

        await self.until(ended)
        assert len(ends()) == 1, "a run ends once"
        told: dict[str, Any] = ends()[0].args[0]
        self.events.clear()
        return told


class World:
    """One kernel, its sessions, and the model's server."""

    def __init__(self, home: Path, server: ModelServer, features: Sequence[type[Feature]] | None = None) -> None:
        self.home = home
        self.server = server
        self.project = home / "project"
        self.presets = home / "presets"
        for directory in (self.project, self.presets):
            directory.mkdir(exist_ok=True)
        self.options = SendOptions(
            interactive=True,
            env={"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "test-key"},
        )
        # Titles: a model that is asked unawares.
        self.features = [each for each in FEATURES if each is not Titles] if features is None else features
        self.preset("main")
        self.kernels: list[Kernel] = []
        self.kernel = self.start()

    def start(self) -> Kernel:
        """Return a new kernel on the same files, as after a restart of the daemon."""
        env = {
            "PYAGENTD_SESSIONS_DIR": str(self.home / "sessions"),
            "PYAGENTD_RUNTIME_DIR": str(self.home / "run"),
            "PYAGENTD_PRESETS_DIR": str(self.presets),
            "PYAGENTD_CONFIG": str(self.home / "config.toml"),
        }
        (self.home / "run").mkdir(exist_ok=True)
        presets = Presets((self.presets,))
        pulse = Pulse(asyncio.get_running_loop())
        self.kernel = Kernel(
            config=load_config(env), presets=presets, clock=FixedClock(), pulse=pulse, features=self.features
        )
        self.kernels.append(self.kernel)
        return self.kernel

    def service(self) -> Calls:
        config = self.kernel.config
        registry = Registry(config.sessions_dir, agents=config.agents_dir, departed=self.kernel.departed)
        return Calls(Service(self.kernel, registry, stop=lambda: None, clients=lambda: 1), registry)

    def preset(self, name: str, **fields: str) -> None:
        """Write a template."""
        values = {"backend": "anthropic", "model": "model-main", "temperature": "0.5", "tools": TOOLS} | fields
        text = PRESET.format(name=name, root=self.project, **values)
        (self.presets / f"{name}.md").write_text(text)

    def session(self, name: str = "test", preset: str = "main") -> BranchRef:
        text = (self.presets / f"{preset}.md").read_text()
        root = self.kernel.config.sessions_dir
        return sessions.create_session(root, name, preset_name=preset, preset_text=text, clock=FixedClock())

    def granted(self, *patterns: str) -> SendOptions:
        """The options of a client whose grants match ``patterns``."""
        return replace(self.options, grants=tuple(map(compile_action, patterns)))


async def attached(branch: LiveBranch, watcher: Watcher) -> dict[str, Any]:
    given = await attach(branch, watcher, ClientText(sha256=document.body_sha256(body(branch.ref))))
    assert given is not None
    return given


async def type_(branch: LiveBranch, text: str, sink: Watcher | None = None) -> DocumentVersion:
    """Write below everything, as a client does, and return that place."""
    live = await branch.document.look()
    end = len(live.document.body)
    branch.document.edit(sink, live.revision, (Hunk(end, end, text),))
    return DocumentVersion(revision=live.revision, marker=end + len(text))


def rows(ref: BranchRef) -> list[Row]:
    """The log as it is on disk."""
    journal = Journal.open(ref.branch_dir / "messages.jsonl")
    try:
        return journal.rows()
    finally:
        journal.close()


def body(ref: BranchRef) -> str:
    return document.read(ref.branch_dir / "session.md").body


def last_of(log: list[Row], kind: str) -> dict[str, dict[str, Any]]:
    """The last row of each id."""
    return {row.data["id"]: row.data for row in log if row.type == kind}


def assert_closed(ref: BranchRef) -> dict[str, Any]:
    """Assert that every run of the log has exactly one end and left nothing open; return the last one's."""
    log = rows(ref)
    ends = [row.data for row in log if row.type == "run" and row.data["state"] == "finished"]
    begun = [row.data["id"] for row in log if row.type == "run" and row.data["state"] == "started"]
    assert [end["id"] for end in ends] == begun
    for part in last_of(log, "part").values():
        assert part["data_json"].get("state") not in ("streaming", "input-available"), json.dumps(part)
    assert all(ask["decision"] for ask in last_of(log, "ask").values())
    return ends[-1]
