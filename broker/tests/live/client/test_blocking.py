"""The blocking client with real brokers, in several threads and in a forked child."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from odradek.base.errors import NetworkError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from odradek.base.types import TopicPartition
from odradek.client.blocking.client import BlockingClient
from odradek.client.consumer.fetched import iterate_records
from odradek.client.settings import ClientSettings

pytestmark = [pytest.mark.java, pytest.mark.slow]

COUNT = 5_000


def produce(client: BlockingClient, topic: str) -> None:
    with client.producer() as producer:
        records = [(None, b"%d" % n, 1_700_000_000_000 + n) for n in range(COUNT)]
        assert producer.send_many(topic, records, partition=0).result().records == COUNT
        assert producer.send(topic, b"x", partition=1).result().offset == 0


def read_raw(client: BlockingClient, topic: str, *, read_ahead: bool) -> list[bytes]:
    values: list[bytes] = []
    offset = 0
    while offset < COUNT:
        fetch = client.fetch_raw(TopicPartition(topic, 0), offset, max_bytes=20_000, read_ahead=read_ahead)
        values += [record.value or b"" for records, _ in iterate_records(fetch) for record in records]
        offset = fetch.next_offset
    return values


def everything(settings: ClientSettings, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with BlockingClient(settings) as client:
        produce(client, topic)
        assert topic in client.topics()
        assert client.partitions(topic) == [0, 1, 2]
        assert client.earliest_offsets([first, second]) == {first: 0, second: 0}
        assert client.latest_offsets([first, second]) == {first: COUNT, second: 1}
        assert client.latest_offsets([first], isolation="read_committed") == {first: COUNT}
        found = client.offsets_for_times({first: 1_700_000_000_100})[first]
        assert found is not None
        assert found.offset == 100
        expected = [b"%d" % n for n in range(COUNT)]
        assert read_raw(client, topic, read_ahead=True) == expected
        assert read_raw(client, topic, read_ahead=False) == expected
        assert len(client.fetch_raw(first, COUNT, max_wait_ms=1).records) == 0
        with pytest.raises(OffsetOutOfRangeError):
            client.fetch_raw(first, COUNT + 1)
        with pytest.raises(UnknownTopicOrPartitionError):
            client.partitions(f"{topic}-missing")
        with client.consumer() as consumer:
            consumer.assign([first])
            consumer.seek(first, 10)
            assert consumer.getone().value == b"10"
        many_threads(client, topic, expected)
        in_a_child(client, first)
        assert client.latest_offsets([first]) == {first: COUNT}
    with pytest.raises(NetworkError):
        client.topics()


def many_threads(client: BlockingClient, topic: str, expected: list[bytes]) -> None:
    results: list[list[bytes]] = []
    threads = [
        threading.Thread(target=lambda: results.append(read_raw(client, topic, read_ahead=True))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def in_a_child(client: BlockingClient, partition: TopicPartition) -> None:
    """A forked child uses the client that it inherited and the shared one. The parent's connections stay intact."""
    shared = BlockingClient.shared(client.settings)
    assert shared.latest_offsets([partition]) == {partition: COUNT}
    child = os.fork()
    if child == 0:
        works = client.latest_offsets([partition]) == {partition: COUNT}
        works = works and BlockingClient.shared(client.settings).latest_offsets([partition]) == {partition: COUNT}
        os._exit(0 if works else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shared.latest_offsets([partition]) == {partition: COUNT}
    shared.close()


async def test_everything_from_threads(settings: ClientSettings, topic: str) -> None:
    await asyncio.to_thread(everything, settings, topic)
