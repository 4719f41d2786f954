"""Validates a record set before an append: its entries here, the records in them in `structure`.

`admission` calls it for every append on a leader, `log` for those on a follower. It returns the headers of the entries,
or raises an error with its error code. Invariant: a valid set consists exactly of whole entries with correct CRCs, so
that the log can be walked by lengths alone. The cost is one header and one CRC per entry.

The rules, their order and their error codes are those of Kafka's log validation; `tests/interop/test_append_like_kafka`
checks that and lists the differences. As in Kafka, a client may leave part of an entry after the last whole one, which
is dropped, and may set log append time in a topic with create time, which `admission` reverts.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final

from crc32c import crc32c

from odradek.base.config import TopicConfig
from odradek.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordFault,
    UnsupportedCompressionTypeError,
)
from odradek.base.types import NO_TIMESTAMP
from odradek.compression import Codec
from odradek.records.formats import MAGIC_AT, MIN_ENTRY_SIZE, check_entry, read_entry
from odradek.records.legacy.message_set import UNKNOWN_COUNT
from odradek.records.v2.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    TRANSACTIONAL_FLAG,
    UNPACK_FIELDS,
    BatchHeader,
    TimestampType,
    check_crc,
    read_header,
)

UNBOUNDED_MS: Final = (1 << 63) - 1
_DECOMPRESSED_LIMIT_BYTES: Final = 128 << 20
_LEAST_LIMIT_BYTES: Final = 16 << 20
_MOST_RATIO: Final = 64
"""Maximum compression ratio: records of real clients do not exceed it, but a decompression bomb does."""

_SIZE: Final = Struct(">i")
_SIZE_AT: Final = 8
_LOG_OVERHEAD: Final = 12
_CRC_AT: Final = 17
_COVERED_AT: Final = 21
"""Positions of a batch's length and CRC, and of the first byte that the CRC covers."""


class AppendOrigin(Enum):
    """Who wrote a record set: a client, a coordinator on this broker, or the leader that this replica follows."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


_CLIENT: Final = AppendOrigin.CLIENT
_COORDINATOR: Final = AppendOrigin.COORDINATOR
_CREATE_TIME: Final = TimestampType.CREATE_TIME
_ZSTD: Final = int(Codec.ZSTD)
"""Module-level constants: looking up an enum member takes as long as a call, for every batch."""


class AppendRules:
    """The rules of an append. A log has one object and sets the fields that differ for each append: `now_ms`, `origin`,
    `zstd_allowed` and `any_format`.

    `zstd_allowed` is false for Produce below version 7 (KIP-110). `any_format` is true below version 3, which may carry
    formats 0 and 1. `timestamp_before_max_ms` and `timestamp_after_max_ms` limit the distance of a create time from
    `now_ms`. `magic` is the format of the log, `codec` its compression (None: that of the producer), and
    `compression_level` the level of that codec (None: its default). `validate_records`: validate each record of a
    client. `decompressed_limit_bytes` limits the memory for checking compressed records.
    """

    __slots__ = (
        "any_format",
        "codec",
        "compacted",
        "compression_level",
        "decompressed_limit_bytes",
        "judges_records",
        "magic",
        "max_message_bytes",
        "now_ms",
        "origin",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "timestamp_type",
        "validate_records",
        "zstd_allowed",
    )

    def __init__(
        self,
        max_message_bytes: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        *,
        zstd_allowed: bool = True,
        any_format: bool = False,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        timestamp_before_max_ms: int = UNBOUNDED_MS,
        timestamp_after_max_ms: int = UNBOUNDED_MS,
        compacted: bool = False,
        magic: int = MAGIC,
        codec: Codec | None = None,
        compression_level: int | None = None,
        validate_records: bool = True,
        decompressed_limit_bytes: int = _DECOMPRESSED_LIMIT_BYTES,
    ) -> None:
        """The defaults are the rules of a client's append to a topic without settings."""
        self.max_message_bytes: Final = max_message_bytes
        self.now_ms = now_ms
        self.origin = origin
        self.zstd_allowed = zstd_allowed
        self.any_format = any_format
        self.timestamp_type: Final = timestamp_type
        self.timestamp_before_max_ms: Final = timestamp_before_max_ms
        self.timestamp_after_max_ms: Final = timestamp_after_max_ms
        self.compacted: Final = compacted
        self.magic: Final = magic
        self.codec: Final = codec
        self.compression_level: Final = compression_level
        self.validate_records: Final = validate_records
        self.decompressed_limit_bytes: Final = decompressed_limit_bytes
        self.judges_records: Final = compacted or (
            timestamp_type is _CREATE_TIME
            and (timestamp_before_max_ms != UNBOUNDED_MS or timestamp_after_max_ms != UNBOUNDED_MS)
        )
        """Whether the topic has a rule about the content of individual records."""

    @property
    def looks_at_records(self) -> bool:
        """Whether each record of a client is checked; if not, the largest timestamp in the header has to suffice."""
        return (
            self.validate_records
            or self.compacted
            or (self.timestamp_before_max_ms != UNBOUNDED_MS and self.timestamp_type is TimestampType.CREATE_TIME)
        )


def rules_of_topic(config: TopicConfig, *, validate_records: bool) -> AppendRules:
    """Return the rules that a topic's settings imply. `validate_records` is the broker's `log.record.validation`."""
    by_broker = config.message_timestamp_type == "LogAppendTime"
    return AppendRules(
        config.max_message_bytes,
        0,
        timestamp_type=TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME,
        timestamp_before_max_ms=config.timestamp_before_max_ms,
        timestamp_after_max_ms=config.timestamp_after_max_ms,
        compacted=config.compacted,
        magic=config.magic,
        codec=_CODECS[config.compression_type],
        compression_level=config.compression_level,
        validate_records=validate_records,
        decompressed_limit_bytes=min(
            max(config.max_message_bytes * _MOST_RATIO, _LEAST_LIMIT_BYTES), _DECOMPRESSED_LIMIT_BYTES
        ),
    )


_CODECS: Final[dict[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    **{codec.name.lower(): codec for codec in Codec if codec},
}
"""Codecs by value of `compression.type`."""


def check_append(records: memoryview, rules: AppendRules) -> tuple[BatchHeader, ...]:
    """Return the headers of all entries in `records`, at least one.

    They fill `records`, but a client may leave part of an entry after the last one. Raises `CorruptMessageError` for a
    wrong CRC, invalid fields or offsets, or an incomplete entry in replication. Raises `MessageTooLargeError` for an
    entry above `max_message_bytes` (not in replication: the leader has decided). Raises `InvalidRecordError`,
    `InvalidTimestampError` or `UnsupportedCompressionTypeError` if a client's entry breaks a rule.
    """
    if rules.origin is _CLIENT:
        if rules.any_format and len(records) > MAGIC_AT and records[MAGIC_AT] < MAGIC:
            return _check_message_set(records, rules)
        return (_check_client_batch(records, rules),)
    limit = rules.max_message_bytes if rules.origin is _COORDINATOR else None
    return _check_own_entries(records, limit)


def usual_batch(records: memoryview, rules: AppendRules) -> BatchHeader | None:
    """Return the header of a client's batch if it is a typical one that passes all checks of `check_append`.

    None means only that the full check has to decide. A typical batch fills `records` and has attributes of 0. Checking
    it in one place replaces a dozen calls, which are half the cost of checking a single record.
    """
    size = len(records)
    if size < HEADER_SIZE:
        return None
    header: BatchHeader = tuple.__new__(BatchHeader, UNPACK_FIELDS(records))
    base_offset, length, _, magic, crc, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if (
        magic != MAGIC
        or base_offset
        or attributes
        or length != size - _LOG_OVERHEAD
        or size > rules.max_message_bytes
        or count < 1
        or count != last_delta + 1
        or (producer_id >= 0 > sequence)
        or not rules.validate_records
        or crc32c(records[_COVERED_AT:]) != crc
    ):
        return None
    return header


def _check_own_entries(records: memoryview, max_message_bytes: int | None) -> tuple[BatchHeader, ...]:
    headers: list[BatchHeader] = []
    position = 0
    next_offset = 0
    while position < len(records):
        header = read_entry(records, position)
        if max_message_bytes is not None and header.size > max_message_bytes:
            raise _too_large(header.size, max_message_bytes)
        check_entry(records, position, header)
        if max_message_bytes is None and header.base_offset < next_offset:
            raise CorruptMessageError(f"offset {header.base_offset} follows an entry that ends at {next_offset - 1}")
        next_offset = header.next_offset
        headers.append(header)
        position += header.size
    if not headers:
        raise CorruptMessageError("a record set without a batch")
    return tuple(headers)


def _check_client_batch(records: memoryview, rules: AppendRules) -> BatchHeader:
    if not _begins(records, 0):
        raise InvalidRecordError(f"a produced record set of {len(records)} bytes contains no complete batch")
    if records[MAGIC_AT] != MAGIC:
        raise InvalidRecordError(
            f"this Produce version does not allow records of format {records[MAGIC_AT]}, only {MAGIC}"
        )
    header = _read_client_header(records)
    if header.attributes & CODEC_MASK:
        _check_codec(header, rules)
    size = header.batch_length + _LOG_OVERHEAD
    if size != len(records) and _begins(records, size):
        raise InvalidRecordError(
            f"a produced record set must contain exactly one batch: it has {len(records)} bytes, the batch {size}"
        )
    if header.base_offset != 0:
        raise InvalidRecordError(f"a produced batch must have base offset 0, not {header.base_offset}")
    if size > rules.max_message_bytes:
        raise _too_large(size, rules.max_message_bytes)
    check_crc(records, 0, header)
    _check_client_fields(header)
    _check_timestamps(header, rules)
    return header


def _begins(records: memoryview, position: int) -> bool:
    """Whether a whole entry begins at `position`; false for part of one. Raises `CorruptMessageError` otherwise."""
    left = len(records) - position
    if left < _LOG_OVERHEAD:
        return False
    (size,) = _SIZE.unpack_from(records, position + _SIZE_AT)
    if size < MIN_ENTRY_SIZE - _LOG_OVERHEAD:
        raise CorruptMessageError(f"no entry has a size of {size}")
    if left <= MAGIC_AT:
        return False
    if records[position + MAGIC_AT] > MAGIC:
        raise CorruptMessageError(f"an entry of the unknown format {records[position + MAGIC_AT]}")
    return bool(size + _LOG_OVERHEAD <= left)


def _read_client_header(records: memoryview) -> BatchHeader:
    """Return the header. Raises `InvalidRecordError` if it is invalid although its CRC is correct."""
    try:
        return read_header(records)
    except CorruptMessageError as error:
        end = _LOG_OVERHEAD + int.from_bytes(records[_SIZE_AT:_LOG_OVERHEAD], "big")
        crc = int.from_bytes(records[_CRC_AT:_COVERED_AT], "big")
        if HEADER_SIZE <= end <= len(records) and crc32c(records[_COVERED_AT:end]) == crc:
            raise InvalidRecordError(str(error), fault=RecordFault.OFFSET_OR_SEQUENCE) from error
        raise CorruptMessageError(str(error), fault=RecordFault.CRC) from error


def _too_large(size: int, limit: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"an entry of {size} bytes exceeds max.message.bytes = {limit}")


def check_size(header: BatchHeader, rules: AppendRules) -> None:
    """Raise `MessageTooLargeError` if a converted entry exceeds the topic's limit."""
    if header.size > rules.max_message_bytes:
        raise _too_large(header.size, rules.max_message_bytes)


def _check_client_fields(header: BatchHeader) -> None:
    attributes = header.attributes
    if header.record_count == 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"the last offset delta {header.last_offset_delta} does not match the {header.record_count} records",
            fault=RecordFault.OFFSET_OR_SEQUENCE,
        )
    if attributes & CONTROL_FLAG:
        raise InvalidRecordError("clients may not write control records")
    if header.producer_id >= 0:
        # The log's producer state checks the epoch.
        if header.base_sequence < 0:
            raise InvalidRecordError(
                f"producer {header.producer_id} sent the invalid sequence {header.base_sequence}",
                fault=RecordFault.OFFSET_OR_SEQUENCE,
            )
    elif attributes & TRANSACTIONAL_FLAG:
        raise InvalidRecordError("a transactional batch needs a producer id")


def _check_codec(header: BatchHeader, rules: AppendRules) -> None:
    codec = header.attributes & CODEC_MASK
    if codec > _ZSTD:
        raise UnsupportedCompressionTypeError(f"codec {codec} is unknown")
    if codec == _ZSTD and not rules.zstd_allowed:
        raise UnsupportedCompressionTypeError("zstd needs Produce version 7 or later")


def _check_timestamp_type(header: BatchHeader, rules: AppendRules) -> None:
    """Refuse log append time if it cannot be reverted; a producer that forwards fetched records may send it."""
    if header.attributes & LOG_APPEND_TIME_FLAG and (
        rules.timestamp_type is TimestampType.LOG_APPEND_TIME or header.max_timestamp == NO_TIMESTAMP
    ):
        raise InvalidTimestampError("a producer may not set the timestamp type to log-append time")


def _check_timestamps(header: BatchHeader, rules: AppendRules) -> None:
    if header.attributes & LOG_APPEND_TIME_FLAG:
        _check_timestamp_type(header, rules)
    # Individual timestamps are more accurate, but if records are not checked, the header has to suffice.
    if not (rules.validate_records or rules.looks_at_records):
        fault = timestamp_fault(header.max_timestamp, rules)
        if fault is not None:
            raise InvalidTimestampError(fault)


def timestamp_fault(timestamp_ms: int, rules: AppendRules) -> str | None:
    """Return what is wrong with a record's timestamp in this topic; None if it is valid."""
    if timestamp_ms == NO_TIMESTAMP or rules.timestamp_type is not _CREATE_TIME:
        return None
    late_ms = rules.now_ms - timestamp_ms
    before_max_ms, after_max_ms = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    if (late_ms <= before_max_ms or before_max_ms == UNBOUNDED_MS) and (
        -late_ms <= after_max_ms or after_max_ms == UNBOUNDED_MS
    ):
        return None
    return (
        f"timestamp {timestamp_ms} is more than {rules.timestamp_before_max_ms} ms before or "
        f"{rules.timestamp_after_max_ms} ms after the broker's {rules.now_ms}"
    )


def _check_message_set(records: memoryview, rules: AppendRules) -> tuple[BatchHeader, ...]:
    """Check entries of format 0 or 1: plain messages, or one wrapper."""
    headers: list[BatchHeader] = []
    magic = records[MAGIC_AT]
    position = 0
    while _begins(records, position):
        if records[position + MAGIC_AT] != magic:
            found = records[position + MAGIC_AT]
            raise InvalidRecordError(f"a message set contains formats {magic} and {found}", fault=RecordFault.FORMAT)
        header = read_entry(records, position)
        if header.size > rules.max_message_bytes:
            raise _too_large(header.size, rules.max_message_bytes)
        check_entry(records, position, header)
        _check_message(header, rules)
        headers.append(header)
        position += header.size
    if not headers:
        raise InvalidRecordError(f"a produced message set of {len(records)} bytes contains no complete message")
    if len(headers) > 1 and any(header.record_count == UNKNOWN_COUNT for header in headers):
        raise InvalidRecordError("a produced message set contains more than its wrapper")
    return tuple(headers)


def _check_message(header: BatchHeader, rules: AppendRules) -> None:
    if header.attributes & CODEC_MASK == Codec.ZSTD:
        raise InvalidRecordError(
            f"a wrapper of format {header.magic} is compressed with zstd, which this format does not support"
        )
    _check_codec(header, rules)
    _check_timestamp_type(header, rules)
