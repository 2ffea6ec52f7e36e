"""Server-sent events survive every way a network may cut them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyagentd.llm.http import SseDecoder, SseEvent

STREAM = (
    b": a comment\n\n"
    b'event: message_start\ndata: {"a": 1}\n\n'
    b"id: 7\nretry: 10\n\n"
    b"data:no space\n\n"
    b"event: lines\ndata: one\ndata:\ndata:  two\n\n"
    b"\n\n\n"
    b"data: \xc3\xa9\xe2\x82\xac\n\n"
    b"unknown: field\ndata: last\n\n"
)
EVENTS = [
    SseEvent("message_start", b'{"a": 1}'),
    SseEvent("", b"no space"),
    SseEvent("lines", b"one\n\n two"),
    SseEvent("", "é€".encode()),
    SseEvent("", b"last"),
]


def decode(chunks: list[bytes]) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_every_line_end_and_every_chunk_size_gives_the_same_events(end: bytes, size: int) -> None:
    stream = STREAM.replace(b"\n", end)
    assert decode([stream[at : at + size] for at in range(0, len(stream), size)]) == EVENTS


@given(st.lists(st.integers(0, 2 * len(STREAM))), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_cuts_anywhere_change_nothing(cuts: list[int], end: bytes) -> None:
    stream = STREAM.replace(b"\n", end)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    assert decode([stream[a:b] for a, b in pairwise(edges)]) == EVENTS


def test_all_events_of_a_chunk_come_as_one_batch() -> None:
    assert SseDecoder().feed(b"data: 1\n\ndata: 2\n\ndata: 3") == [SseEvent("", b"1"), SseEvent("", b"2")]


def test_an_event_without_its_blank_line_is_held_back() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: half\n") == []
    assert decoder.feed(b"\n") == [SseEvent("", b"half")]


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    assert decode([b"\xef\xbb\xbfdata: x\n\n"]) == [SseEvent("", b"x")]


def test_a_large_event_in_small_chunks_is_joined_once() -> None:
    data = b"x" * 1_000_000
    stream = b"data: " + data + b"\n\n"
    assert decode([stream[at : at + 100] for at in range(0, len(stream), 100)]) == [SseEvent("", data)]
