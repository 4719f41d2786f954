"""Headers, stamping and the builder of batches."""

from __future__ import annotations

import struct

import pytest

from odradek.base.errors import CorruptMessageError
from odradek.compression import Codec
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, ControlType, TimestampType, read_header
from odradek.records.v2.record import decode_batch
from odradek_testkit.batches import iterate

FIELDS = struct.Struct(">qiibIhiqqqhii")


def built(count: int = 3, codec: Codec = Codec.NONE, **values: int) -> bytearray:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
    for number in range(count):
        assert builder.append(b"k%d" % number, b"v" * number, timestamp_ms=1000 - number)
    return bytearray(builder.build(**values))


def with_field(index: int, value: int) -> bytes:
    fields = list(FIELDS.unpack_from(built()))
    fields[index] = value
    return FIELDS.pack(*fields) + bytes(built()[batch.HEADER_SIZE :])


def test_header_of_a_built_batch() -> None:
    raw = built(codec=Codec.LZ4, base_offset=70, leader_epoch=4, producer_id=9, producer_epoch=1, base_sequence=5)
    header = read_header(memoryview(b"abc" + raw), 3)
    assert header.size == len(raw)
    assert (header.base_offset, header.last_offset, header.next_offset, header.leader_epoch) == (70, 72, 73, 4)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1000)
    assert (header.codec, header.timestamp_type) == (Codec.LZ4, TimestampType.CREATE_TIME)
    assert (header.base_sequence, header.last_sequence) == (5, 7)
    batch.check_crc(raw, 0, header)


def test_sequence_numbers_wrap_to_zero_and_none_stays_none() -> None:
    assert read_header(built(base_sequence=2**31 - 2, producer_id=1)).last_sequence == 0
    assert read_header(built()).last_sequence == -1


def test_the_base_timestamp_field_contains_the_delete_horizon() -> None:
    header = read_header(built())
    assert header.delete_horizon_ms is None
    kept = header._replace(attributes=header.attributes | batch.DELETE_HORIZON_FLAG, base_timestamp=86_400_000)
    raw = batch.assemble(kept, bytes(built()[batch.HEADER_SIZE :]))
    header = read_header(raw)
    assert header.delete_horizon_ms == 86_400_000
    assert (header.timestamp_type, header.is_control, header.is_transactional) == (
        TimestampType.CREATE_TIME,
        False,
        False,
    )
    timestamps = [record.timestamp for record in decode_batch(raw, 0, header, limit=1 << 20)]
    assert timestamps == [86_400_000, 86_399_999, 86_399_998]


@pytest.mark.parametrize(
    ("index", "value"),
    [(0, -1), (0, 2**63 - 2), (1, 48), (1, -(2**31)), (3, 1), (3, 3), (6, -1), (12, -1)],
    ids=lambda number: str(number),
)
def test_an_inconsistent_header_is_corrupt(index: int, value: int) -> None:
    with pytest.raises(CorruptMessageError):
        read_header(with_field(index, value))


@pytest.mark.parametrize("length", [0, 1, 60])
def test_short_header_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptMessageError):
        read_header(built()[:length])


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_corrupt(codec: int) -> None:
    header = read_header(with_field(5, codec))
    with pytest.raises(CorruptMessageError):
        _ = header.codec


def test_iterate_yields_whole_batches_only() -> None:
    first, second = built(2), built(4, base_offset=2)
    both = first + second
    assert [(at, header.base_offset) for at, header in iterate(both)] == [(0, 0), (len(first), 2)]
    for cut in (1, len(second) - batch.HEADER_SIZE, len(second) - 1):
        assert [at for at, _ in iterate(memoryview(both)[: len(both) - cut])] == [0]
    assert list(iterate(b"")) == []


def test_every_flipped_bit_behind_the_crc_is_noticed() -> None:
    raw = built(1)
    header = read_header(raw)
    for bit in range(17 * 8, len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        stored = header._replace(crc=int.from_bytes(flipped[17:21], "big"))
        with pytest.raises(CorruptMessageError):
            batch.check_crc(flipped, 0, stored)


def test_crc_of_a_batch_that_is_not_all_there() -> None:
    raw = built()
    with pytest.raises(CorruptMessageError):
        batch.check_crc(raw[:-1], 0, read_header(raw))


def test_stamp_leaves_the_crc_true() -> None:
    raw = bytearray(b"??") + built()
    batch.stamp(memoryview(raw), 2, 123456, 7)
    header = read_header(raw, 2)
    assert (header.base_offset, header.leader_epoch) == (123456, 7)
    batch.check_crc(raw, 2, header)


def test_stamp_log_append_time_makes_a_new_crc() -> None:
    raw = built(codec=Codec.GZIP)
    batch.stamp_log_append_time(raw, 0, read_header(raw), 99_000)
    header = read_header(raw)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 99_000)
    assert header.codec is Codec.GZIP
    batch.check_crc(raw, 0, header)
    assert {record.timestamp for record in decode_batch(raw, 0, header, limit=1000)} == {99_000}


def test_builder_is_full_at_its_limit_and_keeps_what_it_has() -> None:
    builder = BatchBuilder(limit_bytes=200)
    taken = 0
    while builder.append(None, b"x" * 20, timestamp_ms=5):
        taken += 1
        assert builder.size_bytes <= 200
    raw = builder.build()
    assert (builder.record_count, read_header(raw).record_count) == (taken, taken)
    assert builder.size_bytes == len(raw) > 200 - 30


def test_a_first_record_fits_always() -> None:
    builder = BatchBuilder(limit_bytes=1)
    assert builder.append(b"k", b"v" * 500, timestamp_ms=0)
    assert not builder.append(None, None, timestamp_ms=0)


def test_an_empty_builder_builds_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BatchBuilder(limit_bytes=100).build()


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_control_key_that_is_too_short(key: bytes | None) -> None:
    with pytest.raises(CorruptMessageError):
        batch.read_control_type(key)


def test_control_key_of_another_type_or_newer_version() -> None:
    assert batch.read_control_type(b"\x00\x00\x00\x02") is None
    assert batch.read_control_type(b"\x00\x01\x00\x01extra") is ControlType.COMMIT


def test_marker_value_that_is_too_short() -> None:
    with pytest.raises(CorruptMessageError):
        batch.read_coordinator_epoch(b"\x00\x00\x00")
