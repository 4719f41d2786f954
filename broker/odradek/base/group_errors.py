"""Errors of groups, producers and transactions. `base/errors` exports all of them."""

from __future__ import annotations

from odradek.base.error_kinds import PeerError, StateError


class OffsetMetadataTooLargeError(PeerError):
    """The metadata string of an offset commit exceeds `offset.metadata.max.bytes`."""

    code = 12


class CoordinatorLoadInProgressError(StateError):
    """The coordinator is still loading its partition."""

    code = 14
    retriable = True


class CoordinatorNotAvailableError(StateError):
    """The coordinator's partition has no leader or does not exist yet."""

    code = 15
    retriable = True


class NotCoordinatorError(StateError):
    """Another broker coordinates this group or transactional id."""

    code = 16
    retriable = True


class IllegalGenerationError(PeerError):
    """The group has another generation."""

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


class GroupAuthorizationFailedError(PeerError):
    """The principal may not do this to the group."""

    code = 30


class OutOfOrderSequenceError(PeerError):
    """A producer's sequence number does not follow its last one."""

    code = 45


class DuplicateSequenceError(PeerError):
    """A producer's batch is older than its last five, which the broker remembers."""

    code = 46


class InvalidProducerEpochError(PeerError):
    """A newer instance of this producer exists."""

    code = 47


class InvalidTransactionStateError(PeerError):
    """The state of the transaction does not allow this."""

    code = 48


class InvalidProducerIdMappingError(PeerError):
    """The producer id is not that of the transactional id, or the transactional id has expired."""

    code = 49


class InvalidTransactionTimeoutError(PeerError):
    """The timeout of the transaction is not positive or exceeds `transaction.max.timeout.ms`."""

    code = 50


class ConcurrentTransactionsError(StateError):
    """The coordinator is still completing the last transaction of this transactional id."""

    code = 51
    retriable = True


class TransactionCoordinatorFencedError(StateError):
    """A later coordinator of the transactional id has written markers; this one's markers are rejected."""

    code = 52


class TransactionalIdAuthorizationFailedError(PeerError):
    """The client may not use this transactional id, or sent a transactional batch without one."""

    code = 53


class OperationNotAttemptedError(PeerError):
    """The request was refused because of another of its partitions."""

    code = 55


class UnknownProducerIdError(PeerError):
    """The broker has no state of this producer, and its sequence does not start at 0."""

    code = 59


class NonEmptyGroupError(PeerError):
    """The group still has members."""

    code = 68


class GroupIdNotFoundError(PeerError):
    """The group does not exist."""

    code = 69


class MemberIdRequiredError(PeerError):
    """Join again with the member id in this response (KIP-394)."""

    code = 79


class GroupMaxSizeReachedError(PeerError):
    """The group has `group.max.size` members."""

    code = 81


class GroupSubscribedToTopicError(PeerError):
    """Members of the group consume the topic, so its offsets cannot be deleted (KIP-496)."""

    code = 86


class FencedInstanceIdError(PeerError):
    """Another member has taken this group.instance.id (KIP-345)."""

    code = 82


class UnstableOffsetCommitError(StateError):
    """Transactional offset commits are still open."""

    code = 88
    retriable = True


class ProducerFencedError(PeerError):
    """A newer producer with this transactional id exists."""

    code = 90


class TransactionalIdNotFoundError(PeerError):
    """The coordinator does not know the transactional id (KIP-664)."""

    code = 105


class TransactionAbortableError(PeerError):
    """The transaction cannot be committed. The producer can abort it and continue (KIP-890)."""

    code = 120


class FencedMemberEpochError(PeerError):
    """The member epoch is not the current one: the member gives up its partitions and joins again (KIP-848)."""

    code = 110


class UnreleasedInstanceIdError(PeerError):
    """Another member with this group.instance.id has not left the group (KIP-848)."""

    code = 111


class UnsupportedAssignorError(PeerError):
    """The coordinator does not have the assignor that the member prefers (KIP-848)."""

    code = 112


class StaleMemberEpochError(PeerError):
    """The member epoch is an earlier one: the member learns the current one by its next heartbeat (KIP-848)."""

    code = 113


class InvalidRegularExpressionError(PeerError):
    """The regular expression of a subscription is not valid in the syntax of RE2 (KIP-848)."""

    code = 128
