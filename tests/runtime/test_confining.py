"""What a command of a branch may touch, read from presets for each command."""

from dataclasses import replace
from pathlib import Path

from pyagentd import installation
from pyagentd.config import load_config
from pyagentd.policy.presets import Commands, Paths, Preset
from pyagentd.runtime.presets import Presets
from pyagentd.runtime.run_setup import shell_scope
from pyagentd.store.paths import BranchRef, agent_ref


class _Given(Presets):
    """Presets that a test gives."""

    def __init__(self, given: dict[str, Preset]) -> None:
        self.given = given

    def of_branch(self, ref: BranchRef) -> Preset:
        return self.given[ref.key]


def test_denies_come_from_the_whole_family_and_all_else_from_the_agent_itself(tmp_path: Path) -> None:
    config = load_config(
        {
            "PYAGENTD_SESSIONS_DIR": f"{tmp_path}/sessions",
            "PYAGENTD_RUNTIME_DIR": f"{tmp_path}/run",
            "PYAGENTD_CONFIG": f"{tmp_path}/config/config.toml",
            "PYAGENTD_CONFINEMENT": "landlock",
        }
    )
    session = tmp_path / "elsewhere/s-20260101"
    branch = session / "branches/main"
    parent = BranchRef(session_id="s-20260101", session_dir=session, branch_name="main", branch_dir=branch)
    agent = agent_ref(branch / "agents/a-1")
    plain = Preset(name="p", backend="b", model="m")
    given = {
        parent.key: replace(plain, paths=Paths(read=("/far/**",), deny=("/far/secret/**",)), shell=Commands()),
        agent.key: replace(
            plain,
            paths=Paths(read=("/near/**",), write=("/near/w/**",), deny=("**/.env",)),
            shell=Commands(allow=("git",), network=True, confine=False),
        ),
    }
    read = shell_scope(_Given(given), agent, (parent,), config, tmp_path)
    scope = read()
    assert (scope.read, scope.write) == (("/near/**",), ("/near/w/**",))
    assert scope.deny == ("**/.env", "/far/secret/**")
    assert (scope.commands, scope.network, scope.confine, scope.wanted) == (("git",), True, False, "landlock")
    places = {f"{tmp_path}/sessions", f"{tmp_path}/config/presets", f"{tmp_path}/config/config.toml", str(session)}
    assert set(scope.protected) == places | set(map(str, installation.code_directories()))
    assert scope.hidden == (f"{tmp_path}/run",)
    assert (scope.closed, scope.own) == ((f"{tmp_path}/sessions", f"{tmp_path}/sessions-agents"), (str(session),))
    assert scope.records == (agent.key, parent.key)
    given[parent.key] = replace(plain, paths=Paths(deny=("/other/**",)))
    assert read().deny == ("**/.env", "/other/**")
