"""Writes transaction markers to the partitions that this broker leads, also for the coordinators of other brokers.

`LocalMarkers` appends them; `MarkerHandlers` serves WriteTxnMarkers. Results are those of Kafka: a partition that this
broker does not host is unknown, and an error of one partition does not affect the others. The coordinator sends a
marker again after most errors, which is harmless: a second marker finds no open transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.base.errors import (
    NONE,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from odradek.base.ports import Clock
from odradek.base.types import GROUP_METADATA_TOPIC, TopicPartition
from odradek.coordinator.transactions.transaction_values import MarkerWriter, TransactionMarker
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.transactions import WriteTxnMarkersRequest
from odradek.records.checks.validate import AppendOrigin
from odradek.records.v2.batch import MAGIC, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek.replication.replica_manager import ALL_ACKS, ReplicaManager
from odradek.replication.replica_requests import AppendRequest, AppendResult
from odradek.server.data.produce_and_fetch import count_append
from odradek.server.dispatch import Handler, RequestContext, route

logger = logging.getLogger(__name__)

Ended = Callable[[TopicPartition, int, bool, int], None]
"""Called with a partition of `__consumer_offsets`, the producer id, whether its transaction was committed, and the
offset of the marker."""


class LocalMarkers:
    """The `MarkerWriter` of a broker. Runs on the event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        topic_stats: BrokerTopicStats,
        *,
        timeout_ms: int,
        on_ended: Ended,
    ) -> None:
        """`timeout_ms`: maximum wait for the ISR (`request.timeout.ms`). `topic_stats` counts the appends.

        `on_ended` is called when the ISR has a marker in a partition of `__consumer_offsets`, before `write` returns.
        """
        self._replicas: Final = replicas
        self._clock: Final = clock
        self._topic_stats: Final = topic_stats
        self._timeout_ms: Final = timeout_ms
        self._on_ended: Final = on_ended

    async def write(self, markers: Sequence[TransactionMarker]) -> list[Mapping[TopicPartition, int]]:
        """Append the markers, before the first suspension. Return for each an error code per partition, when the ISR
        has them or the time is up.

        Codes of partitions that are not written: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
        UNSUPPORTED_FOR_MESSAGE_FORMAT below record format 2, NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED for outdated markers, KAFKA_STORAGE_ERROR, and UNKNOWN_SERVER_ERROR for a marker
        without a producer.
        """
        outcomes = [self._append(marker) for marker in markers]
        return [await outcome for outcome in outcomes]

    def _append(self, marker: TransactionMarker) -> asyncio.Future[Mapping[TopicPartition, int]]:
        outcome: asyncio.Future[Mapping[TopicPartition, int]] = asyncio.get_running_loop().create_future()
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            outcome.set_result(dict.fromkeys(marker.partitions, UnknownServerError.code))
            return outcome
        codes = {topic_partition: self._refusal(topic_partition) for topic_partition in marker.partitions}
        batch = marker_batch(
            ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._clock.wall_ms(),
        )
        # The log writes offsets into the memory, so each partition gets a copy.
        entries = [(each, memoryview(bytearray(batch))) for each, code in codes.items() if code == NONE]

        def respond(results: Sequence[AppendResult]) -> None:
            for result in results:
                count_append(self._topic_stats, result)
                codes[result.topic_partition] = self._finished(marker, result)
            if not outcome.done():
                outcome.set_result(codes)

        if entries:
            self._replicas.append(AppendRequest(ALL_ACKS, self._timeout_ms, entries, AppendOrigin.COORDINATOR), respond)
        else:
            outcome.set_result(codes)
        return outcome

    def _refusal(self, topic_partition: TopicPartition) -> int:
        """Return the error code of a partition that cannot have markers, 0 otherwise."""
        partition = self._replicas.table.online.get(topic_partition)
        if partition is None:
            return UnknownTopicOrPartitionError.code
        return NONE if partition.log.config.magic >= MAGIC else UnsupportedForMessageFormatError.code

    def _finished(self, marker: TransactionMarker, result: AppendResult) -> int:
        """Report a written marker of offsets. Return the error code of the partition."""
        topic_partition, code = result.topic_partition, result.error_code
        if code == NONE and topic_partition.topic == GROUP_METADATA_TOPIC:
            try:
                self._on_ended(topic_partition, marker.producer_id, marker.is_commit, result.first_offset)
            except Exception:
                # As in Kafka: the coordinator sends the marker again, and the offsets get another chance.
                logger.exception("the offsets of producer %d in %s", marker.producer_id, topic_partition)
                code = UnknownServerError.code
        return code


class MarkerHandlers:
    """The handler of WriteTxnMarkers."""

    def __init__(self, markers: MarkerWriter) -> None:
        """`markers` writes to the partitions that this broker leads."""
        self._markers = markers

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict([route(WriteTxnMarkersRequest, self.write_markers)])

    async def write_markers(self, context: RequestContext, request: WriteTxnMarkersRequest) -> Message:
        """Handle WriteTxnMarkers: append the markers of a coordinator. Responds when all of them are committed or have
        failed."""
        markers = [
            TransactionMarker(
                each.producer_id,
                each.producer_epoch,
                each.transaction_result,
                each.coordinator_epoch,
                tuple(
                    TopicPartition(topic.name, number) for topic in each.topics for number in topic.partition_indexes
                ),
            )
            for each in request.markers
        ]
        codes: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for marker, written in zip(markers, await self._markers.write(markers), strict=True):
            codes[marker.producer_id].update(written)
        return {
            "markers": [
                {"producer_id": producer_id, "topics": _by_topic(of_producer)}
                for producer_id, of_producer in codes.items()
            ]
        }


def _by_topic(codes: Mapping[TopicPartition, int]) -> list[Message]:
    topics: defaultdict[str, list[Message]] = defaultdict(list)
    for (topic, number), code in codes.items():
        topics[topic].append({"partition_index": number, "error_code": code})
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
