"""What a client is told: exact in order, merged in form, bounded in size."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyagentd.events import Event
from pyagentd.wire.connection import BACKLOG, BATCH, PIECE, Outbox
from pyagentd.wire.frames import FrameReader
from pyagentd.wire.sexp import decode
from tests.examples import examples


class Wire:
    """An outbox with a hand-turned pulse and a socket that may be full."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.requested: set[Callable[[], None]] = set()
        self.urgent = False  # whether something was requested that does not wait for a beat
        self.room = 10**9  # bytes until the socket is full
        self.outbox = Outbox(self._write, self._request)

    def _request(self, phase: str, flush: Callable[[], None], *, urgent: bool) -> None:
        self.requested.add(flush)
        self.urgent = self.urgent or urgent

    def _write(self, data: bytes) -> None:
        self.frames.append(data)
        self.room -= len(data)
        if self.room <= 0:
            self.outbox.pause()

    def beat(self) -> list[Any]:
        """Let one beat pass; return the events that left."""
        before = len(self.frames)
        requested = set(self.requested)
        self.requested.clear()
        for flush in requested:
            flush()
        return [event for frame in self.frames[before:] for event in _events(frame)]

    def drain(self) -> list[Any]:
        self.room = 10**9
        self.outbox.resume()
        return self.beat()

    def insert(self, branch: str, seq: int, text: str, role: Any = "response") -> None:
        self.outbox.push(Event("insert", branch, seq, (text, role)))


def _events(frame: bytes) -> list[Any]:
    (payload,) = FrameReader(1 << 24).feed(frame)
    assert isinstance(payload, bytes)
    verb, uid, method, [batch] = decode(payload)
    assert (verb, uid, method) == ("call", 0, "events")
    return list(batch)


@pytest.fixture
def wire() -> Wire:
    return Wire()


def test_adjacent_text_merges_across_other_branches_and_takes_the_last_number(wire: Wire) -> None:
    wire.insert("a", 1, "one ")
    wire.insert("b", 7, "x")
    wire.insert("a", 2, "two")
    assert wire.beat() == [["insert", "a", 2, "one two", "response"], ["insert", "b", 7, "x", "response"]]


@pytest.mark.parametrize("role", [None, "ignore", ("tool", "id")])
def test_text_of_another_role_does_not_merge(wire: Wire, role: Any) -> None:
    wire.insert("a", 1, "one")
    wire.insert("a", 2, "two", role)
    assert [event[3] for event in wire.beat()] == ["one", "two"]


def test_text_does_not_merge_across_the_branchs_own_events(wire: Wire) -> None:
    wire.insert("a", 1, "one")
    wire.outbox.push(Event("status", "a", 0, ({"state": "busy"},)))
    wire.insert("a", 2, "two")
    assert [event[0] for event in wire.beat()] == ["insert", "status", "insert"]


def test_nothing_is_requested_without_need_and_one_beat_is_one_frame(wire: Wire) -> None:
    wire.insert("a", 1, "")
    assert not wire.requested
    for seq in range(1, 1000):
        wire.insert(f"branch {seq % 20}", seq, "token ")
    assert len(wire.requested) == 1
    wire.beat()
    assert len(wire.frames) == 1
    assert not wire.requested


def test_a_row_of_several_events_is_complete_only_with_the_last(wire: Wire) -> None:
    wire.outbox.push(Event("run", "a", 4, ({"phase": "started"},)))
    wire.outbox.push(Event("status", "a", 0, ({"state": "busy"},)))
    wire.insert("a", 4, "\n\n", None)
    wire.insert("a", 5, "``` tool", "ignore")
    wire.insert("a", 5, "result", ("tool", "id"))
    wire.insert("a", 5, "\n```\n", "ignore")
    assert [event[2] for event in wire.beat()] == [0, 0, 4, 0, 0, 5]


def test_a_huge_text_is_split_and_only_the_last_piece_has_its_number(wire: Wire) -> None:
    text = "\U0001f389" * (10 * PIECE) + "end"
    wire.insert("a", 9, text)
    events = wire.beat()
    assert "".join(event[3] for event in events) == text
    assert [event[2] for event in events] == [0] * 10 + [9]
    assert len(wire.frames) > 1
    assert all(len(frame) <= BATCH + 100 for frame in wire.frames)


def test_a_full_socket_holds_events_back_and_merging_goes_on(wire: Wire) -> None:
    wire.outbox.pause()
    for seq in range(1, 101):
        wire.insert("a", seq, "x")
    assert not wire.requested
    assert wire.drain() == [["insert", "a", 100, "x" * 100, "response"]]


def test_a_socket_that_fills_up_stops_the_flush_between_frames(wire: Wire) -> None:
    wire.insert("a", 1, "x" * (5 * BATCH))
    wire.room = BATCH
    first = wire.beat()
    assert 0 < len(wire.frames) < 4
    assert "".join(event[3] for event in first + wire.drain()) == "x" * (5 * BATCH)


def test_too_much_is_dropped_and_each_branch_is_told_where_to_start_again(wire: Wire) -> None:
    wire.outbox.reset("attached", 40)
    wire.insert("shown", 3, "seen")
    wire.beat()
    wire.outbox.pause()
    wire.insert("shown", 4, "lost")
    wire.insert("attached", 41, "lost")
    wire.outbox.push(Event("status", "new", 0, ({"state": "idle"},)))
    wire.insert("shown", 5, "x" * BACKLOG)
    wire.insert("shown", 6, "lost too")
    wire.insert("other", 1, "after")
    assert wire.drain() == [
        ["resync", "shown", 3],
        ["resync", "attached", 40],
        ["resync", "new", 0],
        ["insert", "other", 1, "after", "response"],
    ]


def test_text_that_also_begins_another_row_has_the_number_of_what_it_completes(wire: Wire) -> None:
    wire.insert("a", 3, "three ")
    wire.insert("a", 4, "four ")
    wire.insert("a", 5, "five begins ")
    wire.insert("a", 5, "five ends", "ignore")
    assert [event[2:4] for event in wire.beat()] == [[4, "three four five begins "], [5, "five ends"]]


def test_a_backlog_is_dropped_between_rows_and_not_inside_one(wire: Wire) -> None:
    wire.insert("a", 7, "x" * (3 * BATCH))
    wire.insert("a", 7, "end of row", "ignore")
    wire.insert("a", 8, "lost", "ignore")
    wire.room = 1
    begun = wire.beat()
    assert begun[-1][2] == 0
    wire.insert("b", 1, "x" * (BACKLOG + 1))
    wire.insert("c", 1, "x" * (BACKLOG + 1))
    rest = wire.drain()
    assert [event[:3] for event in rest[-4:]] == [
        ["insert", "a", 8],
        ["resync", "a", 8],
        ["resync", "b", 0],
        ["resync", "c", 0],
    ]
    assert "".join(event[3] for event in (begun + rest)[:-3]) == "x" * (3 * BATCH) + "end of rowlost"


def test_a_branch_that_lost_events_is_silent_until_it_is_attached_anew(wire: Wire) -> None:
    wire.outbox.pause()
    wire.insert("a", 1, "x" * (BACKLOG + 1))
    assert wire.drain() == [["resync", "a", 0]]
    wire.insert("a", 2, "unseen")
    assert wire.beat() == []
    wire.outbox.reset("a", 2)
    wire.insert("a", 3, "seen")
    assert wire.beat() == [["insert", "a", 3, "seen", "response"]]


def test_a_second_overflow_keeps_what_the_first_one_said(wire: Wire) -> None:
    wire.outbox.pause()
    wire.outbox.reset("a", 5)
    wire.insert("a", 6, "x" * (BACKLOG + 1))
    wire.insert("b", 1, "x" * (BACKLOG + 1))
    assert wire.drain() == [["resync", "a", 5], ["resync", "b", 0]]


def test_tiny_pieces_for_a_stalled_client_cost_no_more_than_the_bound(wire: Wire) -> None:
    wire.outbox.pause()
    tracemalloc.start()
    try:
        for seq in range(1, 200_001):
            wire.insert(f"b{seq % 5}", seq, "toké")
            if seq % 3 == 0:
                wire.outbox.push(Event("status", f"b{seq % 5}", 0, ({"state": "busy", "detail": "x" * 50},)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * BACKLOG


def test_attaching_forgets_what_its_answer_covers_and_leaves_other_branches_alone(wire: Wire) -> None:
    wire.insert("a", 1, "covered")
    wire.insert("b", 1, "kept")
    wire.outbox.reset("a", 1)
    wire.insert("a", 2, "new")
    assert wire.beat() == [["insert", "b", 1, "kept", "response"], ["insert", "a", 2, "new", "response"]]


def test_an_event_that_fits_no_frame_becomes_a_resync(wire: Wire) -> None:
    wire.outbox.reset("a", 4)
    wire.insert("b", 1, "before")
    wire.outbox.push(Event("prompt", "a", 5, ("x" * 7_000_000,)))
    assert len(wire.beat()[1][3]) == 7_000_000
    wire.outbox.reset("a", 5)
    huge = '"' * 8_400_000  # 16.8 MB once escaped
    wire.outbox._size = -(10**9)  # as though the bound were higher
    wire.outbox.push(Event("prompt", "a", 6, (huge,)))
    wire.insert("b", 2, "after")
    assert wire.beat() == [["insert", "b", 2, "after", "response"], ["resync", "a", 5]]


def test_of_what_only_the_last_word_counts_one_frame_has_the_last_word_where_it_was_said(wire: Wire) -> None:
    wire.outbox.push(Event("status", "a", 0, ({"phase": "WAIT"},)))
    wire.outbox.push(Event("status", "b", 0, ({"phase": "TOOL"},)))
    wire.outbox.push(Event("context", "a", 0, ({"used": 1},)))
    wire.insert("a", 1, "one")
    wire.outbox.push(Event("status", "a", 0, ({"phase": "TYPE"},)))
    wire.outbox.push(Event("status", "a", 0, ({"phase": "TRET"},)))
    assert wire.beat() == [
        ["status", "b", 0, [":phase", "TOOL"]],
        ["context", "a", 0, [":used", 1]],
        ["insert", "a", 1, "one", "response"],
        ["status", "a", 0, [":phase", "TRET"]],
    ]
    wire.outbox.push(Event("status", "a", 0, ({"phase": "WAIT"},)))
    assert wire.beat() == [["status", "a", 0, [":phase", "WAIT"]]]


def test_what_cannot_be_encoded_is_logged_and_nothing_else_suffers(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.insert("a", 1, "one")
    wire.outbox.push(Event("ask", "a", 2, ({"preview": b"bytes"},)))
    wire.outbox.push(Event("insert", "a", 2, (b"bytes", None)))
    wire.outbox.push(Event("insert", "a", 2, ("text", object())))  # type: ignore[arg-type]
    wire.outbox.push(Event("insert", "a", 2, ("no role",)))
    wire.insert("a", 3, "two")
    assert "".join(event[3] for event in wire.beat()) == "onetwo"
    assert len(caplog.records) == 4


def test_a_closed_outbox_takes_nothing(wire: Wire) -> None:
    wire.insert("a", 1, "one")
    wire.outbox.close()
    wire.insert("a", 2, "two")
    assert wire.beat() == []


# Property: whatever is pushed and however it is cut, each branch sees exactly its rows, in order.

roles = st.sampled_from([None, "response", "ignore", ("tool", "1"), ("tool", "2")])
short = st.text('abé\U0001f389"\\', max_size=5)
pieces = st.integers(0, 30).flatmap(lambda n: short if n else st.just("long" * (PIECE // 3)))
row_events = st.one_of(
    st.tuples(st.just("insert"), pieces, roles), st.tuples(st.just("run"), st.integers(), st.none())
)
rows = st.lists(row_events, min_size=1, max_size=4)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.sampled_from("xyz"), rows),
        st.tuples(st.just("unnumbered"), st.sampled_from("xyz"), st.just([])),
        st.tuples(st.just("beat"), st.just(""), st.just([])),
        st.tuples(st.just("stall"), st.just(""), st.just([])),
        st.tuples(st.just("resume"), st.just(""), st.just([])),
    ),
    max_size=40,
)


@settings(max_examples=examples(150), deadline=None)
@given(actions)
def test_each_branch_is_shown_its_rows_exactly_and_numbers_never_promise_too_much(plan: list[Any]) -> None:
    wire = Wire()
    pushed: dict[str, list[Any]] = {branch: [] for branch in "xyz"}  # characters and events, with their rows
    seqs = dict.fromkeys("xyz", 0)
    events: list[Any] = []
    for action, branch, row in plan:
        match action:
            case "row":
                seqs[branch] += 1
                for kind, value, role in row:
                    _push(wire, pushed[branch], kind, branch, seqs[branch], value, role)
            case "unnumbered":
                _push(wire, pushed[branch], "notice", branch, 0, "s", None)
            case "beat":
                events += wire.beat()
            case "stall":
                wire.room = 1
            case "resume":
                events += wire.drain()
    events += wire.drain()
    for branch in "xyz":
        mine = [event for event in events if event[1] == branch]
        assert [unit for event in mine for unit in _units(event)] == [unit for unit, _ in pushed[branch]]
        _check_numbers(mine, pushed[branch])


def _push(wire: Wire, pushed: list[Any], kind: str, branch: str, seq: int, value: Any, role: Any) -> None:
    event = Event(kind, branch, seq, (value, role) if kind == "insert" else (value,))  # type: ignore[arg-type]
    wire.outbox.push(event)
    as_received = [kind, branch, seq, value, list(role) if isinstance(role, tuple) else role][: 3 + len(event.args)]
    pushed += [(unit, seq) for unit in _units(as_received)]


def _units(event: list[Any]) -> list[Any]:
    """Return an insert character by character with its role, any other event as it is without its number."""
    kind, _, _, *arguments = event
    if kind != "insert":
        return [(kind, *arguments)]
    text, role = arguments
    return [(character, [str(part) for part in role] if isinstance(role, list) else role) for character in text]


def _check_numbers(events: list[Any], pushed: list[Any]) -> None:
    shown = 0
    reached = 0
    for event in events:
        shown += len(_units(event))
        if event[2]:
            assert event[2] >= reached
            reached = event[2]
            # Nothing of a row up to the number is still to come.
            assert all(seq == 0 or seq > reached for _, seq in pushed[shown:])
    numbers = [seq for _, seq in pushed if seq]
    assert not numbers or reached >= max(numbers) - 1


def test_events_of_no_branch_go_on_after_some_were_lost(wire: Wire) -> None:
    wire.outbox.pause()
    for _ in range(BACKLOG // 100_000 + 2):
        wire.outbox.push(Event("notice", "", 0, ({"text": "x" * 100_000},)))
    assert len(wire.drain()) < 10
    wire.outbox.push(Event("notice", "", 0, ({"text": "later"},)))
    assert len(wire.beat()) == 1


@pytest.mark.parametrize("kind", ["run", "ask", "answered"])
def test_what_somebody_waits_for_leaves_without_a_beat_and_behind_what_came_before(kind: str) -> None:
    wire = Wire()
    wire.insert("b", 1, "text")
    assert not wire.urgent
    wire.outbox.push(Event(kind, "b", 2, ({"phase": "finished"},)))
    assert wire.urgent
    assert [event[0] for event in wire.beat()] == ["insert", kind]


def test_of_each_agent_the_last_state_before_a_beat_and_its_end_are_told() -> None:
    wire = Wire()
    for state, name in (("wait", "one"), ("wait", "two"), ("tool", "one"), ("finished", "one")):
        wire.outbox.push(Event("agent", "b", 0, ({"id": name, "state": state},)))
    told = [dict(zip(event[3][::2], event[3][1::2], strict=True)) for event in wire.beat()]
    states = [(agent[":id"], agent[":state"]) for agent in told]
    assert states == [("two", "wait"), ("one", "tool"), ("one", "finished")]
    wire.outbox.push(Event("agent", "b", 0, ({"id": "two", "state": "finished"},)))
    assert len(wire.beat()) == 1
