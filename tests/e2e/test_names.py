"""The names of the specifications, called in Emacs with the specified arguments against a real daemon."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pyagentd.wire.sexp import plist_to_dict
from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, EmacsError
from tests.e2e.test_conversation import converse
from tests.server import ModelServer, answer, text, tool_use


def names(system: System) -> Emacs:
    """Start an Emacs with these names."""
    emacs = system.emacs(load=("pyagentd", "pyagentd-jf"))
    emacs.eval("(setq pyagentd-start-timeout 60)")  # the machine may be busy
    return emacs


def plist(emacs: Emacs, form: str) -> dict[str, Any] | None:
    value = emacs.eval(form)
    return None if value is None else plist_to_dict(value)


def wait_for_message(emacs: Emacs, text: str) -> None:
    emacs.wait(f'(with-current-buffer "*Messages*" (goto-char 1) (search-forward {quoted(text)} nil t))')


def quoted(path: Path | str) -> str:
    return json.dumps(str(path))


@pytest.mark.spec("001", "Standalone session creation")
def test_a_session_made_by_name_is_complete_and_open(system: System) -> None:
    emacs = names(system)
    emacs.eval('(progn (jf/gptel-persistent-session "API Integration") t)')
    file = Path(emacs.eval("buffer-file-name"))
    assert re.fullmatch(r"api-integration-\d{14}", file.parents[2].name)
    assert file.parents[3] == system.sessions
    assert file.read_text() == ""
    assert (file.parents[2] / "current").readlink() == Path("branches/main")
    assert f'session_id: "{file.parents[2].name}"' in (file.parent / "scope-plan.yml").read_text()
    shipped = Path(__file__).resolve().parents[2] / "presets" / "programming-assistant.md"
    assert (file.parent / "preset.md").read_text().endswith(shipped.read_text().partition("\n---\n")[2])
    assert emacs.eval("(list pyagentd-mode jf/gptel-autosave-enabled)") == [True, True]
    assert emacs.eval("jf/gptel--session-id") == file.parents[2].name


@pytest.mark.spec("001", "Activities-integrated session creation")
def test_a_session_of_an_activity_lives_where_the_caller_says(system: System) -> None:
    emacs = names(system)
    activity = system.home / "emacs-activities" / "tidy-2026-02-05"
    place, tree = activity / "session", activity / "worktrees"
    tree.mkdir(parents=True)
    emacs.eval(
        f'(progn (jf/gptel-session-create-persistent "tidy-20260205143052" {quoted(place)} nil'
        f" (list {quoted(tree)}) {quoted(activity / 'tidy.org')}) t)"
    )
    branch = place / "branches" / "main"
    assert emacs.eval("buffer-file-name") == str(branch / "session.md")
    assert emacs.eval("pyagentd-mode")
    emacs.wait('(equal jf/gptel--session-id "tidy-20260205143052")')
    plan = (branch / "scope-plan.yml").read_text()
    assert 'session_id: "tidy-20260205143052"' in plan and f'activity_org_file: "{activity}/tidy.org"' in plan
    assert f"{tree}/**" in (branch / "preset.md").read_text()
    assert [s["session_id"] for s in system.json("sessions")] == ["tidy-20260205143052"]
    system.ok("stop")
    assert [s["session_id"] for s in system.json("sessions")] == ["tidy-20260205143052"]
    assert Path(system.json("branches", "tidy")[0]["file"]) == branch / "session.md"


@pytest.mark.spec("001", "Reading session metadata")
def test_session_metadata_is_a_plist_or_nil(system: System) -> None:
    session, branch = system.new()
    system.ok("stop")
    emacs = names(system)
    read = plist(emacs, f"(jf/gptel--read-session-metadata {quoted(branch)})")
    assert read is not None and (read["session_id"], read["preset"]) == (session, "programming-assistant")
    assert read["created"] == read["updated"] and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", read["created"])
    (branch / "scope-plan.yml").write_text("session_id: [")
    assert plist(emacs, f"(jf/gptel--read-session-metadata {quoted(branch)})") is None
    assert plist(emacs, f"(jf/gptel--read-session-metadata {quoted(system.home)})") is None


@pytest.mark.spec("001", "Logging metadata parsing errors")
def test_emacs_logs_metadata_that_cannot_be_parsed(system: System) -> None:
    _, branch = system.new()
    (branch / "scope-plan.yml").write_text("a: b: c\n")
    emacs = names(system)
    emacs.eval(f"(jf/gptel--read-session-metadata {quoted(branch)})")
    wanted = f"pyagentd error: Failed to parse scope-plan.yml in {branch}: "
    wait_for_message(emacs, wanted)


@pytest.mark.spec("001", "Reading preset configuration")
def test_preset_metadata_is_a_plist_or_nil(system: System) -> None:
    _, branch = system.new(preset="explorer")
    emacs = names(system)
    read = plist(emacs, f"(jf/gptel--read-preset-metadata {quoted(branch)})")
    assert read is not None and read["backend"] == "Claude" and isinstance(read["model"], str)
    (branch / "preset.md").unlink()
    assert plist(emacs, f"(jf/gptel--read-preset-metadata {quoted(branch)})") is None


@pytest.mark.spec("000", "Session metadata read from scope-plan.yml")
@pytest.mark.spec("001", "Type checking for agent sessions")
def test_an_agent_is_told_from_a_session(system: System) -> None:
    session, branch = system.new()
    system.ok("send", session, "Have an explorer agent look at the files.", "--allow", "tool:PersistentAgent:.*")
    (agent,) = (branch / "agents").iterdir()
    emacs = names(system)
    assert emacs.eval(f"(jf/gptel--is-agent-session-p {quoted(agent)})") is True
    assert emacs.eval(f"(jf/gptel--is-agent-session-p {quoted(branch)})") is None
    read = plist(emacs, f"(jf/gptel--read-session-metadata {quoted(agent)})")
    assert read is not None
    assert (read["parent_session_id"], read["type"], read["preset"]) == (session, "agent", "explorer")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", read["created"])


@pytest.mark.spec("001", "Comprehensive branch discovery with agents")
def test_every_session_branch_and_agent_is_discovered(system: System) -> None:
    session, branch = system.new()
    system.ok("send", session, "Have an explorer agent look at the files.", "--allow", "tool:PersistentAgent:.*")
    emacs = names(system)
    directory = branch.parents[1]
    assert emacs.eval("(jf/gptel--list-session-directories)") == [str(directory)]
    assert emacs.eval(f"(jf/gptel--list-branches {quoted(directory)})") == ["main"]
    (found,) = (plist_to_dict(each) for each in emacs.eval("(jf/gptel--find-all-branches-with-agents)"))
    assert found["agent_dirs"] == [str(next((branch / "agents").iterdir()))]
    assert (found["session_id"], found["branch_name"]) == (session, "main")
    assert (found["session_dir"], found["branch_dir"]) == (str(directory), str(branch))


@pytest.mark.spec("001", "Logging session creation")
def test_making_a_session_is_logged_and_written_to_its_own_log(system: System) -> None:
    emacs = names(system)
    emacs.eval('(progn (setq jf/gptel-log-to-file t) (jf/gptel-persistent-session "Log me") t)')
    directory = Path(emacs.eval("jf/gptel--session-dir"))
    wanted = f"Created session directory: {directory}"
    wait_for_message(emacs, f"pyagentd info: {wanted}")
    line = next(line for line in (directory / "session.log").read_text().splitlines() if line.endswith(wanted))
    assert re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \[GPTEL-INFO\]", line)


def test_a_branch_made_by_name_is_opened_with_the_text_up_to_its_prompt(system: System) -> None:
    _, branch = system.new()
    emacs = names(system)
    emacs.eval(f'(progn (find-file "{branch}/session.md") (goto-char (point-max)) t)')
    converse(emacs, "First question")
    converse(emacs, "Second question")
    file = Path(emacs.eval('(buffer-file-name (jf/gptel-branch-session "Other Way" 1))'))
    assert emacs.eval("buffer-file-name") == str(file)
    assert "First question" in file.read_text() and "Second question" not in file.read_text()
    assert re.fullmatch(r"\d{14}-Other Way", file.parent.name)
    assert emacs.eval("jf/gptel--branch-name") == file.parent.name
    assert emacs.eval("(jf/gptel--context-file-path jf/gptel--branch-dir)") == str(file)
    assert (file.parents[2] / "current").resolve() == file.parent
    read = plist(emacs, f"(jf/gptel--read-branch-metadata {quoted(file.parent)})")
    assert read is not None and read["parent_branch"] == "main"


def test_metadata_is_read_without_a_daemon_as_with_one(system: System) -> None:
    session, branch = system.new()
    other, presets = branch / "agents" / "other", Path(__file__).resolve().parents[2] / "presets"
    emacs = names(system)
    other.mkdir(parents=True)
    for preset in sorted(presets.glob("*.md")):
        (other / "preset.md").write_bytes(preset.read_bytes())
        call = f"(list :directory {quoted(other)})"
        assert emacs.eval(
            f"(and (equal (pyagentd-rpc-call 'load-preset {call}) (jf/gptel--load-preset-from-file {quoted(other)}))"
            f" (equal (pyagentd-rpc-call 'preset-metadata {call}) (jf/gptel--read-preset-metadata {quoted(other)})))"
        ), preset.name
    call = f"(list :directory {quoted(branch)})"
    read = f"(jf/gptel--read-session-metadata {quoted(branch)})"
    assert emacs.eval(f"(equal (pyagentd-rpc-call 'session-metadata {call}) {read})")
    system.ok("stop")
    emacs.wait("(not (pyagentd-rpc-connected-p))")
    emacs.eval('(setq pyagentd-command (list "false"))')
    read = plist(emacs, f"(jf/gptel--read-session-metadata {quoted(branch)})")
    assert read is not None and read["session_id"] == session
    assert emacs.eval("pyagentd-start--process") is None, "no daemon was started for that"


@pytest.mark.spec("000", "Agent directory created via filesystem module")
@pytest.mark.spec("000", "Preset template copied via filesystem helper")
def test_an_agents_directory_and_its_preset_are_made_by_name(system: System) -> None:
    _, branch = system.new()
    emacs = names(system)
    made = Path(emacs.eval(f'(jf/gptel--create-agent-directory {quoted(branch)} "explorer" "Find module!")'))
    assert re.fullmatch(r"explorer-\d{14}-find-module", made.name)
    assert made.parent == branch / "agents" and list(made.iterdir()) == []
    copied = emacs.eval(f'(jf/gptel--copy-preset-template "explorer" {quoted(made)})')
    shipped = Path(__file__).resolve().parents[2] / "presets" / "explorer.md"
    assert Path(copied) == made / "preset.md"
    assert (made / "preset.md").read_bytes() == shipped.read_bytes()


@pytest.mark.spec("000", "Agent inherits parent allowed paths")
@pytest.mark.spec("000", "Preset.md updated with path controls")
def test_what_a_parent_may_read_is_given_to_an_agent_by_name(system: System) -> None:
    _, branch = system.new()
    emacs = names(system)
    agent = Path(emacs.eval(f'(jf/gptel--create-agent-directory {quoted(branch)} "explorer" "look")'))
    emacs.eval(f'(jf/gptel--copy-preset-template "explorer" {quoted(agent)})')
    before = (agent / "preset.md").read_text()
    config = plist(emacs, f"(jf/gptel-scope--parse-preset-config {quoted(branch / 'preset.md')})")
    assert config is not None and f"{system.project}/**" in config["paths"]["read"]
    emacs.eval(
        f"(jf/gptel-scope--update-preset-paths {quoted(agent / 'preset.md')}"
        f" (plist-get (plist-get (jf/gptel-scope--parse-preset-config {quoted(branch)}) :paths) :read)"
        ' ["**/secret"])'
    )
    given = plist(emacs, f"(jf/gptel-scope--parse-preset-config {quoted(agent)})")
    assert given is not None
    assert given["paths"]["read"] == config["paths"]["read"]
    denied = {"**/secret", "**/.git/**", "**/runtime/**", "**/.env", "**/node_modules/**"}
    assert denied <= set(given["paths"]["deny"])
    assert (agent / "preset.md").read_text().partition("\n---\n")[2] == before.partition("\n---\n")[2]


@pytest.mark.spec("000", "Preset loaded via metadata module")
def test_a_preset_is_loaded_and_applied_by_name(system: System) -> None:
    _, branch = system.new(preset="explorer")
    emacs = names(system)
    emacs.eval(f'(progn (find-file "{branch}/session.md") t)')
    emacs.wait("(eq pyagentd-attach-state t)")
    read = plist(emacs, f"(jf/gptel--load-preset-from-file {quoted(branch)})")
    assert read is not None and read["backend"] == "Claude" and read["tools"]
    assert read["system"] in (branch / "preset.md").read_text()
    emacs.eval("(progn (setq-local gptel-model (quote other)) (jf/gptel--apply-session-preset) t)")
    assert emacs.eval('(format "%s" gptel-model)') == read["model"]
    assert emacs.eval("gptel--tool-names") == read["tools"]
    (branch / "preset.md").unlink()
    assert emacs.eval(f"(jf/gptel--load-preset-from-file {quoted(branch)})") is None
    with pytest.raises(EmacsError, match=f"Failed to load preset from {branch}"):
        emacs.eval("(jf/gptel--apply-session-preset)")


@pytest.mark.spec("000", "Parent callback receives string result")
@pytest.mark.spec("000", "Overlay created at marker position")
def test_an_agent_spawned_from_lisp_works_is_shown_and_answers_once(
    system: System, model_server: ModelServer
) -> None:
    system.use_server(model_server.url)
    _, branch = system.new()
    model_server.say(
        answer("I look.", tool_use("Read", file_path="a.txt")), answer(text("It is so.", chunks=6), pause_s=0.2)
    )
    emacs = names(system)
    emacs.eval(f'(progn (find-file "{branch}/session.md") t)')
    emacs.wait("(eq pyagentd-attach-state t)")
    agent = Path(
        emacs.eval(
            "(progn (setq results nil) (jf/gptel-persistent-agent--task (lambda (result) (push result results))"
            ' "explorer" "analyze patterns" "Look at it." ["/**"] ["**/secret"]))'
        )
    )
    assert agent.parent == branch / "agents" and emacs.eval("results") is None
    shown = "(overlay-get (car (seq-filter (lambda (o) (overlay-get o (quote gptel-persistent-agent)))"
    shown += " (overlays-in (point-min) (1+ (point-max))))) (quote after-string))"
    emacs.wait(f"(ignore-errors {shown})")
    assert "Explorer Task: analyze patterns" in emacs.eval(f"(substring-no-properties {shown})")
    emacs.wait("results")
    assert emacs.eval("results") == ["I look.\n\nIt is so."]
    emacs.wait("(null pyagentd-overlay--table)")
    assert (agent / "session.md").read_text().startswith("Look at it.\n\nI look.")
    assert 'type: "agent"' in (agent / "scope-plan.yml").read_text()
    assert "It is so." not in emacs.eval("(buffer-string)")


@pytest.mark.spec("000", "Parent session requirement enforced")
@pytest.mark.spec("000", "Parent validation failure prevents creation")
def test_an_agent_needs_a_session_to_spawn_it(system: System) -> None:
    _, branch = system.new()
    emacs = names(system)
    call = '(jf/gptel-persistent-agent--task (lambda (_) (setq called t)) {} "find it" "Find it.")'
    with pytest.raises(EmacsError, match="PersistentAgent requires parent persistent session"):
        emacs.eval(f"(with-temp-buffer {call.format(quoted('explorer'))})")
    emacs.eval(f'(progn (find-file "{branch}/session.md") t)')
    with pytest.raises(EmacsError, match="nobody"):
        emacs.eval(call.format(quoted("nobody")))
    assert not (branch / "agents").exists()
    assert emacs.eval("(boundp 'called)") is None


@pytest.mark.spec("000", "Session resumable via find-file")
def test_a_finished_agent_is_visited_and_goes_on(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    (system.project / "a.txt").write_text("alpha\n")
    _, branch = system.new()
    model_server.say(answer("I look.", tool_use("Read", id="toolu_a", file_path="a.txt")), "It is so.", "More.")
    emacs = names(system)
    emacs.eval(f'(progn (find-file "{branch}/session.md") t)')
    emacs.eval(
        "(progn (setq results nil) (jf/gptel-persistent-agent--task (lambda (result) (push result results))"
        ' "explorer" "look" "Look at it." ["/**"]) t)'
    )
    emacs.wait("results")
    emacs.close()
    system.ok("stop")
    again = names(system)
    (agent,) = (branch / "agents").iterdir()
    again.eval(f'(progn (find-file "{agent}/session.md") t)')
    assert again.eval("(list pyagentd-mode jf/gptel--branch-name)") == [True, "main"]
    assert again.eval("jf/gptel--session-id") == agent.name
    converse(again, "And else?")
    assert "### And else?\n\nMore." in again.eval("(buffer-substring-no-properties (point-min) (point-max))")
    told = model_server.last.messages
    assert [message["role"] for message in told] == ["user", "assistant", "user", "assistant", "user"]
    assert told[2]["content"][0]["tool_use_id"] == "toolu_a"
