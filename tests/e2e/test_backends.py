"""Where answers come from: keys and addresses, from the environment, auth-source and the configuration."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import System
from tests.e2e.test_conversation import converse, open_session
from tests.server import ModelServer


def everything_on_disk(system: System) -> str:
    files = [file for root in (system.sessions, system.runtime) for file in root.rglob("*") if file.is_file()]
    return "\n".join(file.read_text(errors="replace") for file in files)


def test_a_key_in_auth_source_reaches_the_server_and_no_file(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    del system.env["ANTHROPIC_API_KEY"]
    authinfo = Path(system.env["HOME"]) / ".authinfo"
    authinfo.write_text("machine api.anthropic.com login apikey password sk-from-auth-source-000\n")
    authinfo.chmod(0o600)
    _, branch = system.new()
    emacs = system.emacs()
    open_session(emacs, branch)
    converse(emacs, "hello")
    assert "sk-from-auth-source-000" in str(model_server.last.headers)
    assert "sk-from-auth-source-000" not in everything_on_disk(system)


def test_the_key_of_the_client_counts_not_the_one_the_daemon_was_started_with(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    session, _ = system.new()
    system.env["ANTHROPIC_API_KEY"] = "sk-second-key-0000000"
    system.ok("send", session, "hello")
    assert "sk-second-key-0000000" in str(model_server.last.headers)
    assert "test-key" not in str(model_server.last.headers)


def test_a_server_of_ones_own_is_named_in_the_configuration_and_gets_no_key(
    system: System, model_server: ModelServer
) -> None:
    Path(system.env["PYAGENTD_CONFIG"]).write_text(
        f'[backend.local]\nkind = "anthropic"\nbase_url = "{model_server.url}"\nmodel = "qwen3"\n'
    )
    system.env |= {"PYAGENTD_BACKEND": "local", "ANTHROPIC_API_KEY": "sk-for-somebody-else"}
    session, branch = system.new()
    preset = (branch / "preset.md").read_text()
    (branch / "preset.md").write_text("".join(line for line in preset.splitlines(True) if "model:" not in line))
    system.ok("send", session, "hello")
    assert model_server.last.body["model"] == "qwen3"
    assert "sk-for-somebody-else" not in str(model_server.last.headers)


def test_a_preset_that_names_the_backend_uses_it(system: System, model_server: ModelServer) -> None:
    Path(system.env["PYAGENTD_CONFIG"]).write_text(
        f'[backend.local]\nkind = "anthropic"\nbase_url = "{model_server.url}"\n'
    )
    del system.env["PYAGENTD_BACKEND"]
    session, branch = system.new()
    preset = (branch / "preset.md").read_text()
    (branch / "preset.md").write_text(preset.replace("backend: Claude", "backend: local"))
    system.ok("send", session, "hello")
    assert len(model_server.requests) == 1
    assert '<!-- gptel--backend-name: "local" -->' in (branch / "session.md").read_text()


def test_a_backend_nobody_configured_is_named(system: System) -> None:
    system.env["PYAGENTD_BACKEND"] = "nowhere"
    session, branch = system.new()
    done = system.run("send", session, "hello")
    assert done.returncode == 1 and "nowhere" in done.stderr and "offline" in done.stderr
    assert (branch / "session.md").read_text() == ""
