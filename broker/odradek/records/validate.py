"""Every check of a record set before a byte of it is kept.

The records field of a Produce or Fetch, or a coordinator's batch, enters; the headers of its batches leave, or an
error with its wire code. `log` calls it once per append. Invariant: a set that passes is tiled exactly by whole batches
with true CRCs, so the log may be walked by lengths alone. Cost: one header and one CRC a batch; records are looked at
only where a rule is about them (keys of compacted topics, a lower bound of timestamps).

The rules and their codes are those of Kafka's log validation, with each produced batch as its client made it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from odradek.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from odradek.base.types import NO_TIMESTAMP
from odradek.compression import Codec
from odradek.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    BatchHeader,
    TimestampType,
    check_crc,
    read_header,
)
from odradek.records.record import iterate_batch

UNBOUNDED_MS: Final = (1 << 63) - 1
_MAGIC_AT: Final = 16
_DECOMPRESSED_LIMIT_BYTES: Final = 128 << 20


class AppendOrigin(Enum):
    """Who wrote a record set: a client, a coordinator of this broker, or the leader that this replica follows."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class AppendRules(NamedTuple):
    """What a topic asks of an append. A tuple, because one is made for each append.

    `timestamp_before_max_ms` and `timestamp_after_max_ms` bound how far a create time may lie from `now_ms`;
    `zstd_allowed` is false for Produce below version 7 (KIP-110); `decompressed_limit_bytes` bounds the memory for a
    look at packed records.
    """

    max_message_bytes: int
    now_ms: int
    origin: AppendOrigin = AppendOrigin.CLIENT
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = UNBOUNDED_MS
    timestamp_after_max_ms: int = UNBOUNDED_MS
    compacted: bool = False
    zstd_allowed: bool = True
    decompressed_limit_bytes: int = _DECOMPRESSED_LIMIT_BYTES


def check_append(records: memoryview, rules: AppendRules) -> tuple[BatchHeader, ...]:
    """The headers of all batches in `records`, which must hold at least one.

    `CorruptMessageError`: cut short, a false CRC, impossible fields or offsets. `MessageTooLargeError`: a batch above
    `max_message_bytes` (not for replication: the leader decided). `InvalidRecordError`, `InvalidTimestampError`,
    `UnsupportedCompressionTypeError`: a client's batch breaks a rule.
    """
    if rules.origin is AppendOrigin.CLIENT:
        return (_check_client_batch(records, rules),)
    limit = rules.max_message_bytes if rules.origin is AppendOrigin.COORDINATOR else None
    return _check_own_batches(records, limit)


def _check_own_batches(records: memoryview, max_message_bytes: int | None) -> tuple[BatchHeader, ...]:
    headers: list[BatchHeader] = []
    position = 0
    next_offset = 0
    while position < len(records):
        header = read_header(records, position)
        if max_message_bytes is not None and header.size > max_message_bytes:
            raise _too_large(header, max_message_bytes)
        check_crc(records, position, header)
        if max_message_bytes is None and header.base_offset < next_offset:
            raise CorruptMessageError(f"offset {header.base_offset} follows a batch that ends at {next_offset - 1}")
        next_offset = header.next_offset
        headers.append(header)
        position += header.size
    if not headers:
        raise CorruptMessageError("a record set without a batch")
    return tuple(headers)


def _check_client_batch(records: memoryview, rules: AppendRules) -> BatchHeader:
    if len(records) < HEADER_SIZE:
        raise InvalidRecordError(f"a produced record set of {len(records)} bytes holds no batch")
    # The magic byte lies at the same place in all formats; old ones may not be produced with these versions.
    if records[_MAGIC_AT] != MAGIC:
        raise InvalidRecordError(f"records of format {records[_MAGIC_AT]} may not be produced, only {MAGIC}")
    header = read_header(records)
    if header.size > len(records):
        raise CorruptMessageError(f"the batch claims {header.size} bytes, {len(records)} are there")
    if header.size < len(records):
        raise InvalidRecordError("a produced record set must hold exactly one batch")
    if header.size > rules.max_message_bytes:
        raise _too_large(header, rules.max_message_bytes)
    check_crc(records, 0, header)
    _check_client_fields(header)
    _check_codec(header, rules)
    _check_timestamps(header, rules)
    needs_keys = rules.compacted
    needs_timestamps = (
        rules.timestamp_before_max_ms != UNBOUNDED_MS and rules.timestamp_type is TimestampType.CREATE_TIME
    )
    if needs_keys or needs_timestamps:
        _check_records(records, header, rules, needs_timestamps=needs_timestamps)
    return header


def _too_large(header: BatchHeader, limit: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"a batch of {header.size} bytes exceeds max.message.bytes = {limit}")


def _check_client_fields(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecordError(f"a produced batch must have base offset 0, not {header.base_offset}")
    if header.record_count == 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"{header.record_count} records do not fit a last offset delta of {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecordError("clients may not write control records")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise InvalidRecordError(
                f"producer {header.producer_id} sent epoch {header.producer_epoch} "
                f"and sequence {header.base_sequence}; neither may be negative"
            )
    elif header.is_transactional:
        raise InvalidRecordError("a transactional batch needs a producer id")


def _check_codec(header: BatchHeader, rules: AppendRules) -> None:
    codec = header.attributes & CODEC_MASK
    if codec > Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"codec {codec} is unknown")
    if codec == Codec.ZSTD and not rules.zstd_allowed:
        raise UnsupportedCompressionTypeError("zstd needs Produce version 7 or later")


def _check_timestamps(header: BatchHeader, rules: AppendRules) -> None:
    if header.attributes & LOG_APPEND_TIME_FLAG:
        raise InvalidTimestampError("a producer may not set the timestamp type to log-append time")
    if rules.timestamp_type is TimestampType.CREATE_TIME:
        _check_timestamp(header.max_timestamp, rules)


def _check_timestamp(timestamp_ms: int, rules: AppendRules) -> None:
    if timestamp_ms == NO_TIMESTAMP:
        return
    late_ms = rules.now_ms - timestamp_ms
    if late_ms > rules.timestamp_before_max_ms or -late_ms > rules.timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"timestamp {timestamp_ms} is more than {rules.timestamp_before_max_ms} ms before or "
            f"{rules.timestamp_after_max_ms} ms after the broker's {rules.now_ms}"
        )


def _check_records(records: memoryview, header: BatchHeader, rules: AppendRules, *, needs_timestamps: bool) -> None:
    for record in iterate_batch(records, 0, header, limit=rules.decompressed_limit_bytes):
        if rules.compacted and record.key is None:
            raise InvalidRecordError("a compacted topic takes no record without a key")
        if needs_timestamps:
            _check_timestamp(record.timestamp, rules)
