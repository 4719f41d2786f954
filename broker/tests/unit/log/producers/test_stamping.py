"""Offsets, epochs and times that a leader writes into entries of every format."""

from __future__ import annotations

import pytest

from odradek.base.types import NO_TIMESTAMP
from odradek.compression import Codec
from odradek.log.producers.producer_state import Marker
from odradek.log.producers.stamping import markers_in, stamp_offsets, stamp_time
from odradek.records.admission import Prepared, prepare
from odradek.records.checks.validate import AppendOrigin, AppendRules
from odradek.records.formats import check_entry, iterate_entries, iterate_records
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import BatchBuilder, ControlType, TimestampType
from odradek.records.v2.transactions import marker_batch

NOW_MS = 9_000


def built(*timestamps_ms: int, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
    for timestamp_ms in timestamps_ms:
        builder.append(b"k", b"v", timestamp_ms=timestamp_ms)
    return builder.build()


def message_set(*timestamps_ms: int, magic: int, codec: Codec = Codec.NONE) -> bytes:
    messages = [(number, timestamp_ms, b"k", b"v") for number, timestamp_ms in enumerate(timestamps_ms)]
    return encode_set(messages, magic=magic, codec=codec)


def prepared(raw: bytes, *, magic: int, origin: AppendOrigin = AppendOrigin.CLIENT, offset: int = 40) -> Prepared:
    """Return the admitted record set in writable memory, and its headers."""
    rules = AppendRules(1 << 20, NOW_MS, origin, any_format=True, magic=magic)
    admitted = prepare(memoryview(raw), rules, offset)
    return Prepared(memoryview(bytearray(admitted.records)), admitted.headers)


def stamps(records: memoryview) -> list[tuple[int, int]]:
    """Return offset and timestamp of each record, after checking the CRCs."""
    found = []
    for position, header in iterate_entries(records):
        check_entry(records, position, header)
        found += [
            (record.offset, record.timestamp) for record in iterate_records(records, position, header, limit=1 << 20)
        ]
    return found


SETS = [
    ("batch", built(5, 7, 6), 2),
    ("packed batch", built(5, 7, 6, codec=Codec.LZ4), 2),
    ("messages", message_set(5, 7, 6, magic=1), 1),
    ("wrapper", message_set(5, 7, 6, magic=1, codec=Codec.GZIP), 1),
    ("messages of format 0", message_set(5, 7, 6, magic=0), 0),
    ("wrapper of format 0", message_set(5, 7, 6, magic=0, codec=Codec.GZIP), 0),
]


@pytest.mark.parametrize(("raw", "magic"), [row[1:] for row in SETS], ids=[row[0] for row in SETS])
def test_records_are_numbered_from_the_log_s_end(raw: bytes, magic: int) -> None:
    records, headers, _ = prepared(raw, magic=magic)
    assert stamp_offsets(records, headers, 40, 3) == (43, 7 if magic else NO_TIMESTAMP)
    assert stamps(records) == [(40, 5 if magic else -1), (41, 7 if magic else -1), (42, 6 if magic else -1)]
    epochs = {header.leader_epoch for _, header in iterate_entries(records)}
    assert epochs == {3 if magic == 2 else -1}


@pytest.mark.parametrize(("raw", "magic"), [row[1:] for row in SETS], ids=[row[0] for row in SETS])
def test_log_append_time_holds_for_all_records_of_formats_that_have_time(raw: bytes, magic: int) -> None:
    records, headers, _ = prepared(raw, magic=magic)
    headers = stamp_time(records, headers, NOW_MS)
    expected = NOW_MS if magic else NO_TIMESTAMP
    assert stamp_offsets(records, headers, 40, 3) == (43, expected)
    assert stamps(records) == [(offset, expected) for offset in (40, 41, 42)]
    kinds = {header.timestamp_type for _, header in iterate_entries(records)}
    assert kinds == {TimestampType.LOG_APPEND_TIME if magic else TimestampType.CREATE_TIME}
    assert {header.max_timestamp for header in headers} == {expected}


def test_time_is_written_once() -> None:
    raw = encode_set([(0, NOW_MS, b"k", b"v")], magic=1, append_time_ms=NOW_MS)
    (header,) = [header for _, header in iterate_entries(raw)]
    assert stamp_time(memoryview(raw), (header,), NOW_MS) == (header,)


def test_several_batches_go_on_from_one_another() -> None:
    records, headers, _ = prepared(built(5, 6) + built(4), magic=2, origin=AppendOrigin.COORDINATOR)
    assert stamp_offsets(records, headers, 40, 3) == (43, 6)
    assert stamps(records) == [(40, 5), (41, 6), (42, 4)]


def test_markers_are_found_by_their_place() -> None:
    marker = marker_batch(ControlType.COMMIT, producer_id=1, producer_epoch=2, coordinator_epoch=3, timestamp_ms=4)
    records, headers, _ = prepared(built(5) + marker, magic=2, origin=AppendOrigin.COORDINATOR)
    found = markers_in(records, headers)
    assert list(found) == [1]
    assert isinstance(found[1], Marker)


def test_old_messages_hold_no_marker() -> None:
    records, headers, _ = prepared(message_set(5, 6, magic=1), magic=1)
    assert not markers_in(records, headers)
