"""Offsets in Spark's format, and all decisions about ranges of offsets. Pure functions.

`reader` and `stream` use it to compute the ranges to read from stored offsets, the state of the cluster and the limits
of a query. Invariants: ranges are never empty, never overlap, and together are exactly the requested ones; equal
offsets have equal text, because Spark compares offsets as text.

The rules (proportional limits, splitting, what counts as data loss) are those of Spark's own source for Kafka.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.base.errors import ConfigError, OdradekError
from odradek.base.types import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
"""Special offsets that an option may have instead of a number."""

PartitionOffsets = Mapping[TopicPartition, int]
"""The next offset to read, by partition."""
SparkOffset = dict[str, dict[str, int]]
"""The same in Spark's format: {"topic": {"0": 23}}."""


class DataLossError(OdradekError):
    """Records that a query has to read were deleted. The message begins with the subclass of `KAFKA_DATA_LOSS`."""

    def __str__(self) -> str:
        """Return the error class of Spark's own source for Kafka, and the message."""
        return f"[KAFKA_DATA_LOSS] {super().__str__()}"


class PlannedOffsetsError(OdradekError):
    """The offsets of a plan contradict each other or the cluster. The message begins with the error class that Spark's
    own source for Kafka has for it."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of a partition from `start` up to, but not including, `end`.

    In a batch query, `start` may be `EARLIEST` and `end` may be `LATEST` until the task starts.
    """

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def is_resolved(self) -> bool:
        """Whether both ends are offsets."""
        return self.start >= 0 and self.end >= 0

    @property
    def size(self) -> int:
        """Number of offsets; compacted and transactional logs have fewer records."""
        return self.end - self.start


def to_spark(offsets: PartitionOffsets) -> SparkOffset:
    """Convert into Spark's format: topics by name, partitions by number."""
    found: SparkOffset = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_spark(offset: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Parse the result of `to_spark`, or offsets of Spark's own source for Kafka."""
    return {
        TopicPartition(topic, int(partition)): int(value)
        for topic, partitions in offset.items()
        for partition, value in partitions.items()
    }


def to_json(offsets: PartitionOffsets) -> str:
    """Format offsets as in options, without spaces."""
    return json.dumps(to_spark(offsets), separators=(",", ":"))


def parse_json(option: str, text: str, *, lowest: int) -> dict[TopicPartition, int]:
    """Parse the numbers by partition in an option. Raises a `ConfigError` with the option if the JSON is invalid."""
    example = '{"topicA":{"0":23,"1":-1}}'
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option}={text!r} is not allowed: it must be JSON like {example} ({error})") from None
    found = {}
    if not isinstance(content, dict):
        raise ConfigError(f"{option}={text!r} is not allowed: it must be JSON like {example}")
    for topic, partitions in content.items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"{option}={text!r} is not allowed: {topic} must have an object of its partitions")
        for partition, value in partitions.items():
            if not (partition.isascii() and partition.isdigit()) or type(value) is not int or value < lowest:
                raise ConfigError(
                    f"{option}={text!r} is not allowed: partition {partition!r} of {topic} must be a number from 0 "
                    f"with a whole number of at least {lowest}, like {example}"
                )
            found[TopicPartition(topic, int(partition))] = value
    return found


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parse partitions like {"topicA":[0,1]}. Raises a `ConfigError` with the option if the JSON is invalid."""
    allowed = f'{option}={text!r} is not allowed: it must be JSON like {{"topicA":[0,1],"topicB":[2]}}'
    try:
        content = json.loads(text)
    except ValueError:
        raise ConfigError(allowed) from None
    if not isinstance(content, dict) or not content:
        raise ConfigError(allowed)
    found: set[TopicPartition] = set()
    for topic, partitions in content.items():
        if not isinstance(partitions, list) or any(type(number) is not int or number < 0 for number in partitions):
            raise ConfigError(allowed)
        found.update(TopicPartition(topic, number) for number in partitions)
    return tuple(sorted(found))


def check_same_partitions(
    option: str, given: Iterable[TopicPartition], assigned: Iterable[TopicPartition], *, timestamps: bool = False
) -> None:
    """Raise `ConfigError` unless the option, of offsets or of timestamps, has exactly the partitions that are read."""
    given, assigned = set(given), set(assigned)
    if given != assigned:
        kind = "TIMESTAMP" if timestamps else "START"
        raise ConfigError(
            f"[KAFKA_{kind}_OFFSET_DOES_NOT_MATCH_ASSIGNED] {option} must name exactly the partitions that are read: "
            f"{_names(assigned - given)} missing, {_names(given - assigned)} not among them"
        )


def ranges_between(start: PartitionOffsets, end: PartitionOffsets) -> list[OffsetRange]:
    """Return the non-empty ranges between two offsets with the same partitions, in order."""
    return [
        OffsetRange(partition, start[partition], end[partition])
        for partition in sorted(end)
        if start[partition] < end[partition]
    ]


def check_not_backwards(start: PartitionOffsets, end: PartitionOffsets) -> None:
    """Raise `PlannedOffsetsError` if the start of a batch query is after its end. An end that is `LATEST` is not
    compared."""
    for partition in sorted(start):
        if start[partition] > end[partition] >= 0:
            raise PlannedOffsetsError(
                f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] the starting offset {start[partition]} of "
                f"{partition} is greater than its ending offset, {end[partition]}: the start is after the last record, "
                "or the topic was deleted and created again"
            )


def check_available_now(target: PartitionOffsets, end: PartitionOffsets, latest: PartitionOffsets) -> None:
    """Raise `PlannedOffsetsError` if a micro-batch of a run with a fixed end cannot be right.

    `target` is the end of the run, `end` that of the micro-batch, and `latest` has the offsets of the cluster now.
    """
    if target.keys() != end.keys():
        raise PlannedOffsetsError(
            "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED] the micro-batch and the run with "
            f"Trigger.AvailableNow have different partitions: {_names(end.keys() - target.keys())} only in the "
            f"micro-batch, {_names(target.keys() - end.keys())} only in the run. Start the query again"
        )
    if beyond := _beyond(end, target):
        raise PlannedOffsetsError(
            "[END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED] the micro-batch ends after the end of "
            f"the run with Trigger.AvailableNow: {beyond}. Start the query again"
        )
    if lost := end.keys() - latest.keys():
        raise PlannedOffsetsError(
            f"[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] {_names(lost)} no longer there: deleted, "
            "or deleted and created again, during a run with Trigger.AvailableNow. Start the query again"
        )
    if beyond := _beyond(end, latest):
        raise PlannedOffsetsError(
            "[END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW] the micro-batch "
            f"ends after the latest offset of the partition: {beyond}. Records were lost during a run with "
            "Trigger.AvailableNow, or the broker is behind: start the query again"
        )


def _beyond(end: PartitionOffsets, limit: PartitionOffsets) -> str:
    """Describe the offsets of `end` that are greater than those of `limit`; empty if there are none."""
    return ", ".join(
        f"{partition} {offset} > {limit[partition]}"
        for partition, offset in sorted(end.items())
        if offset > limit[partition]
    )


def admit(start: PartitionOffsets, latest: PartitionOffsets, max_offsets: int) -> dict[TopicPartition, int]:
    """Return the end of a micro-batch of about `max_offsets`: proportional to the backlog, at least one offset per
    partition.

    `start` has an offset for every partition of `latest`.
    """
    backlog = {partition: max(0, end - start[partition]) for partition, end in latest.items()}
    total = sum(backlog.values())
    if total <= max_offsets:
        return dict(latest)

    def share(size: int) -> int:
        # With floats, as in Spark's own source for Kafka: both end micro-batches at the same offsets.
        exact = max_offsets * (size / total)
        return math.ceil(exact) if exact < 1 else math.floor(exact)

    return {
        partition: end if backlog[partition] == 0 else min(end, start[partition] + share(backlog[partition]))
        for partition, end in latest.items()
    }


def new_offsets(start: PartitionOffsets, latest: PartitionOffsets) -> int:
    """Return the number of offsets between them."""
    return sum(max(0, end - start[partition]) for partition, end in latest.items())


def split(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Split ranges into tasks: none above `max_records`, about `min_partitions` in total; empty ranges are omitted."""
    pieces = [piece for piece in ranges if piece.size > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-piece.size // max_records))]
    if min_partitions is None or min_partitions <= len(pieces):
        return pieces
    total = sum(piece.size for piece in pieces)
    small = {piece for piece in pieces if _share(piece.size, total, min_partitions) == 1}
    # Small ranges stay whole; the rest of the tasks is distributed over the large ones.
    total = sum(piece.size for piece in pieces if piece not in small)
    wanted = min_partitions - len(small)
    return [
        part for piece in pieces for part in _cut(piece, 1 if piece in small else _share(piece.size, total, wanted))
    ]


def _share(size: int, total: int, pieces: int) -> int:
    """Return `size / total` of `pieces`, rounded half up, at least one and at most the number of offsets."""
    return min(size, max(1, math.floor(size / total * pieces + 0.5))) if total else 1


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Split into `count` ranges of almost equal size; the later ones get the remainder."""
    parts = []
    start = whole.start
    for left in range(count, 0, -1):
        end = start + (whole.end - start) // left
        parts.append(OffsetRange(whole.topic_partition, start, end))
        start = end
    return parts


def data_losses(start: PartitionOffsets, end: PartitionOffsets, earliest_of_new: PartitionOffsets) -> list[str]:
    """Describe what a micro-batch from `start` to `end` can no longer read, with one message each.

    `earliest_of_new`: known first offsets of partitions that only `end` has.
    """
    losses = []
    if deleted := start.keys() - end.keys():
        losses.append(f"PARTITIONS_DELETED: {_names(deleted)} no longer there")
    new = end.keys() - start.keys()
    if unknown := new - earliest_of_new.keys():
        losses.append(f"INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS: no first offset of {_names(unknown)}")
    losses += [
        f"ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO: {partition} starts at {earliest_of_new[partition]}"
        for partition in sorted(new & earliest_of_new.keys())
        if earliest_of_new[partition] != 0
    ]
    losses += [
        f"PARTITION_OFFSET_CHANGED: {partition} went back from {start[partition]} to {end[partition]}"
        for partition in sorted(start.keys() & end.keys())
        if end[partition] < start[partition]
    ]
    return losses


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions)) or "none"
