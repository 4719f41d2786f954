"""Records of a consumer group, compared with bytes that the message classes of Apache Kafka 3.9.1 and 4.1.0 wrote.

Only 4.1.0 has the record of the regular expression.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.base.errors import MalformedFrameError
from odradek.coordinator.groups.consumer.consumer_record_values import decode_topics
from odradek.coordinator.groups.consumer.consumer_records import ConsumerRecordKey, StateBuilder, changes
from odradek.coordinator.groups.consumer.consumer_values import (
    NEW_GROUP,
    ClassicMetadata,
    ClassicProtocol,
    ConsumerGroupImage,
    ConsumerMember,
    ReconciliationState,
    ResolvedRegex,
    TopicShape,
)
from odradek.coordinator.groups.group_records import decode_key

A, B = UUID(int=(0x1234 << 64) + 1), UUID(int=(0x1234 << 64) + 2)
FULL = ConsumerMember(
    member_id="m-1",
    instance_id="inst-1",
    rack_id="a",
    client_id="client",
    client_host="/127.0.0.1",
    topics=frozenset({"orders", "flights"}),
    regex="ord.*",
    rebalance_timeout_ms=300_000,
    assignor="range",
    classic=ClassicMetadata(session_timeout_ms=45_000, protocols=(ClassicProtocol("range", b"\x00\x01"),)),
    epoch=7,
    previous_epoch=6,
    state=ReconciliationState.UNREVOKED_PARTITIONS,
    assigned={B: frozenset({3, 0}), A: frozenset({1})},
    revoking={A: frozenset({2})},
)
PLAIN = ConsumerMember(member_id="m-2", rebalance_timeout_ms=1, epoch=-2)
STATE = ConsumerGroupImage(
    epoch=8,
    assignment_epoch=7,
    members={"m-1": FULL, "m-2": PLAIN},
    target={"m-1": {B: frozenset({0, 3})}},
    topics={
        "orders": TopicShape(B, "orders", 4),
        "flights": TopicShape(A, "flights", 3, (frozenset({"b", "a"}), frozenset(), frozenset({"b"}))),
    },
    regexes={"ord.*": ResolvedRegex(frozenset({"orders"}), 5, 1_700_000_000_000)},
)
RECORDS = (
    (
        "000500076772c3bc70706500036d2d31",
        "000007696e73742d31026107636c69656e740b2f3132372e302e302e310308666c6967687473076f7264657273066f72"
        "642e2a000493e00672616e6765010011010000afc8020672616e67650300010000",
    ),
    (
        "000500076772c3bc70706500036d2d32",
        "0000000001010101000000010000",
    ),
    (
        "001000076772c3bc70706500056f72642e2a",
        "000002076f726465727300000000000000050000018bcfe5680000",
    ),
    (
        "000400076772c3bc707065",
        "0000030000000000001234000000000000000108666c6967687473000000030300000000030261026200000000020202"
        "62000000000000000012340000000000000002076f726465727300000004010000",
    ),
    (
        "000300076772c3bc707065",
        "00000000000800",
    ),
    (
        "000700076772c3bc70706500036d2d31",
        "000002000000000000123400000000000000020300000000000000030000",
    ),
    (
        "000600076772c3bc707065",
        "00000000000700",
    ),
    (
        "000800076772c3bc70706500036d2d31",
        "000000000007000000060103000000000000123400000000000000010200000001000000000000001234000000000000"
        "000203000000000000000300020000000000001234000000000000000102000000020000",
    ),
    (
        "000800076772c3bc70706500036d2d32",
        "0000fffffffe0000000000010100",
    ),
)


def test_the_records_are_those_of_kafka() -> None:
    assert [(key.hex(), value and value.hex()) for key, value in changes("grüppe", NEW_GROUP, STATE)] == list(RECORDS)


def test_the_records_of_kafka_are_read() -> None:
    builder = StateBuilder()
    for encoded, value in RECORDS:
        key = decode_key(bytes.fromhex(encoded))
        assert isinstance(key, ConsumerRecordKey)
        builder.apply(key, bytes.fromhex(value))
    assert builder.build() == STATE


@pytest.mark.parametrize("count", ["ffffffff", "7fffffff"])
def test_a_topic_cannot_claim_racks_of_too_many_partitions(count: str) -> None:
    data = "0000 02 00000000000000000000000000000001 02 61" + count + "02 00000000 02 02 62 00 00 00"
    with pytest.raises(MalformedFrameError, match="partitions with racks"):
        decode_topics(bytes.fromhex(data))
