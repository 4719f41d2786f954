"""Random histories of a group of both kinds whose appends succeed, fail, or have an unknown outcome: once an append has
succeeded, a replay of the log gives the state in memory."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.base.errors import NotEnoughReplicasError, ProtocolError, RequestTimedOutError
from odradek.base.types import TopicPartition
from odradek.coordinator.groups.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.groups.consumer.consumer_records import ConsumerRecordKey
from odradek.coordinator.groups.consumer.consumer_values import ConsumerGroupImage
from odradek.coordinator.groups.group_records import decode_key
from odradek.coordinator.groups.group_replay import Replay
from odradek.coordinator.groups.group_requests import OffsetToCommit
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES
from odradek_testkit.consumer_groups.strict_replay import StrictReplay
from odradek_testkit.groups import GroupLab, Reply, image_of, visible

MEMBERS = st.sampled_from(["one", "two", "three"])
INSTANCES = st.sampled_from([None, None, "static"])
SUBSCRIPTIONS = st.sampled_from(
    [
        {"topics": frozenset({"events"})},
        {"topics": frozenset({"events", "other"})},
        {"topics": frozenset(), "regex": "ev.*"},
        {"topics": frozenset(), "regex": ".*"},
    ]
)
PLACES = st.sampled_from([TopicPartition("events", 0), TopicPartition("other", 0)])
DELAYS_MS = st.sampled_from([1, 3000, 20_000, 61_000, 8 * 24 * 3_600_000])
IMAGES = st.sampled_from([image_of(events=3), image_of(events=4, other=1), image_of(other=2)])


def states(visible_groups: dict[str, Any]) -> dict[str, Any]:
    """Return the states of groups without their offsets: an offset whose commit has an unknown outcome is visible only
    after a replay, until the client commits again."""
    return {group_id: state for group_id, (_, *state) in visible_groups.items() if state}


class GroupLogHistory(RuleBasedStateMachine):
    """Requests of members of both kinds, with any outcome of the appends."""

    def __init__(self) -> None:
        super().__init__()
        self.lab = GroupLab(image=image_of(events=3))
        self.replies: list[Reply[Any]] = []
        self.seen = ConsumerGroupImage()

    def ask(self, call: Any, *args: Any, **options: Any) -> None:
        try:
            reply = call(*args, **options)
        except ProtocolError:
            return
        if isinstance(reply, Reply):
            self.replies.append(reply)

    @property
    def consumer_group(self) -> ConsumerGroup | None:
        group = self.lab.shard.groups.get("group")
        return group if isinstance(group, ConsumerGroup) else None

    # What clients do

    @rule(member_id=MEMBERS, instance_id=INSTANCES, subscription=SUBSCRIPTIONS)
    def join(self, member_id: str, instance_id: str | None, subscription: dict[str, Any]) -> None:
        self.ask(self.lab.consumer_heartbeat, member_id, 0, instance_id=instance_id, **subscription)

    @precondition(lambda self: self.consumer_group is not None and self.consumer_group.state.members)
    @rule(data=st.data(), has_revoked=st.booleans(), lag=st.sampled_from([0, 0, 1]))
    def heartbeat(self, data: st.DataObject, has_revoked: bool, lag: int) -> None:
        assert self.consumer_group is not None
        member = data.draw(st.sampled_from([*self.consumer_group.state.members.values()]))
        owned = member.assigned if has_revoked else None
        self.ask(
            self.lab.consumer_heartbeat,
            member.member_id,
            max(member.epoch, 1) - lag,
            instance_id=member.instance_id,
            owned=owned,
        )

    @rule(member_id=MEMBERS, instance_id=INSTANCES, epoch=st.sampled_from([-1, -2]))
    def leave(self, member_id: str, instance_id: str | None, epoch: int) -> None:
        self.ask(self.lab.consumer_heartbeat, member_id, epoch, instance_id=instance_id)

    @rule()
    def join_classic(self) -> None:
        self.ask(self.lab.join)

    @rule(place=PLACES, offset=st.integers(0, 100))
    def commit(self, place: TopicPartition, offset: int) -> None:
        self.ask(self.lab.commit, {place: OffsetToCommit(offset=offset)})

    @rule()
    def delete(self) -> None:
        reply: Reply[None] = Reply()
        try:
            self.lab.shard.delete("group", reply)
        except ProtocolError:
            return
        self.replies.append(reply)

    # What happens to the cluster

    @rule(image=IMAGES)
    def change_topics(self, image: Any) -> None:
        self.lab.image = image

    @rule(delay_ms=DELAYS_MS)
    def advance(self, delay_ms: float) -> None:
        self.lab.clock.advance(delay_ms)

    @rule()
    def expire(self) -> None:
        self.lab.shard.expire()

    @precondition(lambda self: self.lab.log.waiting)
    @rule(outcome=st.sampled_from(["stored", "stored", "stored", "refused", "unknown"]))
    def append(self, outcome: str) -> None:
        if outcome == "refused":
            self.lab.log.fail_next(NotEnoughReplicasError("few"))
        else:
            self.lab.log.commit_next(RequestTimedOutError("slow") if outcome == "unknown" else None)

    @rule()
    def succeed(self) -> None:
        """Let a further append succeed. Then the log and the memory agree."""
        self.lab.log.settle()
        group = self.consumer_group
        if group is not None:
            self.ask(self.lab.consumer_heartbeat, "last", 0)
            self.lab.log.settle()
            self.ask(self.lab.consumer_heartbeat, "last", -1)
            self.lab.log.settle()
        assert all(reply.count == 1 for reply in self.replies if not self.waits_for_members(reply))
        if group is not None:
            self.check_order()
        if self.consumer_group is not None:
            assert states(self.lab.replayed()) == states(visible(self.lab.shard))
            assert self.kinds_in_log() <= {"consumer"}
        elif group is not None:
            # "last" was the last member of the consumer protocol. The group waits for its classic members.
            assert self.kinds_in_log() <= {"classic"}

    def check_order(self) -> None:
        """Check that Kafka's coordinator could replay the log."""
        model = StrictReplay()
        for records in self.lab.log.record_sets:
            for position, header in iterate_entries(records):
                for record in iterate_records(records, position, header, limit=UNPACKED_LIMIT_BYTES):
                    assert record.key is not None
                    key = decode_key(record.key)
                    if isinstance(key, ConsumerRecordKey):
                        model.apply(key, record.value)

    def kinds_in_log(self) -> set[str]:
        replay = Replay()
        for records in self.lab.log.record_sets:
            for _ in replay.read(records):
                pass
        return {kind for kind, found in (("classic", replay.groups), ("consumer", replay.consumer_groups)) if found}

    def waits_for_members(self, reply: Reply[Any]) -> bool:
        """Whether it may be the answer to a JoinGroup, which waits for other members."""
        return self.consumer_group is None and reply.is_parked

    @rule()
    def move(self) -> None:
        """Another broker leads the partition, and then this one again."""
        self.lab.log.settle()
        self.lab.reload()

    # What is always true

    @invariant()
    def epochs_do_not_decrease_and_partitions_have_one_owner(self) -> None:
        group = self.consumer_group
        if group is None:
            self.seen = ConsumerGroupImage()
            return
        state = group.state
        if state.epoch:
            assert state.assignment_epoch <= state.epoch
            assert self.seen.epoch <= state.epoch or state.epoch == 1
        owned = [
            (topic_id, partition)
            for member in state.members.values()
            for partitions in (member.assigned, member.revoking)
            for topic_id, numbers in partitions.items()
            for partition in numbers
        ]
        assert len(owned) == len({*owned})
        self.seen = state

    @invariant()
    def the_log_has_one_kind_when_it_is_certain(self) -> None:
        group = self.consumer_group
        if group is not None and not group.is_busy and not group.is_uncertain:
            assert self.kinds_in_log() <= {"consumer"}


TestGroupLogHistory = GroupLogHistory.TestCase
TestGroupLogHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
