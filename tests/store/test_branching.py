"""A branch on disk: what it inherits, where it begins, and that it is there completely or not at all."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pyagentd.errors import BadRequest, Busy, NotFound, PyagentdError, StoreError
from pyagentd.store import atomic, metadata, paths
from pyagentd.store.branching import create_branch, difference, read_outline, switch
from pyagentd.store.conversation import Conversation
from pyagentd.store.document import text as document
from pyagentd.store.document.reconcile import align
from pyagentd.store.journal import Journal, read_rows
from pyagentd.store.paths import BranchRef
from tests.store.places import STAMP, StandingClock, new_agent, new_session, tree
from tests.store.talk import Call, Step, Talk, Turn

YES = (Step(texts=("Yes.",)),)
TURNS = (
    Turn(prompt="One?", steps=(Step(reasoning="Hm.", texts=("Look:",), calls=(Call(), Call(name="Read"))), *YES)),
    Turn(prompt="Two?", steps=YES),
    Turn(prompt="Three? 😀", steps=YES),
)


def save(ref: BranchRef, talk: Talk) -> None:
    """Write a conversation as daemon and editor leave it."""
    text = document.format_file(talk.document)
    paths.session_file(ref.branch_dir).write_bytes(text.encode())
    journal = Journal.open(paths.journal_file(ref.branch_dir))
    journal.append_many((row.type, row.data) for row in talk.rows)
    journal.close()


def told(root: Path, turns: tuple[Turn, ...] = TURNS) -> BranchRef:
    ref = new_session(root)
    save(ref, Talk(turns))
    return ref


def body(ref: BranchRef) -> str:
    return document.read(paths.session_file(ref.branch_dir)).body


def conversation(ref: BranchRef) -> Conversation:
    return Conversation(read_rows(paths.journal_file(ref.branch_dir)))


def branch(parent: BranchRef, **arguments: Any) -> BranchRef:
    return create_branch(parent, clock=StandingClock(), **arguments)


def prompts(ref: BranchRef) -> dict[str, str]:
    return {point.text: str(point.message_id) for point in read_outline(ref).points}


def snapshot(root: Path) -> dict[str, object]:
    """Everything there is below ``root``, with its content."""
    return {
        str(path.relative_to(root)): path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in root.rglob("*")
    }


class TestText:
    def test_including_a_prompt_ends_behind_it(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        made = branch(parent, message_id=prompts(parent)["Two?"])
        assert body(made).endswith("\n\n### Two?")
        assert body(parent).startswith(body(made))

    def test_excluding_a_prompt_ends_before_it(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        made = branch(parent, message_id=prompts(parent)["Two?"], include=False)
        assert body(made).endswith("Yes.\n\n") and body(parent).startswith(body(made) + "### Two?")

    def test_excluding_the_first_prompt_leaves_an_empty_document(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        made = branch(parent, message_id=prompts(parent)["One?"], include=False)
        assert paths.session_file(made.branch_dir).read_bytes() == b""
        assert not conversation(made).messages

    def test_without_a_choice_it_is_the_last_prompt(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        assert body(branch(parent)).endswith("### Three? 😀")

    def test_any_offset_inside_a_prompt_means_it(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        at = body(parent).index("Two?") + 2
        assert body(branch(parent, offset=at)).endswith("### Two?")

    def test_the_model_sees_of_a_branch_what_it_saw_of_the_parent(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        point = read_outline(parent).points[1]
        made = branch(parent, message_id=point.message_id)
        old = align(document.read(paths.session_file(parent.branch_dir)), conversation(parent), point.end)
        new = align(document.read(paths.session_file(made.branch_dir)), conversation(made))
        assert new.view == old.view and (new.edits, new.notes) == ((), ())

    def test_the_log_of_a_branch_begins_at_one(self, tmp_path: Path) -> None:
        made = branch(told(tmp_path))
        rows = read_rows(paths.journal_file(made.branch_dir))
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        assert all(run.is_kept for run in conversation(made).runs.values())

    def test_the_difference_of_two_branches_is_that_of_their_texts(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        made = branch(parent, include=False)
        assert difference(parent, made).startswith(f"--- main\n+++ {made.branch_name}\n@@")
        assert "-### Three? 😀" in difference(parent, made) and "Local Variables" not in difference(parent, made)
        assert difference(parent, parent) == "main and main are identical"

    def test_a_branch_can_be_branched(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        first = branch(parent)
        second = branch(first, message_id=prompts(first)["Two?"])
        third = branch(second, include=False)
        assert body(second).endswith("### Two?") and body(third).endswith("Yes.\n\n")
        parents = [
            (metadata.read_branch_metadata(r.branch_dir) or {})["parent_branch"] for r in (first, second, third)
        ]
        assert parents == ["main", first.branch_name, second.branch_name]

    def test_a_session_of_stock_gptel_without_a_log_can_be_branched(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        paths.journal_file(parent.branch_dir).unlink()
        assert body(branch(parent, offset=body(parent).index("Two?"))).endswith("### Two?")


class TestPlace:
    def test_a_branch_is_named_by_time_and_the_name_as_given(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        made = branch(parent, name="Größer & Better — v2 (WIP)")
        assert made.branch_name == f"{STAMP}-Größer & Better — v2 (WIP)"
        assert made.branch_dir == parent.session_dir / "branches" / made.branch_name
        assert paths.ref_of(made.branch_dir) == made and made.session_id == parent.session_id

    def test_the_same_name_in_the_same_second_gets_a_suffix(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _: branch(parent, name="try"), range(12)))
        names = {f"{STAMP}-try", *(f"{STAMP}-try-{number}" for number in range(2, 13))}
        assert {ref.branch_name for ref in made} == names
        assert len({snapshot(ref.branch_dir)["session.md"] for ref in made}) == 1  # type: ignore[arg-type]
        assert paths.ref_of(parent.session_dir).branch_name in names

    @pytest.mark.spec("001", "Current branch symlink")
    def test_current_points_at_the_new_branch_relatively(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        made = branch(parent)
        link = parent.session_dir / "current"
        assert link.readlink() == Path("branches") / made.branch_name
        assert link.resolve() == made.branch_dir
        switch(parent)
        assert link.readlink() == Path("branches/main")

    def test_lineage_is_recorded_and_main_has_none(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        point = read_outline(parent).points[1]
        made = branch(parent, message_id=point.message_id)
        written = YAML(typ="safe").load((made.branch_dir / "branch-metadata.yml").read_text())
        assert written == {
            "parent_branch": "main",
            "created": "2026-02-05T12:30:52Z",
            "branch_point_position": point.end + 1,
        }
        assert not (parent.branch_dir / "branch-metadata.yml").exists()

    def test_the_configuration_is_inherited_to_the_byte(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        (parent.branch_dir / "scope-plan.yml").write_bytes(b'# mine\r\nsession_id: "x"\r\nupdated: 2020-01-01\r\n')
        (parent.branch_dir / "preset.md").write_bytes(b"---\nmodel: \xff # odd\n---\n")
        made = branch(parent)
        for name in ("scope-plan.yml", "preset.md"):
            assert (made.branch_dir / name).read_bytes() == (parent.branch_dir / name).read_bytes()

    def test_agents_and_files_are_copies_of_their_own(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        agent = new_agent(parent)
        save(agent, Talk(TURNS))
        nested = new_agent(agent, "deeper")
        (parent.branch_dir / "files").mkdir()
        (parent.branch_dir / "files" / "plot.png").write_bytes(b"\x89PNG")
        made = branch(parent)
        copy = made.branch_dir / "agents" / agent.session_id
        assert snapshot(copy) == snapshot(agent.branch_dir)
        assert (copy / "agents" / nested.session_id / "session.md").is_file()
        assert (made.branch_dir / "files" / "plot.png").read_bytes() == b"\x89PNG"
        (copy / "session.md").write_text("changed")
        with (copy / "messages.jsonl").open("a") as file:
            file.write("{}\n")
        assert snapshot(copy) != snapshot(agent.branch_dir) and body(agent).startswith("### One?")
        assert not any((agent.branch_dir / name).samefile(copy / name) for name in ("session.md", "preset.md"))

    def test_links_among_the_agents_are_not_followed(self, tmp_path: Path) -> None:
        parent = told(tmp_path / "s")
        agent = new_agent(parent)
        (tmp_path / "secret").mkdir()
        (tmp_path / "secret" / "key").write_text("k")
        (agent.branch_dir / "planted").symlink_to(tmp_path / "secret")
        (parent.branch_dir / "agents" / "linked").symlink_to(tmp_path / "secret")
        made = branch(parent)
        assert (made.branch_dir / "agents" / agent.session_id / "planted").is_symlink()
        assert not (made.branch_dir / "agents" / "linked").exists()

    @pytest.mark.parametrize("make", [lambda home: None, lambda home: home.mkdir()])
    def test_no_agents_are_no_failure(self, tmp_path: Path, make: Callable[[Path], None]) -> None:
        parent = told(tmp_path)
        make(parent.branch_dir / "agents")
        assert not (branch(parent).branch_dir / "agents").exists()

    def test_everything_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        new_agent(parent)
        made = branch(parent)
        for path in [made.branch_dir, *made.branch_dir.rglob("*")]:
            assert path.stat().st_mode & 0o077 == 0, path


class TestRefusal:
    @pytest.mark.parametrize(
        "name", ["", "  ", "a/b", "/", "..", ".", ".hidden", "nul\0", "line\nend", "x" * 300, "é" * 150, "\ud800"]
    )
    def test_a_name_that_is_no_file_name_makes_nothing(self, tmp_path: Path, name: str) -> None:
        parent = told(tmp_path)
        before = snapshot(tmp_path)
        with pytest.raises(BadRequest, match="cannot name a branch"):
            branch(parent, name=name)
        assert snapshot(tmp_path) == before

    @pytest.mark.parametrize("missing", [("scope-plan.yml",), ("preset.md",), ("scope-plan.yml", "preset.md")])
    def test_missing_configuration_is_named_and_nothing_made(
        self, tmp_path: Path, missing: tuple[str, ...], caplog: pytest.LogCaptureFixture
    ) -> None:
        parent = told(tmp_path)
        for name in missing:
            (parent.branch_dir / name).unlink()
        before = snapshot(tmp_path)
        with pytest.raises(NotFound) as raised:
            branch(parent)
        logged = next(record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
        assert all(name in str(raised.value) and name in logged for name in missing)
        assert snapshot(tmp_path) == before

    def test_a_session_without_prompts_is_not_branched(self, tmp_path: Path) -> None:
        parent = new_session(tmp_path)
        before = snapshot(tmp_path)
        with pytest.raises(NotFound, match="no prompt"):
            branch(parent)
        assert snapshot(tmp_path) == before

    def test_only_prompts_of_this_document_can_be_chosen(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        answer = next(m.id for m in conversation(parent).messages.values() if m.role == "assistant")
        wrong: list[dict[str, Any]] = [
            {"message_id": "msg_unheard"},
            {"message_id": answer},
            {"offset": body(parent).index("Yes.") + 1},
            {"offset": 10**9},
            {"offset": -5},
        ]
        before = snapshot(tmp_path)
        for arguments in wrong:
            with pytest.raises(NotFound):
                branch(parent, **arguments)
        assert snapshot(tmp_path) == before

    def test_an_agent_has_no_branches(self, tmp_path: Path) -> None:
        agent = new_agent(told(tmp_path))
        for attempt in (lambda: branch(agent), lambda: switch(agent)):
            with pytest.raises(BadRequest, match="agent"):
                attempt()

    def test_a_run_before_the_point_must_have_ended(self, tmp_path: Path) -> None:
        talk = Talk(TURNS)
        talk.type("Four?")
        talk.start(talk.user("Four?"))
        talk.type("\n\n### Later")
        parent = new_session(tmp_path)
        save(parent, talk)
        before = snapshot(tmp_path)
        with pytest.raises(Busy):
            branch(parent)
        assert snapshot(tmp_path) == before
        assert body(branch(parent, message_id=prompts(parent)["Four?"])).endswith("### Four?")

    def test_whatever_the_disk_refuses_leaves_nothing(self, tmp_path: Path) -> None:
        parent = told(tmp_path)
        new_agent(parent)
        (parent.branch_dir / "files").mkdir()
        (parent.branch_dir / "files" / "a").write_text("a")
        before = snapshot(tmp_path)
        assert count_calls(parent) > 20
        for number in range(count_calls(parent)):
            with fails(number), pytest.raises(PyagentdError):
                branch(parent)
            assert snapshot(tmp_path) == before, f"call {number}"
        branch(parent)

    def test_a_refusal_of_the_disk_is_logged(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        parent = told(tmp_path)
        with fails(0), pytest.raises(StoreError):
            branch(parent)
        assert any(r.levelno == logging.ERROR and "Failed to create branch" in r.getMessage() for r in caplog.records)


class fails:
    """While entered, the call with this number (from 0) that changes the disk is refused."""

    CHANGING = ("write", "fsync", "replace", "mkdir", "symlink")

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> fails:
        for name in self.CHANGING:
            self._patch.setattr(atomic.system, name, self._refusing(getattr(atomic.system, name)), raising=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _refusing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def attempt(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls - 1 == self.number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **options)

        return attempt


def count_calls(parent: BranchRef) -> int:
    """How often making a branch changes the disk."""
    with fails(-1) as counting:
        made = branch(parent)
    atomic.discard(made.branch_dir)
    switch(parent)
    return counting.calls


def test_what_happens_is_logged_literally(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    parent = told(tmp_path)
    agent = new_agent(parent)
    length = len(body(parent))
    caplog.clear()
    point = read_outline(parent).points[1]
    made = branch(parent, message_id=point.message_id)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said == [
        ("INFO", f"Creating branch: {made.branch_name} from parent: main"),
        ("INFO", f"Created branch directory: {made.branch_dir}"),
        ("DEBUG", f"Copied agent directory: {agent.session_id}"),
        ("INFO", "Copied 1 agent directories to branch"),
        ("INFO", f"Copied truncated context: {length} -> {point.end + 1} chars, bounds: 3 types"),
        ("DEBUG", f"Updated current symlink: {made.branch_name}"),
        ("INFO", f"Branch created successfully: {made.branch_name}"),
    ]


def test_a_directory_that_dies_half_way_is_no_branch(tmp_path: Path) -> None:
    parent = told(tmp_path)
    half = parent.session_dir / "branches" / "20260101000000-half"
    half.mkdir()
    (half / "preset.md").touch()
    assert "session.md" not in tree(half)
    with pytest.raises(PyagentdError):
        paths.ref_of(half)
