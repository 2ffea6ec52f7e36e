"""Which branches exist is what the disk says."""

import json
import os
import shutil

import pytest

from pyagentd.errors import Ambiguous, NotASession, NotFound
from pyagentd.features.overview import single_entry
from pyagentd.store import paths
from pyagentd.store.metadata import branches
from pyagentd.store.paths import ref_of
from pyagentd.store.registry import Registry
from pyagentd.store.sessions import create_session
from tests.store.places import PRESET, STAMP, StandingClock, new_agent, new_session


def add_branch(ref, name):
    place = ref.session_dir / "branches" / name
    place.mkdir()
    (place / "session.md").touch()
    return ref_of(place)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "sessions"


@pytest.mark.spec("001", "Discovering all sessions")
@pytest.mark.spec("001", "Registry initialization from disk")
def test_a_scan_finds_valid_branches_only(root):
    one, two = new_session(root, "one"), new_session(root, "two")
    extra = add_branch(two, "20260128153042-feature")
    for invalid in (".hidden/branches/main", "no-branches", "empty/branches/main", "two/branches/.git"):
        (root / invalid).mkdir(parents=True)
    (root / ".hidden/branches/main/session.md").touch()
    (root / "file").touch()
    assert [entry.ref for entry in Registry(root).scan()] == [one, extra, two]


@pytest.mark.spec("001", "Comprehensive branch discovery with agents")
def test_agents_are_found_under_their_branch_at_any_depth(root):
    main = new_session(root)
    child = new_agent(main)
    grandchild = new_agent(child, "deeper")
    registry = Registry(root)
    (entry,) = registry.scan()
    assert [agent.ref for agent in entry.agents] == [child]
    assert [each.ref for each in entry.with_agents()] == [main, child, grandchild] == registry.branches()


def test_a_scan_opens_no_file(root):
    agent = new_agent(new_session(root))
    for name in ("preset.md", "scope-plan.yml"):
        (agent.branch_dir / name).unlink()
        os.mkfifo(agent.branch_dir / name)  # to open one would wait forever
    assert agent in Registry(root).branches()


@pytest.mark.spec("001", "Registry lookup performance")
def test_names_find_a_branch_without_a_scan(root):
    registry = Registry(root)
    main = new_session(root)
    registry.add(main)
    assert registry.get(main.session_id, "main") == main
    assert registry.get(main.session_id, "other") is None
    assert registry.get("other") is None


@pytest.mark.spec("001", "Filesystem as source of truth")
def test_what_was_removed_is_gone_and_what_was_added_is_found(root):
    registry = Registry(root)
    main = new_session(root)
    registry.scan()
    shutil.rmtree(main.session_dir)
    assert registry.get(main.session_id) is None
    later = new_session(root, "later")
    assert registry.resolve(later.session_id) == later


def test_a_session_and_an_agent_whose_document_is_gone_are_found_by_their_logs(root):
    main = new_session(root)
    other, agent = add_branch(main, "20260205123100-try"), new_agent(main)
    for each in (main, other, agent):
        (each.branch_dir / "session.md").unlink()
        (each.branch_dir / "messages.jsonl").touch()
    registry = Registry(root)
    assert registry.branches() == [other, main, agent] and branches(main.session_dir) == [main, other]
    assert registry.resolve("react") == registry.get(main.session_id) == main
    assert registry.resolve("react/20260205123100") == other and registry.resolve("explorer-") == agent


def test_an_id_a_prefix_a_branch_and_a_directory_resolve(root, monkeypatch):
    main = new_session(root)
    other = add_branch(main, "20260205123100-try")
    agent = new_agent(main)
    registry = Registry(root)
    for text, meant in {
        main.session_id: main,
        "react": main,
        "react/20260205123100-try": other,
        f"{main.session_id}/main": main,
        agent.session_id: agent,
        "explorer-": agent,
        f"{agent.session_id}/main": agent,
        str(main.session_dir): main,
        str(other.branch_dir / "session.md"): other,
    }.items():
        assert registry.resolve(text) == meant, text
    monkeypatch.chdir(main.session_dir)
    assert registry.resolve("branches/main") == main


def test_an_id_means_the_active_branch(root):
    main = new_session(root)
    other = add_branch(main, "20260205123100-try")
    (main.session_dir / "current").unlink()
    (main.session_dir / "current").symlink_to("branches/20260205123100-try")
    registry = Registry(root)
    assert registry.resolve(main.session_id) == other
    assert registry.resolve("react") == other
    assert registry.resolve(f"{main.session_id}/main") == main


def test_a_whole_id_wins_over_longer_ones(root):
    first, second = new_session(root), new_session(root)
    registry = Registry(root)
    assert registry.resolve(first.session_id) == first
    assert registry.resolve(second.session_id) == second


def test_an_exact_id_needs_no_scan(root, monkeypatch):
    main, other = new_session(root), new_session(root, "other")
    branch = add_branch(main, "20260205123100-try")
    registry = Registry(root)
    monkeypatch.setattr(registry, "scan", lambda: pytest.fail("a scan"))
    assert registry.resolve(main.session_id) == main
    assert registry.resolve(f"{main.session_id}/{branch.branch_name}") == branch
    assert registry.get(other.session_id) == other
    assert registry.get("..", "main") is None and registry.get(main.session_id, "../../other") is None


def test_what_fits_several_lists_them(root):
    new_session(root, "app one")
    new_session(root, "app two")
    with pytest.raises(Ambiguous) as error:
        Registry(root).resolve("app")
    assert f"app-one-{STAMP}/main" in error.value.message
    assert f"app-two-{STAMP}/main" in error.value.message


def test_of_many_that_fit_the_first_are_listed_and_the_links_of_no_others_are_looked_at(root, monkeypatch):
    for number in range(12):
        new_session(root, f"app {number:02}")
    looked = []
    monkeypatch.setattr(paths, "ref_of", lambda place: looked.append(place) or ref_of(place))
    with pytest.raises(Ambiguous) as error:
        Registry(root).resolve("app")
    assert (
        f"app-07-{STAMP}/main and 4 more" in error.value.message
        and len([place for place in looked if place.parent == root]) == 8
    )


def test_a_session_whose_link_leads_in_a_circle_hides_no_other(root):
    new_session(root)
    named = root / "renamed-by-hand"
    shutil.copytree(new_session(root, "other").session_dir, named, symlinks=True)
    (named / "current").unlink()
    (named / "current").symlink_to("current")
    assert len(Registry(root).branches()) == 3


def test_copies_of_an_agent_in_two_branches_are_told_apart_by_directory(root):
    main = new_session(root)
    agent = new_agent(main)
    other = add_branch(main, "20260205123100-try")
    shutil.copytree(main.branch_dir / "agents", other.branch_dir / "agents")
    with pytest.raises(Ambiguous) as error:
        Registry(root).resolve(agent.session_id)
    assert str(agent.branch_dir) in error.value.message
    assert Registry(root).resolve(str(agent.branch_dir)) == agent


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "nothing/main",
        "",
        "a/b/c",
        "x" * 300,
        f"/{'ä' * 150}",
        "/\0",
        "~\0",
        "~nobody-here/x",
        "/long" * 2000,
        "long/" * 2000,
    ],
)
def test_what_fits_nothing_says_how_to_find_it(root, text):
    new_session(root)
    with pytest.raises((NotFound, NotASession)) as error:
        Registry(root).resolve(text)
    assert error.value.hint


def test_a_root_that_does_not_exist_holds_nothing(tmp_path):
    assert Registry(tmp_path / "absent").branches() == []


def test_a_session_elsewhere_is_scanned_once_it_is_known(root, tmp_path):
    place = tmp_path / "activity" / "session"
    ref = create_session(root, "thing", preset_name="p", preset_text=PRESET, clock=StandingClock(), session_dir=place)
    assert Registry(root).branches() == []
    registry = Registry(root)
    registry.add(ref)
    assert registry.branches() == [ref]
    assert registry.resolve("thing") == ref


@pytest.mark.spec("001", "Logging registry initialization")
def test_a_scan_is_logged(root, caplog):
    caplog.set_level("INFO")
    new_agent(new_session(root))
    Registry(root).scan()
    assert "Initialized registry with 2 branches" in caplog.text


def test_a_sessions_own_name_wins_over_longer_names_and_over_agents(root):
    named, longer = new_session(root, "ex"), new_session(root, "express")
    agent = new_agent(named)  # explorer-…
    registry = Registry(root)
    assert registry.resolve("ex") == named
    assert registry.resolve("exp") == longer  # a session before an agent
    assert registry.resolve("explo") == agent
    assert registry.resolve("ex/main") == named


def test_the_title_is_found_at_once_above_a_call_with_thousands_of_keys_called_session(tmp_path):
    ref = new_session(tmp_path, "one")
    call = {"type": "tool-x", "toolCallId": "c", "input": {"rows": [{"session": 1}] * 50_000}}
    part = {"id": "p", "message_id": "m", "index": 0, "type": "tool-x", "data_json": call}
    rows = [{"seq": 1, "type": "session", "data": {"title": "Tea"}}, {"seq": 2, "type": "part", "data": part}]
    paths.journal_file(ref.branch_dir).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    entry = single_entry(ref)  # the suite's time limit ends what reads the call for each key
    assert entry is not None and entry["title"] == "Tea"
