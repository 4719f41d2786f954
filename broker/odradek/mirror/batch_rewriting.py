"""Rewrites fetched batches of a source for the target, without looking at their records if possible.

`copy_rounds` passes each fetch response through `rewrite`, and sends the result with `Producer.send_encoded`. A batch
keeps its compressed records; only its header changes. Left out are control batches, batches of aborted transactions,
and batches that compaction has emptied.

The records of a batch are decoded only if the target would refuse the batch or read it differently: compaction has
removed some of its records (offsets in a produced batch must be consecutive), its timestamps were set by the broker
(a producer may not send such a batch), it has the format 0 or 1, or it begins below the wanted offset. Small batches
are decoded as well, because a request can have only one batch of a partition: many small ones would take a request
each. Such records are collected in new batches with the same codec.

Invariant: the result has each committed record from the wanted offset on once, in order, with its key, value, headers
and timestamp. The CRC of every batch is checked before it gets a new one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.base.types import NO_EPOCH
from odradek.client.models import RawFetch
from odradek.compression import Codec
from odradek.records import formats
from odradek.records.v2.batch import CODEC_MASK, LOG_APPEND_TIME_FLAG, MAGIC, BatchBuilder, BatchHeader, read_header
from odradek.records.v2.encode import EncodedRecords
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES, Record
from odradek.records.v2.transactions import AbortedTransactions

NEW_BATCH_BYTES: Final = 512 << 10
"""Maximum size before compression of a batch of decoded records; a single record may exceed it. Less than the default
of `max.message.bytes`."""
SMALL_BATCH_BYTES: Final = 2 << 10
"""Below this size, decoding a batch costs less than a produce request."""


class CopiedBatch(NamedTuple):
    """A batch for the target."""

    first_offset: int
    """Source offset of its first record."""
    next_offset: int
    """Source offset after its last record."""
    records: EncodedRecords


def rewrite(fetch: RawFetch, *, small_bytes: int = SMALL_BATCH_BYTES) -> list[CopiedBatch]:
    """Return the batches for the target, with all committed records of a fetch with `read_committed`.

    Batches below `small_bytes` are decoded. Raises `CorruptMessageError` or `InvalidRecordError` for invalid bytes.
    """
    data = memoryview(fetch.records)
    aborted = AbortedTransactions(fetch.aborted)
    decoded = _DecodedRecords()
    for position, header in formats.iterate_entries(data):
        formats.check_entry(data, position, header)
        if aborted.cover(header, data, position) or header.is_control or not header.record_count:
            continue
        if header.next_offset <= fetch.fetch_offset:
            continue
        if header.size >= small_bytes and _can_stay_encoded(header, fetch.fetch_offset):
            decoded.put_whole(data, position, header)
            continue
        for record in formats.iterate_records(data, position, header, limit=UNPACKED_LIMIT_BYTES):
            if record.offset >= fetch.fetch_offset:
                decoded.put(record, header.codec)
    return decoded.end()


def _can_stay_encoded(header: BatchHeader, first_offset: int) -> bool:
    return (
        header.magic == MAGIC
        and header.base_offset >= first_offset
        and header.record_count == header.last_offset_delta + 1
        and not header.attributes & LOG_APPEND_TIME_FLAG
    )


def _encoded(batch: memoryview, header: BatchHeader, uncompressed_bytes: int) -> EncodedRecords:
    """Return a batch without the fields that belong to the source: flags, offset, leader epoch and producer."""
    # The base timestamp stays correct without the flag of the delete horizon: record timestamps are relative to it.
    plain = header._replace(base_offset=0, leader_epoch=NO_EPOCH, attributes=header.attributes & CODEC_MASK)
    return EncodedRecords(batch, plain, uncompressed_bytes)


class _DecodedRecords:
    """Collects batches, and decoded records between them, in order."""

    def __init__(self) -> None:
        self._batches: list[CopiedBatch] = []
        self._builder: BatchBuilder | None = None
        self._codec = Codec.NONE
        self._first_offset = 0
        self._next_offset = 0

    def put_whole(self, data: memoryview, position: int, header: BatchHeader) -> None:
        """Add a batch as it is. Its bytes are copied, because the producer writes the header."""
        self._close_batch()
        batch = memoryview(bytearray(data[position : position + header.size]))
        encoded = _encoded(batch, header, header.size)
        self._batches.append(CopiedBatch(header.base_offset, header.next_offset, encoded))

    def put(self, record: Record, codec: Codec) -> None:
        """Add a record, to be compressed with `codec`."""
        if self._builder is not None and (codec != self._codec or not self._append(self._builder, record)):
            self._close_batch()
        if self._builder is None:
            self._builder, self._codec = BatchBuilder(codec=codec, limit_bytes=NEW_BATCH_BYTES), codec
            self._first_offset = record.offset
            self._append(self._builder, record)
        self._next_offset = record.offset + 1

    @staticmethod
    def _append(builder: BatchBuilder, record: Record) -> bool:
        return builder.append(record.key, record.value, timestamp_ms=record.timestamp, headers=record.headers)

    def _close_batch(self) -> None:
        builder, self._builder = self._builder, None
        if builder is not None:
            batch = bytearray(builder.build())
            encoded = _encoded(memoryview(batch), read_header(batch), builder.size_bytes)
            self._batches.append(CopiedBatch(self._first_offset, self._next_offset, encoded))

    def end(self) -> list[CopiedBatch]:
        """Return all batches."""
        self._close_batch()
        return self._batches
