"""A member of a classic group: its protocols and timeouts, and its waiting requests.

Only `classic_group` changes the waiting requests, because it counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field

from odradek.base.errors import ProtocolError
from odradek.coordinator.groups.group_records import MemberValue
from odradek.coordinator.groups.group_requests import DescribedMember, JoinRequest, JoinResult, Protocols, SyncResult
from odradek.timer.purgatory import DelayedOperation

AnswerJoin = Callable[[JoinResult | ProtocolError], None]
AnswerSync = Callable[[SyncResult | ProtocolError], None]


@dataclass(slots=True, kw_only=True, eq=False)
class ClassicMember:
    """A member. Compared by identity, because the id of a static member changes when it rejoins."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    answer_join: AnswerJoin | None = field(default=None, repr=False)
    """Answers the member's JoinGroup; None if none waits."""
    answer_sync: AnswerSync | None = field(default=None, repr=False)
    """Answers the member's SyncGroup; None if none waits."""
    is_new: bool = False
    """Whether the member has not been in a generation yet. It cannot send heartbeats and may expire while it waits."""
    wait: DelayedOperation | None = field(default=None, repr=False)
    """The wait for the next heartbeat. Each heartbeat restarts it; it is completed when the member is removed."""

    @classmethod
    def joining(cls, request: JoinRequest, member_id: str) -> ClassicMember:
        """Create a member from its first JoinGroup."""
        return cls(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            is_new=True,
        )

    @classmethod
    def loaded(cls, value: MemberValue, protocol: str | None) -> ClassicMember:
        """Create a member from the log. It has only the protocol that its generation uses."""
        return cls(
            member_id=value.member_id,
            instance_id=value.instance_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            session_timeout_ms=value.session_timeout_ms,
            protocols=((protocol or "", value.subscription),),
            assignment=value.assignment,
        )

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id (KIP-345), so that it survives restarts."""
        return self.instance_id is not None

    @property
    def is_alive(self) -> bool:
        """Whether the member is not removed at its deadline, because it waits for a response."""
        return not self.is_new and (self.answer_join is not None or self.answer_sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Set[str]) -> str:
        """Return the protocol that the member prefers among these. It must support at least one."""
        return next(name for name, _ in self.protocols if name in candidates)

    def value(self, protocol: str | None, assignment: bytes) -> MemberValue:
        """Return the member for the log."""
        return MemberValue(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    def describe(self, protocol: str | None) -> DescribedMember:
        """Return the member for DescribeGroups. `protocol` is None unless the group is stable."""
        return DescribedMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=b"" if protocol is None else self.metadata(protocol),
            assignment=b"" if protocol is None else self.assignment,
        )
