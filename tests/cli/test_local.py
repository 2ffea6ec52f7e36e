"""Commands that need no daemon: config, completion, logs, messages, doctor."""

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pyagentd import __version__
from pyagentd.cli import app, completion, main
from pyagentd.cli import doctor as checks
from pyagentd.cli.link import complete_session, run_environment
from pyagentd.cli.output import ExitCode
from pyagentd.config import config_file, load_config
from pyagentd.errors import NoKey
from pyagentd.wire.frames import PROTOCOL
from tests.server import ModelServer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of its own, with the offline backend."""
    monkeypatch.setenv("PYAGENTD_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("PYAGENTD_SESSIONS_DIR", str(tmp_path / "sessions"))
    monkeypatch.setenv("PYAGENTD_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("PYAGENTD_BACKEND", "offline")
    return tmp_path


def test_config_show_says_where_each_value_comes_from(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text('[log]\nlevel = "debug"\n')
    assert main(["config", "show", "--json"]) == ExitCode.DONE
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["log.level"] == {"value": "debug", "source": f"{home}/config.toml:2"}
    assert settings["backend"] == {"value": "offline", "source": "environment PYAGENTD_BACKEND"}
    assert settings["backend.anthropic.key_env"]["source"] == "default"


def test_config_show_into_a_pipe_is_one_value_a_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == ExitCode.DONE
    assert "log.level\tinfo\tdefault\n" in capsys.readouterr().out


def test_config_show_never_prints_a_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-do-not-print")
    main(["config", "show"])
    main(["config", "show", "--json"])
    main(["doctor", "--json"])
    assert "do-not-print" not in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_asks_pyagentd(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == ExitCode.DONE
    assert f"_PYAGENTD_COMPLETE={shell}_complete" in capsys.readouterr().out


def completed(*words: str) -> set[str]:
    """Return what bash is told to put in the place of the last word."""
    env = {"_PYAGENTD_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    run = subprocess.run([sys.executable, "-m", "pyagentd"], env=os.environ | env, capture_output=True, text=True)
    return {line.removeprefix("plain,") for line in run.stdout.splitlines() if line}


def conversation(place: Path, **files: str) -> None:
    branch = place / "branches" / "main"
    branch.mkdir(parents=True)
    (branch / "session.md").touch()
    (place / "current").symlink_to("branches/main")
    (branch / "scope-plan.yml").write_text("session_id: noon-20260101120000\n")
    for name, text in files.items():
        (place / name.replace("_", ".")).write_text(text)


def test_a_session_is_completed_from_the_disk_without_a_daemon(home: Path) -> None:
    conversation(home / "sessions" / "notes-20260101120000")
    conversation(home / "sessions" / "renamed")
    conversation(home / "sessions-agents" / "norbert", agent_json="{}")
    main = home / "sessions" / "notes-20260101120000" / "branches" / "main"
    (main / "session.md").rename(main / "messages.jsonl")  # the document is gone, the log is there
    (home / "sessions" / "nobody-20260101120000" / "branches").mkdir(parents=True)
    assert completed("pyagentd", "show", "no") == {"notes-20260101120000", "noon-20260101120000", "norbert"}
    assert "--json" in completed("pyagentd", "show", "--j")
    assert completed("pyagentd", "show", "--json", "not") == {"notes-20260101120000"}
    assert not (home / "run").exists()


def test_named_agents_are_completed_from_where_the_configuration_has_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.toml").write_text('[agents]\ndir = "mine"\n')
    conversation(home / "mine" / "norbert", agent_json="{}")
    assert completed("pyagentd", "send", "no") == {"norbert"}
    monkeypatch.delenv("PYAGENTD_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    assert config_file() != home / "config.toml"
    config_file().parent.mkdir(parents=True)
    config_file().write_text(f'[agents]\ndir = "{home}/mine"\n')
    assert completed("pyagentd", "send", "no") == {"norbert"}
    monkeypatch.setenv("PYAGENTD_CONFIG", str(home / "config.toml"))
    (home / "config.toml").write_text("[agents]\ndir = 7\n")
    assert completed("pyagentd", "send", "no") == set(), "what is wrong there is told by commands"


def test_every_command_whose_first_argument_is_a_session_completes_it_without_its_module() -> None:
    context = click.Context(app.cli)
    found = set()
    for name in app.cli.list_commands(context):
        command = app.cli.get_command(context, name)
        assert command is not None
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        if arguments and getattr(arguments[0], "_custom_shell_complete", None) is complete_session:
            found.add(name)
    assert found == completion.COMMANDS


def test_logs_prints_the_last_lines(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "run").mkdir()
    (home / "run" / "daemon.log").write_text("one\ntwo\nthree\n")
    (home / "config.toml").write_text("[log]\nlevel = 7\n")  # the log says what a daemon makes of that
    assert main(["logs", "-n", "2"]) == ExitCode.DONE
    assert capsys.readouterr().out == "two\nthree\n"


def test_more_lines_than_any_log_has_are_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "run").mkdir()
    (home / "run" / "daemon.log").write_text("one\n")
    assert main(["logs", "-n", "9" * 30]) == ExitCode.USAGE
    assert "--lines" in capsys.readouterr().err


def test_logs_without_a_log_says_where_it_would_be(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs"]) == ExitCode.FAILED
    assert f"There is no log at {home}/run/daemon.log" in capsys.readouterr().err


def test_logs_follow_goes_over_to_the_new_file_when_it_is_rotated(home: Path) -> None:
    (home / "run").mkdir()
    log = home / "run" / "daemon.log"
    log.write_text("old\n")
    command = [sys.executable, "-u", "-m", "pyagentd", "logs", "-n", "1", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "old\n"
        with log.open("a") as file:
            file.write("appended\n")
        assert process.stdout.readline() == "appended\n"
        log.rename(log.with_suffix(".log.1"))
        log.write_text("new\n")
        assert process.stdout.readline() == "new\n"
        process.terminate()


def test_messages_prints_what_gptel_would_send(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / "session.md"
    file.write_text("### What is 2+2?\n\n4\n\n### And 3+3?", encoding="utf-8")
    assert main(["messages", str(file)]) == ExitCode.DONE
    # Without bounds nothing is an answer, so gptel sends one user message.
    assert json.loads(capsys.readouterr().out) == [{"role": "user", "content": "What is 2+2?\n\n4\n\n### And 3+3?"}]


def test_messages_end_is_an_emacs_position(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / "session.md"
    file.write_text("### äb\n\nrest", encoding="utf-8")
    assert main(["messages", str(file), "--end", "7"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)[0]["content"] == "äb"


def test_doctor_lists_checks_with_the_line_that_fixes_each(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "run").mkdir(mode=0o755)
    (home / "run").chmod(0o755)
    assert main(["doctor", "--json"]) == ExitCode.FAILED
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found["runtime directory"]["level"] == "missing"
    assert found["runtime directory"]["hint"] == f"chmod 700 {home}/run"
    assert found["packages"]["level"] == "ok"
    assert found["daemon"]["detail"] == "not running (starts on demand)"
    assert found["backend"]["level"] == "ok"


def test_doctor_says_its_version_and_leaves_emacs_to_itself(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMACS", "emacs-that-is-not-there")
    main(["doctor", "--json", "--no-emacs"])
    said = json.loads(capsys.readouterr().out)
    assert (said["version"], said["protocol"]) == (__version__, PROTOCOL)
    assert not any(check["name"].startswith("emacs") for check in said["checks"])


def test_doctor_survives_a_malformed_configuration(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text("[log\n")
    assert main(["doctor"]) == ExitCode.FAILED
    assert f"✗ configuration: {home}/config.toml:1:" in capsys.readouterr().out


def test_doctor_names_an_absent_emacs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMACS", "emacs-that-is-not-there")
    (finding,) = checks.check_emacs()
    assert finding.level == "missing"
    assert finding.hint.startswith("sudo apt-get install -y emacs")


def test_doctor_asks_of_emacs_for_nothing_that_the_package_does_not_need(home: Path) -> None:
    found = {finding.name: finding.level for finding in checks.check_emacs()}
    assert found.pop("emacs") == "ok"
    assert set(found) == {"emacs markdown-mode"} and found["emacs markdown-mode"] in ("ok", "warning")


def test_doctor_names_a_broken_preset_by_file(home: Path) -> None:
    (home / "presets").mkdir()
    broken = home / "presets" / "mine.md"
    broken.write_text("---\ntools: {]\n---\nbody\n")
    findings = {finding.name: finding for finding in checks.check_presets(load_config())}
    assert findings["preset mine"].level == "missing"
    assert str(broken) in findings["preset mine"].detail


def test_doctor_names_what_is_misspelt_in_a_preset(home: Path) -> None:
    kept = home / "dotfiles.md"
    kept.write_text("---\nbackend: Claude\ntools: [Raed, Glob]\npath: {}\n---\nHi\n")
    (home / "presets").mkdir()
    file = home / "presets" / "mine.md"
    file.symlink_to(kept)
    found = [each for each in checks.check_presets(load_config()) if each.name == "preset mine"]
    assert [(each.level, each.detail) for each in found] == [
        ("warning", f"{file}:4: `path` is not a key; is `paths` meant?"),
        ("warning", f"{file}:3: there is no tool Raed; is `Read` meant?"),
    ]


def test_doctor_names_what_the_configuration_has_and_cannot_be_used(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "skills" / "half").mkdir(parents=True)
    (home / "skills" / "half" / "SKILL.md").write_text("no front matter\n")
    (home / "config.toml").write_text(
        f"""
[presets]
dir = "{home}/nothing"
[skills]
paths = ["{home}/nowhere"]
[[hooks.tool.before]]
command = ["/nope/x"]
[mcp.unset]
command = ["sh", "${{NOPE}}"]
[mcp.gone]
command = "/nope/y"
[mcp.good]
command = ["sh", "${{root}}", "${{NOPE:-otherwise}}"]
"""
    )
    main(["doctor", "--json", "--no-emacs"])
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["checks"] if each["level"] != "ok"}
    for name, words in {
        "presets": f"{home}/nothing is not a directory ({home}/config.toml:3)",
        "skills": f"{home}/nowhere is not a directory ({home}/config.toml:5)",
        "skill half": f"{home}/skills/half/SKILL.md",
        "hook tool.before": "/nope/x",
        "mcp unset": "needs the variable NOPE, which is not set",
        "mcp gone": "/nope/y not found",
    }.items():
        assert words in found[name]["detail"] and found[name]["hint"], name
    assert "mcp servers" not in found


@pytest.mark.parametrize(
    ("wanted", "answers", "level", "detail"),
    [
        ("auto", "bubblewrap", "ok", "see only the scope of their agent (bubblewrap)"),
        ("auto", "landlock", "warning", "Landlock"),
        ("auto", None, "warning", "not limited to the scope of their agent"),
        ("off", None, "warning", "Off by environment PYAGENTD_CONFINEMENT"),
        ("bubblewrap", None, "missing", "no command will run"),
    ],
)
def test_doctor_says_what_confines_commands(
    home: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, answers: str | None, level: str, detail: str
) -> None:
    monkeypatch.setenv("PYAGENTD_CONFINEMENT", wanted)
    monkeypatch.setattr("pyagentd.tools.sandbox.enclosure.confinement", lambda wanted: answers)
    finding = checks.check_confinement(load_config())
    assert finding.level == level
    assert detail in finding.detail


def test_doctor_warns_of_a_server_that_does_not_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setenv("PYAGENTD_BACKEND", "anthropic")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        key, server = checks.check_backend(load_config())
    assert (key.level, server.level) == ("ok", "warning")
    assert "is not reachable" in server.detail


@pytest.mark.parametrize("address", ["http://[::1", "http//localhost:1", "http://localhost:99999"])
def test_doctor_names_an_address_that_is_none(home: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", address)
    monkeypatch.setenv("PYAGENTD_BACKEND", "anthropic")
    *_, server = checks.check_backend(load_config())
    assert server.level == "missing" and f"{address!r} is not an HTTP address" in server.detail


@pytest.mark.parametrize("kind", ["bedrock", "vertex"])
def test_doctor_looks_for_the_packages_of_a_cloud_and_not_for_another_server(
    home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (home / "config.toml").write_text(f'[backend.mine]\nkind = "{kind}"\n\n[default]\nbackend = "mine"\n')
    monkeypatch.delenv("PYAGENTD_BACKEND")
    monkeypatch.setattr("pyagentd.cli.doctor.is_installed", lambda extra: False)
    lacks, *found = checks.check_backend(load_config())
    assert (lacks.level, lacks.hint) == ("missing", f"pyagentd install {kind}")
    monkeypatch.setattr("pyagentd.cli.doctor.is_installed", lambda extra: True)
    assert list(checks.check_backend(load_config())) == found
    assert {each.level for each in found} == {"ok"} and not any("anthropic.com" in each.detail for each in found)


def test_a_run_is_told_backend_address_and_path_and_nothing_else(home: Path) -> None:
    env = {"PATH": "/bin", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "SECRET": "s", "HOME": "/root"}
    told = run_environment(env, "Claude")
    assert told == {"PATH": "/bin", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("backend", "env", "sent"),
    [
        ("Claude", {}, {"ANTHROPIC_API_KEY": "for-anthropic"}),
        ("local", {}, {"LOCAL_KEY": "for-local"}),
        ("open", {}, {}),
        ("Claude", {"PYAGENTD_BACKEND": "open"}, {}),
        ("unknown", {}, {}),
    ],
)
def test_a_key_goes_only_to_the_backend_that_is_configured_to_use_it(
    home: Path, backend: str, env: dict[str, str], sent: dict[str, str]
) -> None:
    (home / "config.toml").write_text(
        '[backend.local]\nkind = "anthropic"\nbase_url = "http://127.0.0.1:1"\nkey_env = "LOCAL_KEY"\n'
        '[backend.open]\nkind = "anthropic"\nbase_url = "http://127.0.0.1:2"\n'
    )
    keys = {"ANTHROPIC_API_KEY": "for-anthropic", "LOCAL_KEY": "for-local"}
    told = run_environment({"PYAGENTD_CONFIG": str(home / "config.toml"), **keys, **env}, backend)
    assert {name: told[name] for name in keys if name in told} == sent


@pytest.mark.parametrize("name", ["chat.org", "chat.txt"])
def test_messages_of_an_org_file_have_their_roles(home: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file = home / name
    head = ":PROPERTIES:\n:GPTEL_MODEL: m\n:GPTEL_BOUNDS: ((response (80 88)))\n:END:\n*** Hi\n"
    file.write_text(f"{head}\n*Hello*.\n\n*** Bye\n")
    assert main(["messages", str(file)]) == ExitCode.DONE
    said = [(each["role"], each["content"]) for each in json.loads(capsys.readouterr().out)]
    assert said == [("user", "Hi"), ("assistant", "*Hello*."), ("user", "Bye")]


def test_a_server_of_this_machine_is_found_and_used_when_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, model_server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    model_server.models = ("nomic-embed-text", "qwen3", "llama3")
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{model_server.port}")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # is not for this machine
    assert main(["models", "--local"]) == ExitCode.DONE
    assert f"ollama at {model_server.url}/v1 has qwen3, llama3" in capsys.readouterr().out
    (home / "config.toml").write_text("# mine\n[log]\nlevel = 'info'\n")
    assert main(["models", "--local", "--use"]) == ExitCode.DONE
    config = load_config()
    assert config.log.level == "info" and config.default.backend == "ollama"
    known = config.backend("Ollama")
    assert (known.kind, known.base_url, known.model) == ("openai-compatible", f"{model_server.url}/v1", "qwen3")
    before = (home / "config.toml").read_text()
    assert main(["models", "--local", "--use"]) != ExitCode.DONE  # nothing of the user's is changed
    assert "Edit it by hand" in capsys.readouterr().err and (home / "config.toml").read_text() == before


def test_the_doctor_names_a_server_of_this_machine_where_the_key_is_missing(
    monkeypatch: pytest.MonkeyPatch, model_server: ModelServer
) -> None:
    model_server.models = ("qwen3",)
    monkeypatch.setenv("OLLAMA_HOST", model_server.url)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model_server.url)
    monkeypatch.delenv("PYAGENTD_BACKEND")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (found,) = [each for each in checks.check_backend(load_config()) if each.detail.startswith("ollama")]
    assert "qwen3" in found.detail and "pyagentd models --local --use" in found.hint
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    assert not [each for each in checks.check_backend(load_config()) if each.name == "local models"]


def test_a_missing_key_names_a_server_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, model_server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    model_server.models = ("qwen3",)
    monkeypatch.setenv("OLLAMA_HOST", model_server.url)

    def without_key(*_: object, **__: object) -> None:
        raise NoKey('No API key for backend "anthropic"')

    monkeypatch.setattr(app.cli, "main", without_key)
    assert main(["ask", "hi"]) == ExitCode.FAILED
    said = capsys.readouterr().err
    assert "No API key" in said and "has qwen3: `pyagentd models --local --use` has it answer" in said


@pytest.mark.parametrize("words", [("config", "show"), ("--help",), ("completion", "bash")])
def test_a_reader_that_has_enough_is_no_failure(words: tuple[str, ...]) -> None:
    done = _at_closed_pipe(*words)
    assert (done.returncode, done.stderr) == (ExitCode.DONE, "")


def _at_closed_pipe(*words: str) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return _separate(*words, stdout=writer)
    finally:
        os.close(writer)


def _separate(*words: str, stdout: int) -> subprocess.CompletedProcess[str]:
    """Run a process that buffers its output, as Python does."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "pyagentd", *words]
    return subprocess.run(command, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = _separate("config", "show", stdout=full.fileno())
    assert (done.returncode, done.stderr) == (ExitCode.FAILED, "pyagentd: No space left on device\n")


def test_closed_streams_are_as_good_as_empty_ones() -> None:
    command = f"exec {shlex.quote(sys.executable)} -m pyagentd config show <&- >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.DONE, "")
