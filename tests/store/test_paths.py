"""What a path means, and where everything of a session is."""

from pathlib import Path

import pytest

from pyagentd.errors import NotASession
from pyagentd.store import paths
from tests.store.places import new_agent, new_session


@pytest.fixture
def main(tmp_path):
    return new_session(tmp_path)


@pytest.mark.spec("001", "Computing branch directory path")
def test_a_branch_directory_is_below_branches_and_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert paths.branch_dir(Path("my-session"), "main") == tmp_path / "my-session" / "branches" / "main"


@pytest.mark.spec("001", "Computing context file path")
@pytest.mark.spec("001", "File name constants")
def test_files_of_a_branch_have_the_names_of_the_constants():
    branch = Path("/s/branches/main")
    assert paths.session_file(branch) == branch / "session.md" == branch / paths.SESSION_FILE
    assert paths.scope_plan_file(branch) == branch / "scope-plan.yml" == branch / paths.SCOPE_PLAN_FILE
    assert paths.preset_file(branch) == branch / "preset.md" == branch / paths.PRESET_FILE


def test_directory_file_and_session_mean_the_same_branch(main):
    session_file = paths.session_file(main.branch_dir)
    through_link = main.session_dir / "current" / "session.md"
    for path in (main.branch_dir, session_file, main.session_dir, through_link):
        assert paths.ref_of(path) == main
    assert main.key == str(main.branch_dir)
    assert main.name == f"{main.session_id}/main"


def test_a_relative_path_means_the_resolved_branch(main, monkeypatch):
    monkeypatch.chdir(main.branch_dir)
    assert paths.ref_of(Path("session.md")) == main


@pytest.mark.spec("001", "Current branch symlink")
def test_a_session_means_the_branch_its_link_points_at(main):
    other = main.session_dir / "branches" / "20260205-try"
    other.mkdir()
    (other / "session.md").touch()
    paths.current_link(main.session_dir).unlink()
    assert paths.ref_of(main.session_dir) == main, "without a link it is main"
    paths.current_link(main.session_dir).symlink_to("branches/20260205-try")
    assert paths.ref_of(main.session_dir).branch_dir == other


def test_a_link_that_leads_out_of_the_session_is_not_followed(tmp_path, main):
    stranger = new_session(tmp_path, "other")
    paths.current_link(main.session_dir).unlink()
    paths.current_link(main.session_dir).symlink_to(stranger.branch_dir)
    assert paths.ref_of(main.session_dir) == main


def test_a_link_in_a_circle_means_main(main):
    paths.current_link(main.session_dir).unlink()
    paths.current_link(main.session_dir).symlink_to("current")
    assert paths.ref_of(main.session_dir) == main


def test_an_agent_is_its_own_session_with_one_branch(main):
    agent = new_agent(main)
    assert paths.ref_of(agent.branch_dir / "session.md") == agent
    assert agent.is_agent
    assert agent.branch_dir == agent.session_dir
    assert agent.branch_name == "main"


def test_descent_is_found_through_directories(main):
    child = new_agent(main)
    grandchild = new_agent(child, "look deeper")
    assert paths.ancestors_of(grandchild) == (child, main)
    assert paths.parent_of(main) is None


@pytest.mark.spec("001", "Directory structure validation")
def test_what_has_no_branches_is_no_session(tmp_path):
    assert not paths.is_session_dir(tmp_path)
    (tmp_path / "circle").symlink_to("circle")
    for path in (tmp_path, tmp_path / "absent", tmp_path / "session.md", tmp_path / "circle"):
        with pytest.raises(NotASession, match=str(path)):
            paths.ref_of(path)


def test_a_document_that_only_has_the_name_is_no_session(tmp_path):
    (tmp_path / "session.md").touch()
    with pytest.raises(NotASession):
        paths.ref_of(tmp_path / "session.md")


def test_agents_of_a_project_are_no_agents_of_a_session(tmp_path):
    (tmp_path / "agents" / "x").mkdir(parents=True)
    (tmp_path / "agents" / "x" / "session.md").touch()
    with pytest.raises(NotASession):
        paths.ref_of(tmp_path / "agents" / "x")


def test_a_session_without_any_branch_says_what_is_missing(main):
    (main.branch_dir / "session.md").unlink()
    with pytest.raises(NotASession, match="no active branch"):
        paths.ref_of(main.session_dir)
