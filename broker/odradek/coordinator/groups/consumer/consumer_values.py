"""The state of a consumer group (KIP-848), the requests of its members, and the ports through which the rules see
topics.

All values are immutable: `consumer_rules` returns the next state, and `consumer_records` writes the difference between
two states. Times are in milliseconds. Partitions are identified by topic id and number, so that a topic that is deleted
and created again has other partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from odradek.base.types import NO_TIMESTAMP

JOIN_EPOCH: Final = 0
"""Member epoch of a heartbeat that joins the group, or joins it again after the member was fenced."""

LEAVE_EPOCH: Final = -1
"""Member epoch of a heartbeat that leaves the group."""

LEAVE_STATIC_EPOCH: Final = -2
"""Member epoch of the heartbeat of a static member that leaves and will come back: its partitions wait for it."""

PartitionSet = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. No topic has an empty set."""

NO_PARTITIONS: Final[PartitionSet] = MappingProxyType({})


class ReconciliationState(IntEnum):
    """State of a member. The number is the one in its record."""

    STABLE = 0
    """It has the epoch and all partitions of its target assignment."""
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions before it gets the epoch of the target assignment."""
    UNRELEASED_PARTITIONS = 2
    """It has the epoch of the target assignment and waits for partitions that other members have not revoked yet."""


class ClassicProtocol(NamedTuple):
    """A protocol (assignor) that a classic member supports, with its encoded subscription."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMetadata:
    """What only a member that uses the classic protocol has."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member, as the log has it."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """Subscribed topic names, which may not exist."""
    regex: str | None = None
    """Subscribed regular expression in the syntax of RE2; None if there is none."""
    rebalance_timeout_ms: int
    """Time in which the member has to revoke partitions."""
    assignor: str | None = None
    """The assignor that the member prefers; None if it leaves the choice to the coordinator."""
    classic: ClassicMetadata | None = None
    """Given if the member uses the classic protocol."""
    epoch: int = JOIN_EPOCH
    """Epoch of the target assignment that the member has reached. `LEAVE_STATIC_EPOCH` for a static member that has
    left and will come back."""
    previous_epoch: int = JOIN_EPOCH
    """The epoch before, which is still accepted, because the response with the current one may have been lost."""
    state: ReconciliationState = ReconciliationState.STABLE
    assigned: PartitionSet = field(default_factory=lambda: NO_PARTITIONS)
    """Partitions that the member may read."""
    revoking: PartitionSet = field(default_factory=lambda: NO_PARTITIONS)
    """Partitions that the member has to give up. Nobody else gets them before it has."""

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id."""
        return self.instance_id is not None


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What an assignment depends on: a topic's id, its number of partitions and the racks of their replicas."""

    topic_id: UUID
    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()
    """The racks of the replicas of each partition; empty if no broker has a rack."""


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that matched a regular expression when it was last resolved."""

    topics: frozenset[str]
    version: int
    """A number that grows whenever a group looks up topics; only for the record."""
    resolved_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupImage:
    """A group: its members, what they should have and what they have.

    Invariants: `assignment_epoch` <= `epoch`; the epoch of a member is at most `assignment_epoch`; each partition is in
    `assigned` or `revoking` of at most one member.
    """

    epoch: int = 0
    """Grows whenever members, subscriptions or topics change; a new target assignment has to be computed then."""
    assignment_epoch: int = 0
    """The group epoch for which `target` was computed."""
    members: Mapping[str, ConsumerMember] = field(default_factory=lambda: MappingProxyType({}))
    target: Mapping[str, PartitionSet] = field(default_factory=lambda: MappingProxyType({}))
    """The partitions that each member should have, by member id."""
    topics: Mapping[str, TopicShape] = field(default_factory=lambda: MappingProxyType({}))
    """The subscribed topics that exist, by name, as they were when `epoch` was last raised."""
    regexes: Mapping[str, ResolvedRegex] = field(default_factory=lambda: MappingProxyType({}))
    """The regular expressions to which members subscribe."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members


NEW_GROUP: Final = ConsumerGroupImage()
"""The state of a group that has no records in the log."""


class ConsumerGroupPhase(StrEnum):
    """State of a consumer group in ListGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment is older than the group epoch."""
    RECONCILING = "Reconciling"
    """Members have not reached the target assignment yet."""
    STABLE = "Stable"
    DEAD = "Dead"


# Requests and results


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    """ConsumerGroupHeartbeat. None means that a field has not changed since the last heartbeat."""

    group_id: str
    member_id: str
    """Generated by the member. In version 0, a member that joins may leave it empty, and the handler generates it."""
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: frozenset[str] | None = None
    regex: str | None = None
    """An empty string ends the subscription by regular expression."""
    assignor: str | None = None
    owned: PartitionSet | None = None
    """The partitions that the member has now."""
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """What a member learns from a heartbeat."""

    member_id: str
    epoch: int
    assignment: PartitionSet | None = None
    """The partitions that the member may have now; None if nothing has changed for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerMember:
    """A member in ConsumerGroupDescribe."""

    member: ConsumerMember
    target: PartitionSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    """A group in ConsumerGroupDescribe (KIP-848)."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: Sequence[DescribedConsumerMember]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """Limits and defaults of consumer groups."""

    is_enabled: bool = True
    """Whether `group.coordinator.rebalance.protocols` includes `consumer`, and all brokers can skip the records."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """Names of the supported assignors. The first one is the default."""
    regex_refresh_interval_ms: int = 600_000
    """Maximum age of the topics of a regular expression."""
    allows_upgrade: bool = True
    """Whether a classic group becomes a consumer group when a member of the new protocol joins it."""
    allows_downgrade: bool = True
    """Whether a consumer group becomes a classic group when its last member of the new protocol leaves it."""


# Ports


class Topics(Protocol):
    """The topics of the cluster, as this broker knows them."""

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        ...

    def shape(self, name: str) -> TopicShape | None:
        """Return the shape of a topic; None if it does not exist, or has no id because it was created before 2.8."""
        ...


def _everything(_name: str) -> bool:
    return True


class RuleContext(NamedTuple):
    """What the rules need to know besides the state of the group and the request."""

    settings: ConsumerGroupSettings
    topics: Topics
    now_ms: int
    """Wall-clock time."""
    topics_changed: bool
    """Whether the metadata of the cluster has changed since the group last looked at it."""
    may_describe: Callable[[str], bool] = _everything
    """Whether the client of the request may see a topic that matches a regular expression."""
