"""A member of a classic group: what it told when it joined, and what of it waits for an answer.

`classic_group` keeps the members and is the only one to change the waiting answers, because it counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field

from odradek.base.errors import ProtocolError
from odradek.coordinator.log_records import MemberValue
from odradek.coordinator.requests import JoinRequest, JoinResult, MemberDescription, Protocols, SyncResult

AnswerJoin = Callable[[JoinResult | ProtocolError], None]
AnswerSync = Callable[[SyncResult | ProtocolError], None]


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One member. Equal only to itself; its id changes when a static member comes back."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    answer_join: AnswerJoin | None = field(default=None, repr=False)
    """Set while the member's JoinGroup is parked."""
    answer_sync: AnswerSync | None = field(default=None, repr=False)
    """Set while the member's SyncGroup is parked."""
    is_new: bool = False
    """Has not been part of a generation yet, so it cannot send heartbeats and may expire while it waits."""
    has_heartbeat: bool = False
    """A sign of life came since the last deadline was set."""

    @classmethod
    def joining(cls, request: JoinRequest, member_id: str) -> Member:
        """A member as its first JoinGroup describes it."""
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
    def loaded(cls, value: MemberValue, protocol: str | None) -> Member:
        """A member as the log has it: it keeps the one protocol that its generation uses."""
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
        """Whether the member has an instance id (KIP-345) and so outlives its restarts."""
        return self.instance_id is not None

    @property
    def is_alive(self) -> bool:
        """Whether the member's deadline may pass: it gave a sign of life, or it is we who owe it an answer."""
        if self.is_new:
            return self.has_heartbeat
        return self.has_heartbeat or self.answer_join is not None or self.answer_sync is not None

    def metadata(self, protocol: str | None) -> bytes:
        """What the member told for a protocol; nothing when it does not know it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Set[str]) -> str:
        """The member's favourite among protocols that it supports at least one of."""
        return next(name for name, _ in self.protocols if name in candidates)

    def value(self, protocol: str | None, assignment: bytes) -> MemberValue:
        """The member as the log keeps it."""
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

    def describe(self, protocol: str | None) -> MemberDescription:
        """The member as DescribeGroups shows it; `protocol` is None unless the group is stable."""
        return MemberDescription(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=b"" if protocol is None else self.metadata(protocol),
            assignment=b"" if protocol is None else self.assignment,
        )
