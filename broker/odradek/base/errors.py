"""The error tree: wire code, whether a retry may help, and who is to blame.

Codes, names and retriability are those of the protocol's error table (https://kafka.apache.org/protocol#protocol_error_codes).
Code inside the broker raises these classes; `server/dispatch` turns them into a response once, at the edge. A class
says who is to blame by its branch, which `error_kinds` has. The classes live in `request_errors`, `data_errors`,
`group_errors` and `cluster_errors`; everybody imports them from here, where they are known by their codes.
"""

from __future__ import annotations

from typing import Final

from odradek.base.cluster_errors import (
    BrokerIdNotRegisteredError,
    BrokerNotAvailableError,
    ClusterAuthorizationFailedError,
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    FeatureUpdateFailedError,
    IneligibleReplicaError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidUpdateVersionError,
    NewLeaderElectedError,
    NoReassignmentInProgressError,
    NotControllerError,
    PolicyViolationError,
    PreferredLeaderNotAvailableError,
    ReassignmentInProgressError,
    ResourceNotFoundError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
)
from odradek.base.data_errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InconsistentTopicIdError,
    InvalidFetchSessionEpochError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaStorageError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    LogDirNotFoundError,
    MessageTooLargeError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    ReplicaNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from odradek.base.error_kinds import (
    ConfigError,
    OdradekError,
    OurError,
    PeerError,
    ProtocolError,
    StateError,
    StorageError,
    WorkerDiedError,
)
from odradek.base.group_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DuplicateSequenceError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    InvalidSessionTimeoutError,
    InvalidTransactionStateError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RebalanceInProgressError,
    TransactionalIdAuthorizationFailedError,
    TransactionCoordinatorFencedError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnstableOffsetCommitError,
)
from odradek.base.request_errors import (
    InvalidRequestError,
    MalformedFrameError,
    NetworkError,
    RequestTimedOutError,
    UnknownServerError,
    UnsupportedVersionError,
)

__all__ = [
    "BY_CODE",
    "NONE",
    "BrokerIdNotRegisteredError",
    "BrokerNotAvailableError",
    "ClusterAuthorizationFailedError",
    "ConfigError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptMessageError",
    "DuplicateSequenceError",
    "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError",
    "FeatureUpdateFailedError",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "FetchSessionIdNotFoundError",
    "FetchSessionTopicIdError",
    "GroupAuthorizationFailedError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "IllegalGenerationError",
    "InconsistentGroupProtocolError",
    "InconsistentTopicIdError",
    "IneligibleReplicaError",
    "InvalidConfigError",
    "InvalidFetchSessionEpochError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "InvalidUpdateVersionError",
    "KafkaStorageError",
    "LeaderNotAvailableError",
    "ListenerNotFoundError",
    "LogDirNotFoundError",
    "MalformedFrameError",
    "MemberIdRequiredError",
    "MessageTooLargeError",
    "NetworkError",
    "NewLeaderElectedError",
    "NoReassignmentInProgressError",
    "NonEmptyGroupError",
    "NotControllerError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "OdradekError",
    "OffsetMetadataTooLargeError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "OurError",
    "OutOfOrderSequenceError",
    "PeerError",
    "PolicyViolationError",
    "PreferredLeaderNotAvailableError",
    "ProducerFencedError",
    "ProtocolError",
    "ReassignmentInProgressError",
    "RebalanceInProgressError",
    "RecordListTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "ResourceNotFoundError",
    "StaleBrokerEpochError",
    "StaleControllerEpochError",
    "StateError",
    "StorageError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TopicDeletionDisabledError",
    "TransactionCoordinatorFencedError",
    "TransactionalIdAuthorizationFailedError",
    "UnknownLeaderEpochError",
    "UnknownMemberIdError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnstableOffsetCommitError",
    "UnsupportedCompressionTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedVersionError",
    "WorkerDiedError",
    "error_for",
]


def _descendants(cls: type[ProtocolError]) -> list[type[ProtocolError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _descendants(child))]


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
    return UnknownServerError(f"{message} (error code {code})") if cls is None else cls(message)
