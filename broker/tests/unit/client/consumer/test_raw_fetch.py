"""Raw fetches with read-ahead, with an in-memory cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.base.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.consumer import raw_fetch
from odradek.client.consumer.raw_fetch import MAX_READ_AHEAD, Range, RawFetcher
from odradek.client.settings import ClientSettings
from odradek.protocol.apis import ApiKey
from odradek.protocol.hotpath import FetchedPartition, FetchRequest, FetchResponse
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.loop import VirtualClock, run_virtual

SETTINGS = ClientSettings.of("fake:9001", default_api_timeout_ms=5_000)
PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def fill(cluster: Any, batches: int, partition: TopicPartition = PARTITION) -> None:
    for number in range(batches):
        builder = BatchBuilder(limit_bytes=1 << 20)
        builder.append(None, b"%d" % number, timestamp_ms=number)
        cluster.logs[partition].append(memoryview(builder.build()))


def wanted(offset: int, *, partition: TopicPartition = PARTITION, max_bytes: int = 150) -> Range:
    return Range(topic_partition=partition, offset=offset, max_bytes=max_bytes, max_wait_ms=100)


def with_fetcher(cluster: Any, work: Callable[[RawFetcher], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Cluster(SETTINGS, clock=VirtualClock(), connect=cluster.connect) as client:
            fetcher = RawFetcher(client)
            try:
                await work(fetcher)
            finally:
                await fetcher.close()

    run_virtual(main())
    assert cluster.open_links == 0


def fetches(cluster: Any) -> int:
    return sum(api_key is ApiKey.FETCH for api_key, _ in cluster.asked)


@pytest.mark.parametrize("read_ahead", [True, False])
def test_a_partition_is_read_completely(fakes: Any, read_ahead: bool) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 20)

    async def work(fetcher: RawFetcher) -> None:
        offset = 0
        data = b""
        while offset < 20:
            fetch = await fetcher.fetch(wanted(offset), read_ahead=read_ahead)
            assert fetch.fetch_offset == offset
            assert fetch.high_watermark == 20
            data += bytes(fetch.records)
            offset = fetch.next_offset
        assert data == b"".join(cluster.logs[PARTITION].batches)

    with_fetcher(cluster, work)
    assert fetches(cluster) == 10


def test_the_next_range_is_fetched_before_it_is_requested(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 20)

    async def work(fetcher: RawFetcher) -> None:
        first = await fetcher.fetch(wanted(0))
        await asyncio.sleep(0.1)
        assert fetches(cluster) == 2
        clock = VirtualClock()
        before = clock.monotonic_ms()
        await fetcher.fetch(wanted(first.next_offset))
        assert clock.monotonic_ms() == before

    with_fetcher(cluster, work)


def test_another_range_does_not_use_the_read_ahead(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 20)

    async def work(fetcher: RawFetcher) -> None:
        await fetcher.fetch(wanted(0))
        assert (await fetcher.fetch(wanted(11))).fetch_offset == 11
        fetch = await fetcher.fetch(wanted(13, max_bytes=1_000))
        assert (fetch.fetch_offset, fetch.next_offset) == (13, 20)

    with_fetcher(cluster, work)


def test_read_ahead_stops_at_the_end_of_the_log(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 2)

    async def work(fetcher: RawFetcher) -> None:
        assert (await fetcher.fetch(wanted(0))).next_offset == 2
        await asyncio.sleep(1)
        assert fetches(cluster) == 1
        empty = await fetcher.fetch(wanted(2))
        assert (len(empty.records), empty.next_offset) == (0, 2)

    with_fetcher(cluster, work)


def test_nothing_is_fetched_ahead_after_the_wanted_range(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 20)

    async def work(fetcher: RawFetcher) -> None:
        first = await fetcher.fetch(replace(wanted(0), end_offset=3))
        assert first.next_offset == 2
        await asyncio.sleep(0.1)
        assert fetches(cluster) == 2
        second = await fetcher.fetch(replace(wanted(2), end_offset=3))
        assert second.next_offset == 4
        await asyncio.sleep(0.1)
        assert fetches(cluster) == 2

    with_fetcher(cluster, work)


def test_a_fetch_is_not_larger_than_the_wanted_range(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 4000)
    large = replace(wanted(0, max_bytes=4 << 20), end_offset=10)

    async def work(fetcher: RawFetcher) -> None:
        # The size of records is not known yet.
        first = await fetcher.fetch(large, read_ahead=False)
        assert 10 <= first.next_offset < 4000
        # Now it is: the log has less than 64 KiB after this offset, so the rest is one fetch.
        record_bytes = len(first.records) / first.next_offset
        few = await fetcher.fetch(replace(large, offset=1000, end_offset=1010), read_ahead=False)
        assert 10 <= few.next_offset - 1000 <= 10 + (64 << 10) / record_bytes + 2
        everything = await fetcher.fetch(replace(large, end_offset=4000), read_ahead=False)
        assert everything.next_offset == 4000

    with_fetcher(cluster, work)


@pytest.mark.parametrize("how", ["expired", "dropped"])
def test_what_nobody_takes_is_freed(fakes: Any, how: str) -> None:
    cluster = fakes.cluster({"t": 2})
    for partition in cluster.logs:
        fill(cluster, 20, partition)

    async def work(fetcher: RawFetcher) -> None:
        first = await fetcher.fetch(wanted(0))
        await asyncio.sleep(5)
        await fetcher.fetch(wanted(0, partition=OTHER))
        await asyncio.sleep(0.1)
        if how == "expired":
            await asyncio.sleep(6)
        else:
            fetcher.drop_read_ahead(PARTITION)
        before = fetches(cluster)
        # The other one is younger than ten seconds.
        await fetcher.fetch(wanted(2, partition=OTHER), read_ahead=False)
        assert fetches(cluster) == before
        assert (await fetcher.fetch(wanted(first.next_offset), read_ahead=False)).fetch_offset == first.next_offset
        assert fetches(cluster) == before + 1

    with_fetcher(cluster, work)


def test_read_ahead_is_bounded(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 3 * MAX_READ_AHEAD})
    for partition in cluster.logs:
        fill(cluster, 3, partition)

    async def work(fetcher: RawFetcher) -> None:
        for partition in cluster.logs:
            await fetcher.fetch(wanted(0, partition=partition, max_bytes=1))
        await asyncio.sleep(1)
        before = fetches(cluster)
        for partition in cluster.logs:
            assert (await fetcher.fetch(wanted(1, partition=partition, max_bytes=1), read_ahead=False)).next_offset == 2
        assert fetches(cluster) - before == 2 * MAX_READ_AHEAD

    with_fetcher(cluster, work)


def test_a_failed_read_ahead_is_retried(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 10)
    cluster.faults[ApiKey.FETCH].extend([fakes.fault(), fakes.fault(lose_answer=True)])

    async def work(fetcher: RawFetcher) -> None:
        first = await fetcher.fetch(wanted(0))
        assert len((await fetcher.fetch(wanted(first.next_offset))).records) > 0

    with_fetcher(cluster, work)


def test_fetches_survive_new_leaders_and_lost_connections(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 10)
    cluster.faults[ApiKey.FETCH].extend([fakes.fault(lose_request=True), fakes.fault(code=6)])

    async def work(fetcher: RawFetcher) -> None:
        first = await fetcher.fetch(wanted(0), read_ahead=False)
        cluster.logs[PARTITION].leader, cluster.logs[PARTITION].epoch = 2, 1
        assert (await fetcher.fetch(wanted(first.next_offset))).fetch_offset == first.next_offset

    with_fetcher(cluster, work)


def test_errors_are_raised(fakes: Any) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 3)

    async def work(fetcher: RawFetcher) -> None:
        with pytest.raises(OffsetOutOfRangeError):
            await fetcher.fetch(wanted(4))
        with pytest.raises(UnknownTopicOrPartitionError):
            await fetcher.fetch(wanted(0, partition=TopicPartition("t", 7)))
        with pytest.raises(UnknownTopicOrPartitionError):
            await fetcher.fetch(wanted(0, partition=TopicPartition("missing", 0)))

    with_fetcher(cluster, work)


@pytest.mark.parametrize("turns", range(10))
def test_a_cancelled_fetch_releases_its_connection(fakes: Any, turns: int) -> None:
    cluster = fakes.cluster({"t": 1})
    fill(cluster, 10)

    async def work(fetcher: RawFetcher) -> None:
        task = asyncio.ensure_future(fetcher.fetch(wanted(0)))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await fetcher.fetch(wanted(0), read_ahead=False)).next_offset == 2

    with_fetcher(cluster, work)


def test_the_preferred_replica_is_read(fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fakes.cluster({"t": 1}, nodes=2)
    asked: list[tuple[int, FetchRequest]] = []
    follower_refuses = False

    async def exchange(_: Cluster, broker: int, request: FetchRequest, *, purpose: str) -> FetchResponse:
        asked.append((broker, request))
        code = OffsetOutOfRangeError.code if broker == follower and follower_refuses else 0
        names = follower if broker == leader and not follower_refuses else -1
        return FetchResponse([FetchedPartition("t", None, 0, code, 1, 1, 0, preferred_read_replica=names)])

    leader = follower = -1
    monkeypatch.setattr(raw_fetch, "exchange_fetch", exchange)

    async def main() -> None:
        nonlocal leader, follower, follower_refuses
        settings = SETTINGS.replace(client_rack="b", fetch_max_bytes=100)
        async with Cluster(settings, clock=VirtualClock(), connect=cluster.connect) as client:
            fetcher = RawFetcher(client)
            await client.topic("t", client.deadline("the first look"))
            leader = client.view.leader(PARTITION)
            (follower,) = client.view.nodes.keys() - {leader}
            await fetcher.fetch(wanted(0), read_ahead=False)
            await fetcher.fetch(wanted(0), read_ahead=False)
            assert [broker for broker, _ in asked] == [leader, follower, follower]
            assert {(request.rack_id, request.max_bytes) for _, request in asked} == {("b", 100)}
            follower_refuses = True
            await fetcher.fetch(wanted(0), read_ahead=False)
            assert [broker for broker, _ in asked[3:]] == [follower, leader], "the leader decides"
            await fetcher.close()

    run_virtual(main())
