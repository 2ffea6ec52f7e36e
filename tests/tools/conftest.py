from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pyagentd.policy.action import Action
from pyagentd.tools.invoke import Envelope, invoke
from pyagentd.tools.spec import ToolContext, ToolSpec
from tests.tools import processes

Call = Callable[..., Awaitable[Envelope]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return (tmp_path / "root").resolve()


@pytest.fixture
def ctx(tmp_path: Path, root: Path) -> ToolContext:
    return ToolContext(
        root=root, branch_dir=tmp_path / "branch", spool_dir=tmp_path / "branch" / "files", readable=lambda path: True
    )


async def allow(action: Action) -> None:
    """Let everything happen."""


@pytest.fixture
def call(ctx: ToolContext) -> Call:
    """Call a tool as the loop does, allowed unless ``authorise`` says otherwise."""

    async def call(
        spec: ToolSpec,
        *,
        within: ToolContext = ctx,
        authorise: Callable[[Action], Awaitable[None]] = allow,
        **args: Any,
    ) -> Envelope:
        return await invoke(spec, args, within, authorise)

    return call


@pytest.fixture(autouse=True)
def _own_children() -> None:
    processes.begin()
