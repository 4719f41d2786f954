"""Requests to the controller: batches, responses, changes of the controller, lost connections, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.app.controller_link import ControllerLink
from odradek.base.errors import (
    FencedLeaderEpochError,
    NetworkError,
    NotControllerError,
    ProtocolError,
    UnknownServerError,
)
from odradek.base.types import Endpoint, TopicPartition
from odradek.cluster import AnnouncedBroker, ClusterImage, MetadataCache, PartitionMetadata
from odradek.network.channel import Channel
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import (
    Message,
    Response,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from odradek.replication.replica_requests import CommittedIsr
from odradek_testkit.loop import run_virtual

IDS = {"a": UUID(int=1), "b": UUID(int=2)}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Controllers:
    """Brokers 1 and 2, which both respond as the controller. `image` names the controller."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.view = MetadataCache()
        self.asked: list[tuple[int, Any]] = []
        self.opened: list[FakeChannel] = []
        self.gate: asyncio.Event | None = None
        self.errors: dict[TopicPartition, int] = {}
        self.failure: BaseException | None = None
        self.error_code = 0
        self.moves_to(1)

    def moves_to(self, controller_id: int) -> None:
        brokers = [AnnouncedBroker(broker_id=n, endpoints=(Endpoint("INTERNAL", f"host-{n}", n),)) for n in (1, 2)]
        state = PartitionMetadata(leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
        partitions = [(TopicPartition(name, 0), topic_id, state) for name, topic_id in IDS.items()]
        self.view.image = ClusterImage().updated(controller_id=controller_id, brokers=brokers, partitions=partitions)

    async def connect(self, endpoint: Endpoint) -> Channel:
        await asyncio.sleep(0)
        self.opened.append(FakeChannel(self, endpoint.port))
        return cast(Channel, self.opened[-1])

    def link(self) -> ControllerLink:
        return ControllerLink(
            broker_id=7, broker_epoch=lambda: 70, view=self.view, listener="INTERNAL", connect=self.connect
        )

    def answer(self, api_key: ApiKey, request: Any) -> Message:
        if api_key is ApiKey.CONTROLLED_SHUTDOWN:
            left = [{"topic_name": "a", "partition_index": 1}]
            return {"error_code": self.error_code, "remaining_partitions": left}
        names = {topic_id: name for name, topic_id in IDS.items()}
        topics = [
            {
                "topic_name": name,
                "topic_id": IDS.get(name),
                "partitions": [self.committed(name, part) for part in topic.partitions],
            }
            for topic in request.topics
            for name in [topic.topic_name or names[topic.topic_id]]
        ]
        return {"throttle_time_ms": 0, "error_code": self.error_code, "topics": topics}

    def committed(self, topic: str, part: Any) -> Message:
        members = part.new_isr or [each.broker_id for each in part.new_isr_with_epochs]
        return {
            "partition_index": part.partition_index,
            "error_code": self.errors.get(TopicPartition(topic, part.partition_index), 0),
            "leader_id": 7,
            "leader_epoch": part.leader_epoch,
            "isr": members,
            "leader_recovery_state": 0,
            "partition_epoch": part.partition_epoch + 1,
        }


class FakeChannel:
    """The part of a channel that the link uses. Messages are encoded and decoded."""

    def __init__(self, controllers: Controllers, broker_id: int) -> None:
        self.controllers = controllers
        self.broker_id = broker_id
        self.is_open = True

    def pick(self, api_key: ApiKey) -> int:
        return self.controllers.version if api_key is ApiKey.ALTER_PARTITION else 3

    async def ask(self, expected: type[Response], version: int, message: Message) -> Response:
        api_key = expected.API_KEY
        frame = encode_request(api_key, version, 1, "broker", message)[4:]
        header, position = decode_header(frame)
        request = decode_request(header, frame, position)
        self.controllers.asked.append((self.broker_id, request))
        if self.controllers.gate is not None:
            await self.controllers.gate.wait()
        if self.controllers.failure is not None:
            self.is_open = False
            raise self.controllers.failure
        answer = encode_response(api_key, version, 1, self.controllers.answer(api_key, request))
        return decode_response(expected, version, answer[4:])

    async def close(self) -> None:
        self.is_open = False


def run(scenario: Callable[[Controllers, ControllerLink], Coroutine[Any, Any, None]], version: int = 3) -> Controllers:
    made: list[Controllers] = []

    async def main() -> None:
        controllers = Controllers(version)
        made.append(controllers)
        link = controllers.link()
        try:
            await scenario(controllers, link)
        finally:
            await link.close()
            await link.close()

    run_virtual(main())
    assert not any(channel.is_open for channel in made[0].opened), "a channel was left open"
    return made[0]


def propose(link: ControllerLink, topic_partition: TopicPartition, isr: tuple[int, ...]) -> asyncio.Task[CommittedIsr]:
    return asyncio.ensure_future(link.alter_isr(topic_partition, 4, isr, 9))


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_proposals_are_sent_together_while_a_request_is_in_flight(version: int) -> None:
    async def scenario(controllers: Controllers, link: ControllerLink) -> None:
        controllers.gate = asyncio.Event()
        controllers.errors[A1] = FencedLeaderEpochError.code
        first = propose(link, A0, (7, 8))
        await settled()
        others = [propose(link, A1, (7,)), propose(link, B0, (7, 9))]
        await settled()
        assert len(controllers.asked) == 1
        controllers.gate.set()
        assert await first == CommittedIsr(leader=7, leader_epoch=4, isr=(7, 8), partition_epoch=10)
        with pytest.raises(FencedLeaderEpochError):
            await others[0]
        assert (await others[1]).isr == (7, 9)
        _, second = controllers.asked[1]
        if version < 2:
            assert {topic.topic_name for topic in second.topics} == set(IDS)
        else:
            assert {topic.topic_id for topic in second.topics} == set(IDS.values())
        assert (second.broker_id, second.broker_epoch, len(controllers.asked)) == (7, 70, 2)

    assert len(run(scenario, version).opened) == 1


def test_a_topic_without_an_id_is_identified_by_its_name() -> None:
    async def scenario(controllers: Controllers, link: ControllerLink) -> None:
        nameless, known = propose(link, TopicPartition("new", 0), (7,)), propose(link, A0, (7,))
        assert ((await nameless).isr, (await known).isr) == ((7,), (7,))
        ((_, request),) = controllers.asked
        assert {topic.topic_name for topic in request.topics} == {"a", "new"}

    run(scenario)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(NetworkError("gone"), NetworkError), (ValueError("a bug"), UnknownServerError)],
)
def test_after_a_failure_the_next_proposal_finds_a_new_channel(failure: Exception, raised: type[ProtocolError]) -> None:
    async def scenario(controllers: Controllers, link: ControllerLink) -> None:
        controllers.failure = failure
        batch = [propose(link, each, (7,)) for each in (A0, B0)]
        for each in batch:
            with pytest.raises(raised):
                await each
        controllers.failure = None
        assert (await propose(link, A0, (7,))).isr == (7,)

    assert len(run(scenario).opened) == 2


def test_an_error_of_the_request_applies_to_all_partitions() -> None:
    async def scenario(controllers: Controllers, link: ControllerLink) -> None:
        controllers.error_code = NotControllerError.code
        batch = [propose(link, each, (7,)) for each in (A0, B0)]
        for each in batch:
            with pytest.raises(NotControllerError):
                await each
        with pytest.raises(NotControllerError):
            await link.controlled_shutdown()

    run(scenario)


def test_the_controller_moves_or_is_unknown() -> None:
    async def scenario(controllers: Controllers, link: ControllerLink) -> None:
        await propose(link, A0, (7,))
        controllers.moves_to(2)
        await propose(link, A0, (7,))
        assert [broker for broker, _ in controllers.asked] == [1, 2]
        controllers.moves_to(-1)
        with pytest.raises(NotControllerError):
            await propose(link, A0, (7,))

    run(scenario)


def test_two_requests_at_once_share_one_channel() -> None:
    async def scenario(controllers: Controllers, link: ControllerLink) -> None:
        proposal = propose(link, A0, (7,))
        assert await link.controlled_shutdown() == [A1]
        await proposal

    assert len(run(scenario).opened) == 1


def test_closing_cancels_all_proposals() -> None:
    async def scenario(controllers: Controllers, link: ControllerLink) -> None:
        controllers.gate = asyncio.Event()
        under_way = propose(link, A0, (7,))
        await settled()
        waiting = propose(link, A1, (7,))
        await settled()
        await link.close()
        for each in (under_way, waiting):
            with pytest.raises(asyncio.CancelledError):
                await each

    run(scenario)


def test_a_cancelled_proposal_does_not_affect_others() -> None:
    async def scenario(controllers: Controllers, link: ControllerLink) -> None:
        controllers.gate = asyncio.Event()
        gone, stays = propose(link, A0, (7,)), propose(link, B0, (7,))
        await settled()
        gone.cancel()
        await settled()
        controllers.gate.set()
        assert (await stays).isr == (7,)

    run(scenario)
