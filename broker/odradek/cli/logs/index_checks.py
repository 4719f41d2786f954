"""Checks the three indexes of a segment while its log is read: each entry must match its batch.

`checks` creates one check of each type per segment and passes the entries of the log in order. Invariant: the log is
read once, and the checks need no more memory than the index files.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

from odradek.base.errors import ProtocolError
from odradek.cli.logs.files import Entry, read_whole
from odradek.cli.logs.findings import REMAKE_INDEX, REPLACE_REPLICA, Findings, Severity
from odradek.log.segments.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from odradek.log.segments.transaction_index import AbortedTxn, TransactionIndex
from odradek.records.v2.batch import ControlType
from odradek.records.v2.transactions import read_marker_type

_OFFSET_ENTRY: Final = Struct(">iI")
_TIME_ENTRY: Final = Struct(">qi")


class OffsetIndexCheck:
    """Checks that each entry has the position of a batch and the last offset of that batch or of a later one.

    Both must increase.
    """

    def __init__(self, path: Path, base_offset: int, findings: Findings, *, active: bool) -> None:
        """`active`: the last segment of its log, whose index may have unused space at its end."""
        self._path = path
        self._findings = findings
        self._base_offset = base_offset
        content = read_whole(path)
        if len(content) % OFFSET_ENTRY_BYTES:
            self._error(len(content), "the last entry is incomplete")
        whole = len(content) - len(content) % OFFSET_ENTRY_BYTES
        self._entries = _without_unused(list(_OFFSET_ENTRY.iter_unpack(content[:whole])), active=active)
        self._next = 0
        self._last_offset = base_offset - 1
        self._pending: tuple[int, int] | None = None
        """Offset and position of an entry whose batch follows later."""
        for place, (earlier, later) in enumerate(zip(self._entries, self._entries[1:], strict=False), 1):
            if later[0] <= earlier[0] or later[1] <= earlier[1]:
                self._error(place * OFFSET_ENTRY_BYTES, f"entry {later} does not follow {earlier}")
                del self._entries[place:]
                break

    def _error(self, position: int, text: str) -> None:
        self._findings.add(Severity.ERROR, "offset index", self._path, text, position=position, advice=REMAKE_INDEX)

    def see(self, entry: Entry) -> None:
        """Process the next entry of the log."""
        end = entry.position + entry.header.size
        while self._next < len(self._entries) and self._entries[self._next][1] < end:
            relative, position = self._entries[self._next]
            offset = self._base_offset + relative
            at = self._next * OFFSET_ENTRY_BYTES
            if position != entry.position:
                self._error(at, f"offset {offset} points to {position}, inside the batch at {entry.position}")
            elif offset < entry.header.last_offset:
                self._error(at, f"offset {offset} points to {position}, whose batch ends later")
            else:
                self._pending = (offset, at)
            self._next += 1
        self._last_offset = entry.header.last_offset
        # The offset of an entry is the last one of an append, and an append may consist of several batches.
        if self._pending is not None and self._pending[0] <= self._last_offset:
            offset, at = self._pending
            if offset != self._last_offset:
                self._error(at, f"offset {offset} is not the last offset of a batch")
            self._pending = None

    def finish(self) -> None:
        """Check the remaining entries at the end of the log."""
        for place in range(self._next, len(self._entries)):
            relative, position = self._entries[place]
            offset = self._base_offset + relative
            self._error(place * OFFSET_ENTRY_BYTES, f"offset {offset} points to {position}, after the last batch")
        if self._entries and self._base_offset + self._entries[-1][0] > self._last_offset:
            last = self._base_offset + self._entries[-1][0]
            self._error((len(self._entries) - 1) * OFFSET_ENTRY_BYTES, f"its last offset, {last}, is not in the log")


def _without_unused(entries: list[tuple[int, int]], *, active: bool) -> list[tuple[int, int]]:
    """Return the entries without the zeros that Kafka appends for an active segment."""
    while active and entries and entries[-1] == (0, 0):
        entries.pop()
    return entries


class TimeIndexCheck:
    """Checks that the timestamp of each entry is the largest up to its offset, and that its batch has it.

    Both must increase.
    """

    def __init__(self, path: Path, base_offset: int, findings: Findings, *, active: bool) -> None:
        """`active`: see `OffsetIndexCheck`."""
        self._path = path
        self._findings = findings
        self._base_offset = base_offset
        content = read_whole(path)
        if len(content) % TIME_ENTRY_BYTES:
            self._tell(Severity.ERROR, len(content), "the last entry is incomplete")
        whole = len(content) - len(content) % TIME_ENTRY_BYTES
        self._entries = _without_unused(list(_TIME_ENTRY.iter_unpack(content[:whole])), active=active)
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
        """Process the next entry of the log."""
        header = entry.header
        self._newest = max(self._newest, header.max_timestamp)
        while self._next < len(self._entries):
            timestamp, relative = self._entries[self._next]
            offset = self._base_offset + relative
            if offset > header.last_offset:
                return
            at = self._next * TIME_ENTRY_BYTES
            if timestamp < self._newest:
                text = (
                    f"the entry for offset {offset} has time {timestamp}, but an earlier record has time {self._newest}"
                )
                self._tell(Severity.ERROR, at, text)
            elif timestamp > self._newest:
                text = f"no record up to offset {offset} has time {timestamp}; the newest has {self._newest}"
                self._tell(Severity.WARNING, at, text)
            self._next += 1

    def finish(self, *, complete: bool) -> None:
        """Check the remaining entries at the end of the log.

        With `complete`, which is for sealed segments, the index must have the newest timestamp.
        """
        if self._next < len(self._entries):
            offset = self._base_offset + self._entries[self._next][1]
            self._tell(Severity.ERROR, self._next * TIME_ENTRY_BYTES, f"offset {offset} is not in the log")
        last = self._entries[-1][0] if self._entries else -1
        if complete and last < self._newest:
            self._tell(
                Severity.WARNING,
                len(self._entries) * TIME_ENTRY_BYTES,
                f"its last entry has time {last}, which retention uses, but the newest record has {self._newest}",
            )


class TransactionCheck:
    """Checks that the transaction index of each segment has the transactions with an abort marker in it, and no others.

    There is one check per log, because a transaction can span segments. Compaction may have removed records and
    markers, so only those that exist are compared with the index.
    """

    def __init__(self, findings: Findings) -> None:
        """Create a check that has read nothing."""
        self._findings = findings
        self._running: dict[int, int] = {}
        self._path = Path()
        self._waiting: list[AbortedTxn] = []

    def begin(self, path: Path, base_offset: int) -> None:
        """Begin the next segment, with the path of its index."""
        self._path = path
        index = TransactionIndex.decode(read_whole(path), base_offset)
        if index is None:
            self._error(None, "its size, a version, an offset or the order of its entries is wrong", REMAKE_INDEX)
        self._waiting = [] if index is None else list(reversed(index.entries()))

    def _error(self, position: int | None, text: str, advice: str = REPLACE_REPLICA) -> None:
        self._findings.add(Severity.ERROR, "transaction index", self._path, text, position=position, advice=advice)

    def see(self, entry: Entry) -> None:
        """Process the next entry of the log."""
        header = entry.header
        indexed = self._indexed_up_to(header.base_offset, header.last_offset)
        if header.is_control:
            self._end(entry, indexed)
        elif header.is_transactional:
            self._running.setdefault(header.producer_id, header.base_offset)
        if indexed is not None and not header.is_control:
            self._error(None, f"{indexed} ends at offset {indexed.last_offset}, which is not a marker")

    def _indexed_up_to(self, base_offset: int, last_offset: int) -> AbortedTxn | None:
        found = None
        while self._waiting and self._waiting[-1].last_offset <= last_offset:
            entry = self._waiting.pop()
            # The index may have an entry for a marker that compaction removed.
            found = entry if entry.last_offset >= base_offset else found
        return found

    def _end(self, entry: Entry, indexed: AbortedTxn | None) -> None:
        header = entry.header
        kind = control_type(entry)
        begin = self._running.pop(header.producer_id, None)
        if kind is not ControlType.ABORT:
            if indexed is not None:
                self._error(
                    None,
                    f"offset {header.last_offset} is a commit marker, but the index has {indexed}",
                )
        elif indexed is None:
            if begin is not None:
                text = (
                    f"the transaction of producer {header.producer_id} from {begin} to {header.last_offset} is missing"
                )
                self._error(None, f"{text} in the index: read_committed consumers would get its records", REMAKE_INDEX)
        elif indexed.producer_id != header.producer_id or (begin is not None and indexed.first_offset > begin):
            marker = f"the marker of producer {header.producer_id}, whose transaction begins at {begin}"
            self._error(None, f"{indexed} does not match {marker}")

    def finish(self, next_offset: int) -> None:
        """Check the remaining entries at the end of the segment. `next_offset` is the offset after its last record."""
        for left in self._waiting:
            if left.last_offset >= next_offset:
                self._error(None, f"{left} ends after the segment's last batch")


def control_type(entry: Entry) -> ControlType | None:
    """Return the type of a transaction marker; None if the control batch has no record that can be decoded."""
    try:
        return read_marker_type(entry.content, 0, entry.header)
    except ProtocolError:
        return None
