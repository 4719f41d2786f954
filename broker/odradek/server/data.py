"""Produce, Fetch, ListOffsets and OffsetForLeaderEpoch: the requests that move or locate records.

Produce and Fetch are direct: the frame is decoded, handed to the replica manager and answered by its callback, without
a task, an entity or an object per record. The other two read marks and indexes of leaders.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from odradek.base.errors import (
    NONE,
    InvalidRecordError,
    InvalidRequestError,
    KafkaStorageError,
    LeaderNotAvailableError,
    OffsetNotAvailableError,
    ProtocolError,
    StorageError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from odradek.base.ports import Clock
from odradek.base.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_BROKER,
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    TopicPartition,
)
from odradek.cluster import ClusterView
from odradek.metrics import BrokerTopicStats, RequestStats
from odradek.network.connection import Request
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.hotpath import (
    FetchedPartition,
    ProducedPartition,
    decode_fetch,
    decode_produce,
    encode_fetch_response,
    encode_produce_response,
)
from odradek.replication.fetch_session import FetchContext, FetchPartition, FetchSessions
from odradek.replication.manager import (
    AppendRequest,
    AppendResult,
    FetchParams,
    FetchResult,
    ReplicaManager,
)
from odradek.server.dispatch import DirectHandler, Handler, RequestContext
from odradek.server.fields import field

READ_COMMITTED: Final = 1
ZSTD_SINCE: Final = 7
"""First Produce version whose readers are known to understand zstd (KIP-110)."""
FOLLOWER_READS_SINCE: Final = 11
TOPIC_ID_SINCE: Final = 13
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
"""First ListOffsets version whose clients know the error (KIP-207); older ones are told LEADER_NOT_AVAILABLE."""
NO_ACKS: Final = 0
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
"""Of tiered storage (KIP-405): without it the local start is the start, and nothing is tiered."""

logger = logging.getLogger(__name__)


class DataHandlers:
    """Handlers over the replica manager."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        sessions: FetchSessions,
        view: ClusterView,
        topic_stats: BrokerTopicStats,
        request_stats: RequestStats,
        clock: Clock,
    ) -> None:
        """The stats are added to."""
        self._replicas = replicas
        self._sessions = sessions
        self._view = view
        self._topic_stats = topic_stats
        self._request_stats = request_stats
        self._clock = clock

    def direct(self) -> Mapping[ApiKey, DirectHandler]:
        """The handlers of the hot path."""
        return {ApiKey.PRODUCE: self.produce, ApiKey.FETCH: self.fetch}

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The other handlers."""
        return {
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
        }

    # Produce

    def produce(self, request: Request) -> None:
        """Append record sets to leaders' logs."""
        decoded = decode_produce(request.api_version, request.frame, request.position)
        acks = decoded.acks
        if decoded.transactional_id is not None:
            self._answer_produce(request, acks, {}, [_transactional(each) for each, _ in decoded.entries])
            return
        entries = [(topic_partition, records) for topic_partition, records in decoded.entries if records is not None]
        refused = [_without_records(each) for each, records in decoded.entries if records is None]
        sizes = {topic_partition: len(records) for topic_partition, records in entries}
        zstd_allowed = request.api_version >= ZSTD_SINCE
        self._replicas.append(
            AppendRequest(acks, decoded.timeout_ms, entries, zstd_allowed=zstd_allowed),
            lambda results: self._answer_produce(request, acks, sizes, [*results, *refused] if refused else results),
        )

    def _answer_produce(
        self, request: Request, acks: int, sizes: Mapping[TopicPartition, int], results: Sequence[AppendResult]
    ) -> None:
        failed = self._count_produced(sizes, results)
        version = request.api_version
        self._request_stats.answered("Produce", version, self._clock.monotonic_ms() - request.received_ms)
        if acks != NO_ACKS:
            rows = [
                ProducedPartition(
                    result.topic_partition,
                    result.error_code,
                    result.first_offset,
                    result.log_append_time_ms,
                    result.log_start_offset,
                    (),
                    result.error_message,
                )
                for result in results
            ]
            request.respond((encode_produce_response(version, request.correlation_id, rows),))
        elif failed is None:
            request.respond_nothing()
        else:
            # Without acknowledgements the end of the connection is the only way to make the producer look again.
            request.fail(f"{failed.topic_partition} answered error {failed.error_code} to a produce with acks=0")

    def _count_produced(
        self, sizes: Mapping[TopicPartition, int], results: Iterable[AppendResult]
    ) -> AppendResult | None:
        """Count what was appended; the first failure, if there is one."""
        failed = None
        for result in results:
            if result.error_code in _NO_SUCH_TOPIC:
                failed = failed or result
                continue
            stats = self._topic_stats.of(result.topic_partition.topic)
            stats.total_produce += 1
            if result.error_code:
                stats.failed_produce += 1
                failed = failed or result
            else:
                stats.messages_in += result.record_count
                stats.bytes_in += sizes[result.topic_partition]
        return failed

    # Fetch

    def fetch(self, request: Request) -> None:
        """Read record sets for a consumer or a follower."""
        version = request.api_version
        decoded = decode_fetch(version, request.frame, request.position)
        context = self._sessions.open(
            decoded, self._view.image.topic_names.get, uses_topic_ids=version >= TOPIC_ID_SINCE
        )
        is_consumer = decoded.replica_id < 0
        if context.error_code:
            self._answer_fetch(request, context, (), is_consumer=is_consumer)
            return
        params = FetchParams(
            decoded.max_wait_ms,
            min(decoded.min_bytes, decoded.max_bytes),  # more than the maximum would never come
            decoded.max_bytes,
            decoded.replica_id,
            decoded.isolation_level == READ_COMMITTED,
            version < FOLLOWER_READS_SINCE,
        )
        self._replicas.fetch(
            params,
            context.entries,
            lambda results: self._answer_fetch(request, context, results, is_consumer=is_consumer),
        )

    def _answer_fetch(
        self, request: Request, context: FetchContext, results: Sequence[FetchResult], *, is_consumer: bool
    ) -> None:
        answer = context.finish(results)
        rows = [self._fetched(entry, result, is_consumer) for entry, result in answer.partitions]
        version = request.api_version
        self._request_stats.answered("Fetch", version, self._clock.monotonic_ms() - request.received_ms)
        request.respond(
            encode_fetch_response(
                version, request.correlation_id, rows, error_code=answer.error_code, session_id=answer.session_id
            )
        )

    def _fetched(self, entry: FetchPartition, result: FetchResult, is_consumer: bool) -> FetchedPartition:
        topic, number = entry.topic_partition
        error_code, records = result.error_code, b""
        if result.records is not None:
            try:
                records = result.records.load()
            except StorageError:
                logger.exception("%s cannot be read", entry.topic_partition)
                self._replicas.take_offline(entry.topic_partition)
                error_code = KafkaStorageError.code
        if error_code not in _NO_SUCH_TOPIC:
            stats = self._topic_stats.of(topic)
            stats.total_fetch += 1
            if error_code:
                stats.failed_fetch += 1
            elif is_consumer:
                stats.bytes_out += len(records)
        return FetchedPartition(
            topic,
            entry.topic_id,
            number,
            error_code,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            records,
            result.aborted_transactions,
            -1,
            result.diverging_epoch,
            None if result.leader_id < 0 else (result.leader_id, result.leader_epoch),
        )

    # Marks

    async def list_offsets(self, context: RequestContext, request: Any) -> Message:
        """Offsets by time (KIP-79), of the end as the reader may see it, of the start, of the greatest timestamp."""
        counts = Counter((topic.name, item.partition_index) for topic in request.topics for item in topic.partitions)
        topics = []
        for topic in request.topics:
            partitions = []
            for item in topic.partitions:
                topic_partition = TopicPartition(topic.name, item.partition_index)
                try:
                    if counts[topic_partition] > 1:
                        raise InvalidRequestError(f"{topic_partition} is asked about more than once")
                    _check_timestamp(item.timestamp, context.api_version)
                    found = self._listed(topic_partition, item, request)
                    row = {"timestamp": found[0], "offset": found[1], "leader_epoch": found[2], "error_code": NONE}
                except ProtocolError as error:
                    row = {"timestamp": NO_TIMESTAMP, "offset": NO_OFFSET, "error_code": error.code}
                    if error.code == OffsetNotAvailableError.code and context.api_version < OFFSET_NOT_AVAILABLE_SINCE:
                        row["error_code"] = LeaderNotAvailableError.code
                partitions.append({"partition_index": item.partition_index, **row})
            topics.append({"name": topic.name, "partitions": partitions})
        return {"throttle_time": 0, "topics": topics}

    def _listed(self, topic_partition: TopicPartition, item: Any, request: Any) -> tuple[int, int, int]:
        """(timestamp, offset, leader epoch), each -1 where there is none."""
        partition = self._replicas.leader(topic_partition, field(item, "current_leader_epoch", NO_EPOCH))
        log, timestamp = partition.log, item.timestamp
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return NO_TIMESTAMP, log.log_start_offset, log.epoch_of(log.log_start_offset)
        if timestamp == LATEST_TIERED_TIMESTAMP:
            return _NOTHING
        end, is_behind = log.log_end_offset, False
        if request.replica_id == NO_BROKER:
            committed = field(request, "isolation_level", 0) == READ_COMMITTED
            end = partition.last_stable_offset if committed else log.high_watermark
            # A new leader does not know yet how far the old one had come.
            is_behind = log.high_watermark < (partition.leader_epoch_start_offset or 0)
        if timestamp == LATEST_TIMESTAMP and not is_behind:
            return NO_TIMESTAMP, end, partition.leader_epoch
        if timestamp != LATEST_TIMESTAMP:
            found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
            if found is not None and found.offset < end:
                return found.timestamp, found.offset, found.leader_epoch
        if is_behind:
            raise OffsetNotAvailableError(f"the high watermark of {topic_partition} is not known yet")
        return _NOTHING

    async def offset_for_leader_epoch(self, context: RequestContext, request: Any) -> Message:
        """Where a leader epoch ended, so that readers find where their log parts from ours (KIP-101, KIP-320)."""
        topics = []
        for topic in request.topics:
            partitions = []
            for item in topic.partitions:
                row: dict[str, object] = {"partition": item.partition, "error_code": NONE}
                try:
                    partition = self._replicas.leader(
                        TopicPartition(topic.topic, item.partition), field(item, "current_leader_epoch", NO_EPOCH)
                    )
                    found = partition.log.end_offset_for_epoch(item.leader_epoch)
                    row |= {"leader_epoch": found.leader_epoch, "end_offset": found.end_offset}
                except ProtocolError as error:
                    row["error_code"] = error.code
                partitions.append(row)
            topics.append({"topic": topic.topic, "partitions": partitions})
        return {"throttle_time": 0, "topics": topics}


_SPECIAL_TIMESTAMPS_SINCE: Final = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
}
"""First ListOffsets version in which each stands for something."""


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _SPECIAL_TIMESTAMPS_SINCE.get(timestamp, version + 1):
        raise UnsupportedVersionError(f"{timestamp} stands for nothing in version {version} of ListOffsets")


_NOTHING: Final = (NO_TIMESTAMP, NO_OFFSET, NO_EPOCH)


_NO_SUCH_TOPIC: Final = frozenset({UnknownTopicOrPartitionError.code, UnknownTopicIdError.code})
"""Errors after which nothing is counted: a metric for each name that a client makes up would know no bound."""


def _transactional(topic_partition: TopicPartition) -> AppendResult:
    reason = "transactions are not available on this broker"
    return AppendResult(topic_partition, InvalidRequestError.code, error_message=reason)


def _without_records(topic_partition: TopicPartition) -> AppendResult:
    return AppendResult(topic_partition, InvalidRecordError.code, error_message="the request has no records for it")
