"""Actions on topics, and the reasons to refuse one, as values. Pure.

`topic_decisions` and `topic_plan` decide on actions; `zookeeper_writer` executes them. Each action contains everything
that its write needs, including the znode versions it was decided from, and the reason, which is shown in logs and
Events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from odradek.zk.layout import TopicAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The record of a topic's overrides that a write creates or replaces."""

    resource: str
    owned: frozenset[str]
    preserved: frozenset[str] = frozenset()
    version: int | None
    """Version of the existing record; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Create a topic. The writer generates its id."""

    topic: str
    assignment: Mapping[int, Sequence[int]]
    config: Mapping[str, str]
    config_version: int | None
    """Version of a configuration left by an earlier topic of this name, which is replaced."""
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
    """Replace the overrides of a topic and notify all brokers."""

    topic: str
    config: Mapping[str, str]
    version: int | None
    """None if there is no configuration yet."""
    topic_id: UUID | None
    ownership: Ownership
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOwnership:
    """Record which overrides belong to the resource, if the overrides themselves are as desired."""

    topic: str
    topic_id: UUID | None
    topic_version: int
    config_version: int | None
    """None if there is no configuration."""
    ownership: Ownership
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOwnership:
    """Remove the record of a topic whose resource was deleted: no resource owns the topic any more."""

    topic: str
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Mark a topic for deletion; the controller deletes it."""

    topic: str
    version: int
    """Version of `/brokers/topics/T`, so that a new topic of the same name is not deleted."""
    ownership_version: int | None
    """Version of the record that is removed with the topic; None if there is none."""
    reason: str


Action = CreateTopic | AddPartitions | SetConfig | RecordOwnership | DeleteTopic | ForgetOwnership


class Obstacle(Enum):
    """Why a request of a resource is not carried out; the reason of its `Ready` condition."""

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
        """Whether waiting may suffice, without a change of the manifest."""
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
    """A request that is not carried out, and why, in a sentence for the user."""

    topic: str
    obstacle: Obstacle
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about one topic. It is as desired if all fields are empty."""

    topic: str
    actions: tuple[Action, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    reassigning: str = ""
    """Progress of a change of the replication factor, in a sentence. The cluster moves replicas, in batches and
    throttled over all topics."""
    adopted: tuple[str, ...] = ()
    """What others have set and stays, as shown in the status."""
