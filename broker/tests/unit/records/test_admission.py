"""Conversion of record sets to the form of a topic, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OdradekError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from odradek.compression import Codec
from odradek.records.admission import Prepared, prepare
from odradek.records.checks.validate import AppendOrigin, AppendRules
from odradek.records.formats import check_entry, iterate_entries, iterate_records
from odradek.records.legacy.message_set import read_message
from odradek.records.legacy.writing import encode_set, encode_wrapper, stamp_timestamp
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, ControlType, TimestampType
from odradek.records.v2.record import Record
from odradek.records.v2.transactions import marker_batch

NOW_MS = 1_000_000
FIRST = 70
LIMIT = 1 << 24
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def rules(**changes: Any) -> AppendRules:
    return AppendRules(**{"max_message_bytes": 1 << 20, "now_ms": NOW_MS, "any_format": True, **changes})


def built(
    *values: bytes, codec: Codec = Codec.NONE, headers: bool = False, key: bytes | None = b"k", **fields: int
) -> bytes:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 30)
    for number, value in enumerate(values or (b"a" * 100, b"b" * 100)):
        builder.append(key, value, timestamp_ms=NOW_MS + number, headers=[("h", b"1")] if headers else [])
    return builder.build(**fields)


def message_set(
    *values: bytes,
    magic: int = 1,
    codec: Codec = Codec.NONE,
    begin: int = 0,
    step: int = 1,
    key: bytes | None = b"k",
    append_time_ms: int | None = None,
) -> bytes:
    return encode_set(
        [
            (begin + step * number, NOW_MS + number, key, value)
            for number, value in enumerate(values or (b"a" * 100, b"b" * 100))
        ],
        magic=magic,
        codec=codec,
        append_time_ms=append_time_ms,
    )


def refit(raw: bytes, **fields: int) -> bytes:
    """Return the batch with changed header fields and a correct CRC."""
    return batch.assemble(batch.read_header(raw)._replace(**fields), raw[batch.HEADER_SIZE :])


def admitted(raw: bytes, **changes: object) -> Prepared:
    return prepare(memoryview(raw), rules(**changes), FIRST)


def contents(raw: bytes | memoryview) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records_of(raw)]


def records_of(raw: bytes | memoryview) -> list[Record]:
    return [
        record
        for position, header in iterate_entries(raw)
        for record in iterate_records(raw, position, header, limit=LIMIT)
    ]


# Record sets that already have the required form


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("validate_records", [True, False])
def test_a_batch_in_the_topics_form_is_not_copied(codec: Codec, *, validate_records: bool) -> None:
    raw = built(codec=codec, producer_id=4, producer_epoch=0, base_sequence=9)
    came = memoryview(raw)
    for asked in (None, codec):
        prepared = prepare(came, rules(codec=asked, validate_records=validate_records, compacted=True), FIRST)
        assert prepared.records is came
        assert prepared.headers == (batch.read_header(raw),)


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_in_the_topic_s_format_are_the_memory_that_came(magic: int) -> None:
    came = memoryview(message_set(b"a", b"b", b"c", magic=magic))
    prepared = prepare(came, rules(magic=magic), FIRST)
    assert prepared.records is came
    assert [header.last_offset_delta for header in prepared.headers] == [0, 0, 0]


@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_a_wrapper_of_format_1_that_counts_from_0_is_the_memory_that_came(codec: Codec) -> None:
    came = memoryview(message_set(b"a", b"b", b"c", codec=codec))
    prepared = prepare(came, rules(magic=1), FIRST)
    assert prepared.records is came
    assert prepared.headers == (read_message(came)._replace(last_offset_delta=2, record_count=3),)


def test_replication_rewrites_nothing() -> None:
    raw = message_set(codec=Codec.GZIP, begin=5) + built(base_offset=7)
    came = memoryview(raw)
    prepared = prepare(came, rules(origin=AppendOrigin.REPLICATION, magic=0, codec=Codec.LZ4), 5)
    assert prepared.records is came
    assert [header.last_offset for header in prepared.headers] == [6, 8]


def test_a_partial_entry_at_the_end_is_dropped() -> None:
    for whole, behind in ((built(), built()[:40]), (message_set(), message_set()[:40])):
        for magic in (1, 2):
            prepared = admitted(whole + behind, magic=magic)
            assert contents(prepared.records) == contents(whole)
            assert sum(header.size for header in prepared.headers) == len(prepared.records)


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [None, Codec.NONE, Codec.LZ4])
def test_what_was_passed_on_with_log_append_time_gets_its_own_times_back(magic: int, codec: Codec | None) -> None:
    plain = built()
    inner = message_set()
    for raw in (
        refit(plain, attributes=batch.LOG_APPEND_TIME_FLAG, max_timestamp=NOW_MS + 50),
        encode_wrapper((1, NOW_MS + 50, None, inner), magic=1, codec=Codec.GZIP, is_append_time=True),
        message_set(append_time_ms=NOW_MS + 1),
    ):
        prepared = admitted(raw, magic=magic, codec=codec)
        for position, header in iterate_entries(prepared.records):
            check_entry(prepared.records, position, header)
            assert header.timestamp_type is TimestampType.CREATE_TIME
        oldest = records_of(prepared.records)[0].timestamp
        assert oldest == (NOW_MS + 1 if raw == message_set(append_time_ms=NOW_MS + 1) else NOW_MS)
        assert {header.timestamp_type for header in prepared.headers} == {TimestampType.CREATE_TIME}
        assert max(header.max_timestamp for header in prepared.headers) == NOW_MS + 1


# Newest timestamps


def test_a_wrong_largest_timestamp_in_a_header_is_corrected() -> None:
    raw = refit(built(), max_timestamp=5)
    prepared = admitted(raw)
    (header,) = prepared.headers
    assert header.max_timestamp == NOW_MS + 1
    assert bytes(prepared.records) == built()


def test_records_are_not_checked_with_batch_validation() -> None:
    raw = refit(built(), max_timestamp=5)
    assert bytes(admitted(raw, validate_records=False).records) == raw


def test_a_wrong_timestamp_is_harmless_with_log_append_time() -> None:
    raw = refit(built(), max_timestamp=5)
    assert bytes(admitted(raw, timestamp_type=TimestampType.LOG_APPEND_TIME).records) == raw


def test_a_wrapper_s_timestamp_becomes_the_newest_of_its_messages() -> None:
    raw = message_set(codec=Codec.GZIP)
    wrong = bytearray(raw)
    stamp_timestamp(wrong, 0, read_message(wrong), NOW_MS + 7, TimestampType.CREATE_TIME)
    prepared = admitted(bytes(wrong), magic=1)
    assert bytes(prepared.records) == raw
    assert prepared.headers[0].max_timestamp == NOW_MS + 1


# Compression


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_recompression_keeps_all_but_the_packing(source: Codec, target: Codec) -> None:
    fields = {"producer_id": 4, "producer_epoch": 3, "base_sequence": 9, "is_transactional": True}
    raw = built(codec=source, headers=True, **fields)
    prepared = admitted(raw, codec=target, compression_level=3 if target is Codec.ZSTD else None)
    (header,) = prepared.headers
    assert header == batch.read_header(prepared.records)
    assert header.codec is target
    before = batch.read_header(raw)
    same = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert header._replace(**same) == before._replace(**same)
    assert header.is_transactional
    batch.check_crc(prepared.records, 0, header)
    assert records_of(prepared.records) == records_of(raw)


def test_a_marker_is_not_compressed() -> None:
    marker = marker_batch(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)
    prepared = admitted(marker, origin=AppendOrigin.COORDINATOR, codec=Codec.GZIP)
    assert bytes(prepared.records) == marker


def test_a_coordinator_s_batches_are_compressed_one_by_one() -> None:
    raw = built(b"a" * 500) + built(b"b" * 500, b"c", codec=Codec.GZIP)
    prepared = admitted(raw, origin=AppendOrigin.COORDINATOR, codec=Codec.GZIP)
    assert [header.codec for header in prepared.headers] == [Codec.GZIP, Codec.GZIP]
    assert [header.last_offset_delta for header in prepared.headers] == [0, 1]
    assert contents(prepared.records) == contents(raw)


def test_the_size_counts_before_and_after() -> None:
    raw = built(bytes(5000), codec=Codec.GZIP)
    with pytest.raises(MessageTooLargeError):
        admitted(raw, max_message_bytes=len(raw) - 1)
    with pytest.raises(MessageTooLargeError):
        admitted(raw, max_message_bytes=5000, codec=Codec.NONE)
    admitted(raw, max_message_bytes=5100, codec=Codec.NONE)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_size_counts_after_another_format_too(magic: int) -> None:
    raw = message_set(bytes(5000), codec=Codec.GZIP) if magic == 2 else built(bytes(5000), codec=Codec.GZIP)
    with pytest.raises(MessageTooLargeError):
        admitted(raw, max_message_bytes=5000, codec=Codec.NONE, magic=magic)


# Old messages


def test_a_wrapper_of_format_0_gets_its_true_offsets() -> None:
    raw = message_set(magic=0, codec=Codec.GZIP)
    prepared = admitted(raw, magic=0)
    (header,) = prepared.headers
    assert (header.record_count, header.last_offset_delta) == (2, 1)
    assert header.base_offset == FIRST + 1
    assert [record.offset for record in records_of(prepared.records)] == [FIRST, FIRST + 1]


@pytest.mark.parametrize(("begin", "step"), [(5, 1), (0, 2), (0, 0)], ids=["from 5", "gaps", "all 0"])
def test_a_wrapper_of_format_1_that_counts_wrongly_is_written_anew(begin: int, step: int) -> None:
    inner = message_set(begin=begin, step=step)
    raw = packed(inner, offset=begin + step)
    prepared = admitted(raw, magic=1)
    (header,) = prepared.headers
    assert (header.record_count, header.last_offset_delta, header.base_offset) == (2, 1, FIRST + 1)
    assert [record.offset for record in records_of(prepared.records)] == [FIRST, FIRST + 1]
    assert contents(prepared.records) == contents(inner)


def packed(inner: bytes, *, offset: int) -> bytes:
    """Return a format 1 wrapper around any bytes."""
    return encode_wrapper((offset, NOW_MS, None, inner), magic=1, codec=Codec.GZIP)


def test_plain_messages_are_packed_into_one_wrapper() -> None:
    prepared = admitted(message_set(b"a", b"b", b"c"), magic=1, codec=Codec.GZIP)
    (header,) = prepared.headers
    assert (header.codec, header.record_count, header.last_offset_delta) == (Codec.GZIP, 3, 2)
    assert header.max_timestamp == NOW_MS + 2


def test_a_wrapper_is_unpacked_into_messages() -> None:
    prepared = admitted(message_set(b"a", b"b", b"c", codec=Codec.GZIP), magic=1, codec=Codec.NONE)
    assert [(header.codec, header.record_count) for header in prepared.headers] == [(Codec.NONE, 1)] * 3


def test_old_messages_become_one_batch() -> None:
    prepared = admitted(message_set(b"a", b"b", b"c"))
    (header,) = prepared.headers
    assert (header.magic, header.record_count, header.base_offset) == (2, 3, 0)
    assert header.max_timestamp == NOW_MS + 2
    assert [record.timestamp for record in records_of(prepared.records)] == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


def test_format_0_has_no_time_in_format_2() -> None:
    prepared = admitted(message_set(magic=0))
    assert prepared.headers[0].max_timestamp == -1
    assert {record.timestamp for record in records_of(prepared.records)} == {-1}


# Format 2 into older ones


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_batch_becomes_messages(magic: int, codec: Codec) -> None:
    prepared = admitted(built(b"a", b"b", codec=codec), magic=magic)
    assert {header.codec for header in prepared.headers} == {codec}
    assert [header.record_count for header in prepared.headers] == ([2] if codec else [1, 1])
    expected = [NOW_MS, NOW_MS + 1] if magic else [-1, -1]
    assert [(record.timestamp, record.headers) for record in records_of(prepared.records)] == [
        (timestamp, ()) for timestamp in expected
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_records_with_headers_do_not_become_messages(magic: int) -> None:
    with pytest.raises(UnsupportedForMessageFormatError, match="headers"):
        admitted(built(b"a", headers=True), magic=magic)


def test_messages_that_the_broker_times_are_written_so() -> None:
    prepared = admitted(built(b"a", b"b", codec=Codec.GZIP), magic=1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {record.timestamp for record in records_of(prepared.records)} == {NOW_MS}
    assert prepared.headers[0].timestamp_type is TimestampType.LOG_APPEND_TIME


def test_a_group_coordinator_s_batches_become_messages() -> None:
    raw = built(b"a") + built(b"b", b"c")
    prepared = admitted(raw, origin=AppendOrigin.COORDINATOR, magic=1)
    assert [record.value for record in records_of(prepared.records)] == [b"a", b"b", b"c"]
    assert [header.magic for header in prepared.headers] == [1, 1, 1]


MARKER = marker_batch(ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)
IDEMPOTENT = built(producer_id=4, producer_epoch=0, base_sequence=0)
BOMB = built(bytes(8 << 20), codec=Codec.ZSTD)
OLD_BOMB = message_set(bytes(8 << 20), codec=Codec.GZIP)
NESTED = packed(message_set(codec=Codec.GZIP), offset=1)
COORDINATOR = {"origin": AppendOrigin.COORDINATOR}
LATE = {"now_ms": 1 << 40, "timestamp_before_max_ms": 10}

REFUSED: list[tuple[str, bytes, dict[str, object], type[OdradekError]]] = [
    ("idempotent into format 1", IDEMPOTENT, {"magic": 1}, UnsupportedForMessageFormatError),
    ("idempotent into format 0", IDEMPOTENT, {"magic": 0}, UnsupportedForMessageFormatError),
    ("marker into format 1", MARKER, {"magic": 1, **COORDINATOR}, UnsupportedForMessageFormatError),
    ("zstd into format 1", built(codec=Codec.ZSTD), {"magic": 1}, UnsupportedCompressionTypeError),
    ("zstd topic of format 1", message_set(), {"magic": 1, "codec": Codec.ZSTD}, UnsupportedCompressionTypeError),
    ("zstd topic of format 0", built(), {"magic": 0, "codec": Codec.ZSTD}, UnsupportedCompressionTypeError),
    ("bomb", BOMB, {"decompressed_limit_bytes": 1 << 20}, InvalidRecordError),
    ("bomb to be packed", BOMB, {"decompressed_limit_bytes": 1 << 20, "codec": Codec.LZ4}, InvalidRecordError),
    ("bomb into format 1", BOMB, {"decompressed_limit_bytes": 1 << 20, "magic": 1}, InvalidRecordError),
    ("old bomb", OLD_BOMB, {"decompressed_limit_bytes": 1 << 20}, CorruptMessageError),
    ("old bomb kept", OLD_BOMB, {"decompressed_limit_bytes": 1 << 20, "magic": 1}, CorruptMessageError),
    ("no packed data", refit(built(), attributes=int(Codec.LZ4)), {}, InvalidRecordError),
    ("more records than bytes", refit(built(), record_count=99, last_offset_delta=98), {}, InvalidRecordError),
    ("fewer records than there are", refit(built(), record_count=1, last_offset_delta=0), {}, InvalidRecordError),
    ("no key", built(key=None), {"compacted": True}, InvalidRecordError),
    ("packed no key", built(key=None, codec=Codec.GZIP), {"compacted": True}, InvalidRecordError),
    ("old no key", message_set(key=None), {"compacted": True, "magic": 1}, InvalidRecordError),
    ("wrapped no key", message_set(key=None, codec=Codec.GZIP), {"compacted": True}, InvalidRecordError),
    ("no key into format 1", built(key=None), {"compacted": True, "magic": 1}, InvalidRecordError),
    ("future", built(b"v"), {"now_ms": 0, "timestamp_after_max_ms": 10}, InvalidTimestampError),
    ("packed past", built(b"v", codec=Codec.LZ4), LATE, InvalidTimestampError),
    ("old past", message_set(), LATE, InvalidTimestampError),
    ("nested", NESTED, {"magic": 1}, InvalidRecordError),
    ("nested into format 2", NESTED, {}, InvalidRecordError),
    ("empty wrapper", packed(b"", offset=0), {}, InvalidRecordError),
    ("wrapper of noise", packed(b"\x00" * 40, offset=0), {}, InvalidRecordError),
    ("wrapper of a false CRC", packed(message_set(b"a")[:-1] + b"b", offset=0), {}, CorruptMessageError),
    ("wrapper of another format", packed(message_set(b"a", magic=0), offset=0), {}, InvalidRecordError),
    ("wrapper below its last", packed(message_set(b"a", b"b", b"c"), offset=1), {"magic": 1}, InvalidRecordError),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "changes", "error"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_refused(raw: bytes, changes: dict[str, object], error: type[OdradekError]) -> None:
    with pytest.raises(OdradekError) as caught:
        admitted(raw, **changes)
    assert type(caught.value) is error


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_records_at_fault_are_named(magic: int) -> None:
    for raw in (built(b"a", b"b", key=None), message_set(b"a", b"b", key=None, codec=Codec.GZIP)):
        with pytest.raises(InvalidRecordError) as caught:
            admitted(raw, magic=magic, compacted=True)
        assert [number for number, _ in caught.value.record_errors] == [0, 1]
