"""The types of actions on topics, and of refusals. Pure.

`topic_decisions` and `topic_plan` decide on actions; `zookeeper_writer` executes them. Each action contains all data of
its write, the versions of the znodes on which the decision depends, and a reason for logs and Events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from odradek.zk.layout import TopicAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The record of which overrides of a topic belong to its resource. An action creates or replaces it."""

    resource: str
    owned: frozenset[str]
    preserved: frozenset[str] = frozenset()
    version: int | None
    """Version of the znode with the existing record; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Create a topic. The writer generates its id."""

    topic: str
    assignment: Mapping[int, Sequence[int]]
    config: Mapping[str, str]
    config_version: int | None
    """Version of the configuration that an earlier topic of this name left behind, and that is replaced. None if there
    is none."""
    ownership: Ownership
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Replace the assignment of a topic with one that has more partitions."""

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
    """Only record which overrides belong to the resource, because the overrides themselves do not change."""

    topic: str
    topic_id: UUID | None
    topic_version: int
    config_version: int | None
    """None if there is no configuration."""
    ownership: Ownership
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOwnership:
    """Remove the record of a topic whose resource was deleted. The topic stays without an owner."""

    topic: str
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Mark a topic for deletion; the controller deletes it."""

    topic: str
    version: int
    """Version of `/brokers/topics/T`. It protects a new topic of the same name from deletion."""
    ownership_version: int | None
    """Version of the record that is removed with the topic; None if there is none."""
    reason: str


Action = CreateTopic | AddPartitions | SetConfig | RecordOwnership | DeleteTopic | ForgetOwnership


class Obstacle(Enum):
    """Why a change that a resource requests is refused. The value is the reason of its `Ready` condition."""

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
        """Whether the obstacle may disappear without a change of the resource."""
        return self in _TEMPORARY


_TEMPORARY = frozenset(
    {
        Obstacle.NO_CONTROLLER,
        Obstacle.NOT_ENOUGH_BROKERS,
        Obstacle.BEING_DELETED,
        Obstacle.REASSIGNMENT_UNDER_WAY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A change that is refused, with a message for the user in `message`."""

    topic: str
    obstacle: Obstacle
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about one topic. If there are no actions and no refusals, the topic matches its resource."""

    topic: str
    actions: tuple[Action, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    reassigning: str = ""
    """Message about the progress of a reassignment; empty if no replicas move. `lifecycle` moves replicas of all topics
    in throttled batches."""
    adopted: tuple[str, ...] = ()
    """Settings of others that are kept, for the status."""
