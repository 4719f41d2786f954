"""What a log may hold after a crash: every record that was ever written, in the order of its line, and what is durable.

Records enter as they are appended, and what was flushed, cut, deleted or compacted; `check` compares a log that came up
with them. `torture.runs` and `torture.killing` drive it. Theory of operation: each record points to the one before it.
A log that was cut and written again has several *lines* through these pointers, and recovery may come up with a begin
of any of them, but never with a mixture: all that is found must lie on the line that ends in the last record found.
Invariant: nothing here looks into a log but by its public reads, so that a wrong index shows.
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
    """One record as it is found again."""

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
    """A row with what was written around it."""

    row: Row
    parent: Row | None
    batch_end: Row
    """The last row that was appended with it."""
    leader_epoch: int = -1
    producer_id: int = -1
    is_transactional: bool = False
    ends: ControlType | None = None
    """What it does to its producer's transaction, for a marker."""


class TornLogError(AssertionError):
    """A log came up with something lost, changed or mixed."""


def _demand(holds: bool, *what: object) -> None:
    if not holds:
        raise TornLogError(" ".join(map(str, what)))


@dataclass(frozen=True, slots=True)
class Found:
    """What a log holds."""

    rows: Mapping[int, Row]
    headers: Sequence[BatchHeader]
    markers: frozenset[int]
    """Offsets of control records."""
    last: BatchHeader | None
    """The last batch, which may have no record any more."""

    def producers(self) -> dict[int, LastBatch]:
        """The last batch of each producer whose batches are there."""
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
                # A marker that compaction emptied says nothing of its producer.
                headers.append(header)
            for record in records:
                if record.offset >= log.log_start_offset:
                    rows[record.offset] = Row(record.offset, record.timestamp, record.key, record.value)
                    if header.is_control:
                        markers.add(record.offset)
            offset, last = header.next_offset, header
    return Found(rows, headers, frozenset(markers), last)


class LogModel:
    """One partition's records through all lives of its log."""

    def __init__(self) -> None:
        """Nothing was written yet."""
        self.history: dict[Row, Entry] = {}
        self.line: dict[int, Row] = {}
        """The records that the log has now, with those that it has deleted."""
        self.durable: dict[int, Row] = {}
        """Those that a crash must leave."""
        self.droppable: set[Row] = set()
        """Those that a compaction that has begun may leave out."""
        self.start_floor = 0
        """No lower may the log begin: it was checkpointed."""

    # What happens

    def write(self, rows: Iterable[Row], **around: object) -> None:
        """Records are about to be appended behind the line; `around`: fields of `Entry`."""
        parent, batch = self.tip, tuple(rows)
        for row in batch:
            self.history[row] = Entry(row, parent, batch[-1], **around)  # type: ignore[arg-type]
            parent = row

    def written(self, rows: Iterable[Row]) -> None:
        """They were."""
        self.line.update((row.offset, row) for row in rows)

    @property
    def tip(self) -> Row | None:
        """The last record of the line."""
        return self.line[max(self.line)] if self.line else None

    def flushed(self, recovery_point: int, log_start: int) -> None:
        """Everything below the recovery point and not deleted is durable."""
        self.durable = {
            offset: row
            for offset, row in self.line.items()
            if log_start <= offset < recovery_point and row not in self.droppable
        }

    def cut(self, offset: int) -> None:
        """Records from `offset` on are about to be cut."""
        self.durable = {known: row for known, row in self.durable.items() if known < offset}

    def was_cut(self, offset: int) -> None:
        """They were."""
        self.line = {known: row for known, row in self.line.items() if known < offset}
        self.start_floor = min(self.start_floor, offset)

    def delete(self, offset: int) -> None:
        """Records below `offset` are about to be deleted."""
        self.durable = {known: row for known, row in self.durable.items() if known >= offset}

    def compact(self, end_offset: int, recovery_point: int) -> None:
        """A pass over the records below `end_offset` is about to begin; markers from `recovery_point` on may vanish."""
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
        """The rows of aborted transactions, and of those that no marker below the recovery point ends."""
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
        """Of the line: first offsets of open transactions by producer, and the aborted as (marker, producer, first)."""
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
        """Compare a log that came up; take its line for the model's from now on. Raises `TornLogError`."""
        found = read_all(log)
        for row in found.rows.values():
            _demand(row in self.history, "never written:", row, "of", log)
        missing = [row for offset, row in self.durable.items() if found.rows.get(offset) != row]
        _demand(not missing, "synced and lost:", missing, "of", log)
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
        """The end of the line: the last record, or one that compaction took from an empty batch behind it."""
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
            # Old formats tell no epoch, and make those before them unknown.
            _demand(epoch in (-1, written) or written == -1, "epoch", epoch, "instead of", written, "at", offset)
            known = max(epoch, known)

    def _check_producers(self, log: PartitionLog, found: Found) -> None:
        remembered = {each.producer_id: each for each in log.active_producers()}
        for producer_id, (epoch, last_sequence) in found.producers().items():
            producer = remembered.get(producer_id)
            _demand(producer is not None, "producer", producer_id, "is forgotten:", log)
            assert producer is not None
            told = (producer.producer_epoch, producer.last_sequence)
            # Of those whose last batches compaction or retention took, a snapshot may tell more.
            more = told[0] == epoch and told[1] > last_sequence and (last_sequence == -1 or bool(self.droppable))
            _demand(
                told == (epoch, last_sequence) or more,
                "producer", producer_id, "has", told, "instead of", (epoch, last_sequence), "in", log,
            )  # fmt: skip

    def _check_transactions(self, log: PartitionLog, found: Found) -> None:
        begun, aborted = self.transactions(log.log_end_offset)
        told = set(log.aborted_transactions(log.log_start_offset, log.log_end_offset))
        for producer, begin in told:
            is_known = any(each == producer and first <= begin < marker for marker, each, first in aborted)
            _demand(is_known, "an invented transaction:", (producer, begin), "in", log)
        for marker, producer, first in aborted:
            if any(
                self.history[row].producer_id == producer and first <= offset < marker and offset not in found.markers
                for offset, row in found.rows.items()
            ):
                # Its begin may have been deleted before the producer's snapshots were.
                known = any(each == producer and first <= begin < marker for each, begin in told)
                _demand(known, "an aborted transaction is forgotten:", (marker, producer, first), "in", log, told)
        high_watermark, log.high_watermark = log.high_watermark, log.log_end_offset
        unstable = log.first_unstable_offset
        log.high_watermark = high_watermark
        expected = min(begun.values(), default=None)
        # A transaction whose marker was cut off is open again, and its begin may be compacted or deleted.
        has_begin = expected is None or (expected >= log.log_start_offset and self.line[expected] not in self.droppable)
        if has_begin:
            _demand(unstable == expected, "unstable from", unstable, "instead of", expected, "in", log)

    def _check_indexes(self, log: PartitionLog, found: Found) -> None:
        """Each place of the log can be read alone, and found by its time."""
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
