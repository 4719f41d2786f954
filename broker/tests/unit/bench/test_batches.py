"""The product decodes the batches that the benchmark builds by columns. Checks message sets and their count, too."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from comparison.batches import batch, count_batches, count_messages, message_set
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.v2.batch import check_crc, read_header
from odradek.records.v2.record import decode_batch


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8_191, 8_192, 8_193])
def test_a_batch_decodes_to_its_records(count: int) -> None:
    keys = np.arange(count, dtype=np.int64) * 3
    made = batch(b"value", count, timestamp_ms=1_000, keys=keys)
    header = read_header(made)
    check_crc(made, 0, header)
    records = decode_batch(memoryview(made), 0, header, limit=len(made))
    assert header.size == len(made)
    assert [record.offset for record in records] == list(range(count))
    assert [int.from_bytes(bytes(record.key or b"")) for record in records] == keys.tolist()
    assert {bytes(record.value or b"") for record in records} == {b"value"}
    assert {record.timestamp for record in records} == {1_000}


@given(st.binary(max_size=300), st.integers(1, 200))
def test_records_without_keys_have_none(value: bytes, count: int) -> None:
    made = batch(value, count, timestamp_ms=5)
    header = read_header(made)
    check_crc(made, 0, header)
    records = decode_batch(memoryview(made), 0, header, limit=len(made))
    assert [(record.key, bytes(record.value or b"")) for record in records] == [(None, value)] * count


@given(st.lists(st.integers(1, 70), max_size=5), st.integers(0, 60))
def test_batches_are_counted_without_a_torn_tail(counts: list[int], torn: int) -> None:
    content, following = b"", 100
    for count in counts:
        content += struct.pack(">q", following) + batch(b"value", count, timestamp_ms=0)[8:]
        following += count
    tail = batch(b"value", 1, timestamp_ms=0)[:torn]
    assert count_batches(content + tail) == (sum(counts), len(content), following if counts else -1)


def test_keys_and_records_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="need as many keys"):
        batch(b"", 2, timestamp_ms=0, keys=np.zeros(3, dtype=np.int64))


@given(st.binary(max_size=100), st.integers(1, 50))
def test_a_message_set_has_consecutive_offsets_and_right_checksums(value: bytes, count: int) -> None:
    made = message_set(value, count, timestamp_ms=9)
    size = len(made) // count
    for number in range(count):
        entry = made[number * size : (number + 1) * size]
        offset, length, checksum, magic = struct.unpack_from(">qiIb", entry)
        assert (offset, length, magic) == (number, size - 12, 1)
        assert checksum == zlib.crc32(entry[16:])
        assert entry.endswith(value)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 20)), max_size=6), st.integers(0, 40))
def test_messages_are_counted_across_sizes_gaps_and_a_torn_tail(parts: list[tuple[int, int]], torn: int) -> None:
    """`parts` has the size class and the length of each run of messages. One offset is missing before each run."""
    made, offset, entries = b"", 0, 0
    for size, count in parts:
        offset += 1
        body = bytes(14 + size)
        made += b"".join(struct.pack(">qi", offset + n, len(body)) + body for n in range(count))
        offset, entries = offset + count, entries + count
    tail = (struct.pack(">qi", offset, 60) + bytes(60))[:torn]
    assert count_messages(made + tail) == (entries, offset if entries else -1)
