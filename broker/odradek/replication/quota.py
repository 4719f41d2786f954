"""Replication quotas (KIP-73): a byte rate over a few windows, and the replicas that are throttled.

The leader's `reader` and the followers' fetch loops record bytes and check the rate; `replica_manager` owns one quota
for each side. The topics' settings list the throttled replicas. Nothing here waits: while the rate is exceeded,
throttled replicas are omitted from responses or requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from odradek.base.config import BrokerConfig
from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.replication.partition_table import PartitionTable

ALL_REPLICAS: Final = "*"


class WindowedRate:
    """Bytes per second over the last `count` windows, including the current one (Kafka's SimpleRate)."""

    __slots__ = ("_count", "_total", "_window_ms", "_windows")

    def __init__(self, count: int, window_ms: float) -> None:
        """`replication.quota.window.num` windows of `replication.quota.window.size.seconds`."""
        self._count: Final = count
        self._window_ms: Final = window_ms
        self._windows: deque[tuple[float, int]] = deque()
        """(start, amount) of each window with a recorded amount."""
        self._total = 0

    def record(self, amount: int, now_ms: float) -> None:
        """Record `amount` at `now_ms`; times must not decrease."""
        self._expire(now_ms)
        windows = self._windows
        if windows and now_ms - windows[-1][0] < self._window_ms:
            begin, before = windows[-1]
            windows[-1] = (begin, before + amount)
        else:
            windows.append((now_ms, amount))
        self._total += amount

    def rate(self, now_ms: float) -> float:
        """Return the bytes per second since the oldest window began, over at least one window."""
        self._expire(now_ms)
        if not self._windows:
            return 0.0
        return self._total * 1000.0 / max(now_ms - self._windows[0][0], self._window_ms)

    def _expire(self, now_ms: float) -> None:
        windows, oldest_ms = self._windows, now_ms - self._count * self._window_ms
        while windows and windows[0][0] <= oldest_ms:
            self._total -= windows.popleft()[1]


class ReplicationQuota:
    """The quota of one side, leader or follower. The limit may change at any time."""

    def __init__(
        self,
        rate: WindowedRate,
        now_ms: Callable[[], float],
        *,
        limit: int,
        is_throttled: Callable[[TopicPartition], bool],
    ) -> None:
        """`limit` is in bytes per second. `is_throttled`: whether the topic's settings list this broker's replica."""
        self._rate: Final = rate
        self._now_ms: Final = now_ms
        self.limit = limit
        self.is_throttled: Final = is_throttled

    @property
    def byte_rate(self) -> float:
        """Bytes per second of throttled replicas."""
        return self._rate.rate(self._now_ms())

    @property
    def is_exceeded(self) -> bool:
        """Whether throttled replicas that are out of sync have to wait."""
        return self.byte_rate > self.limit

    def note(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Record bytes that were sent or received for a replica; they count if it is throttled, in sync or not."""
        if size_bytes and self.is_throttled(topic_partition):
            self._rate.record(size_bytes, self._now_ms())


def is_listed(entries: Iterable[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's `*.replication.throttled.replicas` is `*` or contains `partition:broker`."""
    return any(entry in (ALL_REPLICAS, f"{partition}:{broker_id}") for entry in entries)


class ReplicationQuotas:
    """The quotas of one broker: as a leader that followers fetch from, and as a follower."""

    def __init__(self, table: PartitionTable, clock: Clock, config: BrokerConfig) -> None:
        """Topic settings are read from the logs in `table` when needed."""
        self._table: Final = table
        self._broker_id: Final = config.broker_id
        windows = config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000.0
        self.leader: Final = ReplicationQuota(
            WindowedRate(*windows),
            clock.monotonic_ms,
            limit=config.leader_replication_throttled_rate,
            is_throttled=lambda one: self._is_listed(one, "leader_replication_throttled_replicas"),
        )
        self.follower: Final = ReplicationQuota(
            WindowedRate(*windows),
            clock.monotonic_ms,
            limit=config.follower_replication_throttled_rate,
            is_throttled=lambda one: self._is_listed(one, "follower_replication_throttled_replicas"),
        )

    def configure(self, config: BrokerConfig) -> None:
        """Apply the current rates."""
        self.leader.limit = config.leader_replication_throttled_rate
        self.follower.limit = config.follower_replication_throttled_rate

    def _is_listed(self, topic_partition: TopicPartition, attribute: str) -> bool:
        partition = self._table.online.get(topic_partition)
        if partition is None:
            return False
        entries: tuple[str, ...] = getattr(partition.log.config, attribute)
        return bool(entries) and is_listed(entries, topic_partition.partition, self._broker_id)
