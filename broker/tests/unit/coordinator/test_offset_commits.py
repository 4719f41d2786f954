"""Offsets: allowed commits, visibility and expiration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.base.errors import (
    NONE,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    KafkaStorageError,
    MessageTooLargeError,
    NonEmptyGroupError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    OffsetMetadataTooLargeError,
    ProtocolError,
    RebalanceInProgressError,
    RequestTimedOutError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.groups.classic.classic_group import GroupState
from odradek.coordinator.groups.group_events import GroupEvents
from odradek.coordinator.groups.group_offsets import Committed
from odradek.coordinator.groups.group_records import OffsetValue
from odradek.coordinator.groups.group_requests import CommitRequest, FetchedOffset, LeavingMember, OffsetToCommit
from odradek.coordinator.groups.offset_commits import InvalidCommitOffsetSizeError
from odradek_testkit.groups import SESSION_MS, SETTINGS, GroupLab, Reply

EVENTS_0, EVENTS_1, OTHER_0 = TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("other", 0)
RETENTION_MS = SETTINGS.offsets_retention_ms


@pytest.fixture
def lab() -> GroupLab:
    return GroupLab()


def offset(number: int, **changes: object) -> OffsetToCommit:
    return OffsetToCommit(offset=number, **changes)  # type: ignore[arg-type]


# Commits


def test_an_offset_is_visible_when_it_is_committed(lab: GroupLab) -> None:
    reply = lab.commit({EVENTS_0: offset(5, metadata="note", leader_epoch=3)})
    assert reply.is_parked
    assert lab.fetch([EVENTS_0]) == {EVENTS_0: FetchedOffset()}
    lab.log.settle()
    assert reply.value == {EVENTS_0: NONE}
    assert lab.fetch([EVENTS_0]) == {EVENTS_0: FetchedOffset(offset=5, metadata="note", leader_epoch=3)}


def test_a_pending_offset_is_unstable(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    lab.commit({EVENTS_0: offset(6)})
    assert lab.fetch([EVENTS_0])[EVENTS_0].offset == 5
    assert lab.fetch([EVENTS_0], require_stable=True)[EVENTS_0].error_code == UnstableOffsetCommitError.code
    lab.log.settle()
    assert lab.fetch([EVENTS_0], require_stable=True)[EVENTS_0].offset == 6


def test_all_or_the_requested_offsets(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5), OTHER_0: offset(6)})
    lab.log.settle()
    assert {key: value.offset for key, value in lab.fetch().items()} == {EVENTS_0: 5, OTHER_0: 6}
    assert {key: value.offset for key, value in lab.fetch([OTHER_0, EVENTS_1]).items()} == {OTHER_0: 6, EVENTS_1: -1}


def test_a_group_that_does_not_exist_has_no_offsets(lab: GroupLab) -> None:
    assert lab.fetch() == {}
    assert lab.fetch([EVENTS_0]) == {EVENTS_0: FetchedOffset()}


def test_a_member_commits_in_its_generation(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    reply = lab.commit({EVENTS_0: offset(5)}, member_id, 1)
    lab.log.settle()
    assert reply.value == {EVENTS_0: NONE}


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("", -1, UnknownMemberIdError),
        ("nobody", 1, UnknownMemberIdError),
        ("nobody", -1, UnknownMemberIdError),
        (None, 0, IllegalGenerationError),
        (None, 2, IllegalGenerationError),
        (None, -1, IllegalGenerationError),
    ],
)
def test_refused_commits_to_a_group_with_members(
    lab: GroupLab, member_id: str | None, generation: int, error: type[ProtocolError]
) -> None:
    (own_id,) = lab.form(None)
    with pytest.raises(error):
        lab.commit({EVENTS_0: offset(5)}, own_id if member_id is None else member_id, generation)
    assert lab.log.waiting == []


def test_a_fenced_instance_cannot_commit(lab: GroupLab) -> None:
    (old_id,) = lab.form("static")
    lab.join(instance_id="static")
    lab.log.settle()
    with pytest.raises(FencedInstanceIdError):
        lab.shard.commit(CommitRequest(member=lab.check(old_id, 1, "static"), offsets={EVENTS_0: offset(5)}), Reply())


def test_a_generation_of_an_unknown_group_is_illegal(lab: GroupLab) -> None:
    with pytest.raises(IllegalGenerationError):
        lab.commit({EVENTS_0: offset(5)}, "somebody", 3)
    assert lab.shard.groups == {}


def test_a_removed_member_cannot_commit_but_a_tool_can(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.leave(LeavingMember(member_id=member_id))
    with pytest.raises(UnknownMemberIdError):
        lab.commit({EVENTS_0: offset(5)}, member_id, 1)
    reply = lab.commit({EVENTS_0: offset(0)})
    lab.log.settle()
    assert reply.value == {EVENTS_0: NONE}


def test_a_rebalance_lets_the_old_generation_commit_until_the_new_one_begins(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.join()
    reply = lab.commit({EVENTS_0: offset(5)}, member_id, 1)
    lab.join(member_id)
    assert lab.group.state is GroupState.COMPLETING_REBALANCE
    with pytest.raises(RebalanceInProgressError):
        lab.commit({EVENTS_0: offset(6)}, member_id, 2)
    with pytest.raises(IllegalGenerationError):
        lab.commit({EVENTS_0: offset(6)}, member_id, 1)
    lab.log.settle()
    assert reply.value == {EVENTS_0: NONE}


def test_a_commit_extends_the_session(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    for number in range(3):
        lab.clock.advance(SESSION_MS - 1)
        lab.commit({EVENTS_0: offset(number)}, member_id, 1)
    assert member_id in lab.group.members


def test_metadata_is_limited_in_characters_as_in_java(lab: GroupLab) -> None:
    bound = SETTINGS.offset_metadata_max
    reply = lab.commit(
        {
            EVENTS_0: offset(1, metadata="é" * bound),
            EVENTS_1: offset(2, metadata="x" * (bound + 1)),
            OTHER_0: offset(3, metadata="😀" * (bound // 2 + 1)),
        }
    )
    lab.log.settle()
    too_large = OffsetMetadataTooLargeError.code
    assert reply.value == {EVENTS_0: NONE, EVENTS_1: too_large, OTHER_0: too_large}
    assert set(lab.fetch()) == {EVENTS_0}


def test_nothing_is_written_when_all_metadata_is_too_large(lab: GroupLab) -> None:
    reply = lab.commit({EVENTS_0: offset(1, metadata="x" * (SETTINGS.offset_metadata_max + 1))})
    assert reply.value == {EVENTS_0: OffsetMetadataTooLargeError.code}
    assert lab.log.waiting == []
    assert lab.shard.groups == {}


@pytest.mark.parametrize(
    ("failure", "answered"),
    [
        (NotEnoughReplicasAfterAppendError, CoordinatorNotAvailableError),
        (KafkaStorageError, NotCoordinatorError),
        (MessageTooLargeError, InvalidCommitOffsetSizeError),
        (RequestTimedOutError, RequestTimedOutError),
    ],
)
def test_a_commit_that_fails_leaves_the_old_offset(
    lab: GroupLab, failure: type[ProtocolError], answered: type[ProtocolError]
) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    reply = lab.commit({EVENTS_0: offset(6)})
    lab.log.fail_next(failure("no"))
    assert reply.value == {EVENTS_0: answered.code}
    assert lab.fetch([EVENTS_0], require_stable=True)[EVENTS_0].offset == 5


def test_the_later_record_of_two_commits_applies(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    old = Committed(OffsetValue(offset=3, commit_timestamp_ms=0), -1)
    lab.group.offsets.put(EVENTS_0, old)
    assert lab.fetch([EVENTS_0])[EVENTS_0].offset == 5


def test_offsets_are_counted_when_their_records_are_committed(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5), EVENTS_1: offset(6)})
    assert lab.events == GroupEvents()
    lab.log.settle()
    lab.commit({EVENTS_0: offset(7)})
    lab.log.fail_next(RequestTimedOutError("no"))
    assert (lab.events, lab.group.offsets.count) == (GroupEvents(commits=2), 2)
    lab.delete_offsets(EVENTS_0, OTHER_0)
    lab.log.fail_next(RequestTimedOutError("no"))
    assert lab.events == GroupEvents(commits=2)
    lab.delete_offsets(EVENTS_0, OTHER_0)
    lab.log.settle()
    assert (lab.events, lab.group.offsets.count) == (GroupEvents(commits=2, deletions=1), 1)


# Requested deletions


def test_deleted_offsets_of_an_empty_group_do_not_exist_after_a_reload(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5), EVENTS_1: offset(6)})
    lab.log.settle()
    reply = lab.delete_offsets(EVENTS_0, OTHER_0)
    assert reply.is_parked
    assert lab.fetch([EVENTS_0])[EVENTS_0].offset == 5, "until the tombstone is committed"
    lab.log.settle()
    assert reply.value == {EVENTS_0: NONE, OTHER_0: NONE}, "a partition without an offset is not an error"
    assert set(lab.fetch()) == {EVENTS_1}
    lab.reload()
    assert set(lab.fetch()) == {EVENTS_1}


def test_nothing_is_written_for_partitions_without_an_offset(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    assert lab.delete_offsets(EVENTS_1).value == {EVENTS_1: NONE}
    assert lab.log.waiting == []


def test_an_empty_group_is_removed_with_its_last_offset(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    lab.delete_offsets(EVENTS_0)
    lab.log.settle()
    assert lab.shard.groups == {}
    with pytest.raises(GroupIdNotFoundError):
        lab.delete_offsets(EVENTS_0)


@pytest.mark.parametrize("is_stable", [True, False])
def test_a_consumer_group_keeps_the_offsets_of_topics_that_it_subscribes_to(lab: GroupLab, is_stable: bool) -> None:
    (member_id,) = lab.form(None)
    lab.commit({EVENTS_0: offset(5), OTHER_0: offset(6)}, member_id, 1)
    lab.log.settle()
    if not is_stable:
        lab.join()
        assert lab.group.state is GroupState.PREPARING_REBALANCE
    reply = lab.delete_offsets(EVENTS_0, OTHER_0, EVENTS_1)
    lab.log.settle()
    subscribed = GroupSubscribedToTopicError.code
    assert reply.value == {EVENTS_0: subscribed, OTHER_0: NONE, EVENTS_1: subscribed}
    assert set(lab.fetch()) == {EVENTS_0}


def test_a_consumer_group_keeps_all_offsets_while_its_subscriptions_are_unknown(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.commit({OTHER_0: offset(5)}, member_id, 1)
    lab.log.settle()
    lab.group.subscribed_topics = None
    assert lab.delete_offsets(OTHER_0).value == {OTHER_0: GroupSubscribedToTopicError.code}


def test_a_group_of_another_protocol_type_keeps_its_offsets_until_its_members_leave(lab: GroupLab) -> None:
    reply = lab.join(protocol_type="connect")
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    member_id = reply.value.member_id
    lab.sync(member_id, 1, {member_id: b""})
    lab.log.settle()
    lab.commit({EVENTS_0: offset(5)}, member_id, 1)
    lab.log.settle()
    with pytest.raises(NonEmptyGroupError):
        lab.delete_offsets(EVENTS_0)
    assert set(lab.fetch()) == {EVENTS_0}
    lab.leave(LeavingMember(member_id=member_id))
    lab.log.settle()
    deleting = lab.delete_offsets(EVENTS_0)
    lab.log.settle()
    assert deleting.value == {EVENTS_0: NONE}


def test_a_pending_commit_is_deleted(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.delete_offsets(EVENTS_0)
    lab.log.settle()
    assert lab.fetch() == {}
    lab.reload()
    assert lab.fetch() == {}


def test_a_deletion_whose_tombstones_are_not_stored_fails(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    reply = lab.delete_offsets(EVENTS_0)
    lab.log.fail_next(NotEnoughReplicasAfterAppendError("one is missing"))
    with pytest.raises(CoordinatorNotAvailableError):
        _ = reply.value
    assert lab.fetch()[EVENTS_0].offset == 5


# Expiration


def expire(lab: GroupLab, delay_ms: float) -> set[TopicPartition]:
    """Return the partitions that have an offset after some time has passed and expired offsets were removed."""
    lab.clock.advance(delay_ms)
    lab.shard.expire()
    lab.log.settle()
    return set(lab.fetch())


def test_offsets_without_members_expire_after_their_commit(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    lab.clock.advance(1000)
    lab.commit({EVENTS_1: offset(6)})
    lab.log.settle()
    assert expire(lab, RETENTION_MS - 1001) == {EVENTS_0, EVENTS_1}
    assert expire(lab, 1) == {EVENTS_1}
    assert expire(lab, 1000) == set()
    assert lab.shard.groups == {}


def test_offsets_of_a_group_that_became_empty_expire_together(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.commit({EVENTS_0: offset(5)}, member_id, 1)
    lab.log.settle()
    lab.clock.advance(1000)
    lab.leave(LeavingMember(member_id=member_id))
    lab.log.settle()
    assert expire(lab, RETENTION_MS - 1) == {EVENTS_0}
    assert expire(lab, 1) == set()
    assert lab.shard.groups == {}
    lab.reload()
    assert lab.shard.groups == {}


def test_a_stable_consumer_group_keeps_the_offsets_of_its_topics_only(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.commit({EVENTS_0: offset(5), OTHER_0: offset(6)}, member_id, 1)
    lab.log.settle()
    step_ms = SESSION_MS - 1
    lab.group.members[member_id].session_timeout_ms = RETENTION_MS * 2
    lab.heartbeat(member_id, 1)
    assert expire(lab, step_ms) == {EVENTS_0, OTHER_0}
    assert expire(lab, RETENTION_MS - step_ms) == {EVENTS_0}
    assert lab.group.state is GroupState.STABLE


def test_a_group_of_another_kind_keeps_its_offsets_while_it_has_members(lab: GroupLab) -> None:
    reply = lab.join(protocol_type="connect", session_timeout_ms=RETENTION_MS * 3)
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    member_id = reply.value.member_id
    lab.sync(member_id, 1, {})
    lab.log.settle()
    lab.commit({EVENTS_0: offset(5)}, member_id, 1)
    lab.log.settle()
    assert expire(lab, RETENTION_MS * 2) == {EVENTS_0}


def test_an_old_commit_can_have_a_retention_time(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5, retention_ms=1000), EVENTS_1: offset(6, retention_ms=RETENTION_MS * 2)})
    lab.log.settle()
    assert expire(lab, 999) == {EVENTS_0, EVENTS_1}
    assert expire(lab, 1) == {EVENTS_1}
    lab.reload()
    assert expire(lab, RETENTION_MS) == {EVENTS_1}
    assert expire(lab, RETENTION_MS) == set()


def test_a_pending_offset_does_not_expire(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    lab.clock.advance(RETENTION_MS)
    lab.commit({EVENTS_0: offset(6)})
    assert expire(lab, 0) == {EVENTS_0}
    assert lab.fetch()[EVENTS_0].offset == 6


def test_offsets_are_kept_if_their_tombstones_are_not_stored(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    lab.clock.advance(RETENTION_MS)
    lab.shard.expire()
    lab.log.fail_next(KafkaStorageError("no"))
    assert set(lab.fetch()) == {EVENTS_0}
    assert lab.events.expirations == 0
    assert expire(lab, 0) == set()
    assert lab.events.expirations == 1


def test_an_empty_group_without_offsets_is_removed_at_the_next_check(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.leave(LeavingMember(member_id=member_id))
    lab.log.settle()
    lab.shard.expire()
    assert len(lab.log.waiting) == 1
    lab.log.settle()
    assert lab.shard.groups == {}


def test_a_group_whose_first_commit_failed_is_dropped_without_a_record(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5)})
    lab.log.fail_next(KafkaStorageError("no"))
    lab.shard.expire()
    assert (lab.shard.groups, lab.log.waiting) == ({}, [])


def test_a_group_with_a_pending_member_is_kept(lab: GroupLab) -> None:
    pending = lab.join(requires_known_member_id=True).value.member_id
    lab.shard.expire()
    assert lab.group.pending_members == {pending}


def test_offsets_of_deleted_partitions_are_removed(lab: GroupLab) -> None:
    lab.commit({EVENTS_0: offset(5), OTHER_0: offset(6)})
    lab.log.settle()
    lab.shard.forget_partitions(frozenset({EVENTS_0, EVENTS_1}))
    lab.log.settle()
    assert set(lab.fetch()) == {OTHER_0}
    lab.reload()
    assert set(lab.fetch()) == {OTHER_0}


def test_retention_is_the_setting(lab: GroupLab) -> None:
    lab.settings = replace(SETTINGS, offsets_retention_ms=10)
    lab.shard = lab.load()
    lab.commit({EVENTS_0: offset(5)})
    lab.log.settle()
    assert expire(lab, 9) == {EVENTS_0}
    assert expire(lab, 1) == set()
