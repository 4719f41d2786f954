"""Encodes and decodes the keys and values of `__transaction_state`, byte for byte like Apache Kafka 3.9.

`transaction_shard` uses it. Keys and values begin with a version as int16. Values are written in version 0, as by Kafka
in ZooKeeper mode, unless the cluster has finalized `transaction.version`. Version 1 (KIP-890 part 2) is flexible. Its
tagged fields have what transaction version 2 needs: the previous and the next producer id, and the version of the
client.
"""

from __future__ import annotations

from typing import Final

from odradek.base.errors import MalformedFrameError
from odradek.base.topic_rules import grouped_by_topic
from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from odradek.coordinator.transactions.transaction_values import (
    EPOCH_BUMPS_SINCE,
    FLEXIBLE_RECORDS_SINCE,
    Transaction,
    TransactionState,
)
from odradek.protocol.wire import Reader, Writer

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0

_FLEXIBLE: Final = 1
_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_VERSION: Final = 2
"""The tagged fields of version 1."""

_LAST_EPOCH: Final = 2**15 - 2
_ENDED: Final = frozenset(
    {
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    }
)
_SMALLEST_TOPIC_BYTES: Final = 3
_PARTITION_BYTES: Final = 4


def value_version(level: int) -> int:
    """Return the version of the values that are written at a finalized level of `transaction.version`."""
    return _FLEXIBLE if level >= FLEXIBLE_RECORDS_SINCE else VALUE_VERSION


def encode_transaction_key(transactional_id: str) -> bytes:
    """Encode a key. Raises `ValueError` for an id of more than 32767 bytes."""
    writer = Writer()
    writer.int16(KEY_VERSION)
    writer.string(transactional_id)
    return bytes(writer.data)


def decode_transaction_key(data: bytes) -> str | None:
    """Return the transactional id, or None for a key of a later version.

    Raises `MalformedFrameError` if the key is too short or too long.
    """
    reader = Reader(data)
    if reader.int16() != KEY_VERSION:
        return None
    transactional_id = reader.string()
    reader.expect_end()
    return transactional_id


def encode_transaction_value(transaction: Transaction, version: int = VALUE_VERSION) -> bytes:
    """Encode a transaction. Like Kafka, the state Empty has no partitions instead of an empty list."""
    flexible = version >= _FLEXIBLE
    writer = Writer()
    write_length = writer.compact_array_length if flexible else writer.array_length
    writer.int16(version)
    writer.int64(transaction.producer_id)
    writer.int16(transaction.producer_epoch)
    writer.int32(transaction.timeout_ms)
    writer.int8(transaction.state)
    if transaction.state is TransactionState.EMPTY:
        writer.uvarint(0) if flexible else writer.int32(-1)
    else:
        topics = grouped_by_topic(transaction.partitions)
        write_length(len(topics))
        for topic, partitions in topics.items():
            (writer.compact_string if flexible else writer.string)(topic)
            write_length(len(partitions))
            for partition in partitions:
                writer.int32(partition)
            if flexible:
                writer.no_tagged_fields()
    writer.int64(transaction.updated_ms)
    writer.int64(transaction.started_ms)
    if flexible:
        _encode_tagged(writer, transaction)
    return bytes(writer.data)


def _encode_tagged(writer: Writer, transaction: Transaction) -> None:
    """Write the tagged fields that do not have their default value."""
    fields: list[tuple[int, bytes]] = []
    for tag, producer_id in (
        (_PREVIOUS_PRODUCER_ID, transaction.last_producer_id),
        (_NEXT_PRODUCER_ID, transaction.next_producer_id),
    ):
        if producer_id != NO_PRODUCER_ID:
            fields.append((tag, producer_id.to_bytes(8, "big", signed=True)))
    if transaction.client_version:
        fields.append((_CLIENT_VERSION, transaction.client_version.to_bytes(2, "big", signed=True)))
    writer.uvarint(len(fields))
    for tag, content in fields:
        writer.uvarint(tag)
        writer.uvarint(len(content))
        writer.raw(content)


def decode_transaction_value(data: bytes) -> Transaction:
    """Decode a transaction. Raises `MalformedFrameError` for an unknown version or state, or missing bytes."""
    # The size of a record is limited by that of its batch, so only its size limits the number of elements.
    reader = Reader(data, element_budget=len(data))
    version = reader.int16()
    if version not in (0, _FLEXIBLE):
        raise MalformedFrameError(f"the transaction has version {version}; the supported versions are 0 and 1")
    flexible = version >= _FLEXIBLE
    producer_id, producer_epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    number = reader.int8()
    try:
        state = TransactionState(number)
    except ValueError:
        raise MalformedFrameError(f"the transaction has the unknown status {number}") from None
    partitions = _decode_partitions(reader, flexible=flexible)
    updated_ms, started_ms = reader.int64(), reader.int64()
    tagged = _decode_tagged(reader) if flexible else {}
    reader.expect_end()
    client_version = tagged.get(_CLIENT_VERSION, 0)
    return Transaction(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        updated_ms=updated_ms,
        started_ms=started_ms,
        last_producer_id=tagged.get(_PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID),
        last_producer_epoch=_epoch_before_end(state, producer_epoch, client_version),
        client_version=client_version,
        next_producer_id=tagged.get(_NEXT_PRODUCER_ID, NO_PRODUCER_ID),
    )


def _epoch_before_end(state: TransactionState, epoch: int, client_version: int) -> int:
    """Return the epoch before the end that raised it, -1 if the latest transition has not.

    Epoch 0 follows the last epoch that a producer can have.
    """
    if client_version < EPOCH_BUMPS_SINCE or state not in _ENDED:
        return NO_EPOCH
    return epoch - 1 if epoch else _LAST_EPOCH


def _decode_tagged(reader: Reader) -> dict[int, int]:
    """Return the tagged fields that have a meaning here, and skip the others."""
    sizes = {_PREVIOUS_PRODUCER_ID: 8, _NEXT_PRODUCER_ID: 8, _CLIENT_VERSION: 2}
    found: dict[int, int] = {}
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        if tag in sizes and size != sizes[tag]:
            raise MalformedFrameError(f"the tagged field {tag} of the transaction has {size} bytes, not {sizes[tag]}")
        content = reader.raw(size)
        if tag in sizes:
            found[tag] = int.from_bytes(content, "big", signed=True)
    return found


def _decode_partitions(reader: Reader, *, flexible: bool) -> frozenset[TopicPartition]:
    length = reader.uvarint() - 1 if flexible else reader.int32()
    if length < 0:
        return frozenset()
    if length * _SMALLEST_TOPIC_BYTES > reader.remaining:
        raise MalformedFrameError(f"the transaction has {length} topics in {reader.remaining} bytes")
    read_length = reader.compact_array_length if flexible else reader.array_length
    found: set[TopicPartition] = set()
    for _ in range(length):
        topic = reader.compact_string() if flexible else reader.string()
        found.update(TopicPartition(topic, reader.int32()) for _ in range(read_length(_PARTITION_BYTES)))
        if flexible:
            reader.skip_tagged_fields()
    return frozenset(found)
