"""Round trips of the group log's keys and values, and damaged bytes, which cause only decode errors."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import MalformedFrameError
from odradek.coordinator.groups.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)

TEXT = st.text(max_size=40)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BLOBS = st.binary(max_size=200)
VERSIONS = st.integers(0, 4)
MEMBERS = st.builds(
    MemberValue,
    member_id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=INT32,
    session_timeout_ms=INT32,
    subscription=BLOBS,
    assignment=BLOBS,
)
GROUPS = st.builds(
    GroupValue,
    protocol_type=TEXT,
    generation=INT32,
    protocol=st.none() | TEXT,
    leader=st.none() | TEXT,
    state_timestamp_ms=INT64,
    members=st.lists(MEMBERS, max_size=4).map(tuple),
)
OFFSETS = st.builds(
    OffsetValue,
    offset=INT64,
    metadata=TEXT,
    commit_timestamp_ms=INT64,
    leader_epoch=INT32,
    expire_timestamp_ms=INT64,
)


@given(TEXT, TEXT, INT32, st.integers(0, 1))
def test_offset_keys(group: str, topic: str, partition: int, version: int) -> None:
    key = OffsetKey(group, topic, partition)
    assert decode_key(encode_offset_key(key, version)) == key


@given(TEXT)
def test_group_keys(group: str) -> None:
    assert decode_key(encode_group_key(GroupKey(group))) == GroupKey(group)


@given(OFFSETS, VERSIONS)
def test_offset_values_keep_what_their_version_holds(value: OffsetValue, version: int) -> None:
    expected = value._replace(
        leader_epoch=value.leader_epoch if version >= 3 else -1,
        expire_timestamp_ms=value.expire_timestamp_ms if version == 1 else -1,
    )
    assert decode_offset_value(encode_offset_value(value, version)) == expected


@given(GROUPS, VERSIONS)
def test_group_values_keep_what_their_version_holds(value: GroupValue, version: int) -> None:
    members = tuple(
        replace(
            member,
            instance_id=member.instance_id if version >= 3 else None,
            rebalance_timeout_ms=member.rebalance_timeout_ms if version >= 1 else member.session_timeout_ms,
        )
        for member in value.members
    )
    expected = replace(value, members=members, state_timestamp_ms=value.state_timestamp_ms if version >= 2 else -1)
    assert decode_group_value(encode_group_value(value, version)) == expected


@given(GROUPS, VERSIONS, st.data())
def test_damaged_bytes_decode_or_are_refused(value: GroupValue, version: int, data: st.DataObject) -> None:
    encoded = bytearray(encode_group_value(value, version))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    for decode in (decode_group_value, decode_offset_value, decode_key):
        try:
            decode(damaged)
        except MalformedFrameError:
            continue
