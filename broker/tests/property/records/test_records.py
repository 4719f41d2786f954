"""All batches that the builder writes are read by record and by column; both refuse the same damaged batches."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import CorruptMessageError
from odradek.compression import Codec, compress, decompress
from odradek.records import columns
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder
from odradek.records.v2.record import Record, decode_batch
from odradek.records.v2.varint import decode_varint, encode_varint
from odradek_testkit.batches import iterate

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


@no_deadline
@given(record_sets(), st.data())
def test_columns_agree_with_records(raw: bytes, data: st.DataObject) -> None:
    records = by_record(raw)
    unpacked = list(columns.unpack(raw, limit=LIMIT))
    assert by_column(columns.decode(unpacked, with_headers=True)) == records
    last = records[-1].offset + 2 if records else 5
    start = data.draw(st.integers(max(0, last - 30), last))
    end = data.draw(st.integers(start, last))
    within = columns.decode(
        list(columns.unpack(raw, limit=LIMIT, start_offset=start, end_offset=end)),
        start_offset=start,
        end_offset=end,
        with_headers=True,
    )
    assert by_column(within) == [record for record in records if start <= record.offset < end]


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
