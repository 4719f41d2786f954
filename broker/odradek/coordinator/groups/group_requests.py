"""Settings, requests and results of the group coordinator, independent of protocol versions.

`server/groups` creates these requests from decoded ones, and messages from the results. Times are in
milliseconds. Error codes are those of the protocol, with 0 for success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.base.config import BrokerConfig
from odradek.base.errors import NONE
from odradek.base.fields.group_fields import CONSUMER_PROTOCOL
from odradek.base.types import NO_EPOCH, NO_OFFSET, TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.groups.consumer.consumer_values import ConsumerGroupSettings
from odradek.coordinator.groups.group_records import (
    CONSUMER_GROUPS_SINCE,
    GROUP_VALUE_VERSION,
    OFFSET_VALUE_VERSION,
    STATIC_MEMBERS_SINCE,
    group_value_version,
    offset_value_version,
)
from odradek.protocol.release_versions import release_of

UNKNOWN_MEMBER_ID: Final = ""
"""Member id in the first JoinGroup of a member."""

NO_GENERATION: Final = -1

MINUTE_MS: Final = 60_000

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols (assignors) with its metadata for each, in order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Limits and timeouts of groups and committed offsets, in milliseconds, characters and counts."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int
    offset_metadata_max: int
    offsets_retention_ms: int
    retention_check_interval_ms: int
    offset_value_version: int = OFFSET_VALUE_VERSION
    """Version of the records of committed offsets without their own expiry time."""
    group_value_version: int = GROUP_VALUE_VERSION
    allows_static_members: bool = True
    """Whether members may have instance ids (KIP-345), because all brokers can read them."""
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    """Limits and defaults of consumer groups (KIP-848)."""

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        """Return the settings of the group coordinator in the broker's settings.

        During an upgrade, `inter.broker.protocol.version` limits records to the versions that older brokers can read.
        """
        release = release_of(config.inter_broker_protocol_version)
        return cls(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            offset_metadata_max=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            offset_value_version=offset_value_version(release),
            group_value_version=group_value_version(release),
            allows_static_members=release >= STATIC_MEMBERS_SINCE,
            consumer=ConsumerGroupSettings(
                is_enabled=CONSUMER_PROTOCOL in config.group_coordinator_rebalance_protocols
                and release >= CONSUMER_GROUPS_SINCE,
                session_timeout_ms=config.group_consumer_session_timeout_ms,
                heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
                max_size=config.group_consumer_max_size,
                assignors=config.consumer_assignors,
                regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
                allows_upgrade=config.allows_group_upgrades,
                allows_downgrade=config.allows_group_downgrades,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """The request of a member to join the next generation of the group."""

    group_id: str
    member_id: str = UNKNOWN_MEMBER_ID
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool = False
    """Whether a dynamic member must first get an id (KIP-394, from version 4)."""
    supports_skipping_assignment: bool = False
    """Whether the member supports `skip_assignment` (KIP-814, from version 9)."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member in the list for the leader of the group."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The generation of a member, or an error with the member id."""

    error_code: int = NONE
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class MemberCheck(NamedTuple):
    """The member and the generation, in a consumer group the member epoch, that a request names.

    A tuple, because each heartbeat creates one, and a frozen data class takes five times as long.
    """

    group_id: str
    member_id: str
    instance_id: str | None = None
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """The request of a member for its assignment. The leader's request has the assignments of all members."""

    member: MemberCheck
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """A member's assignment."""

    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """A member that leaves, or a static member that an administrator removes by its instance id."""

    member_id: str = UNKNOWN_MEMBER_ID
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveResult:
    """The result for one leaving member."""

    member_id: str
    instance_id: str | None
    error_code: int = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    """An offset of one partition. If times are None, the broker's retention and the broker's time apply."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH
    retention_ms: int | None = None
    commit_timestamp_ms: int | None = None
    """Time at which the retention of the offset begins (OffsetCommit 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """Offsets of a member, or of a client that only stores offsets and has no member id and generation -1."""

    member: MemberCheck
    offsets: Mapping[TopicPartition, OffsetToCommit]
    supports_member_epochs: bool = True
    """Whether the client knows the errors of consumer groups (KIP-848, from version 9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalCommitRequest:
    """Offsets that become visible when the transaction of a producer commits.

    Consumers before KIP-447 (version 3) have no member id and generation -1.
    """

    member: MemberCheck
    writer: TransactionalWriter
    offsets: Mapping[TopicPartition, OffsetToCommit]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """A committed offset; -1 if nothing is committed."""

    offset: int = NO_OFFSET
    metadata: str = ""
    leader_epoch: int = NO_EPOCH
    error_code: int = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """The groups of this broker. The error code is COORDINATOR_LOAD_IN_PROGRESS while partitions are being loaded."""

    error_code: int
    groups: Sequence[ListedGroup]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member. Metadata and assignment are empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group and its members. An unknown group has the state Dead and no members."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()
