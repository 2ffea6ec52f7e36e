"""One session of one person, over several lives of the daemon, in virtual time; everything on disk is real."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from unittest.mock import patch

from pyagentd.api import Service
from pyagentd.clock import Pulse
from pyagentd.config import load_config
from pyagentd.daemon import FEATURES
from pyagentd.features.titles import Titles
from pyagentd.llm.backend import Backend, ModelRequest, RetryingBackend
from pyagentd.messages import Message, Part, Role
from pyagentd.runtime.kernel import Kernel
from pyagentd.runtime.presets import Presets
from pyagentd.store import paths
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import Registry
from tests.runtime.world import Calls
from tests.simulation import reference
from tests.simulation.client import Client
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


class World:
    """What lasts longer than a daemon.

    Attributes:
        kernel: The daemon of the present life.
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
        self._last: dict[str, tuple[frozenset[str], list[tuple[Role, Part]]]] = {}  # by branch: what was sent last
        self.branches: list[BranchRef] = []
        self.kernel: Kernel
        self.service: Service

    def live(self, life: Callable[[], Awaitable[str]], *, start_s: float) -> tuple[str, float]:
        """Run one life of the daemon; return how it ended, "stop" or "kill", and when."""
        loop = VirtualLoop(self.random, start_s)
        self.clock.loop = loop
        with (
            patch("pyagentd.runtime.settings.make_backend", self._backend),
            patch("time.monotonic", loop.time),  # the same for the same seed
        ):
            try:
                how = loop.run_until_complete(self._life(life))
                if how == "kill":
                    self._kill(loop)
            finally:
                loop.close()
        return how, loop.now_s

    async def _life(self, life: Callable[[], Awaitable[str]]) -> str:
        loop = asyncio.get_running_loop()
        self.kernel = Kernel(
            config=self.config,
            presets=Presets((self.presets,)),
            clock=self.clock,
            pulse=Pulse(loop),
            features=tuple(each for each in FEATURES if each is not Titles),
        )
        registry = Registry(self.root)
        self.service = Calls(Service(self.kernel, registry, stop=lambda: None, clients=lambda: 1), registry)
        if not self.branches:
            made = await self.service.create_session(
                Client(), name="simulated", preset="main", root=str(self.project)
            )
            self.branches.append(paths.ref_of(Path(made["branch_dir"])))
        how = await life()
        if how == "stop":
            await self.kernel.shutdown()
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
        self.kernel.ledger.flush()
        self.kernel.state.close()
        gc.collect()
        shutil.rmtree(self.root)
        kept.rename(self.root)

    def _backend(self, name: str, settings: object) -> Backend:
        async def opened() -> Backend:
            return self.model

        return RetryingBackend(opened, jitter=self.random.random)

    def _requested(self, request: ModelRequest) -> None:
        """Compare what the model is sent with what the log says it should be."""
        self.requests.append(request)
        logs = {ref.key: reference.Log.read(ref.branch_dir / "messages.jsonl") for ref in self.branches}
        own = [key for key, log in logs.items() if plain(request.messages) == reference.view(log)]
        if not own:
            self.wrong.append(different(request, list(logs.values())))
        elif len(own) == 1:  # else it may be of either branch
            self._compare_with_last(own[0], request, reference.changes(logs[own[0]]))

    def _compare_with_last(self, branch: str, request: ModelRequest, changes: frozenset[str]) -> None:
        """A request begins with all of the one before it unless somebody changed what was said: caches rely on it."""
        said = [(message.role, part) for message in request.messages for part in message.parts]
        before = self._last.get(branch)
        if before is not None and before[0] == changes and said[: len(before[1])] != before[1]:
            self.wrong.append(f"the model was sent\n{before[1]}\nand then\n{said}")
        self._last[branch] = changes, said


def plain(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages as a provider sees them."""
    return tuple(Message(role=message.role, parts=message.parts) for message in messages)


def different(request: ModelRequest, logs: list[reference.Log]) -> str:
    """Say how a request differs from each reference."""
    lines = ["the model was sent", *map(str, plain(request.messages))]
    for log in logs:
        lines += ["and the log says", *map(str, reference.view(log))]
    return "\n".join(lines)
