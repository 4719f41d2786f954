"""Formats of keys and values: numbers, text, and the records of internal topics."""

from __future__ import annotations

import json
from struct import pack
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.types import TopicPartition
from odradek.cli.logs.decoders import DECODERS, LOG_DECODERS, by_field, offsets_topic, transaction_log
from odradek.client.consumer.group_protocol import Subscription, encode_assignment, encode_subscription
from odradek.coordinator.groups.consumer.consumer_records import changes
from odradek.coordinator.groups.consumer.consumer_values import NEW_GROUP, ConsumerGroupImage, ConsumerMember
from odradek.coordinator.groups.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from odradek.records.v2.record import Record

CONTENT = st.none() | st.binary(max_size=80)


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(5, 0, key, value)


@pytest.mark.parametrize(
    ("kind", "content", "shown"),
    [
        ("string", "ñ".encode(), "ñ"),
        ("string", b"\xff", "\ufffd"),
        ("integer", pack(">i", -3), "-3"),
        ("long", pack(">q", 1 << 40), str(1 << 40)),
        ("double", pack(">d", 1.5), "1.5"),
        ("hex", b"\x00\xff", "00ff"),
        ("long", b"x", "<1 bytes are not a number of 8 bytes: 78>"),
    ],
)
def test_fields(kind: str, content: bytes, shown: str) -> None:
    assert DECODERS[kind](content) == shown


def test_a_null_is_not_shown() -> None:
    assert by_field(DECODERS["string"], DECODERS["hex"])(record(None, b"")) == (None, "")


def test_a_member_of_a_consumer_group() -> None:
    member = ConsumerMember(member_id="m", rack_id="r", topics=frozenset({"b", "a"}), rebalance_timeout_ms=5)
    state = ConsumerGroupImage(members={"m": member}, target={"m": {UUID(int=1): frozenset({3})}})
    metadata, target, current = changes("g", NEW_GROUP, state)
    assert offsets_topic(record(*metadata)) == (
        '{"type":"5","data":{"groupId":"g","memberId":"m"}}',
        '{"version":"0","data":{"instanceId":null,"rackId":"r","clientId":"","clientHost":"",'
        '"subscribedTopicNames":["a","b"],"subscribedTopicRegex":"","rebalanceTimeoutMs":5,"serverAssignor":null}}',
    )
    assert offsets_topic(record(*target)) == (
        '{"type":"7","data":{"groupId":"g","memberId":"m"}}',
        '{"version":"0","data":{"topicPartitions":[{"topicId":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":[3]}]}}',
    )
    assert offsets_topic(record(current[0], None)) == (
        '{"type":"8","data":{"groupId":"g","memberId":"m"}}',
        "<DELETE>",
    )


def test_a_committed_offset() -> None:
    key = encode_offset_key(OffsetKey("billing", "orders", 3))
    value = encode_offset_value(OffsetValue(offset=7, metadata="m", commit_timestamp_ms=9, leader_epoch=2))
    shown_key, shown_value = offsets_topic(record(key, value))
    assert shown_key == '{"type":"1","data":{"group":"billing","topic":"orders","partition":3}}'
    fields = '{"offset":7,"leaderEpoch":2,"metadata":"m","commitTimestamp":9}'
    assert shown_value == f'{{"version":"3","data":{fields}}}'
    assert offsets_topic(record(key, None)) == (shown_key, "<DELETE>")
    expiring = encode_offset_value(OffsetValue(offset=7, commit_timestamp_ms=9, expire_timestamp_ms=11))
    assert '"commitTimestamp":9,"expireTimestamp":11' in str(offsets_topic(record(key, expiring))[1])


def group(protocol_type: str, version: int = 3) -> dict[str, object]:
    member = MemberValue(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1,
        session_timeout_ms=2,
        subscription=encode_subscription(Subscription(topics=("orders",))),
        assignment=encode_assignment([TopicPartition("orders", 1)]),
    )
    value = GroupValue(protocol_type=protocol_type, generation=4, protocol="range", leader="m", members=(member,))
    _, shown = offsets_topic(record(encode_group_key(GroupKey("g")), encode_group_value(value, version)))
    data: dict[str, object] = json.loads(str(shown))["data"]
    return data


def test_a_description_of_a_consumer_group_has_metadata_and_assignments() -> None:
    (member,) = group("consumer")["members"]  # type: ignore[misc]
    assert member["subscription"]["topics"] == ["orders"]
    assert member["assignment"] == {
        "assignedPartitions": [{"topic": "orders", "partitions": [1]}],
        "userData": None,
    }


def test_metadata_of_other_protocols_is_not_decoded() -> None:
    (member,) = group("connect")["members"]  # type: ignore[misc]
    assert isinstance(member["subscription"], str)


def test_old_versions_of_a_group_have_fewer_fields() -> None:
    old = group("consumer", version=0)
    assert "currentStateTimestamp" not in old
    (member,) = old["members"]  # type: ignore[misc]
    assert not {"groupInstanceId", "rebalanceTimeout"} & set(member)


def test_the_state_of_a_transaction() -> None:
    key = pack(">hh2s", 0, 2, b"tx")
    partitions = pack(">ih1sii", 1, 1, b"t", 1, 4)
    value = pack(">hqhib", 0, 11, 2, 60_000, 1) + partitions + pack(">qq", 33, 22)
    assert transaction_log(record(key, value)) == (
        "transaction_metadata::transactionalId=tx",
        "producerId:11,producerEpoch:2,state=Ongoing,partitions=[t-4],txnLastUpdateTimestamp=33,txnTimeoutMs=60000",
    )
    ended = pack(">hqhib", 0, 11, 2, 60_000, 9) + pack(">iqq", -1, 33, 22)
    assert "state=Unknown(9),partitions=[]," in str(transaction_log(record(key, ended))[1])
    assert transaction_log(record(key, None))[1] == "<DELETE>"
    assert transaction_log(record(pack(">h", 9), b"")) == ("unknown::version=9", None)


def test_keys_of_other_types_are_skipped() -> None:
    assert offsets_topic(record(pack(">h", 9), b"")) == ("Unknown record type 9 at offset 5, skipping.", None)
    assert str(offsets_topic(record(None, b""))[0]).startswith("Error at offset 5, skipping.")


@given(key=CONTENT, value=CONTENT, kind=st.sampled_from(sorted(LOG_DECODERS)))
def test_no_content_makes_a_decoder_fail(key: bytes | None, value: bytes | None, kind: str) -> None:
    LOG_DECODERS[kind](record(key, value))


@given(version=st.integers(0, 3), rest=st.binary(max_size=60), kind=st.sampled_from(sorted(LOG_DECODERS)))
def test_no_value_of_a_known_key_makes_a_decoder_fail(version: int, rest: bytes, kind: str) -> None:
    keys = {"offsets-topic": encode_group_key(GroupKey("g")), "transaction-log": pack(">hh1s", 0, 1, b"t")}
    shown, _ = LOG_DECODERS[kind](record(keys[kind], pack(">h", version) + rest))
    assert shown is not None
