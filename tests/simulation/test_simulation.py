"""A few of the schedules that ``make test-simulation`` runs by the thousand, and that the checks can fail."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from pyagentd.messages import Message, Text
from tests.simulation import reference
from tests.simulation.__main__ import simulate
from tests.simulation.loop import Hang, VirtualLoop


def test_whatever_people_networks_and_machines_do_the_conversation_holds() -> None:
    done = {name for number in range(30, 54) for name in simulate(number, operations=24).done}
    wanted = {"send", "cancel", "steer", "abort", "rewind", "unrewind", "fork", "compact", "approve", "deny", "kill"}
    assert wanted <= done, "each comes to something, at least once"


def test_who_edits_the_document_meanwhile_loses_and_doubles_nothing() -> None:
    done = {name for number in range(1, 11) for name in simulate(number, operations=24, typing=True).done}
    assert {"type", "leave", "send", "rest", "kill"} <= done


def test_schedules_are_the_same_for_the_same_number() -> None:
    first, again = simulate(77, operations=24), simulate(77, operations=24)
    assert first.done == again.done
    assert [said.text for said in first.said.values()] == [said.text for said in again.said.values()]


def test_a_loop_in_which_nothing_is_due_says_that_it_hangs() -> None:
    loop = VirtualLoop(Random(1))
    with pytest.raises(Hang):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_the_reference_reads_a_log_by_hand(tmp_path: Path) -> None:
    rows = [
        ("message", {"id": "m1", "role": "user", "metadata_json": {}}),
        ("part", {"id": "p1", "message_id": "m1", "type": "text", "data_json": {"type": "text", "text": "Hello"}}),
        ("run", {"id": "r1", "state": "started", "message_id": "m1"}),
        ("message", {"id": "m2", "role": "assistant", "metadata_json": {"hidden_at": 1}}),
        ("part", {"id": "p2", "message_id": "m2", "type": "text", "data_json": {"type": "text", "text": "Gone"}}),
        ("message", {"id": "m3", "role": "assistant", "metadata_json": {}}),
        ("part", {"id": "p3", "message_id": "m3", "type": "text", "data_json": {"type": "text", "text": "He"}}),
        ("delta", {"part_id": "p3", "text": "re"}),
        ("message", {"id": "m4", "role": "user", "metadata_json": {"queued_at": 5}}),
        ("part", {"id": "p4", "message_id": "m4", "type": "text", "data_json": {"type": "text", "text": "Later"}}),
    ]
    file = tmp_path / "messages.jsonl"
    lines = [json.dumps({"seq": seq, "type": kind, "data": data}) for seq, (kind, data) in enumerate(rows, 1)]
    file.write_text("\n".join(lines) + '\n{"seq": 11, "ty')
    assert reference.view(reference.Log.read(file)) == (
        Message(role="user", parts=(Text(text="Hello"),)),
        Message(role="assistant", parts=(Text(text="Here"),)),
    )
