"""Which checkpoints to write for a group, and which of its offsets to commit in the target. Pure; see `group_follower`.

The rules are those of the class MirrorCheckpointTask of Apache Kafka 3.9. Invariant: a checkpoint never moves a group
back in the target, unless the group has gone back in the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from odradek.base.types import TopicPartition
from odradek.client.admin_kinds import ConsumerGroupState
from odradek.client.models import OffsetAndMetadata
from odradek.mirror.mm2_records import Checkpoint

Translate = Callable[[TopicPartition, int], int | None]
"""Returns the target offset for a partition and an offset of the source; None if it is unknown."""
Checkpoints = Mapping[TopicPartition, Checkpoint]
"""The last checkpoints of a group by partition of the target."""

INACTIVE: frozenset[ConsumerGroupState] = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})
"""States of groups without members. Only their offsets are committed in the target."""


def new_checkpoints(
    group: str,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    target_of: Callable[[str], str | None],
    translate: Translate,
    last: Checkpoints,
) -> list[Checkpoint]:
    """Return the checkpoints that a group needs now.

    `committed` has the offsets of the group in the source. `target_of` returns the name of a topic in the target; None
    if it is not copied. `last` has the latest stored checkpoints.
    """
    found = []
    for partition, position in sorted(committed.items()):
        topic = target_of(partition.topic)
        offset = None if topic is None or position.offset < 0 else translate(partition, position.offset)
        if topic is None or offset is None:
            continue
        place = TopicPartition(topic, partition.partition)
        checkpoint = Checkpoint(group, place, position.offset, offset, position.metadata)
        if _is_news(checkpoint, last.get(place)):
            found.append(checkpoint)
    return found


def _is_news(checkpoint: Checkpoint, last: Checkpoint | None) -> bool:
    """Whether a checkpoint has to be written after `last`: the group has gone on in the target, or back in the
    source."""
    if last is None or checkpoint.source_offset < last.source_offset:
        return True
    return checkpoint.target_offset > last.target_offset


def offsets_to_commit(
    checkpoints: Iterable[Checkpoint], in_target: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit in the target for a group without members there.

    `in_target` has the offsets that are committed there. An offset that is as late, or later, stays.
    """
    found = {}
    for checkpoint in checkpoints:
        known = in_target.get(checkpoint.partition)
        if known is None or known.offset < checkpoint.target_offset:
            found[checkpoint.partition] = OffsetAndMetadata(checkpoint.target_offset, checkpoint.metadata)
    return found
