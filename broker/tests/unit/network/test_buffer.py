"""Growth, compaction and limits of the receive buffer."""

from __future__ import annotations

import pytest

from odradek.base.errors import MalformedFrameError
from odradek.network.buffer import BUSY_BYTES, INITIAL_BYTES, KEPT_BYTES, FrameBuffer


def fill(buffer: FrameBuffer, data: bytes) -> None:
    while data:
        space = buffer.free_space()
        assert len(space) > 0
        count = min(len(space), len(data))
        space[:count] = data[:count]
        buffer.received(count)
        data = data[count:]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_a_frame_stays_until_it_is_consumed() -> None:
    buffer = FrameBuffer(100)
    fill(buffer, framed(b"one") + framed(b"two"))

    assert bytes(buffer.next_frame() or b"") == b"one"
    assert bytes(buffer.next_frame() or b"") == b"one"
    buffer.consume()
    assert bytes(buffer.next_frame() or b"") == b"two"
    buffer.consume()
    assert buffer.next_frame() is None
    assert buffer.unread_bytes == 0


def test_an_incomplete_frame_is_no_frame() -> None:
    buffer = FrameBuffer(100)
    fill(buffer, framed(b"three")[:-1])

    assert buffer.next_frame() is None
    assert not buffer.has_frame()
    fill(buffer, b"e")
    assert buffer.has_frame()


@pytest.mark.parametrize(("length", "accepted"), [(1, True), (100, True), (101, False), (0, False), (-5, False)])
def test_lengths_are_held_to_the_limit(length: int, accepted: bool) -> None:
    buffer = FrameBuffer(100)
    fill(buffer, length.to_bytes(4, "big", signed=True))

    if accepted:
        assert buffer.next_frame() is None
        assert not buffer.has_frame()
    else:
        assert buffer.has_frame(), "next_frame must report the invalid length"
        with pytest.raises(MalformedFrameError):
            buffer.next_frame()


def test_memory_follows_what_has_arrived() -> None:
    buffer = FrameBuffer(100 << 20)
    fill(buffer, (100 << 20).to_bytes(4, "big"))
    assert buffer.capacity == INITIAL_BYTES
    for _ in range(20):
        fill(buffer, bytes(50_000))
        assert buffer.capacity <= max(4 * buffer.unread_bytes + 4 * INITIAL_BYTES, INITIAL_BYTES)


def test_a_busy_connection_reads_more_at_once() -> None:
    buffer = FrameBuffer(100 << 20)
    for _ in range(200):
        fill(buffer, framed(bytes(10_000)))
        while buffer.next_frame() is not None:
            buffer.consume()
        buffer.tidy()

    assert INITIAL_BYTES < buffer.capacity <= BUSY_BYTES


def test_large_buffers_are_freed_at_once_and_small_ones_when_unused() -> None:
    buffer = FrameBuffer(100 << 20)
    fill(buffer, framed(bytes(KEPT_BYTES + 1)))
    assert buffer.next_frame() is not None
    buffer.consume()
    buffer.tidy()
    assert buffer.capacity == BUSY_BYTES

    buffer.shrink()
    assert buffer.capacity == BUSY_BYTES, "it was needed since the last time"
    buffer.shrink()
    assert buffer.capacity == INITIAL_BYTES


def test_the_buffer_of_a_producers_largest_default_request_is_kept() -> None:
    buffer = FrameBuffer(100 << 20)
    request = framed(bytes((1 << 20) + 500))
    fill(buffer, request)
    assert buffer.next_frame() is not None
    buffer.consume()
    buffer.tidy()
    assert buffer.capacity == len(request)


def test_shrinking_keeps_buffered_bytes() -> None:
    buffer = FrameBuffer(100 << 20)
    fill(buffer, framed(bytes(30_000))[:20_000])
    buffer.shrink()
    buffer.shrink()
    fill(buffer, bytes(10_004))

    assert bytes(buffer.next_frame() or b"") == bytes(30_000)


def test_missing_bytes_are_those_of_the_first_frame() -> None:
    buffer = FrameBuffer(100 << 20)
    found = []
    prefix = (70_000).to_bytes(4, "big")
    for piece in (prefix[:2], prefix[2:], bytes(5), bytes(69_994), b"\0", framed(b"two")[:5]):
        fill(buffer, piece)
        found.append(buffer.missing_bytes())
    assert found == [0, 70_000, 69_995, 1, 0, 0]
    assert buffer.next_frame() is not None
    buffer.consume()
    assert buffer.missing_bytes() == 2


@pytest.mark.parametrize("length", [0, -1, -(2**31)])
def test_nothing_is_missing_of_a_frame_with_an_invalid_length(length: int) -> None:
    buffer = FrameBuffer(100)
    fill(buffer, length.to_bytes(4, "big", signed=True))
    assert buffer.missing_bytes() == 0
