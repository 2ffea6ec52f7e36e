"""The tree of a session's branches."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path

import pytest

from pyagentd.store import paths
from pyagentd.store.branching import switch
from pyagentd.store.metadata import branches, lineage, tree
from pyagentd.store.paths import BranchRef
from tests.store.places import new_session


def grown(root: Path, parents: dict[str, str | None]) -> BranchRef:
    """A session with a branch for every key, made from the branch that is its value."""
    ref = new_session(root)
    for name, parent in parents.items():
        place = paths.branch_dir(ref.session_dir, name)
        place.mkdir(exist_ok=True)
        paths.session_file(place).touch()
        if parent is not None:
            text = f"parent_branch: {parent}\ncreated: 2026-01-01T00:00:00Z\nbranch_point_position: 12\n"
            paths.branch_metadata_file(place).write_text(text)
    return ref


def shape(ref: BranchRef) -> list[tuple[str, int, bool]]:
    return [(node["name"], node["depth"], node["last"]) for node in tree(ref.session_dir)]


def of(ref: BranchRef, name: str) -> tuple[str, ...]:
    return lineage(paths.ref_of(paths.branch_dir(ref.session_dir, name)))


def test_a_branch_stands_below_the_one_it_was_made_from(tmp_path: Path) -> None:
    ref = grown(tmp_path, {"3-c": "main", "1-a": "main", "2-b": "1-a", "4-d": "2-b"})
    assert shape(ref) == [("main", 0, True), ("1-a", 1, False), ("2-b", 2, True), ("4-d", 3, True), ("3-c", 1, True)]
    assert of(ref, "4-d") == ("2-b", "1-a", "main") and of(ref, "main") == ()


def test_a_node_says_what_the_metadata_says(tmp_path: Path) -> None:
    ref = grown(tmp_path, {"1-a": "main"})
    main, made = tree(ref.session_dir)
    facts = itemgetter("parent", "created", "position", "current")
    assert facts(main) == (None, "2026-02-05T12:30:52Z", None, True)
    assert facts(made) == ("main", "2026-01-01T00:00:00Z", 12, False)
    switch(paths.ref_of(Path(made["branch"])))
    assert [node["current"] for node in tree(ref.session_dir)] == [False, True]


def test_a_branch_whose_parent_is_gone_is_a_root(tmp_path: Path) -> None:
    ref = grown(tmp_path, {"2-b": "1-gone", "3-c": "2-b"})
    assert shape(ref) == [("main", 0, False), ("2-b", 0, True), ("3-c", 1, True)]
    assert of(ref, "3-c") == ("2-b", "1-gone")


@pytest.mark.parametrize(
    "parents",
    [{"1-a": "1-a"}, {"1-a": "2-b", "2-b": "1-a"}, {"1-a": "3-c", "2-b": "1-a", "3-c": "2-b", "4-d": "2-b"}],
)
def test_branches_that_descend_from_themselves_are_all_there_once(
    tmp_path: Path, parents: dict[str, str | None]
) -> None:
    ref = grown(tmp_path, parents)
    assert sorted(name for name, _, _ in shape(ref)) == sorted([*parents, "main"])
    assert shape(ref)[1][:2] == ("1-a", 0)
    assert all(len(of(ref, name)) <= len(parents) for name in parents)


def test_a_parent_that_would_lead_elsewhere_is_not_followed(tmp_path: Path) -> None:
    ref = grown(tmp_path, {"1-a": "../../etc"})
    assert of(ref, "1-a") == () and shape(ref)[1] == ("1-a", 0, True)


def test_main_descends_from_nobody_whatever_a_file_says(tmp_path: Path) -> None:
    ref = grown(tmp_path, {"1-a": "main"})
    paths.branch_metadata_file(ref.branch_dir).write_text("parent_branch: 1-a\n")
    assert shape(ref) == [("main", 0, True), ("1-a", 1, True)] and of(ref, "1-a") == ("main",)


def test_a_line_of_two_thousand_branches_is_read(tmp_path: Path) -> None:
    names = [f"{number:05d}" for number in range(2000)]
    ref = grown(tmp_path, dict(zip(names, ["main", *names[:-1]], strict=True)))
    assert shape(ref)[-1] == (names[-1], 2000, True)
    assert len(of(ref, names[-1])) == 2000


@pytest.mark.spec("001", "Discovering branches within a session")
def test_what_is_hidden_linked_or_no_directory_is_no_branch(tmp_path: Path) -> None:
    ref = grown(tmp_path, {"20260128153042-feature": "main", ".hidden": None})
    home = paths.branches_dir(ref.session_dir)
    (home / "notes.txt").touch()
    (home / "empty").mkdir()
    (home / "linked").symlink_to(home / "main")
    assert [each.branch_name for each in branches(ref.session_dir)] == ["main", "20260128153042-feature"]
    assert branches(tmp_path / "nowhere") == []
