"""All batches that the builder writes are read by record and by column; both refuse the same damaged batches."""

from __future__ import annotations

import contextlib
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import CorruptMessageError, InvalidRecordError
from odradek.compression import Codec, compress, decompress
from odradek.records import columns
from odradek.records.frame_columns import RecordFields
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder
from odradek.records.v2.record import Record, decode_batch, record_bytes
from odradek.records.v2.varint import decode_varint, encode_varint
from odradek_testkit.batches import frame_records, iterate

LIMIT = 1 << 20
no_deadline = settings(deadline=None)
"""No deadline: the duration of an example is meaningless on a shared machine."""
INT64 = st.integers(-(2**63), 2**63 - 1)

contents = st.none() | st.binary(max_size=200) | st.integers(0, 20_000).map(bytes)
# A batch's deltas have 64 bits, which limits the difference of its timestamps.
timestamps = st.integers(-(2**62), 2**62 - 1)
record_headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=4) | st.lists(
    st.just(("n", b"v")), min_size=33, max_size=40
)
rows = st.tuples(contents, contents, timestamps, record_headers)


@st.composite
def record_sets(draw: st.DrawFn) -> bytes:
    parts = []
    base_offset = draw(st.integers(0, 2**40))
    for content in draw(st.lists(st.lists(rows, min_size=1, max_size=8), max_size=4)):
        builder = BatchBuilder(codec=draw(st.sampled_from(Codec)), limit_bytes=1 << 30)
        for key, value, timestamp_ms, headers in content:
            builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
        raw = bytearray(builder.build(base_offset=base_offset))
        if draw(st.booleans()):
            batch.stamp_log_append_time(raw, 0, batch.read_header(raw), draw(st.integers(0, 2**50)))
        parts.append(bytes(raw))
        base_offset += len(content) + draw(st.integers(0, 3))
    return b"".join(parts)


def by_record(raw: bytes) -> list[Record]:
    return [record for position, header in iterate(raw) for record in decode_batch(raw, position, header, limit=LIMIT)]


def unpacked(raw: bytes) -> list[columns.Unpacked]:
    return [(header, record_bytes(raw, position, header, limit=LIMIT)) for position, header in iterate(raw)]


def by_column(decoded: columns.Columns) -> list[Record]:
    buffer = decoded.buffer

    def cut(start: int, length: int) -> bytes | None:
        assert length == -1 or 0 <= start <= start + length <= len(buffer)
        return None if length < 0 else buffer[start : start + length]

    headers = decoded.headers
    assert headers is not None
    spans = iter(
        zip(
            headers.name_start.tolist(),
            headers.name_length.tolist(),
            headers.value_start.tolist(),
            headers.value_length.tolist(),
            strict=True,
        )
    )
    records = []
    for index in range(len(decoded)):
        pairs = [next(spans) for _ in range(int(headers.count[index]))]
        named = tuple(((cut(a, b) or b"").decode(errors="replace"), cut(c, d)) for a, b, c, d in pairs)
        key = cut(int(decoded.key_start[index]), int(decoded.key_length[index]))
        value = cut(int(decoded.value_start[index]), int(decoded.value_length[index]))
        kind = batch.TimestampType(int(decoded.timestamp_type[index]))
        records.append(Record(int(decoded.offset[index]), int(decoded.timestamp_ms[index]), key, value, named, kind))
    assert next(spans, None) is None
    return records


FIELDS = st.builds(RecordFields, timestamp=st.booleans(), key=st.booleans(), value=st.booleans(), headers=st.booleans())
PIECES = st.sampled_from([1, 2, 3, 10_000])
"""Maximum number of records in the columns of a frame."""


def only(fields: RecordFields, records: list[Record]) -> list[Record]:
    """Return the records as a decoder of some fields returns them."""
    return [
        Record(
            record.offset,
            record.timestamp if fields.timestamp else -1,
            record.key if fields.key else None,
            record.value if fields.value else None,
            record.headers if fields.headers else (),
            record.timestamp_type,
        )
        for record in records
    ]


@no_deadline
@given(record_sets(), st.data())
def test_columns_agree_with_records(raw: bytes, data: st.DataObject) -> None:
    records = by_record(raw)
    assert by_column(columns.decode(unpacked(raw), with_headers=True)) == records
    last = records[-1].offset + 2 if records else 5
    start = data.draw(st.integers(max(0, last - 30), last))
    end = data.draw(st.integers(start, last))
    within = columns.decode(unpacked(raw), start_offset=start, end_offset=end, with_headers=True)
    expected = [record for record in records if start <= record.offset < end]
    assert by_column(within) == expected
    fields = data.draw(FIELDS)
    found = frame_records(raw, fields=fields, rows=data.draw(PIECES), start_offset=start, end_offset=end)
    assert found == only(fields, expected)


@no_deadline
@given(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=8, max_size=40), PIECES)
def test_many_small_batches_are_read_together(content: list, pieces: int) -> None:
    parts = []
    offset = 7
    for batch_rows in content:
        builder = BatchBuilder(limit_bytes=1 << 30)
        for key, value, timestamp_ms, headers in batch_rows:
            builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
        parts.append(builder.build(base_offset=offset))
        offset += len(batch_rows)
    raw = b"".join(parts)
    assert frame_records(raw, rows=pieces) == by_record(raw)


@no_deadline
@given(st.integers(1, 300), st.integers(0, 9000), st.sampled_from(Codec), PIECES)
def test_records_of_one_size_are_read_together(count: int, size: int, codec: Codec, pieces: int) -> None:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 30)
    for number in range(count):
        builder.append(b"%d" % number, bytes(size), timestamp_ms=number)
    raw = builder.build(base_offset=5)
    assert frame_records(raw, rows=pieces, limit=4 << 20) == decode_batch(raw, 0, batch.read_header(raw), limit=4 << 20)


@no_deadline
@given(st.lists(rows, min_size=1, max_size=20), st.sampled_from(Codec))
def test_a_builder_s_records_are_read_back(content: list, codec: Codec) -> None:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 30)
    for key, value, timestamp_ms, headers in content:
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
    raw = builder.build(base_offset=100)
    header = batch.read_header(raw)
    batch.check_crc(raw, 0, header)
    assert header.max_timestamp == max(-1, *(row[2] for row in content), -1)
    assert decode_batch(raw, 0, header, limit=LIMIT) == [
        Record(100 + index, timestamp_ms, key, value, tuple(headers))
        for index, (key, value, timestamp_ms, headers) in enumerate(content)
    ]


@settings(max_examples=400, deadline=None)
@given(record_sets(), st.data())
def test_a_broken_section_is_refused_by_both_or_by_neither(raw: bytes, data: st.DataObject) -> None:
    headers = [(header, raw[at + batch.HEADER_SIZE : at + header.size]) for at, header in iterate(raw)]
    plain = [(header, bytearray(decompress(header.codec, section, limit=LIMIT))) for header, section in headers]
    for _ in range(data.draw(st.integers(1, 3))):
        if plain:
            _, section = data.draw(st.sampled_from(plain))
            at = data.draw(st.integers(0, min(len(section), 60) - 1))
            section[at] = data.draw(st.integers(0, 255))
    sections = [
        (batch.read_header(batch.assemble(header._replace(attributes=header.attributes & 8), bytes(section))), section)
        for header, section in plain
    ]
    mutated = b"".join(batch.assemble(header, bytes(section)) for header, section in sections)
    try:
        expected = by_record(mutated)
    except CorruptMessageError:
        expected = None
    try:
        decoded = by_column(
            columns.decode([(header, bytes(section)) for header, section in sections], with_headers=True)
        )
    except CorruptMessageError:
        decoded = None
    assert decoded == expected
    # In a frame, the sections are between other bytes, which must not be read as part of a record.
    frame = b"".join(batch.assemble(header, bytes(section)) for header, section in sections)
    try:
        in_frame = frame_records(frame, rows=data.draw(PIECES))
    except CorruptMessageError:
        in_frame = None
    assert in_frame == expected


@settings(max_examples=400, deadline=None)
@given(record_sets(), FIELDS, st.data())
def test_a_broken_frame_is_refused_or_read_within_bounds(raw: bytes, fields: RecordFields, data: st.DataObject) -> None:
    frame = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        if frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    with contextlib.suppress(CorruptMessageError, InvalidRecordError):
        frame_records(cut, fields=fields, rows=data.draw(PIECES), check_crcs=False)


@no_deadline
@given(st.binary(max_size=300))
def test_a_frame_of_noise_is_refused_or_read_within_bounds(noise: bytes) -> None:
    with contextlib.suppress(CorruptMessageError, InvalidRecordError):
        frame_records(noise, check_crcs=False)


@no_deadline
@given(st.binary(max_size=200), st.integers(0, 50))
def test_noise_is_corrupt_or_nothing(noise: bytes, count: int) -> None:
    header = batch.BatchHeader._make(struct.unpack(">qiibIhiqqqhii", bytes(61)))._replace(
        magic=2, record_count=count, last_offset_delta=count
    )
    raw = batch.assemble(header, noise)
    header = batch.read_header(raw)
    for attempt in (
        lambda: decode_batch(raw, 0, header, limit=LIMIT),
        lambda: columns.decode([(header, noise)]),
        lambda: frame_records(raw),
    ):
        try:
            assert len(attempt()) == count
        except CorruptMessageError:
            assert noise or count


@no_deadline
@given(INT64, st.binary(max_size=3))
def test_varints(value: int, ahead: bytes) -> None:
    encoded = encode_varint(value)
    assert len(encoded) <= 10
    assert decode_varint(ahead + encoded + b"\xff", len(ahead)) == (value, len(ahead) + len(encoded))


@no_deadline
@given(st.sampled_from(Codec), st.binary(max_size=100_000))
def test_codecs(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), limit=len(data)) == data


@no_deadline
@given(st.sampled_from([codec for codec in Codec if codec]), st.binary(min_size=1, max_size=300), st.data())
def test_mutated_frames_stay_within_their_limit(codec: Codec, content: bytes, data: st.DataObject) -> None:
    frame = bytearray(compress(codec, content))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, frame, limit=1000)) <= 1000
    except CorruptMessageError:
        assert bytes(frame) != compress(codec, content)
