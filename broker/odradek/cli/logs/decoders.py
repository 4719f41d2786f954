"""Formats of keys and values for `odradek log dump`: text, numbers, and the records of internal topics.

The text is that of Kafka's DumpLogSegments. `DECODERS` has the formats for a single field, `LOG_DECODERS` those that
need key and value together: the records of `__consumer_offsets` and `__transaction_state`. Pure. Invariant: no content
makes a dump fail; content that cannot be decoded is shown with the reason.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from struct import Struct
from typing import Final

from odradek.base.errors import MalformedFrameError
from odradek.cli.logs.message_json import message_json
from odradek.coordinator.groups.consumer.consumer_record_values import ConsumerRecordType, decode_consumer_value
from odradek.coordinator.groups.consumer.consumer_records import GROUP_RECORD_TYPES, ConsumerRecordKey
from odradek.coordinator.groups.group_records import (
    EXPIRING_OFFSET_VALUE_VERSION,
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    UnknownKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from odradek.coordinator.transactions.transaction_values import TransactionState
from odradek.protocol.wire import Reader
from odradek.records.v2.record import Record

FieldDecoder = Callable[[bytes], str]
LogDecoder = Callable[[Record], tuple[str | None, str | None]]
"""Text of the key and of the value; None if there is nothing to show."""

_CONSUMER_PROTOCOL: Final = "consumer"
_DELETED: Final = "<DELETE>"


# Single fields


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _number(layout: Struct) -> FieldDecoder:
    def decode(content: bytes) -> str:
        if len(content) != layout.size:
            return f"<{len(content)} bytes are not a number of {layout.size} bytes: {content.hex()}>"
        return str(layout.unpack(content)[0])

    return decode


DECODERS: Final[dict[str, FieldDecoder]] = {
    "string": _text,
    "integer": _number(Struct(">i")),
    "long": _number(Struct(">q")),
    "double": _number(Struct(">d")),
    "hex": bytes.hex,
}


def by_field(key: FieldDecoder, value: FieldDecoder) -> LogDecoder:
    """Decode key and value separately."""

    def decode(record: Record) -> tuple[str | None, str | None]:
        return (
            None if record.key is None else key(record.key),
            None if record.value is None else value(record.value),
        )

    return decode


# __consumer_offsets


def offsets_topic(record: Record) -> tuple[str | None, str | None]:
    """Format a committed offset or a record of a group as the JSON that Kafka's tool prints."""
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The record has no key.", None
    try:
        key = decode_key(record.key)
        if isinstance(key, UnknownKey):
            return f"Unknown record type {key.version} at offset {record.offset}, skipping.", None
        shown = _dump({"type": str(_version(record.key)), "data": _key_fields(key)})
        if record.value is None:
            return shown, _DELETED
        version = _version(record.value)
        return shown, _dump({"version": str(version), "data": _value_fields(key, record.value, version)})
    except MalformedFrameError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _version(content: bytes) -> int:
    return Reader(content).int16()


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _key_fields(key: OffsetKey | GroupKey | ConsumerRecordKey) -> dict[str, object]:
    match key:
        case GroupKey():
            return {"group": key.group}
        case OffsetKey():
            return {"group": key.group, "topic": key.topic, "partition": key.partition}
    fields: dict[str, object] = {"groupId": key.group}
    if key.type is ConsumerRecordType.REGULAR_EXPRESSION:
        fields["regularExpression"] = key.name
    elif key.type not in GROUP_RECORD_TYPES:
        fields["memberId"] = key.name
    return fields


def _value_fields(key: OffsetKey | GroupKey | ConsumerRecordKey, content: bytes, version: int) -> dict[str, object]:
    match key:
        case GroupKey():
            return _group_value(content, version)
        case OffsetKey():
            return _offset_value(content, version)
    return message_json(decode_consumer_value(key.type, content))


def _offset_value(content: bytes, version: int) -> dict[str, object]:
    value: OffsetValue = decode_offset_value(content)
    fields: dict[str, object] = {"offset": value.offset}
    if version >= 3:
        fields["leaderEpoch"] = value.leader_epoch
    fields |= {"metadata": value.metadata, "commitTimestamp": value.commit_timestamp_ms}
    if version == EXPIRING_OFFSET_VALUE_VERSION:
        fields["expireTimestamp"] = value.expire_timestamp_ms
    return fields


def _group_value(content: bytes, version: int) -> dict[str, object]:
    value: GroupValue = decode_group_value(content)
    read = value.protocol_type == _CONSUMER_PROTOCOL
    fields: dict[str, object] = {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
    }
    if version >= 2:
        fields["currentStateTimestamp"] = value.state_timestamp_ms
    members = []
    for member in value.members:
        shown: dict[str, object] = {"memberId": member.member_id}
        if version >= 3:
            shown["groupInstanceId"] = member.instance_id
        shown |= {"clientId": member.client_id, "clientHost": member.client_host}
        if version >= 1:
            shown["rebalanceTimeout"] = member.rebalance_timeout_ms
        shown |= {
            "sessionTimeout": member.session_timeout_ms,
            "subscription": (_subscription_of if read else _base64)(member.subscription),
            "assignment": (_assignment_of if read else _base64)(member.assignment),
        }
        members.append(shown)
    fields["members"] = members
    return fields


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _subscription_of(content: bytes) -> object:
    return _consumer_metadata(content, _subscription)


def _assignment_of(content: bytes) -> object:
    return _consumer_metadata(content, _assignment)


def _consumer_metadata(content: bytes, read: Callable[[Reader, int], dict[str, object]]) -> dict[str, object] | str:
    """Format the metadata of consumers; base64 for another protocol."""
    try:
        reader = Reader(content, element_budget=len(content))
        return read(reader, reader.int16())
    except MalformedFrameError:
        return _base64(content)


def _subscription(reader: Reader, version: int) -> dict[str, object]:
    fields: dict[str, object] = {
        "topics": [reader.string() for _ in range(reader.array_length(2))],
        "userData": _nullable_base64(reader),
    }
    if version >= 1:
        fields["ownedPartitions"] = _named(_topic_partitions(reader))
    if version >= 2:
        fields["generationId"] = reader.int32()
    if version >= 3:
        fields["rackId"] = reader.nullable_string()
    return fields


def _assignment(reader: Reader, _version: int) -> dict[str, object]:
    return {"assignedPartitions": _named(_topic_partitions(reader)), "userData": _nullable_base64(reader)}


def _topic_partitions(reader: Reader) -> list[tuple[str, list[int]]]:
    return [
        (reader.string(), [reader.int32() for _ in range(reader.array_length(4))])
        for _ in range(reader.array_length(6))
    ]


def _named(topics: list[tuple[str, list[int]]]) -> list[dict[str, object]]:
    return [{"topic": topic, "partitions": partitions} for topic, partitions in topics]


def _nullable_base64(reader: Reader) -> str | None:
    content = reader.nullable_blob()
    return None if content is None else _base64(content)


# __transaction_state

_TRANSACTION_STATES: Final = {int(state): state.text for state in TransactionState}


def transaction_log(record: Record) -> tuple[str | None, str | None]:
    """Format the state of a transactional id as Kafka's tool does."""
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The record has no key.", None
    try:
        reader = Reader(record.key)
        version = reader.int16()
        if version != 0:
            return f"unknown::version={version}", None
        key = f"transaction_metadata::transactionalId={reader.string()}"
        return key, _DELETED if record.value is None else _transaction_state(record.value)
    except MalformedFrameError as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _transaction_state(content: bytes) -> str:
    reader = Reader(content, element_budget=len(content))
    if reader.int16() > 0:
        return f"<unknown version: {content.hex()}>"
    producer_id, epoch, timeout_ms, state = reader.int64(), reader.int16(), reader.int32(), reader.int8()
    name = _TRANSACTION_STATES.get(state, f"Unknown({state})")
    topics = _topic_partitions(reader) if _has_partitions(reader) else []
    partitions = [f"{topic}-{partition}" for topic, numbers in topics for partition in numbers]
    return (
        f"producerId:{producer_id},producerEpoch:{epoch},state={name},partitions=[{','.join(partitions)}],"
        f"txnLastUpdateTimestamp={reader.int64()},txnTimeoutMs={timeout_ms}"
    )


def _has_partitions(reader: Reader) -> bool:
    """Return the partitions; an array without elements is null."""
    position = reader.position
    if reader.int32() < 0:
        return False
    reader.position = position
    return True


LOG_DECODERS: Final[dict[str, LogDecoder]] = {"offsets-topic": offsets_topic, "transaction-log": transaction_log}
