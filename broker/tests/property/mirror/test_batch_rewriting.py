"""Rewritten batches have exactly the committed records of what was fetched, whatever the batches look like."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import CorruptMessageError
from odradek.base.types import TopicPartition
from odradek.client.models import AbortedTransaction, RawFetch
from odradek.compression import Codec
from odradek.mirror.batch_rewriting import rewrite
from odradek.records.conversion.down import down
from odradek.records.v2.batch import (
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    BatchBuilder,
    ControlType,
    assemble,
    check_crc,
    read_header,
)
from odradek.records.v2.encode import ProducerNumbers
from odradek.records.v2.record import Record, decode_batch
from odradek.records.v2.transactions import marker_batch

LIMIT = 1 << 22
Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]

rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=60),
        st.integers(0, 2**40),
        st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


class Piece(NamedTuple):
    """A batch in the log of the source."""

    rows: list[Row]
    codec: Codec
    kept: list[bool]
    """Which records compaction has kept."""
    appended_ms: int | None
    """The time of the append, if the topic has log append time."""
    horizon: bool
    fate: str
    """Without a transaction, or in one that was committed or aborted."""


pieces = st.lists(
    st.builds(
        Piece,
        rows,
        st.sampled_from(list(Codec)),
        st.just([]) | st.lists(st.booleans(), min_size=8, max_size=8),
        st.none() | st.integers(0, 2**40),
        st.booleans(),
        st.sampled_from(["plain", "commit", "abort"]),
    ),
    min_size=1,
    max_size=5,
)


def encode(piece: Piece, base_offset: int, producer_id: int) -> tuple[bytes, list[Record]]:
    """Return the batch, and the records that consumers see."""
    builder = BatchBuilder(codec=piece.codec, limit_bytes=LIMIT)
    for key, value, timestamp_ms, headers in piece.rows:
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
    whole = builder.build(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=piece.fate != "plain",
    )
    header = read_header(whole)
    if piece.kept:
        whole, header = compacted(piece, whole)
    if piece.appended_ms is not None:
        header = header._replace(attributes=header.attributes | LOG_APPEND_TIME_FLAG, max_timestamp=piece.appended_ms)
    if piece.horizon:
        header = header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG)
    batch = assemble(header, whole[HEADER_SIZE:])
    return batch, decode_batch(batch, 0, read_header(batch), limit=LIMIT)


def compacted(piece: Piece, whole: bytes) -> tuple[bytes, object]:
    """Return a batch that lacks some records. The others keep their offsets."""
    from odradek.compression import compress, decompress
    from odradek.records.v2.varint import decode_varint

    header = read_header(whole)
    section = decompress(piece.codec, whole[HEADER_SIZE:], limit=LIMIT) if piece.codec else whole[HEADER_SIZE:]
    left, position = [], 0
    for keep in piece.kept[: len(piece.rows)]:
        length, begin = decode_varint(section, position)
        if keep:
            left.append(section[position : begin + length])
        position = begin + length
    section = b"".join(left)
    records = compress(piece.codec, section) if piece.codec else section
    return whole[:HEADER_SIZE] + bytes(records), header._replace(record_count=len(left))


@given(pieces, st.integers(0, 1 << 40), st.integers(0, 30), st.sampled_from([0, 150, 1 << 20]))
def test_the_batches_have_the_committed_records(log: list[Piece], first: int, skipped: int, small_bytes: int) -> None:
    data, expected, aborted, offset = b"", [], [], first
    for producer_id, piece in enumerate(log):
        batch, records = encode(piece, offset, producer_id)
        if piece.fate == "abort":
            aborted.append(AbortedTransaction(producer_id, offset))
        else:
            expected += records
        data += batch
        offset += len(piece.rows)
        if piece.fate != "plain":
            kind = ControlType.ABORT if piece.fate == "abort" else ControlType.COMMIT
            data += marker_batch(
                kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=offset
            )
            offset += 1
    wanted = min(first + skipped, offset)
    found = []
    for copied in rewrite(fetched(data, wanted, offset, aborted), small_bytes=small_bytes):
        batch = copied.records.build(ProducerNumbers(77, 3, 5, True))
        header = read_header(batch)
        check_crc(batch, 0, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 5)
        assert header.is_transactional and not header.is_control and header.delete_horizon_ms is None
        assert header.size == len(batch) == copied.records.size_bytes
        assert header.record_count == header.last_offset_delta + 1 == copied.records.record_count
        records = decode_batch(batch, 0, header, limit=LIMIT)
        assert [record.offset for record in records] == list(range(len(records)))
        assert copied.first_offset < copied.next_offset <= offset
        found += records
    visible = [record for record in expected if record.offset >= wanted]
    assert [record[1:5] for record in found] == [record[1:5] for record in visible]


def fetched(data: bytes, offset: int, end: int, aborted: list[AbortedTransaction]) -> RawFetch:
    return RawFetch(
        topic_partition=TopicPartition("t", 0),
        records=data,
        fetch_offset=offset,
        next_offset=end,
        high_watermark=end,
        aborted=tuple(aborted),
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_formats_are_converted(magic: int, codec: Codec) -> None:
    builder = BatchBuilder(codec=codec, limit_bytes=LIMIT)
    for number in range(10):
        builder.append(b"k", b"%d" % number, timestamp_ms=1000 + number)
    data = down(builder.build(base_offset=5), magic=magic)
    data = data if isinstance(data, bytes) else bytes(data[0])
    batches = rewrite(fetched(data, 7, 15, []))
    records = [
        record
        for each in batches
        for record in decode_batch(each.records.build(), 0, read_header(each.records.build()), limit=LIMIT)
    ]
    assert [record.value for record in records] == [b"%d" % number for number in range(2, 10)]
    assert [record.timestamp for record in records] == [1000 + n if magic else -1 for n in range(2, 10)]
    assert {read_header(each.records.build()).codec for each in batches} == {codec}
    assert (batches[0].first_offset, batches[-1].next_offset) == (7, 15)


def test_a_corrupt_batch_is_not_copied_with_a_new_checksum() -> None:
    builder = BatchBuilder(limit_bytes=LIMIT)
    builder.append(b"k", b"value", timestamp_ms=1)
    batch = bytearray(builder.build())
    batch[-2] ^= 1
    with pytest.raises(CorruptMessageError):
        rewrite(fetched(bytes(batch), 0, 1, []))
