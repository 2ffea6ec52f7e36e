"""Exit codes and the one line an error is."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from pyagentd import __version__
from pyagentd.cli import main, mission
from pyagentd.cli.output import ExitCode, exit_code
from pyagentd.errors import Busy, ProviderError, Unreachable, WireError
from pyagentd.wire.client import DaemonClient
from pyagentd.wire.lifecycle import Instance


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon, no configuration, no sessions."""
    monkeypatch.setenv("PYAGENTD_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("PYAGENTD_SESSIONS_DIR", str(tmp_path / "sessions"))
    monkeypatch.setenv("PYAGENTD_CONFIG", str(tmp_path / "config.toml"))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Busy("a run is in flight"), ExitCode.FAILED),
        (ProviderError("refused"), ExitCode.FAILED),
        (OSError(13, "denied", "/x"), ExitCode.FAILED),
        (Unreachable("nobody"), ExitCode.UNREACHABLE),
        (WireError("lost"), ExitCode.UNREACHABLE),
    ],
)
def test_an_exit_code_says_who_failed(error: Exception, code: ExitCode) -> None:
    assert exit_code(error) == code


def test_a_mission_that_was_over_before_it_is_followed_is_traced_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    turn = {"number": 1, "state": "done", "said": "", "program": "(+ 1 2)", "calls": [], "result": "3"}

    class Link:
        def call(self, operation: str, **arguments: object) -> dict[str, Any]:
            return {
                "attach": {"branch": "/s", "seq": 9, "status": {"state": "idle"}},
                "replay": {"events": [], "seq": 9, "done": True},
                "mission-trace": {"json": json.dumps({"missions": [{"run": "run_1", "turns": [turn]}]})},
            }[operation]

    begun = {"branch": "/s", "run": "run_1", "session_id": "s"}  # it went on already, so no row is named
    ending, _ = mission._follow_run(cast(DaemonClient, Link()), begun, human=False, trace=True)
    assert ending.reason == "done" and capsys.readouterr().err.count("(+ 1 2)") == 1


# Options of a mission that are for one over items only, for one in a session, for its beginning.
_OVER = (
    ["--model", "x"], ["--output", "x"], ["--executor", "threads"], ["--ordered"], ["--max-cost", "1"],
    ["--item-cost", "1"], ["--concurrency", "2"],
)  # fmt: skip
_SESSION = (
    ["--context", "x"], ["--preset", "x"], ["--trace"], ["--no-wait"], ["--allow", "x"], ["--headless"], ["--strict"],
    ["--root", "."],
)  # fmt: skip
_NEW = (
    ["--signature", ":int"], ["--tools", ""], ["--context", "x"], ["--preset", "x"], ["--max-turns", "2"],
    ["--parallel", "2"], ["--root", "."],
)  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["sned", "x", "y"],
        ["send", "x"],
        ["send", "x", "y", "--allow", "("],
        ["send", "x", "  "],
        *(["send", "x", "y", "--timeout", number] for number in ("-1", "nan", "inf", "1e999")),
        ["mission", "x", "--over", "x.jsonl", "--max-cost", "nan"],
        ["serve", "--tcp", "99999"],
        ["new", "x", "--root", "/no/such/directory"],
        ["messages", "/no/such/file"],
        ["messages", __file__, "--end", "0"],
        ["completion", "tcsh"],
        ["status", "x", "--metrics"],
        ["agent", "config", "x", "--reset"],
        ["agent", "config", "x", "permissions", "open", "--reset"],
        ["mcp", "add-json", "x", "[" * 100_000],
        *(["mission", "x", *option] for option in _OVER),
        *(["mission", "x", "--over", "x.jsonl", *option] for option in _SESSION),
        *(["mission", "--resume", "x", *option] for option in _NEW),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pyagentd: ")
    assert err.count("\n") == 1


def test_malformed_data_of_a_mission_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.json"
    data.write_text('{"x": 1,\n "y": }\n')
    assert main(["mission", "{{x}}", "--context", str(data)]) == ExitCode.FAILED
    assert capsys.readouterr().err == f"pyagentd: {data}:2: Expecting value. Correct the JSON there\n"


@pytest.mark.parametrize("words", [["--context"], ["--model", "x", "--over"]])
def test_a_home_of_nobody_is_a_file_that_is_not_there(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mission", "x", *words, "~nobody-here/x.json"]) == ExitCode.FAILED
    assert capsys.readouterr().err == "pyagentd: ~nobody-here/x.json: No such file or directory\n"


@pytest.mark.parametrize("words", [["status"], ["stop"], ["abort", "x"]])
def test_without_a_daemon_these_exit_with_3_and_start_none(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(words) == ExitCode.UNREACHABLE
    said = capsys.readouterr().err
    assert "No daemon is running" in said
    assert ("pyagentd serve --detach" in said) == (words != ["stop"])  # who stops one does not want it started
    assert not (tmp_path / "run").exists()


def test_beside_the_files_of_a_daemon_that_is_dead_stop_says_only_that_none_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYAGENTD_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    with Instance(tmp_path, tmp_path / "sessions") as left:
        left.bind_unix().close()
        left.publish(version="1")
        assert main(["stop"]) == ExitCode.UNREACHABLE
    said = capsys.readouterr().err
    assert said.startswith("pyagentd: No daemon is running: the last one (pid ") and "serve" not in said


@pytest.mark.parametrize(
    ("ssh", "code", "said"),
    [("/no/ssh", ExitCode.UNREACHABLE, "no program /no/ssh"), ('"', ExitCode.USAGE, "PYAGENTD_SSH is '\"'")],
)
def test_a_host_without_a_way_to_it_is_told(
    ssh: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYAGENTD_SSH", ssh)
    assert main(["--host", "elsewhere", "status"]) == code
    assert said in capsys.readouterr().err


def test_with_json_an_error_is_an_object_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json"]) == ExitCode.UNREACHABLE
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["error"]["code"] == "unreachable"


def test_with_json_even_an_unparsable_command_line_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["send", "x", "y", "--json", "--nope"]) == ExitCode.USAGE
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "usage"


def test_a_word_in_place_of_a_number_is_called_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "x", "--timeout", "abc"]) == ExitCode.USAGE
    assert "'abc' is not a valid number" in capsys.readouterr().err


def test_a_malformed_configuration_is_reported_by_file_and_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text('[log]\nlevel = "loud"\n')
    assert main(["sessions"]) == ExitCode.FAILED
    assert f"pyagentd: {tmp_path}/config.toml:2: `log.level` is 'loud'" in capsys.readouterr().err


def test_a_file_that_is_no_utf8_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "latin.md"
    file.write_bytes(b"caf\xe9")
    assert main(["messages", str(file)]) == ExitCode.FAILED
    assert f"{file} is not UTF-8: byte 3 is 0xe9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lisp"], "undefined variable: \ufffd"),
        (["mission", "x", "--context", "-"], "- is not text in UTF-8: byte 0 is 0xff"),
        (["mission", "x", "--over", "-", "--model", "x"], "- is not text in UTF-8: byte 0 is 0xff"),
        (["signature", "check", "--jsonl"], "usage"),
    ],
)
def test_bytes_on_stdin_that_are_no_utf8_are_an_error_in_a_line(words: list[str], said: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    command = [sys.executable, "-m", "pyagentd", *words, "--json"]
    run = subprocess.run(command, input=b"\xff", capture_output=True, env=env)
    assert run.returncode != 0 and said in json.dumps(json.loads(run.stderr), ensure_ascii=False)


def test_a_character_that_the_terminal_does_not_have_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[default]\nmodel = "modèle"\n')
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "pyagentd", "config", "show"]
    run = subprocess.run(command, capture_output=True, text=True, env=env)
    assert run.returncode == 0 and "mod\\xe8le" in run.stdout


def test_a_reader_that_closes_early_is_no_error() -> None:
    command = f"{sys.executable} -m pyagentd --help | head -c 1; echo ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert run.stdout == "U0\n"


def test_ctrl_c_while_it_is_loaded_ends_without_a_traceback() -> None:
    script = """
import sys

class Pressed:
    def find_spec(name, *_):
        if name == "pyagentd.cli.app":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Pressed)
import pyagentd.cli
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (ExitCode.INTERRUPTED, "")


def test_version_is_printed_without_loading_what_is_slow() -> None:
    script = "import sys; from pyagentd.cli import main; main(['--version']); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    version, modules = run.stdout.splitlines()
    assert version == f"pyagentd {__version__}"
    assert not {"rich", "anthropic", "asyncio", "ruamel", "frontmatter", "socket"} & set(modules.split())


def test_the_package_runs_as_a_module() -> None:
    run = subprocess.run([sys.executable, "-m", "pyagentd", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"pyagentd {__version__}\n"


@pytest.mark.parametrize("words", [["stop"], ["status"]])
def test_a_broken_configuration_is_in_nobodys_way_to_the_daemon(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text("[log]\nlevel = \n")
    assert main(words) == ExitCode.UNREACHABLE  # none runs
    assert "config.toml" not in capsys.readouterr().err
