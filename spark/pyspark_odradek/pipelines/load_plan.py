"""Which offsets a run of `load` reads. Pure functions.

Invariant: the ranges of all runs whose records are in the archive neither overlap nor have gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from odradek.base.types import TopicPartition
from pyspark_odradek.offsets import PartitionOffsets, from_spark
from pyspark_odradek.pipelines.manifest import ArchiveError, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The range of a run, the offsets of the archive after it, and the earlier runs that it reads again."""

    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    """The same partitions as `start`."""
    known: Mapping[TopicPartition, int]
    """`end`, and the offsets of partitions that no longer exist."""
    replaced: tuple[Manifest, ...] = ()


def check_selection(last: Manifest | None, selects: Callable[[str], bool]) -> None:
    """Raise `ArchiveError` if the archive has a topic that the run does not select: it would stop to grow silently."""
    others = [topic for topic in ({} if last is None else last.end) if not selects(topic)]
    if others:
        raise ArchiveError(
            f"the archive has records of topic {others[0]}, which this run does not read: name it too, or use another "
            "--output"
        )


def check_topic_ids(last: Manifest | None, topic_ids: Mapping[str, str]) -> None:
    """Raise `ArchiveError` if a topic was deleted and created again. Topics without an id are not compared."""
    known = {} if last is None else last.topic_ids
    for topic, topic_id in topic_ids.items():
        if topic in known and known[topic] != topic_id:
            raise ArchiveError(
                f"topic {topic} was deleted and created again, so the offsets of the archive are not those of its "
                "records: use another --output"
            )


def plan(
    last: Manifest | None,
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
) -> LoadPlan:
    """Return a run that continues where the archive ends; new partitions start at their earliest offset.

    `latest` has all partitions, `earliest` at least the new ones.
    """
    known = {} if last is None else from_spark(last.end)
    start = {partition: known[partition] if partition in known else earliest[partition] for partition in latest}
    return LoadPlan(start=start, end=dict(latest), known={**known, **latest})


def plan_reload(
    history: Sequence[Manifest],
    since: PartitionOffsets,
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
) -> LoadPlan:
    """Return a run that reads the offsets from `since` on again, and replaces the runs that have some of them.

    The first of those runs may have older offsets too, which are read again as well. Raises `ArchiveError` if the topic
    no longer has one of the records that would be replaced.
    """
    first = next((number for number, run in enumerate(history) if _has_offsets(run, since)), len(history))
    replaced = tuple(history[first:])
    known = from_spark(history[-1].end) if history else {}
    start = {partition: known.get(partition, since[partition]) for partition in latest}
    for run in reversed(replaced):
        begins, ends = from_spark(run.start), from_spark(run.end)
        start.update(begins)
        _check_readable({part: begins[part] for part in begins if begins[part] < ends[part]}, earliest, latest)
    start = {partition: offset for partition, offset in start.items() if partition in latest}
    return LoadPlan(start=start, end=dict(latest), known={**known, **latest}, replaced=replaced)


def _has_offsets(run: Manifest, since: PartitionOffsets) -> bool:
    """Whether a run has records from `since` on."""
    begins, ends = from_spark(run.start), from_spark(run.end)
    return any(
        ends[partition] > offset and ends[partition] > begins[partition]
        for partition, offset in since.items()
        if partition in ends and partition in begins
    )


def _check_readable(begins: PartitionOffsets, earliest: PartitionOffsets, latest: Collection[TopicPartition]) -> None:
    for partition, offset in begins.items():
        if partition not in latest or earliest[partition] > offset:
            raise ArchiveError(
                f"the records of {partition} from offset {offset} on are no longer in the topic, so they cannot be "
                "replaced: choose a later --from-time"
            )
