"""Checks one partition's directory: every batch, every index, every small file.

`verify` runs `check_partition` for each partition, possibly in a worker process. Nothing is written. Invariant:
findings describe the content of the files, not changes that a running broker made while they were read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from odradek.base.errors import CorruptMessageError, ProtocolError
from odradek.base.types import NO_EPOCH
from odradek.cli.logs.files import (
    FILES,
    LEFTOVER_SUFFIXES,
    UNPACKED_LIMIT_BYTES,
    Entry,
    Walk,
    read_whole,
)
from odradek.cli.logs.findings import (
    IF_UNEXPECTED,
    NEXT_START,
    REMAKE_INDEX,
    REPLACE_REPLICA,
    Finding,
    Findings,
    Severity,
)
from odradek.cli.logs.index_checks import OffsetIndexCheck, TimeIndexCheck, TransactionCheck
from odradek.log import checkpoints
from odradek.log.checkpoints import MalformedCheckpointError
from odradek.log.epoch_cache import EpochCache
from odradek.log.producers.producer_snapshot import INT32_MAX
from odradek.log.producers.producer_state import ProducerState
from odradek.log.segments.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from odradek.records.formats import check_entry, iterate_records

_KNOWN_FILES: Final = (checkpoints.LEADER_EPOCH_FILE, checkpoints.PARTITION_METADATA_FILE)
_LEFTOVERS: Final = {
    DELETED_SUFFIX: (Severity.NOTE, "a file that was about to be deleted"),
    CLEANED_SUFFIX: (Severity.WARNING, "compaction did not finish this segment"),
    SWAP_SUFFIX: (Severity.WARNING, "a compacted segment has not replaced the old one yet"),
    ".tmp": (Severity.NOTE, "a small file was not written completely"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """The partition to check, and how thoroughly."""

    path: str
    clean: bool
    """Whether the broker was shut down cleanly. If so, its next start should have nothing to repair."""
    deep: bool = False
    """Decompress and decode every record."""


@dataclass(slots=True, kw_only=True)
class PartitionReport:
    """The size of a partition's log, and the findings in its directory."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    segments: int = 0
    size_bytes: int = 0
    batches: int = 0
    start_offset: int = 0
    """Base offset of the first segment."""
    end_offset: int = 0


def check_partition(request: CheckRequest) -> PartitionReport:
    """Check everything in a partition's directory. Raises `StorageError` if it cannot be read."""
    return _PartitionCheck(request).run()


class _PartitionCheck:
    """Checks one directory."""

    def __init__(self, request: CheckRequest) -> None:
        self._request = request
        self._directory = Path(request.path)
        self._names = FILES.list(request.path)
        self._findings = Findings()
        self._report = PartitionReport(path=request.path)
        self._transactions = TransactionCheck(self._findings)
        self._epochs = self._read_epochs()
        self._epoch = -1
        self._reported_epochs: set[int] = set()
        self._next_offset = 0
        self._gaps = 0

    def run(self) -> PartitionReport:
        bases = sorted(int(name.split(".")[0]) for name in self._names if _is_segment_file(name, LOG_SUFFIX))
        self._check_names(set(bases))
        if bases:
            self._next_offset = self._report.start_offset = bases[0]
        for place, base_offset in enumerate(bases):
            successor = bases[place + 1] if place + 1 < len(bases) else None
            self._check_segment(base_offset, successor)
        self._report.segments = len(bases)
        self._report.end_offset = self._next_offset
        self._finish(set(bases))
        self._report.findings = self._findings.all()
        return self._report

    def _add(self, severity: Severity, check: str, name: str, text: str, advice: str = NEXT_START) -> None:
        self._findings.add(severity, check, self._directory / name, text, advice=advice)

    # Segments

    def _check_segment(self, base_offset: int, successor: int | None) -> None:
        path = self._directory / f"{base_offset:020d}{LOG_SUFFIX}"
        active = successor is None
        if base_offset > self._next_offset:
            self._gaps += 1
        offsets = OffsetIndexCheck(path.with_suffix(INDEX_SUFFIX), base_offset, self._findings, active=active)
        times = TimeIndexCheck(path.with_suffix(TIME_INDEX_SUFFIX), base_offset, self._findings, active=active)
        self._transactions.begin(path.with_suffix(TRANSACTION_INDEX_SUFFIX), base_offset)
        self._next_offset = max(self._next_offset, base_offset)
        walk = Walk(path)
        for entry in walk:
            self._check_entry(path, entry, base_offset, successor)
            offsets.see(entry)
            times.see(entry)
            self._transactions.see(entry)
        if walk.problem is not None:
            self._check_end(path, walk, active=active)
        self._report.size_bytes += walk.size
        has_index = self._has_indexes(base_offset, active=active)
        offsets.finish()
        times.finish(complete=has_index and (self._request.clean or not active))
        self._transactions.finish(self._next_offset)

    def _check_entry(self, path: Path, entry: Entry, base_offset: int, successor: int | None) -> None:
        position, header = entry.position, entry.header
        self._report.batches += 1
        try:
            check_entry(entry.content, 0, header)
            if self._request.deep:
                self._check_records(entry)
        except ProtocolError as error:
            self._findings.add(Severity.ERROR, "batch", path, str(error), position=position, advice=REPLACE_REPLICA)
        problem = None
        if header.base_offset < self._next_offset:
            problem = f"offset {header.base_offset} is below the expected {self._next_offset}"
        elif successor is not None and header.last_offset >= successor:
            problem = f"offset {header.last_offset} belongs to the next segment, which begins at {successor}"
        elif header.last_offset - base_offset > INT32_MAX:
            problem = f"offset {header.last_offset} is too far from the segment's base for the indexes"
        if problem is not None:
            self._findings.add(Severity.ERROR, "offsets", path, problem, position=position, advice=REPLACE_REPLICA)
        if header.magic == 2 and header.base_offset > self._next_offset:
            self._gaps += 1
        self._next_offset = max(self._next_offset, header.next_offset)
        self._check_epoch(path, entry)

    def _check_records(self, entry: Entry) -> None:
        """Decode every record. The header must have their newest timestamp, and their offsets must increase."""
        header = entry.header
        previous, newest = -1, -1
        for record in iterate_records(entry.content, 0, header, limit=UNPACKED_LIMIT_BYTES):
            if record.offset <= previous:
                raise CorruptMessageError(f"record {record.offset} comes after {previous}")
            previous, newest = record.offset, max(newest, record.timestamp)
        if previous >= 0 and newest != header.max_timestamp and header.magic > 0:
            raise CorruptMessageError(
                f"the batch at offset {header.base_offset} has max timestamp {header.max_timestamp}, but its newest "
                f"record has {newest}"
            )
        if previous > header.last_offset:
            raise CorruptMessageError(f"record {previous} is after the end of its batch, {header.last_offset}")

    def _check_end(self, path: Path, walk: Walk, *, active: bool) -> None:
        text = f"{walk.size - walk.end} bytes are not a batch: {walk.problem}"
        if active and not self._request.clean:
            advice = "None after a crash: the broker truncates them at its next start."
            self._findings.add(Severity.WARNING, "tail", path, text, position=walk.end, advice=advice)
        else:
            self._findings.add(Severity.ERROR, "tail", path, text, position=walk.end, advice=REPLACE_REPLICA)

    def _has_indexes(self, base_offset: int, *, active: bool) -> bool:
        """Check that both indexes exist. Only for a sealed segment: those of the active one may not be written yet."""
        missing = [
            suffix for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX) if f"{base_offset:020d}{suffix}" not in self._names
        ]
        if missing and (not active or self._request.clean):
            for suffix in missing:
                name = f"{base_offset:020d}{suffix}"
                self._add(
                    Severity.WARNING, "index", name, "it is missing: the broker scans the segment at its next start"
                )
        return not missing

    # Leader epochs

    def _read_epochs(self) -> EpochCache | None:
        path = self._directory / checkpoints.LEADER_EPOCH_FILE
        if checkpoints.LEADER_EPOCH_FILE not in self._names:
            return None
        try:
            entries = checkpoints.decode_epochs(read_whole(path), str(path))
        except MalformedCheckpointError as error:
            self._add(Severity.ERROR, "leader epochs", path.name, str(error), REMAKE_INDEX)
            return None
        cache = EpochCache(entries)
        if cache.entries() != entries:
            self._add(Severity.ERROR, "leader epochs", path.name, "epochs or offsets do not increase", REMAKE_INDEX)
        return cache

    def _check_epoch(self, path: Path, entry: Entry) -> None:
        header = entry.header
        if header.leader_epoch == NO_EPOCH:
            return
        if header.leader_epoch < self._epoch:
            text = f"leader epoch {header.leader_epoch} comes after {self._epoch}"
            self._findings.add(
                Severity.ERROR, "leader epochs", path, text, position=entry.position, advice=REPLACE_REPLICA
            )
        self._epoch = max(self._epoch, header.leader_epoch)
        if self._epochs is None or header.leader_epoch in self._reported_epochs:
            return
        known = self._epochs.epoch_of(header.base_offset)
        if known not in (-1, header.leader_epoch):
            self._reported_epochs.add(header.leader_epoch)
            severity = Severity.ERROR if self._request.clean else Severity.WARNING
            text = f"offset {header.base_offset} has leader epoch {header.leader_epoch}, but the checkpoint has {known}"
            self._findings.add(severity, "leader epochs", path, text, position=entry.position)

    # Names, snapshots, topic id

    def _check_names(self, bases: set[int]) -> None:
        for name in self._names:
            leftover = next((suffix for suffix in LEFTOVER_SUFFIXES if name.endswith(suffix)), None)
            if leftover is not None:
                severity, text = _LEFTOVERS[leftover]
                self._add(severity, "leftover", name, text)
            elif any(_is_segment_file(name, suffix) for suffix in SEGMENT_SUFFIXES):
                if int(name.split(".")[0]) not in bases:
                    self._add(Severity.WARNING, "leftover", name, "an index without its .log file")
            elif not _is_segment_file(name, SNAPSHOT_SUFFIX) and name not in _KNOWN_FILES:
                self._add(Severity.NOTE, "leftover", name, "not a file of a log", IF_UNEXPECTED)
        if not bases:
            self._add(Severity.WARNING, "segments", "", "there is no segment", IF_UNEXPECTED)

    def _finish(self, bases: set[int]) -> None:
        if self._gaps:
            text = f"there are {self._gaps} gaps between offsets: compaction leaves them, or records were lost"
            self._add(Severity.NOTE, "offsets", "", text, IF_UNEXPECTED)
        if self._epochs is None:
            if self._epoch >= 0 and checkpoints.LEADER_EPOCH_FILE not in self._names:
                severity = Severity.WARNING if self._request.clean else Severity.NOTE
                self._add(severity, "leader epochs", checkpoints.LEADER_EPOCH_FILE, "it is missing")
        elif any(start > self._next_offset for _, start in self._epochs.entries()):
            text = f"an epoch begins above the log end {self._next_offset}"
            self._add(Severity.WARNING, "leader epochs", checkpoints.LEADER_EPOCH_FILE, text)
        self._check_snapshots(bases | {self._next_offset})
        self._check_topic_id()

    def _check_snapshots(self, expected: set[int]) -> None:
        for name in self._names:
            if not _is_segment_file(name, SNAPSHOT_SUFFIX):
                continue
            offset = int(name.split(".")[0])
            try:
                ProducerState.decode(read_whole(self._directory / name), offset)
            except CorruptMessageError as error:
                advice = "Stop the broker and remove it: the broker then uses an older one and scans the log after it."
                self._add(Severity.ERROR, "producer snapshot", name, str(error), advice)
            if offset > self._next_offset:
                text = f"its offset {offset} is above the log end {self._next_offset}"
                self._add(Severity.WARNING, "producer snapshot", name, text)
            elif offset not in expected:
                self._add(Severity.NOTE, "producer snapshot", name, "no segment begins there")

    def _check_topic_id(self) -> None:
        name = checkpoints.PARTITION_METADATA_FILE
        if name not in self._names:
            return
        try:
            checkpoints.decode_partition_metadata(read_whole(self._directory / name), name)
        except MalformedCheckpointError as error:
            severity = Severity.ERROR if self._request.clean else Severity.WARNING
            self._add(
                severity, "topic id", name, str(error), "Stop the broker and remove it: the broker creates it again."
            )


def _is_segment_file(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and name.removesuffix(suffix).isdecimal()
