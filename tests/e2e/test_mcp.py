"""The official reference servers, a real daemon, and somebody at a terminal who is asked."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.conftest import System
from tests.e2e.test_approvals import Terminal, scripted, terminal
from tests.mcp.servers import needs_reference, reference, table
from tests.server import ModelServer, answer, tool_use

__all__ = ["scripted", "terminal"]  # fixtures

pytestmark = needs_reference


def test_a_reference_server_is_used_under_approval(
    scripted: System, model_server: ModelServer, terminal: Callable[..., Terminal]
) -> None:
    (scripted.home / "config.toml").write_text(
        table("everything", reference("everything"))
        + table("files", reference("filesystem", "${root}"), trusted=True)
    )
    (scripted.project / "notes.txt").write_text("alpha\n")
    session, _ = scripted.new()
    model_server.say(
        answer(
            tool_use("files_read_text_file", path=str(scripted.project / "notes.txt")),
            tool_use("everything_echo", message="hello"),
        ),
        answer(tool_use("everything_get-env")),
        "Fine.",
    )
    asking = terminal("send", session, "Do it.")
    asking.shows("everything_echo", "y allow once, s in this session, p in this project, n deny")
    asking.type("y")
    asking.shows("everything_get-env")
    asking.type("y")
    asking.shows("Fine.")
    assert asking.end() == 0
    read, echoed = (block["content"] for block in model_server.requests[1].messages[-1]["content"])
    assert "alpha" in str(read) and "Echo: hello" in str(echoed)
    (env,) = model_server.last.messages[-1]["content"]
    assert "PATH" in str(env["content"]) and "test-key" not in str(env["content"])
    decided = [(row["decision"], row["action"]) for row in scripted.json("audit", session)]
    assert decided == [
        ("allow", "mcp:files:read_text_file"),
        ("ask_approved", "mcp:everything:echo"),
        ("ask_approved", "mcp:everything:get-env"),
    ]
