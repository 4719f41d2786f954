"""Handlers of Produce and Fetch.

Produce and Fetch have direct handlers: they decode the frame and call the replica manager, whose callback sends the
response, without a task, a message object or an object per record.
`server/data/transactional_produce` appends for transactional producers. `server/data/conversion` converts responses for
consumers before Kafka 2.1 if necessary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.base.config import TopicConfig
from odradek.base.errors import (
    InvalidRecordError,
    KafkaStorageError,
    MessageTooLargeError,
    StorageError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from odradek.base.ports import Buffer, Clock, FileRegion, Part, Workers
from odradek.base.types import (
    NO_OFFSET,
    READ_COMMITTED,
    TopicPartition,
)
from odradek.cluster import MetadataCache
from odradek.coordinator.transactions.transaction_values import TransactionVerifier
from odradek.log.values import LogSlice
from odradek.metrics.request_stats import RequestStats
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.network.connection import Request
from odradek.protocol.apis import ApiKey
from odradek.protocol.hotpath import (
    FetchedPartition,
    ProducedPartition,
    RecordError,
    decode_fetch,
    decode_produce,
    encode_fetch_response,
    encode_only_result,
    encode_produce_response,
)
from odradek.records.formats import MAGIC_AT
from odradek.records.v2.batch import MAGIC, TRANSACTIONAL_FLAG
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.replica_requests import AppendRequest, AppendResult, FetchParams, FetchResult
from odradek.replication.sessions.fetch_session import FetchAnswer, FetchContext, FetchPartition, FetchSessions
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.server.authorization.authorizer import Authorizer
from odradek.server.authorization.guards import refusal
from odradek.server.authorization.topic_rights import (
    NO_TOPICS,
    NOT_WRITABLE,
    may_write_transactions,
    not_readable,
    not_writable,
)
from odradek.server.data.conversion import ZSTD_SINCE as FETCH_ZSTD_SINCE
from odradek.server.data.conversion import DownConversion
from odradek.server.data.record_sets import LoadedRecords, RecordSets
from odradek.server.data.transactional_produce import TransactionalProduce
from odradek.server.dispatch import DirectHandler
from odradek.server.throttling.client_throttle import ClientThrottle

FORMAT_2_ONLY_SINCE: Final = 3
"""First Produce version that only allows batches. Earlier versions may have message sets (KIP-98)."""
LOG_START_SINCE: Final = 5
"""First Produce version whose response has the log start offset."""
ZSTD_SINCE: Final = 7
"""First Produce version in which batches may be compressed with zstd (KIP-110)."""
ABORTABLE_SINCE: Final = 11
"""First Produce version that has TRANSACTION_ABORTABLE (KIP-890)."""
ADDITIONS_SINCE: Final = 12
"""First Produce version that adds the partitions to the transaction (KIP-890)."""
SOFT_MAX_BYTES_SINCE: Final = 3
"""First Fetch version that returns a first batch above the limit as a whole (KIP-74)."""
FOLLOWER_READS_SINCE: Final = 11
TOPIC_ID_SINCE: Final = 13
NO_ACKS: Final = 0
FROM_FILES_BYTES: Final = 2 << 20
"""Responses with at least this many bytes of records are sent from the files. For smaller ones, copying is cheaper."""
FROM_FILE_BYTES: Final = 128 << 10
"""In such responses, partitions with at least this many bytes are sent from the files, the others are copied."""
_ATTRIBUTES_LOW_BYTE: Final = 22
"""Position of the attribute flags in a batch of format 2."""

logger = logging.getLogger(__name__)


class DataHandlers:
    """Handlers that use the replica manager."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        sessions: FetchSessions,
        view: MetadataCache,
        topic_stats: BrokerTopicStats,
        request_stats: RequestStats,
        clock: Clock,
        workers: Workers | None = None,
        authorizer: Authorizer | None = None,
        throttle: ClientThrottle | None = None,
        verifier: TransactionVerifier | None = None,
        verifies: Callable[[], bool] = lambda: True,
    ) -> None:
        """`workers` convert large record sets for old consumers. Without them, the event loop converts all record
        sets. Without an `authorizer`, everyone may read and write everything; without `throttle`, clients have no
        quotas. `verifies`: whether transactions are verified, with `verifier` (see `TransactionalProduce`)."""
        self._replicas = replicas
        self._sessions = sessions
        self._view = view
        self._topic_stats = topic_stats
        self._request_stats = request_stats
        self._produce_times, self._fetch_times = request_stats.times_of("Produce"), request_stats.times_of("Fetch")
        self._clock = clock
        self._authorizer = authorizer
        self._throttle = throttle
        self._conversion = DownConversion(self._topic_config, topic_stats, workers)
        self._record_sets = RecordSets(replicas, self._cannot_be_read)
        self.transactions: Final = TransactionalProduce(replicas, verifier, verifies)
        """The appends of transactional producers."""

    def _topic_config(self, topic_partition: TopicPartition) -> TopicConfig | None:
        partition = self._replicas.table.online.get(topic_partition)
        return None if partition is None else partition.log.config

    async def close(self) -> None:
        """Cancel verifications, reads and conversions in progress. Idempotent."""
        await self.transactions.close()
        await self._record_sets.close()
        await self._conversion.close()

    def direct(self) -> Mapping[ApiKey, DirectHandler]:
        """The direct handlers."""
        return {ApiKey.PRODUCE: self.produce, ApiKey.FETCH: self.fetch}

    # Produce

    def produce(self, request: Request) -> None:
        """Handle Produce: append record sets to the logs of partitions that this broker leads."""
        times = self._produce_times
        times.countdown -= 1
        if not times.countdown:
            request.sample = times.sample(request.received_ms, self._clock.monotonic_ms())
        version = request.api_version
        decoded = decode_produce(version, request.frame, request.position)
        acks, entries = decoded.acks, decoded.entries
        transactional_id = decoded.transactional_id
        if transactional_id is not None and not self._may_use(request, transactional_id, entries):
            self._answer_produce(request, acks, (), [_not_authorized(each) for each, _ in entries])
            return
        whole: list[tuple[TopicPartition, memoryview]] = []
        refused: list[AppendResult] = []
        denied = NO_TOPICS
        if self._authorizer is not None:
            denied = not_writable(self._authorizer, request, entries)
        for entry in entries:
            records = entry[1]
            if denied and entry[0].topic in denied:
                refused.append(AppendResult(entry[0], NOT_WRITABLE[0], error_message=NOT_WRITABLE[1]))
            elif records is None:
                refused.append(_without_records(entry[0]))
            elif transactional_id is None and _is_transactional(records):
                self._answer_produce(request, acks, (), [_without_transactional_id(each) for each, _ in entries])
                return
            else:
                whole.append((entry[0], records))

        def respond(results: Sequence[AppendResult]) -> None:
            self._answer_produce(request, acks, refused, results)

        asked = AppendRequest(
            acks,
            decoded.timeout_ms,
            whole,
            zstd_allowed=version >= ZSTD_SINCE,
            any_format=version < FORMAT_2_ONLY_SINCE,
        )
        if transactional_id is None:
            self._replicas.append(asked, respond)
        else:
            self.transactions.append(
                asked,
                transactional_id,
                request.connection,
                respond,
                knows_abortable=version >= ABORTABLE_SINCE,
                adds=version >= ADDITIONS_SINCE,
            )

    def _may_use(
        self, request: Request, transactional_id: str, entries: Sequence[tuple[TopicPartition, memoryview | None]]
    ) -> bool:
        """Whether the client may write what the request contains as part of the transactions of this id.

        As in Kafka, a request without transactional batches needs no right to the id.
        """
        if self._authorizer is None or not any(records and _is_transactional(records) for _, records in entries):
            return True
        return may_write_transactions(self._authorizer, request.identity, transactional_id)

    def _answer_produce(
        self, request: Request, acks: int, refused: Sequence[AppendResult], results: Sequence[AppendResult]
    ) -> None:
        """`refused`: results of partitions that were rejected before the append."""
        if refused:
            results = [*results, *refused]
        failed = self._count_produced(results)
        version = request.api_version
        self._request_stats.answered("Produce", version)
        throttle_ms = 0 if self._throttle is None else self._throttle.of_produce(request)
        if acks != NO_ACKS:
            request.respond((encode_produced(version, request.correlation_id, results, throttle_ms),))
        elif failed is None:
            request.respond_nothing()
        else:
            # Without acknowledgements, closing the connection is the only way to make the producer refresh its
            # metadata.
            request.fail(f"the append to {failed.topic_partition} with acks=0 failed with error {failed.error_code}")
        if throttle_ms and self._throttle is not None:
            self._throttle.mute(request, throttle_ms)

    def _count_produced(self, results: Iterable[AppendResult]) -> AppendResult | None:
        """Count the appends. Return the first failure, if there is one."""
        failed = None
        for result in results:
            error_code = result.error_code
            if error_code:
                self._request_stats.failed("Produce", error_code)
                if error_code in _NO_SUCH_TOPIC:
                    failed = failed or result
                    continue
            count_append(self._topic_stats, result)
            if error_code:
                failed = failed or result
            if result.converted:
                self._topic_stats.of(result.topic_partition.topic).produce_conversions += result.converted
        return failed

    # Fetch

    def fetch(self, request: Request) -> None:
        """Handle Fetch: read record sets for a consumer or a follower."""
        times = self._fetch_times
        times.countdown -= 1
        if not times.countdown:
            request.sample = times.sample(request.received_ms, self._clock.monotonic_ms())
        version = request.api_version
        decoded = decode_fetch(version, request.frame, request.position)
        is_consumer = decoded.replica_id < 0
        uses_topic_ids = version >= TOPIC_ID_SINCE
        if self._authorizer is None:
            context = self._sessions.open(decoded, self._view.image.topic_name, uses_topic_ids=uses_topic_ids)
        else:
            context = self._sessions.open(
                decoded,
                self._view.image.topic_name,
                uses_topic_ids=uses_topic_ids,
                denied=partial(not_readable, self._authorizer, request.identity, is_consumer),
                rules=self._authorizer.generation,
            )
        if context.error_code:
            self._answer_fetch(request, context, (), is_consumer=is_consumer)
            return
        max_bytes = decoded.max_bytes
        if self._throttle is not None:
            if is_consumer:
                max_bytes = self._throttle.largest_fetch(request, max_bytes)
            else:
                self._throttle.exempt(request)
        params = FetchParams(
            decoded.max_wait_ms,
            min(decoded.min_bytes, max_bytes),  # min_bytes above max_bytes could never be satisfied
            max_bytes,
            decoded.replica_id,
            decoded.isolation_level == READ_COMMITTED,
            version < FOLLOWER_READS_SINCE,
            version < SOFT_MAX_BYTES_SINCE,
            decoded.rack_id,
            decoded.replica_epoch,
        )
        self._replicas.fetch(
            params,
            context.entries,
            lambda results: self._answer_fetch(request, context, results, is_consumer=is_consumer),
            session=context.session,
        )

    def _answer_fetch(
        self, request: Request, context: FetchContext, results: Sequence[FetchResult], *, is_consumer: bool
    ) -> None:
        size_bytes = sum(each.records.length for each in results if each.records is not None)
        throttle_ms = 0
        if is_consumer and self._throttle is not None:
            throttle_ms, must_be_empty = self._throttle.of_fetch(request, size_bytes)
            if must_be_empty:
                self._respond_fetch(request, context.throttled(), (), throttle_ms)
                return
        answer = context.finish(results)
        if request.api_version < FETCH_ZSTD_SINCE:
            respond = partial(self._answer_old_fetch, request, answer, is_consumer, throttle_ms)
            self._record_sets.load(answer.partitions, respond)
            return
        copied_bytes = FROM_FILE_BYTES if size_bytes >= FROM_FILES_BYTES else FROM_FILES_BYTES
        rows = [self._fetched(entry, result, is_consumer, copied_bytes) for entry, result in answer.partitions]
        self._respond_fetch(request, answer, rows, throttle_ms)

    def _answer_old_fetch(
        self,
        request: Request,
        answer: FetchAnswer,
        is_consumer: bool,
        throttle_ms: int,
        loaded: Sequence[LoadedRecords],
    ) -> None:
        """Answer with the loaded records, which are converted if the version does not support their format."""
        rows = [self._fetched(entry, result, is_consumer, 0, records) for entry, result, records in loaded]
        offsets = [entry.fetch_offset for entry, _, _ in loaded]
        self._conversion.fit(
            request, rows, offsets, lambda fitting: self._respond_fetch(request, answer, fitting, throttle_ms)
        )

    def _respond_fetch(
        self, request: Request, answer: FetchAnswer, rows: Sequence[FetchedPartition], throttle_ms: int
    ) -> None:
        version = request.api_version
        self._request_stats.answered("Fetch", version)
        if answer.error_code:
            self._request_stats.failed("Fetch", answer.error_code)
            self._request_stats.failed_whole("Fetch")
        request.respond(
            encode_fetch_response(
                version,
                request.correlation_id,
                rows,
                throttle_time_ms=throttle_ms,
                error_code=answer.error_code,
                session_id=answer.session_id,
            )
        )
        if throttle_ms and self._throttle is not None:
            self._throttle.mute(request, throttle_ms)

    def _fetched(
        self,
        entry: FetchPartition,
        result: FetchResult,
        is_consumer: bool,
        copied_bytes: int,
        loaded: Buffer | None = None,
    ) -> FetchedPartition:
        """`copied_bytes`: record sets in memory that are smaller are copied. `loaded`: the record set, if it was
        loaded."""
        topic, number = entry.topic_partition
        error_code = result.error_code
        records: Part = b""
        if loaded is not None:
            records = loaded
        elif result.records is not None:
            try:
                records = self._outgoing(entry.topic_partition, result.records, copied_bytes)
            except StorageError as error:
                self._cannot_be_read(entry.topic_partition, error)
                error_code = KafkaStorageError.code
        if error_code:
            self._request_stats.failed("Fetch", error_code)
        if error_code not in _NO_SUCH_TOPIC:
            stats = self._topic_stats.of(topic)
            stats.total_fetch += 1
            if error_code:
                stats.failed_fetch += 1
            elif is_consumer:
                stats.bytes_out += len(records)
            else:
                self._topic_stats.replication_bytes_out += len(records)
                self._replicas.quotas.leader.note(entry.topic_partition, len(records))
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
            result.preferred_read_replica,
            result.diverging_epoch,
            None if result.leader_id < 0 else (result.leader_id, result.leader_epoch),
        )

    def _outgoing(self, topic_partition: TopicPartition, found: LogSlice, copied_bytes: int) -> Part:
        """Return the records to send: small ones in memory as bytes, others as a region of their file.

        Raises `StorageError`.
        """
        file, position, length, _ = found
        if length < copied_bytes:
            data = file.pread_now(length, position)
            if data is not None:
                return data
        if file.fileno() is None:
            return found.load()
        return FileRegion(file, position, length, partial(self._cannot_be_read, topic_partition))

    def _cannot_be_read(self, topic_partition: TopicPartition, error: StorageError) -> None:
        logger.error("%s cannot be read: %s", topic_partition, error)
        self._replicas.take_offline(topic_partition)


_NO_SUCH_TOPIC: Final = frozenset(
    {UnknownTopicOrPartitionError.code, UnknownTopicIdError.code, TopicAuthorizationFailedError.code}
)
"""Errors that are not counted per topic, because clients can request any number of topics that do not exist."""


def _is_transactional(records: memoryview) -> bool:
    """Return whether a partition's first batch is transactional. As in Kafka, such a batch without a transactional id
    makes the whole request fail."""
    return bool(
        len(records) > _ATTRIBUTES_LOW_BYTE
        and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG
        and records[MAGIC_AT] == MAGIC
    )


def encode_produced(version: int, correlation_id: int, results: Sequence[AppendResult], throttle_ms: int) -> bytes:
    """Return the response frame."""
    if len(results) == 1 and version >= LOG_START_SINCE and not throttle_ms:
        # One append without an error, the frequent case: without an object for its row of the response.
        only = results[0]
        if not only.error_code:
            fields = (only.topic_partition, 0, only.first_offset, only.log_append_time_ms, only.log_start_offset)
            return encode_only_result(version, correlation_id, fields)
    rows = [_produced(result) for result in results]
    return encode_produce_response(version, correlation_id, rows, throttle_time_ms=throttle_ms)


def _produced(result: AppendResult) -> ProducedPartition:
    fields = (
        result.topic_partition,
        result.error_code,
        result.first_offset,
        result.log_append_time_ms,
        result.log_start_offset,
        [RecordError(*each) for each in result.record_errors] if result.record_errors else (),
        result.error_message,
    )
    return tuple.__new__(ProducedPartition, fields)


def _without_transactional_id(topic_partition: TopicPartition) -> AppendResult:
    reason = "a transactional batch requires a transactional id in the request"
    return AppendResult(topic_partition, TransactionalIdAuthorizationFailedError.code, error_message=reason)


def _not_authorized(topic_partition: TopicPartition) -> AppendResult:
    reason = str(refusal(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID))
    return AppendResult(topic_partition, TransactionalIdAuthorizationFailedError.code, error_message=reason)


def _without_records(topic_partition: TopicPartition) -> AppendResult:
    return AppendResult(
        topic_partition, InvalidRecordError.code, error_message="the request has no records for the partition"
    )


def count_append(topics: BrokerTopicStats, result: AppendResult) -> None:
    """Count the append to one partition: the attempt, and what was written or why it was rejected.

    Records are counted when they are in the leader's log, even if the ISR does not acknowledge them in time.
    """
    stats = topics.of(result.topic_partition.topic)
    stats.total_produce += 1
    if result.first_offset != NO_OFFSET:
        stats.messages_in += result.record_count
        stats.bytes_in += result.size_bytes
    if result.error_code:
        stats.failed_produce += 1
        if result.error_code == MessageTooLargeError.code:
            stats.bytes_rejected += result.size_bytes
        stats.count_fault(result.fault)
