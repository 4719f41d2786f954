"""The fetch loops of this broker, and the partitions that each of them follows.

`roles` adds and removes partitions as roles change. The partitions of one leader are spread over `num.replica.fetchers`
loops. A loop without partitions ends at once: the leader may have lost its power without closing the connection, and
partitions that return to this leader must not wait for the old request. All tasks belong to this module and end with
`close`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final
from zlib import crc32

from odradek.base.config import BrokerConfig
from odradek.base.ports import Clock
from odradek.base.types import NO_EPOCH, TopicPartition
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.replication.follower.fetch_loop import ConnectLeader, ReplicaFetcher
from odradek.replication.partition_table import HostedPartition
from odradek.replication.quota import ReplicationQuota
from odradek.replication.sessions.follower_session import Followed

logger = logging.getLogger(__name__)


class FetcherManager:
    """All fetch loops. Used on the event loop only."""

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        *,
        connect: ConnectLeader,
        on_change: Callable[[TopicPartition], None],
        on_storage_failure: Callable[[TopicPartition], None],
        quota: ReplicationQuota | None = None,
        broker_epoch: Callable[[], int] = lambda: NO_EPOCH,
        stats: BrokerTopicStats | None = None,
    ) -> None:
        """See `ReplicaFetcher` for the arguments."""
        self._stats: Final = stats or BrokerTopicStats()
        self._quota: Final = quota
        self._broker_epoch: Final = broker_epoch
        self._clock: Final = clock
        self._config: Final = config
        self._connect: Final = connect
        self._on_change: Final = on_change
        self._on_storage_failure: Final = on_storage_failure
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._by_partition: dict[TopicPartition, ReplicaFetcher] = {}
        self._tasks: dict[ReplicaFetcher, asyncio.Task[None]] = {}
        self._count = config.num_replica_fetchers
        self._is_closed = False
        self._postponed: dict[TopicPartition, HostedPartition] = {}
        """Partitions that are followed as soon as no thread writes to their logs."""

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply new settings: distribute the partitions over the new number of loops."""
        if config.num_replica_fetchers == self._count or self._is_closed:
            return
        logger.info(
            "the number of fetch loops to each leader is now %d, was %d", config.num_replica_fetchers, self._count
        )
        self._count = config.num_replica_fetchers
        for topic_partition, fetcher in list(self._by_partition.items()):
            partition = fetcher.followed[topic_partition].partition
            if self._fetchers.get((partition.leader_id, self._number(topic_partition))) is not fetcher:
                self._unfollow(fetcher, topic_partition)
                self._follow(partition)

    def add(self, partition: HostedPartition) -> None:
        """Follow the partition's leader from the end of the local log, in the current leader epoch."""
        if self._is_closed:
            return
        topic_partition = partition.topic_partition
        self.remove(topic_partition)
        log = partition.log
        if log.latest_epoch < 0 and log.log_end_offset > log.high_watermark:
            # Without epochs, the point of divergence is unknown; only committed records are safe to keep.
            if log.writing is not None:
                self._postponed[topic_partition] = partition
                return
            log.truncate_to(log.high_watermark)
        self._follow(partition)

    def _number(self, topic_partition: TopicPartition) -> int:
        return (crc32(topic_partition.topic.encode()) + topic_partition.partition) % self._count

    def _follow(self, partition: HostedPartition) -> None:
        topic_partition = partition.topic_partition
        number = self._number(topic_partition)
        fetcher = self._fetchers.get((partition.leader_id, number))
        if fetcher is None or fetcher.is_ended:
            fetcher = self._start(partition.leader_id, number)
        self._by_partition[topic_partition] = fetcher
        fetcher.follow(Followed(partition))

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop following a partition; nothing in flight gets into the log. Does nothing if it is not followed."""
        self._postponed.pop(topic_partition, None)
        fetcher = self._by_partition.pop(topic_partition, None)
        if fetcher is not None:
            self._unfollow(fetcher, topic_partition)

    def _unfollow(self, fetcher: ReplicaFetcher, topic_partition: TopicPartition) -> None:
        """Stop following a partition; end the loop soon if it has no other partition."""
        fetcher.unfollow(topic_partition)
        if not fetcher.followed:
            # Not at once: a new leader epoch of the same leader removes the partition and adds it again.
            asyncio.get_running_loop().call_soon(self._end_idle, fetcher)

    def _end_idle(self, fetcher: ReplicaFetcher) -> None:
        task = self._tasks.get(fetcher)
        if fetcher.followed or task is None:
            return
        for key in [key for key, each in self._fetchers.items() if each is fetcher]:
            del self._fetchers[key]
        task.cancel()

    def flushed(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition again that waited for a required flush or a write, if it is complete."""
        postponed = self._postponed.pop(topic_partition, None)
        if postponed is not None:
            self.add(postponed)
        fetcher = self._by_partition.get(topic_partition)
        if fetcher is not None:
            fetcher.flushed(topic_partition)

    def max_lag(self) -> int:
        """Return the largest number of records by which a partition is behind its leader's high watermark."""
        return max(
            (one.lag or 0 for fetcher in self._fetchers.values() for one in fetcher.followed.values()), default=0
        )

    def lags(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Yield Kafka's name of the fetch loop, the partition, and the records behind the leader's high watermark."""
        for (leader_id, number), fetcher in self._fetchers.items():
            for topic_partition, one in fetcher.followed.items():
                yield f"ReplicaFetcherThread-{number}-{leader_id}", topic_partition, one.lag or 0

    async def close(self) -> None:
        """Cancel all loops and wait until they have ended. Idempotent."""
        self._is_closed = True
        self._by_partition.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, leader_id: int, number: int) -> ReplicaFetcher:
        fetcher = ReplicaFetcher(
            leader_id,
            f"broker-{self._config.broker_id}-fetcher-{number}",
            self._clock,
            self._config,
            connect=self._connect,
            on_change=self._on_change,
            on_storage_failure=self._on_storage_failure,
            quota=self._quota,
            broker_epoch=self._broker_epoch,
            stats=self._stats,
        )
        key = (leader_id, number)
        self._fetchers[key] = fetcher
        task = asyncio.get_running_loop().create_task(fetcher.run(), name=f"fetcher-{leader_id}-{number}")
        self._tasks[fetcher] = task
        task.add_done_callback(lambda ended: self._done(key, fetcher, ended))
        return fetcher

    def _done(self, key: tuple[int, int], fetcher: ReplicaFetcher, task: asyncio.Task[None]) -> None:
        self._tasks.pop(fetcher, None)
        if self._fetchers.get(key) is fetcher:
            del self._fetchers[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a fetch loop ended unexpectedly", exc_info=error)
