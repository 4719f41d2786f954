"""Formats 0 and 1: round trips, conversions that keep what the target can represent, and damaged bytes."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import CorruptMessageError, InvalidRecordError, UnsupportedCompressionTypeError
from odradek.compression import Codec
from odradek.records.conversion.down import down
from odradek.records.conversion.up import up
from odradek.records.formats import check_entry, first_offset, iterate_entries, iterate_records, read_entry
from odradek.records.legacy.message_set import read_set
from odradek.records.legacy.writing import encode_set
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder, TimestampType
from odradek.records.v2.record import Message, Record
from odradek_testkit.batches import frame_records

LIMIT = 1 << 20
no_deadline = settings(deadline=None)
"""No deadline: the duration of an example is meaningless on a shared machine."""
REFUSALS = (CorruptMessageError, InvalidRecordError, UnsupportedCompressionTypeError)

contents = st.none() | st.binary(max_size=200) | st.integers(0, 20_000).map(bytes)
timestamps = st.integers(-1, 2**62)
old_codecs = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
magics = st.integers(0, 1)


@st.composite
def message_lists(draw: st.DrawFn, min_size: int = 1) -> list[Message]:
    rows = draw(st.lists(st.tuples(timestamps, contents, contents, st.integers(1, 5)), min_size=min_size, max_size=12))
    offset = draw(st.integers(0, 2**50))
    messages: list[Message] = []
    for timestamp, key, value, step in rows:
        messages.append((offset, timestamp, key, value))
        offset += step
    return messages


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    builder = BatchBuilder(codec=draw(old_codecs), limit_bytes=1 << 30)
    headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2)
    for _, timestamp, key, value in draw(message_lists()):
        builder.append(key, value, timestamp_ms=timestamp, headers=draw(headers))
    raw = bytearray(builder.build(base_offset=draw(st.integers(0, 2**50))))
    if draw(st.booleans()):
        batch.stamp_log_append_time(raw, 0, batch.read_header(raw), draw(timestamps))
    return bytes(raw)


@st.composite
def sets(draw: st.DrawFn) -> bytes:
    append_time_ms = draw(st.none() | timestamps)
    messages = draw(message_lists())
    return encode_set(messages, magic=draw(magics), codec=draw(old_codecs), append_time_ms=append_time_ms)


def decode(raw: bytes) -> list[Record]:
    records = []
    for position, header in iterate_entries(raw):
        check_entry(raw, position, header)
        found = list(iterate_records(raw, position, header, limit=LIMIT))
        if header.magic < 2:
            assert first_offset(raw, position, header, limit=LIMIT) == found[0].offset
        assert not found or header.last_offset == found[-1].offset
        records += found
    return records


@no_deadline
@given(message_lists(min_size=0), magics, old_codecs)
def test_what_is_written_is_read(messages: list[Message], magic: int, codec: Codec) -> None:
    if not messages:
        codec = Codec.NONE
    raw = encode_set(messages, magic=magic, codec=codec)
    expected = messages if magic else [(offset, -1, key, value) for offset, _, key, value in messages]
    assert read_set(raw, limit=LIMIT) == expected
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    assert decode(raw) == [Record(*message, (), kind) for message in expected]


@no_deadline
@given(sets(), st.sampled_from([*Codec, None]))
def test_up_and_down_again_is_the_same(raw: bytes, codec: Codec | None) -> None:
    header = read_entry(raw)
    append_time_ms = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    batch_bytes = up(raw, codec=codec, append_time_ms=append_time_ms)
    assert [record[:4] for record in decode(batch_bytes)] == [record[:4] for record in decode(raw)]
    assert read_entry(batch_bytes).timestamp_type == header.timestamp_type
    if codec is None:
        assert decode(down(batch_bytes, magic=header.magic).records) == decode(raw)


@no_deadline
@given(batches(), magics, st.integers(0, 15))
def test_down_keeps_what_an_old_format_can_hold(raw: bytes, magic: int, skipped: int) -> None:
    header = batch.read_header(raw)
    wanted = header.base_offset + skipped
    converted = down(raw, magic=magic, first_offset=wanted)
    kind = header.timestamp_type if magic else TimestampType.NONE
    expected = [
        record._replace(headers=(), timestamp=record.timestamp if magic else -1, timestamp_type=kind)
        for record in decode(raw)
        if header.codec or record.offset >= wanted
    ]
    assert decode(converted.records) == expected
    assert (converted.record_count, converted.consumed_bytes) == (len(expected), len(raw))


@no_deadline
@given(st.lists(st.one_of(sets(), batches()), max_size=4), st.data())
def test_columns_agree_with_records(parts: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(parts)
    records = decode(raw)
    start = data.draw(st.sampled_from([0, *(record.offset for record in records)]))
    end = data.draw(st.sampled_from([2**60, *(record.offset for record in records)]))
    expected = [record._replace(timestamp_type=max(0, record.timestamp_type), headers=()) for record in records]
    assert [record._replace(headers=()) for record in frame_records(raw)] == expected
    # The parts are independent, so their offsets need not ascend as in a log; each part alone is a log.
    for part in parts:
        within = frame_records(part, start_offset=start, end_offset=end)
        assert [each.offset for each in within] == [each.offset for each in decode(part) if start <= each.offset < end]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(sets(), batches()), min_size=1, max_size=3), st.data())
def test_mutated_sets_are_refused_or_read_within_bounds(parts: list[bytes], data: st.DataObject) -> None:
    raw = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    mutated = bytes(raw[: data.draw(st.integers(len(raw) // 2, len(raw)))])
    tracemalloc.start()
    try:
        for attempt in (read_everything, down_everything, up_everything):
            try:
                attempt(mutated)
            except REFUSALS:
                continue
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * LIMIT + 20 * len(mutated)


def read_everything(raw: bytes) -> None:
    for position, header in iterate_entries(raw):
        for _ in iterate_records(raw, position, header, limit=LIMIT):
            pass


def down_everything(raw: bytes) -> None:
    # With correct CRCs, so that the decoder reaches the mutation.
    for position, header in iterate_entries(raw):
        section = raw[position + batch.HEADER_SIZE : position + header.size]
        entry = batch.assemble(header, section) if header.magic == 2 else raw[position : position + header.size]
        down(entry, magic=0, limit=LIMIT)


def up_everything(raw: bytes) -> None:
    assert read_entry(up(raw, base_offset=5, limit=LIMIT)).base_offset == 5
