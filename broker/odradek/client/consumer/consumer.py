"""The consumer: reads assigned partitions, or shares the partitions of topics with a group.

It returns records or whole batches in the order of each partition. Invariants: a position only moves past records that
were returned; an automatic commit covers records that an earlier call of `getmany` returned, so a group gets each
record at least once.

As in the Java client, the assignment of a member changes only inside `getmany`, which also calls the listener. A
rebalance continues in the background when its timeout expires, and partitions that stay assigned are read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from re import Pattern
from typing import Any, Final, Self, Unpack

from odradek.base.errors import (
    ConfigError,
    NetworkError,
    OdradekError,
    OffsetOutOfRangeError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.ports import Clock
from odradek.base.tasks import TaskOwner, at_most, finish
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.connections import Connect
from odradek.client.consumer.consumer_protocol.consumer_protocol_member import ConsumerProtocolMember
from odradek.client.consumer.fetch_state import PartitionFetchState
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.group_subscription import Member, new_member, new_pattern
from odradek.client.consumer.member_offsets import MemberOffsets
from odradek.client.consumer.offset_lookups import OffsetLookups
from odradek.client.consumer.rebalance_events import RebalanceEvents, RebalanceListener
from odradek.client.consumer.record_delivery import RecordDelivery
from odradek.client.consumer.topic_pattern import TopicPattern
from odradek.client.extensions.interceptors import ConsumerInterceptor
from odradek.client.extensions.serializers import Deserializer, deserialize_function
from odradek.client.keywords import ClientKeywords
from odradek.client.models import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    RawFetch,
    SubscriptionPattern,
)
from odradek.client.offsets import GroupMembership
from odradek.client.settings import ClientSettings, as_settings

_LOG: Final = logging.getLogger(__name__)

_FOREVER_MS: Final = 1e15


class Consumer(OffsetLookups):
    """Reads records, from assigned partitions or as a member of a group.

    Bound to one event loop. Call `start` first, or use `async with`; `close` is idempotent.

    Without a committed offset, reading starts where `auto_offset_reset` says. With `enable_auto_commit`, positions are
    committed every `auto_commit_interval_ms`; only records that an earlier call returned are committed, so a group
    reads each record at least once. A member of a group must call `getmany` at least every `max_poll_interval_ms`,
    because rebalances take place inside it; otherwise the group gives its partitions to others.

    Methods that ask brokers raise `NetworkError` or `RequestTimedOutError` if no response arrives in time. Methods that
    use the position of a partition raise `UnknownTopicOrPartitionError` if it is not assigned to this consumer.
    """

    def __init__(
        self,
        settings: ClientSettings | str | None = None,
        *topics: str,
        key_deserializer: Deserializer | Callable[[bytes], Any] | None = None,
        value_deserializer: Deserializer | Callable[[bytes], Any] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        clock: Clock | None = None,
        connect: Connect | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """`settings` can be a bootstrap list, `host:port,host:port`. `keywords` are single settings of
        `ClientSettings`, such as `group_id="g"`, and override `settings`.

        Deserializers convert keys and values from bytes. Each is a function of the bytes, which is not called for None,
        or an object such as `JsonDeserializer()`. `interceptors` see and can change the records. Neither applies to
        `getmany_raw`.

        The consumer subscribes to the topics if there is a group. Otherwise it reads all their partitions. Raises
        `ConfigError` for an invalid value, and `TypeError` for an unknown keyword.

        `clock` and `connect` are for tests.
        """
        super().__init__(Cluster(as_settings(settings, **keywords), clock=clock, connect=connect))
        self._settings: Final = self._cluster.settings
        self._clock: Final = self._cluster.clock
        self._fetcher: Final = Fetcher(self._cluster)
        self._delivery: Final = RecordDelivery(
            self._fetcher,
            self._cluster.metrics,
            key_deserializer=deserialize_function(key_deserializer, "key_deserializer"),
            value_deserializer=deserialize_function(value_deserializer, "value_deserializer"),
            interceptors=interceptors,
        )
        self._tasks: Final = TaskOwner()
        self._wanted_topics = topics
        self._subscription: tuple[str, ...] = ()
        self._events: Final = RebalanceEvents(self._fetcher, self._commit_revoked)
        self._member: Member | None = None
        self._pattern: TopicPattern | SubscriptionPattern | None = None
        self._preparing: asyncio.Task[OdradekError | None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._commit_due_ms = self._clock.monotonic_ms() + self._settings.auto_commit_interval_ms
        self._closed = False

    async def __aenter__(self) -> Self:
        """Call `start` and return the object."""
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Call `close`."""
        await self.close()

    async def start(self) -> None:
        """Connect and fetch the metadata of the cluster. Raises `NetworkError` if no bootstrap server answers."""
        await self._cluster.start()
        self._fetcher.start()
        if self._wanted_topics and self._settings.group_id is not None:
            self.subscribe(self._wanted_topics)
        elif self._wanted_topics:
            views = [await self._cluster.topic(name) for name in self._wanted_topics]
            self.assign([TopicPartition(view.name, number) for view in views for number in view.partitions])

    def metrics(self) -> dict[str, float]:
        """Return the metrics of this consumer by the names of the Java consumer's, such as `records-consumed-rate`.

        Times are in milliseconds and sizes in bytes. Totals count from the start, all others cover the last 30 to 60
        seconds. A value is NaN if nothing was measured.
        """
        return {**self._cluster.read_metrics(), **self._delivery.gauges(read_committed=self._settings.read_committed)}

    # Subscription and assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a rebalance. Replaces the earlier assignment.

        Partitions that stay assigned keep their positions. Raises `ConfigError` if there is a subscription.
        """
        if self._member is not None:
            raise ConfigError("a consumer with a subscription cannot be assigned partitions: unsubscribe first")
        self._fetcher.assign(partitions)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics as a member of the group. Replaces the earlier subscription and assignment.

        The next `getmany` joins the group. `pattern` is a regular expression that must match whole names of topics; the
        subscription then follows topics that are created or deleted, after at most `metadata_max_age_ms`. It never
        matches internal topics, unless `exclude_internal_topics` is off. With `group.protocol=consumer`, a
        `SubscriptionPattern` is resolved by the brokers instead, and an invalid one raises
        `InvalidRegularExpressionError` in `getmany`.

        `listener` is called before and after each rebalance; without one, the earlier listener stays. Raises
        `ConfigError` without `group_id`, for an invalid pattern, and if topics and a pattern are mixed: `unsubscribe`
        first.
        """
        group_id = self._settings.group_id
        if group_id is None:
            raise ConfigError("group.id is missing: a subscription needs a group")
        names = tuple(sorted(set(topics)))
        if (names and pattern is not None) or (self._pattern is not None and pattern is None):
            raise ConfigError("a consumer cannot subscribe to topics and to a pattern: unsubscribe first")
        if pattern is not None and self._subscription and self._pattern is None:
            raise ConfigError("a consumer with subscribed topics cannot subscribe to a pattern: unsubscribe first")
        wanted = new_pattern(self._cluster, pattern, self._pattern, self._set_topics)
        if self._member is None:
            self._member = new_member(self._cluster, group_id, self._events, on_news=self._fetcher.interrupt)
            self._fetcher.assign(())
        self._events.listener = listener if listener is not None else self._events.listener
        if wanted is None:
            self._set_topics(names)
        else:
            self._drop_pattern()
            self._pattern = wanted
            if isinstance(wanted, SubscriptionPattern) and isinstance(self._member, ConsumerProtocolMember):
                self._member.subscribe_regex(wanted.pattern)

    def _set_topics(self, topics: Iterable[str]) -> None:
        self._subscription = tuple(sorted(topics))
        if self._member is not None:
            self._member.subscribe(self._subscription)

    def _drop_pattern(self) -> None:
        pattern, self._pattern = self._pattern, None
        if isinstance(pattern, TopicPattern):
            pattern.close()

    async def unsubscribe(self) -> None:
        """Leave the group and end the subscription and the assignment. Commits first if commits are automatic."""
        member, self._member = self._member, None
        self._subscription = ()
        self._drop_pattern()
        await self._stop_preparing()
        if member is not None:
            try:
                with self._events.in_call():
                    await member.leave()
            finally:
                await member.close()
        self._fetcher.assign(())

    @property
    def membership(self) -> GroupMembership:
        """The generation and member id in the group, for applications that commit offsets elsewhere (KIP-447)."""
        return GroupMembership() if self._member is None else self._member.identity

    def group_metadata(self) -> GroupMetadata:
        """Return the group and this member, for `Producer.send_offsets_to_transaction` (KIP-447).

        Call it after the `getmany` that returned the records, because a rebalance changes it. Raises `ConfigError`
        without `group_id`, `UnknownMemberIdError` if the group has removed this member, and `RebalanceInProgressError`
        before it has joined, and in a rebalance without any partitions.
        """
        group_id = self._settings.group_id
        if group_id is None:
            raise ConfigError("group.id is missing: offsets are committed for a group")
        if self._member is None:
            return GroupMetadata(group_id)
        try:
            return GroupMetadata(group_id, *self._member.committing_identity())
        except RebalanceInProgressError:
            # The cooperative protocol keeps partitions in a rebalance, and the coordinator checks the generation.
            identity = self._member.identity
            if not self._fetcher.states or identity.generation_id < 0:
                raise
            return GroupMetadata(group_id, *identity)

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._fetcher.states)

    def subscription(self) -> set[str]:
        """Return the subscribed topics, with a pattern those that match now; none with a `SubscriptionPattern`."""
        return set(self._subscription)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions until `resume`. They stay assigned."""
        for partition in partitions:
            self._state(partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again."""
        for partition in partitions:
            self._state(partition).paused = False
        self._fetcher.wake()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {partition for partition, state in self._fetcher.states.items() if state.paused}

    def _state(self, partition: TopicPartition) -> PartitionFetchState:
        state = self._fetcher.states.get(partition)
        if state is None:
            raise UnknownTopicOrPartitionError(f"partition {partition} is not assigned to this consumer")
        return state

    # Records

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return available records of these partitions, or of all assigned ones, and move the positions past them.

        Waits up to `timeout_ms` for the first record; the result is empty if none arrives. Returns at most
        `max_records`, by default `max_poll_records`. Joins the group if needed. With `cooperative-sticky`, partitions
        that stay assigned are read during a rebalance.

        Raises each error of a partition once, such as `CorruptMessageError` or, if `auto_offset_reset` is none,
        `OffsetOutOfRangeError`. Raises errors of the group, such as `FencedInstanceIdError`. Raises
        `LogTruncationError`, and `RecordDeserializationError` if a deserializer fails for the next record, until the
        application seeks.
        """
        limit = self._settings.max_poll_records if max_records is None else max_records
        if not await self._wait_for_data(partitions, timeout_ms):
            return {}
        return self._delivery.take(self._chosen(partitions), limit)

    async def getmany_raw(self, *partitions: TopicPartition, timeout_ms: float = 0) -> list[RawFetch]:
        """Like `getmany`, but return whole batches as brokers store them: at most one `RawFetch` per partition."""
        if not await self._wait_for_data(partitions, timeout_ms):
            return []
        return self._fetcher.take_fetches(self._chosen(partitions))

    async def getone(self) -> ConsumerRecord:
        """Return the next record of any assigned partition. Waits without limit. Raises the errors of `getmany`."""
        while True:
            if not await self._wait_for_data((), _FOREVER_MS):
                continue
            for records in self._delivery.take(self._chosen(()), 1).values():
                return records[0]

    def __aiter__(self) -> Self:
        """Iterate over the records of all assigned partitions, until the consumer is closed."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record, as `getone`. The iteration ends when the consumer is closed."""
        if self._closed:
            raise StopAsyncIteration
        return await self.getone()

    def _chosen(self, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
        return set(partitions) or set(self._fetcher.states)

    async def _wait_for_data(self, partitions: Sequence[TopicPartition], timeout_ms: float) -> bool:
        end_ms = self._clock.monotonic_ms() + timeout_ms
        has_waited = False
        with self._events.in_call():
            while True:
                if self._closed:
                    raise NetworkError("the consumer is closed")
                if self._is_prepared():
                    self._commit_if_due()
                if not self._events.is_active and self._fetcher.has_news(self._chosen(partitions)):
                    return True
                left_ms = max(0.0, end_ms - self._clock.monotonic_ms())
                if has_waited and left_ms <= 0:
                    return False
                # A long wait for records must not exceed max.poll.interval.ms.
                await self._fetcher.wait(min(left_ms, self._settings.max_poll_interval_ms / 3))
                has_waited = True

    # Preparation

    def _needs_preparation(self) -> bool:
        if self._member is not None and (self._member.needs_join or self._member.error is not None):
            return True
        if isinstance(self._pattern, TopicPattern) and self._pattern.topics is None:
            return True
        return any(state.is_lost for state in self._fetcher.states.values())

    def _is_prepared(self) -> bool:
        """Whether this is a member and all positions are known. Otherwise a task takes care of it. Raises its error.

        Partitions that stay assigned are read meanwhile.
        """
        if self._member is not None:
            self._member.polled()
        task = self._preparing
        if task is not None and task.done():
            self._preparing = None
            error = None if task.cancelled() else task.result()
            if error is not None:
                raise error
        if self._preparing is None and self._needs_preparation():
            self._preparing = self._tasks.spawn(self._prepare(), name="group")
            self._preparing.add_done_callback(lambda _task: self._fetcher.interrupt())
        return self._preparing is None

    async def _prepare(self) -> OdradekError | None:
        try:
            if self._member is not None:
                if self._member.error is not None:
                    error, self._member.error = self._member.error, None
                    return error
                while isinstance(self._pattern, TopicPattern) and self._pattern.topics is None:
                    await self._pattern.find()
                await self._member.join()
            await self._fetcher.find_positions(self._read_committed)
        except UnknownMemberIdError as error:
            # A member that was removed while it read offsets joins again and gets other partitions.
            return None if self._member is not None and self._member.needs_join else error
        except OdradekError as error:
            return error
        return None

    async def _read_committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if self._settings.group_id is None:
            return {}
        return await self._offsets_of(self._settings.group_id).committed(partitions, self._member)

    async def _stop_preparing(self) -> None:
        task, self._preparing = self._preparing, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the position: the next record is that at `offset`, or the first after it.

        If `offset` has a leader epoch, the broker is first asked if its log was truncated since (KIP-320). If the log
        does not contain the offset, `auto_offset_reset` applies. Raises `OffsetOutOfRangeError` if it is negative.
        """
        position = _as_position(offset)
        if position.offset < 0:
            raise OffsetOutOfRangeError(f"offset {position.offset} is below 0")
        self._state(partition).seek(position.offset, position.leader_epoch)
        self._fetcher.wake()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Move the positions of these partitions, or of all assigned ones, to their first record."""
        await self._seek_to(EARLIEST_TIMESTAMP, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Move the positions of these partitions, or of all assigned ones, to the end: only new records follow."""
        await self._seek_to(LATEST_TIMESTAMP, partitions)

    async def _seek_to(self, timestamp: int, partitions: Sequence[TopicPartition]) -> None:
        chosen = self._chosen(partitions)
        for partition in chosen:
            self._state(partition)
        for partition, offset in (await self._offsets_at(chosen, timestamp)).items():
            self._state(partition).seek(offset)
        self._fetcher.wake()

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that will be returned.

        A position that is not known yet is looked up. Raises `RequestTimedOutError` after `default_api_timeout_ms`.
        """
        self._state(partition)
        deadline = self._cluster.deadline(f"the position of {partition}")
        with self._events.in_call():
            while True:
                state = self._state(partition)
                if state.position is not None:
                    return state.position
                if state.error is not None:
                    error, state.error = state.error, None
                    raise error
                if deadline.left_ms() <= 0:
                    raise deadline.passed()
                self._is_prepared()
                await self._fetcher.wait(deadline.left_ms())

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of the last fetch: the offset after the last replicated record. None before it."""
        found = self._state(partition).high_watermark
        return None if found == NO_OFFSET else found

    def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets lie between the position and the end of the last fetch. None if either is unknown.

        With `read_committed`, the end is the last stable offset, else the high watermark.
        """
        return self._state(partition).lag(read_committed=self._settings.read_committed)

    # Commits

    @property
    def _commits_by_itself(self) -> bool:
        return self._settings.group_id is not None and self._settings.enable_auto_commit

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit offsets for the group: these, or by default the positions of all assigned partitions.

        An offset is that of the next record to read. Raises `ConfigError` without `group_id`, and
        `RebalanceInProgressError`, `IllegalGenerationError` or `UnknownMemberIdError` if the partitions may belong to
        other members now. With `group.protocol=consumer`, a commit with an earlier member epoch is repeated with the
        epoch of the next heartbeat. Raises `UnknownTopicOrPartitionError` if the coordinator does not know a topic for
        `default.api.timeout.ms`.
        """
        await self._commit(offsets, waits_for_topics=True)

    async def _commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None, *, waits_for_topics: bool
    ) -> None:
        group_id = self._settings.group_id
        if group_id is None:
            raise ConfigError("group.id is missing: offsets are committed for a group")
        stored = self._positions() if offsets is None else {p: _as_position(o) for p, o in offsets.items()}
        if not stored:
            return
        await self._offsets_of(group_id).commit(stored, self._member, waits_for_topics=waits_for_topics)
        self._delivery.interceptors.committed(stored)

    def _offsets_of(self, group_id: str) -> MemberOffsets:
        return MemberOffsets(self._cluster, group_id, lambda: self._fetcher.states)

    async def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of a partition; None if there is none. Waits for the end of an open transaction
        with an offset of the partition (KIP-447). Raises `ConfigError` without `group_id`.
        """
        group_id = self._settings.group_id
        if group_id is None:
            raise ConfigError("group.id is missing: offsets are committed for a group")
        found = await self._offsets_of(group_id).committed([partition], self._member)
        return found.get(partition)

    def _positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            partition: OffsetAndMetadata(state.position, leader_epoch=state.position_epoch)
            for partition, state in self._fetcher.states.items()
            if state.position is not None
        }

    def _commit_if_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self._commits_by_itself or now_ms < self._commit_due_ms:
            return
        self._commit_due_ms = now_ms + self._settings.auto_commit_interval_ms
        if self._committing is None or self._committing.done():
            # Read the positions now: the task begins after this call has returned records, which are not processed yet.
            self._committing = self._tasks.spawn(self._commit_quietly(self._positions()), name="auto commit")

    async def _commit_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if self._commits_by_itself:
            positions = self._positions()
            if self._committing is not None:
                # An earlier commit, which may be sent again, must not replace this one.
                await asyncio.wait({self._committing})
            await self._commit_quietly({each: positions[each] for each in partitions if each in positions})

    async def _commit_quietly(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            # Not during a rebalance because of a deleted topic.
            await self._commit(offsets, waits_for_topics=False)
        except ProtocolError as error:
            _LOG.warning("an automatic commit of group %s failed: %s", self._settings.group_id, error)

    # Close

    async def close(self, *, timeout_ms: float = 30_000) -> None:
        """Commit if commits are automatic, leave the group, and close all connections. Idempotent.

        After `timeout_ms` milliseconds, or if cancelled, it closes without committing and leaving the group.
        """
        if self._closed:
            return
        self._closed = True
        self._fetcher.interrupt()
        try:
            async with at_most(timeout_ms) as limit:
                await self._stop_preparing()
                await self._take_leave()
            if limit.expired():
                _LOG.warning("the consumer is closed after %s ms without leaving its group", timeout_ms)
        finally:
            await finish(self._shut_down())

    async def _take_leave(self) -> None:
        if self._member is not None:
            with self._events.in_call():
                await self._member.leave()
        elif self._commits_by_itself and self._fetcher.states:
            await self._commit_revoked(list(self._fetcher.states))

    async def _shut_down(self) -> None:
        try:
            await self._tasks.close()
            if self._member is not None:
                await self._member.close()
        finally:
            try:
                self._delivery.interceptors.close()
                await self._fetcher.close()
            finally:
                await self._cluster.close()


def _as_position(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    return offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
