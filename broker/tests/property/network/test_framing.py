"""The frames do not depend on the pieces in which a stream arrives."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.network.buffer import INITIAL_BYTES, FrameBuffer, SharedSpace

bodies = st.lists(st.integers(1, 300) | st.sampled_from([8_187, 8_188, 8_189, 20_000, 40_000]), max_size=12)
cuts = st.lists(st.integers(1, 50_000), min_size=1, max_size=20)


@settings(deadline=None)
@given(bodies, cuts, st.booleans(), st.booleans())
def test_frames_do_not_depend_on_pieces(sizes: list[int], pieces: list[int], shrinks: bool, is_minimal: bool) -> None:
    expected = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in expected)
    # Single bytes only in short streams, so that the number of steps stays below a few hundred.
    smallest = len(stream) // 200
    shared = SharedSpace()
    buffer = FrameBuffer(40_000, shared, is_minimal=is_minimal)
    found: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        space = buffer.free_space()
        count = min(len(space), len(stream) - position, max(smallest, pieces[turn % len(pieces)]))
        turn += 1
        space[:count] = stream[position : position + count]
        buffer.received(count)
        position += count
        while (frame := buffer.next_frame()) is not None:
            found.append(bytes(frame))
            buffer.consume()
        buffer.tidy()
        # Another connection receives into the shared space.
        shared.view[:] = b"\xff" * len(shared.view)
        if shrinks:
            buffer.shrink()
        if is_minimal:
            assert buffer.capacity <= max(INITIAL_BYTES, buffer.large_frame_bytes())

    assert found == expected
    assert buffer.unread_bytes == 0
