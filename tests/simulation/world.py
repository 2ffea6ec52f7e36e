"""One session of one person, over several lives of the daemon, in virtual time; everything on disk is real."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from pyagentd.agent.host import Host
from pyagentd.agent.presets import Presets
from pyagentd.config import load_config
from pyagentd.events import Event
from pyagentd.llm.backend import Backend, ModelRequest
from pyagentd.llm.retry import with_retry
from pyagentd.messages import Message
from pyagentd.pulse import Pulse
from pyagentd.service import Service
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry
from tests.simulation import reference
from tests.simulation.loop import VirtualClock, VirtualLoop
from tests.simulation.model import ScriptedModel

PRESET = """\
---
description: A simulated one
mode: all
backend: anthropic
model: model-main
tools: [Read, Write]
paths:
  read: ["{root}/**"]
  write: ["{root}/**"]
---
You are simulated.
"""
CONFIG = """\
[titles]
enabled = false

[model.model-main]
context_window = {window}
max_output = 500
"""


class Client:
    """Somebody who watches a branch: the text it has is what it was told of."""

    name = "a client"
    human = True

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ends: Counter[str] = Counter()

    def watch(self, branch: BranchRef, sha256: str, answer: Mapping[str, Any]) -> None:
        """Begin with what the daemon answered."""
        self.last_seq = answer["seq"]

    def push(self, event: Event) -> None:
        """Take one event."""
        self.events.append(event)
        if event.kind == "run" and event.args[0]["phase"] == "finished":
            self.ends[event.args[0]["id"]] += 1

    def reset(self, branch: str, seq: int) -> None:
        """Nothing is kept for sending later."""

    def check(self) -> None:
        """What it was told is in order, and every run ended once."""
        numbers = [event.seq for event in self.events if event.seq]
        assert numbers == sorted(numbers)
        assert set(self.ends.values()) <= {1}


class World:
    """What lasts longer than a daemon.

    Attributes:
        host: The daemon of the present life.
        branches: The session's branch, and those forked from it.
        requests: What the model was sent.
        wrong: What was said of requests that are not what the log says.
    """

    def __init__(self, home: Path, random: Random, *, window: int) -> None:
        self.home = home
        self.random = random
        self.project = home / "project"
        self.root = home / "sessions"
        self.presets = home / "presets"
        for directory in (self.project, self.root, self.presets, home / "run"):
            directory.mkdir()
        (self.project / "file-1.txt").write_text("one\n")
        (self.presets / "main.md").write_text(PRESET.format(root=self.project))
        (home / "config.toml").write_text(CONFIG.format(window=window))
        self.config = load_config(
            {
                "PYAGENTD_SESSIONS_DIR": str(self.root),
                "PYAGENTD_RUNTIME_DIR": str(home / "run"),
                "PYAGENTD_PRESETS_DIR": str(self.presets),
                "PYAGENTD_CONFIG": str(home / "config.toml"),
                "HOME": str(home),
            }
        )
        self.clock = VirtualClock()
        self.model = ScriptedModel(random, self.project, self._requested)
        self.requests: list[ModelRequest] = []
        self.wrong: list[str] = []
        self.branches: list[BranchRef] = []
        self.host: Host
        self.service: Service

    def live(self, life: Callable[[], Awaitable[str]], *, start_s: float) -> tuple[str, float]:
        """Run one life of the daemon; return how it ended, "stop" or "kill", and when."""
        loop = VirtualLoop(self.random, start_s)
        self.clock.loop = loop
        with patch("pyagentd.agent.running.settings.make_backend", self._backend):
            try:
                how = loop.run_until_complete(self._life(life))
                if how == "kill":
                    self._kill(loop)
            finally:
                loop.close()
        return how, loop.now_s

    async def _life(self, life: Callable[[], Awaitable[str]]) -> str:
        loop = asyncio.get_running_loop()
        self.host = Host(config=self.config, presets=Presets((self.presets,)), clock=self.clock, pulse=Pulse(loop))
        registry = Registry(self.root)
        self.service = Service(self.host, registry, stop=lambda: None, clients=lambda: 1)
        if not self.branches:
            made = await self.service.create_session(
                Client(), name="simulated", preset="main", root=str(self.project)
            )
            self.branches.append(paths.ref_of(Path(made["branch_dir"])))
        how = await life()
        if how == "stop":
            await self.host.shutdown()
            left = [task for task in asyncio.all_tasks() - {asyncio.current_task()} if not task.done()]
            assert not left, f"a daemon that stops leaves nothing: {left}"
        return how

    def _kill(self, loop: VirtualLoop) -> None:
        """Leave on disk what a killed daemon leaves; what its tasks do while they are taken down is forgotten."""
        kept = self.home / "kept"
        shutil.copytree(self.root, kept, symlinks=True)
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=60))
        self.host.ledger.close()
        self.host.state.close()
        gc.collect()
        shutil.rmtree(self.root)
        kept.rename(self.root)

    def _backend(self, name: str, settings: object) -> Backend:
        return with_retry(self.model, jitter=self.random.random)

    def _requested(self, request: ModelRequest) -> None:
        """Compare what the model is sent with what the log says it should be."""
        self.requests.append(request)
        logs = [reference.Log.read(ref.branch_dir / "messages.jsonl") for ref in self.branches]
        if plain(request.messages) not in [reference.view(log) for log in logs]:
            self.wrong.append(different(request, logs))


def plain(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages as a provider sees them."""
    return tuple(Message(role=message.role, parts=message.parts) for message in messages)


def different(request: ModelRequest, logs: list[reference.Log]) -> str:
    """Say how a request differs from each reference."""
    lines = ["the model was sent", *map(str, plain(request.messages))]
    for log in logs:
        lines += ["and the log says", *map(str, reference.view(log))]
    return "\n".join(lines)
