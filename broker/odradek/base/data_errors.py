"""Errors of records, partitions and replicas. `base/errors` exports all of them."""

from __future__ import annotations

from enum import Enum
from typing import Final

from odradek.base.error_kinds import OurError, PeerError, StateError
from odradek.base.types import NO_OFFSET


class RecordFault(Enum):
    """Faults of records that Kafka counts (the `Invalid*` and `NoKey*` rates of BrokerTopicMetrics)."""

    CRC = "crc"
    """The CRC of a batch or message does not match."""
    FORMAT = "format"
    """Messages of different formats are mixed."""
    OFFSET_OR_SEQUENCE = "offset or sequence"
    """The offsets of a batch do not match its number of records, or a batch has a producer id without a sequence."""
    NO_KEY = "no key"
    """A record for a compacted topic has no key."""


class RefusedRecordsError(PeerError):
    """Base of the errors about records; never raised itself."""

    def __init__(
        self,
        message: str = "",
        *,
        record_errors: tuple[tuple[int, str], ...] = (),
        fault: RecordFault | None = None,
        fault_count: int = 1,
    ) -> None:
        """`record_errors`: index in the batch and message of each invalid record (KIP-467), possibly not all.

        `fault_count`: number of records or batches with the fault, 0 for none.
        """
        super().__init__(message)
        self.record_errors: Final = record_errors
        self.fault: Final = None if fault is None or not fault_count else (fault, fault_count)


class OffsetOutOfRangeError(PeerError):
    """The offset is below the log start or above the log end."""

    code = 1


class LogTruncationError(OffsetOutOfRangeError):
    """The log was truncated below the position of a consumer, after the election of an unclean leader (KIP-320).

    Only the consumer raises it. `position` is the offset of the next record that it would have returned.
    `divergent_offset` is the first offset whose record may differ from what it has returned; None if unknown.
    """

    def __init__(self, message: str = "", *, position: int = NO_OFFSET, divergent_offset: int | None = None) -> None:
        """`message` names the partition."""
        super().__init__(message)
        self.position: Final = position
        self.divergent_offset: Final = divergent_offset


class CorruptMessageError(RefusedRecordsError):
    """A batch fails its CRC check, or its size, counts or offsets are inconsistent."""

    code = 2
    retriable = True


class UnknownTopicOrPartitionError(StateError):
    """This broker does not host the partition, or the topic does not exist."""

    code = 3
    retriable = True


class LeaderNotAvailableError(StateError):
    """A leader is being elected."""

    code = 5
    retriable = True


class NotLeaderOrFollowerError(StateError):
    """Another broker leads the partition."""

    code = 6
    retriable = True


class ReplicaNotAvailableError(StateError):
    """This broker does not have the replica, or is moving it."""

    code = 9
    retriable = True


class MessageTooLargeError(PeerError):
    """A batch is larger than `max.message.bytes`."""

    code = 10


class InvalidTopicError(PeerError):
    """The topic name is invalid, or a client wrote to an internal topic."""

    code = 17


class RecordListTooLargeError(PeerError):
    """A record set exceeds the maximum segment size."""

    code = 18


class NotEnoughReplicasError(StateError):
    """The ISR is smaller than `min.insync.replicas`; nothing was appended."""

    code = 19
    retriable = True


class NotEnoughReplicasAfterAppendError(StateError):
    """The ISR shrank below `min.insync.replicas` after the append."""

    code = 20
    retriable = True


class InvalidRequiredAcksError(PeerError):
    """`acks` is not -1, 0 or 1."""

    code = 21


class TopicAuthorizationFailedError(PeerError):
    """The principal may not do this to the topic."""

    code = 29


class InvalidTimestampError(RefusedRecordsError):
    """The timestamp of a record is too far from the broker's time."""

    code = 32


class UnsupportedForMessageFormatError(PeerError):
    """The log's record format does not support this."""

    code = 43


class KafkaStorageError(OurError):
    """The log directory of the partition failed."""

    code = 56
    retriable = True


class LogDirNotFoundError(PeerError):
    """No such log directory on this broker."""

    code = 57


class FetchSessionIdNotFoundError(StateError):
    """The incremental fetch session was evicted."""

    code = 70
    retriable = True


class InvalidFetchSessionEpochError(StateError):
    """The incremental fetch session has another epoch."""

    code = 71
    retriable = True


class ListenerNotFoundError(StateError):
    """The leader has no listener with the name of the listener that the client is connected to."""

    code = 72
    retriable = True


class FencedLeaderEpochError(StateError):
    """The request's leader epoch is older than the partition's."""

    code = 74
    retriable = True


class UnknownLeaderEpochError(StateError):
    """The leader epoch in the request is newer than this broker's."""

    code = 75
    retriable = True


class UnsupportedCompressionTypeError(PeerError):
    """The codec is not allowed with this request version."""

    code = 76


class OffsetNotAvailableError(StateError):
    """A new leader's high watermark has not caught up yet."""

    code = 78
    retriable = True


class InvalidRecordError(RefusedRecordsError):
    """A record violates a rule of its topic, such as a missing key in a compacted topic."""

    code = 87


class UnknownTopicIdError(StateError):
    """No topic with this id is known on this broker, or not yet."""

    code = 100
    retriable = True


class InconsistentTopicIdError(StateError):
    """The log on disk belongs to another topic with the same name."""

    code = 103
    retriable = True


class FetchSessionTopicIdError(StateError):
    """A fetch session mixes requests with and without topic ids."""

    code = 106
    retriable = True
