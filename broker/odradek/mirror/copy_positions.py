"""The position of a copied partition: an offset that the mirror's group commits for the partition of the target.

`copy_rounds` commits positions in the transaction that has the records, and `copier_group` starts partitions at them.
The group `odradek-mirror-<name>` of the target commits, for each partition of a target topic, the offset of the next
record to copy from the source. The metadata of the offset says of which cluster and topic that is, so that a mirror
never continues with another topic. It also has the offset runs that may not be stored as offset syncs yet: after a
crash, the next process stores them, so that the offsets of groups in this range are translated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.base.errors import ConfigError, OdradekError
from odradek.base.types import NO_EPOCH, ZERO_UUID
from odradek.client.models import OffsetAndMetadata
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.offset_translation import OffsetRun

_FORMAT: Final = 1
POSITION_RUNS: Final = 16
"""Maximum number of runs in a position: about 1 KiB; by default, `offset.metadata.max.bytes` allows 4 KiB."""


class PartitionStoppedError(OdradekError):
    """A partition is not copied until somebody has removed the reason, which the message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPosition:
    """Where the copying of a partition continues."""

    offset: int
    """Source offset of the next record to copy."""
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the source for the record before it; -1 if unknown."""
    cluster_id: str
    """Id of the source cluster; empty for a cluster of Kafka before 0.10.1."""
    topic: str
    topic_id: UUID = ZERO_UUID
    runs: tuple[OffsetRun, ...] = ()
    """The last copied ranges that may not be stored as offset syncs, in order; at most `POSITION_RUNS`."""

    def encode(self) -> OffsetAndMetadata:
        """Return the offset to commit."""
        fields: dict[str, object] = {
            "mirror": _FORMAT,
            "cluster": self.cluster_id,
            "topic": self.topic,
            "topicId": str(self.topic_id),
        }
        if self.runs:
            fields["runs"] = [run.to_list() for run in self.runs]
        return OffsetAndMetadata(self.offset, json.dumps(fields, separators=(",", ":")), self.leader_epoch)


def decode_position(committed: OffsetAndMetadata) -> CopyPosition | None:
    """Return the position in a committed offset; None if a mirror has not committed it."""
    try:
        fields = json.loads(committed.metadata)
        if not isinstance(fields, dict) or fields.get("mirror") != _FORMAT:
            return None
        return CopyPosition(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            cluster_id=str(fields["cluster"]),
            topic=str(fields["topic"]),
            topic_id=UUID(fields["topicId"]),
            runs=tuple(OffsetRun.from_list(run) for run in fields.get("runs", ())),
        )
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError):
        return None


def check_position(position: CopyPosition, partition: CopiedPartition, cluster_id: str, group: str) -> None:
    """Raise `PartitionStoppedError` if the position is that of another cluster or topic than the partition is from."""
    target = f"{partition.target_topic}-{partition.partition}"
    advice = (
        f"To copy it from the beginning, stop the mirror, delete the offsets of topic {partition.target_topic} in "
        f"group {group} of the target, and start the mirror"
    )
    if cluster_id and position.cluster_id and position.cluster_id != cluster_id:
        raise PartitionStoppedError(
            f"{target} was copied from the cluster {position.cluster_id}, but the source {partition.source} is the "
            f"cluster {cluster_id} now: a continuation would mix two topics. {advice}"
        )
    if position.topic != partition.topic:
        raise PartitionStoppedError(
            f"{target} was copied from topic {position.topic}, but the configuration names it for topic "
            f"{partition.topic} of source {partition.source}: change prefix. {advice}"
        )
    if ZERO_UUID not in (position.topic_id, partition.topic_id) and position.topic_id != partition.topic_id:
        raise recreated(partition, group)


def recreated(partition: CopiedPartition, group: str) -> PartitionStoppedError:
    """Return the error for a topic that was deleted and created again in the source."""
    return PartitionStoppedError(
        f"topic {partition.topic} of source {partition.source} was deleted and created again: a continuation of "
        f"{partition.target_topic}-{partition.partition} would mix two topics. To copy the new one, stop the mirror, "
        f"delete the offsets of topic {partition.target_topic} in group {group}, and start the mirror"
    )
