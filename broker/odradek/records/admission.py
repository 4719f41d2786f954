"""From what came to what is kept: a record set is checked, and rewritten where the topic asks for another form.

A record set and the topic's rules enter; the entries to be numbered, stamped and written leave, with their headers.
`PartitionLog.append_as_leader` calls it once per append. Invariant: a set that already has the topic's form leaves as
the very memory that came.

What a topic may ask for: a record format (`message.format.version`), a codec (`compression.type`), true newest
timestamps. A batch of format 2 keeps its records section byte for byte but for the packing; everything else is taken
apart and written anew. The headers that leave tell what is to be numbered: `last_offset_delta` + 1 records in each
entry, also in a wrapper of formats 0 and 1, whose own offset is to become that of its last message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.base.errors import CorruptMessageError, InvalidRecordError, UnsupportedForMessageFormatError
from odradek.compression import Codec, compress
from odradek.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    BatchHeader,
    TimestampType,
    assemble,
    read_header,
)
from odradek.records.convert import up_messages, up_plain
from odradek.records.formats import MAGIC_AT, iterate_entries
from odradek.records.message_set import UNKNOWN_COUNT, encode_set, read_set, stamp_timestamp
from odradek.records.record import MIN_RECORD_BYTES, Message, iterate_batch, record_bytes
from odradek.records.structure import check_messages, check_records
from odradek.records.validate import AppendOrigin, AppendRules, check_append, check_size, usual_batch

_TAKEN_APART_LIMIT_BYTES: Final = 16 << 20
_TAKEN_APART_RECORDS: Final = 1 << 18
"""Most unpacked bytes and records of a set whose records become objects here, which takes microseconds each."""


_CLIENT: Final = AppendOrigin.CLIENT
_REPLICATION: Final = AppendOrigin.REPLICATION
_LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME
"""See `validate`: names of their own are looked up faster."""

_LOG_OVERHEAD: Final = 12


class Prepared(NamedTuple):
    """What is to be numbered and written."""

    records: memoryview
    headers: tuple[BatchHeader, ...]
    converted: int = 0
    """Records that were written anew for another format or codec."""


def prepare(records: memoryview, rules: AppendRules, first_offset: int) -> Prepared:
    """Check a record set and bring it into the topic's form; its first record is to get `first_offset`.

    Raises what `check_append`, `check_records` and `check_messages` raise; `UnsupportedForMessageFormatError` when an
    idempotent or transactional batch, or a record with headers, would have to become older;
    `UnsupportedCompressionTypeError` when zstd would have to go into format 0 or 1; `MessageTooLargeError` when the new
    form is too large.
    """
    if rules.origin is _CLIENT and rules.codec is None and rules.magic == MAGIC:
        header = usual_batch(records, rules)
        if header is not None and _is_kept(records, header, rules):
            return Prepared(records, (header,))
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
    """Whether the records of a batch that passed all other checks do, too, and tell the time that its header has."""
    section = records[HEADER_SIZE:]
    if header.record_count * MIN_RECORD_BYTES > len(section):
        return False
    newest = check_records(section, header, rules)
    return newest == header.max_timestamp or rules.timestamp_type is _LOG_APPEND_TIME


def _raise_usual(records: memoryview, rules: AppendRules) -> Prepared | None:
    """A client's plain messages as the batch that is kept, when they pass every check; None says nothing.

    What takes four walks over the messages in general is one here, and no object for each.
    """
    size = len(records)
    if MAGIC_AT < size <= rules.max_message_bytes and records[MAGIC_AT] < MAGIC and not rules.judges_records:
        raised = up_plain(records, magic=records[MAGIC_AT])
        if raised is not None and len(raised) <= rules.max_message_bytes:
            header = read_header(raised)
            return Prepared(memoryview(raised), (header,), header.record_count)
    return None


def _as_produced(records: memoryview, headers: tuple[BatchHeader, ...]) -> tuple[memoryview, tuple[BatchHeader, ...]]:
    """A client's whole entries, without a piece of one behind them, and as create time what claims log-append time.

    Whoever sends that passes on what it fetched. As in Kafka its records get their own times back.
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
    """Records of a batch that got another codec."""
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
    """Markers stay as they were written, as in Kafka: nothing but their key and value says what they are."""
    return source if rules.codec is None or (is_control and source is Codec.NONE) else rules.codec


def _unpack(records: memoryview, header: BatchHeader, limit: int) -> bytes | memoryview:
    """The records section. The CRC was true, so what does not unpack was written so and would fail again: code 87."""
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
                f"idempotent and transactional records need record format {MAGIC}, the topic keeps format {rules.magic}"
            )
        if len(messages) + header.record_count > _TAKEN_APART_RECORDS:
            raise InvalidRecordError(f"more than {_TAKEN_APART_RECORDS} records are not rewritten to another format")
        batch = records[position : position + header.size]
        limit = min(rules.decompressed_limit_bytes, _TAKEN_APART_LIMIT_BYTES)
        if rules.origin is AppendOrigin.CLIENT:
            check_records(_unpack(batch, header, limit), header, rules)
        # The record's own offset does not count: it gets its true one here.
        for record in iterate_batch(batch, 0, header, limit=limit):
            if record.headers:
                raise UnsupportedForMessageFormatError(
                    f"record headers need record format {MAGIC}, the topic keeps format {rules.magic}"
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
    """The header with the number of records in a wrapper, which only one who unpacked it knows."""
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
    """A wrapper of format 1 that counts from 0 as it should; its own timestamp has to be the newest of all."""
    newest = max(message[1] for message in messages)
    if newest != header.max_timestamp and rules.timestamp_type is TimestampType.CREATE_TIME:
        kept = bytearray(records)
        stamp_timestamp(kept, 0, header, newest, TimestampType.CREATE_TIME)
        records = memoryview(kept)
        header = header._replace(base_timestamp=newest, max_timestamp=newest)
    return Prepared(records, (_counted(header, len(messages)),))
