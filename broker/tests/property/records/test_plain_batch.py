"""Batches that are plain pass the checks of an append unchanged, and the usual batches of producers are plain."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import PeerError
from odradek.compression import Codec
from odradek.records.admission import prepare
from odradek.records.checks.plain_batch import plain_batch, take_plain
from odradek.records.checks.validate import AppendRules
from odradek.records.v2.batch import BatchBuilder, TimestampType

NOW_MS = 1_700_000_000_000
no_deadline = settings(deadline=None)
contents = st.none() | st.binary(max_size=80) | st.integers(0, 3000).map(bytes)
rows = st.lists(st.tuples(st.integers(0, 5), contents, contents), min_size=1, max_size=4)


def produced(content: list, headers: list | tuple = (), **options: int) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 30)
    for delta, key, value in content:
        builder.append(key, value, timestamp_ms=NOW_MS + delta, headers=headers)
    return builder.build(**options)


def refit(batch: bytearray) -> bytes:
    """Make the CRC of a changed batch correct."""
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def check_like_admission(batch: bytes) -> bool:
    """Whether the batch is plain. If it is, the usual checks must return it unchanged with the same header."""
    data = b"before" + batch + b"after"
    found = plain_batch(data, 6, 6 + len(batch))
    if found is None:
        return False
    records, headers, converted = prepare(memoryview(bytearray(batch)), AppendRules(1 << 30, NOW_MS), 0)
    assert (bytes(records), converted) == (batch, 0)
    (header,) = headers
    assert (found.count, found.timestamp) == (header.record_count, header.max_timestamp)
    assert (found.start, found.end) == (6, 6 + len(batch))
    return True


@no_deadline
@given(rows)
def test_batches_of_producers_are_plain(content: list) -> None:
    least = content[0][0]
    if all(delta >= least for delta, _, _ in content):
        assert check_like_admission(produced(content))


@no_deadline
@given(rows, st.data())
def test_damaged_batches_are_refused_or_valid(content: list, data: st.DataObject) -> None:
    batch = bytearray(produced(content))
    for _ in range(data.draw(st.integers(1, 2))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    changed = refit(batch) if data.draw(st.booleans()) else bytes(batch)
    check_like_admission(changed)


@no_deadline
@given(rows, st.integers(1, 100))
def test_a_batch_without_its_end_is_not_plain(content: list, missing: int) -> None:
    batch = produced(content)
    assert plain_batch(batch, 0, len(batch) - missing) is None
    assert plain_batch(batch[:-missing], 0, len(batch)) is None


@pytest.mark.parametrize(
    "batch",
    [
        produced([(0, None, b"v")], producer_id=1, producer_epoch=0, base_sequence=0),
        produced([(0, None, b"v")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True),
        produced([(0, None, b"v")], is_control=True),
        produced([(0, None, b"v")], base_offset=1),
        produced([(5, None, b"v"), (0, None, b"v")]),
        b"",
        bytes(70),
    ],
    ids=["idempotent", "transactional", "control", "offset", "unordered", "empty", "zeros"],
)
def test_other_batches_are_not_plain(batch: bytes) -> None:
    assert not check_like_admission(batch)


def test_compressed_batches_are_not_plain() -> None:
    builder = BatchBuilder(codec=Codec.GZIP, limit_bytes=1 << 20)
    builder.append(None, b"v", timestamp_ms=NOW_MS)
    assert not check_like_admission(builder.build())


def test_records_with_headers_may_be_plain() -> None:
    assert check_like_admission(produced([(0, b"k", b"v")], headers=[("name", b"x"), ("other", None)]))


@pytest.mark.parametrize(("base", "newest"), [(-2, -2), (5, 4), (-1, (1 << 63) - 1), (1, -(1 << 63))])
def test_impossible_timestamps_are_not_plain(base: int, newest: int) -> None:
    batch = bytearray(produced([(0, None, b"v")]))
    batch[27:35], batch[35:43] = base.to_bytes(8, "big", signed=True), newest.to_bytes(8, "big", signed=True)
    assert not check_like_admission(refit(batch))


@pytest.mark.parametrize(
    "rules",
    [
        AppendRules(100, 0, magic=1),
        AppendRules(100, 0, codec=Codec.GZIP),
        AppendRules(100, 0, codec=Codec.NONE),
        AppendRules(100, 0, timestamp_type=TimestampType.LOG_APPEND_TIME),
        AppendRules(100, 0, timestamp_before_max_ms=5),
        AppendRules(100, 0, compacted=True),
        AppendRules(100, 0, validate_records=False),
    ],
)
def test_topics_with_other_rules_take_no_plain_batches(rules: AppendRules) -> None:
    assert not take_plain(rules)
    assert take_plain(AppendRules(100, 0))


def test_an_invalid_batch_is_an_error_of_the_usual_path() -> None:
    batch = produced([(0, None, b"v")])[:-1] + b"x"
    assert plain_batch(batch, 0, len(batch)) is None
    with pytest.raises(PeerError):
        prepare(memoryview(bytearray(batch)), AppendRules(1 << 30, NOW_MS), 0)
