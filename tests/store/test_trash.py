"""What is deleted is in the trash, or where it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyagentd.errors import NotFound
from pyagentd.store.sessions import move_to_trash

SCRIPT = """
import sys
from pathlib import Path
from pyagentd.store.sessions import move_to_trash
move_to_trash(Path(sys.argv[1]))
"""


def in_home(home: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Trash a directory in a process with its own home: the library looks for the trash when it is loaded."""
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(directory)], env=env, cwd=root, capture_output=True, text=True
    )


def test_a_directory_in_the_trash_can_be_restored(tmp_path: Path) -> None:
    home, doomed = tmp_path / "home", tmp_path / "x-20260101000000"
    home.mkdir()
    (doomed / "branches").mkdir(parents=True)
    (doomed / "branches" / "file").write_text("kept")
    done = in_home(home, doomed)
    assert done.returncode == 0, done.stderr
    assert not doomed.exists()
    trash = home / ".local" / "share" / "Trash"
    assert (trash / "files" / doomed.name / "branches" / "file").read_text() == "kept"
    assert f"Path={doomed}" in (trash / "info" / f"{doomed.name}.trashinfo").read_text()


def test_without_a_usable_trash_nothing_is_deleted(tmp_path: Path) -> None:
    home, doomed = tmp_path / "home", tmp_path / "x-20260101000000"
    (home / ".local").mkdir(parents=True)
    (home / ".local" / "share").write_text("no directory")
    (doomed / "branches").mkdir(parents=True)
    done = in_home(home, doomed)
    assert done.returncode == 1 and "StoreError" in done.stderr and "Make the trash usable" in done.stderr
    assert (doomed / "branches").is_dir()


def test_what_is_gone_already_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="gone"):
        move_to_trash(tmp_path / "gone")
