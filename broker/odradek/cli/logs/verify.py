"""`odradek log verify`: checks log directories, several partitions at a time.

`cli/logs/command` shows the `VerifyReport` as table or JSON. Nothing is written, not even the lock file. Partitions are
checked in worker processes if there is enough to read. Invariant: the order and content of findings do not depend on
which process ends first.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from odradek.base.errors import StorageError
from odradek.base.types import TopicPartition
from odradek.cli.logs.checks import CheckRequest, PartitionReport, check_partition
from odradek.cli.logs.files import (
    FILES,
    OFFSET_CHECKPOINTS,
    SMALL_FILES,
    is_partition_directory,
    lock_problem,
    partitions_in,
    read_whole,
)
from odradek.cli.logs.findings import IF_UNEXPECTED, NEXT_START, Finding, Findings, Severity
from odradek.cli.tables import Column, Table
from odradek.log import checkpoints
from odradek.log.checkpoints import MalformedCheckpointError
from odradek.log.directories.directory import DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX

PARALLEL_FROM_BYTES: Final = 64 << 20
"""With less to read, starting processes takes longer than reading."""

_CLEANER_FILE: Final = OFFSET_CHECKPOINTS[-1]
_ABOVE_THE_END: Final = {
    checkpoints.RECOVERY_POINT_FILE: (
        Severity.WARNING,
        "the log was truncated since then; the broker scans the records that it appends from now on",
    ),
    checkpoints.HIGH_WATERMARK_FILE: (Severity.ERROR, "committed records are missing"),
    checkpoints.LOG_START_FILE: (Severity.ERROR, "records at the start of the log are missing"),
    _CLEANER_FILE: (Severity.WARNING, "compaction starts again at the beginning of the log"),
}
_DIRECTORIES: Final = {
    DELETE_SUFFIX: (Severity.NOTE, "the log of a deleted topic, not yet removed"),
    FUTURE_SUFFIX: (Severity.NOTE, "a replica being moved to another directory"),
    STRAY_SUFFIX: (Severity.WARNING, "a replica that is not assigned to this broker"),
}


@dataclass(slots=True, kw_only=True)
class VerifyReport:
    """All checked partitions and findings."""

    partitions: list[PartitionReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def summary(self) -> str:
        """Return a one-line summary."""
        segments = sum(report.segments for report in self.partitions)
        batches = sum(report.batches for report in self.partitions)
        size = sum(report.size_bytes for report in self.partitions)
        return (
            f"{len(self.partitions)} partitions, {segments} segments, {batches} batches, {size:,} bytes: "
            f"{self.count(Severity.ERROR)} errors, {self.count(Severity.WARNING)} warnings, "
            f"{self.count(Severity.NOTE)} notes."
        )

    def table(self, *, notes: bool) -> Table:
        """Return the findings, errors first; notes only on request."""
        shown = [finding for finding in self.findings if notes or finding.severity > Severity.NOTE]
        shown.sort(key=lambda finding: -finding.severity)
        rows = tuple(
            (
                finding.severity.name.lower(),
                finding.check,
                finding.path,
                "" if finding.position is None else str(finding.position),
                finding.text,
                finding.advice,
            )
            for finding in shown
        )
        names = ("SEVERITY", "CHECK", "FILE", "POSITION", "WHAT", "WHAT TO DO")
        columns = tuple(Column(name, right=name == "POSITION") for name in names)
        marked = frozenset(place for place, finding in enumerate(shown) if finding.severity is Severity.ERROR)
        return Table("", columns, rows, marked, empty="Nothing is wrong.")

    def plain(self) -> dict[str, object]:
        """The report as JSON."""
        return {
            "partitions": [
                {
                    "path": report.path,
                    "segments": report.segments,
                    "batches": report.batches,
                    "bytes": report.size_bytes,
                    "startOffset": report.start_offset,
                    "endOffset": report.end_offset,
                }
                for report in self.partitions
            ],
            "findings": [
                {
                    "severity": finding.severity.name.lower(),
                    "check": finding.check,
                    "file": finding.path,
                    "position": finding.position,
                    "text": finding.text,
                    "advice": finding.advice,
                }
                for finding in self.findings
            ],
            "errors": self.count(Severity.ERROR),
            "warnings": self.count(Severity.WARNING),
        }


Progress = Callable[[int, int], None]
"""Called with the number of bytes done and in total after each partition."""


def verify(paths: Sequence[Path], *, deep: bool, jobs: int | None, progress: Progress) -> VerifyReport:
    """Check directories of partitions, or directories that contain them. Raises `LogToolError`, `StorageError`.

    `jobs`: maximum number of processes; None for the number of processors, if there is enough to read.
    """
    roots = {path: partitions_in(path) for path in paths}
    requests = [
        CheckRequest(path=str(partition), clean=_was_clean(partition), deep=deep)
        for partitions in roots.values()
        for partition in partitions
    ]
    report = VerifyReport()
    sizes = [_size_of(request.path) for request in requests]
    done = 0
    for size, partition in zip(sizes, _checked(requests, _processes(jobs, sizes)), strict=True):
        report.partitions.append(partition)
        done += size
        progress(done, sum(sizes))
    by_path = {partition.path: partition for partition in report.partitions}
    for path, partitions in roots.items():
        report.findings += _check_root(path, [by_path[str(partition)] for partition in partitions])
    for partition in report.partitions:
        report.findings += partition.findings
    return report


def _was_clean(partition: Path) -> bool:
    return FILES.exists(str(partition.resolve().parent / checkpoints.CLEAN_SHUTDOWN_FILE))


def _size_of(path: str) -> int:
    """Size of a directory's files; files that are deleted meanwhile do not count."""
    total = 0
    for name in FILES.list(path):
        try:
            total += FILES.size(f"{path}/{name}")
        except StorageError as error:
            if not error.missing:
                raise
    return total


def _processes(jobs: int | None, sizes: Sequence[int]) -> int:
    if jobs is None:
        jobs = (os.cpu_count() or 1) if sum(sizes) >= PARALLEL_FROM_BYTES else 1
    return min(jobs, len(sizes))


def _checked(requests: Sequence[CheckRequest], processes: int) -> Iterator[PartitionReport]:
    if processes <= 1:
        yield from map(_check, requests)
        return
    # Not forked: a fork of a program with threads, such as that of a progress bar, can deadlock.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_check, requests)


def _check(request: CheckRequest) -> PartitionReport:
    """Check one partition. If it cannot be read, the others are still checked."""
    try:
        return check_partition(request)
    except StorageError as error:
        finding = Finding(Severity.ERROR, "disk", request.path, None, str(error), "Check the disk and the kernel log.")
        return PartitionReport(path=request.path, findings=[finding])


# A log directory


def _check_root(root: Path, reports: Sequence[PartitionReport]) -> list[Finding]:
    """Check the files of a log directory. For a single partition, only check whether its log directory is in use."""
    findings = Findings()
    alone = is_partition_directory(root)
    directory = root.resolve().parent if alone else root
    used = lock_problem(directory)
    if used is not None:
        advice = "Stop the broker for a reliable result: files may have changed while they were read."
        findings.add(Severity.WARNING, "in use", directory, used, advice=advice)
    if alone:
        return findings.all()
    if used is None and reports and not FILES.exists(str(root / checkpoints.CLEAN_SHUTDOWN_FILE)):
        text = "the broker was not shut down cleanly: it scans the ends of the logs at its next start"
        findings.add(Severity.NOTE, "stop", root, text)
    _check_owner(root, findings)
    for name in OFFSET_CHECKPOINTS:
        _check_offsets(root, name, reports, findings)
    _check_others(root, {Path(report.path).name for report in reports}, findings)
    return findings.all()


def _check_owner(root: Path, findings: Findings) -> None:
    path = root / checkpoints.META_PROPERTIES_FILE
    content = read_whole(path).decode("latin-1")
    properties = {
        key.strip(): value.strip()
        for key, found, value in (line.partition("=") for line in content.splitlines())
        if found
    }
    advice = "Restore it before the next start: without it, a broker with another id can use the directory."
    if not content:
        findings.add(Severity.WARNING, "owner", path, "it is missing or empty", advice=advice)
    elif properties.get("version", "0") != "0":
        text = f"it has version {properties['version']}: only 0 (ZooKeeper mode) is supported"
        findings.add(Severity.ERROR, "owner", path, text, advice="Use the directory of a broker in ZooKeeper mode.")
    elif missing := [key for key in ("broker.id", "cluster.id") if key not in properties]:
        findings.add(Severity.WARNING, "owner", path, f"it has no {' and no '.join(missing)}", advice=advice)


def _check_offsets(root: Path, name: str, reports: Sequence[PartitionReport], findings: Findings) -> None:
    path = root / name
    content = read_whole(path)
    if not content:
        return
    try:
        offsets = checkpoints.decode_offsets(content, str(path))
    except MalformedCheckpointError as error:
        advice = "None after a clean shutdown; otherwise the broker scans more at its next start."
        findings.add(Severity.ERROR, "checkpoint", path, str(error), advice=advice)
        return
    ends = {Path(report.path).name: report.end_offset for report in reports}
    for topic_partition, offset in offsets.items():
        end = ends.get(str(topic_partition))
        if end is None:
            _add_missing_directory(path, topic_partition, findings)
        elif offset > end:
            severity, means = _ABOVE_THE_END[name]
            text = f"{topic_partition} has {offset}, but its log ends at {end}: {means}"
            advice = (
                NEXT_START
                if severity is Severity.WARNING
                else "Compare the log with the other replicas before you start the broker."
            )
            findings.add(severity, "checkpoint", path, text, advice=advice)


def _add_missing_directory(path: Path, topic_partition: TopicPartition, findings: Findings) -> None:
    findings.add(Severity.NOTE, "checkpoint", path, f"{topic_partition} has no directory here")


def _check_others(root: Path, partitions: set[str], findings: Findings) -> None:
    for name in FILES.list(str(root)):
        path = root / name
        if name in partitions or name in SMALL_FILES or name == checkpoints.LOCK_FILE:
            continue
        suffix = next((suffix for suffix in _DIRECTORIES if name.endswith(suffix)), None)
        if path.is_dir() and suffix is not None:
            severity, text = _DIRECTORIES[suffix]
            findings.add(severity, "directory", path, text, advice=IF_UNEXPECTED)
        elif path.is_dir():
            findings.add(
                Severity.NOTE,
                "directory",
                path,
                "not the directory of a partition; brokers ignore it",
                advice=IF_UNEXPECTED,
            )
        else:
            findings.add(Severity.NOTE, "file", path, "not a file that a broker uses", advice=IF_UNEXPECTED)
