"""What the operator may do to a topic, and what it may refuse, as values. Pure.

`topics` and `topic_plan` decide on actions; `zookeeper_writer` carries them out. Each action holds all that its write
needs, with the versions of the znodes from which it was decided, and the reason why, which people read in logs and
events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from odradek.zk.layout import TopicAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The record of a topic's overrides that a write replaces, or leaves behind."""

    resource: str
    owned: frozenset[str]
    preserved: frozenset[str] = frozenset()
    version: int | None
    """Of the record that is there; None: there is none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Make a topic that is not there. The writer gives it its id."""

    topic: str
    assignment: Mapping[int, Sequence[int]]
    config: Mapping[str, str]
    config_version: int | None
    """Version of a configuration that an earlier topic of this name left behind, which is replaced."""
    ownership: Ownership
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Replace the assignment by one with more partitions."""

    topic: str
    assignment: TopicAssignment
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConfig:
    """Replace the overrides of a topic and tell every broker."""

    topic: str
    config: Mapping[str, str]
    version: int | None
    """None: there is no configuration yet."""
    topic_id: UUID | None
    ownership: Ownership
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOwnership:
    """Note which overrides are the resource's, where the overrides themselves are as they shall be."""

    topic: str
    topic_id: UUID | None
    topic_version: int
    config_version: int | None
    """None: there is no configuration."""
    ownership: Ownership
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOwnership:
    """Remove the record of a topic whose resource is gone: the topic is nobody's from now on."""

    topic: str
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Mark a topic for deletion; the controller does the rest."""

    topic: str
    version: int
    """Of `/brokers/topics/T`, so that a new topic of the same name is not deleted."""
    ownership_version: int | None
    """Of the record that goes with the topic; None: there is none."""
    reason: str


Action = CreateTopic | AddPartitions | SetConfig | RecordOwnership | DeleteTopic | ForgetOwnership


class Obstacle(Enum):
    """Why something that a resource asks for is not done; the reason of its `Ready` condition."""

    NO_CONTROLLER = "NoController"
    NOT_ENOUGH_BROKERS = "NotEnoughBrokers"
    BEING_DELETED = "BeingDeleted"
    REASSIGNMENT_UNDER_WAY = "ReassignmentUnderWay"
    PARTITIONS_CANNOT_SHRINK = "PartitionsCannotShrink"
    TOO_MANY_REPLICAS = "TooManyReplicas"
    NAME_COLLIDES = "NameCollides"
    NO_PARTITIONS = "NoPartitions"
    PROTECTED = "Protected"
    ZNODE_UNREADABLE = "ZnodeUnreadable"
    PAUSED = "Paused"

    @property
    def passes(self) -> bool:
        """Whether waiting may be enough, so that nobody needs to change a manifest."""
        return self in _PASSING


_PASSING = frozenset(
    {
        Obstacle.NO_CONTROLLER,
        Obstacle.NOT_ENOUGH_BROKERS,
        Obstacle.BEING_DELETED,
        Obstacle.REASSIGNMENT_UNDER_WAY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that is not done, and why, in a sentence for the person who asked."""

    topic: str
    obstacle: Obstacle
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """About one topic: what is done and what is not. All empty: it is as it shall be."""

    topic: str
    actions: tuple[Action, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    reassigning: str = ""
    """How far its replicas have come to another factor, in a sentence; the moves are the cluster's business, since
    they are portioned and throttled over all topics."""
    adopted: tuple[str, ...] = ()
    """What others set beside the resource and stays, as the status reports it."""
