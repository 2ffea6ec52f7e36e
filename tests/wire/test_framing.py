"""Frames: cut out of any stream, bounded, and answerable even when unreadable."""

from __future__ import annotations

import random

import pytest

from pyagentd.errors import Busy, PyagentdError, TransientProviderError, WireError
from pyagentd.wire.frames import (
    MAX_FRAME,
    BadHeader,
    FrameReader,
    FrameTooLarge,
    Oversized,
    call,
    error_from,
    failure,
    frame,
    parse,
    uid_of,
)
from pyagentd.wire.sexp import decode


def test_the_header_counts_bytes_and_the_newline() -> None:
    assert frame("é".encode()) == b"000003\xc3\xa9\n"


def test_frames_come_out_of_any_chunking_of_the_stream() -> None:
    rng = random.Random(1)
    payloads = [bytes(rng.randrange(256) for _ in range(rng.randrange(300))) + b"\n" for _ in range(200)]
    stream = b"".join(frame(payload[:-1]) for payload in payloads)
    reader = FrameReader(1024)
    received: list[bytes | Oversized] = []
    while stream:
        size = rng.randrange(1, 400)
        received += reader.feed(stream[:size])
        stream = stream[size:]
    assert received == payloads


@pytest.mark.parametrize("size", [1, 7, 64, 100, 5000])
def test_a_frame_beyond_the_limit_is_skipped_and_the_next_one_read(size: int) -> None:
    stream = call(12, "echo", "x" * 3000) + call(13, "echo", "y")
    reader = FrameReader(1024)
    received: list[bytes | Oversized] = []
    for start in range(0, len(stream), size):
        received += reader.feed(stream[start : start + size])
        assert len(reader._buffer) <= max(1024, size)
    skipped, following = received
    assert isinstance(skipped, Oversized)
    assert uid_of(skipped.head) == 12
    assert isinstance(following, bytes)
    assert parse(following).uid == 13


@pytest.mark.parametrize(
    "garbage", [b"POST / HTTP/1.1\r\n", b"+0x12f(call", b"00 00f", b"\0\0\0\0\0\0", b"-00001", b"0x0011"]
)
def test_what_is_no_header_ends_the_stream(garbage: bytes) -> None:
    with pytest.raises(BadHeader):
        list(FrameReader(1024).feed(garbage))


def test_the_limit_may_change_between_two_frames_of_one_chunk() -> None:
    reader = FrameReader(64)
    kinds = []
    for item in reader.feed(frame(b"a") + frame(b"b" * 100)):
        kinds.append(type(item))
        reader.limit = 1000
    assert kinds == [bytes, bytes]


def test_a_frame_that_six_digits_cannot_describe_is_not_built() -> None:
    assert len(frame(b"x" * (MAX_FRAME - 1))) == MAX_FRAME + 6
    with pytest.raises(FrameTooLarge, match=r"16777215 are the most\. Send or ask for less"):
        frame(b"x" * MAX_FRAME)


@pytest.mark.parametrize(
    ("head", "uid"),
    [
        (b'(call 12 echo ("unterminated', 12),
        (b"(call 12", None),
        (b"(methods 3)", 3),
        (b"( call  0 x", 0),
        (b"(return 5 nil)", None),
        (b"(call x echo", None),
        (b"", None),
    ],
)
def test_the_uid_of_an_unreadable_call_is_found(head: bytes, uid: int | None) -> None:
    assert uid_of(head) == uid


@pytest.mark.parametrize(
    "payload", [b"nil", b"42", b"(call)", b'("call" 1)', b"(call t echo nil)", b"(call nil echo nil)"]
)
def test_what_is_no_message_is_an_error(payload: bytes) -> None:
    with pytest.raises(WireError):
        parse(payload)


@pytest.mark.parametrize("error", [Busy("Busy", hint="Wait"), PyagentdError("Odd"), TransientProviderError("Later")])
def test_an_error_is_of_the_same_class_on_the_other_side(error: PyagentdError) -> None:
    _, uid, description = decode(failure(4, error)[6:])
    received = error_from(description)
    assert (uid, type(received), received.message, received.hint) == (4, type(error), error.message, error.hint)


def test_an_error_with_an_endless_message_can_still_be_told() -> None:
    assert len(failure(1, PyagentdError("x" * 0x2000000))) < 1 << 20


def test_an_error_of_a_foreign_peer_is_a_wire_error() -> None:
    assert "No such method" in error_from("EPC-ERROR: No such method : x").message
