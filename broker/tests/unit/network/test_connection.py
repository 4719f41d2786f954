"""Order, exclusive requests, limits and end of a connection with a transport in memory."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import pytest

from odradek.network.connection import Request

# The connection looks for its loop when it is made, hence coroutines throughout.


async def turn() -> None:
    """Run the scheduled callbacks."""
    await asyncio.sleep(0)


async def test_a_request_carries_its_header_and_body(kit: Any) -> None:
    peer = kit.Peer()
    frame = kit.heartbeat(7)
    peer.send(frame)

    (request,) = peer.requests
    assert (request.api_key.name, request.api_version, request.client_id) == ("HEARTBEAT", 0, "me")
    assert (request.peer_host, request.listener, request.received_ms) == ("192.0.2.7", "PLAINTEXT", 1_000.0)
    assert peer.frames == [frame[4:]]
    assert request.position == 12


async def test_the_frame_is_released_when_the_handler_returns(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(kit.heartbeat(1))

    assert len(peer.requests[0].frame) == 0
    assert peer.requests[0].size_bytes == len(kit.heartbeat(1)) - 4


async def test_bytes_may_come_one_by_one(kit: Any) -> None:
    peer = kit.Peer()
    stream = kit.produce(1, 100) + kit.produce(2, 50)
    peer.send(stream, pieces=len(stream))

    assert peer.ids == [1, 2]


async def test_responses_leave_in_the_order_of_requests(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(b"".join(kit.produce(number) for number in range(4)))
    one, two, three, four = peer.requests

    three.respond([b"3", b"c"])
    two.respond([b"2"])
    assert peer.transport.written == b""
    one.respond([b"1"])
    assert peer.transport.written == b"123c"
    four.respond_nothing()
    assert peer.transport.written == b"123c"
    assert peer.connection.in_flight == 0


class Answer(bytearray):
    """Bytes with weak references."""


@pytest.mark.parametrize("when", ["in turn", "behind another", "after the end", "before the end"])
async def test_a_kept_request_does_not_keep_its_response(kit: Any, when: str) -> None:
    peer = kit.Peer()
    peer.send(kit.produce(1) + kit.produce(2))
    first, request = peer.requests
    answer = Answer(b"x" * 100)
    watched = weakref.ref(answer)
    if when == "in turn":
        first.respond([b"1"])
    if when == "after the end":
        peer.connection.connection_lost(None)
    request.respond([answer])
    del answer
    if when == "behind another":
        assert watched() is not None
        first.respond([b"1"])
    if when == "before the end":
        peer.connection.connection_lost(None)

    assert watched() is None
    assert request.is_answered
    with pytest.raises(RuntimeError, match="answered before"):
        request.respond([b"again"])


async def test_a_second_answer_is_a_bug(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(kit.produce(1))
    peer.requests[0].respond([b"1"])

    with pytest.raises(RuntimeError):
        peer.requests[0].respond([b"1"])


async def test_an_api_that_is_not_pipelined_runs_alone(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(kit.heartbeat(1) + kit.heartbeat(2) + kit.produce(3))

    assert peer.ids == [1]
    peer.requests[0].respond([b"1"])
    await turn()
    assert peer.ids == [1, 2]
    peer.requests[1].respond([b"2"])
    await turn()
    assert peer.ids == [1, 2, 3]


async def test_it_waits_for_the_pipelined_before_it(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(kit.produce(1) + kit.produce(2) + kit.heartbeat(3) + kit.produce(4))

    assert peer.ids == [1, 2]
    peer.requests[1].respond([b"2"])
    await turn()
    assert peer.ids == [1, 2]
    peer.requests[0].respond([b"1"])
    await turn()
    assert peer.ids == [1, 2, 3]


async def test_answers_within_the_handler_need_no_turn_of_the_loop(kit: Any) -> None:
    peer = kit.Peer(lambda request: request.respond([bytes([request.correlation_id])]))
    peer.send(kit.heartbeat(1) + kit.produce(2) + kit.heartbeat(3))

    assert peer.transport.written == b"\x01\x02\x03"
    assert peer.transport.reading


async def test_answers_within_the_handler_leave_together(kit: Any) -> None:
    peer = kit.Peer(lambda request: request.respond([bytes([request.correlation_id]), b"!"]))
    peer.send(kit.produce(1) + kit.produce(2) + kit.heartbeat(3))
    peer.send(kit.produce(4))

    assert peer.transport.written == b"\x01!\x02!\x03!\x04!"
    assert peer.transport.calls == [6, 2]


async def test_a_large_answer_does_not_wait_for_the_next_requests(kit: Any) -> None:
    sizes = {1: 10, 2: 65_536, 3: 5_000, 4: 1}
    sent_before: list[list[int]] = []

    def answer(request: Request) -> None:
        sent_before.append(list(peer.transport.calls))
        request.respond([bytes(sizes[request.correlation_id])])

    peer = kit.Peer(answer)
    peer.send(b"".join(kit.produce(number) for number in sizes))

    assert sent_before == [[], [], [65_546], [65_546]]
    assert peer.transport.calls == [65_546, 5_001]


async def test_answers_given_before_a_frame_that_ends_the_connection_are_sent(kit: Any) -> None:
    peer = kit.Peer(lambda request: request.respond([b"answer"]))
    peer.send(kit.produce(1) + bytes(4))

    assert (bytes(peer.transport.written), peer.transport.aborted) == (b"answer", True)


async def test_a_connection_that_closes_sends_its_last_answer_first(kit: Any) -> None:
    def answer(request: Request) -> None:
        peer.connection.close()
        request.respond([b"answer"])

    peer = kit.Peer(answer)
    peer.send(kit.produce(1) + kit.produce(2))

    assert (bytes(peer.transport.written), peer.transport.closed) == (b"answer", True)


async def test_the_next_request_does_not_run_inside_another_answer(kit: Any) -> None:
    """The code that answers a waiting request must not run the next one in the same call."""
    peer = kit.Peer()
    peer.send(kit.heartbeat(1) + kit.heartbeat(2))

    peer.requests[0].respond([b"1"])
    assert peer.ids == [1]
    await turn()
    assert peer.ids == [1, 2]


async def test_reading_pauses_only_while_something_waits(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(kit.heartbeat(1))
    assert peer.transport.reading, "a long poll must notice that its client went away"
    peer.send(kit.heartbeat(2))
    assert not peer.transport.reading

    peer.requests[0].respond([b"1"])
    await turn()
    assert peer.ids == [1, 2]
    assert peer.transport.reading


async def test_in_flight_requests_are_bounded_by_count(kit: Any) -> None:
    peer = kit.Peer(max_in_flight=2)
    peer.send(b"".join(kit.produce(number) for number in (1, 2, 3)))

    assert peer.ids == [1, 2]
    assert not peer.transport.reading
    peer.requests[0].respond([b"1"])
    await turn()
    assert peer.ids == [1, 2, 3]


async def test_in_flight_requests_are_bounded_by_size(kit: Any) -> None:
    peer = kit.Peer(max_in_flight_bytes=1_000)
    peer.send(kit.produce(1, 900) + kit.produce(2, 900) + kit.produce(3, 900))

    assert peer.ids == [1, 2]
    peer.requests[0].respond([b"1"])
    await turn()
    assert peer.ids == [1, 2, 3]


async def test_a_peer_that_does_not_read_gets_no_more_work_done(kit: Any) -> None:
    peer = kit.Peer(write_high_water_bytes=10)
    assert peer.transport.high_water == 10
    peer.connection.pause_writing()
    peer.send(kit.produce(1))
    assert peer.ids == []
    assert not peer.transport.reading

    peer.connection.resume_writing()
    await turn()
    assert peer.ids == [1]
    assert peer.transport.reading


@pytest.mark.parametrize("length", [0, -1, -(2**31), 1_001, 2**31 - 1])
async def test_an_invalid_length_closes_the_connection_without_reading_the_frame(kit: Any, length: int) -> None:
    peer = kit.Peer(max_frame_bytes=1_000)
    peer.send(length.to_bytes(4, "big", signed=True))

    assert peer.transport.aborted
    assert peer.requests == []


@pytest.mark.parametrize("frame", [b"\x00", b"\x7f\x00\x00\x00" + bytes(10), b"\x00\x03\x00\x63" + bytes(10)])
async def test_a_frame_without_a_known_header_ends_the_connection(kit: Any, frame: bytes) -> None:
    peer = kit.Peer()
    peer.send(len(frame).to_bytes(4, "big") + frame)

    assert peer.transport.aborted
    assert peer.requests == []


async def test_an_unknown_version_of_api_versions_is_handed_over(kit: Any) -> None:
    peer = kit.Peer()
    frame = b"\x00\x12\x00\x63" + b"\x00\x00\x00\x05" + b"\xff\xff" + b"\x00" + b"whatever follows"
    peer.send(len(frame).to_bytes(4, "big") + frame)

    assert (peer.requests[0].api_version, peer.requests[0].correlation_id) == (99, 5)


async def test_a_failing_handler_ends_its_connection_only(kit: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Request) -> None:
        raise ZeroDivisionError

    broken, sound = kit.Peer(fail), kit.Peer()
    broken.send(kit.produce(1) + kit.produce(2))
    sound.send(kit.produce(1))

    assert broken.transport.aborted
    assert broken.ids == [1]
    assert not sound.transport.aborted
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_fail_ends_the_connection(kit: Any) -> None:
    peer = kit.Peer(lambda request: request.fail("no"))
    peer.send(kit.heartbeat(1) + kit.heartbeat(2))

    assert peer.transport.aborted
    assert peer.ids == [1]


async def test_answers_after_the_end_are_dropped(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(kit.produce(1) + kit.produce(2))
    peer.connection.connection_lost(None)

    peer.requests[1].respond([b"2"])
    peer.requests[0].respond([b"1"])
    assert peer.transport.written == b""
    assert peer.lost == [peer.connection]
    assert peer.connection.in_flight == 0
    assert peer.connection._buffer.capacity == 0


async def test_close_answers_pending_requests_and_accepts_no_more(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(kit.produce(1) + kit.produce(2))
    peer.connection.close()
    peer.connection.close()
    assert not peer.transport.closed

    peer.requests[1].respond([b"2"])
    assert not peer.transport.closed
    peer.requests[0].respond([b"1"])
    assert peer.transport.closed
    assert peer.transport.written == b"12"
    assert not peer.transport.reading


async def test_close_without_pending_requests_is_immediate(kit: Any) -> None:
    peer = kit.Peer()
    peer.connection.close()

    assert peer.transport.closed


async def test_idle_time_counts_from_the_last_byte_and_not_while_a_request_waits(kit: Any) -> None:
    peer = kit.Peer()
    peer.clock.now_ms += 100
    assert peer.connection.idle_ms(peer.clock.now_ms) == 100
    peer.send(kit.produce(1))
    peer.clock.now_ms += 100
    assert peer.connection.idle_ms(peer.clock.now_ms) == 0
    peer.requests[0].respond([b"1"])
    peer.clock.now_ms += 30
    assert peer.connection.idle_ms(peer.clock.now_ms) == 30


async def test_a_large_frame_is_accepted_and_its_memory_released(kit: Any) -> None:
    peer = kit.Peer(lambda request: request.respond([b"x"]))
    peer.send(kit.produce(1, 3 << 20), pieces=100)

    assert peer.frames == [kit.produce(1, 3 << 20)[4:]]
    assert peer.connection._buffer.capacity == 0


async def test_a_declared_size_allocates_no_memory(kit: Any) -> None:
    peer = kit.Peer()
    peer.send((100 << 20).to_bytes(4, "big") + b"just a few bytes")

    assert peer.connection._buffer.capacity <= 16 << 10
    assert not peer.transport.aborted


async def test_a_muted_client_gets_its_answer_and_then_waits(kit: Any) -> None:
    """KIP-219: the answer with the throttle time is sent first."""
    peer = kit.Peer()
    peer.send(kit.heartbeat(1) + kit.heartbeat(2))
    peer.requests[0].respond([b"1"])
    peer.connection.muting.begin(500)
    await turn()
    assert peer.transport.written == b"1"
    assert peer.ids == [1]
    assert not peer.transport.reading
    (unmuted,) = peer.clock.timers
    unmuted()
    await turn()
    assert peer.ids == [1, 2]
    assert peer.transport.reading


async def test_muting_within_the_handler_holds_back_the_next_request(kit: Any) -> None:
    def answer(request: Request) -> None:
        request.respond([bytes([request.correlation_id])])
        request.connection.muting.begin(500)

    peer = kit.Peer(answer)
    peer.send(kit.produce(1) + kit.produce(2))
    assert peer.transport.written == b"\x01"
    peer.send(kit.produce(3))
    await turn()
    assert peer.ids == [1]


async def test_requests_from_before_a_muting_are_answered(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(kit.produce(1) + kit.produce(2))
    peer.requests[0].respond([b"1"])
    peer.connection.muting.begin(500)
    peer.requests[1].respond([b"2"])
    assert peer.transport.written == b"12"


async def test_a_muting_ends_with_the_connection(kit: Any) -> None:
    peer = kit.Peer()
    peer.send(kit.produce(1))
    peer.connection.muting.begin(500)
    peer.connection.connection_lost(None)
    assert not peer.connection.muting.is_on
