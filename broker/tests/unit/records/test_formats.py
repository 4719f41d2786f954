"""Entries of all formats in one log: scanning, checking, reading, and first offsets."""

from __future__ import annotations

import pytest

from odradek.base.errors import CorruptMessageError
from odradek.compression import Codec
from odradek.records.formats import (
    ENTRY_PREFIX,
    MIN_ENTRY_SIZE,
    check_entry,
    first_offset,
    iterate_entries,
    iterate_records,
    read_entry,
)
from odradek.records.legacy.message_set import UNKNOWN_COUNT
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import BatchBuilder, TimestampType
from odradek.records.v2.record import Record

LIMIT = 1 << 20


def batch_at(offset: int) -> bytes:
    builder = BatchBuilder(limit_bytes=LIMIT)
    for number in range(2):
        builder.append(b"k", b"%d" % number, timestamp_ms=1000 + number)
    return builder.build(base_offset=offset, leader_epoch=7)


def wrapper_at(offset: int, magic: int) -> bytes:
    messages = [(offset + number, 500 + number, None, b"inner") for number in range(3)]
    return encode_set(messages, magic=magic, codec=Codec.GZIP)


MIXED = (
    encode_set([(0, -1, None, None), (1, -1, b"k", b"v")], magic=0)
    + wrapper_at(2, 0)
    + encode_set([(5, 77, None, b"one")], magic=1)
    + wrapper_at(6, 1)
    + batch_at(9)
)


def test_a_log_of_all_formats_is_walked() -> None:
    headers = [header for _, header in iterate_entries(MIXED)]
    assert [header.magic for header in headers] == [0, 0, 0, 1, 1, 2]
    assert [header.base_offset for header in headers] == [0, 1, 4, 5, 8, 9]
    assert [header.next_offset for header in headers] == [1, 2, 5, 6, 9, 11]
    assert [header.record_count for header in headers] == [1, 1, UNKNOWN_COUNT, 1, UNKNOWN_COUNT, 2]
    assert [header.max_timestamp for header in headers] == [-1, -1, -1, 77, 502, 1001]
    assert [header.leader_epoch for header in headers] == [-1, -1, -1, -1, -1, 7]
    assert {(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers} == {(-1, -1, -1)}
    assert sum(header.size for header in headers) == len(MIXED)


def test_records_and_first_offsets_of_all_formats() -> None:
    records: list[Record] = []
    for position, header in iterate_entries(MIXED):
        check_entry(MIXED, position, header)
        begins = first_offset(MIXED, position, header, limit=LIMIT)
        found = list(iterate_records(MIXED, position, header, limit=LIMIT))
        assert begins == found[0].offset
        records += found
    assert [record.offset for record in records] == list(range(11))
    assert [record.timestamp for record in records] == [-1] * 5 + [77, 500, 501, 502, 1000, 1001]
    assert [record.timestamp_type for record in records] == [TimestampType.NONE] * 5 + [TimestampType.CREATE_TIME] * 6
    assert records[0][2:4] == (None, None)


def test_a_scan_ends_before_a_truncated_entry() -> None:
    ends = [position + header.size for position, header in iterate_entries(MIXED)]
    for cut in range(len(MIXED)):
        assert len(list(iterate_entries(MIXED[:cut]))) == sum(end <= cut for end in ends)


def test_a_prefix_contains_size_offset_and_magic() -> None:
    for position, header in iterate_entries(MIXED):
        prefix = MIXED[position : position + ENTRY_PREFIX]
        assert int.from_bytes(prefix[:8], "big") == header.base_offset
        assert int.from_bytes(prefix[8:12], "big") + 12 == header.size
        assert prefix[16] == header.magic
        if header.magic == 2:
            assert int.from_bytes(prefix[23:27], "big") == header.last_offset_delta


def test_the_smallest_entry() -> None:
    smallest = encode_set([(3, -1, None, None)], magic=0)
    assert len(smallest) == MIN_ENTRY_SIZE
    assert read_entry(smallest).size == MIN_ENTRY_SIZE
    with pytest.raises(CorruptMessageError):
        read_entry(smallest[:-1])


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_an_unknown_format_is_corrupt(magic: int) -> None:
    raw = bytearray(batch_at(0))
    raw[16] = magic
    with pytest.raises(CorruptMessageError):
        read_entry(raw)
    with pytest.raises(CorruptMessageError):
        list(iterate_entries(raw))


def test_every_flipped_bit_behind_the_offset_is_found() -> None:
    for position, header in iterate_entries(MIXED):
        entry = MIXED[position : position + header.size]
        # The CRC covers everything from the magic (in a batch: the attributes) on, but not leader epoch and length.
        for at in range(12 if header.magic < 2 else 17, len(entry)):
            flipped = bytearray(entry)
            flipped[at] ^= 0x10
            with pytest.raises(CorruptMessageError):
                check_entry(flipped, 0, read_entry(flipped))


@pytest.mark.parametrize("raw", [wrapper_at(2, 0), batch_at(9)], ids=["message", "batch"])
def test_a_truncated_entry_is_corrupt(raw: bytes) -> None:
    header = read_entry(raw)
    for attempt in (
        lambda: check_entry(raw[:-1], 0, header),
        lambda: list(iterate_records(raw[:-1], 0, header, limit=LIMIT)),
    ):
        with pytest.raises(CorruptMessageError):
            attempt()
