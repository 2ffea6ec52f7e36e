"""Agents that a killed daemon left in the middle are finished when somebody opens the branch above them."""

from __future__ import annotations

from pyagentd.store import paths, sessions
from pyagentd.store.journal import Journal
from pyagentd.store.metadata import child_agents
from pyagentd.store.paths import BranchRef
from pyagentd.store.registry import unfinished_agents
from tests.faults.files import age_everything, branch_problems
from tests.runtime.fixtures import world
from tests.runtime.world import FixedClock, World, assert_closed, body

__all__ = ["world"]


def left_in_the_middle(parent: BranchRef, preset: str) -> BranchRef:
    """Make an agent whose daemon was killed while its model spoke, and while its document was written."""
    ref = sessions.create_agent(
        parent, preset_name="main", preset_text=preset, description="look", read=["/**"], clock=FixedClock()
    )
    journal = Journal.open(paths.journal_file(ref.branch_dir))
    part = {"message_id": "a", "index": 0, "type": "text"}
    journal.append_many(
        [
            ("message", {"id": "u", "role": "user"}),
            ("part", {**part, "id": "q", "message_id": "u", "data_json": {"type": "text", "text": "Look."}}),
            ("run", {"id": "r", "state": "started", "message_id": "u", "anchor": 0, "prompt": "Look."}),
            ("message", {"id": "a", "role": "assistant"}),
            ("part", {**part, "id": "p", "data_json": {"type": "text", "text": "", "state": "streaming"}}),
            ("delta", {"part_id": "p", "text": "I see a "}),
        ]
    )
    journal.close()
    (ref.branch_dir / ".session.md.0123456789abcdef.tmp").write_text("half")
    age_everything(ref.branch_dir)
    return ref


async def test_opening_a_branch_finishes_the_agents_below_it_at_any_depth(world: World) -> None:
    preset = (world.presets / "main.md").read_text()
    parent = world.session()
    agent = left_in_the_middle(parent, preset)
    nested = left_in_the_middle(agent, preset)
    assert [ref.key for ref in unfinished_agents(parent.branch_dir)] == [agent.key, nested.key]
    async with world.kernel.using(parent):
        pass
    await world.kernel.shutdown()
    for ref in (agent, nested):
        assert assert_closed(ref)["reason"] == "restart"
        assert body(ref).startswith("Look.\n\nI see a ")
        assert branch_problems(ref) == []
    assert unfinished_agents(parent.branch_dir) == []


async def test_links_among_the_agents_are_no_agents_and_lead_to_no_others(world: World) -> None:
    parent = world.session()
    agent = left_in_the_middle(parent, (world.presets / "main.md").read_text())
    for name in ("up", "again"):
        (agent.branch_dir.parent / name).symlink_to("..")
    assert unfinished_agents(parent.branch_dir) == [agent]
    assert child_agents(parent) == [agent]
