"""Where nothing confines a command, a change of the session's records is noticed and told."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pyagentd.tools.invoke import Envelope
from pyagentd.tools.sandbox.plan import ShellScope
from pyagentd.tools.shell import BASH
from pyagentd.tools.spec import ToolContext
from tests.tools.confined import needs_bubblewrap, scope
from tests.tools.conftest import Call

Run = Callable[..., Awaitable[Envelope]]


@pytest.fixture
def branch(tmp_path: Path) -> Path:
    place = tmp_path / "s-20260101/branches/main"
    (place / "agents/a-1").mkdir(parents=True)
    for directory in (place, place / "agents/a-1"):
        for name in ("preset.md", "scope-plan.yml", "messages.jsonl", "session.md"):
            (directory / name).write_text(f"{name}\n")
    return place


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def run(call: Call, ctx: ToolContext, branch: Path, notices: list[str]) -> Run:
    """Run a command as an agent's, below ``branch``, without confinement unless ``rules`` say otherwise."""
    records = (str(branch / "agents/a-1"), str(branch))

    async def run(command: str, rules: ShellScope | None = None) -> Envelope:
        chosen = replace(rules or ShellScope(confine=False), records=records)
        where = replace(ctx, scope=lambda: chosen, notify=notices.append, branch_dir=Path(records[0]))
        return await call(BASH, within=where, command=command)

    return run


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("echo x >>{agent}/preset.md", "agents/a-1/preset.md"),
        ("echo x >>{branch}/preset.md", "preset.md"),
        ("sed -i s/m/n/ {branch}/scope-plan.yml", "scope-plan.yml"),
        ("rm {branch}/preset.md", "preset.md"),
        ("rm {branch}/preset.md; mkfifo {branch}/preset.md", "preset.md"),
        ("touch {branch}/branch-metadata.yml", "branch-metadata.yml"),
        ("cp {branch}/preset.md . && cp preset.md new && echo y >>new && mv new {branch}/preset.md", "preset.md"),
        ("sed -i s/m/n/ {branch}/messages.jsonl", "messages.jsonl"),
        (": >{branch}/messages.jsonl", "messages.jsonl"),
        ("t=$(stat -c %y {agent}/preset.md); echo 'xreset.md' >{agent}/preset.md; touch -d \"$t\" {agent}/preset.md",
         "agents/a-1/preset.md"),
        ("(setsid sh -c 'echo x >>{branch}/preset.md' &); until grep -q ^x {branch}/preset.md; do :; done",
         "preset.md"),
    ],
)  # fmt: skip
async def test_a_change_is_told_to_model_user_and_log(
    run: Run, branch: Path, notices: list[str], caplog: pytest.LogCaptureFixture, change: str, name: str
) -> None:
    done = await run(f"echo said; {change.format(branch=branch, agent=branch / 'agents/a-1')}")
    assert not done.ok
    assert done.text.startswith("said\n")
    assert f"While this command ran, {branch / name} changed" in done.text
    assert [str(branch / name) in notice for notice in notices] == [True]
    assert str(branch / name) in caplog.text


@pytest.mark.parametrize(
    "harmless",
    ["cat {branch}/preset.md", "touch {branch}/preset.md", "echo {{}} >>{branch}/messages.jsonl", "exit 0"],
)
async def test_what_changes_nothing_is_not_told(run: Run, branch: Path, notices: list[str], harmless: str) -> None:
    done = await run(harmless.format(branch=branch))
    assert (done.ok, notices) == (True, [])


async def test_a_change_by_a_command_that_is_stopped_is_told_too(
    run: Run, branch: Path, call: Call, notices: list[str]
) -> None:
    done = await run(f"echo x >>{branch}/preset.md; kill -9 $$")
    assert "ended by signal 9" in done.text
    assert len(notices) == 1


@needs_bubblewrap
@pytest.mark.parametrize("name", ["preset.md", "agents/a-1/preset.md", "scope-plan.yml"])
async def test_what_a_confined_command_writes_by_a_second_name_of_a_setting_is_a_copy(
    run: Run, branch: Path, root: Path, notices: list[str], name: str
) -> None:
    """A hard link made outside leads around every rule about paths."""
    os.link(branch / name, root / "innocent")
    (branch / name).chmod(0o640)
    before = (branch / name).stat()
    done = await run("echo x >>innocent; cat innocent", scope(root, protected=(str(branch.parent.parent),)))
    after = (branch / name).stat()
    assert (done.text, notices) == (f"{Path(name).name}\nx\n", [])
    assert (branch / name).read_text() == f"{Path(name).name}\n"
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (before.st_mode, before.st_mtime_ns, 1)


@needs_bubblewrap
async def test_a_log_with_a_second_name_is_watched_although_commands_are_confined(
    run: Run, branch: Path, root: Path, notices: list[str]
) -> None:
    rules = scope(root, protected=(str(branch.parent.parent),))
    assert (await run("true", rules)).ok
    os.link(branch / "messages.jsonl", root / "innocent")
    done = await run("echo x >innocent", rules)
    assert not done.ok
    assert str(branch / "messages.jsonl") in done.text
    assert len(notices) == 1


async def test_a_notice_names_the_session(call: Call, ctx: ToolContext, branch: Path, notices: list[str]) -> None:
    rules = ShellScope(confine=False, records=(str(branch),))
    where = replace(ctx, scope=lambda: rules, notify=notices.append, branch_dir=branch)
    await call(BASH, within=where, command=f"echo x >>{branch}/preset.md")
    await call(BASH, within=where, command=f"rm -r {branch}/*")
    assert [notice.startswith("While a command of s-20260101 ran, ") for notice in notices] == [True, True]
