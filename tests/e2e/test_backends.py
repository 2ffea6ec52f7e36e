"""Where answers come from: keys and addresses, from the environment, auth-source and the configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyagentd.api.inspection import catalogue
from pyagentd.store.trace import read_trace
from tests.e2e.conftest import ROOT, System
from tests.e2e.emacs import wait_for
from tests.e2e.test_conversation import converse, open_session, send
from tests.e2e.test_history import IDLE, shows
from tests.server import ModelServer, Request, answer, refusal, text, thinking, tool_use
from tests.server.answers import Scripted

_MANUAL = ROOT / "docs" / "manual" / "pyagentd.org"
_SHIPPED = sorted(file.stem for file in (ROOT / "presets").glob("*.md"))
_LONGEST = 4_000  # tokens of the longest answer of that model


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


def test_the_phase_of_an_answer_goes_back_with_it(system: System, model_server: ModelServer) -> None:
    Path(system.env["PYAGENTD_CONFIG"]).write_text(
        f'[backend.local]\nkind = "openai"\nbase_url = "{model_server.url}/v1"\nmodel = "gpt-5.4"\n'
    )
    system.env |= {"PYAGENTD_BACKEND": "local", "OPENAI_API_KEY": "sk-test"}
    session, _ = system.new()
    model_server.say(answer(text("I look."), tool_use("Glob", pattern="*")), "It is empty.", "Yes.")
    system.ok("send", session, "Look")
    system.ok("stop")  # the next request is made of what the log has
    system.ok("send", session, "Sure?")
    phases = [item["phase"] for item in model_server.last.messages if item.get("role") == "assistant"]
    assert phases == ["commentary", "final_answer"]


def test_a_backend_nobody_configured_is_named(system: System) -> None:
    system.env["PYAGENTD_BACKEND"] = "nowhere"
    session, branch = system.new()
    done = system.run("send", session, "hello")
    assert done.returncode == 1 and "nowhere" in done.stderr and "offline" in done.stderr
    assert (branch / "session.md").read_text() == ""


# -- "Another model" of the manual: a server that has one model, and whatever is shipped --------------------------


def only(said: Callable[[Request], Scripted]) -> Callable[[Request], Scripted]:
    """A server that refuses every model but one, and answers longer than that one can give."""

    def rule(request: Request) -> Scripted:
        if request.body["model"] != "qwen3":
            return refusal(404, "not_found_error", f"model: {request.body['model']}")
        if request.body["max_tokens"] > _LONGEST:
            return refusal(400, "invalid_request_error", f"max_tokens: {request.body['max_tokens']} > {_LONGEST}")
        return said(request)

    return rule


def system_of(request: Request) -> str:
    return str(request.body.get("system") or request.messages[0])


def said(request: Request) -> Scripted:
    """Answer as the system prompt wants it: a value, a title, or words."""
    return answer('```clojure\n(return "seven")\n```' if "clojure" in system_of(request) else "Seven")


def by_the_manual(system: System, server: ModelServer, *, default: bool = True) -> None:
    section = _MANUAL.read_text().partition("** Another model")[2].partition("\n** ")[0]
    text = section.partition("#+begin_src toml\n")[2].partition("#+end_src")[0]
    text = text if default else text.partition("[default]")[0]
    assert "11434" in text
    text += f'\n[model."qwen3"]\ncontext_window = 32_000\nmax_output = {_LONGEST}\n'
    Path(system.env["PYAGENTD_CONFIG"]).write_text(re.sub(r"http://127\.0\.0\.1:11434", server.url, text))
    system.env["PYAGENTD_BACKEND"] = "" if default else "local"
    system.env["PYAGENTD_TITLES"] = "on"
    server.rule, server.models = only(said), ("qwen3",)


def settled(server: ModelServer) -> None:
    """Nothing was refused: neither an answer nor what nobody waits for, such as a title."""
    assert {(each.body["model"], each.body["max_tokens"] <= _LONGEST) for each in server.requests} == {
        ("qwen3", True)
    }


@pytest.mark.parametrize("default", [True, False], ids=["default", "environment"])
def test_every_shipped_preset_works_with_a_local_model(
    system: System, model_server: ModelServer, default: bool
) -> None:
    by_the_manual(system, model_server, default=default)
    for preset in _SHIPPED:
        session, branch = system.new(preset, preset=preset)
        assert "even" in system.ok("send", session, "how many?"), preset
        assert ("backend: local" in (branch / "preset.md").read_text()) == default
    settled(model_server)


@pytest.mark.parametrize("default", [True, False], ids=["default", "environment"])
def test_agents_missions_and_named_agents_are_served_by_the_local_model(
    system: System, model_server: ModelServer, default: bool
) -> None:
    by_the_manual(system, model_server, default=default)
    session, _ = system.new()
    spawn = tool_use("PersistentAgent", preset="explorer", description="count", prompt="Count.")
    model_server.say(answer(spawn))
    system.ok("send", session, "how many?", "--allow", "tool:.*")
    assert len(model_server.requests) == 3  # the call, the agent's answer, the end
    assert json.loads(system.ok("mission", "How many?", "--json"))["value"] == "seven"
    model_server.wait_until(lambda: any("title" in system_of(each) for each in model_server.requests))
    system.ok("agent", "init", "mara")
    assert "Seven" in system.ok("send", "mara", "how many?")
    for line in (system.ok("send", session, "/model"), system.ok("send", session, "/status")):
        assert "qwen3" in line and "claude" not in line
    settled(model_server)


def test_an_agent_of_a_session_with_a_local_model_has_it_too(system: System, model_server: ModelServer) -> None:
    by_the_manual(system, model_server, default=False)
    system.env |= {"PYAGENTD_BACKEND": "", "PYAGENTD_TITLES": "off"}
    session, branch = system.new()
    preset = (branch / "preset.md").read_text()
    preset = re.sub("backend: .*", "backend: local", re.sub("model: .*", "model: qwen3", preset))
    (branch / "preset.md").write_text(preset)
    spawn = tool_use("PersistentAgent", preset="explorer", description="count", prompt="Count.")
    model_server.say(answer(spawn))
    system.ok("send", session, "how many?", "--allow", "tool:.*")
    assert len(model_server.requests) == 3
    settled(model_server)


def test_a_model_of_a_message_is_checked_as_that_of_a_session(system: System, model_server: ModelServer) -> None:
    by_the_manual(system, model_server, default=False)
    model_server.models = ("qwen3", "qwen3-small")
    session, branch = system.new()
    for refused in (("send", session, "hi", "--model", "qwen4"), ("send", session, "/model qwen4", "--command")):
        done = system.run(*refused)
        assert done.returncode == 1 and "qwen4" in done.stderr and "qwen3-small" in done.stderr
    assert not model_server.requests
    model_server.rule = lambda request: answer(str(request.body["model"]))
    assert system.ok("send", session, "hi", "--model", "qwen3-small").strip() == "qwen3-small"
    assert "qwen3-small" in system.ok("send", session, "/status")
    system.ok("send", session, "/model qwen3-small", "--command")
    assert "backend: local" in (branch / "preset.md").read_text()


def test_settings_are_chosen_in_the_menu_for_the_session_and_for_one_message(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    _, main = system.new("settings")
    emacs = system.emacs(terminal=True)
    open_session(emacs, main)

    def sent() -> dict[str, Any]:
        body = model_server.last.body
        names = sorted(tool["name"] for tool in body.get("tools", ()))
        return {
            "temperature": body.get("temperature"),
            "max_tokens": body["max_tokens"],
            "thinking": body.get("thinking", {}).get("type"),
            "tools": names,
            "own": "Be odd." in str(body["system"]),
        }

    model_server.say("One.", "Two.", "Three.")
    emacs.keys("C-c", "C-t")
    shows(emacs, "Model and tools", "Set for this session", "Temperature", "Maximum tokens default", "Thinking off")
    emacs.keys("-", "c")
    shows(emacs, "Maximum tokens of this session")
    emacs.keys("9", "0", "0", "Enter")
    shows(emacs, "Maximum tokens 900")
    emacs.keys("-", "=")
    shows(emacs, "Set for next message")
    emacs.keys("-", "t")
    shows(emacs, "Temperature of the next message")
    emacs.keys("0", ".", "2", "Enter")
    shows(emacs, "Temperature 0.2 (next)")
    emacs.keys("-", "T")
    shows(emacs, "Switch tool")
    emacs.keys("Bash", "Enter")
    emacs.keys("Enter")
    emacs.wait("(plist-get pyagentd-settings-next :tools)")
    shows(emacs, "[next: tools, temperature]")
    emacs.eval('(progn (with-current-buffer (window-buffer) (pyagentd-model--next :system "Be odd.")) t)')
    send(emacs, "Hi")
    emacs.wait(IDLE)
    first = sent()
    assert (first["temperature"], first["max_tokens"], first["own"]) == (0.2, 900, True)
    assert "Bash" not in first["tools"] and "Read" in first["tools"]
    emacs.wait("(null pyagentd-settings-next)")
    send(emacs, "And now?")
    emacs.wait(IDLE)
    second = sent()
    assert second["max_tokens"] == 900 and second["temperature"] != 0.2 and not second["own"]
    assert "Bash" in second["tools"] and second["thinking"] is None
    emacs.keys("C-c", "C-t")
    shows(emacs, "Set for this session")
    emacs.keys("-", "e")
    shows(emacs, "Thinking effort")
    emacs.keys("low", "Enter")
    shows(emacs, "Thinking low")
    emacs.keys("-", "s")
    shows(emacs, "system prompt of")
    emacs.eval('(progn (with-current-buffer (window-buffer) (erase-buffer) (insert "Be odd.")) t)')
    emacs.keys("C-c", "C-c")
    wait_for(lambda: (main / "preset.md").read_text().endswith("---\nBe odd.\n"), "the system prompt in preset.md")
    emacs.wait("pyagentd-mode")
    emacs.keys("C-c", "C-t")
    shows(emacs, "Model and tools")
    emacs.keys("q")
    wait_for(lambda: "Model and tools" not in emacs.screen(), "the menu to close")
    send(emacs, "Again")
    emacs.wait(IDLE)
    assert (sent()["thinking"], sent()["own"]) == ("enabled", True)


def test_a_server_of_chat_completions_answers_the_command_line_and_emacs(
    system: System, model_server: ModelServer
) -> None:
    Path(system.env["PYAGENTD_CONFIG"]).write_text(
        f'[backend.DeepSeek]\nkind = "openai-compatible"\nbase_url = "{model_server.url}/v1"\n'
        'key_env = "DEEPSEEK_API_KEY"\nmodel = "chat"\n[default]\nbackend = "DeepSeek"\n'
    )
    system.env |= {"PYAGENTD_BACKEND": "", "DEEPSEEK_API_KEY": "sk-deep-000000", "ANTHROPIC_API_KEY": "sk-other"}
    (system.project / "README.md").write_text("A fine project.\n")
    session, branch = system.new()
    model_server.say(
        answer(thinking("Look."), tool_use("Read", file_path=str(system.project / "README.md"))), "Fine."
    )
    assert system.ok("send", session, "what is it?").strip().endswith("Fine.")
    call, result = model_server.last.messages[-2:]
    assert call["reasoning_content"] == "Look." and "A fine project." in result["content"]
    emacs = system.emacs()
    open_session(emacs, branch)
    converse(emacs, "hello")
    assert {each.path for each in model_server.requests} == {"/v1/chat/completions"}
    assert {each.headers["authorization"] for each in model_server.requests} == {"Bearer sk-deep-000000"}
    assert "sk-other" not in str([each.headers for each in model_server.requests])
    system.ok("schedule", "add", session, "again", "--in", "90d")
    assert "sk-deep-000000" not in everything_on_disk(system)
    (step, *_) = read_trace(branch)
    assert "Read" in [each["name"] for each in catalogue(step)["tools"]]
    assert catalogue(step)["system"] == step.body["messages"][0]["content"] != ""


def test_a_conversation_goes_on_with_another_provider(system: System, model_server: ModelServer) -> None:
    Path(system.env["PYAGENTD_CONFIG"]).write_text(
        f'[backend.chat]\nkind = "openai-compatible"\nbase_url = "{model_server.url}/v1"\nmodel = "m"\n'
        f'[backend.messages]\nkind = "anthropic"\nbase_url = "{model_server.url}"\nmodel = "m"\n'
        f'[backend.responses]\nkind = "openai"\nbase_url = "{model_server.url}/v1"\nmodel = "m"\n'
    )
    (system.project / "README.md").write_text("A fine project.\n")
    session, branch = system.new()
    read = tool_use("Read", file_path=str(system.project / "README.md"))
    # Each ordered pair of them is in this row.
    for backend in ("chat", "messages", "responses", "chat", "responses", "messages", "chat"):
        system.env["PYAGENTD_BACKEND"] = backend
        before = (branch / "messages.jsonl").read_bytes()
        model_server.say(answer(thinking(f"thought of {backend}"), text("Let me see."), read), f"Said {backend}.")
        system.ok("send", session, "what is it?")
        assert model_server.last.path == f"/v1/{backend}".replace("chat", "chat/completions")
        assert (branch / "messages.jsonl").read_bytes().startswith(before)
        sent = str(model_server.last.messages)
        assert sent.count("A fine project.") == sum("Said" in str(each) for each in model_server.last.messages) + 1
        others = {"chat", "messages", "responses"} - {backend}
        assert f"thought of {backend}" in sent and not any(f"thought of {other}" in sent for other in others)
    assert {step.key for step in read_trace(branch)} == {"messages", "input"}
    assert all(catalogue(step)["system"] for step in read_trace(branch))


def test_a_small_model_of_this_machine_works_with_calls_that_it_writes_as_text(
    system: System, model_server: ModelServer
) -> None:
    Path(system.env["PYAGENTD_CONFIG"]).write_text(
        f'[backend.ollama]\nkind = "ollama"\nbase_url = "{model_server.url}/v1"\nmodel = "gemma:2b"\n'
        '[default]\nbackend = "ollama"\n'
    )
    system.env["PYAGENTD_BACKEND"] = ""
    session, branch = system.new("small", preset="small")
    new = system.project / "new.txt"
    arguments = json.dumps({"file_path": str(new), "content": "one\n"})
    written = f'I write.\n<tool_call>\n{{"name": "Write", "arguments": {arguments}}}\n</tool_call>'
    model_server.say(answer(text(written, chunks=9)), "Done.")
    told = system.ok("send", session, "write it", "--allow", "tool:Write:.*")
    assert "Done." in told and "<tool_call>" not in told and new.read_text() == "one\n"
    offered = [each["function"]["name"] for each in model_server.last.body["tools"]]
    assert offered == ["Read", "Grep", "Edit", "Write", "Bash", "TaskOutput", "KillTask"]  # the last two are Bash's
    assert model_server.last.messages[-1]["role"] == "tool"
    assert "<tool_call>" not in (branch / "session.md").read_text()
    # A model whose server takes no tools is told of them in words, and goes on with the same conversation.
    refused = "registry.ollama.ai/library/gemma:2b does not support tools"
    arguments = json.dumps({"file_path": str(new)})
    model_server.say(
        refusal(400, "api_error", refused),
        f'<tool_call>\n{{"name": "Read", "arguments": {arguments}}}\n</tool_call>',
        "It says one.",
    )
    assert "It says one." in system.ok("send", session, "and read it")
    assert "tools" not in model_server.last.body and "one" in model_server.last.messages[-1]["content"]


def test_a_region_is_rewritten_from_emacs_without_a_session(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    model_server.say("  (bar)")
    emacs = system.emacs()
    emacs.eval(
        '(with-current-buffer (get-buffer-create "code") (insert "before\\n  (foo)\\n")'
        ' (switch-to-buffer "code") (pyagentd-rewrite 8 15 "call bar") t)'
    )
    emacs.wait('(and (get-buffer "*rewrite: code*") t)')
    shown = emacs.eval('(with-current-buffer "*rewrite: code*" (buffer-substring-no-properties 1 (point-max)))')
    assert "-  (foo)" in shown and "+  (bar)" in shown
    emacs.eval('(with-current-buffer "*rewrite: code*" (pyagentd-rewrite--accept) t)')
    assert (
        emacs.eval('(with-current-buffer "code" (buffer-substring-no-properties 1 (point-max)))')
        == "before\n  (bar)\n"
    )
    assert "call bar" in str(model_server.last.messages) and not list(system.sessions.glob("*/branches"))
