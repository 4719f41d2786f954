"""Encodes and decodes the keys and values of `__consumer_offsets`, byte for byte like Apache Kafka 3.9.

`group_replay` decodes, and the state machines encode. Keys and values each begin with a version as int16. Keys of
versions 0 and 1 belong to committed offsets, keys of version 2 to classic groups, and keys of versions 3 to 8 and 16 to
consumer groups (KIP-848), which `consumer_records` knows. Other versions belong to share and streams groups (KIP-932,
KIP-1071) and are decoded as `UnknownKey`, which is skipped. Value version 4 is Kafka's
flexible encoding (KIP-915), which 3.9 reads but does not write. Offsets are written in version 3, or in version 1 if
the commit has its own expiry time, which later versions do not have. Groups are written in version 3. An old
`inter.broker.protocol.version` means earlier versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.base.errors import MalformedFrameError
from odradek.base.types import NO_EPOCH, NO_TIMESTAMP
from odradek.coordinator.groups.consumer.consumer_records import (
    CONSUMER_KEY_VERSIONS,
    ConsumerRecordKey,
    decode_consumer_key,
)
from odradek.protocol.release_versions import Release
from odradek.protocol.wire import Reader, Writer

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
EXPIRING_OFFSET_VALUE_VERSION: Final = 1
GROUP_VALUE_VERSION: Final = 3

STATIC_MEMBERS_SINCE: Final[Release] = (2, 3, 0)
"""First protocol version whose brokers all keep the instance ids of members (KIP-345)."""

CONSUMER_GROUPS_SINCE: Final[Release] = (3, 5, 0)
"""First protocol version whose brokers all skip the records of consumer groups (KIP-915). Earlier brokers of Apache
Kafka cannot load a partition that has such records."""

_OFFSET_VERSIONS: Final[tuple[tuple[Release, int], ...]] = (((2, 1, 1), OFFSET_VALUE_VERSION), ((2, 1, 0), 2))
_GROUP_VERSIONS: Final[tuple[tuple[Release, int], ...]] = (
    (STATIC_MEMBERS_SINCE, GROUP_VALUE_VERSION),
    ((2, 1, 0), 2),
    # Kafka wrote version 1 from 0.10.1 on. A `Release` does not tell it from 0.10.0, which reads version 0 only.
    ((0, 11, 0), 1),
)
"""Protocol versions that raised the version of the value, newest first."""

_HIGHEST_VALUE_VERSION: Final = 4
_FIRST_FLEXIBLE: Final = 4
_LEADER_EPOCH_SINCE: Final = 3
_STATE_TIMESTAMP_SINCE: Final = 2
_INSTANCE_ID_SINCE: Final = 3
_REBALANCE_TIMEOUT_SINCE: Final = 1
_SMALLEST_MEMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Key of a committed offset: group and partition."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Key of a group."""

    group: str


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """Key of a record type that this coordinator does not support."""

    version: int


class OffsetValue(NamedTuple):
    """A committed offset. Times are wall-clock milliseconds; -1 means none.

    A tuple, because a broker has a million of them.
    """

    offset: int
    commit_timestamp_ms: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH
    expire_timestamp_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """A member of a group in the generation of the record."""

    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """A generation of a classic group. Without members, the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int = NO_TIMESTAMP
    members: Sequence[MemberValue] = ()


def offset_value_version(release: Release) -> int:
    """Return the version of a committed offset, without its own expiry time, for a protocol version."""
    return next((version for since, version in _OFFSET_VERSIONS if release >= since), EXPIRING_OFFSET_VALUE_VERSION)


def group_value_version(release: Release) -> int:
    """Return the version of a group's value for a protocol version."""
    return next((version for since, version in _GROUP_VERSIONS if release >= since), 0)


def encode_offset_key(key: OffsetKey, version: int = OFFSET_KEY_VERSION) -> bytes:
    """Encode the key of a committed offset. Raises `ValueError` for a string of more than 32767 bytes."""
    writer = Writer()
    writer.int16(version)
    writer.string(key.group)
    writer.string(key.topic)
    writer.int32(key.partition)
    return bytes(writer.data)


def encode_group_key(key: GroupKey) -> bytes:
    """Encode the key of a group. Raises `ValueError` for a string of more than 32767 bytes."""
    writer = Writer()
    writer.int16(GROUP_KEY_VERSION)
    writer.string(key.group)
    return bytes(writer.data)


def decode_key(data: bytes) -> OffsetKey | GroupKey | ConsumerRecordKey | UnknownKey:
    """Decode the key of a record. Raises `MalformedFrameError` if a key of a known type is too short or too long."""
    reader = Reader(data)
    version = reader.int16()
    if version in (0, OFFSET_KEY_VERSION):
        offset_key = OffsetKey(reader.string(), reader.string(), reader.int32())
        reader.expect_end()
        return offset_key
    if version == GROUP_KEY_VERSION:
        group_key = GroupKey(reader.string())
        reader.expect_end()
        return group_key
    if version in CONSUMER_KEY_VERSIONS:
        return decode_consumer_key(version, reader)
    return UnknownKey(version)


def encode_offset_value(value: OffsetValue, version: int | None = None) -> bytes:
    """Encode a committed offset, by default in the version that Kafka 3.9 writes."""
    if version is None:
        has_expiry = value.expire_timestamp_ms != NO_TIMESTAMP
        version = EXPIRING_OFFSET_VALUE_VERSION if has_expiry else OFFSET_VALUE_VERSION
    flexible = version >= _FIRST_FLEXIBLE
    writer = Writer()
    writer.int16(version)
    writer.int64(value.offset)
    if version >= _LEADER_EPOCH_SINCE:
        writer.int32(value.leader_epoch)
    (writer.compact_string if flexible else writer.string)(value.metadata)
    writer.int64(value.commit_timestamp_ms)
    if version == EXPIRING_OFFSET_VALUE_VERSION:
        writer.int64(value.expire_timestamp_ms)
    if flexible:
        writer.no_tagged_fields()
    return bytes(writer.data)


def decode_offset_value(data: bytes) -> OffsetValue:
    """Decode a committed offset of any version. Raises `MalformedFrameError` for an unknown version or missing
    bytes."""
    reader = Reader(data)
    version = _value_version(reader, "offset")
    flexible = version >= _FIRST_FLEXIBLE
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= _LEADER_EPOCH_SINCE else NO_EPOCH
    metadata = reader.compact_string() if flexible else reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == EXPIRING_OFFSET_VALUE_VERSION else NO_TIMESTAMP
    if flexible:
        reader.skip_tagged_fields()
    reader.expect_end()
    return OffsetValue(
        offset=offset,
        metadata=metadata,
        commit_timestamp_ms=commit_timestamp_ms,
        leader_epoch=leader_epoch,
        expire_timestamp_ms=expire_timestamp_ms,
    )


def encode_group_value(value: GroupValue, version: int = GROUP_VALUE_VERSION) -> bytes:
    """Encode a group's generation. Fields that an older version does not have are omitted."""
    flexible = version >= _FIRST_FLEXIBLE
    writer = Writer()
    string = writer.compact_string if flexible else writer.string
    writer.int16(version)
    string(value.protocol_type)
    writer.int32(value.generation)
    string(value.protocol)
    string(value.leader)
    if version >= _STATE_TIMESTAMP_SINCE:
        writer.int64(value.state_timestamp_ms)
    (writer.compact_array_length if flexible else writer.array_length)(len(value.members))
    for member in value.members:
        _encode_member(writer, member, version)
    if flexible:
        writer.no_tagged_fields()
    return bytes(writer.data)


def _encode_member(writer: Writer, member: MemberValue, version: int) -> None:
    flexible = version >= _FIRST_FLEXIBLE
    string = writer.compact_string if flexible else writer.string
    blob = writer.compact_blob if flexible else writer.blob
    string(member.member_id)
    if version >= _INSTANCE_ID_SINCE:
        string(member.instance_id)
    string(member.client_id)
    string(member.client_host)
    if version >= _REBALANCE_TIMEOUT_SINCE:
        writer.int32(member.rebalance_timeout_ms)
    writer.int32(member.session_timeout_ms)
    blob(member.subscription)
    blob(member.assignment)
    if flexible:
        writer.no_tagged_fields()


def decode_group_value(data: bytes) -> GroupValue:
    """Decode a generation of any version. Raises `MalformedFrameError` for an unknown version or missing bytes.

    Version 0 has no rebalance timeout. The session timeout replaces it, as in the Kafka releases that wrote version 0.
    """
    # The size of a record is limited by that of its batch, so only its size limits the number of elements.
    reader = Reader(data, element_budget=len(data))
    version = _value_version(reader, "group")
    flexible = version >= _FIRST_FLEXIBLE
    protocol_type = reader.compact_string() if flexible else reader.string()
    generation = reader.int32()
    protocol = reader.compact_nullable_string() if flexible else reader.nullable_string()
    leader = reader.compact_nullable_string() if flexible else reader.nullable_string()
    state_timestamp_ms = reader.int64() if version >= _STATE_TIMESTAMP_SINCE else NO_TIMESTAMP
    read_length = reader.compact_array_length if flexible else reader.array_length
    count = read_length(_SMALLEST_MEMBER_BYTES)
    members = tuple(_decode_member(reader, version) for _ in range(count))
    if flexible:
        reader.skip_tagged_fields()
    reader.expect_end()
    return GroupValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_timestamp_ms=state_timestamp_ms,
        members=members,
    )


def _decode_member(reader: Reader, version: int) -> MemberValue:
    flexible = version >= _FIRST_FLEXIBLE
    string = reader.compact_string if flexible else reader.string
    nullable = reader.compact_nullable_string if flexible else reader.nullable_string
    blob = reader.compact_blob if flexible else reader.blob
    member_id = string()
    instance_id = nullable() if version >= _INSTANCE_ID_SINCE else None
    client_id, client_host = string(), string()
    rebalance_timeout_ms = reader.int32() if version >= _REBALANCE_TIMEOUT_SINCE else None
    session_timeout_ms = reader.int32()
    subscription, assignment = blob(), blob()
    if flexible:
        reader.skip_tagged_fields()
    return MemberValue(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _value_version(reader: Reader, kind: str) -> int:
    version = reader.int16()
    if not 0 <= version <= _HIGHEST_VALUE_VERSION:
        raise MalformedFrameError(
            f"the {kind} value has version {version}; the supported versions are 0 to {_HIGHEST_VALUE_VERSION}"
        )
    return version
