"""Outgoing requests to a scripted broker on loopback: matching, deadlines, lost connections, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.base.errors import NetworkError, RequestTimedOutError, UnsupportedVersionError
from odradek.network.channel import Channel, ChannelLimits, ChannelTimeouts
from odradek.network.connection import Request
from odradek.network.listener import Listener
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import encode_response

Answer = Callable[[Request], None]


class Broker:
    """A listener whose requests the test answers."""

    def __init__(self, kit: Any, answer: Answer | None) -> None:
        self.listener = Listener("PLAINTEXT", ("127.0.0.1", 0), self._handle, kit.ManualClock())
        self.requests: list[Request] = []
        self._answer = answer
        self._arrival = asyncio.Event()

    def _handle(self, request: Request) -> None:
        self.requests.append(request)
        self._arrival.set()
        if self._answer is not None:
            self._answer(request)

    async def received(self, count: int) -> None:
        """Wait until `count` requests have arrived in total."""
        async with asyncio.timeout(30):
            while len(self.requests) < count:
                self._arrival.clear()
                await self._arrival.wait()


@asynccontextmanager
async def broker(kit: Any, answer: Answer | None = None) -> AsyncIterator[Broker]:
    peer = Broker(kit, answer)
    await peer.listener.start()
    try:
        yield peer
    finally:
        await peer.listener.close(grace_ms=0)


@asynccontextmanager
async def opened(peer: Broker, **options: Any) -> AsyncIterator[Channel]:
    channel = await Channel.open("127.0.0.1", peer.listener.port, client_id="me", **options)
    try:
        yield channel
    finally:
        await channel.close()


def respond(request: Request, body: bytes = b"") -> None:
    """Return a response without tagged fields in its header."""
    frame = request.correlation_id.to_bytes(4, "big") + body
    request.respond([len(frame).to_bytes(4, "big"), frame])


def sending(kit: Any, size: int = 0) -> Callable[[int], Sequence[bytes]]:
    """Encodes a pipelined request."""
    return lambda correlation_id: (kit.produce(correlation_id, size),)


def heartbeat_response(request: Request) -> None:
    request.respond([encode_response(request.api_key, request.api_version, request.correlation_id, {"error_code": 27})])


async def test_request_returns_the_message(kit: Any) -> None:
    async with broker(kit, heartbeat_response) as peer, opened(peer) as channel:
        message = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        for version in range(5):
            response = await channel.ask(ApiKey.HEARTBEAT, version, message)
            assert response.error_code == 27
        assert [request.correlation_id for request in peer.requests] == [0, 1, 2, 3, 4]
        assert peer.requests[0].client_id == "me"


async def test_responses_find_their_calls(kit: Any) -> None:
    async with broker(kit) as peer, opened(peer) as channel:
        calls = [asyncio.create_task(channel.call(sending(kit))) for _ in range(3)]
        await peer.received(3)
        for request in reversed(peer.requests):
            respond(request, bytes([request.correlation_id]))

        assert [bytes(await call)[4:] for call in calls] == [b"\0", b"\1", b"\2"]
        assert channel.in_flight == 0


@pytest.mark.parametrize("size", [0, 1, 65_523, 65_528, 65_529, 300_000])
async def test_responses_of_any_size_own_their_memory(kit: Any, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with broker(kit, lambda request: respond(request, body)) as peer, opened(peer) as channel:
        first = await channel.call(sending(kit))
        later = await asyncio.gather(*(channel.call(sending(kit)) for _ in range(5)))

        assert bytes(first[4:]) == body
        assert all(bytes(response[4:]) == body for response in later)


async def test_no_response_is_waited_for_when_none_is_expected(kit: Any) -> None:
    async with (
        broker(kit, lambda request: request.respond_nothing()) as peer,
        opened(peer, limits=ChannelLimits(max_in_flight=1)) as channel,
    ):
        for _ in range(3):
            assert len(await channel.call(sending(kit), expect_response=False)) == 0
        await peer.received(3)
        assert channel.in_flight == 0


async def test_in_flight_requests_are_limited(kit: Any) -> None:
    async with broker(kit) as peer, opened(peer, limits=ChannelLimits(max_in_flight=2)) as channel:
        calls = [asyncio.create_task(channel.call(sending(kit))) for _ in range(3)]
        await peer.received(2)
        assert channel.in_flight == 2
        respond(peer.requests[0])
        await calls[0]
        await peer.received(3)
        for request in peer.requests[1:]:
            respond(request)
        await asyncio.gather(*calls)


async def test_a_deadline_ends_the_call_and_the_channel(kit: Any) -> None:
    async with broker(kit) as peer, opened(peer) as channel:
        other = asyncio.create_task(channel.call(sending(kit)))
        await peer.received(1)
        with pytest.raises(RequestTimedOutError):
            await channel.call(sending(kit), timeout_ms=0)
        with pytest.raises(NetworkError):
            await other
        assert not channel.is_open


async def test_an_answered_request_leaves_later_deadlines_alone(kit: Any) -> None:
    async with broker(kit, respond) as peer, opened(peer) as channel:
        await channel.call(sending(kit), timeout_ms=60_000)
        # Its timer is still set; run it by hand at a time when nothing is overdue.
        channel._expire()
        assert channel.is_open
        await channel.call(sending(kit))


async def test_waiting_for_a_place_counts_towards_the_deadline(kit: Any) -> None:
    async with broker(kit) as peer, opened(peer, limits=ChannelLimits(max_in_flight=1)) as channel:
        first = asyncio.create_task(channel.call(sending(kit)))
        await peer.received(1)
        with pytest.raises(RequestTimedOutError):
            await channel.call(sending(kit), timeout_ms=0)
        assert channel.is_open
        respond(peer.requests[0])
        await first


async def test_a_lost_connection_fails_every_call(kit: Any) -> None:
    async with broker(kit) as peer, opened(peer, limits=ChannelLimits(max_in_flight=2)) as channel:
        calls = [asyncio.create_task(channel.call(sending(kit))) for _ in range(4)]
        await peer.received(2)
        peer.requests[0].fail("gone")

        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [NetworkError] * 4
        await channel.wait_closed()
        with pytest.raises(NetworkError):
            await channel.call(sending(kit))


async def test_close_fails_calls_and_may_come_twice(kit: Any) -> None:
    async with broker(kit) as peer, opened(peer) as channel:
        call = asyncio.create_task(channel.call(sending(kit)))
        await peer.received(1)
        await channel.close()
        await channel.close()
        with pytest.raises(NetworkError):
            await call


async def test_a_cancelled_call_leaves_the_channel_usable(kit: Any) -> None:
    async with broker(kit) as peer, opened(peer) as channel:
        call = asyncio.create_task(channel.call(sending(kit)))
        await peer.received(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert channel.in_flight == 1, "its response is still to come"

        second = asyncio.create_task(channel.call(sending(kit)))
        await peer.received(2)
        for request in peer.requests:
            respond(request, bytes([request.correlation_id]))
        assert bytes(await second)[4:] == b"\1"
        assert channel.in_flight == 0


async def test_a_call_cancelled_while_it_waits_takes_no_slot(kit: Any) -> None:
    async with broker(kit) as peer, opened(peer, limits=ChannelLimits(max_in_flight=1)) as channel:
        first = asyncio.create_task(channel.call(sending(kit)))
        await peer.received(1)
        second = asyncio.create_task(channel.call(sending(kit)))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        respond(peer.requests[0])
        await first

        third = asyncio.create_task(channel.call(sending(kit)))
        await peer.received(2)
        respond(peer.requests[1])
        await third


async def test_a_call_cancelled_while_the_peer_does_not_read_takes_no_slot(kit: Any) -> None:
    async with broker(kit, respond) as peer, opened(peer, limits=ChannelLimits(max_in_flight=1)) as channel:
        channel.pause_writing()
        call = asyncio.create_task(channel.call(sending(kit)))
        await asyncio.sleep(0)
        assert channel.in_flight == 0
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        channel.resume_writing()
        await channel.call(sending(kit))


async def test_a_call_times_out_while_the_peer_does_not_read(kit: Any) -> None:
    async with broker(kit, respond) as peer, opened(peer) as channel:
        channel.pause_writing()
        with pytest.raises(RequestTimedOutError):
            await channel.call(sending(kit), timeout_ms=0)
        channel.resume_writing()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x04\x00\x00\x00\x63",
        b"\x00\x00\x00\x03abc",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
    ],
    ids=["another correlation id", "too short", "negative", "too long"],
)
async def test_an_invalid_response_ends_the_channel(kit: Any, sent: bytes) -> None:
    async with broker(kit, lambda request: request.respond([sent])) as peer, opened(peer) as channel:
        with pytest.raises(NetworkError):
            await channel.call(sending(kit))
        assert not channel.is_open


async def test_an_encoder_that_fails_sends_nothing(kit: Any) -> None:
    async with (
        broker(kit, heartbeat_response) as peer,
        opened(peer, limits=ChannelLimits(max_in_flight=1)) as channel,
    ):
        with pytest.raises(ValueError, match="group_id"):
            await channel.ask(ApiKey.HEARTBEAT, 0, {})
        assert channel.in_flight == 0
        await channel.ask(ApiKey.HEARTBEAT, 0, {"group_id": "g", "generation_id": 1, "member_id": "m"})
        assert len(peer.requests) == 1


async def test_a_refused_connection(unused_tcp_port: int) -> None:
    with pytest.raises(NetworkError, match=str(unused_tcp_port)):
        await Channel.open("127.0.0.1", unused_tcp_port)


async def test_connecting_times_out() -> None:
    with pytest.raises(NetworkError):
        await Channel.open("127.0.0.1", 1, timeouts=ChannelTimeouts(connect_ms=0))


def versions_response(rows: dict[int, tuple[int, int]], *, newest: int = 4) -> Answer:
    """A broker that serves ApiVersions up to `newest`."""

    def answer(request: Request) -> None:
        message = {
            "error_code": 0,
            "api_keys": [
                {"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in rows.items()
            ],
        }
        version = request.api_version
        if version > newest:
            message["error_code"], version = UnsupportedVersionError.code, 0
        request.respond([encode_response(ApiKey.API_VERSIONS, version, request.correlation_id, message)])

    return answer


@pytest.mark.parametrize("newest", [0, 2, 4])
async def test_negotiation_falls_back_to_the_oldest_question(kit: Any, newest: int) -> None:
    answer = versions_response({ApiKey.FETCH: (0, 5), 9_999: (0, 1)}, newest=newest)
    async with broker(kit, answer) as peer, opened(peer) as channel:
        assert await channel.negotiate() == {ApiKey.FETCH: (0, 5), 9_999: (0, 1)}
        highest = API_TABLE[ApiKey.API_VERSIONS].max_version
        assert [request.api_version for request in peer.requests] == ([highest] if newest == 4 else [highest, 0])


@pytest.mark.parametrize(
    ("offered", "expected"),
    [((0, 5), 5), ((0, 99), API_TABLE[ApiKey.FETCH].max_version), ((17, 18), 17), ((0, 3), 3), ((18, 20), None)],
)
async def test_pick_takes_the_highest_common_version(kit: Any, offered: tuple[int, int], expected: int | None) -> None:
    async with broker(kit, versions_response({ApiKey.FETCH: offered})) as peer, opened(peer) as channel:
        await channel.negotiate()
        if expected is None:
            with pytest.raises(UnsupportedVersionError):
                channel.pick(ApiKey.FETCH)
        else:
            assert channel.pick(ApiKey.FETCH) == expected
        with pytest.raises(UnsupportedVersionError):
            channel.pick(ApiKey.PRODUCE)


async def test_versions_are_not_guessed(kit: Any) -> None:
    async with broker(kit) as peer, opened(peer) as channel:
        with pytest.raises(RuntimeError):
            channel.pick(ApiKey.FETCH)
