"""A classic consumer group: its members and the state machine of its generations.

A group starts in the state Empty. The first JoinGroup changes the state to PreparingRebalance: all members must join
within the longest rebalance timeout. Then a new generation starts (CompletingRebalance): the members get its number,
and the leader computes the assignment and sends it with SyncGroup. When the assignment is in the log, the group is
Stable until a member joins, leaves or fails. A group that loses all members is Empty again and keeps its offsets. A
group that was removed, or moved to another broker, is Dead.

`TRANSITIONS` has all transitions, and only `ClassicGroup.move_to` makes them. This module has no timers and appends no
records; `rebalancing` does.

Invariants: the leader is a member; `awaiting_join` is the number of members with a waiting JoinGroup; a static instance
id belongs to exactly one member; the generation only increases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from enum import Enum
from typing import ClassVar, Final

from odradek.base.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    MalformedFrameError,
    OdradekError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from odradek.base.types import NO_TIMESTAMP
from odradek.coordinator.groups.classic.classic_member import AnswerJoin, AnswerSync, ClassicMember
from odradek.coordinator.groups.group_kinds import CLASSIC_GROUP_TYPE, CONSUMER_PROTOCOL_TYPE, ExpiryRule
from odradek.coordinator.groups.group_offsets import GroupOffsets
from odradek.coordinator.groups.group_records import GroupValue
from odradek.coordinator.groups.group_requests import (
    UNKNOWN_MEMBER_ID,
    CommitRequest,
    DescribedGroup,
    JoinedMember,
    JoinResult,
    ListedGroup,
    MemberCheck,
    Protocols,
    SyncResult,
)
from odradek.protocol.wire import Reader


class GroupState(Enum):
    """State of a group. The value is its name in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[Mapping[GroupState, Set[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD},
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
"""The allowed transitions from each state."""


class IllegalGroupTransitionError(OdradekError):
    """A transition that the current state does not allow: a bug."""


class ClassicGroup:
    """One group."""

    group_type: ClassVar = CLASSIC_GROUP_TYPE

    def __init__(self, group_id: str, now_ms: int, offsets: GroupOffsets | None = None) -> None:
        """Create an Empty group with generation 0. `now_ms`: wall-clock time. `offsets`: those that it has already."""
        self.group_id: Final = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = now_ms
        """Time of the last change of state; None if the group was loaded from a record that does not have it."""
        self.protocol_type: str | None = None
        """Protocol type; None if no member has ever joined, so that the group only stores offsets."""
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member id of each instance id."""
        self.pending_members: set[str] = set()
        """Member ids that were assigned (KIP-394) and have not joined yet."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.awaiting_join = 0
        self.new_member_added = False
        """Whether a member joined during the initial rebalance delay, so that the delay may be extended."""
        self.subscribed_topics: frozenset[str] | None = None
        """Subscribed topics of all consumers; None if unknown or if the members are not consumers."""
        self.offsets: Final = GroupOffsets() if offsets is None else offsets
        self._supported: Counter[str] = Counter()

    @classmethod
    def loaded(cls, group_id: str, value: GroupValue, now_ms: int, offsets: GroupOffsets | None = None) -> ClassicGroup:
        """Create the group that a record describes. It is Stable if it has members, otherwise Empty."""
        group = cls(group_id, now_ms, offsets)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        for member_value in value.members:
            group.add(ClassicMember.loaded(member_value, value.protocol), None)
        if value.leader in group.members:
            group.leader_id = value.leader
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.state_timestamp_ms = None if value.state_timestamp_ms == NO_TIMESTAMP else value.state_timestamp_ms
        group.subscribed_topics = group._subscribed_topics()
        return group

    def __repr__(self) -> str:
        """Return id, state, generation and members, for logs and tests."""
        return f"<group {self.group_id!r} {self.state.value} generation {self.generation} of {list(self.members)}>"

    # State

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state. Raises `IllegalGroupTransitionError` if the transition is not allowed."""
        if state not in TRANSITIONS[self.state]:
            raise IllegalGroupTransitionError(
                f"the state of group {self.group_id!r} cannot change from {self.state.value} to {state.value}"
            )
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def is_dead(self) -> bool:
        """Whether the group was removed or moved to another broker."""
        return self.state is GroupState.DEAD

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and does not wait for any."""
        return self.state is GroupState.EMPTY

    @property
    def member_count(self) -> int:
        """Number of members."""
        return len(self.members)

    @property
    def is_unused(self) -> bool:
        """Whether the group has no state that must be kept: no records, members or offsets."""
        return self.is_empty and not (self.generation or self.pending_members) and self.offsets.is_idle

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance can start now."""
        return GroupState.PREPARING_REBALANCE in TRANSITIONS[self.state]

    def begin_generation(self, now_ms: int) -> None:
        """Start the next generation with the current members. The state becomes CompletingRebalance, or Empty without
        members."""
        self.move_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._subscribed_topics()
        self.pending_sync.clear()

    def forget_generation(self) -> None:
        """Become a group that only stores offsets, because its generations were removed from the log."""
        self.generation = 0
        self.protocol_type = self.protocol_name = None
        self.subscribed_topics = None

    # Members

    def add(self, member: ClassicMember, answer: AnswerJoin | None) -> None:
        """Add a member. The first one sets the protocol type and is the leader."""
        if member.instance_id is not None:
            if member.instance_id in self.static_members:
                raise ValueError(f"instance id {member.instance_id!r} is already a member of group {self.group_id!r}")
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols((), member.protocols)
        self._keep_join(member, answer)
        self.pending_members.discard(member.member_id)

    def update(
        self, member: ClassicMember, protocols: Protocols, timeouts_ms: tuple[int, int], answer: AnswerJoin | None
    ) -> None:
        """Update a member that joins again. `timeouts_ms`: rebalance and session timeout."""
        self._count_protocols(member.protocols, protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms, member.session_timeout_ms = timeouts_ms
        self._keep_join(member, answer)

    def remove(self, member_id: str) -> None:
        """Remove a member or pending member. If it was the leader, the oldest other member becomes the leader.

        Unknown ids are ignored. Waiting requests with the id get UNKNOWN_MEMBER_ID, so that a live member joins again.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member.protocols, ())
            self.answer_join(member, JoinResult(member_id=UNKNOWN_MEMBER_ID, error_code=UnknownMemberIdError.code))
            self.answer_sync(member, UnknownMemberIdError("The member was removed from the group."))
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def replace_static(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """Give a static member a new id. Waiting requests with the old id are fenced (KIP-345)."""
        old_member_id = self.static_members[instance_id]
        member = self.members.pop(old_member_id)
        self.answer_join(member, JoinResult(member_id=old_member_id, error_code=FencedInstanceIdError.code))
        self.answer_sync(member, FencedInstanceIdError(f"{instance_id!r} now has the member id {new_member_id!r}"))
        member.member_id = new_member_id
        self.members[new_member_id] = member
        if old_member_id in self.pending_sync:
            self.pending_sync.discard(old_member_id)
            self.pending_sync.add(new_member_id)
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        self.static_members[instance_id] = new_member_id
        return member

    def is_leader(self, member_id: str) -> bool:
        """Whether the member is the leader of the group."""
        return self.leader_id == member_id

    def elect_joined_leader(self) -> bool:
        """Choose a leader among the members that joined. Returns False if there are members but none of them joined."""
        if self.leader_id is None:
            return not self.members
        if self.members[self.leader_id].answer_join is not None:
            return True
        for member in self.members.values():
            if member.answer_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    @property
    def has_all_joined(self) -> bool:
        """Whether every member has joined and no pending member is expected."""
        return len(self.members) == self.awaiting_join and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """Milliseconds in which the members must join: the longest rebalance timeout."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def unjoined_dynamic_members(self) -> list[ClassicMember]:
        """Return the dynamic members that did not join. Static members stay until their session times out."""
        return [member for member in self.members.values() if member.answer_join is None and not member.is_static]

    # Checks of requests

    def check_alive(self) -> None:
        """Raise `CoordinatorNotAvailableError` if the group is being removed."""
        if self.is_dead:
            raise CoordinatorNotAvailableError(
                f"Group {self.group_id!r} is being removed or moved: look up its coordinator again."
            )

    def member_of(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member that sent a request. Raises `UnknownMemberIdError`, or `FencedInstanceIdError` if the
        member was replaced."""
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is not None and current_id != member_id:
                raise FencedInstanceIdError(
                    f"Another member of group {self.group_id!r} now has the instance id {instance_id!r}."
                )
            if current_id is None:
                raise UnknownMemberIdError(
                    f"Group {self.group_id!r} has no member with the instance id {instance_id!r}."
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"Group {self.group_id!r} has no member with the id {member_id!r}.")
        return member

    def check_generation(self, check: MemberCheck) -> ClassicMember:
        """Return the member that sent a request. Raises the errors of `member_of`, and `IllegalGenerationError` if the
        generation is not the current one."""
        member = self.member_of(check.member_id, check.instance_id)
        if check.generation != self.generation:
            raise IllegalGenerationError(
                f"The generation of group {self.group_id!r} is {self.generation}, not {check.generation}."
            )
        return member

    def check_commit(self, request: CommitRequest) -> None:
        """Raise an error unless the client may commit offsets."""
        self.check_alive()
        check = request.member
        is_anonymous = check.generation < 0
        if self.is_empty and is_anonymous:
            return  # The client only stores offsets, or it is a tool that resets them.
        if is_anonymous and check.member_id == UNKNOWN_MEMBER_ID and check.instance_id is None:
            raise UnknownMemberIdError(f"Group {self.group_id!r} has members, so only its members can commit offsets.")
        self.check_generation(check)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgressError(
                f"Group {self.group_id!r} is rebalancing: commit again after the assignment."
            )

    def check_transactional_commit(self, check: MemberCheck) -> None:
        """Raise an error if a member that names itself is not in the current generation.

        Unlike a plain commit, it is allowed while the group rebalances, and without a member also if the group has
        members, because versions before 3 do not have these fields.
        """
        self.check_alive()
        if check.generation < 0 and self.is_empty:
            return
        if check.generation >= 0 or check.member_id != UNKNOWN_MEMBER_ID or check.instance_id is not None:
            self.check_generation(check)

    def check_fetch(self, check: MemberCheck) -> None:
        """Allow everything: the member and the epoch of an OffsetFetch are those of consumer groups (KIP-848)."""

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can join. An empty group accepts any protocol."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(self._supported[name] == size for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support. The oldest member decides
        between protocols with the same number of votes."""
        size = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == size}
        return Counter(member.vote(candidates) for member in self.members.values()).most_common(1)[0][0]

    def _count_protocols(self, old: Protocols, new: Protocols) -> None:
        self._supported.subtract(name for name, _ in old)
        self._supported.update(name for name, _ in new)
        for name, _ in old:
            if not self._supported[name]:
                del self._supported[name]

    # Answers

    def _keep_join(self, member: ClassicMember, answer: AnswerJoin | None) -> None:
        # A second JoinGroup can only come from another connection, so the client has given up the first one.
        self.answer_join(member, JoinResult(member_id=member.member_id, error_code=RebalanceInProgressError.code))
        self.awaiting_join += answer is not None
        member.answer_join = answer

    def answer_join(self, member: ClassicMember, result: JoinResult | ProtocolError) -> bool:
        """Answer a member's waiting JoinGroup. Returns False if there is none."""
        answer = member.answer_join
        if answer is None:
            return False
        member.answer_join = None
        self.awaiting_join -= 1
        answer(result)
        return True

    def keep_sync(self, member: ClassicMember, answer: AnswerSync) -> None:
        """Keep a member's SyncGroup until the assignment is known. An earlier SyncGroup gets an error."""
        self.answer_sync(member, RebalanceInProgressError("The member has sent another SyncGroup request."))
        member.answer_sync = answer

    def answer_sync(self, member: ClassicMember, result: SyncResult | ProtocolError) -> bool:
        """Answer a member's waiting SyncGroup. Returns False if there is none."""
        answer = member.answer_sync
        if answer is None:
            return False
        member.answer_sync = None
        answer(result)
        return True

    # Views

    def joined(self, member_id: str, *, shows_members: bool = True) -> JoinResult:
        """Return the current generation for a member. By default only the leader gets the list of members."""
        return JoinResult(
            member_id=member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            members=self._joined_members() if shows_members and self.is_leader(member_id) else (),
        )

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        )

    def value(self, assignments: Mapping[str, bytes]) -> GroupValue:
        """Return the generation for the log, with these assignments by member id."""
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            state_timestamp_ms=NO_TIMESTAMP if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members=tuple(
                member.value(self.protocol_name, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
        )

    def listing(self) -> ListedGroup:
        """Return the group for ListGroups."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            state=self.state.value,
            group_type=self.group_type,
        )

    def describe(self) -> DescribedGroup:
        """Return the group for DescribeGroups."""
        protocol = self.protocol_name if self.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol=protocol or "",
            members=tuple(member.describe(protocol) for member in self.members.values()),
        )

    def expiry(self) -> ExpiryRule | None:
        """Return how offsets expire (KIP-211); None if they do not expire now.

        Those of an empty group expire some time after it became empty. In a group that only stores offsets, and for
        topics to which no member of a stable consumer group subscribes, they expire that time after their commit.
        """
        if self.protocol_type is None:
            return ExpiryRule()
        if self.is_empty:
            return ExpiryRule(since_ms=self.state_timestamp_ms)
        is_consumer = self.protocol_type == CONSUMER_PROTOCOL_TYPE
        if is_consumer and self.state is GroupState.STABLE and self.subscribed_topics is not None:
            return ExpiryRule(keep_topics=self.subscribed_topics)
        return None

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset().union(
                *(_consumer_topics(member.metadata(self.protocol_name)) for member in self.members.values())
            )
        except MalformedFrameError:
            return None


def _consumer_topics(metadata: bytes) -> Iterable[str]:
    """Return the topics of a consumer's subscription. All versions begin with the fields of version 0."""
    reader = Reader(metadata)
    reader.int16()
    count = reader.array_length(2)
    return [reader.string() for _ in range(count)]
