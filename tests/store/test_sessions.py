"""Sessions and agents are made complete, or not at all."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyagentd.errors import BadRequest, PresetError, StoreError
from pyagentd.store import metadata, presetfile
from pyagentd.store.paths import ref_of
from pyagentd.store.sessions import create_agent, create_session, with_rights
from tests.store.places import PRESET, STAMP, StandingClock, new_agent, new_session, tree


def create(root, **more):
    return create_session(root, "API Integration", preset_name="p", preset_text=PRESET, clock=StandingClock(), **more)


@pytest.mark.spec("001", "Standalone session creation")
@pytest.mark.spec("001", "Valid session directory structure")
def test_a_session_has_one_empty_branch_and_a_link_to_it(tmp_path):
    ref = create(tmp_path / "sessions")
    assert ref.session_dir == tmp_path / "sessions" / f"api-integration-{STAMP}"
    assert tree(ref.session_dir) == {
        "branches",
        "branches/main",
        "branches/main/session.md",
        "branches/main/preset.md",
        "branches/main/scope-plan.yml",
        "current",
    }
    assert (ref.session_dir / "current").readlink() == Path("branches/main")
    assert (ref.branch_dir / "session.md").read_text() == ""
    assert (ref.branch_dir / "preset.md").read_text() == PRESET
    assert ref_of(ref.session_dir) == ref


@pytest.mark.spec("001", "Session ID generation")
def test_the_id_is_slug_and_time(tmp_path):
    assert new_session(tmp_path, "React Refactoring").session_id == f"react-refactoring-{STAMP}"


@pytest.mark.spec("001", "Session ID immutability")
def test_the_id_is_the_directory_whatever_the_metadata_says(tmp_path):
    ref = new_session(tmp_path)
    plan = ref.branch_dir / "scope-plan.yml"
    plan.write_text(plan.read_text().replace(ref.session_id, "renamed"))
    assert ref_of(ref.branch_dir).session_id == ref.session_id


def test_same_name_in_the_same_second_gets_a_suffix(tmp_path):
    made = [new_session(tmp_path).session_id for _ in range(3)]
    assert made == [f"react-refactoring-{STAMP}{suffix}" for suffix in ("", "-2", "-3")]
    assert metadata.read_session_metadata(ref_of(tmp_path / made[2]).branch_dir)["session_id"] == made[2]


def test_agents_made_at_once_do_not_share_a_directory(tmp_path):
    parent = new_session(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        agents = list(pool.map(lambda _: new_agent(parent), range(24)))
    assert len({agent.branch_dir for agent in agents}) == 24
    assert all(metadata.read_session_metadata(a.branch_dir)["session_id"] == a.session_id for a in agents)


def test_everything_is_for_its_owner_alone(tmp_path):
    ref = create(tmp_path / "sessions")
    agent = new_agent(ref)
    for path in [tmp_path / "sessions", *(tmp_path / "sessions").rglob("*")]:
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert agent.branch_dir.is_dir()


def test_a_project_joins_the_paths_of_the_preset(tmp_path):
    text = "---\nbackend: Claude\nmodel: m\npaths:\n  read: [/ref/**]\n  write: [/out/**]\n---\n"
    ref = create_session(
        tmp_path,
        "x",
        preset_name="p",
        preset_text=with_rights(text, "p", read=("/p/**",), write=("/p/**",)),
        clock=StandingClock(),
    )
    preset = presetfile.read(ref.branch_dir / "preset.md")
    assert preset.patterns("read") == ("/ref/**", "/p/**")
    assert preset.patterns("write") == ("/out/**", "/p/**")


@pytest.mark.spec("001", "Activities-integrated session creation")
def test_a_session_can_live_elsewhere_and_is_known_by_its_written_id(tmp_path):
    place = tmp_path / "emacs-activities" / "thing" / "session"
    ref = create(tmp_path / "sessions", session_dir=place)
    assert ref.session_dir == place
    assert ref.session_id == f"api-integration-{STAMP}"
    assert ref_of(place) == ref
    assert not (tmp_path / "sessions").exists()


def test_a_directory_in_use_is_not_taken_over(tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(BadRequest, match="in use"):
        create(tmp_path, session_dir=tmp_path / "used")
    assert tree(tmp_path) == {"used", "used/file"}


@pytest.mark.spec("000", "Agent session ID format")
@pytest.mark.spec("000", "Empty session.md created")
def test_an_agent_lives_under_the_branch_of_its_parent(tmp_path):
    parent = new_session(tmp_path)
    agent = new_agent(parent, "find module")
    assert agent.branch_dir == parent.branch_dir / "agents" / f"explorer-{STAMP}-find-module"
    assert tree(agent.branch_dir) == {"session.md", "preset.md", "scope-plan.yml"}
    assert (agent.branch_dir / "session.md").read_text() == ""
    assert ref_of(agent.branch_dir) == agent


@pytest.mark.spec("000", "Paths written to agent preset")
@pytest.mark.spec("000", "Preset template copied to agent directory")
def test_the_paths_of_an_agent_stand_in_its_preset(tmp_path):
    agent = create_agent(
        new_session(tmp_path),
        preset_name="researcher",
        preset_text=PRESET,
        description="analyze code",
        read=["/path/to/project/**"],
        clock=StandingClock(),
    )
    assert (agent.branch_dir / "preset.md").read_text() == (
        "---\nbackend: Claude\nmodel: claude-sonnet-4-5\n"
        'paths:\n  read:\n    - "/path/to/project/**"\n  write:\n    - "/tmp/**"\n  deny:\n    - "**/.git/**"\n'
        '    - "**/runtime/**"\n    - "**/.env"\n    - "**/node_modules/**"\n---\nHelp.\n'
    )


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".", "   ", "\n"])
def test_a_name_never_leads_out_of_its_directory(tmp_path, name):
    session = new_session(tmp_path / "s", name)
    agent = new_agent(session, description=name, preset=name)
    assert session.session_dir.parent == tmp_path / "s"
    assert agent.branch_dir.parent == session.branch_dir / "agents"


def test_a_malformed_preset_is_found_before_anything_is_made(tmp_path):
    parent = new_session(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(PresetError, match=r"explorer\.md:1"):
        create_agent(
            parent, preset_name="explorer", preset_text="no front", description="d", read=[], clock=StandingClock()
        )
    assert tree(tmp_path) == before


@pytest.mark.spec("000", "Filesystem errors logged and reported")
def test_what_fails_half_way_leaves_nothing(tmp_path):
    parent = new_session(tmp_path)
    before = tree(tmp_path)
    unwritable = "\ud800"  # passes as text, and is refused by the disk's encoding
    with pytest.raises(StoreError):
        create_agent(
            parent,
            preset_name="explorer",
            preset_text=PRESET + unwritable,
            description="d",
            read=[],
            clock=StandingClock(),
        )
    with pytest.raises(StoreError):
        create_session(tmp_path, "x", preset_name="p", preset_text=unwritable, clock=StandingClock())
    assert tree(tmp_path) == before


@pytest.mark.spec("001", "Logging session creation")
def test_creation_is_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    ref = new_session(tmp_path)
    assert f"Created session directory: {ref.session_dir}" in caplog.text


@pytest.mark.spec("001", "Activities-integrated session creation")
def test_a_session_of_an_activity_has_the_id_and_the_place_it_is_given(tmp_path):
    place = tmp_path / "activities" / "tidy-up-2026-02-05" / "session"
    ref = create(tmp_path / "s", session_dir=place, session_id="tidy-20260205123052", activity_org_file="/a/x.org")
    assert (ref.session_dir, ref.session_id) == (place, "tidy-20260205123052")
    assert ref_of(place) == ref and (place / "branches" / "main" / "session.md").read_text() == ""
    plan = metadata.read_session_metadata(ref.branch_dir)
    assert (plan["session_id"], plan["activity_org_file"]) == ("tidy-20260205123052", "/a/x.org")
    assert list(plan) == ["version", "session_id", "created", "updated", "preset", "activity_org_file"]


def test_an_id_that_is_given_is_the_directory_in_the_root(tmp_path):
    ref = create(tmp_path, session_id="mine-20260205123052")
    assert ref.session_dir == tmp_path / "mine-20260205123052" and ref_of(ref.session_dir) == ref
    with pytest.raises(BadRequest, match="in use"):
        create(tmp_path, session_id="mine-20260205123052")


@pytest.mark.parametrize("wrong", ["", "a/b", "..", ".x", "a b", "x" * 300, "a\n", "a\0"])
def test_what_is_no_id_makes_nothing(tmp_path, wrong):
    with pytest.raises(BadRequest, match="not a session id"):
        create(tmp_path / "s", session_id=wrong, session_dir=tmp_path / "here")
    assert tree(tmp_path) == set()


def test_a_directory_that_looks_like_another_id_is_refused(tmp_path):
    with pytest.raises(BadRequest, match="has the form of an id"):
        create(tmp_path, session_dir=tmp_path / "one-20260101000000", session_id="two-20260101000000")
    assert tree(tmp_path) == set()
