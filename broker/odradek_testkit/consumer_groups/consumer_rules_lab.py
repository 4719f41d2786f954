"""A consumer group of the new protocol without a coordinator: its state, and members that send heartbeats.

`RulesLab` applies requests to the state at once, and checks what must always be true, and that the records of each
change lead to the new state. `SimulatedMember` follows the
protocol as Kafka's clients do: it gives up partitions before it takes others, sends a field again only when it has
changed, and sends everything after a response was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from odradek.base.errors import FencedMemberEpochError, ProtocolError, UnknownMemberIdError
from odradek.coordinator.groups.consumer import consumer_rules
from odradek.coordinator.groups.consumer.consumer_records import ConsumerRecordKey, StateBuilder, changes
from odradek.coordinator.groups.consumer.consumer_values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NEW_GROUP,
    NO_PARTITIONS,
    ConsumerGroupImage,
    ConsumerGroupSettings,
    ConsumerMember,
    HeartbeatResult,
    MemberHeartbeat,
    PartitionSet,
    RuleContext,
)
from odradek.coordinator.groups.group_records import decode_key
from odradek_testkit.consumer_groups.fake_topics import FakeTopics

GROUP: Final = "group"
REBALANCE_MS: Final = 300_000


class RulesLab:
    """A group whose requests are applied at once."""

    def __init__(self, topics: FakeTopics, **settings: Any) -> None:
        self.topics: Final = topics
        self.settings: Final = ConsumerGroupSettings(**settings)
        self.state: ConsumerGroupImage = NEW_GROUP
        self._log: Final = StateBuilder()
        self.now_ms = 1_000_000
        self.topics_changed = False
        self.hidden: set[str] = set()
        """Topics that the clients may not describe."""

    @property
    def context(self) -> RuleContext:
        """What the rules see now."""
        return RuleContext(
            self.settings, self.topics, self.now_ms, self.topics_changed, lambda name: name not in self.hidden
        )

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member."""
        return self.state.members[member_id]

    def assigned(self, member_id: str) -> dict[str, set[int]]:
        """Return the partitions that a member may read, by the name of the topic."""
        return self.named(self.member(member_id).assigned)

    def named(self, partitions: PartitionSet | None) -> dict[str, set[int]]:
        """Return partitions by the name of the topic."""
        assert partitions is not None
        names = {self.topics.id(name): name for name in self.topics.names()}
        return {names[topic_id]: set(numbers) for topic_id, numbers in partitions.items()}

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatResult:
        """Apply a heartbeat."""
        return self.send(MemberHeartbeat(group_id=GROUP, member_id=member_id, epoch=epoch, **fields))

    def send(self, request: MemberHeartbeat) -> HeartbeatResult:
        """Apply a heartbeat, which may also be one that leaves."""
        if request.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            consumer_rules.check_heartbeat(request, self.settings)
            state, result = consumer_rules.leave(
                self.state, request.member_id, request.instance_id, request.epoch, self.context
            )
        else:
            state, result = consumer_rules.heartbeat(self.state, request, self.context)
            self.topics_changed = False
        self.put(state)
        return result

    def join(self, member_id: str, *topics: str, **fields: Any) -> HeartbeatResult:
        """Apply a heartbeat that joins."""
        request: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": frozenset(topics),
            "owned": {},
            **fields,
        }
        return self.heartbeat(member_id, JOIN_EPOCH, **request)

    def leave(self, member_id: str, instance_id: str | None = None, epoch: int = LEAVE_EPOCH) -> HeartbeatResult:
        """Apply a heartbeat that leaves."""
        return self.heartbeat(member_id, epoch, instance_id=instance_id)

    def remove(self, *member_ids: str) -> None:
        """Remove members whose session has expired."""
        self.put(consumer_rules.remove(self.state, member_ids, self.context))

    def settle(self, *member_ids: str) -> None:
        """Let members report what they were given until nothing changes."""
        while True:
            before = self.state
            for member_id in member_ids:
                member = self.member(member_id)
                self.heartbeat(member_id, member.epoch, instance_id=member.instance_id, owned=member.assigned)
            if self.state == before:
                return

    def put(self, state: ConsumerGroupImage) -> None:
        """Put the group into another state."""
        check_state(state)
        for key, value in changes(GROUP, self.state, state):
            record = decode_key(key)
            assert isinstance(record, ConsumerRecordKey)
            self._log.apply(record, value)
        assert self._log.build() == state, "the records do not lead to the new state"
        assert state.epoch >= self.state.epoch, "the epoch of a group decreased"
        assert state.assignment_epoch >= self.state.assignment_epoch, "the epoch of the target assignment decreased"
        self.state = state


def check_state(state: ConsumerGroupImage) -> None:
    """Check the invariants of `ConsumerGroupImage`."""
    assert state.assignment_epoch <= state.epoch
    assert state.target.keys() <= state.members.keys()
    owners: dict[tuple[UUID, int], str] = {}
    for member_id, member in state.members.items():
        assert member.member_id == member_id
        assert member.epoch <= state.assignment_epoch
        for partitions in (member.assigned, member.revoking):
            assert all(partitions.values()), "an empty set of partitions"
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    other = owners.setdefault((topic_id, number), member_id)
                    assert other == member_id, f"{member_id} and {other} have partition {number} of {topic_id}"
    instances = [member.instance_id for member in state.members.values() if member.instance_id is not None]
    assert len(instances) == len(set(instances)), "two members have the same instance id"
    wanted = {member.regex for member in state.members.values() if member.regex is not None}
    assert state.regexes.keys() <= wanted
    targets = [(topic, number) for part in state.target.values() for topic in part for number in part[topic]]
    assert len(targets) == len(set(targets)), "a partition is the target of two members"


class SimulatedMember:
    """A member that follows the protocol. `owned` are the partitions that it reads."""

    def __init__(
        self,
        member_id: str,
        *,
        topics: frozenset[str] = frozenset(),
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.member_id: Final = member_id
        self.instance_id: Final = instance_id
        self.topics = topics
        self.regex = regex
        self.assignor: Final = assignor
        self.epoch = JOIN_EPOCH
        self.owned: PartitionSet = NO_PARTITIONS
        self.given: PartitionSet | None = None
        """The assignment that the member has not taken over yet."""
        self.is_stopped = False
        self._sent: dict[str, Any] = {}
        self._is_lost = False

    def request(self) -> MemberHeartbeat:
        """Return the next heartbeat, with the fields that have changed."""
        fields: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": self.topics,
            "regex": self.regex or "",
            "assignor": self.assignor,
            "owned": {topic: frozenset(numbers) for topic, numbers in self.owned.items()},
        }
        if self.epoch != JOIN_EPOCH and not self._is_lost:
            changed = {name: value for name, value in fields.items() if self._sent.get(name) != value}
        else:
            changed = fields
        self._sent = fields
        return MemberHeartbeat(
            group_id=GROUP, member_id=self.member_id, epoch=self.epoch, instance_id=self.instance_id, **changed
        )

    def receive(self, result: HeartbeatResult) -> None:
        """Receive a response."""
        self._is_lost = False
        self.epoch = result.epoch
        if result.assignment is not None:
            self.given = MappingProxyType(dict(result.assignment))

    def miss(self) -> None:
        """Notice that a response was lost."""
        self._is_lost = True

    def fail(self, error: ProtocolError) -> None:
        """Handle an error: join again without partitions, or stop."""
        self.give_up()
        if not isinstance(error, FencedMemberEpochError | UnknownMemberIdError):
            self.is_stopped = True

    def give_up(self) -> None:
        """Give up all partitions; the next heartbeat joins."""
        self.owned, self.given, self.epoch, self._is_lost = NO_PARTITIONS, None, JOIN_EPOCH, False

    def revoke(self) -> None:
        """Give up what the last assignment does not have."""
        if self.given is not None:
            self.owned = _common(self.owned, self.given)

    def take_over(self) -> None:
        """Give up and take partitions, so that the member has its last assignment."""
        if self.given is not None:
            self.owned, self.given = self.given, None
            # The coordinator waits for it even if the partitions are those that the member reported last.
            self._sent.pop("owned", None)

    def beat(self, lab: RulesLab) -> None:
        """Send a heartbeat and take over what the response gives."""
        try:
            self.receive(lab.send(self.request()))
        except ProtocolError as error:
            self.fail(error)
        self.take_over()


def _common(first: PartitionSet, second: PartitionSet) -> PartitionSet:
    common: Mapping[UUID, frozenset[int]] = {
        topic: numbers & second[topic] for topic, numbers in first.items() if topic in second
    }
    return {topic: numbers for topic, numbers in common.items() if numbers}
