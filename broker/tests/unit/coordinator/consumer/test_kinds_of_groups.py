"""Classic groups and consumer groups in one partition: which requests each serves, and how an empty one changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.base.errors import (
    NONE,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidRequestError,
    NonEmptyGroupError,
    NotEnoughReplicasError,
    RequestTimedOutError,
    UnknownMemberIdError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.groups.classic.classic_group import ClassicGroup
from odradek.coordinator.groups.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.groups.consumer.consumer_values import NEW_GROUP
from odradek.coordinator.groups.group_records import GroupKey, decode_key
from odradek.coordinator.groups.group_replay import Replay
from odradek.coordinator.groups.group_requests import LeaveResult, LeavingMember, OffsetToCommit
from odradek_testkit.groups import GroupLab, Reply, image_of, visible

PLACE = TopicPartition("events", 0)
OTHER = TopicPartition("other", 0)
WEEK_MS = 7 * 24 * 3_600_000


def lab() -> GroupLab:
    return GroupLab(image=image_of(events=2, other=1))


def consumer_group(lab: GroupLab, *, is_empty: bool = False) -> ConsumerGroup:
    lab.consumer_heartbeat("one", 0, instance_id="static")
    lab.log.settle()
    if is_empty:
        lab.consumer_heartbeat("one", -1, instance_id="static")
        lab.log.settle()
    return lab.consumer_group


def empty_classic_group(lab: GroupLab) -> ClassicGroup:
    (member_id,) = lab.form(None)
    lab.leave(LeavingMember(member_id=member_id))
    lab.log.settle()
    assert lab.group.is_empty
    return lab.group


def kinds_in_log(lab: GroupLab) -> set[str]:
    replay = Replay()
    for records in lab.log.record_sets:
        for _ in replay.read(records):
            pass
    return {"classic"} & {"classic" for _ in replay.groups} | {"consumer" for _ in replay.consumer_groups}


def commit(lab: GroupLab, *places: TopicPartition) -> None:
    lab.commit({place: OffsetToCommit(offset=5) for place in places})
    lab.log.settle()


def agrees(lab: GroupLab) -> bool:
    return lab.replayed() == visible(lab.shard)


# Changes of the kind


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    office = lab()
    empty_classic_group(office)
    commit(office, PLACE)
    assert kinds_in_log(office) == {"classic"}
    reply = office.consumer_heartbeat("one", 0)
    (records, _, _) = office.log.waiting[-1]
    assert (decode_key(records[0][0]), records[0][1]) == (GroupKey("group"), None), "in the same append"
    office.log.settle()
    assert reply.value.epoch == 1
    assert kinds_in_log(office) == {"consumer"}
    assert office.fetch([PLACE])[PLACE].offset == 5
    assert agrees(office)


@pytest.mark.parametrize("is_written", [True, False])
def test_the_change_is_repeated_if_it_is_not_stored(is_written: bool) -> None:
    office = lab()
    empty_classic_group(office)
    reply = office.consumer_heartbeat("one", 0)
    (office.log.commit_next if is_written else office.log.fail_next)(RequestTimedOutError("slow"))
    with pytest.raises(CoordinatorNotAvailableError):
        _ = reply.value
    again = office.consumer_heartbeat("one", 0)
    office.log.settle()
    assert again.value.epoch == 1
    assert kinds_in_log(office) == {"consumer"}
    assert agrees(office)


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets() -> None:
    office = lab()
    consumer_group(office, is_empty=True)
    commit(office, PLACE)
    reply = office.join()
    office.log.settle()
    assert kinds_in_log(office) == set(), "a classic group has a record when its first generation has an assignment"
    assert agrees(office)
    office.clock.advance(3000)
    assert reply.value.generation == 1
    office.sync(reply.value.member_id, 1, {reply.value.member_id: b"mine"})
    office.log.settle()
    assert kinds_in_log(office) == {"classic"}
    assert office.fetch([PLACE])[PLACE].offset == 5
    assert agrees(office)


def test_a_classic_member_does_not_join_if_the_records_cannot_be_removed() -> None:
    office = lab()
    consumer_group(office, is_empty=True)
    reply = office.join()
    office.log.fail_next(NotEnoughReplicasError("few"))
    with pytest.raises(CoordinatorNotAvailableError):
        _ = reply.value
    assert office.consumer_group.is_empty
    again = office.join()
    office.log.settle()
    office.clock.advance(3000)
    assert again.value.generation == 1


def test_a_classic_member_joins_a_consumer_group_that_is_not_empty_any_more() -> None:
    office = lab()
    consumer_group(office, is_empty=True)
    office.consumer_heartbeat("two", 0)
    classic = office.join()
    assert classic.is_parked
    office.log.settle()
    assert [*office.consumer_group.state.members] == ["two", classic.value.member_id]


def test_a_member_that_joins_after_the_change_tries_again() -> None:
    office = lab()
    consumer_group(office, is_empty=True)
    classic = office.join()
    new = office.consumer_heartbeat("two", 0)
    office.log.settle()
    with pytest.raises(CoordinatorNotAvailableError):
        _ = new.value
    office.clock.advance(3000)
    assert classic.value.generation == 1


def test_a_transaction_that_is_stored_during_the_change_is_kept() -> None:
    office = lab()
    empty_classic_group(office)
    stored = office.commit_transactional({PLACE: OffsetToCommit(offset=8)})
    office.consumer_heartbeat("one", 0)
    office.log.settle()
    assert stored.value == {PLACE: NONE}
    office.end()
    assert office.fetch([PLACE])[PLACE].offset == 8
    assert agrees(office)


def test_a_heartbeat_that_is_refused_changes_no_group() -> None:
    office = lab()
    with pytest.raises(InvalidRequestError):
        office.consumer_heartbeat("", 0)
    for epoch in (1, -1):
        with pytest.raises(GroupIdNotFoundError, match="does not exist"):
            office.consumer_heartbeat("one", epoch)
    assert office.shard.groups == {}
    group = empty_classic_group(office)
    with pytest.raises(InvalidRequestError):
        office.consumer_heartbeat("one", 0, owned=None)
    with pytest.raises(GroupIdNotFoundError):
        office.consumer_heartbeat("one", 1)
    assert office.group is group


def test_a_group_with_records_of_both_kinds_is_a_consumer_group() -> None:
    office, classic = lab(), lab()
    consumer_group(office)
    classic.form(None)
    office.log.record_sets += classic.log.record_sets
    office.reload()
    assert {*office.consumer_group.state.members} == {"one"}
    office.consumer_heartbeat("one", 1)
    office.log.settle()
    assert kinds_in_log(office) == {"consumer"}


# Requests of the other kind


CLASSIC_REQUESTS: dict[str, Callable[[GroupLab], Any]] = {
    "SyncGroup": lambda office: office.sync("one", 1).value,
    "Heartbeat": lambda office: office.heartbeat("one", 1),
    "JoinGroup again": lambda office: office.join("one"),
}


@pytest.mark.parametrize("request_of", CLASSIC_REQUESTS.values(), ids=CLASSIC_REQUESTS)
def test_a_consumer_group_has_no_classic_members(request_of: Callable[[GroupLab], Any]) -> None:
    office = lab()
    consumer_group(office, is_empty=True)
    with pytest.raises(UnknownMemberIdError):
        request_of(office)


def test_an_administrator_removes_static_members() -> None:
    office = lab()
    consumer_group(office)
    reply: Reply[list[LeaveResult]] = Reply()
    office.shard.leave(
        "group",
        [
            LeavingMember(instance_id="static"),
            LeavingMember(instance_id="nobody"),
            LeavingMember(member_id="one"),
        ],
        reply,
    )
    office.log.settle()
    unknown = UnknownMemberIdError.code
    assert [result.error_code for result in reply.value] == [NONE, unknown, unknown]
    assert office.consumer_group.is_empty


# Whole groups and their offsets


def test_how_groups_are_shown() -> None:
    office = lab()
    consumer_group(office)
    listed = office.consumer_group.listing()
    assert (listed.group_type, listed.protocol_type, listed.state) == ("consumer", "consumer", "Stable")
    assert office.shard.describe("group").state == "Dead", "DescribeGroups shows classic groups"
    described = office.shard.describe_consumer_group("group")
    assert (described.state, described.epoch, described.assignor) == ("Stable", 1, "uniform")
    office.commit({PLACE: OffsetToCommit(offset=1)}, "one", 1)
    with pytest.raises(GroupIdNotFoundError, match="does not exist"):
        office.shard.describe_consumer_group("nobody")
    empty = lab()
    empty_classic_group(empty)
    with pytest.raises(GroupIdNotFoundError, match="not a consumer group"):
        empty.shard.describe_consumer_group("group")


def test_an_empty_consumer_group_is_deleted_with_its_offsets() -> None:
    office = lab()
    consumer_group(office)
    with pytest.raises(NonEmptyGroupError):
        office.shard.delete("group", Reply())
    office.consumer_heartbeat("one", -1, instance_id="static")
    office.log.settle()
    commit(office, PLACE, OTHER)
    reply: Reply[None] = Reply()
    office.shard.delete("group", reply)
    office.log.settle()
    assert reply.value is None
    assert office.shard.groups == {}
    assert office.replayed() == {}


def test_a_deletion_fails_if_a_member_joins_before() -> None:
    office = lab()
    consumer_group(office, is_empty=True)
    office.consumer_heartbeat("two", 0)
    reply: Reply[None] = Reply()
    office.shard.delete("group", reply)
    office.log.settle()
    with pytest.raises(NonEmptyGroupError):
        _ = reply.value
    assert agrees(office)


def test_a_deletion_that_is_not_stored_keeps_the_group() -> None:
    office = lab()
    consumer_group(office, is_empty=True)
    commit(office, PLACE)
    reply: Reply[None] = Reply()
    office.shard.delete("group", reply)
    office.log.fail_next(NotEnoughReplicasError("few"))
    with pytest.raises(CoordinatorNotAvailableError):
        _ = reply.value
    assert office.fetch([PLACE])[PLACE].offset == 5
    assert agrees(office)


def test_an_offset_that_is_committed_during_a_deletion_stays() -> None:
    office = lab()
    consumer_group(office, is_empty=True)
    office.shard.delete("group", Reply())
    office.commit({PLACE: OffsetToCommit(offset=9)})
    office.log.settle()
    assert office.fetch([PLACE])[PLACE].offset == 9
    assert isinstance(office.shard.groups["group"], ClassicGroup)
    assert agrees(office)


def test_offsets_of_subscribed_topics_are_kept() -> None:
    office = lab()
    consumer_group(office)
    member = office.check("one", 1)
    office.commit({PLACE: OffsetToCommit(offset=1), OTHER: OffsetToCommit(offset=2)}, member.member_id, 1)
    office.log.settle()
    refused = GroupSubscribedToTopicError.code
    deleted = office.delete_offsets(PLACE, OTHER)
    office.log.settle()
    assert deleted.value == {PLACE: refused, OTHER: NONE}

    office.commit({OTHER: OffsetToCommit(offset=2)}, "one", 1)
    office.log.settle()
    for _ in range(2 * WEEK_MS // 40_000_000):
        office.clock.advance(44_000)
        office.consumer_heartbeat("one", 1)
    office.clock._now_ms += WEEK_MS  # A jump without timers: sessions do not matter here.
    office.shard.expire()
    office.log.settle()
    assert office.consumer_group.offsets.partitions() == {PLACE}
    assert office.events.expirations == 1


def test_an_empty_consumer_group_expires_with_its_last_offset() -> None:
    office = lab()
    consumer_group(office, is_empty=True)
    commit(office, PLACE)
    office.shard.expire()
    assert not office.log.waiting, "it has an offset"
    office.clock.advance(WEEK_MS)
    office.shard.expire()
    office.log.settle()
    assert office.shard.groups == {}
    assert office.replayed() == {}


def test_a_group_with_an_append_in_progress_is_not_removed() -> None:
    office = lab()
    office.consumer_heartbeat("one", 0)
    office.shard.expire()
    office.log.settle()
    assert {*office.consumer_group.state.members} == {"one"}


def test_offsets_of_deleted_partitions_are_removed() -> None:
    office = lab()
    consumer_group(office)
    office.commit({PLACE: OffsetToCommit(offset=1), OTHER: OffsetToCommit(offset=2)}, "one", 1)
    office.log.settle()
    office.shard.forget_partitions(frozenset({OTHER}))
    office.log.settle()
    assert office.consumer_group.offsets.partitions() == {PLACE}
    assert agrees(office)


def test_an_anonymous_commit_needs_an_empty_group() -> None:
    office = lab()
    group = consumer_group(office, is_empty=True)
    commit(office, PLACE)
    assert group.state.epoch == 2
    assert group.state != NEW_GROUP
    office.consumer_heartbeat("one", 0)
    office.log.settle()
    with pytest.raises(UnknownMemberIdError):
        office.commit({PLACE: OffsetToCommit(offset=1)})
