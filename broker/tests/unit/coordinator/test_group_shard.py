"""All groups of a partition: loading, unloading, describing, deleting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.base.errors import (
    NONE,
    CorruptMessageError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidRecordError,
    KafkaStorageError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnstableOffsetCommitError,
)
from odradek.base.types import TopicPartition
from odradek.compression import Codec
from odradek.coordinator.groups.classic.classic_group import GroupState
from odradek.coordinator.groups.group_records import (
    GroupKey,
    OffsetKey,
    OffsetValue,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.groups.group_replay import Replay
from odradek.coordinator.groups.group_requests import LeavingMember, OffsetToCommit
from odradek.records.legacy.writing import encode_set, encode_wrapper
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek_testkit.groups import RANGE, SESSION_MS, SETTINGS, GroupLab, Reply, visible

EVENTS_0, EVENTS_1 = TopicPartition("events", 0), TopicPartition("events", 1)
FIVE = {EVENTS_0: OffsetToCommit(offset=5)}


@pytest.fixture
def lab() -> GroupLab:
    return GroupLab()


# Loading and unloading


def test_a_stable_group_continues_after_a_move(lab: GroupLab) -> None:
    member_id, static_id = lab.form(None, "static")
    lab.commit(FIVE, member_id, 1)
    lab.log.settle()
    before = visible(lab.shard)
    lab.reload()
    assert visible(lab.shard) == before
    lab.heartbeat(member_id, 1)
    lab.heartbeat(static_id, 1, "static")
    assert lab.sync(static_id, 1).value.assignment == b"assigned to " + static_id.encode()
    assert lab.fetch()[EVENTS_0].offset == 5


def test_members_of_a_loaded_group_expire_without_heartbeats(lab: GroupLab) -> None:
    member_id, silent_id = lab.form(None, None)
    lab.reload()
    lab.clock.advance(SESSION_MS - 1)
    lab.heartbeat(member_id, 1)
    lab.clock.advance(2)
    assert list(lab.group.members) == [member_id]
    assert silent_id not in lab.group.members


def test_a_rebalance_in_progress_does_not_survive_a_reload(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.join()
    lab.join(member_id)
    lab.reload()
    assert (lab.group.state, lab.group.generation) == (GroupState.STABLE, 1)
    with pytest.raises(IllegalGenerationError):
        lab.heartbeat(member_id, 2)


def test_waiting_requests_end_when_the_partition_moves(lab: GroupLab) -> None:
    member_id, other_id = lab.form(None, None)
    joining = lab.join()
    committing = lab.commit(FIVE, member_id, 1)
    other = GroupLab(clock=lab.clock)
    other.group_id = "other"
    replies = [other.join(), other.join()]
    lab.clock.advance(2 * SETTINGS.initial_rebalance_delay_ms)
    syncing = other.sync(replies[1].value.member_id, 1)
    lab.shard.on_unloaded()
    other.shard.on_unloaded()
    assert joining.value.error_code == NotCoordinatorError.code
    with pytest.raises(NotCoordinatorError):
        _ = syncing.value
    lab.log.fail_next(NotCoordinatorError("moved"))
    assert committing.value == {EVENTS_0: NotCoordinatorError.code}
    assert (lab.shard.groups, lab.heartbeats.size, lab.rebalances.size) == ({}, 0, 0)
    assert (other.heartbeats.size, other.rebalances.size) == (0, 0)
    assert other_id != member_id


def test_timeouts_of_an_unloaded_group_do_not_affect_the_reloaded_one(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.clock.advance(SESSION_MS // 2)
    lab.reload()
    lab.clock.advance(SESSION_MS // 2 + 1)
    assert member_id in lab.group.members


def test_an_assignment_that_is_answered_after_the_move_does_nothing(lab: GroupLab) -> None:
    reply = lab.join()
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    syncing = lab.sync(reply.value.member_id, 1, {})
    lab.shard.on_unloaded()
    lab.log.settle()
    with pytest.raises(NotCoordinatorError):
        _ = syncing.value


def test_a_static_member_that_is_answered_after_the_move_does_nothing(lab: GroupLab) -> None:
    lab.form("static")
    reply = lab.join(instance_id="static")
    lab.shard.on_unloaded()
    lab.log.fail_next(NotCoordinatorError("moved"))
    assert reply.value.error_code == NotCoordinatorError.code
    assert lab.heartbeats.size == 0


def record_set(*records: tuple[bytes, bytes | None], offset: int = 0, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    for key, value in records:
        builder.append(key, value, timestamp_ms=0)
    return builder.build(base_offset=offset, producer_id=producer_id, is_transactional=producer_id >= 0)


def offset_record(offset: int | None, topic_partition: TopicPartition = EVENTS_0) -> tuple[bytes, bytes | None]:
    value = None if offset is None else encode_offset_value(OffsetValue(offset=offset, commit_timestamp_ms=0))
    return encode_offset_key(OffsetKey("group", *topic_partition)), value


def test_records_of_other_types_and_unreadable_ones_are_skipped(lab: GroupLab) -> None:
    lab.log.record_sets = [
        record_set(
            offset_record(5),
            (b"\x00\x03new kind", b"whatever"),
            (encode_group_key(GroupKey("group")), b"\x00\x63unknown version"),
            (b"\x00\x01cut", b""),
            offset_record(6, EVENTS_1),
        )
    ]
    lab.reload()
    assert {key: value.offset for key, value in lab.fetch().items()} == {EVENTS_0: 5, EVENTS_1: 6}
    assert lab.group.state is GroupState.EMPTY


def test_a_damaged_batch_stops_the_load(lab: GroupLab) -> None:
    damaged = bytearray(record_set(offset_record(5)))
    damaged[-1] ^= 1
    lab.log.record_sets = [bytes(damaged)]
    with pytest.raises(CorruptMessageError):
        lab.load()


def test_a_log_from_before_format_2_is_loaded(lab: GroupLab) -> None:
    first = [(number, 1, *offset_record(number)) for number in range(3)]
    second = [(3, 1, *offset_record(6, EVENTS_1)), (4, 1, *offset_record(7))]
    lab.log.record_sets = [encode_set(first, magic=0) + encode_set(second, magic=1, codec=Codec.SNAPPY)]
    lab.reload()
    assert {key: value.offset for key, value in lab.fetch().items()} == {EVENTS_0: 7, EVENTS_1: 6}
    assert list(Replay().read(lab.log.record_sets[0])) == [1, 1, 1, 2]


def test_a_corrupt_old_message_stops_the_load(lab: GroupLab) -> None:
    damaged = bytearray(encode_set([(0, 1, *offset_record(5))], magic=1))
    damaged[-1] ^= 1
    lab.log.record_sets = [bytes(damaged)]
    with pytest.raises(CorruptMessageError):
        lab.load()
    lab.log.record_sets = [encode_wrapper((0, 1, None, b""), magic=1, codec=Codec.GZIP)]
    with pytest.raises(InvalidRecordError):
        lab.load()


def test_offsets_of_transactions_are_applied_at_their_commit_marker(lab: GroupLab) -> None:
    def marker(control_type: ControlType, producer_id: int, offset: int) -> bytes:
        return marker_batch(
            control_type,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=0,
            base_offset=offset,
        )

    lab.log.record_sets = [
        record_set(offset_record(1), offset_record(1, EVENTS_1), offset=0),
        record_set(offset_record(2), offset=2, producer_id=7),
        record_set(offset_record(3), offset=3, producer_id=8),
        record_set(offset_record(4, EVENTS_1), offset=4, producer_id=9),
        marker(ControlType.COMMIT, 7, 5),
        marker(ControlType.ABORT, 8, 6),
    ]
    lab.reload()
    assert {key: value.offset for key, value in lab.fetch().items()} == {EVENTS_0: 2, EVENTS_1: 1}
    stable = lab.fetch(require_stable=True)
    assert stable[EVENTS_0].offset == 2
    assert stable[EVENTS_1].error_code == UnstableOffsetCommitError.code


def test_a_commit_after_a_transactional_one_overrides_its_marker(lab: GroupLab) -> None:
    lab.log.record_sets = [
        record_set(offset_record(2), offset=0, producer_id=7),
        record_set(offset_record(9), offset=1),
        marker_batch(
            ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=2
        ),
    ]
    lab.reload()
    assert lab.fetch()[EVENTS_0].offset == 9


# Describing and deleting


def test_a_stable_group_is_described_with_its_members(lab: GroupLab) -> None:
    (member_id,) = lab.form("static")
    description = lab.shard.describe("group")
    assert (description.state, description.protocol_type, description.protocol) == ("Stable", "consumer", "range")
    (member,) = description.members
    assert (member.member_id, member.instance_id, member.client_id) == (member_id, "static", "client")
    assert (member.metadata, member.assignment) == (RANGE[0][1], b"assigned to " + member_id.encode())


def test_a_group_that_rebalances_is_described_without_assignments(lab: GroupLab) -> None:
    lab.form(None)
    lab.join()
    description = lab.shard.describe("group")
    assert (description.state, description.protocol) == ("PreparingRebalance", "")
    assert {(member.metadata, member.assignment) for member in description.members} == {(b"", b"")}


def test_an_unknown_group_is_dead(lab: GroupLab) -> None:
    assert lab.shard.describe("nobody").state == "Dead"


def test_an_empty_group_is_deleted_with_its_offsets(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.commit(FIVE, member_id, 1)
    lab.log.settle()
    lab.leave(LeavingMember(member_id=member_id))
    lab.log.settle()
    reply: Reply[None] = Reply()
    lab.shard.delete("group", reply)
    assert reply.is_parked
    assert lab.fetch()[EVENTS_0].offset == 5
    lab.log.settle()
    assert reply.value is None
    assert lab.shard.groups == {}
    lab.reload()
    assert lab.shard.groups == {}


def test_only_empty_groups_that_exist_are_deleted(lab: GroupLab) -> None:
    with pytest.raises(GroupIdNotFoundError):
        lab.shard.delete("group", Reply())
    lab.form(None)
    with pytest.raises(NonEmptyGroupError):
        lab.shard.delete("group", Reply())


def test_a_group_is_kept_if_its_deletion_is_not_stored(lab: GroupLab) -> None:
    lab.commit(FIVE)
    lab.log.settle()
    reply: Reply[None] = Reply()
    lab.shard.delete("group", reply)
    lab.log.fail_next(KafkaStorageError("no"))
    with pytest.raises(NotCoordinatorError):
        _ = reply.value
    assert lab.fetch()[EVENTS_0].offset == 5


def test_a_member_that_joins_while_its_group_is_deleted_keeps_it(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.leave(LeavingMember(member_id=member_id))
    lab.log.settle()
    lab.shard.delete("group", Reply())
    joining = lab.join()
    lab.log.settle()
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    assert joining.value.generation == 3
    lab.sync(joining.value.member_id, 3, {})
    lab.log.settle()
    before = visible(lab.shard)
    lab.reload()
    assert visible(lab.shard) == before
    assert lab.group.generation == 3


def test_an_offset_committed_during_the_deletion_of_its_group_is_kept(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.leave(LeavingMember(member_id=member_id))
    lab.log.settle()
    lab.shard.delete("group", Reply())
    reply = lab.commit(FIVE)
    lab.log.settle()
    assert reply.value == {EVENTS_0: NONE}
    before = visible(lab.shard)
    lab.reload()
    assert visible(lab.shard) == before
    assert lab.fetch()[EVENTS_0].offset == 5


def test_a_generation_after_the_tombstones_is_kept(lab: GroupLab) -> None:
    (member_id,) = lab.form(None)
    lab.leave(LeavingMember(member_id=member_id))
    lab.log.settle()
    lab.shard.expire()
    lab.join()
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms + SESSION_MS + 1)
    assert (lab.group.state, lab.group.generation) == (GroupState.EMPTY, 4)
    lab.log.settle()
    before = visible(lab.shard)
    lab.reload()
    assert visible(lab.shard) == before
    assert lab.group.generation == 4


def test_a_second_join_of_a_waiting_member_replaces_the_first(lab: GroupLab) -> None:
    first = lab.join()
    (member_id,) = lab.group.members
    second = lab.join(member_id)
    assert first.value.error_code == RebalanceInProgressError.code
    lab.clock.advance(SETTINGS.initial_rebalance_delay_ms)
    assert second.value.generation == 1


def test_the_maximum_group_size_applies_to_loaded_groups(lab: GroupLab) -> None:
    lab.form(None, None)
    lab.settings = replace(SETTINGS, max_size=1)
    lab.reload()
    assert lab.group.state is GroupState.PREPARING_REBALANCE
