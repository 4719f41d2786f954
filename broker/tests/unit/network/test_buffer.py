"""Growth, compaction and limits of the receive buffer."""

from __future__ import annotations

import pytest

from odradek.base.errors import MalformedFrameError
from odradek.network.buffer import BUSY_BYTES, INITIAL_BYTES, KEPT_BYTES, FrameBuffer, SharedSpace


def fill(buffer: FrameBuffer, data: bytes) -> None:
    while data:
        space = buffer.free_space()
        assert len(space) > 0
        count = min(len(space), len(data))
        space[:count] = data[:count]
        buffer.received(count)
        buffer.tidy()
        data = data[count:]


def make_buffer(max_frame_bytes: int) -> FrameBuffer:
    return FrameBuffer(max_frame_bytes, SharedSpace())


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_a_frame_stays_until_it_is_consumed() -> None:
    buffer = make_buffer(100)
    fill(buffer, framed(b"one") + framed(b"two"))

    assert bytes(buffer.next_frame() or b"") == b"one"
    assert bytes(buffer.next_frame() or b"") == b"one"
    buffer.consume()
    assert bytes(buffer.next_frame() or b"") == b"two"
    buffer.consume()
    assert buffer.next_frame() is None
    assert buffer.unread_bytes == 0


def test_an_incomplete_frame_is_no_frame() -> None:
    buffer = make_buffer(100)
    fill(buffer, framed(b"three")[:-1])

    assert buffer.next_frame() is None
    assert not buffer.has_frame()
    fill(buffer, b"e")
    assert buffer.has_frame()


@pytest.mark.parametrize(("length", "accepted"), [(1, True), (100, True), (101, False), (0, False), (-5, False)])
def test_lengths_are_held_to_the_limit(length: int, accepted: bool) -> None:
    buffer = make_buffer(100)
    fill(buffer, length.to_bytes(4, "big", signed=True))

    if accepted:
        assert buffer.next_frame() is None
        assert not buffer.has_frame()
    else:
        assert buffer.has_frame(), "next_frame must report the invalid length"
        with pytest.raises(MalformedFrameError):
            buffer.next_frame()


def test_memory_follows_what_has_arrived() -> None:
    buffer = make_buffer(100 << 20)
    fill(buffer, (100 << 20).to_bytes(4, "big"))
    assert buffer.capacity == INITIAL_BYTES
    for _ in range(20):
        fill(buffer, bytes(50_000))
        assert buffer.capacity <= max(4 * buffer.unread_bytes + 4 * INITIAL_BYTES, INITIAL_BYTES)


def test_a_busy_connection_reads_more_at_once() -> None:
    buffer = make_buffer(100 << 20)
    for _ in range(200):
        fill(buffer, framed(bytes(10_000)))
        while buffer.next_frame() is not None:
            buffer.consume()
        buffer.tidy()

    assert INITIAL_BYTES < buffer.capacity <= BUSY_BYTES


def test_large_buffers_are_freed_at_once() -> None:
    buffer = make_buffer(100 << 20)
    fill(buffer, framed(bytes(KEPT_BYTES + 1)))
    assert buffer.next_frame() is not None
    buffer.consume()
    buffer.tidy()
    assert buffer.capacity == 0


def test_other_buffers_are_freed_when_they_were_not_needed() -> None:
    buffer = make_buffer(100 << 20)
    request = framed(bytes(50_000))
    fill(buffer, request[:40_000])
    fill(buffer, request[40_000:])
    assert buffer.next_frame() is not None
    buffer.consume()
    buffer.tidy()
    assert buffer.capacity >= len(request)

    buffer.shrink()
    assert buffer.capacity >= len(request), "it was needed since the last time"
    buffer.shrink()
    assert buffer.capacity == 0


@pytest.mark.parametrize("is_minimal", [False, True])
def test_buffers_share_a_space_while_nothing_is_unread(is_minimal: bool) -> None:
    shared = SharedSpace()
    first, second = (FrameBuffer(100, shared, is_minimal=is_minimal) for _ in range(2))
    fill(first, framed(b"one") + framed(b"two")[:-1])
    frame = first.next_frame()
    assert frame is not None
    assert bytes(frame) == b"one"
    first.consume()
    assert first.capacity == INITIAL_BYTES

    fill(second, framed(b"a request of another connection"))
    fill(first, b"o")
    assert bytes(first.next_frame() or b"") == b"two"
    first.consume()
    first.tidy()
    assert first.capacity == 0
    assert bytes(second.next_frame() or b"") == b"a request of another connection"


def test_a_minimal_buffer_receives_no_more_than_its_minimum_before_it_has_memory() -> None:
    buffer = FrameBuffer(100 << 20, SharedSpace(), is_minimal=True)
    assert len(buffer.free_space()) == INITIAL_BYTES


def test_the_buffer_of_a_producers_largest_default_request_is_kept() -> None:
    buffer = make_buffer(100 << 20)
    request = framed(bytes((1 << 20) + 500))
    fill(buffer, request)
    assert buffer.next_frame() is not None
    buffer.consume()
    buffer.tidy()
    assert buffer.capacity == len(request)


def test_shrinking_keeps_buffered_bytes() -> None:
    buffer = make_buffer(100 << 20)
    fill(buffer, framed(bytes(30_000))[:20_000])
    buffer.shrink()
    buffer.shrink()
    fill(buffer, bytes(10_004))

    assert bytes(buffer.next_frame() or b"") == bytes(30_000)


def test_missing_bytes_are_those_of_the_first_frame() -> None:
    buffer = make_buffer(100 << 20)
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
    buffer = make_buffer(100)
    fill(buffer, length.to_bytes(4, "big", signed=True))
    assert buffer.missing_bytes() == 0
