"""Offsets in ZooKeeper: shared with consumers that access ZooKeeper directly. Partitions are independent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.base.errors import (
    NONE,
    InvalidGroupIdError,
    OffsetMetadataTooLargeError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from odradek.base.types import TopicPartition
from odradek.server.groups.zookeeper_offsets import ZooKeeperOffsets
from odradek.testing.memory_zk import MemoryZk
from odradek.zk.port import ConnectionLost, Created, NodeExists

TP = TopicPartition("events", 0)
OTHER = TopicPartition("events", 1)
PATH = "/consumers/group/offsets/events/0"


class RacingZk(MemoryZk):
    """Another client creates each znode first."""

    async def create(self, path: str, data: bytes | None = None, **options: Any) -> Created:
        await super().create(path, b"1", **options)
        raise NodeExists(path)


class LostZk(MemoryZk):
    """A client without a connection to ZooKeeper."""

    async def set(self, path: str, data: bytes, version: int = -1) -> Any:
        raise ConnectionLost(path)

    async def get_many(self, paths: Any) -> Any:
        raise ConnectionLost("all")


@pytest.mark.parametrize("make", [MemoryZk, RacingZk])
def test_an_offset_is_stored_and_found(make: type[MemoryZk]) -> None:
    async def scenario() -> None:
        zk = make()
        offsets = ZooKeeperOffsets(zk, metadata_max=4)
        assert await offsets.fetch("group", [TP]) == {TP: (-1, UnknownTopicOrPartitionError.code)}
        for number in (5, 6):
            assert await offsets.commit("group", {TP: (number, "meta"), OTHER: (7, "")}) == {TP: NONE, OTHER: NONE}
            assert (await zk.get(PATH))[0] == str(number).encode()
        assert await offsets.fetch("group", [TP, OTHER, TP]) == {TP: (6, NONE), OTHER: (7, NONE)}

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1])
def test_offsets_that_a_consumer_wrote_are_read(number: int) -> None:
    async def scenario() -> None:
        zk = MemoryZk()
        await zk.create(PATH, str(number).encode(), make_parents=True)
        await zk.ensure_path("/consumers/group/offsets/events/1")
        found = await ZooKeeperOffsets(zk, metadata_max=0).fetch("group", [TP, OTHER])
        assert found == {TP: (number, NONE), OTHER: (-1, UnknownTopicOrPartitionError.code)}

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [b"many", b"\xff", b"9" * 20, b"1.5"])
def test_an_invalid_offset_is_an_error_of_its_partition(data: bytes) -> None:
    async def scenario() -> None:
        zk = MemoryZk()
        offsets = ZooKeeperOffsets(zk, metadata_max=0)
        await zk.create(PATH, data, make_parents=True)
        await offsets.commit("group", {OTHER: (3, "")})
        found = await offsets.fetch("group", [TP, OTHER])
        assert found == {TP: (-1, UnknownServerError.code), OTHER: (3, NONE)}

    asyncio.run(scenario())


@pytest.mark.parametrize("group_id", ["", ".", "..", "a/b", "../brokers", "a\x00b", "\ue000"])
def test_group_ids_that_are_not_znode_names_are_refused(group_id: str) -> None:
    async def scenario() -> None:
        zk = MemoryZk()
        offsets = ZooKeeperOffsets(zk, metadata_max=0)
        assert await offsets.commit(group_id, {TP: (3, "")}) == {TP: InvalidGroupIdError.code}
        assert await offsets.fetch(group_id, [TP]) == {TP: (-1, InvalidGroupIdError.code)}
        assert await zk.children("/") == []

    asyncio.run(scenario())


def test_metadata_is_limited_and_not_stored() -> None:
    async def scenario() -> None:
        offsets = ZooKeeperOffsets(MemoryZk(), metadata_max=4)
        codes = await offsets.commit("group", {TP: (3, "12345"), OTHER: (4, "\U0001f600" * 2)})
        assert codes == {TP: OffsetMetadataTooLargeError.code, OTHER: NONE}
        assert await offsets.commit("group", {OTHER: (4, "\U0001f600" * 2 + "a")}) == {
            OTHER: OffsetMetadataTooLargeError.code
        }

    asyncio.run(scenario())


def test_without_zookeeper_the_client_gets_a_retriable_error() -> None:
    async def scenario() -> None:
        offsets = ZooKeeperOffsets(LostZk(), metadata_max=4)
        assert await offsets.commit("group", {TP: (3, "")}) == {TP: RequestTimedOutError.code}
        assert await offsets.fetch("group", [TP]) == {TP: (-1, RequestTimedOutError.code)}

    asyncio.run(scenario())
