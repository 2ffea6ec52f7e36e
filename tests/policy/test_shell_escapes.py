"""No command line of the corpus gets out, and the plain ones get through."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pyagentd.policy import shell
from pyagentd.policy.action import Action, ResolvedPath, under
from pyagentd.policy.guard import Allow, Ask, Context, Deny, decide
from pyagentd.policy.presets import Commands, Paths, Preset
from tests.policy.escapes.commands import CASES, Case, Changed, Printed, Wrote, escapes, filled

NAMES = {Allow: "allow", Ask: "ask", Deny: "deny"}


@pytest.fixture
def place(tmp_path):
    """A workspace and a directory beside it that nothing may touch."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "link").symlink_to(outside)
    (outside / "secret").write_text("SECRET-7f3a\n")
    (outside / "keep").write_text("keep\n")
    return root, outside


def resolved(path: str, root: Path) -> ResolvedPath:
    there = os.path.join(root, os.path.expanduser(path))  # noqa: PTH111, PTH118 - as text: `..` must stay
    return ResolvedPath(lexical=os.path.normpath(there), resolved=os.path.realpath(there))


def decided(case: Case, root: Path, outside: Path) -> str:
    text = filled(case.text, str(root), str(outside))
    reading = shell.read(text)
    action = Action(
        tool="Bash",
        detail=text,
        kind="command",
        command=text,
        shell=reading,
        paths=tuple(resolved(path, root) for path in reading.reads),
        writes=tuple(resolved(path, root) for path in reading.writes),
    )
    scope = (under(str(root)),)
    rules = Commands(allow=case.allow, deny=case.deny)
    preset = Preset(name="p", backend="b", model="m", paths=Paths(read=scope, write=scope), shell=rules)
    return NAMES[type(decide(action, Context(preset=preset, interactive=True), False))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case.text))
def test_each_command_line_is_decided_as_it_should(case, place):
    assert decided(case, *place) == case.want


def test_the_corpus_is_large_and_has_no_case_twice():
    assert len(CASES) >= 300
    assert len(escapes()) >= 150
    assert len({(case.text, case.allow, case.deny) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", escapes(), ids=lambda case: ascii(case.text))
def test_without_any_rule_an_escape_really_gets_out(case, place):
    """Else the same test with confinement would say nothing."""
    root, outside = place
    if any(shutil.which(program) is None for program in case.needs):
        pytest.skip("a program is missing")
    env = {"PATH": os.environ["PATH"], "HOME": str(root), "LC_ALL": "C.UTF-8"}
    if "git" in case.needs:
        subprocess.run(["git", "init", "-q"], cwd=root, env=env, check=True)
    before = {path: path.read_text() for path in outside.iterdir()}
    ran = subprocess.run(
        ["/bin/bash", "-c", filled(case.text, str(root), str(outside))],
        cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
        check=False,
    )  # fmt: skip
    match case.effect:
        case Wrote(path):
            there = Path(filled(path, str(root), str(outside)))
            assert there.exists() or there.is_symlink(), ran.stdout
        case Changed(path):
            there = Path(filled(path, str(root), str(outside)))
            assert not there.exists() or there.read_text() != before[there], ran.stdout
        case Printed(text):
            assert text in ran.stdout.decode(errors="replace")
