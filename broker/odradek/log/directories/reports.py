"""Reports on the log directories of a broker, for DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.base.types import TopicPartition
from odradek.log.directories.log_table import LogTable
from odradek.log.directories.space import DiskSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """One log directory for DescribeLogDirs. `failure` is the reason if it is offline. -1 bytes: unknown."""

    path: str
    failure: str | None
    total_bytes: int
    free_bytes: int
    sizes: Mapping[TopicPartition, int]
    future_sizes: Mapping[TopicPartition, int]
    """Sizes in bytes of the logs that are being moved to this directory."""


def directory_reports(table: LogTable, space: DiskSpace) -> list[DirectoryReport]:
    """Return a report for each directory: the sizes of its logs, and free space as of the last measurement."""
    reports = [
        DirectoryReport(path=path, failure=reason, total_bytes=-1, free_bytes=-1, sizes={}, future_sizes={})
        for path, reason in table.failed.items()
    ]
    sizes: dict[str, tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = {
        path: ({}, {}) for path in table.directories
    }
    for place, logs in enumerate((table.current, table.future)):
        for log in logs.values():
            home = table.home(log)
            if home is not None:
                sizes[home.path][place][log.topic_partition] = log.size_bytes
    for path, (current, future) in sizes.items():
        room = space.of(path)
        reports.append(
            DirectoryReport(
                path=path,
                failure=None,
                total_bytes=room.total_bytes,
                free_bytes=room.free_bytes,
                sizes=current,
                future_sizes=future,
            )
        )
    return reports
