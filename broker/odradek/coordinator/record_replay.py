"""Reads the log of a coordinator: the records of its batches, and how its transactions ended.

`group_replay` and `transaction_shard` use it while their partition is loading. `coordinator_runtime` runs other tasks
between batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek.records.formats import check_entry, iterate_entries, iterate_records
from odradek.records.v2.batch import BatchHeader, ControlType
from odradek.records.v2.record import UNPACKED_LIMIT_BYTES, Record
from odradek.records.v2.transactions import read_marker_type

OnRecord = Callable[[BatchHeader, Record], None]
"""Takes a record and the header of its batch."""
OnMarker = Callable[[BatchHeader, ControlType], None]
"""Takes the end of a transaction and the header of its control batch."""


def replay_records(records: bytes, on_record: OnRecord, on_marker: OnMarker | None = None) -> Iterator[int]:
    """Call `on_record` for each record of a record set, and `on_marker` for each marker, in order. Yields the number of
    records after each batch; at least 1.

    Without `on_marker`, control batches are skipped. Raises `CorruptMessageError` or `InvalidRecordError` if a batch,
    or a message from before Kafka 0.11, is corrupt. The partition must not be served then.
    """
    for position, header in iterate_entries(records):
        check_entry(records, position, header)
        count = 0
        if not header.is_control:
            for record in iterate_records(records, position, header, limit=UNPACKED_LIMIT_BYTES):
                on_record(header, record)
                count += 1
        elif on_marker is not None and (end := read_marker_type(records, position, header)) is not None:
            on_marker(header, end)
        yield max(count, 1)
