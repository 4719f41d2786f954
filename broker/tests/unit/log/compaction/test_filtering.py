"""Tracking of transactions, retention of empty batches, and rebuilding of entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import CorruptMessageError
from odradek.compression import Codec
from odradek.log.compaction.cleaning_decisions import LastRecord
from odradek.log.compaction.filtering import (
    AbortedRange,
    FilterRules,
    MarkerFate,
    Retention,
    TransactionTracker,
    empty_batch,
    rebuild_batch,
    rebuild_messages,
)
from odradek.records.formats import check_entry, read_entry
from odradek.records.legacy.message_set import read_messages
from odradek.records.legacy.writing import encode_set
from odradek.records.v2.batch import (
    DELETE_HORIZON_FLAG,
    BatchBuilder,
    BatchHeader,
    ControlType,
    TimestampType,
    check_crc,
    read_header,
    stamp_log_append_time,
)
from odradek.records.v2.record import Message, Record, decode_batch, record_bytes
from odradek.records.v2.record_starts import find_record_starts
from odradek.records.v2.transactions import marker_batch

NOW_MS = 1_700_000_000_000
LIMIT = 1 << 20


def batch(count: int = 3, *, codec: Codec = Codec.NONE, base_offset: int = 10, **options: Any) -> bytes:
    builder = BatchBuilder(codec=codec, limit_bytes=LIMIT)
    for place in range(count):
        value = None if place == 1 else b"v" * 100 * place
        builder.append(b"k%d" % place, value, timestamp_ms=NOW_MS + place, headers=[("h", None)] * place)
    return builder.build(base_offset=base_offset, leader_epoch=4, **options)


def rebuilt(content: bytes | bytearray, keep: bytes, **options: Any) -> tuple[BatchHeader, list[Record]]:
    header = read_header(content)
    kept = [record for record, stays in zip(decode_batch(content, 0, header, limit=LIMIT), keep, strict=True) if stays]
    options.setdefault("max_timestamp", max(record.timestamp for record in kept))
    made = rebuild_batch(header, record_bytes(content, 0, header, limit=LIMIT), keep, **options)
    found = read_header(made)
    assert found.size == len(made)
    check_crc(made, 0, found)
    records = decode_batch(made, 0, found, limit=LIMIT)
    assert records == kept
    return found, records


# Transactions


def header(base_offset: int, producer_id: int = 1, *, transactional: bool = True) -> BatchHeader:
    return read_header(
        batch(1, base_offset=base_offset, producer_id=producer_id, producer_epoch=0, is_transactional=transactional)
    )


def marker(offset: int, producer_id: int = 1) -> BatchHeader:
    return read_header(
        marker_batch(
            ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
            base_offset=offset,
        )
    )


def test_batches_of_an_aborted_transaction_and_its_marker() -> None:
    tracker = TransactionTracker([(1, 5)])
    assert not tracker.is_aborted(header(4))
    assert not tracker.is_aborted(header(5, 2))
    assert tracker.is_aborted(header(6))
    assert not tracker.is_aborted(header(7, transactional=False))
    assert tracker.end(marker(8), ControlType.ABORT) == MarkerFate(superfluous=False, aborted=AbortedRange(1, 5))
    assert not tracker.is_aborted(header(9))


def test_an_abort_marker_without_data_is_superfluous() -> None:
    tracker = TransactionTracker([(1, 5)])
    assert tracker.end(marker(8), ControlType.ABORT) == MarkerFate(superfluous=True)
    assert TransactionTracker([]).end(marker(8), ControlType.ABORT) == MarkerFate(superfluous=True)


def test_a_commit_marker_stays_while_its_data_does() -> None:
    tracker = TransactionTracker([])
    assert not tracker.is_aborted(header(4))
    assert not tracker.end(marker(5), ControlType.COMMIT).superfluous
    assert tracker.end(marker(6), ControlType.COMMIT).superfluous
    assert not tracker.end(marker(7), None).superfluous


def test_transactions_of_one_producer_follow_each_other() -> None:
    tracker = TransactionTracker([(1, 20), (1, 5)])
    assert tracker.is_aborted(header(5))
    assert tracker.end(marker(6), ControlType.ABORT).aborted == (1, 5)
    assert not tracker.is_aborted(header(10))
    assert not tracker.end(marker(11), ControlType.COMMIT).superfluous
    assert tracker.is_aborted(header(20))
    assert tracker.end(marker(21), ControlType.ABORT).aborted == (1, 20)


# Retention


RULES = FilterRules({1: LastRecord(0, 30), 2: LastRecord(0, -1, 7), 3: LastRecord(5, -1)}, end_offset=50, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (batch(3, base_offset=28, producer_id=1, producer_epoch=0, base_sequence=0), Retention.KEEP_EMPTY),
        (batch(3, base_offset=27, producer_id=1, producer_epoch=0, base_sequence=0), Retention.DROP_EMPTY),
        (batch(3, base_offset=28), Retention.DROP_EMPTY),
        (batch(3, base_offset=9, producer_id=2, producer_epoch=0, base_sequence=5), Retention.KEEP_EMPTY),
        (batch(3, base_offset=9, producer_id=2, producer_epoch=1, base_sequence=5), Retention.DROP_EMPTY),
        (batch(3, base_offset=9, producer_id=2, producer_epoch=0, base_sequence=4), Retention.DROP_EMPTY),
        (batch(3, base_offset=9, producer_id=3, producer_epoch=5), Retention.DROP_EMPTY),
        (batch(3, base_offset=47), Retention.KEEP_EMPTY),
        (batch(3, base_offset=48), Retention.DROP_EMPTY),
    ],
)
def test_what_stays_of_a_batch_without_records(content: bytes, expected: Retention) -> None:
    assert RULES.of_data(read_header(content), aborted=False) is expected
    dropped = Retention.DROP if expected is Retention.DROP_EMPTY else expected
    assert RULES.of_data(read_header(content), aborted=True) is dropped


@pytest.mark.parametrize(
    ("horizon_ms", "superfluous", "goes"),
    [(None, True, False), (NOW_MS, True, True), (NOW_MS + 1, True, False), (NOW_MS, False, False)],
)
def test_an_unneeded_marker_is_removed_after_its_horizon(horizon_ms: int | None, superfluous: bool, goes: bool) -> None:
    found = marker(9)
    if horizon_ms is not None:
        found = found._replace(attributes=found.attributes | DELETE_HORIZON_FLAG, base_timestamp=horizon_ms)
    retention = Retention.DROP if goes else Retention.DROP_EMPTY
    assert RULES.of_marker(found, superfluous=superfluous) == (retention, goes)


def test_the_only_marker_of_a_producer_stays_for_its_epoch() -> None:
    found = marker(9, 3)
    assert RULES.of_marker(found, superfluous=True)[0] is Retention.DROP_EMPTY
    assert RULES.of_marker(found._replace(producer_epoch=5), superfluous=True)[0] is Retention.KEEP_EMPTY


# Format 2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("keep", [b"\1\0\0\0", b"\0\1\0\1", b"\1\1\0\0", b"\0\0\0\1", b"\1\0\1\1", b"\1\1\1\1"])
def test_kept_records_and_all_of_the_header_stay(codec: Codec, keep: bytes) -> None:
    content = batch(4, codec=codec, producer_id=9, producer_epoch=3, base_sequence=77, is_transactional=True)
    before = read_header(content)
    after, _ = rebuilt(content, keep)
    changed = {"batch_length", "crc", "max_timestamp", "record_count"}
    for field in BatchHeader._fields:
        assert field in changed or getattr(after, field) == getattr(before, field)
    assert after.record_count == sum(keep)
    assert after.last_sequence == before.last_sequence
    if codec is Codec.NONE and all(keep):
        assert after == before


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_horizon_moves_the_base_timestamp_and_no_other(codec: Codec) -> None:
    after, _ = rebuilt(batch(4, codec=codec), b"\1\1\0\1", horizon_ms=NOW_MS + 10**10)
    assert after.delete_horizon_ms == after.base_timestamp == NOW_MS + 10**10
    assert after.max_timestamp == NOW_MS + 3


def test_a_second_rewriting_keeps_the_horizon() -> None:
    content = batch(3)
    before = read_header(content)
    first = rebuild_batch(
        before,
        record_bytes(content, 0, before, limit=LIMIT),
        b"\1\1\0",
        max_timestamp=NOW_MS + 1,
        horizon_ms=NOW_MS + 9,
    )
    after, records = rebuilt(first, b"\0\1")
    assert after.delete_horizon_ms == NOW_MS + 9
    assert [(record.offset, record.timestamp) for record in records] == [(11, NOW_MS + 1)]


def test_log_append_time_stays_what_it_was() -> None:
    content = bytearray(batch(3))
    stamp_log_append_time(content, 0, read_header(content), NOW_MS + 500)
    after, records = rebuilt(bytes(content), b"\1\0\0", max_timestamp=0)
    assert (after.timestamp_type, after.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW_MS + 500)
    assert records[0].timestamp == NOW_MS + 500


def test_records_of_every_length_are_found() -> None:
    builder = BatchBuilder(limit_bytes=LIMIT)
    for length in (0, 50, 60, 8000, 8200, 9000):
        builder.append(b"k", b"v" * length, timestamp_ms=NOW_MS)
    after, records = rebuilt(builder.build(), b"\0\1\0\1\0\1")
    assert [len(record.value or b"") for record in records] == [50, 8000, 9000]
    assert after.record_count == 3


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 3, 60, 61, 200]) | st.integers(0, 300), st.booleans()), min_size=1),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
    st.binary(max_size=3),
)
def test_any_selection_of_records_is_kept(rows: list[tuple[int, bool]], codec: Codec, before: bytes) -> None:
    """Also from a section within a larger buffer, if the positions of its records are passed."""
    keep = bytes(stays for _, stays in rows)
    if 1 not in keep:
        return
    builder = BatchBuilder(codec=codec, limit_bytes=LIMIT)
    for length, _ in rows:
        builder.append(None, b"v" * length, timestamp_ms=NOW_MS)
    content = builder.build()
    found, _ = rebuilt(content, keep)
    assert found.codec is codec
    header = read_header(content)
    section = bytes(record_bytes(content, 0, header, limit=LIMIT))
    parts, end = find_record_starts(section, 0, header.record_count)
    places = np.append(np.concatenate(parts), end) + len(before)
    alone = rebuild_batch(header, section, keep, max_timestamp=NOW_MS)
    assert rebuild_batch(header, before + section + before, keep, max_timestamp=NOW_MS, places=places) == alone


@pytest.mark.parametrize("section", [b"", b"\x02", b"\x10\0\0\0\2a\2b\0", b"\xff\xff"])
def test_a_section_that_is_no_run_of_records_is_refused(section: bytes) -> None:
    found = read_header(batch(2))
    with pytest.raises(CorruptMessageError):
        rebuild_batch(found, section, b"\1\0", max_timestamp=0)


def test_an_empty_batch_keeps_offsets_sequences_and_epochs() -> None:
    content = batch(3, codec=Codec.LZ4, producer_id=9, producer_epoch=3, base_sequence=77, is_transactional=True)
    before = read_header(content)
    made = empty_batch(before._replace(attributes=before.attributes | DELETE_HORIZON_FLAG))
    after = read_header(made)
    check_crc(made, 0, after)
    assert (len(made), after.record_count, after.codec, after.delete_horizon_ms) == (61, 0, Codec.NONE, None)
    assert (after.base_timestamp, after.max_timestamp) == (-1, before.max_timestamp)
    kept = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "last_sequence")
    for field in (*kept, "is_transactional", "is_control"):
        assert getattr(after, field) == getattr(before, field)
    assert decode_batch(made, 0, after, limit=LIMIT) == []


# Formats 0 and 1


MESSAGES: list[Message] = [(20, NOW_MS, b"a", b"1"), (23, NOW_MS + 5, b"b", None), (24, NOW_MS + 2, b"c", b"3")]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("keep", [[0], [1], [0, 2], [1, 2]])
def test_old_messages_keep_offsets_format_and_codec(magic: int, codec: Codec, keep: list[int]) -> None:
    messages = [(offset, stamp if magic else -1, key, value) for offset, stamp, key, value in MESSAGES]
    content = encode_set(messages if codec else messages[:1], magic=magic, codec=codec)
    kept = [messages[place] for place in (keep if codec else [0])]
    made = rebuild_messages(read_entry(content), kept)
    after = read_entry(made)
    check_entry(made, 0, after)
    assert (after.magic, after.codec, after.size, after.last_offset) == (magic, codec, len(made), kept[-1][0])
    assert read_messages(made, 0, after, limit=LIMIT) == kept
    assert after.max_timestamp == max(stamp for _, stamp, _, _ in kept)


def test_old_log_append_time_stays() -> None:
    content = encode_set(MESSAGES, magic=1, codec=Codec.GZIP, append_time_ms=NOW_MS + 77)
    before = read_entry(content)
    made = rebuild_messages(before, read_messages(content, 0, before, limit=LIMIT)[:1])
    after = read_entry(made)
    assert (after.timestamp_type, after.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW_MS + 77)
    assert read_messages(made, 0, after, limit=LIMIT) == [(20, NOW_MS + 77, b"a", b"1")]
