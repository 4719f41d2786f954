"""A fetch of a classic consumer that ends because of a bug is reported, so that no stream waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.classic.assignment import ConsumerThread
from odradek.classic.consumer_config import ConsumerConfig
from odradek.classic.message_streams import MessageStream
from odradek.classic.partition_readers import PartitionReaders
from odradek.client.cluster_client import Cluster

T0 = TopicPartition("t", 0)


class InvalidStorage:
    """Returns an offset that is not a number, which a correct storage never does."""

    async def read(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, "x")  # type: ignore[arg-type]

    async def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        raise AssertionError("nothing was consumed")


def test_a_bug_in_a_fetch_is_reported() -> None:
    async def main() -> None:
        failed: asyncio.Future[OdradekError] = asyncio.get_running_loop().create_future()
        stream = MessageStream(asyncio.get_running_loop(), limit=1, timeout_ms=-1)
        cluster = Cluster("h:1")
        config = ConsumerConfig(group_id="g", zookeeper_connect="h:1")
        readers = PartitionReaders(cluster, InvalidStorage(), config, lambda *_: stream, failed.set_result)

        async def broken(*_: object, **__: object) -> None:
            raise ValueError("a bug")

        readers._raw.fetch = broken  # type: ignore[assignment, method-assign]
        await readers.start({T0: ConsumerThread("c", 0)})
        assert "classic fetch of t-0 failed: ValueError('a bug')" in str(await failed)
        await readers.close()
        await cluster.close()

    asyncio.run(main())
