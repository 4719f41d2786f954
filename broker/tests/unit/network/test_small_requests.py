"""Requests that have arrived together are passed to the handler of small requests, and keep their order."""

from __future__ import annotations

from typing import Any

from odradek.network.small_requests import LEAST_PAUSE, MOST_BYTES, SmallClient

# The connection looks for its loop when it is made, hence coroutines throughout.


class Handler:
    """Answers whole frames with their correlation ids, and refuses those that the test names."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.refused: set[int] = set()
        self.failure: Exception | None = None

    def answer(self, connection: SmallClient, data: bytes) -> tuple[int, int, bytes] | None:
        if self.failure is not None:
            raise self.failure
        assert connection.identity is not None
        position, found = 0, []
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            correlation_id = int.from_bytes(data[position + 8 : position + 12], "big")
            if end > len(data) or correlation_id in self.refused:
                break
            found.append(correlation_id)
            position = end
        self.calls.append(found)
        return (position, len(found), bytes(found)) if found else None


async def test_requests_that_arrive_together_are_answered_together(kit: Any) -> None:
    handler = Handler()
    peer = kit.Peer(small=handler)
    frames = [kit.produce(number) for number in range(1, 5)]
    peer.send(b"".join(frames[:3]) + frames[3][:10])
    assert (handler.calls, bytes(peer.transport.written)) == ([[1, 2, 3]], bytes([1, 2, 3]))
    assert len(peer.transport.calls) == 1
    peer.send(frames[3][10:])
    assert handler.calls == [[1, 2, 3], [4]]
    assert not peer.requests
    assert peer.connection.counters.requests == 4


async def test_other_requests_are_handled_alone(kit: Any) -> None:
    handler = Handler()
    peer = kit.Peer(small=handler)
    peer.send(kit.heartbeat(1))
    assert (peer.ids, handler.calls) == ([1], [])


async def test_large_requests_are_handled_alone(kit: Any) -> None:
    handler = Handler()
    peer = kit.Peer(small=handler)
    peer.send(kit.produce(1, size=MOST_BYTES))
    assert (peer.ids, handler.calls) == ([1], [])


async def test_small_requests_wait_for_earlier_ones(kit: Any) -> None:
    handler = Handler()
    handler.refused = {1}
    peer = kit.Peer(small=handler)
    peer.send(kit.produce(1))
    handler.refused = set()
    peer.send(kit.produce(2))
    assert (peer.ids, handler.calls) == ([1, 2], [[]])
    for request in peer.requests:
        request.respond([b"%d" % request.correlation_id])
    assert bytes(peer.transport.written) == b"12"


async def test_a_handler_that_refuses_is_asked_less_often(kit: Any) -> None:
    handler = Handler()
    handler.refused = {*range(100)}
    peer = kit.Peer(lambda request: request.respond([b"."]), small=handler)
    for number in range(30):
        peer.send(kit.produce(number))
    # Pauses of 4, 8 and 16 requests follow the requests 0, 5 and 14.
    assert len(handler.calls) == 3
    assert LEAST_PAUSE == 4
    handler.refused = set()
    for number in range(30, 40):
        peer.send(kit.produce(number))
    assert handler.calls[3:] == [[number] for number in range(31, 40)]
    handler.refused = {*range(40, 60)}
    for number in range(40, 50):
        peer.send(kit.produce(number))
    # The pause begins with 4 again.
    assert handler.calls[12:] == [[], []]


async def test_a_login_gets_all_requests(kit: Any) -> None:
    handler = Handler()
    peer = kit.Peer(small=handler)
    usual = peer.connection.handler
    login: list[int] = []
    peer.connection.handler = lambda request: (login.append(request.correlation_id), request.respond([b"."]))
    peer.send(kit.produce(1))
    assert (login, handler.calls) == ([1], [])
    peer.connection.handler = usual
    peer.send(kit.produce(2))
    assert handler.calls == [[2]]


async def test_an_error_of_the_handler_ends_the_connection(kit: Any) -> None:
    handler = Handler()
    handler.failure = RuntimeError("a bug")
    peer = kit.Peer(small=handler)
    peer.send(kit.produce(1) + kit.produce(2))
    assert peer.transport.aborted
    assert not peer.requests
