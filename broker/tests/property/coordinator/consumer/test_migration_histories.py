"""Random histories of a group whose members use both protocols, so that it changes between a classic group and a
consumer group: no partition has two readers, and when nothing happens any more, each partition has one."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.base.errors import (
    NONE,
    CoordinatorNotAvailableError,
    ProtocolError,
    RebalanceInProgressError,
    error_for,
)
from odradek.base.types import TopicPartition
from odradek.client.consumer.group_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.coordinator.groups.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.groups.group_requests import JoinResult, LeaveResult, LeavingMember, SyncResult
from odradek_testkit.consumer_groups.consumer_rules_lab import SimulatedMember
from odradek_testkit.groups import GroupLab, Reply, image_of, visible

PARTITIONS = frozenset(range(4))
MAX_SIZE = 4
WHICH = st.integers(0, 20)
ROUNDS = 40
"""Seconds after which a group without failures must be stable."""


class ClassicClient:
    """A classic consumer, as Kafka's clients are: eager or cooperative."""

    def __init__(self, lab: GroupLab, *, is_eager: bool) -> None:
        self._lab = lab
        self._is_eager = is_eager
        self.member_id = ""
        self.owned: frozenset[int] = frozenset()
        self._generation = -1
        self._must_join = True
        self._join: Reply[JoinResult] | None = None
        self._sync: Reply[SyncResult] | None = None

    def step(self) -> None:
        """Send the next request, or handle a response that has arrived."""
        try:
            if self._join is not None:
                self._joined(self._join)
            elif self._sync is not None:
                self._synced(self._sync)
            elif self._must_join:
                self._send_join()
            else:
                self._lab.heartbeat(self.member_id, self._generation)
        except (RebalanceInProgressError, CoordinatorNotAvailableError):
            self._join = self._sync = None
            self._must_join = True
        except ProtocolError:
            self.lose()

    def lose(self) -> None:
        """Give up everything and join as another member."""
        self.owned, self.member_id, self._must_join, self._join, self._sync = frozenset(), "", True, None, None

    def leave(self) -> None:
        """Leave the group."""
        self.owned = frozenset()
        reply: Reply[list[LeaveResult]] = Reply()
        self._lab.shard.leave("group", [LeavingMember(member_id=self.member_id)], reply)

    def _send_join(self) -> None:
        if self._is_eager:
            self.owned = frozenset()
        places = tuple(TopicPartition("events", number) for number in sorted(self.owned))
        metadata = encode_subscription(Subscription(topics=("events",), owned=places), 3)
        self._join = self._lab.join(self.member_id, protocols=(("range", metadata),))

    def _joined(self, reply: Reply[JoinResult]) -> None:
        if reply.is_parked:
            return
        self._join = None
        result = reply.value
        if result.error_code != NONE:
            raise error_for(result.error_code, "JoinGroup failed")
        self.member_id, self._generation, self._must_join = result.member_id, result.generation, False
        self._sync = self._lab.sync(self.member_id, self._generation, self._distributed(result))

    def _distributed(self, result: JoinResult) -> dict[str, bytes]:
        """Return the assignments that a leader computes. Others get a partition only if its owner has given it up."""
        owners = {
            place.partition: member.member_id
            for member in result.members
            for place in decode_subscription(member.metadata).owned
        }
        shares: dict[str, list[TopicPartition]] = {member.member_id: [] for member in result.members}
        for number, member_id in zip(sorted(PARTITIONS), sorted(shares) * len(PARTITIONS), strict=False):
            if owners.get(number, member_id) == member_id:
                shares[member_id].append(TopicPartition("events", number))
        return {member_id: encode_assignment(places) for member_id, places in shares.items()}

    def _synced(self, reply: Reply[SyncResult]) -> None:
        if reply.is_parked:
            return
        self._sync = None
        before = self.owned
        self.owned = frozenset(place.partition for place in decode_assignment(reply.value.assignment))
        self._must_join = not before <= self.owned


class NewClient:
    """A consumer of the new protocol."""

    def __init__(self, lab: GroupLab, member_id: str) -> None:
        self._lab = lab
        self._member = SimulatedMember(member_id, topics=frozenset({"events"}))

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that it reads."""
        return frozenset(number for numbers in self._member.owned.values() for number in numbers)

    def step(self) -> None:
        """Send a heartbeat and take over what the response gives."""
        reply: Reply[Any] = Reply()
        try:
            self._lab.shard.consumer_heartbeat(self._member.request(), reply)
            self._lab.log.settle()
            self._member.receive(reply.value)
        except CoordinatorNotAvailableError:
            self._member.miss()
        except ProtocolError:
            self._member.give_up()
        self._member.take_over()

    def leave(self) -> None:
        """Leave the group."""
        self._member.give_up()
        try:
            self._lab.consumer_heartbeat(self._member.member_id, -1)
        except ProtocolError:
            assert self._member.member_id not in str(self._lab.shard.groups)


class MigrationHistory(RuleBasedStateMachine):
    """A group, and its live members."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = GroupLab(image=image_of(events=len(PARTITIONS)))
        self.members: list[ClassicClient | NewClient] = []
        self.is_eager = False
        self.started = 0

    @initialize(is_eager=st.booleans())
    def classic_members_are(self, is_eager: bool) -> None:
        self.is_eager = is_eager

    @precondition(lambda self: len(self.members) < MAX_SIZE)
    @rule(is_classic=st.booleans())
    def member_starts(self, is_classic: bool) -> None:
        self.started += 1
        self.members.append(
            ClassicClient(self.lab, is_eager=self.is_eager)
            if is_classic
            else NewClient(self.lab, f"new-{self.started}")
        )
        self.step(self.members[-1])

    @precondition(lambda self: self.members)
    @rule(which=WHICH)
    def member_goes_on(self, which: int) -> None:
        self.step(self.members[which % len(self.members)])

    def step(self, member: ClassicClient | NewClient) -> None:
        member.step()
        self.lab.log.settle()

    @precondition(lambda self: self.members)
    @rule(which=WHICH, crashes=st.booleans())
    def member_ends(self, which: int, crashes: bool) -> None:
        member = self.members.pop(which % len(self.members))
        if not crashes:
            member.leave()
            self.lab.log.settle()

    @rule(seconds=st.sampled_from([1, 3, 12]))
    def time_passes(self, seconds: int) -> None:
        for _ in range(seconds):
            for member in self.members:
                self.step(member)
            self.lab.clock.advance(1000)
            self.lab.log.settle()

    @rule()
    def coordinator_moves(self) -> None:
        self.lab.reload()

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        read = [number for member in self.members for number in member.owned]
        assert len(read) == len(set(read)), [(member, member.owned) for member in self.members]

    def teardown(self) -> None:
        self.time_passes(60)
        self.time_passes(ROUNDS)
        self.no_partition_has_two_readers()
        group = self.lab.shard.groups.get("group")
        has_new = any(isinstance(member, NewClient) for member in self.members)
        if self.members:
            assert isinstance(group, ConsumerGroup) is has_new
            assert {number for member in self.members for number in member.owned} == PARTITIONS
        assert self.lab.replayed() == visible(self.lab.shard)


TestMigrationHistory = MigrationHistory.TestCase
TestMigrationHistory.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
