"""The error tree: wire code, whether a retry may help, and who is to blame.

Codes, names and retriability are those of the protocol's error table (https://kafka.apache.org/protocol#protocol_error_codes).
Code inside the broker raises these classes; `server/dispatch` turns them into a response once, at the edge. A class
says who is to blame by its branch: `PeerError` (the client sent something wrong or old), `StateError` (nobody: the
cluster is moving, try again or elsewhere), `OurError` (this broker or its surroundings failed).
"""

from __future__ import annotations

from typing import ClassVar, Final


class OdradekError(Exception):
    """Base of every error that this project raises on purpose. The text is one sentence for a person."""


class ConfigError(OdradekError):
    """A setting is wrong: names the key, the value and what is allowed."""


class StorageError(OdradekError):
    """A disk operation failed; the directory that holds `path` may have to go offline."""

    def __init__(
        self, message: str, *, path: str = "", missing: bool = False, full: bool = False, held: bool = False
    ) -> None:
        """`missing`: no such file. `full`: no space is left, reads still work. `held`: someone else has the lock."""
        super().__init__(message)
        self.path: Final = path
        self.missing: Final = missing
        self.full: Final = full
        self.held: Final = held


class WorkerDiedError(OdradekError):
    """A worker process ended while it worked; the work may be given to another one."""


class ProtocolError(OdradekError):
    """An error that travels as a code in a response."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False


class PeerError(ProtocolError):
    """The peer's request is wrong, stale or not allowed."""


class StateError(ProtocolError):
    """The cluster's state does not allow it now; mostly retriable after a metadata refresh."""


class OurError(ProtocolError):
    """This broker or what it stands on failed."""


class MalformedFrameError(PeerError):
    """A frame lies about its lengths or is cut short. The connection that sent it is closed."""

    code = 42


class UnknownServerError(OurError):
    """Anything without a better name."""

    code = -1


class OffsetOutOfRangeError(PeerError):
    """The offset is below the log start or above the log end."""

    code = 1


class CorruptMessageError(PeerError):
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


class RequestTimedOutError(StateError):
    """The request's own time limit passed first."""

    code = 7
    retriable = True


class BrokerNotAvailableError(StateError):
    """No such live broker."""

    code = 8


class ReplicaNotAvailableError(StateError):
    """The replica is not here, or moving."""

    code = 9
    retriable = True


class MessageTooLargeError(PeerError):
    """A batch is larger than `max.message.bytes`."""

    code = 10


class StaleControllerEpochError(StateError):
    """The request comes from a controller that has been replaced."""

    code = 11


class OffsetMetadataTooLargeError(PeerError):
    """The metadata string of an offset commit exceeds `offset.metadata.max.bytes`."""

    code = 12


class NetworkError(StateError):
    """A connection ended before its response came. Never sent; raised by clients."""

    code = 13
    retriable = True


class CoordinatorLoadInProgressError(StateError):
    """The coordinator is still reading its partition."""

    code = 14
    retriable = True


class CoordinatorNotAvailableError(StateError):
    """The coordinator's partition has no leader or is not yet made."""

    code = 15
    retriable = True


class NotCoordinatorError(StateError):
    """Another broker coordinates this group or transactional id."""

    code = 16
    retriable = True


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


class IllegalGenerationError(PeerError):
    """The group has moved on to another generation."""

    code = 22


class InconsistentGroupProtocolError(PeerError):
    """The member shares no protocol with the group, or has another protocol type."""

    code = 23


class InvalidGroupIdError(PeerError):
    """The group id is empty or not allowed."""

    code = 24


class UnknownMemberIdError(PeerError):
    """The member is not part of the group."""

    code = 25


class InvalidSessionTimeoutError(PeerError):
    """Outside `group.min.session.timeout.ms` .. `group.max.session.timeout.ms`."""

    code = 26


class RebalanceInProgressError(StateError):
    """The group is rebalancing: join again."""

    code = 27


class TopicAuthorizationFailedError(PeerError):
    """The principal may not do this to the topic."""

    code = 29


class GroupAuthorizationFailedError(PeerError):
    """The principal may not do this to the group."""

    code = 30


class ClusterAuthorizationFailedError(PeerError):
    """The principal may not do this to the cluster."""

    code = 31


class InvalidTimestampError(PeerError):
    """A record's timestamp is too far from the broker's time."""

    code = 32

    def __init__(self, message: str = "", *, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        """`record_errors`: number within the batch and sentence of each record at fault (KIP-467), perhaps not all."""
        super().__init__(message)
        self.record_errors: Final = record_errors


class UnsupportedVersionError(PeerError):
    """The API or its version is not served here."""

    code = 35


class TopicAlreadyExistsError(PeerError):
    """A topic of this name is there already."""

    code = 36


class InvalidPartitionsError(PeerError):
    """The number of partitions is below 1 or would shrink."""

    code = 37


class InvalidReplicationFactorError(PeerError):
    """The replication factor is below 1 or above the number of live brokers."""

    code = 38


class InvalidReplicaAssignmentError(PeerError):
    """A manual assignment has gaps, repeats or unknown brokers."""

    code = 39


class InvalidConfigError(PeerError):
    """A configuration key or value is not allowed."""

    code = 40


class NotControllerError(StateError):
    """Another broker is the controller."""

    code = 41
    retriable = True


class InvalidRequestError(PeerError):
    """The request contradicts itself or the protocol."""

    code = 42


class UnsupportedForMessageFormatError(PeerError):
    """The log's record format cannot carry this."""

    code = 43


class PolicyViolationError(PeerError):
    """A policy of this cluster forbids it."""

    code = 44


class OutOfOrderSequenceError(PeerError):
    """A producer's sequence number does not follow its last one."""

    code = 45


class DuplicateSequenceError(PeerError):
    """A producer's batch is older than the last five that are remembered."""

    code = 46


class InvalidProducerEpochError(PeerError):
    """A newer instance of this producer exists."""

    code = 47


class InvalidTransactionStateError(PeerError):
    """The transaction is not in a state for this."""

    code = 48


class TransactionalIdAuthorizationFailedError(PeerError):
    """The client may not write under this transactional id, or names none for a transactional batch."""

    code = 53


class KafkaStorageError(OurError):
    """The log directory of the partition failed."""

    code = 56
    retriable = True


class LogDirNotFoundError(PeerError):
    """No such log directory on this broker."""

    code = 57


class UnknownProducerIdError(PeerError):
    """Nothing is remembered of this producer and its sequence does not start at 0."""

    code = 59


class ReassignmentInProgressError(StateError):
    """A reassignment of the partition is already under way."""

    code = 60


class NonEmptyGroupError(PeerError):
    """The group still has members."""

    code = 68


class GroupIdNotFoundError(PeerError):
    """No such group."""

    code = 69


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


class TopicDeletionDisabledError(PeerError):
    """`delete.topic.enable` is false."""

    code = 73


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


class StaleBrokerEpochError(StateError):
    """The broker was restarted meanwhile."""

    code = 77


class OffsetNotAvailableError(StateError):
    """A new leader's high watermark has not caught up yet."""

    code = 78
    retriable = True


class MemberIdRequiredError(PeerError):
    """Join again with the member id in this response (KIP-394)."""

    code = 79


class PreferredLeaderNotAvailableError(StateError):
    """The preferred replica is not alive or not in sync."""

    code = 80
    retriable = True


class GroupMaxSizeReachedError(PeerError):
    """The group has `group.max.size` members."""

    code = 81


class FencedInstanceIdError(PeerError):
    """Another member has taken this group.instance.id (KIP-345)."""

    code = 82


class EligibleLeadersNotAvailableError(StateError):
    """No replica may lead."""

    code = 83
    retriable = True


class ElectionNotNeededError(StateError):
    """The preferred replica leads already."""

    code = 84
    retriable = True


class NoReassignmentInProgressError(PeerError):
    """There is no reassignment of the partition to cancel."""

    code = 85


class InvalidRecordError(PeerError):
    """A record breaks a rule of its topic, such as a missing key in a compacted one."""

    code = 87

    def __init__(self, message: str = "", *, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        """`record_errors`: number within the batch and sentence of each record at fault (KIP-467), perhaps not all."""
        super().__init__(message)
        self.record_errors: Final = record_errors


class UnstableOffsetCommitError(StateError):
    """Transactional offset commits are still open."""

    code = 88
    retriable = True


class ProducerFencedError(PeerError):
    """A newer producer with this transactional id exists."""

    code = 90


class ResourceNotFoundError(PeerError):
    """What the request names is not there."""

    code = 91


class InvalidUpdateVersionError(StateError):
    """The state in ZooKeeper has another version than the request expects."""

    code = 95


class FeatureUpdateFailedError(StateError):
    """The finalized features could not be written."""

    code = 96


class InconsistentTopicIdError(StateError):
    """The log on disk belongs to another topic of the same name."""

    code = 103
    retriable = True


class UnknownTopicIdError(StateError):
    """No topic with this id is known here (yet)."""

    code = 100
    retriable = True


class FetchSessionTopicIdError(StateError):
    """A fetch session mixes requests with and without topic ids."""

    code = 106
    retriable = True


class IneligibleReplicaError(StateError):
    """A replica proposed for the in-sync set may not join it."""

    code = 107


class NewLeaderElectedError(StateError):
    """The election that AlterPartition asked for has happened."""

    code = 108


def _descendants(cls: type[ProtocolError]) -> list[type[ProtocolError]]:
    found = [cls]
    for child in cls.__subclasses__():
        found += _descendants(child)
    return found


NONE: Final = 0

BY_CODE: Final[dict[int, type[ProtocolError]]] = {
    cls.code: cls
    for cls in _descendants(ProtocolError)
    if cls not in (ProtocolError, PeerError, StateError, OurError, MalformedFrameError)
}
"""Error class of each wire code; clients raise `BY_CODE.get(code, UnknownServerError)`."""


def error_for(code: int, message: str) -> ProtocolError:
    """The exception of a wire code, for clients. `code` must not be 0."""
    if code == NONE:
        raise ValueError("code 0 is success")
    cls = BY_CODE.get(code)
    if cls is None:
        return UnknownServerError(f"{message} (error code {code})")
    return cls(message)
