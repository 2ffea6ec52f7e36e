"""Plan, approve, build: a real daemon, the command line, and an Emacs on a terminal."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import System
from tests.e2e.test_conversation import open_session, send
from tests.e2e.test_history import IDLE, shows
from tests.server import ModelServer, answer, tool_use

APPROVING = 'When a user clicks "approve and auto mode" on a plan, does that fire a trigger or a user message?'


def tools(server: ModelServer) -> set[str]:
    """What the model was offered last."""
    return {each["name"] for each in server.last.body["tools"]}


@pytest.mark.spec("002", APPROVING)
def test_a_plan_is_made_and_approved_with_a_key_that_is_confirmed(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    session, main = system.new("plan")
    (system.project / "AGENTS.md").write_text("Tabs only.")
    made = system.project / "made.txt"
    emacs = system.emacs(terminal=True)
    open_session(emacs, main)
    emacs.eval('(progn (pyagentd-choose-agent "plan") t)')
    shows(emacs, "→ plan]")
    model_server.say(answer(tool_use("Write", file_path=str(made), content="x")), "The plan: write made.txt.")
    send(emacs, "Plan it.")
    emacs.wait(IDLE)
    shows(emacs, "[plan]", "The plan: write made.txt.")
    assert not made.exists() and not {"Write", "Edit", "Bash"} & tools(model_server)
    system_text = "".join(block["text"] for block in model_server.last.body["system"])
    assert "Tabs only." in system_text and "- write-a-skill:" in system_text
    model_server.say("Done.")
    emacs.keys("C-c", "C-c")
    shows(emacs, "Approve the plan")
    emacs.keys("y")
    shows(emacs, "### Approved, continue.", "Done.", "[build]")
    emacs.wait(IDLE)
    assert {"Write", "Edit", "Bash"} <= tools(model_server)
    emacs.eval("(progn (save-buffer) t)")
    rows = [each["message"] for each in system.json("show", session)["messages"]]
    assert [row["metadata_json"].get("agent") for row in rows] == ["plan", "plan", "build", "build"]
    assert "trigger" not in rows[2]["metadata_json"]


@pytest.mark.spec("002", 'How do I design a "plan mode"?')
def test_plan_and_approval_on_the_command_line(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    session, main = system.new("plan")
    made = system.project / "made.txt"
    model_server.say(
        answer(tool_use("Bash", command=f"touch {made}")),
        "The plan.",
        answer(tool_use("Write", file_path=str(made), content="x")),
        "Done.",
    )
    system.ok("send", session, "Plan it.", "--agent", "plan", "--allow", ".*", "--headless")
    assert not made.exists() and "output-error" in (main / "messages.jsonl").read_text()
    system.ok("approve", session, "--allow", ".*", "--headless")
    assert made.read_text() == "x"
    assert "not in plan mode" in system.run("approve", session).stderr
    assert "There are: build" in system.run("send", session, "x", "--agent", "nobody").stderr
    assert [row["name"] for row in system.json("skills", "--root", str(system.project))["skills"]] == [
        "write-a-skill",
        "write-project-instructions",
    ]
