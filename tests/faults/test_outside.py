"""Other programs change the files of a session that is open: git, a synchronising program, a person."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyagentd.store import paths
from tests.faults.files import branch_problems
from tests.faults.turn import Turn
from tests.runtime.fixtures import world
from tests.runtime.world import Watcher, World, attached, body, rows

__all__ = ["world"]


def copied(branch: Path) -> dict[str, bytes]:
    return {name: (branch / name).read_bytes() for name in ("session.md", "messages.jsonl")}


def put_back(branch: Path, files: dict[str, bytes]) -> None:
    """Replace files as git does: others, of the same name."""
    for name, content in files.items():
        (branch / "new").write_bytes(content)
        (branch / "new").replace(branch / name)


async def test_a_session_that_is_checked_out_anew_while_somebody_watches_goes_on_from_there(world: World) -> None:
    turn = Turn(world)
    await turn.begin()
    await turn.say("One?")
    then = copied(turn.ref.branch_dir)
    watcher = Watcher()
    async with world.kernel.using(turn.ref) as branch:
        await attached(branch, watcher)
    await turn.say("Two?")
    put_back(turn.ref.branch_dir, then)
    assert (await turn.say("Three?"))[0] == "done"
    assert watcher.of("resync", turn.ref.key), "who watched has another text now"
    found = body(turn.ref)
    assert "### One?" in found and "### Three?" in found and "### Two?" not in found
    asked = world.server.last.messages
    assert "Two?" not in str(asked) and "One?" in str(asked)
    assert branch_problems(turn.ref) == []


async def test_a_log_that_is_replaced_during_a_run_ends_it_and_what_was_shown_is_kept(world: World) -> None:
    turn = Turn(world)
    await turn.begin()
    await turn.say("One?")
    then = copied(turn.ref.branch_dir)["messages.jsonl"]
    watcher = Watcher()
    async with world.kernel.using(turn.ref) as branch:
        await attached(branch, watcher)
        await world.kernel.prompt(branch, text="Two?", options=world.options)
        await watcher.until(lambda: "word1" in watcher.text(turn.ref.key))
        put_back(turn.ref.branch_dir, {"messages.jsonl": then})
        end = await watcher.finished(branch)
        branch.detach(watcher)
    assert end["reason"] == "error"
    assert "messages.jsonl was replaced by another program" in end["message"]
    kept = (turn.ref.branch_dir / "messages.replaced.jsonl").read_text()
    assert "Two?" in kept and "word1" in kept
    assert (await turn.say("Three?"))[0] == "done"
    assert rows(turn.ref)[-1].data["state"] == "kept"


@pytest.mark.parametrize("name", ["messages.jsonl", "session.md"])
async def test_a_file_that_is_removed_while_the_session_is_open_comes_back(world: World, name: str) -> None:
    turn = Turn(world)
    await turn.begin()
    watcher = Watcher()
    async with world.kernel.using(turn.ref) as branch:
        await attached(branch, watcher)
    await turn.say("One?")
    (turn.ref.branch_dir / name).unlink()
    assert (await turn.say("Two?"))[0] == "done"
    assert (turn.ref.branch_dir / name).is_file()
    if name == "messages.jsonl":
        assert branch_problems(turn.ref) == []
        assert "One?" in str(world.server.last.messages)


async def test_a_session_that_is_moved_while_it_is_open_is_found_at_its_new_place(world: World) -> None:
    turn = Turn(world)
    await turn.begin()
    await turn.say("One?")
    watcher = Watcher()
    async with world.kernel.using(turn.ref) as branch:
        await attached(branch, watcher)
    moved = turn.ref.session_dir.with_name("elsewhere-20260101000000")
    shutil.move(turn.ref.session_dir, moved)
    turn.ref = paths.ref_of(moved)
    assert (await turn.say("Two?"))[0] == "done"
    assert "### One?" in body(turn.ref) and "### Two?" in body(turn.ref)
    assert branch_problems(turn.ref) == []
