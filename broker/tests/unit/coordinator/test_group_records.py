"""Keys and values of the group log, compared with bytes that the message classes of Apache Kafka 3.9.1 wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import MalformedFrameError
from odradek.base.types import TopicPartition
from odradek.coordinator.groups.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    UnknownKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.groups.group_requests import GroupSettings, OffsetToCommit
from odradek.records.v2.batch import read_header
from odradek.records.v2.record import decode_batch
from odradek_testkit.groups import GroupLab

OFFSET_VALUES = {
    0: "00000000011f71fb04cb00056dc3a974610000018bcfe56800",
    1: "00010000011f71fb04cb00056dc3a974610000018bcfe568000000018bcfee8fc0",
    2: "00020000011f71fb04cb00056dc3a974610000018bcfe56800",
    3: "00030000011f71fb04cb0000000700056dc3a974610000018bcfe56800",
    4: "00040000011f71fb04cb00000007066dc3a974610000018bcfe5680000",
}
GROUP_VALUES = {
    0: "00000008636f6e73756d65720000002a000572616e676500036d2d310000000200036d2d310006636c69656e74000a2f3132372e302e"
    "302e310000afc80000000300010200000002030400036d2d32000000042f3a3a31000017700000000000000000",
    1: "00010008636f6e73756d65720000002a000572616e676500036d2d310000000200036d2d310006636c69656e74000a2f3132372e302e"
    "302e31000493e00000afc80000000300010200000002030400036d2d32000000042f3a3a310000ea60000017700000000000000000",
    2: "00020008636f6e73756d65720000002a000572616e676500036d2d310000018bcfe568010000000200036d2d310006636c69656e7400"
    "0a2f3132372e302e302e31000493e00000afc80000000300010200000002030400036d2d32000000042f3a3a310000ea600000177000"
    "00000000000000",
    3: "00030008636f6e73756d65720000002a000572616e676500036d2d310000018bcfe568010000000200036d2d310006696e73742d3100"
    "06636c69656e74000a2f3132372e302e302e31000493e00000afc80000000300010200000002030400036d2d32ffff000000042f3a3a"
    "310000ea60000017700000000000000000",
    4: "000409636f6e73756d65720000002a0672616e6765046d2d310000018bcfe5680103046d2d3107696e73742d3107636c69656e740b2f"
    "3132372e302e302e31000493e00000afc80400010203030400046d2d320001052f3a3a310000ea600000177001010000",
}
EMPTY_GROUP_VALUES = {
    0: "0000000000000003ffffffff00000000",
    1: "0001000000000003ffffffff00000000",
    2: "0002000000000003ffffffffffffffffffffffff00000000",
    3: "0003000000000003ffffffffffffffffffffffff00000000",
    4: "000401000000030000ffffffffffffffff0100",
}
VERSIONS = range(5)


def offset_value(version: int) -> OffsetValue:
    return OffsetValue(
        offset=1234567890123,
        metadata="méta",
        commit_timestamp_ms=1700000000000,
        leader_epoch=7 if version >= 3 else -1,
        expire_timestamp_ms=1700000600000 if version == 1 else -1,
    )


def group_value(version: int) -> GroupValue:
    first = MemberValue(
        member_id="m-1",
        instance_id="inst-1" if version >= 3 else None,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=300_000 if version >= 1 else 45_000,
        session_timeout_ms=45_000,
        subscription=b"\x00\x01\x02",
        assignment=b"\x03\x04",
    )
    second = MemberValue(
        member_id="m-2",
        client_id="",
        client_host="/::1",
        rebalance_timeout_ms=60_000 if version >= 1 else 6000,
        session_timeout_ms=6000,
        subscription=b"",
        assignment=b"",
    )
    return GroupValue(
        protocol_type="consumer",
        generation=42,
        protocol="range",
        leader="m-1",
        state_timestamp_ms=1700000000001 if version >= 2 else -1,
        members=(first, second),
    )


@pytest.mark.parametrize("version", [0, 1])
def test_an_offset_key(version: int) -> None:
    key = OffsetKey("grüppe", "departures", 11)
    data = bytes.fromhex(f"000{version}00076772c3bc707065000a646570617274757265730000000b")
    assert encode_offset_key(key, version) == data
    assert decode_key(data) == key


def test_a_group_key() -> None:
    data = bytes.fromhex("000200076772c3bc707065")
    assert encode_group_key(GroupKey("grüppe")) == data
    assert decode_key(data) == GroupKey("grüppe")


@pytest.mark.parametrize("version", [9, 15, 17, 32767, -1])
def test_keys_of_unknown_types_show_their_version(version: int) -> None:
    assert decode_key(version.to_bytes(2, "big", signed=True) + b"whatever") == UnknownKey(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_value_of_each_version(version: int) -> None:
    data = bytes.fromhex(OFFSET_VALUES[version])
    assert encode_offset_value(offset_value(version), version) == data
    assert decode_offset_value(data) == offset_value(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_value_of_each_version(version: int) -> None:
    data = bytes.fromhex(GROUP_VALUES[version])
    assert encode_group_value(group_value(version), version) == data
    assert decode_group_value(data) == group_value(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_group_of_each_version(version: int) -> None:
    value = GroupValue(protocol_type="", generation=3, protocol=None, leader=None)
    data = bytes.fromhex(EMPTY_GROUP_VALUES[version])
    assert encode_group_value(value, version) == data
    assert decode_group_value(data) == value


def test_versions_that_are_written_are_those_of_kafka() -> None:
    assert encode_offset_value(offset_value(3)) == bytes.fromhex(OFFSET_VALUES[3])
    assert encode_offset_value(offset_value(1)) == bytes.fromhex(OFFSET_VALUES[1])
    assert encode_group_value(group_value(3)) == bytes.fromhex(GROUP_VALUES[3])


@pytest.mark.parametrize(
    ("protocol", "offset_version", "group_version", "allows_static"),
    [
        ("3.9", 3, 3, True),
        ("2.3-IV0", 3, 3, True),
        ("2.2", 3, 2, False),
        ("2.1-IV1", 3, 2, False),
        ("2.1-IV0", 2, 2, False),
        ("2.0", 1, 1, False),
        ("0.11.0", 1, 1, False),
        ("0.10.0", 1, 0, False),
        ("0.9.0", 1, 0, False),
    ],
)
def test_older_brokers_can_read_what_is_written(
    protocol: str, offset_version: int, group_version: int, allows_static: bool
) -> None:
    config, _ = BrokerConfig.parse(
        {"broker.id": "1", "zookeeper.connect": "zk:2181", "inter.broker.protocol.version": protocol}
    )
    settings = GroupSettings.of(config)
    assert (settings.offset_value_version, settings.group_value_version) == (offset_version, group_version)
    assert settings.allows_static_members is allows_static
    lab = GroupLab(settings=replace(settings, initial_rebalance_delay_ms=100))
    (member_id,) = lab.form(None)
    lab.commit({TopicPartition("events", 0): OffsetToCommit(offset=5)}, member_id, 1)
    lab.commit({TopicPartition("events", 1): OffsetToCommit(offset=5, retention_ms=1)}, member_id, 1)
    lab.commit_transactional({TopicPartition("events", 2): OffsetToCommit(offset=5)})
    versions = [int.from_bytes(value[:2], "big") for records, _, _ in lab.log.waiting for _, value in records if value]
    assert versions == [offset_version, 1, offset_version]
    lab.log.settle()
    lab.reload()
    assert (lab.group.generation, len(lab.fetch())) == (1, 2)
    (record,) = decode_batch(batch := lab.log.record_sets[0], 0, read_header(batch), limit=1 << 20)
    assert record.value is not None
    assert int.from_bytes(record.value[:2], "big") == group_version


@pytest.mark.parametrize(
    ("protocol", "protocols", "is_enabled"),
    [
        ("3.9", "classic,consumer", True),
        ("3.5-IV0", "classic,consumer", True),
        ("3.4", "classic,consumer", False),
        ("3.9", "classic", False),
    ],
)
def test_consumer_groups_need_the_setting_and_brokers_that_skip_their_records(
    protocol: str, protocols: str, is_enabled: bool
) -> None:
    properties = {
        "broker.id": "1",
        "zookeeper.connect": "zk:2181",
        "inter.broker.protocol.version": protocol,
        "group.coordinator.rebalance.protocols": protocols,
        "group.consumer.assignors": "range",
        "group.consumer.max.size": "7",
    }
    consumer = GroupSettings.of(BrokerConfig.parse(properties)[0]).consumer
    assert (consumer.is_enabled, consumer.assignors, consumer.max_size) == (is_enabled, ("range",), 7)


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        (None, (True, True)),
        ("bidirectional", (True, True)),
        ("upgrade", (True, False)),
        ("downgrade", (False, True)),
        ("disabled", (False, False)),
    ],
)
def test_the_migration_policy(policy: str | None, allowed: tuple[bool, bool]) -> None:
    properties = {"broker.id": "1", "zookeeper.connect": "zk:2181"}
    if policy is not None:
        properties["group.consumer.migration.policy"] = policy
    consumer = GroupSettings.of(BrokerConfig.parse(properties)[0]).consumer
    assert (consumer.allows_upgrade, consumer.allows_downgrade) == allowed


@pytest.mark.parametrize("decode", [decode_offset_value, decode_group_value])
@pytest.mark.parametrize("version", [b"\x00\x05", b"\xff\xff"])
def test_an_unknown_value_version_is_an_error(decode: object, version: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decode(version + bytes(100))  # type: ignore[operator]


def test_bytes_after_the_end_are_an_error() -> None:
    for data in (OFFSET_VALUES[3], OFFSET_VALUES[4]):
        with pytest.raises(MalformedFrameError):
            decode_offset_value(bytes.fromhex(data) + b"\x00")
    with pytest.raises(MalformedFrameError):
        decode_group_value(bytes.fromhex(GROUP_VALUES[3]) + b"\x00")
    with pytest.raises(MalformedFrameError):
        decode_key(encode_group_key(GroupKey("g")) + b"\x00")
