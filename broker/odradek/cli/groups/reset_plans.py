"""What `odradek group reset` will change: scopes, durations, the CSV format of Kafka's tool, limits of the log. Pure.

The CSV format is that of kafka-consumer-groups: no heading; lines of topic, partition and offset for one group, or of
group, topic, partition and offset for several.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import click

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.cli.tables import Column, Table

Scope = Mapping[str, tuple[int, ...]]
"""Partitions by topic; empty for all partitions of the topic."""

_WITHOUT_GROUP: Final = 3
_WITH_GROUP: Final = 4
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?P<time>T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d+)?)S)?)?",
    re.IGNORECASE,
)


class Move(NamedTuple):
    """The change of one committed offset."""

    group: str
    partition: TopicPartition
    old: int | None
    """None if nothing is committed."""
    new: int


class LogRange(NamedTuple):
    """The first offset of a log, and the offset after its last record that consumers may read."""

    start: int
    end: int


class ClampedOffsets(NamedTuple):
    """Offsets in the log, and a warning for each that was moved."""

    offsets: dict[TopicPartition, int]
    warnings: list[str]


def parse_scope(values: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Parse arguments of the form `topic` or `topic:0,1`, as Kafka's tool does. Raises `click.BadParameter`."""
    found: dict[str, tuple[int, ...]] = {}
    for value in values:
        topic, separator, text = value.partition(":")
        numbers = text.split(",") if separator else []
        if not topic or not all(number.strip().isdecimal() for number in numbers):
            raise click.BadParameter(f"{value!r} is not of the form TOPIC or TOPIC:PARTITION,…", param_hint="'--topic'")
        partitions = tuple(int(number) for number in numbers)
        if topic in found:
            # A topic without partitions stands for all.
            partitions = () if not partitions or not found[topic] else found[topic] + partitions
        found[topic] = tuple(dict.fromkeys(partitions))
    return found


def in_scope(scope: Scope, committed: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions of a scope; a topic without partitions stands for those with a committed offset."""
    known = list(committed)
    named = [TopicPartition(topic, number) for topic, numbers in scope.items() for number in numbers]
    return sorted({*named, *(partition for partition in known if scope.get(partition.topic) == ())})


def duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration of days, hours, minutes and seconds, such as P1DT2H. Raises `ValueError`."""
    match = _DURATION.fullmatch(text)
    if match is None or text.upper().endswith(("P", "T")):
        raise ValueError(f"{text!r} is not a duration such as P7D or PT1H30M")
    days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
    seconds = float((match["seconds"] or "0").replace(",", "."))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + round(seconds * 1000)


def clamp(group: str, wanted: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LogRange]) -> ClampedOffsets:
    """Move offsets outside the log to its start or end, with a warning for each."""
    offsets, warnings = {}, []
    for partition, offset in wanted.items():
        start, end = logs[partition]
        offsets[partition] = min(max(offset, start), end)
        if offset > end:
            warnings.append(f"Offset {offset} of {partition} is after the end of the log: group {group} gets {end}.")
        elif offset < start:
            warnings.append(
                f"Offset {offset} of {partition} is before the start of the log: group {group} gets {start}."
            )
    return ClampedOffsets(offsets, warnings)


# The CSV format


def write_csv(moves: Sequence[Move], *, with_group: bool) -> str:
    """Return the new offsets as Kafka's tool exports them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, (topic, number), _, offset in moves:
        writer.writerow(([group] if with_group else []) + [topic, str(number), str(offset)])
    return text.getvalue()


def read_csv(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets by group. Lines of other groups are left out.

    Raises `ConfigError` for an invalid line, for lines without group if there are several groups, and for a group
    without lines.
    """
    found: dict[str, dict[TopicPartition, int]] = {group: {} for group in groups}
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) == _WITHOUT_GROUP and len(groups) > 1:
            raise ConfigError(f"line {number} of the file has no group, but {len(groups)} groups are to be reset")
        group = cells[0] if len(cells) == _WITH_GROUP else groups[0]
        offsets = found.get(group, {})
        if len(cells) not in (_WITHOUT_GROUP, _WITH_GROUP) or not all(cell.isdecimal() for cell in cells[-2:]):
            raise ConfigError(
                f"line {number} of the file is not of the form TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET"
            )
        offsets[TopicPartition(cells[-3], int(cells[-2]))] = int(cells[-1])
    for group, offsets in found.items():
        if not offsets:
            raise ConfigError(f"the file has no offsets of group {group}")
    return found


# Output


def moves_table(moves: Sequence[Move], *, executed: bool) -> Table:
    """Return a table of old and new offsets. Offsets that change are highlighted."""
    columns = (
        Column("GROUP"),
        Column("TOPIC"),
        Column("PARTITION", True),
        Column("OLD OFFSET", True),
        Column("NEW OFFSET", True),
        Column("CHANGE", True),
    )
    rows = tuple(
        (
            move.group,
            move.partition.topic,
            str(move.partition.partition),
            "-" if move.old is None else str(move.old),
            str(move.new),
            "-" if move.old is None else f"{move.new - move.old:+d}" if move.new != move.old else "0",
        )
        for move in moves
    )
    marked = frozenset(index for index, move in enumerate(moves) if move.new != move.old)
    empty = "No offsets were reset." if executed else "There are no offsets to reset."
    return Table("", columns, rows, frozenset() if executed else marked, empty=empty)


def moves_value(moves: Sequence[Move], *, executed: bool) -> dict[str, object]:
    """Return the old and new offsets for JSON."""
    return {
        "executed": executed,
        "offsets": [
            {
                "group": move.group,
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "old_offset": move.old,
                "new_offset": move.new,
            }
            for move in moves
        ],
    }
