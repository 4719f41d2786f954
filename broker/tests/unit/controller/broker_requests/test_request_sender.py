"""Requests to a broker epoch are sent in order, repeated after failures, and dropped when the epoch ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from odradek.base.errors import NetworkError, OdradekError, UnsupportedVersionError
from odradek.base.types import BrokerEpoch, Endpoint
from odradek.controller.broker_requests.request_batch import BrokerRequest, SharedBody
from odradek.controller.broker_requests.request_sender import WAITING_LIMIT, RequestSender
from odradek.controller.context import LiveBroker
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message, encode_request, encode_response
from odradek.zk.layout import BrokerRegistration

VERSION = 8
METADATA: Message = {"controller_id": 1, "controller_epoch": 2, "topic_states": [], "live_brokers": []}


class Clock:
    """A clock whose sleeps only let other tasks run."""

    rests = 0

    async def sleep_ms(self, delay_ms: float) -> None:
        self.rests += 1
        await asyncio.sleep(0)


class Peer:
    """A broker that fails as the test requires and then responds."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.refusals: list[Exception] = []
        self.versions: list[int] = []
        self.got: list[object] = []
        self.frames: list[bytes] = []
        self.connections = 0
        self.closed = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def connect(self, endpoint: Endpoint) -> Peer:
        if self.refusals:
            raise self.refusals.pop(0)
        self.connections += 1
        return self

    def pick(self, api_key: ApiKey) -> int:
        return VERSION

    async def ask(self, api_key: ApiKey, version: int, message: Any) -> Any:
        self.asked.set()
        self.versions.append(version)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.got.append(message["n"])
        return message["n"]

    client_id = "me"

    async def call(self, encode: Callable[[int], Sequence[Any]]) -> memoryview:
        self.frames.append(b"".join(encode(5)))
        return memoryview(encode_response(ApiKey.UPDATE_METADATA, VERSION, 5, {"error_code": 0})[4:])

    async def close(self) -> None:
        self.closed += 1


def broker(epoch: int = 1, port: int = 9092, listener: str = "PLAINTEXT") -> LiveBroker:
    endpoint = Endpoint(listener, "localhost", port)
    return LiveBroker(BrokerRegistration(broker_id=1, endpoints=(endpoint,)), BrokerEpoch(epoch))


def request(number: int, epoch: int = 1) -> BrokerRequest:
    return BrokerRequest(
        broker=1, broker_epoch=epoch, api_key=ApiKey.UPDATE_METADATA, message={"n": number, **METADATA}
    )


class Answers:
    def __init__(self, dispatcher: RequestSender) -> None:
        self.seen: list[Any] = []
        self._event = asyncio.Event()
        dispatcher.on_response(self._add)

    def _add(self, request: BrokerRequest, response: Any) -> None:
        self.seen.append(response)
        self._event.set()

    async def until(self, condition: Callable[[list[Any]], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition(self.seen):
                self._event.clear()
                await self._event.wait()


@pytest.fixture
async def peer() -> Peer:
    return Peer()


@pytest.fixture
async def dispatcher(peer: Peer) -> Any:
    dispatcher = RequestSender(peer.connect, Clock(), listener="PLAINTEXT")  # type: ignore[arg-type]
    yield dispatcher
    await dispatcher.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("controller-to")]


async def test_in_order_over_one_connection_and_again_after_failures(dispatcher: RequestSender, peer: Peer) -> None:
    answers = Answers(dispatcher)
    peer.failures = [NetworkError("a"), NetworkError("b"), OSError("c")]
    dispatcher.put_broker(broker())
    dispatcher.send(request(number) for number in range(5))
    await answers.until(lambda seen: len(seen) == 5)
    assert peer.got == [0, 1, 2, 3, 4]
    assert (peer.connections, peer.closed) == (4, 3)


async def test_a_request_that_cannot_be_encoded_is_dropped(dispatcher: RequestSender, peer: Peer) -> None:
    answers = Answers(dispatcher)
    peer.failures = [UnsupportedVersionError("old"), ValueError("a bug")]
    dispatcher.put_broker(broker())
    dispatcher.send([request(1), request(2), request(3)])
    await answers.until(lambda seen: seen == [3])


async def test_requests_to_an_unreachable_broker_are_repeated(dispatcher: RequestSender, peer: Peer) -> None:
    """Whatever the reason: a role that is not told now would not be told again."""
    answers = Answers(dispatcher)
    peer.refusals = [NetworkError("a"), UnsupportedVersionError("b"), OSError("c"), OdradekError("d")]
    dispatcher.put_broker(broker())
    dispatcher.send([request(1)])
    await answers.until(lambda seen: seen == [1])


@pytest.mark.parametrize(("protocol", "version"), [("3.9", 8), ("2.7", 6), ("1.0", 4)])
async def test_the_inter_broker_protocol_limits_the_version(peer: Peer, protocol: str, version: int) -> None:
    dispatcher = RequestSender(peer.connect, Clock(), listener="PLAINTEXT", protocol=protocol)  # type: ignore[arg-type]
    answers = Answers(dispatcher)
    dispatcher.put_broker(broker())
    shared = None if version >= 5 else SharedBody(ApiKey.UPDATE_METADATA, {**METADATA, "broker_epoch": 0})
    dispatcher.send([replace(request(1), shared=shared)])
    await answers.until(lambda seen: seen == [1])
    assert peer.versions == [version]
    await dispatcher.close()


async def test_a_request_for_an_earlier_broker_epoch_is_dropped(dispatcher: RequestSender, peer: Peer) -> None:
    answers = Answers(dispatcher)
    peer.gate.clear()
    dispatcher.put_broker(broker(epoch=1))
    dispatcher.send([request(1, epoch=1), request(2, epoch=1)])
    dispatcher.put_broker(broker(epoch=2))
    dispatcher.send([request(3, epoch=1), request(4, epoch=2)])
    peer.gate.set()
    await answers.until(lambda seen: seen == [4])


async def test_another_address_for_the_same_epoch_keeps_the_queue(dispatcher: RequestSender, peer: Peer) -> None:
    answers = Answers(dispatcher)
    peer.gate.clear()
    dispatcher.put_broker(broker(port=1))
    dispatcher.send([request(1), request(2)])
    dispatcher.put_broker(broker(port=2))
    peer.gate.set()
    await answers.until(lambda seen: seen == [1, 2])


async def test_dead_and_unknown_brokers_and_those_without_the_listener_get_no_requests(
    dispatcher: RequestSender, peer: Peer
) -> None:
    dispatcher.send([request(1)])
    dispatcher.put_broker(broker(listener="OTHER"))
    dispatcher.send([request(2)])
    dispatcher.put_broker(broker())
    dispatcher.remove_broker(1)
    dispatcher.send([request(3)])
    await dispatcher.close()
    await dispatcher.close()
    assert peer.got == []


async def test_the_queue_of_a_hanging_broker_is_bounded(dispatcher: RequestSender, peer: Peer) -> None:
    answers = Answers(dispatcher)
    peer.gate.clear()
    dispatcher.put_broker(broker())
    dispatcher.send([request(1)])
    await peer.asked.wait()
    queue = dispatcher._queues[1]
    for number in range(2, 1000):
        dispatcher.send([request(number)])
        assert len(queue.pending) <= WAITING_LIMIT + 1
    peer.gate.set()
    # The request in flight was sent unchanged. Of the others, the last state reached the broker, in order.
    await answers.until(lambda seen: seen[-1:] == [999])
    assert answers.seen[0] == 1
    assert answers.seen == sorted(answers.seen)
    assert len(answers.seen) <= WAITING_LIMIT + 1


async def test_many_requests_of_one_event_are_not_coalesced(dispatcher: RequestSender, peer: Peer) -> None:
    """Thousands of new partitions take more requests than may wait otherwise: each of them goes as it is."""
    answers = Answers(dispatcher)
    peer.gate.clear()
    dispatcher.put_broker(broker())
    many = 2 * WAITING_LIMIT
    dispatcher.send(request(number) for number in range(many))
    dispatcher.send(request(number) for number in range(many, many + WAITING_LIMIT))
    peer.gate.set()
    await answers.until(lambda seen: seen[-1:] == [many + WAITING_LIMIT - 1])
    assert answers.seen == list(range(many + WAITING_LIMIT))


async def test_a_request_to_all_brokers_is_encoded_once(dispatcher: RequestSender, peer: Peer) -> None:
    answers = Answers(dispatcher)
    body = SharedBody(ApiKey.UPDATE_METADATA, {**METADATA, "broker_epoch": 0})
    dispatcher.put_broker(broker(epoch=7))
    dispatcher.send([replace(request(1, epoch=7), shared=body)])
    await answers.until(lambda seen: len(seen) == 1)
    (frame,) = peer.frames
    assert frame == encode_request(ApiKey.UPDATE_METADATA, VERSION, 5, "me", {**METADATA, "broker_epoch": 7})
    assert answers.seen[0].error_code == 0


async def test_close_in_the_middle_of_a_request_hangs_up(dispatcher: RequestSender, peer: Peer) -> None:
    peer.gate.clear()
    dispatcher.put_broker(broker())
    dispatcher.send([request(1)])
    await peer.asked.wait()
    await dispatcher.close()
    assert peer.closed == 1
