"""Decoding of fetched bytes: whole batches, requested offsets and aborted transactions."""

from __future__ import annotations

import pytest

from odradek.base.errors import CorruptMessageError, InvalidRecordError, MessageTooLargeError
from odradek.base.types import TopicPartition
from odradek.client.consumer.fetched import iterate_records, raw_fetch
from odradek.client.models import RawFetch
from odradek.compression import Codec
from odradek.protocol.hotpath import FetchedPartition
from odradek.records.legacy.writing import encode_set, encode_wrapper
from odradek.records.v2.batch import BatchBuilder, ControlType
from odradek.records.v2.transactions import marker_batch

PARTITION = TopicPartition("t", 0)


def data(base_offset: int, count: int, *, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 20)
    for number in range(base_offset, base_offset + count):
        builder.append(None, b"%d" % number, timestamp_ms=number)
    return builder.build(base_offset=base_offset, producer_id=producer_id, is_transactional=producer_id >= 0)


def marker(offset: int, producer_id: int, control_type: ControlType) -> bytes:
    return marker_batch(
        control_type, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=offset
    )


def fetched(records: bytes, offset: int = 0, aborted: tuple[tuple[int, int], ...] | None = None) -> RawFetch:
    answer = FetchedPartition("t", None, 0, 0, 50, 40, 2, records, aborted)
    return raw_fetch(PARTITION, offset, answer)


def offsets(fetch: RawFetch) -> list[int]:
    return [record.offset for records, _ in iterate_records(fetch) for record in records]


def test_an_incomplete_tail_is_dropped() -> None:
    first, second = data(0, 3), data(3, 3)
    fetch = fetched(first + second[:-1])
    assert bytes(fetch.records) == first
    assert fetch.next_offset == 3
    assert (fetch.high_watermark, fetch.last_stable_offset, fetch.log_start_offset) == (50, 40, 2)


def test_an_empty_response_keeps_the_requested_offset() -> None:
    fetch = fetched(b"", 9)
    assert (len(fetch.records), fetch.next_offset, offsets(fetch)) == (0, 9, [])


def test_a_single_incomplete_batch_raises() -> None:
    with pytest.raises(MessageTooLargeError):
        fetched(data(0, 3)[:-1])


def test_records_below_the_requested_offset_are_skipped() -> None:
    assert offsets(fetched(data(0, 5) + data(5, 2), 3)) == [3, 4, 5, 6]


def test_crcs_are_verified_unless_disabled() -> None:
    damaged = bytearray(data(0, 1))
    damaged[17] ^= 1
    fetch = fetched(bytes(damaged))
    with pytest.raises(CorruptMessageError):
        offsets(fetch)
    assert [len(records) for records, _ in iterate_records(fetch, check_crcs=False)] == [1]


def test_aborted_transactions_and_markers_are_skipped() -> None:
    records = b"".join(
        [
            data(0, 2, producer_id=1),
            data(2, 2, producer_id=2),
            data(4, 1),
            marker(5, 1, ControlType.ABORT),
            data(6, 1, producer_id=1),
            marker(7, 2, ControlType.COMMIT),
            marker(8, 1, ControlType.COMMIT),
        ]
    )
    assert offsets(fetched(records, aborted=((1, 0),))) == [2, 3, 4, 6]
    assert offsets(fetched(records)) == [0, 1, 2, 3, 4, 6]
    ends = [end for _, end in iterate_records(fetched(records))]
    assert ends == [2, 4, 5, 6, 7, 8, 9]


def old(base_offset: int, count: int, *, magic: int, codec: Codec = Codec.NONE) -> bytes:
    messages = [(number, 9, None, b"%d" % number) for number in range(base_offset, base_offset + count)]
    return encode_set(messages, magic=magic, codec=codec)


def test_record_formats_0_and_1_are_read() -> None:
    records = (
        old(0, 2, magic=0) + old(2, 3, magic=0, codec=Codec.LZ4) + old(5, 3, magic=1, codec=Codec.GZIP) + data(8, 1)
    )
    fetch = fetched(records + data(9, 1)[:-1], 3)
    assert (fetch.next_offset, bytes(fetch.records)) == (9, records)
    assert offsets(fetch) == [3, 4, 5, 6, 7, 8]
    assert [end for _, end in iterate_records(fetch)] == [3, 3, 5, 8, 9]


def test_records_of_a_compressed_old_message_below_the_requested_offset_are_skipped() -> None:
    assert offsets(fetched(old(5, 3, magic=1, codec=Codec.GZIP), 6)) == [6, 7]
    assert offsets(fetched(old(5, 3, magic=1, codec=Codec.GZIP), 7)) == [7]


def test_invalid_old_messages_raise() -> None:
    damaged = bytearray(old(0, 1, magic=1))
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessageError):
        offsets(fetched(bytes(damaged)))
    with pytest.raises(InvalidRecordError):
        offsets(fetched(encode_wrapper((0, 1, None, b""), magic=1, codec=Codec.GZIP)))
