"""Replays records of consumer groups among other records, some of which are unknown or invalid."""

from __future__ import annotations

from random import Random

from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.coordinator.coordinator_ports import KeyValue
from odradek.coordinator.groups.consumer.consumer_record_values import ConsumerRecordType, encode_current
from odradek.coordinator.groups.consumer.consumer_records import (
    ConsumerRecordKey,
    changes,
    encode_consumer_key,
)
from odradek.coordinator.groups.consumer.consumer_values import NEW_GROUP, ConsumerMember
from odradek.coordinator.groups.group_records import GroupKey, GroupValue, encode_group_key, encode_group_value
from odradek.coordinator.groups.group_replay import Replay
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.consumer_groups.consumer_states import TOPICS, random_state

STATE = random_state(Random(5))
GROUP = ConsumerRecordType.GROUP_METADATA
CURRENT = ConsumerRecordType.CURRENT_MEMBER_ASSIGNMENT


def replayed(*records: KeyValue) -> Replay:
    builder = BatchBuilder(limit_bytes=1 << 20)
    for key, value in records:
        assert builder.append(key, value, timestamp_ms=0)
    replay = Replay()
    assert list(
        replay.read(builder.build(producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH, base_sequence=NO_SEQUENCE))
    ) == [len(records)]
    return replay


def key(record_type: ConsumerRecordType, name: str = "") -> bytes:
    return encode_consumer_key(ConsumerRecordKey(record_type, "g", name))


def test_groups_of_both_protocols_are_rebuilt() -> None:
    value = GroupValue(protocol_type="consumer", generation=3, protocol=None, leader=None)
    replay = replayed(
        *changes("g", NEW_GROUP, STATE),
        (encode_group_key(GroupKey("classic")), encode_group_value(value)),
        *changes("h", NEW_GROUP, STATE),
    )
    assert replay.groups == {"classic": value}
    assert {group_id: builder.build() for group_id, builder in replay.consumer_groups.items()} == {
        "g": STATE,
        "h": STATE,
    }
    assert (replay.unknown_keys, replay.unreadable) == (0, 0)


def test_a_removed_group_leaves_nothing() -> None:
    replay = replayed(*changes("g", NEW_GROUP, STATE), *changes("g", STATE, NEW_GROUP))
    assert replay.consumer_groups == {}


def test_tombstones_of_unknown_groups_are_ignored() -> None:
    replay = replayed(*changes("g", STATE, NEW_GROUP))
    assert replay.consumer_groups == {}
    assert replay.unreadable == 0


def test_a_member_without_subscription_exists() -> None:
    member = ConsumerMember(
        member_id="m", rebalance_timeout_ms=-1, epoch=3, assigned={TOPICS[0].topic_id: frozenset({1})}
    )
    replay = replayed((key(CURRENT, "m"), encode_current(member)))
    assert replay.consumer_groups["g"].build().members == {"m": member}


def test_unknown_and_invalid_records_are_skipped_and_counted() -> None:
    share_group = (10).to_bytes(2, "big") + b"\x00\x01g"
    current = encode_current(ConsumerMember(member_id="m", rebalance_timeout_ms=-1))
    unknown_state = current[:10] + b"\x7f" + current[11:]
    replay = replayed(
        (key(GROUP), b"\x00\x00\x00\x00\x00\x07\x00"),
        (share_group, b"\x00\x00\x00\x00\x00\x07\x00"),
        (key(GROUP), b"\x00\x01\x00\x00\x00\x08\x00"),
        (key(GROUP), b"\x00\x00\x00\x00"),
        (key(GROUP) + b"\x00", None),
        (key(CURRENT, "m"), unknown_state),
    )
    assert (replay.unknown_keys, replay.unreadable) == (1, 4)
    assert replay.consumer_groups["g"].build().epoch == 7
    assert replay.consumer_groups["g"].build().members == {}


def test_an_epoch_with_the_hash_of_kafka_4_1_is_read() -> None:
    replay = replayed((key(GROUP), bytes.fromhex("0000 00000007 01 00 08 0102030405060708")))
    assert replay.consumer_groups["g"].build().epoch == 7
