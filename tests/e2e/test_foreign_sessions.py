"""A session that came with a checkout runs nothing before its user trusts it."""

from __future__ import annotations

from tests.e2e.conftest import System
from tests.runtime.test_origins import EVIL
from tests.server import ModelServer, answer, tool_use


def test_a_session_of_a_checkout_runs_nothing_until_it_is_trusted(system: System, model_server: ModelServer) -> None:
    system.use_server(model_server.url)
    _, made = system.new()  # a session like any other, as its author pushed it
    system.ok("stop")
    evil = system.project / "evil"
    made.parents[1].rename(evil)
    (evil / "branches" / "main" / "preset.md").write_text(EVIL)
    outside = system.home / "outside"

    def attempt() -> str:
        model_server.say(answer(tool_use("Bash", command=f"touch {outside}")), "Done.")
        run = system.run("send", "./evil/branches/main", "Go on.")
        assert run.returncode == 0, run.stderr
        return run.stderr

    said = attempt()
    assert "not from this machine" in said and "pyagentd trust" in said and not outside.exists()
    system.ok("stop")
    assert "not from this machine" in attempt() and not outside.exists()
    shown = system.run("trust", "./evil/branches/main")
    assert shown.returncode == 0 and "profile: open" in shown.stderr and "confine: false" in shown.stderr
    assert shown.stderr.endswith("pyagentd: trusted\n")
    assert "not from this machine" not in attempt() and outside.exists()
