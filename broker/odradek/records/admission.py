"""Validates a record set for an append and converts it if the topic requires another form.

`PartitionLog.append_as_leader` calls it once per append with the topic's rules. The result is the entries to number,
stamp and write, with their headers. Invariant: a set that already has the required form is returned in the same memory.

A topic may require a record format (`message.format.version`), a codec (`compression.type`) and correct largest
timestamps. The records section of a format 2 batch is kept unchanged except for compression; everything else is decoded
and encoded again. In the returned headers each entry takes `last_offset_delta` + 1 offsets, also a wrapper of formats 0
and 1, whose own offset then becomes that of its last message.
"""

from __future__ import annotations

from builtins import memoryview  # noqa: A004 - mypyc looks up annotations of a NamedTuple in the module
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.base.errors import CorruptMessageError, InvalidRecordError, UnsupportedForMessageFormatError
from odradek.compression import Codec, compress
from odradek.records.checks.structure import check_messages, check_records
from odradek.records.checks.validate import AppendOrigin, AppendRules, check_append, check_size, usual_batch
from odradek.records.conversion.up import up_messages, up_plain
from odradek.records.formats import MAGIC_AT, iterate_entries
from odradek.records.legacy.message_set import UNKNOWN_COUNT, read_set
from odradek.records.legacy.writing import encode_set, stamp_timestamp
from odradek.records.v2.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    BatchHeader,
    TimestampType,
    assemble,
    read_header,
)
from odradek.records.v2.record import MIN_RECORD_BYTES, Message, iterate_batch, record_bytes

_TAKEN_APART_LIMIT_BYTES: Final = 16 << 20
_MAX_DECODED_RECORDS: Final = 1 << 18
"""Maximum decompressed bytes and records of a set that is decoded to objects here, which takes microseconds each."""


_CLIENT: Final = AppendOrigin.CLIENT
_REPLICATION: Final = AppendOrigin.REPLICATION
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
"""Module-level constants are faster to look up; see `checks/validate`."""

_LOG_OVERHEAD: Final = 12


class Prepared(NamedTuple):
    """The records to number and write."""

    records: memoryview
    headers: tuple[BatchHeader, ...]
    converted: int = 0
    """Number of records converted to another format or codec."""


def prepare(records: memoryview, rules: AppendRules, first_offset: int) -> Prepared:
    """Validate a record set and convert it to the topic's form; its first record gets `first_offset`.

    Raises what `check_append`, `check_records` and `check_messages` raise; `UnsupportedForMessageFormatError` if an
    idempotent or transactional batch, or a record with headers, would need down-conversion;
    `UnsupportedCompressionTypeError` if format 0 or 1 would need zstd; `MessageTooLargeError` if the converted set is
    too large.
    """
    if rules.origin is _CLIENT and rules.codec is None and rules.magic == MAGIC:
        header = usual_batch(records, rules)
        if header is not None and _is_kept(records, header, rules):
            # `tuple.__new__`: the constructor of a NamedTuple is interpreted in the compiled form as well.
            return tuple.__new__(Prepared, (records, (header,), 0))
        if header is None and rules.any_format:
            raised = _raise_usual(records, rules)
            if raised is not None:
                return raised
    headers = check_append(records, rules)
    if rules.origin is _REPLICATION:
        return Prepared(records, headers)
    if rules.origin is _CLIENT:
        records, headers = _as_produced(records, headers)
    if headers[0].magic < MAGIC:
        return _admit_messages(records, headers, rules, first_offset)
    if rules.magic < MAGIC:
        return _lower(records, headers, rules, first_offset)
    return _admit_batches(records, headers, rules)


def _is_kept(records: memoryview, header: BatchHeader, rules: AppendRules) -> bool:
    """Whether the records of an otherwise valid batch are valid and match the header's largest timestamp."""
    section = records[HEADER_SIZE:]
    if header.record_count * MIN_RECORD_BYTES > len(section):
        return False
    newest = check_records(section, header, rules)
    return newest == header.max_timestamp or rules.timestamp_type is _LOG_APPEND_TIME


def _raise_usual(records: memoryview, rules: AppendRules) -> Prepared | None:
    """Convert a client's plain messages to a batch if they pass every check; None means that the full check decides.

    Needs one pass over the messages instead of four, and no object per message.
    """
    size = len(records)
    if MAGIC_AT < size <= rules.max_message_bytes and records[MAGIC_AT] < MAGIC and not rules.judges_records:
        raised = up_plain(records, magic=records[MAGIC_AT])
        if raised is not None and len(raised) <= rules.max_message_bytes:
            header = read_header(raised)
            return Prepared(memoryview(raised), (header,), header.record_count)
    return None


def _as_produced(records: memoryview, headers: tuple[BatchHeader, ...]) -> tuple[memoryview, tuple[BatchHeader, ...]]:
    """Return a client's whole entries, without part of an entry after them, and with create time.

    A client that sends log append time forwards what it fetched. As in Kafka, its records get their own times back.
    """
    size = claims = 0
    for header in headers:
        size += header.batch_length + _LOG_OVERHEAD
        claims |= header.attributes & LOG_APPEND_TIME_FLAG
    if size != len(records):
        records = records[:size]
    return _in_create_time(records, headers) if claims else (records, headers)


def _in_create_time(
    records: memoryview, headers: tuple[BatchHeader, ...]
) -> tuple[memoryview, tuple[BatchHeader, ...]]:
    fitted = tuple(header._replace(attributes=header.attributes & ~LOG_APPEND_TIME_FLAG) for header in headers)
    if headers[0].magic == MAGIC:
        kept = assemble(fitted[0], records[HEADER_SIZE:])
        return memoryview(kept), (read_header(kept),)
    written = bytearray(records)
    position = 0
    for header in fitted:
        stamp_timestamp(written, position, header, header.max_timestamp, TimestampType.CREATE_TIME)
        position += header.size
    return memoryview(written), fitted


# Format 2 into format 2


def _admit_batches(records: memoryview, headers: tuple[BatchHeader, ...], rules: AppendRules) -> Prepared:
    if len(headers) == 1:
        kept, header = _admit_batch(records, headers[0], rules)
        if kept is records:
            return Prepared(records, headers)
        return Prepared(kept, (header,), _repacked(headers[0], header))
    position = converted = 0
    parts: list[memoryview] = []
    fitted: list[BatchHeader] = []
    for header in headers:
        following = position + header.size
        part, fitting = _admit_batch(records[position:following], header, rules)
        parts.append(part)
        fitted.append(fitting)
        converted += _repacked(header, fitting)
        position = following
    return Prepared(memoryview(b"".join(parts)), tuple(fitted), converted)


def _repacked(before: BatchHeader, after: BatchHeader) -> int:
    """Return the number of records in a batch whose codec has changed."""
    return after.record_count if (before.attributes ^ after.attributes) & CODEC_MASK else 0


def _admit_batch(records: memoryview, header: BatchHeader, rules: AppendRules) -> tuple[memoryview, BatchHeader]:
    source = target = header.codec
    if rules.codec is not None:
        target = _target_codec(source, rules, is_control=header.is_control)
    looks = rules.origin is _CLIENT and (rules.validate_records or rules.looks_at_records)
    if not looks and target is source:
        return records, header
    section = _unpack(records, header, rules.decompressed_limit_bytes)
    newest = header.max_timestamp
    if looks:
        newest = check_records(section, header, rules)
        if rules.timestamp_type is _LOG_APPEND_TIME:
            newest = header.max_timestamp
    if target is not source:
        section = compress(target, section, rules.compression_level)
        header = header._replace(attributes=header.attributes & ~CODEC_MASK | target)
    elif newest == header.max_timestamp:
        return records, header
    else:
        section = records[HEADER_SIZE:]
    rewritten = assemble(header._replace(max_timestamp=newest), section)
    header = read_header(rewritten)
    check_size(header, rules)
    return memoryview(rewritten), header


def _target_codec(source: Codec, rules: AppendRules, *, is_control: bool = False) -> Codec:
    """Return the codec to use. Uncompressed markers are not compressed, as in Kafka."""
    return source if rules.codec is None or (is_control and source is Codec.NONE) else rules.codec


def _unpack(records: memoryview, header: BatchHeader, limit: int) -> bytes | memoryview:
    """Return the records section. The CRC is correct, so a retry would fail again: hence error code 87."""
    try:
        return record_bytes(records, 0, header, limit=limit)
    except CorruptMessageError as error:
        raise InvalidRecordError(str(error)) from error


# Format 2 into formats 0 and 1


def _lower(records: memoryview, headers: tuple[BatchHeader, ...], rules: AppendRules, first_offset: int) -> Prepared:
    messages: list[Message] = []
    source = Codec.NONE
    position = 0
    for header in headers:
        if header.producer_id >= 0 or header.is_transactional or header.is_control:
            raise UnsupportedForMessageFormatError(
                f"idempotent and transactional records need record format {MAGIC}, the topic has format {rules.magic}"
            )
        if len(messages) + header.record_count > _MAX_DECODED_RECORDS:
            raise InvalidRecordError(
                f"a batch of more than {_MAX_DECODED_RECORDS} records cannot be converted to another format"
            )
        batch = records[position : position + header.size]
        limit = min(rules.decompressed_limit_bytes, _TAKEN_APART_LIMIT_BYTES)
        if rules.origin is AppendOrigin.CLIENT:
            check_records(_unpack(batch, header, limit), header, rules)
        # The record's own offset is ignored: its final offset is assigned here.
        for record in iterate_batch(batch, 0, header, limit=limit):
            if record.headers:
                raise UnsupportedForMessageFormatError(
                    f"record headers need record format {MAGIC}, but the topic has format {rules.magic}"
                )
            messages.append((first_offset + len(messages), record.timestamp, record.key, record.value))
        source = header.codec or source
        position += header.size
    return _write_messages(messages, _target_codec(source, rules), rules)


def _write_messages(messages: Sequence[Message], codec: Codec, rules: AppendRules) -> Prepared:
    is_append_time = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    written = encode_set(
        messages,
        magic=rules.magic,
        codec=codec,
        level=rules.compression_level,
        append_time_ms=rules.now_ms if is_append_time else None,
    )
    headers = tuple(_counted(header, len(messages)) for _, header in iterate_entries(written))
    for header in headers:
        check_size(header, rules)
    return Prepared(memoryview(written), headers, len(messages))


def _counted(header: BatchHeader, count: int) -> BatchHeader:
    """Return the header with the number of records in a wrapper, which is known only after decompressing it."""
    if header.record_count != UNKNOWN_COUNT:
        return header
    return header._replace(last_offset_delta=count - 1, record_count=count)


# Formats 0 and 1


def _admit_messages(
    records: memoryview, headers: tuple[BatchHeader, ...], rules: AppendRules, first_offset: int
) -> Prepared:
    source = headers[0].codec
    target = _target_codec(source, rules)
    limit = min(rules.decompressed_limit_bytes, _TAKEN_APART_LIMIT_BYTES)
    messages = read_set(records, limit=limit)
    check_messages(messages, rules)
    if rules.magic == MAGIC:
        return _raise(messages, target, rules)
    if headers[0].magic == rules.magic and target is source:
        if source is Codec.NONE:
            return Prepared(records, headers)
        if rules.magic == 1 and all(number == message[0] for number, message in enumerate(messages)):
            return _keep_wrapper(records, headers[0], messages, rules)
    numbered = [(first_offset + number, *message[1:]) for number, message in enumerate(messages)]
    return _write_messages(numbered, target, rules)


def _raise(messages: Sequence[Message], codec: Codec, rules: AppendRules) -> Prepared:
    written = up_messages(messages, base_offset=0, codec=codec, level=rules.compression_level)
    header = read_header(written)
    check_size(header, rules)
    return Prepared(memoryview(written), (header,), header.record_count)


def _keep_wrapper(
    records: memoryview, header: BatchHeader, messages: Sequence[Message], rules: AppendRules
) -> Prepared:
    """Keep a format 1 wrapper whose offsets count from 0; make its own timestamp the largest of its messages."""
    newest = max(message[1] for message in messages)
    if newest != header.max_timestamp and rules.timestamp_type is TimestampType.CREATE_TIME:
        kept = bytearray(records)
        stamp_timestamp(kept, 0, header, newest, TimestampType.CREATE_TIME)
        records = memoryview(kept)
        header = header._replace(base_timestamp=newest, max_timestamp=newest)
    return Prepared(records, (_counted(header, len(messages)),))
