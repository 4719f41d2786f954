"""Errors of records, partitions and replicas. All are found in `base/errors`, too."""

from __future__ import annotations

from enum import Enum
from typing import Final

from odradek.base.error_kinds import OurError, PeerError, StateError


class RecordFault(Enum):
    """Faults of records that Kafka counts (the `Invalid*` and `NoKey*` rates of BrokerTopicMetrics)."""

    CRC = "crc"
    """A batch or message does not have the CRC that it claims."""
    FORMAT = "format"
    """Messages of different formats are mixed."""
    OFFSET_OR_SEQUENCE = "offset or sequence"
    """The offsets of a batch do not fit its number of records, or a producer id comes without a sequence."""
    NO_KEY = "no key"
    """A record for a compacted topic has no key."""


class RefusedRecordsError(PeerError):
    """What errors about records have in common; it is never raised itself."""

    def __init__(
        self,
        message: str = "",
        *,
        record_errors: tuple[tuple[int, str], ...] = (),
        fault: RecordFault | None = None,
        fault_count: int = 1,
    ) -> None:
        """`record_errors`: number within the batch and sentence of each record at fault (KIP-467), perhaps not all.

        `fault_count`: how many records or batches have the fault, 0 for none.
        """
        super().__init__(message)
        self.record_errors: Final = record_errors
        self.fault: Final = None if fault is None or not fault_count else (fault, fault_count)


class OffsetOutOfRangeError(PeerError):
    """The offset is below the log start or above the log end."""

    code = 1


class CorruptMessageError(RefusedRecordsError):
    """A batch fails its CRC or lies about its size, counts or offsets."""

    code = 2
    retriable = True


class UnknownTopicOrPartitionError(StateError):
    """This broker does not host the partition, or no such topic is known."""

    code = 3
    retriable = True


class LeaderNotAvailableError(StateError):
    """An election is under way."""

    code = 5
    retriable = True


class NotLeaderOrFollowerError(StateError):
    """Another broker leads the partition."""

    code = 6
    retriable = True


class ReplicaNotAvailableError(StateError):
    """The replica is not here, or moving."""

    code = 9
    retriable = True


class MessageTooLargeError(PeerError):
    """A batch is larger than `max.message.bytes`."""

    code = 10


class InvalidTopicError(PeerError):
    """The topic's name is not allowed, or an internal topic was written to."""

    code = 17


class RecordListTooLargeError(PeerError):
    """A record set is larger than a segment may be."""

    code = 18


class NotEnoughReplicasError(StateError):
    """The in-sync set is smaller than `min.insync.replicas`; nothing was appended."""

    code = 19
    retriable = True


class NotEnoughReplicasAfterAppendError(StateError):
    """The in-sync set shrank below `min.insync.replicas` after the append."""

    code = 20
    retriable = True


class InvalidRequiredAcksError(PeerError):
    """`acks` is none of -1, 0 and 1."""

    code = 21


class TopicAuthorizationFailedError(PeerError):
    """The principal may not do this to the topic."""

    code = 29


class InvalidTimestampError(RefusedRecordsError):
    """A record's timestamp is too far from the broker's time."""

    code = 32


class UnsupportedForMessageFormatError(PeerError):
    """The log's record format cannot carry this."""

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
    """The incremental fetch session is at another epoch."""

    code = 71
    retriable = True


class ListenerNotFoundError(StateError):
    """The leader has no listener of the name that the client came in by."""

    code = 72
    retriable = True


class FencedLeaderEpochError(StateError):
    """The request's leader epoch is older than the partition's."""

    code = 74
    retriable = True


class UnknownLeaderEpochError(StateError):
    """The request's leader epoch is newer than what this broker knows."""

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
    """A record breaks a rule of its topic, such as a missing key in a compacted one."""

    code = 87


class UnknownTopicIdError(StateError):
    """No topic with this id is known here (yet)."""

    code = 100
    retriable = True


class InconsistentTopicIdError(StateError):
    """The log on disk belongs to another topic of the same name."""

    code = 103
    retriable = True


class FetchSessionTopicIdError(StateError):
    """A fetch session mixes requests with and without topic ids."""

    code = 106
    retriable = True
