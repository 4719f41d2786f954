"""The connection to a leader, a scripted broker on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    BrokerNotAvailableError,
    FencedLeaderEpochError,
    MalformedFrameError,
    NetworkError,
    UnsupportedVersionError,
)
from odradek.base.types import Endpoint, TopicPartition
from odradek.cluster import AnnouncedBroker, MetadataCache
from odradek.network.connection import Request
from odradek.network.listener import Listener
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import decode_request, encode_response
from odradek.protocol.hotpath import FetchedPartition, FetchEntry, FetchRequest, decode_fetch, encode_fetch_response
from odradek.replication.follower.leader_channel import LeaderConnector
from odradek.replication.partition import EpochEnd
from odradek_testkit.loop import ManualClock

TP = TopicPartition("t", 3)
CONFIG, _ = BrokerConfig.parse(
    {
        "broker.id": "2",
        "zookeeper.connect": "localhost:2181",
        "log.dirs": "/nowhere",
        "listeners": "INTERNAL://:9092",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT",
    }
)


class Leader:
    """Answers and records every request."""

    def __init__(self) -> None:
        self.listener = Listener("INTERNAL", ("127.0.0.1", 0), self._handle, ManualClock())
        self.versions = {ApiKey.FETCH: (4, 12), ApiKey.LIST_OFFSETS: (1, 5), ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 3)}
        self.asked: list[Any] = []
        self.spoken: list[int] = []
        self.error_code = 0
        self.partitions = 1

    def _handle(self, request: Request) -> None:
        if request.api_key == ApiKey.FETCH:
            self._fetch(request)
            return
        if request.api_key != ApiKey.API_VERSIONS:
            self.asked.append(decode_request(request.header, request.frame, request.position))
            self.spoken.append(request.api_version)
        answer: dict[str, Any] = {
            ApiKey.API_VERSIONS: {
                "error_code": 0,
                "throttle_time_ms": 0,
                "api_keys": [
                    {"api_key": int(key), "min_version": low, "max_version": high}
                    for key, (low, high) in self.versions.items()
                ],
            },
            ApiKey.LIST_OFFSETS: {
                "throttle_time_ms": 0,
                "topics": [
                    {
                        "name": TP.topic,
                        "partitions": [{"partition_index": TP.partition, "error_code": self.error_code, "offset": 42}]
                        * self.partitions,
                    }
                ],
            },
            ApiKey.OFFSET_FOR_LEADER_EPOCH: {
                "throttle_time_ms": 0,
                "topics": [
                    {
                        "topic": TP.topic,
                        "partitions": [
                            {
                                "partition": TP.partition,
                                "error_code": self.error_code,
                                "leader_epoch": 4,
                                "end_offset": 40,
                            }
                        ]
                        * self.partitions,
                    }
                ],
            },
        }[request.api_key]
        request.respond((encode_response(request.api_key, request.api_version, request.correlation_id, answer),))

    def _fetch(self, request: Request) -> None:
        self.asked.append(decode_fetch(request.api_version, request.frame, request.position))
        row = FetchedPartition(TP.topic, None, TP.partition, 0, 7, 7, 0, b"records")
        request.respond(encode_fetch_response(request.api_version, request.correlation_id, [row], session_id=5))


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    peer = Leader()
    await peer.listener.start()
    yield peer
    await peer.listener.close(grace_ms=0)


def connector(port: int, listener: str = "INTERNAL", *, protocol: str = "3.9") -> LeaderConnector:
    view = MetadataCache()
    endpoint = Endpoint(listener, "127.0.0.1", port)
    view.image = view.image.updated(
        controller_id=1, brokers=[AnnouncedBroker(broker_id=1, endpoints=(endpoint,))], partitions=[]
    )
    return LeaderConnector(view, replace(CONFIG, inter_broker_protocol_version=protocol))


async def test_fetches_in_the_highest_common_version(leader: Leader) -> None:
    channel = await connector(leader.listener.port)(1, "broker-2-fetcher-0")
    try:
        assert channel.fetch_version == 12
        entry = FetchEntry(TP.topic, None, TP.partition, 6, 7, 5, 0, 1000)
        request = FetchRequest(500, 1, 10_000, [entry], replica_id=2, session_id=9, session_epoch=3)
        response = await channel.fetch(request, 12)
        assert leader.asked == [request]
        (row,) = response.partitions
        assert (response.session_id, bytes(row.records), row.high_watermark) == (5, b"records", 7)
    finally:
        await channel.close()


@pytest.mark.parametrize(
    ("protocol", "fetch", "versions"), [("2.7", 12, (5, 3)), ("2.7-IV0", 11, (5, 3)), ("3.9", 17, (8, 4))]
)
async def test_the_clusters_protocol_bounds_the_versions(
    leader: Leader, protocol: str, fetch: int, versions: tuple[int, int]
) -> None:
    apis = (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH)
    leader.versions = {ApiKey.FETCH: (4, 17), **dict.fromkeys(apis, (0, 9))}
    channel = await connector(leader.listener.port, protocol=protocol)(1, "broker-2-fetcher-0")
    try:
        assert channel.fetch_version == fetch
        await channel.list_offset(TP, 6, -2)
        await channel.epoch_end(TP, 6, 5)
        assert tuple(leader.spoken) == versions
    finally:
        await channel.close()


async def test_a_leader_that_is_too_new_for_the_protocol_is_left(leader: Leader) -> None:
    leader.versions[ApiKey.FETCH] = (13, 17)
    with pytest.raises(UnsupportedVersionError):
        await connector(leader.listener.port, protocol="2.7")(1, "me")


async def test_requests_offsets_and_epochs_as_a_replica(leader: Leader) -> None:
    channel = await connector(leader.listener.port)(1, "broker-2-fetcher-0")
    try:
        assert await channel.list_offset(TP, 6, -2) == 42
        assert await channel.epoch_end(TP, 6, 5) == EpochEnd(4, 40)
        offsets, epochs = leader.asked
        assert offsets.replica_id == epochs.replica_id == 2
        assert offsets.topics[0].partitions[0].timestamp == -2
        assert offsets.topics[0].partitions[0].current_leader_epoch == 6
        assert epochs.topics[0].partitions[0].leader_epoch == 5
        assert epochs.topics[0].partitions[0].current_leader_epoch == 6
        leader.error_code = FencedLeaderEpochError.code
        with pytest.raises(FencedLeaderEpochError):
            await channel.list_offset(TP, 6, -1)
        leader.partitions = 2
        with pytest.raises(MalformedFrameError):
            await channel.epoch_end(TP, 6, 5)
    finally:
        await channel.close()


async def test_a_broker_that_is_not_there(leader: Leader) -> None:
    with pytest.raises(BrokerNotAvailableError):
        await connector(leader.listener.port)(7, "me")
    with pytest.raises(BrokerNotAvailableError):
        await connector(leader.listener.port, "OTHER")(1, "me")
    port = leader.listener.port
    await leader.listener.close(grace_ms=0)
    with pytest.raises(NetworkError):
        await connector(port)(1, "me")


async def test_a_leader_without_a_common_version_is_left(leader: Leader) -> None:
    del leader.versions[ApiKey.FETCH]
    with pytest.raises(UnsupportedVersionError):
        await connector(leader.listener.port)(1, "me")


async def test_cancelled_while_connecting_nothing_is_left_open(leader: Leader) -> None:
    for steps in range(12):
        task = asyncio.ensure_future(connector(leader.listener.port)(1, "me"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await (await task).close()
        except asyncio.CancelledError:
            assert task.cancelled()
    for _ in range(10_000):
        if not leader.listener.counters.connections:
            break
        await asyncio.sleep(0)
    assert leader.listener.counters.connections == 0
