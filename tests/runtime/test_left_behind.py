"""What clients leave in the daemon's memory when they have gone: counted by type, after garbage was collected."""

import asyncio
import contextlib
import gc
import os
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyagentd.store.document.files import document_cache as documents
from pyagentd.store.document.text import body_sha256
from pyagentd.wire.client import connect
from pyagentd.wire.connection import Server
from pyagentd.wire.lifecycle import Instance
from tests.runtime.test_resume import until
from tests.runtime.world import World
from tests.server import answer

CLIENTS = 30
_TURNS = 2
_AT_ONCE = 6
# One for each session that was ever opened: where it is, its preset, who granted what.
_PER_SESSION = {"BranchRef", "Preset"}


@pytest.fixture
async def runtime(world: World) -> AsyncIterator[Path]:
    """The runtime directory of a server in front of the world's kernel."""
    kernel, config = world.kernel, world.kernel.config
    server = Server(
        pulse=kernel.pulse,
        greeting={"pid": os.getpid(), "version": "test", "sessions_dir": str(config.sessions_dir)},
    )
    server.offer(world.service().operations(), on_disconnect=kernel.forget)
    config.runtime_dir.chmod(0o700)
    with Instance(config.runtime_dir, config.sessions_dir) as instance:
        await server.listen(instance.bind_unix())
        instance.publish(version="test")
        yield config.runtime_dir
        await server.close()


async def test_a_wave_of_clients_leaves_no_objects_behind(world: World, runtime: Path) -> None:
    world.server.rule = lambda request: answer("So be it. " * 50)

    def serve(name: str) -> None:
        with connect(runtime, human=True, name=name) as client:
            made = client.call("create-session", name=name, preset="main", root=str(world.project))
            client.call("attach", branch=made["branch"], sha256=body_sha256(""))
            for _ in range(_TURNS):
                client.call("prompt", branch=made["branch"], text="Go on", env=dict(world.options.env))
                ends = (e for e in client.events(timeout=60) if e.kind == "run" and e.args[0]["phase"] == "finished")
                assert next(ends).args[0]["reason"] == "done"

    async def wave(name: str) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            loop = asyncio.get_running_loop()
            await asyncio.gather(*(loop.run_in_executor(pool, serve, f"{name} {n}") for n in range(CLIENTS)))
        await until(lambda: not world.kernel.all_opened)
        documents.forget()  # the last ones are remembered, on purpose

    def counted() -> Counter[str]:
        gc.collect()
        kinds = (type(each) for each in gc.get_objects())
        return Counter(kind.__name__ for kind in kinds if kind.__module__.startswith("pyagentd."))

    def grown() -> dict[str, int]:
        return {name: more for name, count in counted().items() if (more := count - before[name]) >= CLIENTS // 3}

    await wave("first")
    before = counted()
    await wave("second")
    # A timer that was cancelled keeps what it was for until its time has come, some seconds later.
    with contextlib.suppress(TimeoutError):
        await until(lambda: grown().keys() <= _PER_SESSION)
    most = CLIENTS + CLIENTS // 3  # less than two for a client
    assert grown().keys() <= _PER_SESSION and max(grown().values(), default=0) <= most, grown()
