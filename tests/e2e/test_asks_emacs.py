"""What a person is asked and how they answer: a real Emacs on a terminal, its screen read."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.e2e.conftest import System
from tests.e2e.emacs import Emacs, wait_for
from tests.e2e.test_sessions_screen import command, show_list, visit
from tests.e2e.test_terminal import rules_around, shows, type_text
from tests.server import ModelServer, answer, tool_use
from tests.server.answers import Block, Scripted
from tests.server.http import Request

SIZE = (130, 48)
LEFT = "(seq-remove (lambda (o) (or (overlay-get o 'pyagentd-fold) (overlay-get o 'pyagentd-prompt)"
LEFT += " (eq o pyagentd-session--guard))) (overlays-in (point-min) (point-max)))"


def plays(server: ModelServer, scripts: Mapping[str, Sequence[Scripted]]) -> None:
    """Have every conversation answered from the script whose key is in its first message."""

    def reply(request: Request) -> Scripted:
        first = json.dumps(request.messages[0]["content"], ensure_ascii=False)
        script = next(script for key, script in scripts.items() if key in first)
        turn: int = sum(message["role"] == "assistant" for message in request.messages)
        return script[min(turn, len(script) - 1)]

    server.rule = reply


def delegate(name: str, task: str, *, preset: str = "executor") -> Block:
    return tool_use("PersistentAgent", id=f"toolu_{name}", preset=preset, description=name, prompt=task)


@pytest.fixture
def branch(system: System, model_server: ModelServer) -> Path:
    """Return the branch directory of a session in a project whose model is the server."""
    system.use_server(model_server.url)
    (system.project / "greet.py").write_text('print("hello")\n')
    return system.new("tea time")[1]


def opened(system: System, branch: Path) -> Emacs:
    emacs = system.emacs(terminal=True, size=SIZE)
    visit(emacs, branch / "session.md")
    return emacs


def send(emacs: Emacs, prompt: str) -> None:
    emacs.keys("M->")
    type_text(emacs, prompt)
    shows(emacs, prompt)
    emacs.keys("C-c", "Enter")


def gone(emacs: Emacs, *parts: str) -> str:
    """Wait until the screen shows none of ``parts``, and return it."""

    def screen() -> str:
        seen = emacs.screen()
        return "" if any(part in seen for part in parts) else seen

    try:
        return str(wait_for(screen, f"{parts} to be gone"))
    except AssertionError as error:
        error.add_note(emacs.screen())
        raise


def test_two_asks_are_shown_and_answered_in_any_order(
    system: System, model_server: ModelServer, branch: Path
) -> None:
    plays(
        model_server,
        {
            "Do both": [
                answer("I delegate.", delegate("first", "Task one"), delegate("second", "Task two")),
                answer("Done."),
            ],
            "Task one": [answer("One is done.")],
            "Task two": [answer("Two is done.")],
        },
    )
    emacs = opened(system, branch)
    send(emacs, "Do both.")
    shows(emacs, "Allow PersistentAgent", "1 of 2", "also", "2 asks: PersistentAgent", ". next")
    assert rules_around(emacs, "Allow")
    emacs.keys("C-c", "C-c", ".")
    # Which of the two is asked first is open.
    found = wait_for(lambda: re.search(r"executor: (first|second)\?   2 of 2", emacs.screen()), "the second of two")
    last, other = ("first", "second") if found[1] == "first" else ("second", "first")
    shows(emacs, f"Allow PersistentAgent executor: {last}", f"also  PersistentAgent executor: {other}")
    emacs.keys("C-c", "C-c", "r")
    shows(emacs, "Reason for denying (sent to the model)")
    type_text(emacs, "one is enough")
    emacs.keys("Enter")
    shows(emacs, "1 ask: PersistentAgent", f"Allow PersistentAgent executor: {other}")
    emacs.keys("C-c", "C-c", "y")
    shows(emacs, "Ready", "Done.")
    gone(emacs, "Allow", "Task:")
    assert "one is enough" in json.dumps(model_server.last.messages)
    assert len(list((branch / "agents").iterdir())) == 1


def test_an_agents_ask_is_shown_at_the_root_and_in_its_own_buffer(
    system: System, model_server: ModelServer, branch: Path
) -> None:
    plays(
        model_server,
        {
            "Have it run": [answer("I delegate.", delegate("run it", "Run something")), answer("Fine.")],
            "Run something": [answer(tool_use("Bash", command="echo one && echo two")), answer("It ran.")],
        },
    )
    emacs = opened(system, branch)
    send(emacs, "Have it run.")
    shows(emacs, "Allow PersistentAgent")
    emacs.keys("C-c", "C-c", "y")
    shows(emacs, "executor (run-it) › Allow", "Bash echo one && echo two", "1 ask: executor", "Executor Task: run it")
    shows(emacs, "k abort this agent")
    (agent,) = (branch / "agents").iterdir()
    emacs.keys("C-x", "C-f")
    shows(emacs, "Find file:")
    emacs.keys("C-a", "C-k")
    type_text(emacs, f"{agent}/session.md")
    emacs.keys("Enter")
    shows(emacs, "Allow", "Bash echo one && echo two", "Run something")
    emacs.keys("C-c", "C-c", "y")
    shows(emacs, "It ran.")
    gone(emacs, "Allow")
    emacs.wait(
        f'(with-current-buffer (pyagentd-place-buffer "{branch}") (eq (plist-get pyagentd-status :state) \'idle))'
    )
    assert emacs.eval(f'(with-current-buffer (pyagentd-place-buffer "{branch}") {LEFT})') is None


def test_an_ask_outlives_emacs(system: System, model_server: ModelServer, branch: Path) -> None:
    plays(model_server, {"Run": [answer(tool_use("Bash", command="echo tea > /dev/null")), answer("It ran.")]})
    first = opened(system, branch)
    send(first, "Run it.")
    shows(first, "Allow Bash echo tea")
    first.kill()
    second = opened(system, branch)
    shows(second, "Allow Bash echo tea", "1 ask: Bash")
    second.keys("C-c", "C-c", "n")
    shows(second, "It ran.", "Ready")
    gone(second, "Allow")


def test_a_change_is_shown_as_a_diff_and_edited(system: System, model_server: ModelServer, branch: Path) -> None:
    change = tool_use("Edit", file_path="greet.py", old_string='print("hello")', new_string='print("Hello, world")')
    plays(
        model_server, {"Greet": [answer(tool_use("Read", file_path="greet.py")), answer(change), answer("Changed.")]}
    )
    emacs = opened(system, branch)
    send(emacs, "Greet better.")
    shows(emacs, "Allow Edit", '-print("hello")', '+print("Hello, world")', "d diff")
    emacs.keys("C-c", "C-c", "d")
    shows(emacs, "*pyagentd diff*", "y once")
    emacs.keys("q")
    command(emacs, "pyagentd-ask--ediff")
    shows(emacs, "*greet.py now*", "*greet.py then*", "*Ediff Control Panel*")
    emacs.keys("q")
    shows(emacs, "Quit this Ediff session?")
    emacs.keys("y")
    gone(emacs, "greet.py then", "Ediff Control Panel")
    emacs.keys("C-c", "C-c", "e")
    shows(emacs, "*edit:", "Edit: new_string", "C-c C-c")
    emacs.keys("M-<", "M-d")
    type_text(emacs, "log")
    shows(emacs, 'log("Hello, world")')
    emacs.keys("C-c", "C-c")
    shows(emacs, "Changed.", "Ready")
    gone(emacs, "Allow", "*edit:")
    assert (system.project / "greet.py").read_text() == 'log("Hello, world")\n'


def test_what_is_allowed_for_the_session_is_listed_and_revoked(
    system: System, model_server: ModelServer, branch: Path
) -> None:
    ls = tool_use("Bash", command="git status")
    plays(
        model_server,
        {"Look": [answer(ls), answer("First."), answer(tool_use("Bash", command="git status")), answer("Second.")]},
    )
    emacs = opened(system, branch)
    send(emacs, "Look.")
    shows(emacs, "Allow Bash git status?", "s this session")
    emacs.keys("C-c", "C-c", "o")
    seen = shows(emacs, "exactly this would be remembered", "kept in")
    emacs.keys("q")
    (remembered,) = [line.strip() for line in seen.splitlines() if line.strip().startswith("tool:Bash:")]
    emacs.keys("C-c", "C-c", "s")
    shows(emacs, "From now on, in this session and its agents, this is allowed", "Bash `git status`", "y allows that")
    emacs.keys("y")
    shows(emacs, "First.", "Ready")
    send(emacs, "Again.")
    seen = shows(emacs, "Second.", "Ready")
    assert "Allow" not in seen
    show_list(emacs, "grants")
    seen = shows(emacs, "*pyagentd grants*", "session", "r revoke")
    assert remembered in seen
    emacs.keys("r")
    shows(emacs, "Revoke ", "(y or n)")
    emacs.keys("y")
    shows(emacs, "No grants.")


def test_decisions_are_listed(system: System, model_server: ModelServer, branch: Path) -> None:
    plays(
        model_server,
        {
            "Read": [
                answer(tool_use("Read", file_path="greet.py"), tool_use("Read", file_path="/etc/shadow")),
                answer("Ok."),
            ]
        },
    )
    emacs = opened(system, branch)
    send(emacs, "Read them.")
    shows(emacs, "Ok.", "Ready")
    show_list(emacs, "audit")
    seen = shows(emacs, "*pyagentd audit*", "/etc/shadow", "allowed", "denied")
    assert "greet.py" in seen
    emacs.keys("C-s")
    type_text(emacs, "shadow")
    emacs.keys("Enter", "Enter")
    shows(emacs, "*pyagentd decision*", "Reason", "Rule")


def test_agents_are_listed_and_one_is_stopped(system: System, model_server: ModelServer, branch: Path) -> None:
    plays(
        model_server,
        {
            "Have it run": [answer("I delegate.", delegate("run it", "Run something")), answer("Then not.")],
            "Run something": [answer(tool_use("Bash", command="echo one")), answer("It ran.")],
        },
    )
    emacs = opened(system, branch)
    send(emacs, "Have it run.")
    shows(emacs, "Allow PersistentAgent")
    emacs.keys("C-c", "C-c", "y")
    shows(emacs, "executor (run-it) › Allow")
    command(emacs, "pyagentd-agents")
    shows(emacs, "*pyagentd agents*", "executor  run it", "waiting", "k stop")
    emacs.keys("M-<", "k")
    shows(emacs, "aborted")
    gone(emacs, "Allow", "Executor Task")
    shows(emacs, "Then not.", "Ready")


def test_more_scope_is_asked_for_and_added(system: System, model_server: ModelServer, branch: Path) -> None:
    other = system.home / "other"
    other.mkdir()
    (other / "notes.txt").write_text("a note\n")
    ask = tool_use(
        "request_scope_expansion",
        tool_name="Read",
        patterns=[f"{other}/**", f"{other}/x/*.log"],
        justification="The notes say why.",
    )
    plays(
        model_server,
        {"Read": [answer(ask), answer(tool_use("Read", file_path=f"{other}/notes.txt")), answer("A note it is.")]},
    )
    emacs = opened(system, branch)
    send(emacs, "Read the notes.")
    shows(emacs, "Allow more scope:", f"Read  {other}/**", f"{other}/x/*.log", "The notes say why.")
    shows(emacs, "add to the scope")
    emacs.keys("C-c", "C-c", "p")
    shows(emacs, "y allows that", f"Read {other}/**")
    emacs.keys("y")
    shows(emacs, "A note it is.", "Ready")
    assert f"{other}/**" in (branch / "preset.md").read_text()


def test_an_ask_outlives_the_daemon(system: System, model_server: ModelServer, branch: Path) -> None:
    plays(model_server, {"Run": [answer(tool_use("Bash", command="echo tea > /dev/null")), answer("It ran.")]})
    emacs = opened(system, branch)
    send(emacs, "Run it.")
    shows(emacs, "Allow Bash echo tea")
    os.kill(system.daemon_pid(), signal.SIGKILL)
    gone(emacs, "Allow", "1 ask")
    system.ok("sessions")  # starts another daemon; Emacs finds it by itself
    shows(emacs, "Allow Bash echo tea", "1 ask: Bash")
    emacs.keys("C-c", "C-c", "y")  # says with which key the run goes on
    shows(emacs, "It ran.", "Ready")
    gone(emacs, "Allow")


def test_a_background_agent_is_in_the_header_until_it_ends(
    system: System, model_server: ModelServer, branch: Path
) -> None:
    call = tool_use(
        "PersistentAgent", preset="executor", description="run it", prompt="Run something", background=True
    )
    plays(
        model_server,
        {
            "Have it run": [answer("I delegate.", call), answer("Meanwhile."), answer("I see.")],
            "Run something": [answer(tool_use("Bash", command="echo one")), answer("It ran.")],
        },
    )
    emacs = opened(system, branch)
    send(emacs, "Have it run.")
    shows(emacs, "Allow PersistentAgent")
    emacs.keys("C-c", "C-c", "y")
    seen = shows(emacs, "Meanwhile.", "Ready", "background: executor", "executor (run-it) › Allow")
    assert "Executor Task" not in seen
    emacs.keys("C-c", "C-c", "y")
    shows(emacs, "I see.", "Ready")
    gone(emacs, "background:", "Allow")


def test_presets_of_a_project_are_read_before_they_are_trusted(
    system: System, model_server: ModelServer, branch: Path
) -> None:
    folder = system.project / ".pyagentd" / "presets"
    folder.mkdir(parents=True)
    head = "name: theirs\ndescription: Does it all\nbackend: Claude\nmodel: claude-opus-4-5\ntools: [Bash]\n"
    (folder / "theirs.md").write_text(f"---\n{head}---\nObey the file.\n")
    emacs = opened(system, branch)
    show_list(emacs, "presets")
    shows(emacs, "tools: [Bash]", "Obey the file.", "T trust what is shown")
    emacs.keys("T")
    shows(emacs, "Allow agents to be made from theirs?")
    emacs.keys("y")
    shows(emacs, "needs to be trusted")
    gone(emacs, "Obey the file.")
    assert "theirs" in system.ok("presets", "--root", str(system.project))


@pytest.fixture
def helpers(system: System, model_server: ModelServer) -> Path:
    """Return a session like ``branch``, whose model makes three levels of agents, two of which ask at once."""
    presets = system.home / "presets"
    presets.mkdir()
    head = "name: helper\ndescription: Helps\nmode: all\nbackend: Claude\nmodel: m\ntools: [PersistentAgent, Bash]\n"
    # Not all of the place for temporary files: every file of it would be looked at before each command.
    rights = f'paths:\n  read: ["/**"]\n  write: ["{system.project}/**"]\nshell_commands:\n  allow: ["*"]\n'
    (presets / "helper.md").write_text(f"---\n{head}{rights}---\nHelp.\n")
    (system.home / "config.toml").write_text(f'[presets]\ndir = "{presets}"\n')
    system.use_server(model_server.url)
    plays(
        model_server,
        {
            "Root": [
                answer(
                    "I delegate.",
                    delegate("second", "Task two", preset="helper"),
                    delegate("middle", "Task of the middle", preset="helper"),
                ),
                answer("All is done."),
            ],
            "Task two": [answer(tool_use("Bash", command="echo two > two.txt")), answer("Two.")],
            "Task of the middle": [answer(delegate("third", "Task three", preset="helper")), answer("Middle.")],
            "Task three": [answer(tool_use("Bash", command="echo three > three.txt")), answer("Three.")],
        },
    )
    return system.new("tea time", preset="helper")[1]


def both_ask(system: System, branch: Path) -> Emacs:
    """Return an Emacs that shows at the root what the agents of two levels ask."""
    emacs = opened(system, branch)
    send(emacs, "Root")
    shows(emacs, "Allow PersistentAgent helper", "2 asks")
    emacs.keys("C-c", "C-c", "s")
    shows(emacs, "y allows that")
    emacs.keys("y")  # covers the other, and the agent's own
    shows(emacs, "2 asks: helper", "> two.txt", "> three.txt")
    return emacs


def test_two_levels_ask_at_the_root_and_outlive_emacs_and_daemon(system: System, helpers: Path) -> None:
    emacs = both_ask(system, helpers)
    if "helper (second) › Allow" in emacs.screen():
        emacs.keys("C-c", "C-c", ".")
    shows(emacs, "helper (third) › Allow", "also  helper (second)")
    emacs.keys("C-c", "C-c", "y")
    shows(emacs, "1 ask: helper", "helper (second) › Allow")
    wait_for((system.project / "three.txt").exists, "the command of the third to run")
    emacs.kill()
    os.kill(system.daemon_pid(), signal.SIGKILL)
    system.ok("sessions")
    emacs = opened(system, helpers)
    shows(emacs, "helper (second) › Allow", "1 ask: helper", "Helper Task: second")
    emacs.keys("C-c", "C-c", "y")
    done = shows(emacs, "Ready", "All is done.")
    assert (system.project / "two.txt").read_text() == "two\n"
    assert "Allow" not in done and "Helper Task" not in done


def test_abort_at_the_root_leaves_nothing(system: System, helpers: Path) -> None:
    emacs = both_ask(system, helpers)
    emacs.keys("C-u", "C-c", "C-k")
    gone(emacs, "Allow", "Helper Task", "2 asks")
    shows(emacs, "Ready")
    assert emacs.eval(LEFT) is None
    assert system.json("asks") == []
    command(emacs, "pyagentd-agents")
    seen = shows(emacs, "*pyagentd agents*", "helper  middle")
    assert len(re.findall(r"helper  (?:second|middle|third) +aborted", seen)) == 3


def test_what_the_command_line_answers_disappears_in_emacs(
    system: System, model_server: ModelServer, branch: Path
) -> None:
    plays(model_server, {"Run": [answer(tool_use("Bash", command="echo tea")), answer("Then not.")]})
    emacs = opened(system, branch)
    send(emacs, "Run it.")
    shows(emacs, "Allow Bash echo tea")
    (ask,) = system.json("asks")
    system.ok("answer", ask["id"], "deny", "--reason", "coffee only")
    shows(emacs, "Denied by", "Then not.", "Ready")
    gone(emacs, "Allow", "1 ask")
    assert "coffee only" in json.dumps(model_server.last.messages)
