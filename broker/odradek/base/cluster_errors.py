"""Errors of topics, settings, elections and brokers. `base/errors` exports all of them."""

from __future__ import annotations

from odradek.base.error_kinds import PeerError, StateError


class BrokerNotAvailableError(StateError):
    """No such live broker."""

    code = 8


class StaleControllerEpochError(StateError):
    """The request comes from a controller that has been replaced."""

    code = 11


class ClusterAuthorizationFailedError(PeerError):
    """The principal may not do this to the cluster."""

    code = 31


class SecurityDisabledError(PeerError):
    """The broker has no authorizer."""

    code = 54


class TopicAlreadyExistsError(PeerError):
    """A topic with this name already exists."""

    code = 36


class InvalidPartitionsError(PeerError):
    """The number of partitions is below 1 or would shrink."""

    code = 37


class InvalidReplicationFactorError(PeerError):
    """The replication factor is below 1 or above the number of live brokers."""

    code = 38


class InvalidReplicaAssignmentError(PeerError):
    """A manual assignment has gaps, duplicates or unknown brokers."""

    code = 39


class InvalidConfigError(PeerError):
    """A configuration key or value is not allowed."""

    code = 40


class NotControllerError(StateError):
    """Another broker is the controller."""

    code = 41
    retriable = True


class PolicyViolationError(PeerError):
    """A policy of this cluster forbids it."""

    code = 44


class ReassignmentInProgressError(StateError):
    """A reassignment of the partition is already in progress."""

    code = 60


class TopicDeletionDisabledError(PeerError):
    """`delete.topic.enable` is false."""

    code = 73


class StaleBrokerEpochError(StateError):
    """The broker was restarted meanwhile."""

    code = 77


class PreferredLeaderNotAvailableError(StateError):
    """The preferred replica is not alive or not in sync."""

    code = 80
    retriable = True


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


class ResourceNotFoundError(PeerError):
    """The resource in the request does not exist."""

    code = 91


class DuplicateResourceError(PeerError):
    """The request names a resource more than once."""

    code = 92


class UnacceptableCredentialError(PeerError):
    """The credential cannot be set: the name of its user, its iterations or its salt are not allowed (KIP-554)."""

    code = 93


class InvalidUpdateVersionError(StateError):
    """The state in ZooKeeper has another version than the request expects."""

    code = 95


class FeatureUpdateFailedError(StateError):
    """The finalized features could not be written."""

    code = 96


class BrokerIdNotRegisteredError(StateError):
    """The sender is not a registered broker of this cluster."""

    code = 102


class IneligibleReplicaError(StateError):
    """A replica proposed for the ISR may not join it."""

    code = 107


class NewLeaderElectedError(StateError):
    """The election requested by AlterPartition has already taken place."""

    code = 108
