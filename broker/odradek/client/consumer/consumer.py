"""The consumer: reads assigned partitions, or shares the partitions of topics with a group.

It returns records or whole batches in the order of each partition. Invariants: a position only moves past records that
were returned; an automatic commit covers records that an earlier call of `getmany` returned, so a group gets each
record at least once.

As in the Java client, all group operations of a member take place inside `getmany`: it may wait for a rebalance, and
calls the listener. If its timeout expires first, it returns nothing, and the next call continues the rebalance.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, Self

from odradek.base.errors import (
    ConfigError,
    NetworkError,
    OdradekError,
    OffsetOutOfRangeError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from odradek.base.ports import Clock
from odradek.base.tasks import TaskOwner, finish
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.connections import Connect
from odradek.client.consumer.fetch_state import PartitionFetchState
from odradek.client.consumer.fetcher import RESET_TIMESTAMPS, Fetcher
from odradek.client.consumer.group_member import GroupMember
from odradek.client.models import ConsumerRecord, GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, RawFetch
from odradek.client.offsets import GroupMembership, commit_offsets, fetch_committed, list_offsets
from odradek.client.settings import ClientSettings, as_settings
from odradek.records.v2.record import Record

_LOG: Final = logging.getLogger(__name__)

_FOREVER_MS: Final = 1e15


class RebalanceListener(Protocol):
    """Callbacks of the application before and after a rebalance, called inside the methods of the consumer."""

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Called before the consumer gives up these partitions. Commit the processed records here."""
        ...

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Called when the consumer has received these partitions. `seek` can change their positions here."""
        ...


class Consumer:
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
        settings: ClientSettings | str,
        *topics: str,
        group_id: str | None = None,
        clock: Clock | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`settings` can be a bootstrap list, `host:port,host:port`. `group_id` overrides its setting.

        `start` subscribes to the topics if there is a group. Otherwise it assigns all their partitions. `clock` and
        `connect` are for tests.
        """
        settings = as_settings(settings)
        if group_id is not None:
            settings = settings.replace(group_id=group_id)
        self._settings: Final = settings
        self._cluster: Final = Cluster(settings, clock=clock, connect=connect)
        self._clock: Final = self._cluster.clock
        self._fetcher: Final = Fetcher(self._cluster)
        self._tasks: Final = TaskOwner()
        self._wanted_topics = topics
        self._subscription: tuple[str, ...] = ()
        self._listener: RebalanceListener | None = None
        self._member: GroupMember | None = None
        self._preparing: asyncio.Task[OdradekError | None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._commit_due_ms = self._clock.monotonic_ms() + settings.auto_commit_interval_ms
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

    # Subscription and assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a rebalance. Replaces the earlier assignment.

        Partitions that stay assigned keep their positions. Raises `ConfigError` if there is a subscription.
        """
        if self._subscription:
            raise ConfigError("a consumer with a subscription cannot be assigned partitions: unsubscribe first")
        self._fetcher.assign(partitions)

    def subscribe(self, topics: Iterable[str], *, listener: RebalanceListener | None = None) -> None:
        """Read these topics as a member of the group. Replaces the earlier subscription and assignment.

        The next `getmany` joins the group. `listener` is called before and after each rebalance; without one, the
        earlier listener stays. Raises `ConfigError` without `group_id`.
        """
        group_id = self._settings.group_id
        if group_id is None:
            raise ConfigError("group.id is missing: a subscription needs a group")
        if self._member is None:
            self._fetcher.assign(())
            self._member = GroupMember(self._cluster, group_id, self, on_news=self._fetcher.interrupt)
        self._subscription = tuple(sorted(set(topics)))
        self._listener = listener if listener is not None else self._listener
        self._member.subscribe(self._subscription)

    async def unsubscribe(self) -> None:
        """Leave the group and end the subscription and the assignment. Commits first if commits are automatic."""
        member, self._member = self._member, None
        self._subscription = ()
        await self._stop_preparing()
        if member is not None:
            try:
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
        before it has joined.
        """
        group_id = self._settings.group_id
        if group_id is None:
            raise ConfigError("group.id is missing: offsets are committed for a group")
        if self._member is None:
            return GroupMetadata(group_id)
        return GroupMetadata(group_id, *self._member.committing_identity())

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._fetcher.states)

    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
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
    ) -> dict[TopicPartition, list[Record]]:
        """Return available records of these partitions, or of all assigned ones, and move the positions past them.

        Waits up to `timeout_ms` for the first record; the result is empty if none arrives. Returns at most
        `max_records`, by default `max_poll_records`. Joins the group first if needed; a rebalance that takes longer
        continues in the next call.

        Raises each error of a partition once, such as `CorruptMessageError` or, if `auto_offset_reset` is none,
        `OffsetOutOfRangeError`. Raises errors of the group, such as `FencedInstanceIdError`.
        """
        limit = self._settings.max_poll_records if max_records is None else max_records
        if not await self._wait_for_data(partitions, timeout_ms):
            return {}
        return self._fetcher.take_records(self._chosen(partitions), limit)

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
            for (topic, partition), records in self._fetcher.take_records(self._chosen(()), 1).items():
                record = records[0]
                return ConsumerRecord(
                    topic,
                    partition,
                    record.offset,
                    record.timestamp,
                    int(record.timestamp_type),
                    record.key,
                    record.value,
                    record.headers,
                )

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
        while True:
            if self._closed:
                raise NetworkError("the consumer is closed")
            left_ms = max(0.0, end_ms - self._clock.monotonic_ms())
            # A long wait for records must not exceed max.poll.interval.ms.
            wait_ms = min(left_ms, self._settings.max_poll_interval_ms / 3)
            if await self._prepared(wait_ms):
                self._commit_if_due()
                if self._fetcher.has_news(self._chosen(partitions)):
                    return True
                if left_ms > 0 and not self._needs_preparation():
                    await self._fetcher.wait(wait_ms)
            if left_ms <= 0:
                return False

    # Preparation

    def _needs_preparation(self) -> bool:
        if self._member is not None and (self._member.needs_join or self._member.error is not None):
            return True
        return any(_is_lost(state) for state in self._fetcher.states.values())

    async def _prepared(self, timeout_ms: float) -> bool:
        """Join the group and find positions if needed. Return False if that takes longer than `timeout_ms`."""
        if self._member is not None:
            self._member.polled()
        if self._preparing is None:
            if not self._needs_preparation():
                return True
            self._preparing = self._tasks.spawn(self._prepare(), name="group")
        await asyncio.wait({self._preparing}, timeout=timeout_ms / 1000)
        if not self._preparing.done():
            return False
        task, self._preparing = self._preparing, None
        error = None if task.cancelled() else task.result()
        if error is not None:
            raise error
        return True

    async def _prepare(self) -> OdradekError | None:
        try:
            if self._member is not None:
                if self._member.error is not None:
                    error, self._member.error = self._member.error, None
                    return error
                await self._member.join()
            await self._find_positions()
        except OdradekError as error:
            return error
        return None

    async def _find_positions(self) -> None:
        lost = [state for state in self._fetcher.states.values() if _is_lost(state)]
        if not lost:
            return
        committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
        if self._settings.group_id is not None:
            committed = await fetch_committed(
                self._cluster,
                self._settings.group_id,
                [state.topic_partition for state in lost],
                require_stable=True,
                deadline=self._cluster.deadline("reading committed offsets"),
            )
        without = []
        for state in lost:
            found = committed.get(state.topic_partition)
            if found is not None:
                state.seek(found.offset)
            elif self._settings.auto_offset_reset in RESET_TIMESTAMPS:
                state.await_reset(RESET_TIMESTAMPS[self._settings.auto_offset_reset])
            else:
                without.append(str(state.topic_partition))
        self._fetcher.wake()
        if without:
            raise OffsetOutOfRangeError(f"no position for {', '.join(without)}, and auto.offset.reset is none")

    async def _stop_preparing(self) -> None:
        task, self._preparing = self._preparing, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    # Group events

    async def on_revoked(self, *, lost: bool) -> None:
        """Commit, call the listener and drop the assignment. The membership calls it before a rebalance."""
        revoked = sorted(self._fetcher.states)
        if not lost and self._commits_by_itself:
            await self._commit_quietly()
        if self._listener is not None and revoked:
            await self._listener.on_partitions_revoked(revoked)
        self._fetcher.assign(())

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Set the assignment and call the listener. The membership calls it after a rebalance."""
        self._fetcher.assign(partitions)
        if self._listener is not None:
            await self._listener.on_partitions_assigned(sorted(partitions))

    # Positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position: the next record is that at `offset`, or the first after it.

        The broker is not asked. If the log does not contain the offset, `auto_offset_reset` applies. Raises
        `OffsetOutOfRangeError` if `offset` is negative.
        """
        if offset < 0:
            raise OffsetOutOfRangeError(f"offset {offset} is below 0")
        self._state(partition).seek(offset)
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
        while True:
            state = self._state(partition)
            if state.position is not None:
                return state.position
            if state.error is not None:
                error, state.error = state.error, None
                raise error
            if deadline.left_ms() <= 0:
                raise deadline.passed()
            if await self._prepared(deadline.left_ms()) and self._state(partition).position is None:
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

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. The partitions need not be assigned."""
        return await self._offsets_at(partitions, EARLIEST_TIMESTAMP)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition. The partitions need not be assigned.

        This is the high watermark, or with `read_committed` the last stable offset.
        """
        return await self._offsets_at(partitions, LATEST_TIMESTAMP)

    async def _offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found = await list_offsets(
            self._cluster,
            dict.fromkeys(partitions, timestamp),
            read_committed=self._settings.read_committed,
            deadline=self._cluster.deadline("listing offsets"),
        )
        return {partition: listed.offset for partition, listed in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return offset and timestamp of the first record of each partition at or after a time; None without one.

        Times are milliseconds since 1970 UTC. The partitions need not be assigned.
        """
        found = await list_offsets(
            self._cluster,
            timestamps,
            read_committed=self._settings.read_committed,
            deadline=self._cluster.deadline("listing offsets"),
        )
        return {
            partition: None if listed.offset == NO_OFFSET else OffsetAndTimestamp(*listed)
            for partition, listed in found.items()
        }

    # Commits

    @property
    def _commits_by_itself(self) -> bool:
        return self._settings.group_id is not None and self._settings.enable_auto_commit

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit offsets for the group: these, or by default the positions of all assigned partitions.

        An offset is that of the next record to read. Raises `ConfigError` without `group_id`, and
        `RebalanceInProgressError`, `IllegalGenerationError` or `UnknownMemberIdError` if the partitions may belong to
        other members now.
        """
        group_id = self._settings.group_id
        if group_id is None:
            raise ConfigError("group.id is missing: offsets are committed for a group")
        stored = self._positions() if offsets is None else {p: _as_position(o) for p, o in offsets.items()}
        if not stored:
            return
        member = GroupMembership() if self._member is None else self._member.committing_identity()
        try:
            await commit_offsets(
                self._cluster,
                group_id,
                stored,
                member=member,
                deadline=self._cluster.deadline("a commit of offsets"),
            )
        except ProtocolError as error:
            if self._member is not None:
                self._member.commit_failed(error)
            raise

    async def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of a partition; None if there is none. Waits for the end of an open transaction
        with an offset of the partition (KIP-447). Raises `ConfigError` without `group_id`.
        """
        group_id = self._settings.group_id
        if group_id is None:
            raise ConfigError("group.id is missing: offsets are committed for a group")
        deadline = self._cluster.deadline("reading committed offsets")
        found = await fetch_committed(self._cluster, group_id, [partition], require_stable=True, deadline=deadline)
        return found.get(partition)

    def _positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            partition: OffsetAndMetadata(state.position)
            for partition, state in self._fetcher.states.items()
            if state.position is not None
        }

    def _commit_if_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self._commits_by_itself or now_ms < self._commit_due_ms:
            return
        self._commit_due_ms = now_ms + self._settings.auto_commit_interval_ms
        if self._committing is None or self._committing.done():
            self._committing = self._tasks.spawn(self._commit_quietly(), name="auto commit")

    async def _commit_quietly(self) -> None:
        # Read positions before the first await: the application has not processed records that it gets later.
        try:
            await self.commit()
        except ProtocolError as error:
            _LOG.warning("an automatic commit of group %s failed: %s", self._settings.group_id, error)

    # Close

    async def close(self) -> None:
        """Commit if commits are automatic, leave the group, and close all connections. Idempotent.

        If cancelled, it closes without leaving the group.
        """
        if self._closed:
            return
        self._closed = True
        self._fetcher.interrupt()
        try:
            await self._stop_preparing()
            await self._take_leave()
        finally:
            await finish(self._shut_down())

    async def _take_leave(self) -> None:
        if self._member is not None:
            await self._member.leave()
        elif self._commits_by_itself and self._fetcher.states:
            await self._commit_quietly()

    async def _shut_down(self) -> None:
        try:
            await self._tasks.close()
            if self._member is not None:
                await self._member.close()
        finally:
            try:
                await self._fetcher.close()
            finally:
                await self._cluster.close()


def _is_lost(state: PartitionFetchState) -> bool:
    """Whether a partition has no position and no way to find one."""
    return state.position is None and state.reset_timestamp is None and state.error is None


def _as_position(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    return offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
