"""Fetches bytes of a partition, and the next range while the caller processes the current one.

`blocking` uses it for the Spark source. Invariants: at most one read-ahead per partition and isolation level, and
`MAX_READ_AHEAD` in total; the oldest is dropped, and each after `READ_AHEAD_MS`. Nothing is fetched ahead from the end
of a wanted range on. A fetch does not share its connection, because one that waits at the
end of a log would block others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from odradek.base.errors import LeaderNotAvailableError, OdradekError, error_for
from odradek.base.ports import Timer
from odradek.base.tasks import TaskOwner
from odradek.base.types import NO_BROKER, NO_EPOCH, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.fetched import raw_fetch
from odradek.client.exchanges import exchange_fetch
from odradek.client.models import RawFetch
from odradek.protocol.hotpath import FetchedPartition, FetchEntry, FetchRequest

MAX_READ_AHEAD: Final = 16
"""Maximum number of ranges that are fetched or kept ahead."""
READ_AHEAD_MS: Final = 10_000
"""How long a range that was fetched ahead is kept; its reader may have ended."""
_UNKNOWN_RECORD_BYTES: Final = 4096
"""Assumed size of a record before the first fetch of a partition."""
_SPARE_BYTES: Final = 64 << 10
"""Added to an estimate. A fetch that ends before the range does costs another round trip."""
_MAX_SIZES: Final = 1024
_MAX_SLOTS: Final = 16
"""Maximum number of connections to one broker; further fetches share the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A range to fetch. Sizes are targets: at least one whole batch is returned.

    Records from `end_offset` on are not needed: the fetch is not larger than the records before it probably are.
    """

    topic_partition: TopicPartition
    offset: int
    max_bytes: int
    max_wait_ms: int
    min_bytes: int = 1
    read_committed: bool = False
    end_offset: int | None = None


class RawFetcher:
    """Fetches ranges for one client."""

    def __init__(self, cluster: Cluster) -> None:
        """The owner of `cluster` starts and closes it."""
        self._cluster = cluster
        self._tasks = TaskOwner()
        self._ahead: dict[tuple[TopicPartition, bool], tuple[Range, asyncio.Task[RawFetch | OdradekError]]] = {}
        self._expiry: Timer | None = None
        self._begun_ms: dict[tuple[TopicPartition, bool], float] = {}
        self._record_bytes: dict[TopicPartition, float] = {}
        """Bytes per offset in the last fetch of a partition."""
        self._slots: dict[int, set[int]] = {}
        self._preferred: dict[TopicPartition, tuple[int, float]] = {}
        """The replica that a leader chose for this rack (KIP-392), and until when it is used."""

    async def close(self) -> None:
        """Cancel fetches in progress."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._ahead.clear()
        await self._tasks.close()

    async def fetch(self, wanted: Range, *, read_ahead: bool = True) -> RawFetch:
        """Return the range; it is empty if no data arrived within `max_wait_ms`.

        Raises `OffsetOutOfRangeError`, `UnknownTopicOrPartitionError` and other errors that persist for
        `default_api_timeout_ms`.
        """
        found = await self._from_ahead(wanted)
        if found is None:
            found = await self._with_retries(wanted)
        if read_ahead and len(found.records):
            self._begin_ahead(wanted, found)
        return found

    async def _from_ahead(self, wanted: Range) -> RawFetch | None:
        key = (wanted.topic_partition, wanted.read_committed)
        known = self._ahead.pop(key, None)
        if known is None:
            return None
        del self._begun_ms[key]
        fetched, task = known
        if fetched.offset != wanted.offset or fetched.max_bytes != wanted.max_bytes:
            task.cancel()
            return None
        found = await task
        return found if isinstance(found, RawFetch) and len(found.records) else None

    def _begin_ahead(self, wanted: Range, found: RawFetch) -> None:
        end = found.last_stable_offset if wanted.read_committed else found.high_watermark
        if found.next_offset >= (end if wanted.end_offset is None else min(end, wanted.end_offset)):
            return
        following = replace(wanted, offset=found.next_offset, max_wait_ms=0, min_bytes=1)
        while len(self._ahead) >= MAX_READ_AHEAD:
            self._drop(next(iter(self._ahead)))
        key = (wanted.topic_partition, wanted.read_committed)
        task = self._tasks.spawn(self._quietly(following), name=f"read-ahead {wanted.topic_partition}")
        self._ahead[key] = (following, task)
        self._begun_ms[key] = self._cluster.clock.monotonic_ms()
        if self._expiry is None:
            self._expiry = self._cluster.clock.call_later(READ_AHEAD_MS, self._expire)

    def drop_read_ahead(self, topic_partition: TopicPartition) -> None:
        """Free what was fetched ahead of a partition, whose reader has ended."""
        for read_committed in (False, True):
            if (topic_partition, read_committed) in self._ahead:
                self._drop((topic_partition, read_committed))

    def _drop(self, key: tuple[TopicPartition, bool]) -> None:
        _, task = self._ahead.pop(key)
        del self._begun_ms[key]
        task.cancel()

    def _expire(self) -> None:
        """Drop what nobody took in time, and look again when the next one is due."""
        self._expiry = None
        now = self._cluster.clock.monotonic_ms()
        for key in [key for key, begun_ms in self._begun_ms.items() if now - begun_ms >= READ_AHEAD_MS]:
            self._drop(key)
        if self._begun_ms:
            oldest = min(self._begun_ms.values())
            self._expiry = self._cluster.clock.call_later(oldest + READ_AHEAD_MS - now, self._expire)

    async def _quietly(self, wanted: Range) -> RawFetch | OdradekError:
        """Fetch once. Return an error instead of raising it, because the range may never be requested."""
        try:
            return await self._once(wanted)
        except OdradekError as error:
            return error

    async def _with_retries(self, wanted: Range) -> RawFetch:
        deadline = self._cluster.deadline(f"a fetch of {wanted.topic_partition}")
        await self._cluster.topic(wanted.topic_partition.topic, deadline)
        return await self._cluster.retrying(lambda: self._once(wanted), deadline)

    async def _once(self, wanted: Range) -> RawFetch:
        topic_partition = wanted.topic_partition
        view = self._cluster.view
        source = self._source(topic_partition)
        if source == NO_BROKER:
            topic = view.topics.get(topic_partition.topic)
            if topic is not None and topic.partitions and topic_partition.partition not in topic.partitions:
                raise error_for(3, f"topic {topic.name} has no partition {topic_partition.partition}")
            raise LeaderNotAvailableError(f"partition {topic_partition} has no leader")
        try:
            answer = await self._ask(source, wanted)
        except OdradekError:
            if self._preferred.pop(topic_partition, None) is None:
                raise
            # The follower may be down, or lack data that the leader returned before: fetch from the leader.
            return await self._once(wanted)
        if answer.preferred_read_replica not in (NO_BROKER, source):
            until_ms = self._cluster.clock.monotonic_ms() + self._cluster.settings.metadata_max_age_ms
            self._preferred[topic_partition] = (answer.preferred_read_replica, until_ms)
            return await self._once(wanted)
        found = raw_fetch(topic_partition, wanted.offset, answer)
        if len(found.records):
            self._remember_size(found)
        return found

    def _remember_size(self, found: RawFetch) -> None:
        # The last one is at the end, so the first is the one that was not fetched for the longest time.
        self._record_bytes.pop(found.topic_partition, None)
        self._record_bytes[found.topic_partition] = len(found.records) / max(1, found.next_offset - found.fetch_offset)
        if len(self._record_bytes) > _MAX_SIZES:
            del self._record_bytes[next(iter(self._record_bytes))]

    def _fetch_bytes(self, wanted: Range) -> int:
        """Return how much to fetch: `max_bytes`, or less if the range probably ends before."""
        if wanted.end_offset is None:
            return wanted.max_bytes
        record_bytes = self._record_bytes.get(wanted.topic_partition, _UNKNOWN_RECORD_BYTES)
        return min(wanted.max_bytes, int(record_bytes * max(1, wanted.end_offset - wanted.offset)) + _SPARE_BYTES)

    def _source(self, topic_partition: TopicPartition) -> int:
        """Return the broker to read from: the preferred replica while it is valid and alive, else the leader."""
        view = self._cluster.view
        broker, until_ms = self._preferred.get(topic_partition, (NO_BROKER, 0.0))
        if broker in view.nodes and self._cluster.clock.monotonic_ms() < until_ms:
            return broker
        self._preferred.pop(topic_partition, None)
        return view.leader(topic_partition)

    async def _ask(self, broker: int, wanted: Range) -> FetchedPartition:
        request = FetchRequest(
            max_wait_ms=wanted.max_wait_ms,
            min_bytes=wanted.min_bytes,
            max_bytes=min(self._fetch_bytes(wanted), self._cluster.settings.fetch_max_bytes),
            entries=[self._entry(wanted)],
            isolation_level=int(wanted.read_committed),
            rack_id=self._cluster.settings.client_rack,
        )
        slot = self._take_slot(broker)
        try:
            response = await exchange_fetch(self._cluster, broker, request, purpose=f"raw {slot}")
        finally:
            self._slots[broker].discard(slot)
        if response.error_code:
            raise error_for(response.error_code, f"broker {broker} rejected a fetch")
        for answer in response.partitions:
            if answer.error_code:
                raise error_for(
                    answer.error_code, f"offset {wanted.offset} of {wanted.topic_partition} cannot be fetched"
                )
            return answer
        raise LeaderNotAvailableError(f"the response of broker {broker} lacks {wanted.topic_partition}")

    def _entry(self, wanted: Range) -> FetchEntry:
        topic, partition = wanted.topic_partition
        view = self._cluster.view
        return FetchEntry(
            topic=topic,
            topic_id=view.topics[topic].topic_id,
            partition=partition,
            current_leader_epoch=view.leader_epoch(wanted.topic_partition),
            fetch_offset=wanted.offset,
            last_fetched_epoch=NO_EPOCH,
            log_start_offset=-1,
            max_bytes=self._fetch_bytes(wanted),
        )

    def _take_slot(self, leader: int) -> int:
        busy = self._slots.setdefault(leader, set())
        slot = next((number for number in range(_MAX_SLOTS) if number not in busy), _MAX_SLOTS - 1)
        busy.add(slot)
        return slot
