"""Versions: what an earlier one left opens in this one; Emacs, command line and daemon of different versions."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pyagentd import __version__
from pyagentd.cli import doctor as upgrading
from pyagentd.errors import PyagentdError, WireError
from pyagentd.wire.frames import check_versions

FIXTURES = sorted(Path(__file__).parents[1].joinpath("fixtures").glob("*.tar.gz"))


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What a version left in its home."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="tar")
    with contextlib.closing(sqlite3.connect(tmp_path / "sessions/state.db", isolation_level=None)) as database:
        database.execute("UPDATE agents SET dir = replace(dir, '/tmp/pyagentd-fixture', ?)", [str(tmp_path)])
    return tmp_path


@pytest.fixture
def ask(home: Path) -> Iterator[Callable[..., Any]]:
    """Run a command of this version over it; return what it prints, read as JSON where asked for."""
    run_dir = Path(tempfile.mkdtemp(prefix="pa-"))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYAGENTD_", "XDG_"))} | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PYAGENTD_SESSIONS_DIR": str(home / "sessions"),
        "PYAGENTD_RUNTIME_DIR": str(run_dir),
    }

    def run(*words: str) -> Any:
        command = [sys.executable, "-m", "pyagentd", *words]
        done = subprocess.run(command, env=env, cwd=home / "work", stdin=subprocess.DEVNULL, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout) if "--json" in words else done.stdout.decode()

    yield run
    run("stop")
    shutil.rmtree(run_dir)


@pytest.mark.e2e
def test_what_a_later_version_left_is_refused_and_stays(home: Path, tmp_path: Path) -> None:
    file, run_dir = home / "sessions/state.db", Path(tempfile.mkdtemp(prefix="pa-"))
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA user_version = 999")
    before = file.read_bytes()
    env = os.environ | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PYAGENTD_SESSIONS_DIR": str(home / "sessions"),
        "PYAGENTD_RUNTIME_DIR": str(run_dir),
    }
    for words in (["serve", "--detach"], ["sessions"]):
        command = [sys.executable, "-m", "pyagentd", *words]
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        assert done.returncode != 0 and "later version of pyagentd" in done.stderr, done
    assert file.read_bytes() == before
    assert not list((home / "sessions").glob("state-*.db"))
    shutil.rmtree(run_dir)


@pytest.mark.e2e
def test_all_that_an_earlier_version_left_is_there(ask: Callable[..., Any], home: Path) -> None:
    """Lists, what was archived, schedules, settings, named agents with their contexts, branches, presets; and a
    conversation goes on."""
    listed = ask("sessions", "--all", "--json")
    assert any(row["archived_at"] for row in listed)
    session = next(row["session_id"] for row in listed if row["title"] == "The parser")
    assert len(ask("branches", session, "--json")) == 2
    assert any(hit["session_id"] == session for hit in ask("search", "parser", "--json")["hits"])
    (schedule,) = ask("schedule", "list", "--json")
    assert (schedule["text"], schedule["value"]) == ("Read notes.md", "0 9 * * 1")
    assert ask("settings", "--json")["settings"]["idle_timeout"] == 7200
    (agent,) = ask("agent", "list", "--json")["agents"]
    assert agent["name"] == "helper-one" and not agent.get("error")
    assert len(ask("context", "history", "helper-one", "--json")) == 2
    assert "reviewer" in {preset["name"] for preset in ask("presets", "--json")}
    assert ask("config", "show", "--json")["settings"]["backend.local.model"]["value"] == "qwen3"

    assert "Shown again: 1 turn" in ask("unrewind", session)
    before = ask("export", session)
    assert "``` tool (Read" in before and "def parse" in before
    assert "notes.md" in ask("send", session, "Read notes.md")
    assert ask("export", session).count("### Read notes.md") == before.count("### Read notes.md") + 1
    assert not [*home.glob("sessions/state-*.db")]  # the database was opened, and not begun anew


@pytest.mark.parametrize(
    ("daemon", "client", "advice"),
    [
        ("0.1.0", "0.1.7", None),
        ("0.1.0", "", None),  # a program that says nothing of itself
        ("test", "0.1.0", None),
        ("0.1.9", "0.2.0", "pyagentd stop"),
        ("0.9.0", "0.10.0", "pyagentd stop"),
        ("1.0.0", "0.9.3", "Upgrade the client"),
    ],
)
def test_versions_work_together_within_one_minor_version(daemon: str, client: str, advice: str | None) -> None:
    """Else the older one is to be upgraded, whichever that is."""
    if advice is None:
        check_versions(daemon, client)
        return
    with pytest.raises(WireError, match=f"daemon is version {daemon}, the client {client}") as caught:
        check_versions(daemon, client)
    assert advice in caught.value.hint


def emacs_environment(tmp_path: Path) -> Path:
    """An environment as Emacs makes it."""
    here = tmp_path / "server" / "0.1.0"
    here.mkdir(parents=True)
    (here / "complete.eld").write_text('(:version "0.1.0")')
    (tmp_path / "server" / "0.0.8").mkdir()
    return here


def test_upgrade_makes_a_new_environment_beside_that_of_emacs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of before is kept, older ones go; the new one counts when it has run."""
    here = emacs_environment(tmp_path)
    ran = list[tuple[str, ...]]()

    def run(*command: str) -> None:
        ran.append(command)
        if "venv" in command:
            Path(command[-1], "lib/python3.13/site-packages/pyagentd-0.1.5.dist-info").mkdir(parents=True)

    monkeypatch.setattr(sys, "prefix", str(here))
    monkeypatch.setattr(upgrading, "_run", run)
    said = CliRunner().invoke(upgrading.upgrade)
    assert said.exit_code == 0 and "installed 0.1.5" in said.output
    (new,) = (path for path in here.parent.iterdir() if path != here)
    extras = [name for name in upgrading.EXTRAS if upgrading.is_installed(name)]
    listed = " ".join(f'"{name}"' for name in extras)
    assert (new / "complete.eld").read_text() == f'(:version "0.1.5" :extras ({listed}))'
    wanted = f"pyagentd[{','.join(['daemon', *extras])}]~={__version__}"
    assert any(wanted in command for command in ran) and "--version" in ran[-1]


def test_an_upgrade_that_fails_leaves_what_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real commands: a file that is not there cannot be installed."""
    here = emacs_environment(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(here))
    said = CliRunner().invoke(upgrading.upgrade, [str(tmp_path / "gone.whl")])
    assert isinstance(said.exception, PyagentdError) and "still used" in str(said.exception.hint)
    assert sorted(path.name for path in here.parent.iterdir()) == ["0.0.8", "0.1.0"]


@pytest.mark.parametrize(
    ("file", "command"),
    [("uv-receipt.toml", "uv tool upgrade"), ("pipx_metadata.json", "pipx upgrade"), ("x", "git")],
)
def test_upgrade_elsewhere_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, command: str
) -> None:
    """It changes nothing of what others manage."""
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert command in CliRunner().invoke(upgrading.upgrade).output


def test_every_released_version_has_a_fixture() -> None:
    """Made once by scripts/fixture.sh; a tag without its fixture would open nowhere in tests."""
    root = Path(__file__).resolve().parents[2]
    tags = subprocess.run(["git", "-C", root, "tag", "--list", "v*"], capture_output=True, text=True, check=False)
    missing = {tag.removeprefix("v") for tag in tags.stdout.split()} - {
        p.name.removesuffix(".tar.gz") for p in FIXTURES
    }
    assert FIXTURES and not missing
