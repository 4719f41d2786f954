"""The requests of `marker_sender` and `verification_sender`, and what the error codes of their responses mean.

WriteTxnMarkers and AddPartitionsToTxn identify their items differently: a response has markers by producer id, and
transactions by transactional id. A request therefore has each id only once, which the senders ensure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from odradek.base.errors import (
    ClusterAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    KafkaStorageError,
    NetworkError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.transactions.transaction_values import TransactionMarker
from odradek.protocol.codec import Message
from odradek.protocol.messages.transactions import AddPartitionsToTxnResponse, WriteTxnMarkersResponse

VERIFICATION_SINCE: Final = 4
"""First AddPartitionsToTxn version that can verify, and that has several transactions (KIP-890)."""


class MarkerVerdict(Enum):
    """What the answer for a partition means for its marker."""

    WRITTEN = auto()
    RETRY = auto()
    FENCED = auto()
    UNEXPECTED = auto()


_VERDICTS: Final[Mapping[int, MarkerVerdict]] = {
    0: MarkerVerdict.WRITTEN,
    # The log of the partition cannot contain transactions, so no record of the producer is in it.
    UnsupportedForMessageFormatError.code: MarkerVerdict.WRITTEN,
    UnsupportedVersionError.code: MarkerVerdict.WRITTEN,
    InvalidProducerEpochError.code: MarkerVerdict.FENCED,
    TransactionCoordinatorFencedError.code: MarkerVerdict.FENCED,
    **dict.fromkeys(
        (
            UnknownTopicOrPartitionError.code,
            NotLeaderOrFollowerError.code,
            RequestTimedOutError.code,
            NetworkError.code,
            NotEnoughReplicasError.code,
            NotEnoughReplicasAfterAppendError.code,
            KafkaStorageError.code,
            CoordinatorLoadInProgressError.code,
            CoordinatorNotAvailableError.code,
            NotCoordinatorError.code,
        ),
        MarkerVerdict.RETRY,
    ),
}


def marker_verdict(code: int) -> MarkerVerdict:
    """Return what an error code of WriteTxnMarkers means, as in Kafka's TransactionMarkerRequestCompletionHandler.

    A code that Kafka does not expect is UNEXPECTED.
    """
    return _VERDICTS.get(code, MarkerVerdict.UNEXPECTED)


def markers_message(markers: Iterable[TransactionMarker]) -> Message:
    """Return a WriteTxnMarkers request, for all versions."""
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "producer_epoch": marker.producer_epoch,
                "transaction_result": marker.is_commit,
                "topics": [
                    {"name": topic, "partition_indexes": numbers}
                    for topic, numbers in grouped_by_topic(marker.partitions).items()
                ],
                "coordinator_epoch": marker.coordinator_epoch,
            }
            for marker in markers
        ]
    }


def marker_codes(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, int]]:
    """Return the error codes of the partitions by producer id."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for marker in response.markers:
        codes = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for item in topic.partitions:
                codes[TopicPartition(topic.name, item.partition_index)] = item.error_code
    return found


class WantedVerification(NamedTuple):
    """The partitions of one transaction in a request that verifies them."""

    writer: TransactionalWriter
    partitions: Iterable[TopicPartition]


def verification_message(wanted: Iterable[WantedVerification]) -> Message:
    """Return an AddPartitionsToTxn request, for versions from `VERIFICATION_SINCE`.

    It adds the partitions of the writers that say so, and verifies the others."""
    return {
        "transactions": [
            {
                "transactional_id": writer.transactional_id,
                "producer_id": writer.producer_id,
                "producer_epoch": writer.producer_epoch,
                "verify_only": not writer.adds,
                "topics": [
                    {"name": topic, "partitions": numbers} for topic, numbers in grouped_by_topic(partitions).items()
                ],
            }
            for writer, partitions in wanted
        ]
    }


def verification_codes(response: AddPartitionsToTxnResponse) -> dict[str, dict[TopicPartition, int]]:
    """Return the error codes of the partitions by transactional id. The response has no error as a whole."""
    return {
        result.transactional_id: {
            TopicPartition(topic.name, item.partition_index): producer_code(item.partition_error_code)
            for topic in result.topic_results
            for item in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def producer_code(code: int) -> int:
    """Return the error code of a verification that a producer gets, as from Kafka's AddPartitionsToTxnManager.

    Producers expect INVALID_PRODUCER_EPOCH when they are fenced. CLUSTER_AUTHORIZATION_FAILED is not about the
    producer, but means that the transaction is not verified.
    """
    if code == ProducerFencedError.code:
        return InvalidProducerEpochError.code
    if code == ClusterAuthorizationFailedError.code:
        return InvalidTransactionStateError.code
    return code
