"""Random histories of consumer groups: members that lose responses, crash, leave and come back, and topics that change.

`RulesLab` checks the invariants of the state after each step. At the end of each history, all failures stop, and a few
quiet heartbeats must bring every member to its target.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.base.errors import ProtocolError
from odradek.coordinator.groups.consumer.consumer_values import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, MemberHeartbeat
from odradek.coordinator.groups.consumer.consumer_views import phase
from odradek.coordinator.groups.consumer.subscriptions import effective_topics
from odradek_testkit.consumer_groups.consumer_rules_lab import GROUP, RulesLab, SimulatedMember
from odradek_testkit.consumer_groups.fake_topics import FakeTopics

NAMES = ("a1", "a2", "b1", "b2")
TOPICS = st.sampled_from(NAMES)
WHICH = st.integers(0, 20)
SUBSCRIPTIONS = st.one_of(
    st.just((frozenset({"a1"}), None)),
    st.tuples(st.frozensets(TOPICS, max_size=3), st.sampled_from([None, None, "a.*", "b.*", ".*"])),
)
MAX_SIZE = 8
ROUNDS = 20
"""Heartbeats of each member after which a group without failures must be stable."""


class ConsumerGroupHistory(RuleBasedStateMachine):
    """A group, its live members, and members that have stopped without the coordinator's knowledge."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = RulesLab(FakeTopics(a1=4, b1=3), max_size=MAX_SIZE, regex_refresh_interval_ms=60_000)
        self.members: list[SimulatedMember] = []
        self.removed: set[str] = set()
        """Live members whose session expired, and that do not know it yet."""
        self.started = 0

    def pick(self, which: int) -> SimulatedMember:
        return self.members[which % len(self.members)]

    def start(
        self, subscription: tuple[frozenset[str], str | None], instance_id: str | None, assignor: str | None
    ) -> SimulatedMember:
        self.started += 1
        topics, regex = subscription
        member = SimulatedMember(
            f"m{self.started}", topics=topics, regex=regex, instance_id=instance_id, assignor=assignor
        )
        self.members.append(member)
        return member

    def forget_stopped(self) -> None:
        self.members = [member for member in self.members if not member.is_stopped]

    # Members

    @precondition(lambda self: len(self.members) < MAX_SIZE + 1)
    @rule(
        subscription=SUBSCRIPTIONS,
        instance_id=st.sampled_from([None, None, "s1", "s2"]),
        assignor=st.sampled_from([None, "uniform", "range"]),
    )
    def member_starts(
        self, subscription: tuple[frozenset[str], str | None], instance_id: str | None, assignor: str | None
    ) -> None:
        self.beat(self.start(subscription, instance_id, assignor))

    @precondition(lambda self: self.members)
    @rule(which=WHICH, fate=st.sampled_from(["arrives", "arrives", "request lost", "response lost"]))
    def member_sends_a_heartbeat(self, which: int, fate: str) -> None:
        self.beat(self.pick(which), fate)

    def beat(self, member: SimulatedMember, fate: str = "arrives") -> None:
        request = member.request()
        if fate == "request lost":
            member.miss()
            return
        try:
            result = self.lab.send(request)
        except ProtocolError as error:
            if fate == "arrives":
                self.removed.discard(member.member_id)
                member.fail(error)
                self.forget_stopped()
            else:
                member.miss()
            return
        if fate == "arrives":
            member.receive(result)
        else:
            member.miss()

    @precondition(lambda self: self.members)
    @rule(which=WHICH)
    def member_gives_up_what_it_lost(self, which: int) -> None:
        self.pick(which).revoke()

    @precondition(lambda self: self.members)
    @rule(which=WHICH)
    def member_takes_over_its_assignment(self, which: int) -> None:
        self.pick(which).take_over()

    @precondition(lambda self: self.members)
    @rule(which=WHICH, subscription=SUBSCRIPTIONS)
    def member_changes_its_subscription(self, which: int, subscription: tuple[frozenset[str], str | None]) -> None:
        member = self.pick(which)
        member.topics, member.regex = subscription

    @precondition(lambda self: self.members)
    @rule(which=WHICH, epoch=st.sampled_from([LEAVE_EPOCH, LEAVE_STATIC_EPOCH]), is_lost=st.booleans())
    def member_leaves(self, which: int, epoch: int, is_lost: bool) -> None:
        member = self.pick(which)
        self.members.remove(member)
        self.removed.discard(member.member_id)
        if is_lost:
            return
        epoch = epoch if member.instance_id is not None else LEAVE_EPOCH
        try:
            self.lab.leave(member.member_id, member.instance_id, epoch)
        except ProtocolError:
            assert member.member_id not in self.lab.state.members

    @precondition(lambda self: self.members)
    @rule(which=WHICH)
    def member_restarts(self, which: int) -> None:
        """Only a static member that has left can come back as another member."""
        member = self.pick(which)
        self.member_leaves(which, LEAVE_STATIC_EPOCH, is_lost=False)
        self.beat(self.start((member.topics, member.regex), member.instance_id, member.assignor))

    @precondition(lambda self: self.lab.state.members)
    @rule(which=WHICH, more=st.booleans())
    def sessions_expire(self, which: int, more: bool) -> None:
        known = sorted(self.lab.state.members)
        gone = {known[which % len(known)], known[0] if more else "unknown"}
        self.lab.remove(*gone)
        self.removed |= gone & {member.member_id for member in self.members}

    # The cluster

    @rule(name=TOPICS, count=st.integers(1, 6))
    def topic_is_created_again(self, name: str, count: int) -> None:
        self.lab.topics.create(name, count)
        self.lab.topics_changed = True

    @rule(name=TOPICS, more=st.integers(1, 3))
    def topic_grows(self, name: str, more: int) -> None:
        shape = self.lab.topics.shape(name)
        if shape is not None:
            self.lab.topics.grow(name, shape.partition_count + more)
            self.lab.topics_changed = True

    @rule(name=TOPICS)
    def topic_is_deleted(self, name: str) -> None:
        if self.lab.topics.shape(name) is not None:
            self.lab.topics.delete(name)
            self.lab.topics_changed = True

    @rule(name=TOPICS, is_hidden=st.booleans())
    def permissions_change(self, name: str, is_hidden: bool) -> None:
        (self.lab.hidden.add if is_hidden else self.lab.hidden.discard)(name)

    @rule()
    def time_passes(self) -> None:
        self.lab.now_ms += 45_000

    # What must be true

    @invariant()
    def no_partition_is_read_twice(self) -> None:
        # The coordinator cannot know that a member whose session expired is alive.
        readers: dict[object, str] = {}
        for member in self.members:
            if member.member_id in self.removed:
                continue
            for topic_id, numbers in member.owned.items():
                for number in numbers:
                    other = readers.setdefault((topic_id, number), member.member_id)
                    assert other == member.member_id, f"{member.member_id} and {other} read {number} of {topic_id}"

    def teardown(self) -> None:
        self.lab.hidden.clear()
        self.lab.topics_changed = True
        self.lab.now_ms += 60_000
        self.lab.remove(*(self.lab.state.members.keys() - {member.member_id for member in self.members}))
        self.become_quiet()
        self.check_everything_is_read()
        if self.members:
            # A change of the preferred assignor alone computes no target assignment, so one member has to join again.
            self.lab.remove(self.members[0].member_id)
            self.become_quiet()
            self.check_everything_is_read()
            self.check_balance()

    def become_quiet(self) -> None:
        for _ in range(ROUNDS):
            for member in list(self.members):
                self.beat(member)
                member.take_over()
        state = self.lab.state
        assert state.members.keys() == {member.member_id for member in self.members}
        assert phase(state) == ("Stable" if self.members else "Empty")
        for member in self.members:
            assert member.epoch == state.epoch
            assert member.owned == state.target[member.member_id] == state.members[member.member_id].assigned

    def check_everything_is_read(self) -> None:
        state = self.lab.state
        names = {name for member in state.members.values() for name in effective_topics(member, state.regexes)}
        shapes = [shape for name in names if (shape := self.lab.topics.shape(name)) is not None]
        wanted = {(shape.topic_id, number) for shape in shapes for number in range(shape.partition_count)}
        read = {(topic, number) for member in self.members for topic in member.owned for number in member.owned[topic]}
        assert read == wanted

    def check_balance(self) -> None:
        """With equal subscriptions, `uniform` gives everyone the same number of partitions, or one less."""
        members = self.lab.state.members.values()
        if any(member.assignor == "range" for member in members):
            return
        topics = [effective_topics(member, self.lab.state.regexes) for member in members]
        if all(first == second for first, second in pairwise(topics)):
            loads = [sum(map(len, member.assigned.values())) for member in members]
            assert max(loads) - min(loads) <= 1


TestConsumerGroupHistory = ConsumerGroupHistory.TestCase
TestConsumerGroupHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_leaving_needs_no_other_fields() -> None:
    lab = RulesLab(FakeTopics(a1=1))
    lab.join("m", "a1")
    lab.send(MemberHeartbeat(group_id=GROUP, member_id="m", epoch=LEAVE_EPOCH))
    assert lab.state.is_empty
