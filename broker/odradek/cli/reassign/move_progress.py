"""The progress of reassignments, as values, tables and JSON. Pure.

`reassign list` and `reassign watch` pass the reassignments in progress and the sizes of replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from odradek.base.types import TopicPartition
from odradek.cli.tables import Column, Table, size_text
from odradek.client.models import LogDirDescription, PartitionReassignment


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveProgress:
    """A partition whose replicas move."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    """All replicas for the time being: the old and the new ones."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copied_bytes: int
    """Size of the new replicas now."""
    total_bytes: int
    """Size of the new replicas at the end."""


def progress_of(
    reassignments: Mapping[TopicPartition, PartitionReassignment],
    leaders: Mapping[TopicPartition, int],
    directories: Mapping[int, Iterable[LogDirDescription]],
) -> list[MoveProgress]:
    """Return the progress of each partition. A new replica has as many bytes as the leader at the end.

    Without the size of the leader, that of the largest replica counts.
    """
    sizes: dict[tuple[int, TopicPartition], int] = {}
    for broker, described in directories.items():
        for directory in described:
            for partition, replica in directory.replicas.items():
                if not replica.future:
                    sizes[broker, partition] = replica.size_bytes
    found = []
    for name, each in sorted(reassignments.items()):
        largest = max((sizes.get((broker, name), 0) for broker in each.replicas), default=0)
        whole = sizes.get((leaders.get(name, -1), name), largest)
        copied = sum(min(whole, sizes.get((broker, name), 0)) for broker in each.adding)
        found.append(
            MoveProgress(
                partition=name,
                replicas=each.replicas,
                adding=each.adding,
                removing=each.removing,
                copied_bytes=copied,
                total_bytes=whole * len(each.adding),
            )
        )
    return found


def move_value(move: MoveProgress) -> dict[str, object]:
    """Return the progress of a partition for JSON."""
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "replicas": list(move.replicas),
        "adding": list(move.adding),
        "removing": list(move.removing),
        "copiedBytes": move.copied_bytes,
        "totalBytes": move.total_bytes,
    }


def move_table(moves: Iterable[MoveProgress]) -> Table:
    """Return a table with a row for each partition whose replicas move."""
    rows = tuple(
        (
            move.partition.topic,
            str(move.partition.partition),
            _ids(move.replicas),
            _ids(move.adding),
            _ids(move.removing),
            size_text(move.copied_bytes),
            size_text(move.total_bytes),
        )
        for move in moves
    )
    columns = (
        Column("TOPIC"),
        Column("PARTITION", True),
        Column("REPLICAS"),
        Column("ADDING"),
        Column("REMOVING"),
        Column("COPIED", True),
        Column("TOTAL", True),
    )
    return Table("", columns, rows, empty="No reassignment is in progress.")


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "-"


@dataclass(slots=True)
class WatchedMoves:
    """The progress of all reassignments since a watch began. Those that are no longer in progress are complete."""

    totals: dict[TopicPartition, int] = field(default_factory=dict)
    """Bytes to copy for each partition that was in progress at some time."""
    moving: dict[TopicPartition, int] = field(default_factory=dict)
    """Bytes that are copied, of the partitions in progress."""

    def update(self, moves: Sequence[MoveProgress]) -> None:
        """Take the progress now."""
        self.moving = {move.partition: move.copied_bytes for move in moves}
        self.totals |= {move.partition: move.total_bytes for move in moves}

    @property
    def is_done(self) -> bool:
        """Whether nothing is in progress."""
        return not self.moving

    @property
    def done(self) -> int:
        """Number of partitions whose reassignment has ended."""
        return len(self.totals) - len(self.moving)

    @property
    def copied_bytes(self) -> int:
        """Bytes that are copied."""
        return sum(self.moving.get(name, total) for name, total in self.totals.items())

    @property
    def total_bytes(self) -> int:
        """Bytes to copy altogether."""
        return sum(self.totals.values())

    def text(self) -> str:
        """Return one line for people."""
        copied, total = size_text(self.copied_bytes), size_text(self.total_bytes)
        return f"{self.done} of {len(self.totals)} partitions moved, {copied} of {total} copied"

    def value(self) -> dict[str, object]:
        """Return the progress for JSON."""
        return {
            "partitions": len(self.totals),
            "done": self.done,
            "copiedBytes": self.copied_bytes,
            "totalBytes": self.total_bytes,
        }


def plan_table(
    current: Mapping[TopicPartition, Sequence[int]],
    targets: Mapping[TopicPartition, Sequence[int]],
    sizes: Mapping[TopicPartition, int],
) -> Table:
    """Return a table with a row for each partition of a plan. `sizes` has the bytes of one replica."""
    rows, copies, total = [], 0, 0
    for name, target in sorted(targets.items()):
        added = [broker for broker in target if broker not in current[name]]
        copies, total = copies + len(added), total + len(added) * sizes.get(name, 0)
        rows.append(
            (
                name.topic,
                str(name.partition),
                _ids(current[name]),
                _ids(target),
                _ids(added),
                _ids(broker for broker in current[name] if broker not in target),
                size_text(len(added) * sizes[name] if name in sizes else None if added else 0),
            )
        )
    columns = (
        Column("TOPIC"),
        Column("PARTITION", True),
        Column("NOW"),
        Column("THEN"),
        Column("ADDED"),
        Column("REMOVED"),
        Column("COPY", True),
    )
    noun = "partition changes" if len(rows) == 1 else "partitions change"
    copied = "1 replica is copied" if copies == 1 else f"{copies} replicas are copied"
    title = f"{len(rows)} {noun}, {copied} ({size_text(total)})" if rows else ""
    return Table(title, columns, tuple(rows), empty="No replica has to move.")
