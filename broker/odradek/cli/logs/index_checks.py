"""Checks of a segment's three indexes, made while its log is walked: each entry is held against the batch it is about.

Index files and the entries of the log, in order, enter; findings leave. `log_checks` makes one of each for every
segment. Invariant: one pass over the log, and no more memory than the index files take.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

from odradek.base.errors import ProtocolError
from odradek.cli.logs.files import Entry, read_whole
from odradek.cli.logs.findings import REMAKE_INDEX, REPLACE_REPLICA, Findings, Severity
from odradek.log.segments.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from odradek.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from odradek.records.batch import ControlType, read_control_type
from odradek.records.formats import iterate_records

_OFFSET_ENTRY: Final = Struct(">iI")
_TIME_ENTRY: Final = Struct(">qi")
_CONTROL_LIMIT_BYTES: Final = 1 << 16


class OffsetIndexCheck:
    """Every entry points at the begin of a batch and tells the last offset of it or of a later one; both rise."""

    def __init__(self, path: Path, base_offset: int, findings: Findings, *, active: bool) -> None:
        """`active`: the last segment of its log, whose index may have room behind its entries."""
        self._path = path
        self._findings = findings
        self._base_offset = base_offset
        content = read_whole(path)
        if len(content) % OFFSET_ENTRY_BYTES:
            self._error(len(content), "the file ends within an entry")
        whole = len(content) - len(content) % OFFSET_ENTRY_BYTES
        self._entries = _without_room(list(_OFFSET_ENTRY.iter_unpack(content[:whole])), active=active)
        self._next = 0
        self._last_offset = base_offset - 1
        self._pending: tuple[int, int] | None = None
        """Offset of an entry whose batch is still to come, and where the entry stands."""
        for place, (earlier, later) in enumerate(zip(self._entries, self._entries[1:], strict=False), 1):
            if later[0] <= earlier[0] or later[1] <= earlier[1]:
                self._error(place * OFFSET_ENTRY_BYTES, f"entry {later} does not follow {earlier}")
                del self._entries[place:]
                break

    def _error(self, position: int, text: str) -> None:
        self._findings.add(Severity.ERROR, "offset index", self._path, text, position=position, advice=REMAKE_INDEX)

    def see(self, entry: Entry) -> None:
        """Take in the next entry of the log."""
        end = entry.position + entry.header.size
        while self._next < len(self._entries) and self._entries[self._next][1] < end:
            relative, position = self._entries[self._next]
            offset = self._base_offset + relative
            at = self._next * OFFSET_ENTRY_BYTES
            if position != entry.position:
                self._error(at, f"offset {offset} points to {position}, inside the batch at {entry.position}")
            elif offset < entry.header.last_offset:
                self._error(at, f"offset {offset} points to {position}, where a batch ends later")
            else:
                self._pending = (offset, at)
            self._next += 1
        self._last_offset = entry.header.last_offset
        # An entry tells the last offset of what was appended at once, which may have been several batches.
        if self._pending is not None and self._pending[0] <= self._last_offset:
            offset, at = self._pending
            if offset != self._last_offset:
                self._error(at, f"offset {offset} is the last one of no batch")
            self._pending = None

    def finish(self) -> None:
        """The log is at its end."""
        for place in range(self._next, len(self._entries)):
            relative, position = self._entries[place]
            offset = self._base_offset + relative
            self._error(place * OFFSET_ENTRY_BYTES, f"offset {offset} points to {position}, behind the last batch")
        if self._entries and self._base_offset + self._entries[-1][0] > self._last_offset:
            last = self._base_offset + self._entries[-1][0]
            self._error((len(self._entries) - 1) * OFFSET_ENTRY_BYTES, f"its last offset, {last}, is not in the log")


def _without_room(entries: list[tuple[int, int]], *, active: bool) -> list[tuple[int, int]]:
    """The entries without the zeros that Kafka keeps behind those of an active segment."""
    while active and entries and entries[-1] == (0, 0):
        entries.pop()
    return entries


class TimeIndexCheck:
    """An entry's timestamp is the largest up to its offset, and the batch there has it; both columns rise."""

    def __init__(self, path: Path, base_offset: int, findings: Findings, *, active: bool) -> None:
        """`active`: see `OffsetIndexCheck`."""
        self._path = path
        self._findings = findings
        self._base_offset = base_offset
        content = read_whole(path)
        if len(content) % TIME_ENTRY_BYTES:
            self._tell(Severity.ERROR, len(content), "the file ends within an entry")
        whole = len(content) - len(content) % TIME_ENTRY_BYTES
        self._entries = _without_room(list(_TIME_ENTRY.iter_unpack(content[:whole])), active=active)
        self._next = 0
        self._newest = -1
        for place, (earlier, later) in enumerate(zip(self._entries, self._entries[1:], strict=False), 1):
            if later[0] <= earlier[0] or later[1] < earlier[1]:
                self._tell(Severity.ERROR, place * TIME_ENTRY_BYTES, f"entry {later} does not follow {earlier}")
                del self._entries[place:]
                break

    def _tell(self, severity: Severity, position: int, text: str) -> None:
        self._findings.add(severity, "time index", self._path, text, position=position, advice=REMAKE_INDEX)

    def see(self, entry: Entry) -> None:
        """Take in the next entry of the log."""
        header = entry.header
        self._newest = max(self._newest, header.max_timestamp)
        while self._next < len(self._entries):
            timestamp, relative = self._entries[self._next]
            offset = self._base_offset + relative
            if offset > header.last_offset:
                return
            at = self._next * TIME_ENTRY_BYTES
            if timestamp < self._newest:
                text = f"time {timestamp} stands for offset {offset}, but a record up to there has time {self._newest}"
                self._tell(Severity.ERROR, at, text)
            elif timestamp > self._newest:
                text = f"no record up to offset {offset} has time {timestamp}, the newest has {self._newest}"
                self._tell(Severity.WARNING, at, text)
            self._next += 1

    def finish(self, *, complete: bool) -> None:
        """The log is at its end; `complete`: the index must hold its newest time, as that of a sealed segment does."""
        if self._next < len(self._entries):
            offset = self._base_offset + self._entries[self._next][1]
            self._tell(Severity.ERROR, self._next * TIME_ENTRY_BYTES, f"offset {offset} is not in the log")
        last = self._entries[-1][0] if self._entries else -1
        if complete and last < self._newest:
            self._tell(
                Severity.WARNING,
                len(self._entries) * TIME_ENTRY_BYTES,
                f"it ends at time {last}, the newest record has {self._newest}: retention goes by the former",
            )


class TransactionCheck:
    """Every aborted transaction is in the index of the segment that holds its marker, and nothing else is.

    One for a log: a transaction may span segments. Compaction may have taken records and markers, so only what is
    there is held against the index.
    """

    def __init__(self, findings: Findings) -> None:
        """Nothing seen of the log yet."""
        self._findings = findings
        self._running: dict[int, int] = {}
        self._path = Path()
        self._waiting: list[AbortedTransaction] = []

    def begin(self, path: Path, base_offset: int) -> None:
        """The next segment, with the path of its index."""
        self._path = path
        index = TransactionIndex.decode(read_whole(path), base_offset)
        if index is None:
            self._error(None, "its size, a version, an offset or the order of its entries is wrong", REMAKE_INDEX)
        self._waiting = [] if index is None else list(reversed(index.entries()))

    def _error(self, position: int | None, text: str, advice: str = REPLACE_REPLICA) -> None:
        self._findings.add(Severity.ERROR, "transaction index", self._path, text, position=position, advice=advice)

    def see(self, entry: Entry) -> None:
        """Take in the next entry of the log."""
        header = entry.header
        indexed = self._indexed_up_to(header.base_offset, header.last_offset)
        if header.is_control:
            self._end(entry, indexed)
        elif header.is_transactional:
            self._running.setdefault(header.producer_id, header.base_offset)
        if indexed is not None and not header.is_control:
            self._error(None, f"{indexed} ends at offset {indexed.last_offset}, where no marker is")

    def _indexed_up_to(self, base_offset: int, last_offset: int) -> AbortedTransaction | None:
        found = None
        while self._waiting and self._waiting[-1].last_offset <= last_offset:
            entry = self._waiting.pop()
            # An index may still tell of a marker that compaction took.
            found = entry if entry.last_offset >= base_offset else found
        return found

    def _end(self, entry: Entry, indexed: AbortedTransaction | None) -> None:
        header = entry.header
        kind = control_type(entry)
        begin = self._running.pop(header.producer_id, None)
        if kind is not ControlType.ABORT:
            if indexed is not None:
                self._error(None, f"offset {header.last_offset} ends a committed transaction, yet {indexed}")
        elif indexed is None:
            if begin is not None:
                text = (
                    f"the transaction of producer {header.producer_id} from {begin} to {header.last_offset} is missing"
                )
                self._error(None, f"{text}: consumers that read committed records would get it", REMAKE_INDEX)
        elif indexed.producer_id != header.producer_id or (begin is not None and indexed.first_offset > begin):
            self._error(None, f"{indexed} contradicts the marker of producer {header.producer_id}, begun at {begin}")

    def finish(self, next_offset: int) -> None:
        """The segment is at its end, at `next_offset`."""
        for left in self._waiting:
            if left.last_offset >= next_offset:
                self._error(None, f"{left} ends behind the segment's last batch")


def control_type(entry: Entry) -> ControlType | None:
    """How a control batch ends its transaction; None when it has no record any more, or one that does not decode."""
    try:
        for record in iterate_records(entry.content, 0, entry.header, limit=_CONTROL_LIMIT_BYTES):
            return read_control_type(record.key)
    except ProtocolError:
        return None
    return None
