"""Converts fetched bytes into records: which batches are complete, which records are visible, where to fetch next.

`raw_fetch`, `fetcher` and users of a `RawFetch` call it. Invariant: it never returns a record below the requested
offset, of a control batch, or, with read_committed, of an aborted transaction (KIP-98). It also reads the record
formats 0 and 1 of old logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.base.errors import MessageTooLargeError
from odradek.base.types import NO_EPOCH, TopicPartition
from odradek.client.models import AbortedTransaction, RawFetch
from odradek.protocol.hotpath import FetchedPartition
from odradek.records import formats
from odradek.records.batch_table import entry_positions
from odradek.records.v2.record import Record
from odradek.records.v2.transactions import AbortedTransactions

_UNPACKED_LIMIT_BYTES: Final = 1 << 28
"""Maximum size of a decompressed batch. Brokers limit the compressed size only; real clients stay far below."""


def raw_fetch(topic_partition: TopicPartition, fetch_offset: int, answer: FetchedPartition) -> RawFetch:
    """Return the data of a successful response. Raises `MessageTooLargeError` if not even one batch is complete."""
    data = answer.held
    view = data if isinstance(data, memoryview) else memoryview(data)
    # Runs on the network thread, so only lengths are read. The decoder of the records checks everything.
    positions, end = entry_positions(view)
    next_offset = fetch_offset
    leader_epoch = NO_EPOCH
    if len(positions):
        last = formats.read_entry(view, int(positions[-1]))
        next_offset = max(next_offset, last.next_offset)
        leader_epoch = last.leader_epoch
    if len(view) and not end:
        raise MessageTooLargeError(
            f"the batch at offset {fetch_offset} of {topic_partition} is larger than the fetch size: "
            "the response contains only a part of it"
        )
    aborted = answer.aborted_transactions or ()
    return RawFetch(
        topic_partition=topic_partition,
        records=view[:end] if end else b"",
        fetch_offset=fetch_offset,
        next_offset=next_offset,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        leader_epoch=leader_epoch,
        aborted=tuple(AbortedTransaction(producer_id, first) for producer_id, first in aborted),
    )


def iterate_records(fetch: RawFetch, *, check_crcs: bool = True) -> Iterator[tuple[list[Record], int]]:
    """Yield the visible records of each batch, and the offset after it. Raises the errors of `iterate_batches`."""
    for records, end, _ in iterate_batches(fetch, check_crcs=check_crcs):
        yield records, end


def iterate_batches(fetch: RawFetch, *, check_crcs: bool = True) -> Iterator[tuple[list[Record], int, int]]:
    """Yield the visible records of each batch, the offset after the batch, and its leader epoch, -1 if unknown.

    Raises `CorruptMessageError` for corrupt bytes and `InvalidRecordError` for an invalid compressed message of the
    formats 0 and 1.
    """
    aborted = AbortedTransactions(fetch.aborted)
    data = fetch.records
    for position, header in formats.iterate_entries(data):
        if check_crcs:
            formats.check_entry(data, position, header)
        if aborted.cover(header, data, position) or header.is_control:
            records: list[Record] = []
        else:
            records = list(formats.iterate_records(data, position, header, limit=_UNPACKED_LIMIT_BYTES))
            # The header of a compressed message in the formats 0 and 1 has the last offset, not the first.
            if records and records[0].offset < fetch.fetch_offset:
                records = [record for record in records if record.offset >= fetch.fetch_offset]
        yield records, max(header.next_offset, fetch.fetch_offset), header.leader_epoch
