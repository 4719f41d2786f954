"""Model of a log over crashes: all records that were ever written, and which of them must survive.

`torture.runs` and `torture.killing` report appends, flushes, truncations, deletions and compactions; `check` compares a
recovered log with the model. Each record refers to its predecessor. A log that was truncated and written again
therefore has several *lines* of records. Recovery may return a prefix of any line, but never a mixture: all recovered
records must be on the line that ends with the last one. Invariant: logs are read only with public methods, so that a
wrong index is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.log.partition_log import PartitionLog
from odradek.records.formats import iterate_entries, iterate_records
from odradek.records.v2.batch import BatchHeader, ControlType

READ_BYTES: Final = 1 << 20
_LIMIT: Final = 1 << 24


class Row(NamedTuple):
    """One record as it is read from a log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class LastBatch(NamedTuple):
    """The last batch of an idempotent producer."""

    epoch: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A row and the batch that it was written in."""

    row: Row
    parent: Row | None
    batch_end: Row
    """The last row of the same append."""
    leader_epoch: int = -1
    producer_id: int = -1
    is_transactional: bool = False
    ends: ControlType | None = None
    """For a marker: how it ends the transaction of its producer."""


class TornLogError(AssertionError):
    """A recovered log has lost, changed or mixed records."""


def _demand(holds: bool, *what: object) -> None:
    if not holds:
        raise TornLogError(" ".join(map(str, what)))


@dataclass(frozen=True, slots=True)
class Found:
    """The content of a log."""

    rows: Mapping[int, Row]
    headers: Sequence[BatchHeader]
    markers: frozenset[int]
    """Offsets of control records."""
    last: BatchHeader | None
    """The last batch, which may be empty after compaction."""

    def producers(self) -> dict[int, LastBatch]:
        """The last batch of each producer that has batches in the log."""
        last: dict[int, LastBatch] = {}
        for header in self.headers:
            if header.producer_id < 0:
                continue
            known = last.get(header.producer_id, LastBatch(-1, -1))
            if header.is_control:
                same_epoch = known.epoch == header.producer_epoch
                sequence = known.last_sequence if same_epoch else -1
            else:
                sequence = header.last_sequence
            last[header.producer_id] = LastBatch(header.producer_epoch, sequence)
        return last


def read_all(log: PartitionLog) -> Found:
    """Every record from the log start to the log end, by reads from offset to offset."""
    rows: dict[int, Row] = {}
    headers: list[BatchHeader] = []
    markers: set[int] = set()
    offset = log.log_start_offset
    last: BatchHeader | None = None
    while True:
        content = log.read(offset, max_bytes=READ_BYTES).load()
        entries = list(iterate_entries(content))
        if not entries:
            break
        for position, header in entries:
            records = list(iterate_records(content, position, header, limit=_LIMIT))
            if records or not header.is_control:
                # A marker that compaction has emptied says nothing about its producer.
                headers.append(header)
            for record in records:
                if record.offset >= log.log_start_offset:
                    rows[record.offset] = Row(record.offset, record.timestamp, record.key, record.value)
                    if header.is_control:
                        markers.add(record.offset)
            offset, last = header.next_offset, header
    return Found(rows, headers, frozenset(markers), last)


class LogModel:
    """The records of one partition over all crashes."""

    def __init__(self) -> None:
        """Create the model of an empty log."""
        self.history: dict[Row, Entry] = {}
        self.line: dict[int, Row] = {}
        """The current records of the log, including deleted ones."""
        self.durable: dict[int, Row] = {}
        """Records that a crash must not lose."""
        self.droppable: set[Row] = set()
        """Records that a running compaction may remove."""
        self.start_floor = 0
        """Minimum log start offset, because it was checkpointed."""

    # What happens

    def write(self, rows: Iterable[Row], **around: object) -> None:
        """Report that records are about to be appended; `around`: fields of `Entry`."""
        parent, batch = self.tip, tuple(rows)
        for row in batch:
            self.history[row] = Entry(row, parent, batch[-1], **around)  # type: ignore[arg-type]
            parent = row

    def written(self, rows: Iterable[Row]) -> None:
        """Report that the records were appended."""
        self.line.update((row.offset, row) for row in rows)

    @property
    def tip(self) -> Row | None:
        """The last record of the current line."""
        return self.line[max(self.line)] if self.line else None

    def flushed(self, recovery_point: int, log_start: int) -> None:
        """Report the recovery point: all records below it that are not deleted are durable."""
        self.durable = {
            offset: row
            for offset, row in self.line.items()
            if log_start <= offset < recovery_point and row not in self.droppable
        }

    def cut(self, offset: int) -> None:
        """Report that the log is about to be truncated to `offset`, where it may start from then on."""
        self.start_floor = min(self.start_floor, max(offset, 0))
        self.durable = {known: row for known, row in self.durable.items() if known < offset}

    def was_cut(self, offset: int) -> None:
        """Report that the operation is complete."""
        self.line = {known: row for known, row in self.line.items() if known < offset}
        self.start_floor = min(self.start_floor, offset)

    def delete(self, offset: int) -> None:
        """Report that records below `offset` are about to be deleted."""
        self.durable = {known: row for known, row in self.durable.items() if known >= offset}

    def compact(self, end_offset: int, recovery_point: int) -> None:
        """Report that compaction below `end_offset` is about to start; markers from `recovery_point` on may be lost."""
        newest: dict[bytes | None, int] = {}
        aborted, undecided = self._transactional_rows(recovery_point)
        for offset, row in sorted(self.line.items()):
            if offset < end_offset and row not in aborted | undecided and self.history[row].ends is None:
                newest[row.key] = offset
        for offset, row in self.line.items():
            if offset < end_offset and row not in undecided:
                entry = self.history[row]
                superseded = newest.get(row.key, offset) != offset or row.value is None
                if superseded or entry.ends is not None or row in aborted:
                    self.droppable.add(row)
        self.durable = {offset: row for offset, row in self.durable.items() if row not in self.droppable}

    def _transactional_rows(self, recovery_point: int) -> tuple[set[Row], set[Row]]:
        """Return the rows of aborted transactions, and of those without a marker below the recovery point."""
        open_rows: dict[int, set[Row]] = {}
        gone: set[Row] = set()
        for offset, row in sorted(self.line.items()):
            entry = self.history[row]
            if entry.ends is not None and offset < recovery_point:
                rows = open_rows.pop(entry.producer_id, set())
                gone |= rows if entry.ends is ControlType.ABORT else set()
            elif entry.is_transactional and entry.ends is None:
                open_rows.setdefault(entry.producer_id, set()).add(row)
        return gone, set().union(*open_rows.values())

    def transactions(self, end_offset: int) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        """Return first offsets of open transactions by producer, and aborted ones as (marker, producer, first)."""
        begun: dict[int, int] = {}
        aborted: list[tuple[int, int, int]] = []
        for offset, row in sorted(self.line.items()):
            entry = self.history[row]
            if offset >= end_offset:
                break
            if entry.ends is not None:
                first = begun.pop(entry.producer_id, None)
                if entry.ends is ControlType.ABORT and first is not None:
                    aborted.append((offset, entry.producer_id, first))
            elif entry.is_transactional:
                begun.setdefault(entry.producer_id, offset)
        return begun, aborted

    # What is demanded

    def check(self, log: PartitionLog) -> Found:
        """Compare a recovered log, whose line becomes the current one. Raises `TornLogError`."""
        found = read_all(log)
        for row in found.rows.values():
            _demand(row in self.history, "never written:", row, "of", log)
        missing = [row for offset, row in self.durable.items() if found.rows.get(offset) != row]
        _demand(not missing, "durable records are lost:", missing, "of", log)
        _demand(log.log_start_offset >= self.start_floor, "deleted records are back:", log, self.start_floor)
        self._take_line(log, found)
        self._check_epochs(log, found)
        self._check_producers(log, found)
        self._check_transactions(log, found)
        self._check_indexes(log, found)
        return found

    def _take_line(self, log: PartitionLog, found: Found) -> None:
        line: dict[int, Row] = {}
        row = self._last_row(log, found)
        while row is not None:
            line[row.offset] = row
            row = self.history[row].parent
        for offset, each in found.rows.items():
            _demand(line.get(offset) == each, "two lines are mixed at", offset, "of", log)
        holes = [
            row
            for offset, row in line.items()
            if offset >= log.log_start_offset and offset not in found.rows and row not in self.droppable
        ]
        _demand(not holes, "a hole:", holes, "of", log)
        self.line = line

    def _last_row(self, log: PartitionLog, found: Found) -> Row | None:
        """Return the end of the line: the last record, or a record of the empty last batch that compaction removed."""
        last = found.last
        if last is None or last.record_count:
            return found.rows[max(found.rows)] if found.rows else None
        # A batch keeps the time of one of its records, and no two have the same.
        for row, entry in self.history.items():
            if row.timestamp == last.max_timestamp and last.base_offset <= row.offset <= last.last_offset:
                return entry.batch_end
        raise TornLogError(f"an empty batch that was never written: {last} of {log}")

    def _check_epochs(self, log: PartitionLog, found: Found) -> None:
        known = 0
        for offset, row in found.rows.items():
            epoch = log.epoch_of(offset)
            _demand(epoch >= known or epoch == -1, "epochs fall at", offset, "of", log)
            written = self.history[row].leader_epoch
            # Old formats have no epoch, and make the earlier epochs unknown.
            _demand(epoch in (-1, written) or written == -1, "epoch", epoch, "instead of", written, "at", offset)
            known = max(epoch, known)

    def _check_producers(self, log: PartitionLog, found: Found) -> None:
        remembered = {each.producer_id: each for each in log.active_producers()}
        for producer_id, (epoch, last_sequence) in found.producers().items():
            producer = remembered.get(producer_id)
            _demand(producer is not None, "producer", producer_id, "is forgotten:", log)
            assert producer is not None
            reported = (producer.producer_epoch, producer.last_sequence)
            # A snapshot may contain more than the log, if compaction or retention has removed the last batches.
            more = (
                reported[0] == epoch and reported[1] > last_sequence and (last_sequence == -1 or bool(self.droppable))
            )
            _demand(
                reported == (epoch, last_sequence) or more,
                "producer", producer_id, "has", reported, "instead of", (epoch, last_sequence), "in", log,
            )  # fmt: skip

    def _check_transactions(self, log: PartitionLog, found: Found) -> None:
        begun, aborted = self.transactions(log.log_end_offset)
        reported = set(log.aborted_transactions(log.log_start_offset, log.log_end_offset))
        for producer, begin in reported:
            is_known = any(each == producer and first <= begin < marker for marker, each, first in aborted)
            _demand(is_known, "an invented transaction:", (producer, begin), "in", log)
        for marker, producer, first in aborted:
            if any(
                self.history[row].producer_id == producer and first <= offset < marker and offset not in found.markers
                for offset, row in found.rows.items()
            ):
                # Its first records may have been deleted before the producer's snapshots.
                known = any(each == producer and first <= begin < marker for each, begin in reported)
                _demand(known, "an aborted transaction is forgotten:", (marker, producer, first), "in", log, reported)
        high_watermark, log.high_watermark = log.high_watermark, log.log_end_offset
        unstable = log.first_unstable_offset
        log.high_watermark = high_watermark
        expected = min(begun.values(), default=None)
        # A transaction whose marker was truncated is open again; its first records may be compacted or deleted.
        has_begin = expected is None or (expected >= log.log_start_offset and self.line[expected] not in self.droppable)
        if has_begin:
            _demand(unstable == expected, "unstable from", unstable, "instead of", expected, "in", log)

    def _check_indexes(self, log: PartitionLog, found: Found) -> None:
        """Check that each record can be read by its offset, and found by its timestamp."""
        timed = [row for row in found.rows.values() if row.timestamp >= 0]
        for row in timed[:: max(len(timed) // 8, 1)]:
            expected = next(each.offset for each in timed if each.timestamp >= row.timestamp)
            place = log.offset_for_timestamp(row.timestamp)
            _demand(place is not None and place.offset == expected, row, "is found at", place, "in", log)
        for offset in list(found.rows)[:: max(len(found.rows) // 8, 1)]:
            content = log.read(offset, max_bytes=1).load()
            position, header = next(iter(iterate_entries(content)))
            offsets = {record.offset for record in iterate_records(content, position, header, limit=_LIMIT)}
            _demand(offset in offsets, "a read at", offset, "gives", sorted(offsets), "in", log)
