"""Every command that gets out when nothing confines it is run, and confined it does not get out.

The guard refuses or asks before most of these; here nobody is asked, so only confinement stands in the way.
"""

import asyncio
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pyagentd.tools.invoke import invoke
from pyagentd.tools.process import child_environment
from pyagentd.tools.sandbox.plan import ShellScope
from pyagentd.tools.shell import BASH
from pyagentd.tools.spec import ToolContext
from tests.policy.escapes.commands import SECRET, Case, Changed, Printed, Wrote, escapes, filled
from tests.tools.confined import MISSING, scope
from tests.tools.conftest import allow

MECHANISMS = [name for name, reason in MISSING.items() if reason is None]

pytestmark = pytest.mark.skipif(not MECHANISMS, reason="; ".join(filter(None, MISSING.values())))

_SECONDS = 20


def _scratch(place: Path, case: Case) -> tuple[Path, Path]:
    """Make the directories that the corpus is written for; return the inside and the outside."""
    root, outside = place / "root", place / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text(f"{SECRET}\n")
    (outside / "keep").write_text("keep\n")
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "link").symlink_to(outside)
    if "git" in case.needs:
        subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root, outside


async def _gets_out(place: Path, case: Case) -> bool:
    """Run ``case`` with bash alone; what it left in the background may take a moment."""
    root, outside = await asyncio.to_thread(_scratch, place, case)
    started = await asyncio.create_subprocess_exec(
        *("/bin/bash", "-c", filled(case.text, str(root), str(outside))),
        cwd=root,
        env=child_environment({}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    async with asyncio.timeout(_SECONDS):
        printed = (await started.communicate())[0].decode(errors="replace")
        while not _is_there(case, root, outside, printed):  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.01)
    return True


async def _had_effect(place: Path, case: Case, rules: ShellScope) -> tuple[bool, str]:
    """Run ``case`` in a place of its own; return whether it did outside what it says, and what it printed."""
    root, outside = await asyncio.to_thread(_scratch, place, case)
    confined = replace(rules, read=(f"{root}/**",), write=(f"{root}/**",))
    ctx = ToolContext(
        root=root,
        branch_dir=place / "branch",
        spool_dir=place / "branch/files",
        readable=lambda path: True,
        scope=lambda: confined,
        env={"PATH": os.environ["PATH"]},
    )
    command = filled(case.text, str(root), str(outside))
    done = await invoke(BASH, {"command": command, "timeout_ms": _SECONDS * 1000}, ctx, allow)
    return _is_there(case, root, outside, done.text), done.text


def _is_there(case: Case, root: Path, outside: Path, printed: str) -> bool:
    """Return whether the effect of ``case`` shows."""
    match case.effect:
        case Wrote(path):
            return os.path.lexists(filled(path, str(root), str(outside)))
        case Changed(path):
            file = Path(filled(path, str(root), str(outside)))
            return not file.is_file() or file.read_text() != "keep\n"
        case Printed(text):
            return text in printed
        case None:
            raise AssertionError("only cases with an effect are run")


@pytest.mark.parametrize("case", escapes(), ids=lambda case: case.text[:60])
async def test_a_command_that_gets_out_does_not_get_out_confined(case: Case, tmp_path: Path) -> None:
    if missing := [name for name in case.needs if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} not installed")
    assert await _gets_out(tmp_path / "free", case)
    for mechanism in MECHANISMS:
        rules = scope(tmp_path, wanted=mechanism, deny=())
        escaped, printed = await _had_effect(tmp_path / mechanism, case, rules)
        assert not escaped, (mechanism, printed)
        assert "bwrap:" not in printed and "could not be confined" not in printed  # it was run
