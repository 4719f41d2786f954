"""Conversion: kept and dropped data, size limits, and refusals."""

from __future__ import annotations

import pickle
import tracemalloc

import pytest

from odradek.base.errors import CorruptMessageError, InvalidRecordError, UnsupportedCompressionTypeError
from odradek.compression import Codec, compress
from odradek.records.conversion.down import down
from odradek.records.conversion.up import up, up_entry
from odradek.records.formats import check_entry, iterate_entries, iterate_records, read_entry
from odradek.records.legacy.message_set import read_set
from odradek.records.legacy.writing import encode_set
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, ControlType, TimestampType
from odradek.records.v2.record import Message, Record, record_bytes
from odradek.records.v2.transactions import marker_batch
from odradek.records.v2.varint import encode_varint

LIMIT = 1 << 20
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
MESSAGES: list[Message] = [(10, 300, b"k", b"v"), (11, 900, None, b""), (12, 100, b"", None)]


def batch_at(offset: int, *, codec: Codec = Codec.NONE, count: int = 3, **changes: int) -> bytes:
    builder = BatchBuilder(limit_bytes=LIMIT, codec=codec)
    for number in range(count):
        builder.append(b"k%d" % number, b"v" * 50, timestamp_ms=1000 - number, headers=(("h", b"x"), ("n", None)))
    return builder.build(base_offset=offset, **changes)


def decode(raw: bytes) -> list[Record]:
    records = []
    for position, header in iterate_entries(raw):
        check_entry(raw, position, header)
        records += iterate_records(raw, position, header, limit=LIMIT)
    assert sum(header.size for _, header in iterate_entries(raw)) == len(raw)
    return records


class TestUp:
    @pytest.mark.parametrize("codec", OLD_CODECS)
    def test_everything_is_kept(self, codec: Codec) -> None:
        converted = up(encode_set(MESSAGES, magic=1, codec=codec))
        assert decode(converted) == [Record(*message) for message in MESSAGES]
        header = read_entry(converted)
        assert (header.magic, header.codec, header.base_offset, header.record_count) == (2, codec, 10, 3)
        assert (header.base_timestamp, header.max_timestamp) == (300, 900)
        assert (header.leader_epoch, header.producer_id, header.producer_epoch, header.base_sequence) == (-1,) * 4

    def test_it_is_what_a_client_of_today_would_have_written(self) -> None:
        builder = BatchBuilder(limit_bytes=LIMIT)
        for _, timestamp_ms, key, value in MESSAGES:
            builder.append(key, value, timestamp_ms=timestamp_ms)
        assert up(encode_set(MESSAGES, magic=1)) == builder.build(base_offset=10)

    def test_records_are_numbered_anew(self) -> None:
        unnumbered = [(0, timestamp, key, value) for _, timestamp, key, value in MESSAGES]
        converted = up(encode_set(unnumbered, magic=0), base_offset=70, leader_epoch=4)
        assert [record.offset for record in decode(converted)] == [70, 71, 72]
        assert [record.timestamp for record in decode(converted)] == [-1, -1, -1]
        assert read_entry(converted).leader_epoch == 4

    def test_codec_and_log_append_time_are_the_caller_s(self) -> None:
        converted = up(encode_set(MESSAGES, magic=1, codec=Codec.GZIP), codec=Codec.ZSTD, level=7, append_time_ms=5555)
        header = read_entry(converted)
        assert (header.codec, header.timestamp_type) == (Codec.ZSTD, TimestampType.LOG_APPEND_TIME)
        assert (header.base_timestamp, header.max_timestamp) == (5555, 5555)
        assert {record.timestamp for record in decode(converted)} == {5555}

    def test_gaps_that_compaction_left_stay(self) -> None:
        sparse = [(10, 1, b"a", b""), (17, 2, b"b", b"")]
        converted = up(encode_set(sparse, magic=1, codec=Codec.LZ4))
        assert [record.offset for record in decode(converted)] == [10, 17]
        assert read_entry(converted).last_offset == 17

    @pytest.mark.parametrize(
        "offsets", [(5, 5), (5, 4), (0, 2**31), (-1, 0)], ids=["repeated", "falling", "too far apart", "not numbered"]
    )
    def test_offsets_that_no_batch_can_have(self, offsets: tuple[int, int]) -> None:
        raw = encode_set([(offset, 1, None, b"") for offset in offsets], magic=1)
        with pytest.raises(CorruptMessageError):
            up(raw)
        assert [record.offset for record in decode(up(raw, base_offset=0))] == [0, 1]

    def test_nothing_is_no_batch(self) -> None:
        with pytest.raises(InvalidRecordError):
            up(b"")

    def test_a_batch_is_not_raised(self) -> None:
        with pytest.raises(CorruptMessageError):
            up(batch_at(0))

    def test_a_bomb_is_refused(self) -> None:
        bomb = encode_set([(0, 1, None, bytes(LIMIT))], magic=1, codec=Codec.GZIP)
        with pytest.raises(CorruptMessageError):
            up(bomb, limit=LIMIT)

    @pytest.mark.parametrize("append_time_ms", [None, 77])
    def test_one_entry_for_readers(self, append_time_ms: int | None) -> None:
        raw = encode_set(MESSAGES, magic=1, codec=Codec.GZIP, append_time_ms=append_time_ms)
        converted = up_entry(raw, 0, read_entry(raw))
        assert decode(converted) == decode(raw)
        assert read_entry(converted).codec is Codec.NONE
        damaged = bytearray(raw)
        damaged[-1] ^= 1
        with pytest.raises(CorruptMessageError, match="CRC"):
            up_entry(bytes(damaged), 0, read_entry(raw))


class TestDown:
    @pytest.mark.parametrize("codec", OLD_CODECS)
    @pytest.mark.parametrize("magic", [0, 1])
    def test_what_the_old_format_can_hold_is_kept(self, codec: Codec, magic: int) -> None:
        source = batch_at(20, codec=codec, producer_id=7, producer_epoch=1, base_sequence=0)
        converted = down(source, magic=magic, first_offset=20)
        kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
        assert decode(converted.records) == [
            record._replace(headers=(), timestamp=record.timestamp if magic else -1, timestamp_type=kind)
            for record in decode(source)
        ]
        headers = [header for _, header in iterate_entries(converted.records)]
        assert {(header.magic, header.codec) for header in headers} == {(magic, codec)}
        assert len(headers) == (1 if codec else 3)
        assert headers[0].max_timestamp == (1000 if magic else -1)
        assert (converted.record_count, converted.consumed_bytes) == (3, len(source))

    @pytest.mark.parametrize("codec", OLD_CODECS)
    def test_log_append_time_stays_what_it_is(self, codec: Codec) -> None:
        source = bytearray(batch_at(20, codec=codec))
        batch.stamp_log_append_time(source, 0, batch.read_header(source), 5000)
        records = decode(down(source, magic=1).records)
        assert {(record.timestamp, record.timestamp_type) for record in records} == {
            (5000, TimestampType.LOG_APPEND_TIME)
        }
        assert {record.timestamp for record in decode(down(source, magic=0).records)} == {-1}

    def test_markers_are_omitted(self) -> None:
        marker = marker_batch(
            ControlType.COMMIT, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp_ms=1, base_offset=23
        )
        source = batch_at(20, producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True) + marker
        converted = down(source + batch_at(24), magic=1)
        assert [record.offset for record in decode(converted.records)] == [20, 21, 22, 24, 25, 26]
        assert down(marker, magic=0) == (b"", 0, len(marker))

    def test_plain_records_before_the_requested_one_are_omitted(self) -> None:
        converted = down(batch_at(20) + batch_at(23), magic=1, first_offset=22)
        assert [record.offset for record in decode(converted.records)] == [22, 23, 24, 25]
        assert converted.record_count == 4
        assert down(batch_at(20), magic=0, first_offset=23).records == b""

    def test_wrappers_stay_whole(self) -> None:
        converted = down(batch_at(20, codec=Codec.GZIP), magic=1, first_offset=22)
        assert [record.offset for record in decode(converted.records)] == [20, 21, 22]

    def test_offsets_of_a_compacted_batch(self) -> None:
        for codec in OLD_CODECS:
            source = up(encode_set([(12, 1, b"a", b""), (19, 2, b"b", b"")], magic=1), codec=codec)
            # The first record was removed: the batch begins before its first remaining record.
            header = batch.read_header(source)
            section = bytes(record_bytes(source, 0, header, limit=LIMIT))
            shifted = section[:3] + b"\x04" + section[4:11] + b"\x12" + section[12:]
            plain = header._replace(base_offset=10, last_offset_delta=9, attributes=codec)
            compacted = batch.assemble(plain, compress(codec, shifted))
            expected = [record.offset for record in decode(compacted)]
            assert expected == [12, 19]
            for magic in (0, 1):
                assert [record.offset for record in decode(down(compacted, magic=magic).records)] == expected

    def test_old_entries_stay_as_they_are(self) -> None:
        old = encode_set(MESSAGES, magic=0) + encode_set(MESSAGES, magic=0, codec=Codec.LZ4)
        assert down(old, magic=1) == (old, 0, len(old))
        assert down(memoryview(old), magic=0).records == old

    @pytest.mark.parametrize("codec", OLD_CODECS)
    def test_format_1_becomes_format_0(self, codec: Codec) -> None:
        source = encode_set(MESSAGES, magic=1, codec=codec)
        converted = down(source, magic=0, first_offset=11)
        records = decode(converted.records)
        assert [record.offset for record in records] == ([10, 11, 12] if codec else [11, 12])
        assert {header.magic for _, header in iterate_entries(converted.records)} == {0}
        assert converted.record_count == len(records)

    def test_zstd_is_refused(self) -> None:
        with pytest.raises(UnsupportedCompressionTypeError):
            down(batch_at(0) + batch_at(3, codec=Codec.ZSTD), magic=1)

    def test_a_wrong_crc_is_not_corrected(self) -> None:
        for source in (batch_at(0), encode_set(MESSAGES, magic=1)):
            damaged = bytearray(source)
            damaged[-1] ^= 1
            with pytest.raises(CorruptMessageError, match="CRC"):
                down(damaged, magic=0)

    def test_an_incomplete_end_stays_out(self) -> None:
        whole = batch_at(0)
        converted = down(whole + batch_at(3)[:-1], magic=1)
        assert converted == down(whole, magic=1)
        assert converted.consumed_bytes == len(whole)

    def test_as_much_as_fits_but_at_least_one_entry(self) -> None:
        marker = marker_batch(
            ControlType.ABORT, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp_ms=1, base_offset=0
        )
        source = marker + batch_at(1) + batch_at(4) + batch_at(7)
        one = len(down(batch_at(1), magic=1).records)
        for max_bytes, batches in ((0, 1), (one, 1), (2 * one - 1, 1), (2 * one, 2), (9 * one, 3)):
            converted = down(source, magic=1, max_bytes=max_bytes)
            assert [record.offset for record in decode(converted.records)] == list(range(1, 1 + 3 * batches))
            assert converted.consumed_bytes == len(marker) + batches * len(batch_at(1))

    def test_an_empty_batch_becomes_nothing(self) -> None:
        for codec in (Codec.NONE, Codec.GZIP):
            header = batch.read_header(batch_at(5))._replace(record_count=0, attributes=codec)
            empty = batch.assemble(header, compress(codec, b""))
            assert down(empty, magic=1) == (b"", 0, len(empty))

    def test_many_records_are_joined_in_slices(self) -> None:
        builder = BatchBuilder(limit_bytes=LIMIT)
        for number in range(10_000):
            builder.append(None, b"%d" % number, timestamp_ms=number)
        records = decode(down(builder.build(base_offset=3), magic=1).records)
        assert [record.value for record in records] == [b"%d" % number for number in range(10_000)]

    def test_a_bomb_of_tiny_records_is_refused_within_the_limit(self) -> None:
        record = b"\x0c" + bytes(3) + b"\x01\x01\x00"
        count = 200_000
        header = batch.read_header(batch_at(0))._replace(
            record_count=count, last_offset_delta=count - 1, attributes=Codec.GZIP
        )
        bomb = batch.assemble(header, compress(Codec.GZIP, record * count))
        limit = 2 << 20
        tracemalloc.start()
        try:
            with pytest.raises(CorruptMessageError):
                down(bomb, magic=1, limit=limit)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * limit

    def test_arguments_and_outcome_travel_between_processes(self) -> None:
        converted = down(batch_at(0), magic=1)
        assert pickle.loads(pickle.dumps(converted)) == converted
        assert pickle.loads(pickle.dumps(down)) is down


SOUND = b"\x00\x00\x00" + encode_varint(1) + b"k" + encode_varint(-1) + b"\x00"
"""Attributes, no deltas, key `k`, a null value, no headers."""


def record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


BROKEN = {
    "more records than claimed": record(SOUND) * 2,
    "length beyond the batch": encode_varint(9) + SOUND,
    "length zero": b"\x00" + SOUND,
    "negative length": encode_varint(-8) + SOUND,
    "field beyond the record": record(SOUND[:3] + encode_varint(5) + SOUND[4:]) + b"....",
    "field length -2": record(SOUND[:3] + encode_varint(-2) + SOUND[5:]),
    "value length -2": record(SOUND[:5] + encode_varint(-2) + SOUND[6:]),
    "absurd field length": record(SOUND[:3] + encode_varint(2**62) + SOUND[5:]),
    "long value length": record(SOUND[:5] + encode_varint(2**40) + SOUND[6:]),
    "bytes behind the headers": record(SOUND + b"\x00"),
    "offset outside the batch": record(SOUND[:2] + encode_varint(1) + SOUND[3:]),
    "negative offset": record(SOUND[:2] + encode_varint(-1) + SOUND[3:]),
    "header cut": record(SOUND[:-1] + encode_varint(1) + encode_varint(0) + encode_varint(4)),
    "absurd header count": record(SOUND[:-1] + encode_varint(2**31)),
    "number of eleven bytes": record(b"\x00" + b"\x80" * 10 + b"\x00" + SOUND[2:]),
    "timestamp beyond 64 bits": record(b"\x00" + encode_varint(2**63 - 1) + SOUND[2:]),
    "number cut at the end": record(SOUND)[:-1] + b"\x80",
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("section", BROKEN.values(), ids=BROKEN.keys())
def test_invalid_records_are_corrupt(section: bytes, codec: Codec) -> None:
    header = batch.read_header(batch_at(0))._replace(
        record_count=1, last_offset_delta=0, base_timestamp=1000, attributes=codec
    )
    raw = batch.assemble(header, compress(codec, section))
    with pytest.raises(CorruptMessageError):
        down(raw, magic=1)


def test_a_valid_record_is_accepted() -> None:
    header = batch.read_header(batch_at(0))._replace(record_count=1, last_offset_delta=0, attributes=0)
    raw = batch.assemble(header, record(SOUND))
    assert read_set(down(raw, magic=1).records, limit=LIMIT) == [(0, 1000, b"k", None)]
