"""Each rule of an append, with the error that its breach must give."""

from __future__ import annotations

import pytest

from odradek.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OdradekError,
    UnsupportedCompressionTypeError,
)
from odradek.compression import Codec
from odradek.records import batch
from odradek.records.batch import BatchBuilder, ControlType, TimestampType
from odradek.records.validate import AppendOrigin, AppendRules, check_append

NOW_MS = 1_000_000


def rules(**changes: object) -> AppendRules:
    return AppendRules(max_message_bytes=1 << 20, now_ms=NOW_MS)._replace(**changes)


def built(*timestamps_ms: int, codec: Codec = Codec.NONE, key: bytes | None = b"k", **values: int) -> bytes:
    builder = BatchBuilder(codec=codec, limit_bytes=1 << 20)
    for timestamp_ms in timestamps_ms or (NOW_MS,):
        builder.append(key, b"value", timestamp_ms=timestamp_ms)
    return builder.build(**values)


def refit(raw: bytes, **fields: int) -> bytes:
    """The batch with other header fields and a true CRC."""
    return batch.assemble(batch.read_header(raw)._replace(**fields), raw[batch.HEADER_SIZE :])


def marker(base_offset: int = 0) -> bytes:
    return batch.control_batch(
        ControlType.COMMIT,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=NOW_MS,
        base_offset=base_offset,
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_a_sound_batch_passes(codec: Codec) -> None:
    raw = built(1, 2, 3, codec=codec, producer_id=5, producer_epoch=0, base_sequence=0)
    (header,) = check_append(memoryview(raw), rules(compacted=True))
    assert header == batch.read_header(raw)


BREACHES: list[tuple[str, bytes, dict[str, object], type[OdradekError]]] = [
    ("nothing", b"", {}, InvalidRecordError),
    ("a piece of a header", built()[:60], {}, InvalidRecordError),
    ("cut short", built()[:-1], {}, CorruptMessageError),
    ("bytes behind", built() + b"\x00", {}, InvalidRecordError),
    ("two batches", built() + built(), {}, InvalidRecordError),
    ("old format", built()[:16] + b"\x01" + built()[17:], {}, InvalidRecordError),
    ("wrong CRC", built()[:-1] + b"\x01", {}, CorruptMessageError),
    ("too large", built(), {"max_message_bytes": len(built()) - 1}, MessageTooLargeError),
    ("base offset", built(base_offset=1), {}, InvalidRecordError),
    ("count above delta", refit(built(1, 2), record_count=3), {}, InvalidRecordError),
    ("count below delta", refit(built(1, 2), record_count=1), {}, InvalidRecordError),
    ("no record", refit(built(), record_count=0), {}, InvalidRecordError),
    ("control", marker(), {}, InvalidRecordError),
    ("producer without sequence", built(producer_id=3, producer_epoch=0), {}, InvalidRecordError),
    ("producer without epoch", built(producer_id=3, base_sequence=0), {}, InvalidRecordError),
    ("transaction without producer", built(is_transactional=True), {}, InvalidRecordError),
    ("codec 5", refit(built(), attributes=5), {}, UnsupportedCompressionTypeError),
    ("early zstd", built(codec=Codec.ZSTD), {"zstd_allowed": False}, UnsupportedCompressionTypeError),
    ("append time", refit(built(), attributes=batch.LOG_APPEND_TIME_FLAG), {}, InvalidTimestampError),
    ("future", built(NOW_MS + 11), {"timestamp_after_max_ms": 10}, InvalidTimestampError),
    ("past", built(NOW_MS, NOW_MS - 11), {"timestamp_before_max_ms": 10}, InvalidTimestampError),
    ("packed past", built(NOW_MS - 11, codec=Codec.LZ4), {"timestamp_before_max_ms": 10}, InvalidTimestampError),
    ("no key", built(key=None), {"compacted": True}, InvalidRecordError),
    ("packed no key", built(key=None, codec=Codec.GZIP), {"compacted": True}, InvalidRecordError),
    ("lying records", refit(built(1), last_offset_delta=1, record_count=2), {"compacted": True}, CorruptMessageError),
]


@pytest.mark.parametrize(("raw", "changes", "error"), [row[1:] for row in BREACHES], ids=[row[0] for row in BREACHES])
def test_a_client_breach(raw: bytes, changes: dict[str, object], error: type[OdradekError]) -> None:
    with pytest.raises(OdradekError) as caught:
        check_append(memoryview(raw), rules(**changes))
    assert type(caught.value) is error


def test_timestamps_at_their_bounds_pass() -> None:
    bounds = rules(timestamp_before_max_ms=10, timestamp_after_max_ms=10)
    check_append(memoryview(built(NOW_MS - 10, NOW_MS + 10)), bounds)


def test_a_missing_timestamp_passes() -> None:
    check_append(memoryview(built(-1)), rules(timestamp_before_max_ms=10, timestamp_after_max_ms=10))


def test_create_time_does_not_matter_where_the_broker_sets_it() -> None:
    bounds = rules(timestamp_before_max_ms=10, timestamp_after_max_ms=10, timestamp_type=TimestampType.LOG_APPEND_TIME)
    check_append(memoryview(built(1, 10 * NOW_MS)), bounds)


def test_a_bomb_for_a_compacted_topic_is_refused_within_the_bound() -> None:
    builder = BatchBuilder(codec=Codec.ZSTD, limit_bytes=1 << 30)
    builder.append(b"k", bytes(8 << 20), timestamp_ms=NOW_MS)
    with pytest.raises(CorruptMessageError):
        check_append(memoryview(builder.build()), rules(compacted=True, decompressed_limit_bytes=1 << 20))


def test_replication_takes_batches_as_the_leader_wrote_them() -> None:
    compacted = refit(built(1, 2, base_offset=7), last_offset_delta=9)
    raw = built(base_offset=3) + compacted + marker(base_offset=17)
    headers = check_append(memoryview(raw), rules(origin=AppendOrigin.REPLICATION, max_message_bytes=1))
    assert [header.base_offset for header in headers] == [3, 7, 17]


@pytest.mark.parametrize(
    "raw",
    [b"", built()[:-1], built() + built()[:30], built(1, 2) + built(base_offset=1), built()[:-1] + b"\x01"],
    ids=["empty", "cut", "tail", "backwards", "crc"],
)
def test_replication_refuses_what_is_not_tiled(raw: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        check_append(memoryview(raw), rules(origin=AppendOrigin.REPLICATION))


def test_coordinators_may_write_several_batches_and_markers_up_to_the_size() -> None:
    raw = built() + marker()
    assert len(check_append(memoryview(raw), rules(origin=AppendOrigin.COORDINATOR))) == 2
    with pytest.raises(MessageTooLargeError):
        check_append(memoryview(raw), rules(origin=AppendOrigin.COORDINATOR, max_message_bytes=len(built()) - 1))
