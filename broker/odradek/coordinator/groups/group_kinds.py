"""What classic groups and consumer groups have in common.

Committed offsets belong to a group of either kind. `group_shard`, `offset_commits` and `transactional_offsets` use
`AnyGroup`, and need not know which kind a group is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from odradek.coordinator.groups.group_offsets import GroupOffsets
from odradek.coordinator.groups.group_requests import CommitRequest, DescribedGroup, ListedGroup, MemberCheck

CLASSIC_GROUP_TYPE: Final = "classic"
CONSUMER_GROUP_TYPE: Final = "consumer"

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""Protocol type of a group whose members are consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryRule:
    """When the retention of committed offsets begins, and which offsets are kept (KIP-211)."""

    since_ms: int | None = None
    """Wall-clock time at which the retention begins. If it is None, the retention of each offset begins with its
    commit."""
    keep_topics: frozenset[str] = frozenset()
    """Topics whose offsets do not expire, because members subscribe to them."""


class AnyGroup(Protocol):
    """A group of any kind."""

    group_type: ClassVar[str]
    """The type in ListGroups."""

    @property
    def group_id(self) -> str:
        """The id of the group."""
        ...

    @property
    def offsets(self) -> GroupOffsets:
        """The committed offsets."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether the group was removed or moved to another broker."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    @property
    def member_count(self) -> int:
        """Number of members."""
        ...

    @property
    def is_unused(self) -> bool:
        """Whether the group has no state that must be kept: no records, members or offsets."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """What the members are, such as `consumer`; None if the group only stores offsets."""
        ...

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics to which the members subscribe; None if unknown or if they are not consumers."""
        ...

    def check_commit(self, request: CommitRequest) -> None:
        """Raise an error unless the client may commit offsets."""
        ...

    def check_transactional_commit(self, check: MemberCheck) -> None:
        """Raise an error unless the client may commit offsets as part of a transaction."""
        ...

    def check_fetch(self, check: MemberCheck) -> None:
        """Raise an error if a member that names itself may not fetch offsets."""
        ...

    def expiry(self) -> ExpiryRule | None:
        """Return how offsets expire; None if they do not expire now."""
        ...

    def listing(self) -> ListedGroup:
        """Return the group for ListGroups."""
        ...

    def describe(self) -> DescribedGroup:
        """Return the group for DescribeGroups."""
        ...
