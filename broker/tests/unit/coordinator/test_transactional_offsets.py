"""Offsets in transactions: allowed commits, visibility, markers and results in any order, deletion and expiry."""

from __future__ import annotations

import pytest

from odradek.base.errors import (
    NONE,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    NetworkError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    OffsetMetadataTooLargeError,
    ProducerFencedError,
    ProtocolError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.groups.classic.classic_group import GroupState
from odradek.coordinator.groups.group_offsets import MAX_OPEN
from odradek.coordinator.groups.group_requests import LeavingMember, OffsetToCommit
from odradek_testkit.groups import SESSION_MS, SETTINGS, GroupLab, Reply, visible

EVENTS_0, EVENTS_1, OTHER_0 = TopicPartition("events", 0), TopicPartition("events", 1), TopicPartition("other", 0)
RETENTION_MS = SETTINGS.offsets_retention_ms


@pytest.fixture
def lab() -> GroupLab:
    return GroupLab()


def at(number: int, topic_partition: TopicPartition = EVENTS_0) -> dict[TopicPartition, OffsetToCommit]:
    return {topic_partition: OffsetToCommit(offset=number)}


def committed(lab: GroupLab, topic_partition: TopicPartition = EVENTS_0) -> int:
    """Return the committed offset in memory, after checking that a reload returns the same state."""
    assert visible(lab.load()) == visible(lab.shard)
    return lab.fetch([topic_partition])[topic_partition].offset


def is_stable(lab: GroupLab, topic_partition: TopicPartition = EVENTS_0) -> bool:
    code = lab.fetch([topic_partition], require_stable=True)[topic_partition].error_code
    assert code in (NONE, UnstableOffsetCommitError.code)
    return code == NONE


# Allowed commits


def test_an_older_client_names_no_member(lab: GroupLab) -> None:
    lab.form(None)
    reply = lab.commit_transactional(at(5))
    lab.log.settle()
    assert reply.value == {EVENTS_0: NONE}


def test_a_member_commits_also_while_its_group_rebalances(lab: GroupLab) -> None:
    (member_id,) = lab.form("static")
    lab.join()
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    reply = lab.commit_transactional(at(5), member_id, 1, instance_id="static")
    lab.join(member_id, instance_id="static")
    assert lab.group.state is GroupState.COMPLETING_REBALANCE
    again = lab.commit_transactional(at(6), member_id, 2, instance_id="static")
    lab.log.settle()
    assert reply.value == again.value == {EVENTS_0: NONE}


@pytest.mark.parametrize(
    ("member_id", "generation", "instance_id", "error"),
    [
        ("nobody", 1, None, UnknownMemberIdError),
        ("nobody", -1, None, UnknownMemberIdError),
        ("", 1, None, UnknownMemberIdError),
        ("", -1, "unknown", UnknownMemberIdError),
        ("", -1, "static", FencedInstanceIdError),
        (None, -1, None, IllegalGenerationError),
        (None, 0, None, IllegalGenerationError),
        (None, 2, None, IllegalGenerationError),
    ],
)
def test_refused_commits(
    lab: GroupLab, member_id: str | None, generation: int, instance_id: str | None, error: type[ProtocolError]
) -> None:
    (own_id,) = lab.form("static")
    given = own_id if member_id is None else member_id
    with pytest.raises(error):
        lab.commit_transactional(at(5), given, generation, instance_id=instance_id)
    assert lab.log.waiting == []
    assert is_stable(lab)


def test_a_generation_of_an_unknown_group_is_refused(lab: GroupLab) -> None:
    with pytest.raises(UnknownMemberIdError):
        lab.commit_transactional(at(5), "somebody", 3)
    assert lab.shard.groups == {}


def test_a_commit_does_not_extend_the_session(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.clock.advance(SESSION_MS - 1)
    lab.commit_transactional(at(5), member_id, 1)
    lab.clock.advance(1)
    assert list(lab.group.members) == []


def test_only_partitions_with_too_long_metadata_are_refused(lab: GroupLab) -> None:
    long = OffsetToCommit(offset=1, metadata="x" * (SETTINGS.offset_metadata_max + 1))
    assert lab.commit_transactional({EVENTS_0: long}).value == {EVENTS_0: OffsetMetadataTooLargeError.code}
    assert (lab.log.waiting, lab.shard.groups) == ([], {})
    reply = lab.commit_transactional({EVENTS_0: long, EVENTS_1: OffsetToCommit(offset=2)})
    lab.log.settle()
    lab.end()
    assert reply.value == {EVENTS_0: OffsetMetadataTooLargeError.code, EVENTS_1: NONE}
    assert (committed(lab), committed(lab, EVENTS_1)) == (-1, 2)


# Appends


def test_records_belong_to_the_transaction(lab: GroupLab) -> None:
    lab.commit_transactional(at(5))
    ((_, _, transaction),) = lab.log.waiting
    assert transaction == TransactionalWriter("producer-7", 7, 0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NetworkError, CoordinatorLoadInProgressError.code),
        (NotLeaderOrFollowerError, NotCoordinatorError.code),
        (ProducerFencedError, InvalidProducerEpochError.code),
        (InvalidTransactionStateError, InvalidTransactionStateError.code),
        (ConcurrentTransactionsError, ConcurrentTransactionsError.code),
    ],
)
def test_a_failed_append_changes_nothing(lab: GroupLab, error: type[ProtocolError], code: int) -> None:
    lab.commit(at(1))
    lab.log.settle()
    reply = lab.commit_transactional(at(5))
    assert not is_stable(lab)
    lab.log.fail_next(error("no"))
    assert reply.value == {EVENTS_0: code}
    assert is_stable(lab)
    lab.end()
    assert committed(lab) == 1


# Visibility


def test_offsets_are_unstable_until_the_transaction_ends(lab: GroupLab) -> None:
    lab.commit(at(1))
    lab.log.settle()
    reply = lab.commit_transactional(at(5))
    assert (lab.fetch()[EVENTS_0].offset, is_stable(lab)) == (1, False)
    lab.log.settle()
    assert reply.value == {EVENTS_0: NONE}
    assert (committed(lab), is_stable(lab), is_stable(lab, EVENTS_1)) == (1, False, True)
    lab.end()
    assert (committed(lab), is_stable(lab)) == (5, True)


def test_offsets_of_an_aborted_transaction_are_dropped(lab: GroupLab) -> None:
    lab.commit_transactional(at(5))
    lab.log.settle()
    lab.end(is_commit=False)
    assert (committed(lab), is_stable(lab)) == (-1, True)
    lab.shard.expire()
    assert lab.shard.groups == {}


def test_the_last_offset_of_a_transaction_counts(lab: GroupLab) -> None:
    for number in range(MAX_OPEN + 3):
        lab.commit_transactional(at(number))
    lab.log.settle()
    lab.end()
    assert committed(lab) == MAX_OPEN + 2


def test_a_marker_ends_the_transaction_in_all_groups_of_its_producer(lab: GroupLab) -> None:
    for group_id in ("one", "two"):
        lab.group_id = group_id
        lab.commit_transactional(at(5))
        lab.commit_transactional(at(6, OTHER_0), producer_id=8)
    lab.log.settle()
    lab.end(7)
    for group_id in ("one", "two"):
        lab.group_id = group_id
        assert (committed(lab), committed(lab, OTHER_0)) == (5, -1)
        assert (is_stable(lab), is_stable(lab, OTHER_0)) == (True, False)


def test_a_plain_commit_after_the_transactional_one_is_kept(lab: GroupLab) -> None:
    lab.commit_transactional(at(5))
    lab.commit(at(9))
    lab.log.settle()
    lab.end()
    assert committed(lab) == 9


# Markers and results in any order


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_result_may_arrive_after_the_marker_that_ends_its_transaction(lab: GroupLab, is_commit: bool) -> None:
    reply = lab.commit_transactional(at(5))
    lab.log.write_next()
    lab.end(is_commit=is_commit)
    assert not is_stable(lab)
    lab.log.tell_next()
    assert reply.value == {EVENTS_0: NONE}
    assert (committed(lab), is_stable(lab)) == (5 if is_commit else -1, True)


def test_a_marker_does_not_end_the_next_transaction(lab: GroupLab) -> None:
    lab.commit_transactional(at(5))
    lab.log.settle()
    marker = lab.log.write_marker(7, is_commit=True)
    lab.commit_transactional(at(6))
    lab.log.settle()
    lab.shard.complete_transaction(7, True, marker)
    assert (committed(lab), is_stable(lab)) == (5, False)
    lab.end(is_commit=False)
    assert (committed(lab), is_stable(lab)) == (5, True)


def test_late_results_of_two_transactions(lab: GroupLab) -> None:
    lab.commit_transactional(at(5))
    lab.log.write_next()
    lab.end(is_commit=True)
    lab.commit_transactional(at(6))
    lab.log.write_next()
    lab.end(is_commit=False)
    lab.commit_transactional(at(7))
    lab.log.settle()
    assert (committed(lab), is_stable(lab)) == (5, False)
    lab.end()
    assert committed(lab) == 7


def test_a_marker_that_the_replay_has_seen_changes_nothing(lab: GroupLab) -> None:
    lab.commit_transactional(at(5))
    lab.log.settle()
    marker = lab.log.write_marker(7, is_commit=True)
    lab.commit_transactional(at(6))
    lab.log.settle()
    lab.reload()
    before = visible(lab.shard)
    lab.shard.complete_transaction(7, True, marker)
    assert visible(lab.shard) == before
    assert (committed(lab), is_stable(lab)) == (5, False)


def test_a_marker_that_the_replay_has_not_seen(lab: GroupLab) -> None:
    lab.commit_transactional(at(5))
    lab.log.settle()
    lab.reload()
    lab.end()
    assert (committed(lab), is_stable(lab)) == (5, True)


def test_a_result_after_the_partition_has_moved(lab: GroupLab) -> None:
    reply = lab.commit_transactional(at(5))
    old = lab.shard
    lab.log.write_next()
    lab.reload()
    lab.log.tell_next()
    assert reply.value == {EVENTS_0: NONE}
    assert (old.groups, is_stable(lab)) == ({}, False)


# Deletion and expiry


def test_a_group_with_open_offsets_neither_expires_nor_loses_them(lab: GroupLab) -> None:
    lab.commit(at(1))
    lab.log.settle()
    lab.commit_transactional(at(5))
    lab.clock.advance(RETENTION_MS + 1)
    lab.shard.expire()
    lab.log.settle()
    lab.shard.expire()
    lab.log.settle()
    assert committed(lab) == 1
    lab.end()
    assert committed(lab) == 5


def test_open_offsets_of_a_deleted_group_stay_deleted(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.leave(LeavingMember(member_id=member_id))
    lab.commit_transactional(at(5))
    lab.log.settle()
    lab.commit_transactional(at(6, EVENTS_1))
    reply: Reply[None] = Reply()
    lab.shard.delete("group", reply)
    lab.log.settle()
    assert (reply.value, lab.shard.groups) == (None, {})
    lab.end()
    assert committed(lab) == -1


def test_a_commit_during_the_deletion_of_its_group_is_kept(lab: GroupLab) -> None:
    lab.commit(at(1))
    lab.log.settle()
    lab.shard.delete("group", Reply())
    lab.commit_transactional(at(5))
    lab.log.settle()
    lab.end()
    assert committed(lab) == 5


@pytest.mark.parametrize("is_partition_gone", [True, False])
def test_a_deleted_open_offset_does_not_come_back(lab: GroupLab, is_partition_gone: bool) -> None:
    lab.commit_transactional({**at(5), **at(6, OTHER_0)})
    lab.log.settle()
    if is_partition_gone:
        lab.shard.forget_partitions(frozenset({EVENTS_0}))
    else:
        lab.delete_offsets(EVENTS_0)
    lab.log.settle()
    assert (is_stable(lab), is_stable(lab, OTHER_0)) == (True, False)
    lab.end()
    assert (committed(lab), committed(lab, OTHER_0)) == (-1, 6)
