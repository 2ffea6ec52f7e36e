"""A duplicated session: complete, and one of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyagentd.errors import PyagentdError
from pyagentd.store import metadata, paths
from pyagentd.store.branching import create_branch, duplicate_session
from pyagentd.store.journal import Journal, read_rows
from pyagentd.store.metadata import tree as lineage_tree
from pyagentd.store.paths import BranchRef
from tests.store.places import STAMP, StandingClock, new_agent, new_session
from tests.store.talk import Talk
from tests.store.test_branching import TURNS, fails, save, snapshot


def whole(root: Path) -> tuple[BranchRef, BranchRef]:
    """A session with two branches, agents and files; the main branch and the active one."""
    main = new_session(root)
    talk = Talk()
    talk.record("session", id=main.session_id, title="My title", archived_at=5, metadata_json={}, parent_id=None)
    for turn in TURNS:
        talk.play(turn)
    for number, row in enumerate(talk.rows):
        if row.type in ("message", "part"):
            talk.rows[number] = row._replace(data={**row.data, "session_id": main.session_id})
    save(main, talk)
    agent = new_agent(main)
    told = Talk()
    told.record("session", id=agent.session_id, title="", metadata_json={}, parent_id=main.session_id)
    save(agent, told)
    new_agent(agent, "deeper")
    (main.branch_dir / "files").mkdir()
    (main.branch_dir / "files" / "a.bin").write_bytes(b"\x00\xff")
    return main, create_branch(main, name="try", clock=StandingClock())


def duplicate(source: BranchRef, name: str | None = None) -> BranchRef:
    return duplicate_session(source, root=source.session_dir.parent, name=name, clock=StandingClock())


def test_everything_of_a_session_is_in_its_copy(tmp_path: Path) -> None:
    main, made = whole(tmp_path)
    copy = duplicate(main)
    old, new = snapshot(main.session_dir), snapshot(copy.session_dir)
    assert old.keys() == new.keys()
    changed = {name for name in old if old[name] != new[name]}
    assert {Path(name).name for name in changed} == {"scope-plan.yml", "messages.jsonl"}
    assert copy.branch_name == made.branch_name and paths.ref_of(copy.session_dir) == copy
    shapes = [
        [(n["name"], n["parent"], n["depth"], n["current"]) for n in lineage_tree(r.session_dir)]
        for r in (main, copy)
    ]
    assert shapes[0] == shapes[1]


def test_the_copy_has_its_own_id_wherever_the_sessions_id_stands(tmp_path: Path) -> None:
    main, _ = whole(tmp_path)
    copy = duplicate(main)
    for file in copy.session_dir.rglob("*"):
        if file.is_file():
            assert main.session_id.encode() not in file.read_bytes(), file
    for ref in (paths.ref_of(copy.session_dir / "branches" / "main"), copy):
        assert (metadata.read_session_metadata(ref.branch_dir) or {})["session_id"] == copy.session_id


def test_agents_and_messages_keep_their_ids(tmp_path: Path) -> None:
    main, _ = whole(tmp_path)
    copy = duplicate(main)
    there, here = (ref.session_dir / "branches" / "main" for ref in (main, copy))
    (agent,) = (here / "agents").iterdir()
    (nested,) = (agent / "agents").iterdir()
    facts = metadata.read_session_metadata(agent) or {}
    assert (facts["session_id"], facts["parent_session_id"]) == (agent.name, copy.session_id)
    assert (metadata.read_session_metadata(nested) or {})["parent_session_id"] == agent.name
    assert read_rows(agent / "messages.jsonl")[0].data["parent_id"] == copy.session_id
    ids = [
        [r.data["id"] for r in read_rows(place / "messages.jsonl") if r.type == "message"] for place in (there, here)
    ]
    assert ids[0] == ids[1] and len(ids[0]) == 6


@pytest.mark.parametrize(
    ("name", "slug", "title"), [(None, "my-title-copy", "My title copy"), ("Other Name", "other-name", "Other Name")]
)
def test_the_copy_is_called_as_wished_or_a_copy(tmp_path: Path, name: str | None, slug: str, title: str) -> None:
    main, _ = whole(tmp_path)
    copy = duplicate(main, name)
    assert copy.session_id == f"{slug}-{STAMP}"
    facts = [row.data for row in read_rows(paths.journal_file(copy.branch_dir)) if row.type == "session"][-1]
    assert (facts["title"], facts["archived_at"]) == (title, None)


def test_a_session_without_a_title_gives_its_id(tmp_path: Path) -> None:
    copies = [duplicate(new_session(tmp_path, "Plain")) for _ in range(1)]
    copies.append(duplicate(copies[0]))
    assert [ref.session_id for ref in copies] == [f"plain-copy-{STAMP}", f"plain-copy-copy-{STAMP}"]


def test_a_copy_is_made_from_a_session_that_lives_elsewhere(tmp_path: Path) -> None:
    main, _ = whole(tmp_path / "elsewhere")
    copy = duplicate_session(main, root=tmp_path / "root", clock=StandingClock())
    assert copy.session_dir.parent == tmp_path / "root"


def test_what_the_disk_refuses_leaves_no_copy(tmp_path: Path) -> None:
    main, _ = whole(tmp_path)
    before = snapshot(tmp_path)
    with fails(-1) as counting:
        copy = duplicate(main)
    assert counting.calls > 50
    shutil.rmtree(copy.session_dir)
    for number in range(0, counting.calls, 3):
        with fails(number), pytest.raises(PyagentdError):
            duplicate(main)
        assert snapshot(tmp_path) == before, f"call {number}"


def test_what_a_link_among_the_agents_leads_to_is_no_part_of_the_copy(tmp_path: Path) -> None:
    main, _ = whole(tmp_path)
    _, elsewhere = whole(tmp_path / "elsewhere")
    before = snapshot(tmp_path / "elsewhere")
    for name, target in (("x", elsewhere.branch_dir), ("up", ".."), ("again", "..")):
        (paths.agents_dir(main.branch_dir) / name).symlink_to(target)
    duplicate(main)
    assert snapshot(tmp_path / "elsewhere") == before


def test_a_damaged_log_does_not_keep_a_session_from_being_copied(tmp_path: Path) -> None:
    main, _ = whole(tmp_path)
    with paths.journal_file(main.branch_dir).open("ab") as file:
        file.write(b'{"seq": 9, "type"\n{"torn')
    copy = duplicate(main)
    journal = Journal.open(paths.journal_file(copy.session_dir / "branches" / "main"))
    assert [row.data["title"] for row in journal.rows() if row.type == "session"][-1] == "My title copy"
    journal.close()
