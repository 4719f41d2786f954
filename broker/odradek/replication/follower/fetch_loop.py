"""The fetch loop of one fetcher: copies partitions from one leader into the local logs.

`fetchers` owns the loops and adds and removes partitions with `follow` and `unfollow` while a loop runs. Record sets
come from a `LeaderChannel` and are appended unchanged, as views of the response's memory.

Invariants: records are appended only at the local log end and only in the leader epoch in which they were requested; a
log that diverges from its leader's is truncated before anything is appended (by the diverging epoch in a fetch
response, KIP-595, or with OffsetForLeaderEpoch if the leader is older, KIP-101); a fetch never reports records that
wait for a flush that `flush.messages` requires, so such a partition is not fetched until its flush is complete. An
error of one partition delays only that partition; a failed request delays the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import ceil, inf
from typing import Final, Protocol
from uuid import UUID

from odradek.base.config import BrokerConfig
from odradek.base.errors import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    OdradekError,
    OffsetOutOfRangeError,
    ProtocolError,
    RefusedRecordsError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.ports import Clock
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH, ZERO_UUID, TopicPartition
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.protocol.hotpath import FetchedPartition, FetchRequest, FetchResponse
from odradek.replication.follower.queued_copy import QueuedCopy
from odradek.replication.follower.refusals import Refusals
from odradek.replication.partition import EpochEnd, truncation_target
from odradek.replication.quota import ReplicationQuota
from odradek.replication.sessions.follower_session import FIRST_REST_MS, Followed, LeaderSession

DIVERGENCE_SINCE: Final = 12
"""First Fetch version whose response contains the diverging epoch."""
TOPIC_ID_SINCE: Final = 13
FLUSH_WAIT_MS: Final = 10
"""Maximum wait of a fetch while another partition waits for its flush. A flush usually takes a few milliseconds, and
only the next fetch request reports what it has made durable."""
NOT_YET: Final = frozenset(
    error.code
    for error in (
        NotLeaderOrFollowerError,
        UnknownLeaderEpochError,
        UnknownTopicIdError,
        UnknownTopicOrPartitionError,
    )
)
"""Errors of a leader that has not yet received its role from the controller."""
PASSING: Final = NOT_YET | {FencedLeaderEpochError.code}
"""Errors that every election causes for a moment."""

logger = logging.getLogger(__name__)


class LeaderChannel(Protocol):
    """A connection to one leader. Every call raises `OdradekError` if the connection or the whole request fails."""

    @property
    def fetch_version(self) -> int:
        """Highest version of Fetch that both sides support."""
        ...

    async def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        """Send one Fetch request; records in the response are views of its frame."""
        ...

    async def list_offset(self, topic_partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        """Return the leader's first or next offset (timestamps -2 and -1). Raises the partition's `ProtocolError`."""
        ...

    async def epoch_end(self, topic_partition: TopicPartition, leader_epoch: int, epoch: int) -> EpochEnd:
        """Return the end of the leader's largest epoch at or below `epoch`. Raises the partition's `ProtocolError`."""
        ...

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        ...


ConnectLeader = Callable[[int, str], Awaitable[LeaderChannel]]
"""Opens a channel to a broker by id, with the given client id. Raises `OdradekError`."""


class ReplicaFetcher:
    """One fetch loop. It ends when it has no partitions left; then `is_ended` is true, and it never runs again."""

    def __init__(
        self,
        leader_id: int,
        client_id: str,
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
        """`on_change` is called after records were copied or truncated, `on_storage_failure` for logs that failed.

        `quota` delays throttled replicas that lag; `broker_epoch` is sent to the leader. `stats` counts copied
        bytes.
        """
        self._stats: Final = stats or BrokerTopicStats()
        self._quota: Final = quota
        self._broker_epoch: Final = broker_epoch
        self.leader_id: Final = leader_id
        self._client_id: Final = client_id
        self._clock: Final = clock
        self._config: Final = config
        self._connect: Final = connect
        self._on_change: Final = on_change
        self._on_storage_failure: Final = on_storage_failure
        self.followed: Final[dict[TopicPartition, Followed]] = {}
        self._session = LeaderSession(config.replica_fetch_max_bytes)
        self._refusals = Refusals()
        self._channel: LeaderChannel | None = None
        self._news = asyncio.Event()
        self.is_ended = False

    def follow(self, followed: Followed) -> None:
        """Fetch this partition from the next request on."""
        self.followed[followed.partition.topic_partition] = followed
        self._refusals.settled(followed.partition.topic_partition)
        self._news.set()

    def unfollow(self, topic_partition: TopicPartition) -> bool:
        """Stop fetching the partition; responses in flight are ignored. Returns False if it is not followed here."""
        if self.followed.pop(topic_partition, None) is None:
            return False
        self._refusals.settled(topic_partition)
        self._news.set()  # The loop ends if no partitions are left.
        return True

    def flushed(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition again that waited for a required flush, if it is complete."""
        one = self.followed.get(topic_partition)
        if one is not None and one.awaits_flush:
            one.check_flush()
            self._news.set()

    async def run(self) -> None:
        """Fetch until there is nothing to follow. Always closes the connection at the end."""
        try:
            while self.followed:
                try:
                    await self._round()
                    self._tell_refusals()
                except OdradekError as error:
                    logger.info("fetching from broker %d failed: %s", self.leader_id, error)
                    await self._rest()
                except Exception:
                    # A bug in one round must not end the replication of all partitions of this leader.
                    logger.exception("fetching from broker %d failed", self.leader_id)
                    await self._rest()
        finally:
            self.is_ended = True
            await asyncio.shield(self._disconnect())

    async def _rest(self) -> None:
        self._session.failed()
        await self._disconnect()
        await self._clock.sleep_ms(self._config.replica_fetch_backoff_ms)

    def _tell_refusals(self) -> None:
        for code, count in self._refusals.changes():
            if count:
                level = logging.INFO if code in PASSING else logging.WARNING
                logger.log(level, "broker %d returns error %d for %d partitions", self.leader_id, code, count)
            else:
                logger.info("broker %d no longer returns error %d for any partition", self.leader_id, code)

    async def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    # One request

    async def _round(self) -> None:
        """Send one request and process its answer, or wait if all partitions are delayed."""
        now_ms = self._clock.monotonic_ms()
        ready = [one for one in self.followed.values() if one.resume_ms <= now_ms and not one.awaits_flush]
        if ready and self._quota is not None and self._quota.is_exceeded:
            ready = [one for one in ready if not self._is_held_back(one)]
            if not ready:
                await self._wait(self._config.replica_fetch_backoff_ms)
                return
        if not ready:
            await self._wait(
                min((one.resume_ms for one in self.followed.values() if not one.awaits_flush), default=inf) - now_ms
            )
            return
        channel = self._channel
        if channel is None:
            channel = self._channel = await self._connect(self.leader_id, self._client_id)
        if channel.fetch_version < DIVERGENCE_SINCE:
            ready = await self._check_epochs(channel, ready)
        by_id = channel.fetch_version >= TOPIC_ID_SINCE and all(one.topic_id != ZERO_UUID for one in ready)
        version = channel.fetch_version if by_id else min(channel.fetch_version, DIVERGENCE_SINCE)
        request = self._request(ready, by_id=by_id, max_wait_ms=self._max_wait_ms(now_ms))
        response = await channel.fetch(request, version)
        self._session.answered(response.error_code, response.session_id)
        if response.error_code:
            logger.info("fetch session with broker %d ended: error %d", self.leader_id, response.error_code)
            return
        for one in self._take(ready, response.partitions):
            await self._reset_offset(channel, one)

    def _max_wait_ms(self, now_ms: float) -> int:
        """Return the maximum wait time: a delayed partition must not wait until the others have new records."""
        limit_ms = self._config.replica_fetch_wait_max_ms
        resting: list[float] = []
        for one in self.followed.values():
            if one.awaits_flush:
                limit_ms = min(limit_ms, FLUSH_WAIT_MS)
            elif now_ms < one.resume_ms < inf:
                resting.append(one.resume_ms)
        return min(limit_ms, max(1, ceil(min(resting) - now_ms))) if resting else limit_ms

    def _request(self, ready: Sequence[Followed], *, by_id: bool, max_wait_ms: int) -> FetchRequest:
        config = self._config
        step = self._session.next(ready, by_id=by_id)
        return FetchRequest(
            # Do not wait for records if partitions are left to be added to the session: the next request adds them.
            max_wait_ms=max_wait_ms if step.is_complete else 0,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            entries=step.entries,
            replica_id=config.broker_id,
            replica_epoch=self._broker_epoch(),
            session_id=step.session_id,
            session_epoch=step.epoch,
            forgotten=step.forgotten,
        )

    def _is_held_back(self, one: Followed) -> bool:
        """Whether the quota is exceeded and the replica has to wait: it is throttled and has not caught up."""
        return one.lag != 0 and self._quota is not None and self._quota.is_throttled(one.partition.topic_partition)

    async def _wait(self, delay_ms: float) -> None:
        """Wait until a partition is added or `delay_ms` have passed (`inf`: until one is added)."""
        self._news.clear()
        timer = None if delay_ms == inf else self._clock.call_later(delay_ms, self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # One answer

    def _take(self, asked: Sequence[Followed], answers: Sequence[FetchedPartition]) -> list[Followed]:
        """Process the answers of all partitions. Returns those that have to find a new fetch offset."""
        by_key: dict[tuple[str | UUID | None, int], Followed] = {}
        for one in asked:
            topic, number = one.partition.topic_partition
            by_key[topic, number] = by_key[one.topic_id, number] = one
        lost: list[Followed] = []
        for answer in answers:
            found = by_key.get((answer.topic if answer.topic is not None else answer.topic_id, answer.partition))
            if found is None or not self._is_followed(found):
                continue  # Since the request was sent, the partition was removed or got another leader epoch.
            if answer.error_code == OffsetOutOfRangeError.code:
                lost.append(found)
            elif answer.error_code:
                self._delay(found, answer.error_code)
            else:
                self._refusals.settled(found.partition.topic_partition)
                self._guarded(found, partial(self._copy, found, answer))
        return lost

    def _is_followed(self, one: Followed) -> bool:
        return self.followed.get(one.partition.topic_partition) is one and one.is_current

    def _copy(self, one: Followed, answer: FetchedPartition) -> None:
        """Append the records, or truncate if the logs diverge, and adopt the leader's offsets."""
        partition = one.partition
        log = partition.log
        if answer.diverging_epoch is not None:
            self._cut(one, EpochEnd(*answer.diverging_epoch))
            return
        changed = False
        if len(answer.held):
            if self._quota is not None:
                self._quota.note(partition.topic_partition, len(answer.held))
            self._stats.replication_bytes_in += len(answer.held)
            if log.write_queue is not None:
                self._copy_later(one, answer)
                return
            log.append_as_follower(memoryview(answer.held))
            changed = True
        self._adopt(one, answer, changed=changed)

    def _copy_later(self, one: Followed, answer: FetchedPartition) -> None:
        """Let a thread of the slow directory write the records. The partition is not fetched until that ends."""
        log = one.partition.log
        assert log.write_queue is not None
        append = QueuedCopy(
            one,
            bytearray(answer.held),
            is_current=partial(self._is_followed, one),
            written=partial(self._copied, one, partial(self._adopt, one, answer, changed=True)),
            failed=lambda error: self._copied(one, partial(_fail, error)),
        )
        log.write_queue.submit(log, append)
        one.awaits_write = True

    def _copied(self, one: Followed, work: Callable[[], None]) -> None:
        """Continue after a write by a thread."""
        one.awaits_write = False
        self._guarded(one, work)
        self._news.set()

    def _adopt(self, one: Followed, answer: FetchedPartition, *, changed: bool) -> None:
        """Adopt the leader's offsets. `changed`: whether records were appended."""
        partition = one.partition
        log = partition.log
        one.rest_ms = FIRST_REST_MS
        one.lag = max(0, answer.high_watermark - log.log_end_offset)
        changed = partition.follow(answer.high_watermark) or changed
        start = min(answer.log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            changed = log.increment_log_start_offset(start) or changed
        if changed:
            self._on_change(partition.topic_partition)

    def _guarded(self, one: Followed, work: Callable[[], None]) -> None:
        """Run work on one partition; a failure delays only this partition."""
        try:
            work()
        except ProtocolError as error:
            self._refused(one, error)
        one.check_flush()

    def _refused(self, one: Followed, error: ProtocolError) -> None:
        """Delay a partition whose log does not accept the records."""
        topic_partition = one.partition.topic_partition
        logger.warning("%s: the records of broker %d are refused: %s", topic_partition, self.leader_id, error)
        fault = error.fault if isinstance(error, RefusedRecordsError) else None
        self._stats.of(topic_partition.topic).count_fault(fault)
        if one.partition.log.is_offline:
            self._on_storage_failure(topic_partition)
        self._rest_alone(one)

    def _delay(self, one: Followed, code: int) -> None:
        """Delay a partition; after a fenced epoch, until the controller sends the new leader epoch."""
        topic_partition = one.partition.topic_partition
        logger.debug("%s: broker %d answers error %d", topic_partition, self.leader_id, code)
        self._refusals.refused(topic_partition, code)
        if code == FencedLeaderEpochError.code:
            one.resume_ms = inf
        elif code in NOT_YET:
            one.resume_ms = self._clock.monotonic_ms() + min(one.rest_ms, self._config.replica_fetch_backoff_ms)
            one.rest_ms = min(2 * one.rest_ms, self._config.replica_fetch_backoff_ms)
        else:
            self._rest_alone(one)

    def _rest_alone(self, one: Followed) -> None:
        one.resume_ms = self._clock.monotonic_ms() + self._config.replica_fetch_backoff_ms

    # Truncation

    def _cut(self, one: Followed, leader: EpochEnd) -> bool:
        """Truncate the local log where it diverges from the leader's. Returns whether that is complete."""
        partition = one.partition
        log = partition.log
        found = log.end_offset_for_epoch(leader.leader_epoch)
        target = truncation_target(
            leader,
            EpochEnd(found.leader_epoch, found.end_offset),
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
        )
        self._truncate(one, target.offset)
        return target.is_complete

    def _truncate(self, one: Followed, offset: int) -> None:
        partition = one.partition
        log = partition.log
        if offset >= log.log_end_offset:
            # This removes no records, only an epoch that this replica led without a write: it would always diverge.
            log.truncate_to(offset)
            return
        if offset < log.high_watermark:
            logger.warning("%s: truncating to %d, below the high watermark", partition.topic_partition, offset)
        logger.info("%s: truncating from %d to %d", partition.topic_partition, log.log_end_offset, offset)
        log.truncate_to(offset)
        partition.follow(log.high_watermark)
        self._on_change(partition.topic_partition)

    async def _check_epochs(self, channel: LeaderChannel, ready: Sequence[Followed]) -> list[Followed]:
        """Ask an older leader where to truncate, before the first fetch. Returns the partitions to fetch now."""
        checked: list[Followed] = []
        for one in ready:
            while one.needs_epoch_check and self._is_followed(one):
                epoch = one.partition.log.latest_epoch
                if epoch < 0:
                    one.needs_epoch_check = False
                    break
                try:
                    end = await channel.epoch_end(one.partition.topic_partition, one.leader_epoch, epoch)
                except ProtocolError as error:
                    self._delay(one, error.code)
                    break
                self._guarded(one, partial(self._settle, one, end))
                if one.resume_ms > self._clock.monotonic_ms():
                    break
            if not one.needs_epoch_check and self._is_followed(one):
                checked.append(one)
        return checked

    def _settle(self, one: Followed, end: EpochEnd) -> None:
        if self._is_followed(one):
            one.needs_epoch_check = not self._cut(one, end)

    async def _reset_offset(self, channel: LeaderChannel, one: Followed) -> None:
        """Find a new fetch offset: the leader's log ends below the local log end, or starts above it."""
        partition = one.partition
        try:
            end = await channel.list_offset(partition.topic_partition, one.leader_epoch, LATEST_TIMESTAMP)
            start = await channel.list_offset(partition.topic_partition, one.leader_epoch, EARLIEST_TIMESTAMP)
        except ProtocolError as error:
            self._delay(one, error.code)
            return
        if self._is_followed(one):
            self._guarded(one, partial(self._move, one, start, end))

    def _move(self, one: Followed, start: int, end: int) -> None:
        log = one.partition.log
        if end < log.log_end_offset:
            self._truncate(one, end)
        elif start > log.log_end_offset:
            logger.warning(
                "%s: the log is emptied and continues at the leader's offset %d", one.partition.topic_partition, start
            )
            log.truncate_fully_and_start_at(start)
            one.partition.follow(start)
            self._on_change(one.partition.topic_partition)
        else:
            self._rest_alone(one)  # Nothing to truncate: the leader does not know the last epoch of this replica.


def _fail(error: ProtocolError) -> None:
    raise error
