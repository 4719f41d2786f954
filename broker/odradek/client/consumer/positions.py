"""Finds the positions of a consumer, and checks that the log still contains what was read before them (KIP-320).

`fetcher` calls it for all partitions whenever something has changed, and with the answers that concern positions.
`consumer` calls it for partitions without a position. Invariant: a position that the application has changed meanwhile
is left alone.

After a change of the leader, the position is unvalidated. The new leader is asked with OffsetForLeaderEpoch where the
epoch of the last record ends in its log. An end below the position means that the log was truncated: reading continues
at the end, or with `auto.offset.reset` none a `LogTruncationError` is raised until the application seeks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from odradek.base.errors import (
    LogTruncationError,
    OffsetOutOfRangeError,
    ProtocolError,
    UnsupportedVersionError,
    error_for,
)
from odradek.base.tasks import TaskOwner
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_BROKER, TopicPartition
from odradek.client.cluster_client import Cluster
from odradek.client.consumer.fetch_state import PartitionFetchState
from odradek.client.models import OffsetAndMetadata
from odradek.client.offsets import list_offsets
from odradek.protocol.messages.fetch import OffsetForLeaderEpochResponse, OffsetForLeaderEpochResponseEpochEndOffset

_LOG: Final = logging.getLogger(__name__)

_RESET_TIMESTAMPS: Final = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}
"""The timestamps in ListOffsets for `auto.offset.reset`."""
_CONSUMER_REPLICA: Final = -1
_FOR_CONSUMERS: Final = (3, 4)
"""Versions of OffsetForLeaderEpoch that consumers may use. Older ones need the right to manage the cluster."""

States = Mapping[TopicPartition, PartitionFetchState]
ReadCommitted = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata]]]
"""Returns the committed offsets of partitions, without those that have none."""


class Positions:
    """The positions of one consumer."""

    def __init__(self, cluster: Cluster, tasks: TaskOwner, *, on_news: Callable[[], None]) -> None:
        """`tasks` runs the requests. `on_news` is called when positions or errors have changed."""
        self._cluster = cluster
        self._settings: Final = cluster.settings
        self._tasks = tasks
        self._on_news = on_news
        self._states: States = {}
        self._is_resetting = False
        self._is_validating = False

    def look_after(self, states: States) -> None:
        """Start the requests for partitions that wait for a position or a validation."""
        self._states = states
        view = self._cluster.view
        for partition, state in states.items():
            state.meet_leader(view.leader_epoch(partition))
        resets = {
            partition: (state.reset_timestamp, state.epoch)
            for partition, state in states.items()
            if state.reset_timestamp is not None and state.error is None
        }
        if resets and not self._is_resetting:
            self._is_resetting = True
            self._tasks.spawn(self._reset_all(resets), name="offset reset")
        now_ms = self._cluster.clock.monotonic_ms()
        unvalidated = [
            state
            for state in states.values()
            if state.is_unvalidated and state.error is None and state.not_before_ms <= now_ms
        ]
        if unvalidated and not self._is_validating:
            self._is_validating = True
            self._tasks.spawn(self._validate(unvalidated), name="position validation")

    # Partitions without a position

    async def find(self, states: States, read_committed: ReadCommitted) -> None:
        """Continue partitions without a position at their committed offset, or where `auto.offset.reset` says.

        Raises `OffsetOutOfRangeError` if neither exists, and the errors of `read_committed`.
        """
        lost = [state for state in states.values() if state.is_lost]
        if not lost:
            return
        committed = await read_committed([state.topic_partition for state in lost])
        without = []
        for state in lost:
            found = committed.get(state.topic_partition)
            if not state.is_lost:
                continue  # The application has called `seek` meanwhile.
            if found is not None:
                state.seek(found.offset, found.leader_epoch)
            elif self._settings.auto_offset_reset in _RESET_TIMESTAMPS:
                state.await_reset(_RESET_TIMESTAMPS[self._settings.auto_offset_reset])
            else:
                without.append(str(state.topic_partition))
        self._on_news()
        if without:
            raise OffsetOutOfRangeError(f"no position for {', '.join(without)}, and auto.offset.reset is none")

    def reset(self, state: PartitionFetchState, error: OffsetOutOfRangeError) -> None:
        """Drop a position that the log does not contain. With `auto.offset.reset` none, report the error."""
        timestamp = _RESET_TIMESTAMPS.get(self._settings.auto_offset_reset)
        if timestamp is None:
            state.error = error
        else:
            state.await_reset(timestamp)

    async def _reset_all(self, waiting: Mapping[TopicPartition, tuple[int | None, int]]) -> None:
        wanted = {partition: timestamp for partition, (timestamp, _) in waiting.items() if timestamp is not None}
        try:
            found = await list_offsets(
                self._cluster,
                wanted,
                read_committed=self._settings.read_committed,
                deadline=self._cluster.deadline("an offset reset"),
            )
        except ProtocolError as error:
            for partition in wanted:
                state = self._states.get(partition)
                if state is not None and state.epoch == waiting[partition][1]:
                    state.error = error
        else:
            for partition, listed in found.items():
                state = self._states.get(partition)
                if state is not None and state.epoch == waiting[partition][1]:
                    state.seek(max(0, listed.offset))
        finally:
            self._is_resetting = False
            self._on_news()

    # Validation

    async def _validate(self, states: Sequence[PartitionFetchState]) -> None:
        by_leader: dict[int, dict[TopicPartition, tuple[PartitionFetchState, int]]] = {}
        for state in states:
            leader = self._cluster.view.leader(state.topic_partition)
            by_leader.setdefault(leader, {})[state.topic_partition] = (state, state.epoch)
        try:
            await asyncio.gather(*(self._ask(leader, asked) for leader, asked in by_leader.items()))
        finally:
            self._is_validating = False
            self._on_news()

    async def _ask(self, leader: int, asked: Mapping[TopicPartition, tuple[PartitionFetchState, int]]) -> None:
        if leader == NO_BROKER:
            self._retry([state for state, _ in asked.values()])
            return
        message = self._message({partition: state.fetch_epoch for partition, (state, _) in asked.items()})
        try:
            response = await self._cluster.ask(leader, OffsetForLeaderEpochResponse, message, versions=_FOR_CONSUMERS)
        except UnsupportedVersionError:
            # The position is used as it is, like in the Java client with an old broker.
            for state, epoch in asked.values():
                state.is_unvalidated = state.is_unvalidated and state.epoch != epoch
        except ProtocolError:
            self._retry([state for state, _ in asked.values()])
        else:
            for topic in response.topics:
                for row in topic.partitions:
                    state, epoch = asked[TopicPartition(topic.topic, row.partition)]
                    if state.epoch == epoch:
                        self._take(state, row)

    def _message(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[str, object]:
        view = self._cluster.view
        return {
            "replica_id": _CONSUMER_REPLICA,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": number,
                            "current_leader_epoch": view.leader_epoch(TopicPartition(topic, number)),
                            "leader_epoch": leader_epochs[TopicPartition(topic, number)],
                        }
                        for number in numbers
                    ],
                }
                for topic, numbers in grouped_by_topic(leader_epochs).items()
            ],
        }

    def _retry(self, states: Sequence[PartitionFetchState]) -> None:
        self._cluster.request_refresh()
        clock = self._cluster.clock
        for state in states:
            state.not_before_ms = clock.monotonic_ms() + self._cluster.backoff.delay_ms(1, clock.random())

    def _take(self, state: PartitionFetchState, row: OffsetForLeaderEpochResponseEpochEndOffset) -> None:
        if row.error_code:
            error = error_for(row.error_code, f"the position of {state.topic_partition} cannot be validated")
            if error.retriable:
                self._retry([state])
            else:
                state.error = error
        elif row.leader_epoch < 0 or row.end_offset < 0:
            # The log has no record of this epoch or an earlier one.
            self.reset(state, _truncation(state, None))
        elif row.end_offset < (state.fetch_offset or 0):
            self.truncated(state, row.leader_epoch, row.end_offset)
        else:
            state.is_unvalidated = False

    def truncated(self, state: PartitionFetchState, leader_epoch: int, end_offset: int) -> None:
        """Note that the log of the leader differs from what was fetched, after the end of this epoch."""
        if state.position is None:
            return
        if end_offset >= state.position:
            # The application has only received records before the end. Fetch the others again.
            state.rewind(state.position, min(state.position_epoch, leader_epoch))
            return
        error = _truncation(state, end_offset)
        if self._settings.auto_offset_reset not in _RESET_TIMESTAMPS:
            state.error = error
            return
        _LOG.warning("%s. Reading continues at offset %d", error, end_offset)
        state.rewind(end_offset, leader_epoch)


def _truncation(state: PartitionFetchState, divergent_offset: int | None) -> LogTruncationError:
    since = "an unknown offset" if divergent_offset is None else f"offset {divergent_offset}"
    return LogTruncationError(
        f"the log of {state.topic_partition} was truncated: it differs from what was read from {since} on, "
        f"and the position is {state.position}",
        position=state.position or 0,
        divergent_offset=divergent_offset,
    )
