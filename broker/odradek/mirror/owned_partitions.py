"""The partitions that this process copies, and the state of each.

`copier_group` creates and ends them, `copy_rounds` moves their positions. The states:

    state      event                                              next
    WAITING    its position was read and checked, `started`       COPYING
    WAITING    the position or the source cannot be read          FAILED
    COPYING    a round committed records, `moved`                 COPYING
    COPYING    a round was aborted, `must_restart`                WAITING
    COPYING    an error that concerns only this partition         FAILED
    FAILED     the pause is over                                  WAITING
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.base.errors import OdradekError
from odradek.base.types import TopicPartition
from odradek.client.metadata import Backoff
from odradek.mirror.copy_positions import CopyPosition
from odradek.mirror.mirror_plan import CopiedPartition

_LOG: Final = logging.getLogger(__name__)

_RETRIES: Final = Backoff(5_000, 300_000)
"""Pauses after errors, in milliseconds."""


class CopyState(Enum):
    """The state of a partition; see the table above."""

    WAITING = "waiting"
    COPYING = "copying"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class OwnedPartition:
    """One partition, with where it is."""

    partition: CopiedPartition
    state: CopyState = CopyState.WAITING
    position: CopyPosition | None = None
    """The last committed position; None before the start."""
    target_offset: int = -1
    """Offset in the target after the last batch that this process copied; -1 before the first."""
    newest_ms: int = -1
    """Timestamp of the last record that was copied."""
    records: int = 0
    bytes: int = 0
    failures: int = 0
    """Failures since the last success."""
    retry_at_ms: float = 0.0
    error: OdradekError | None = None

    @property
    def target(self) -> TopicPartition:
        """The partition of the target."""
        return TopicPartition(self.partition.target_topic, self.partition.partition)

    @property
    def shown(self) -> str:
        """The partition for messages."""
        return f"{self.partition.topic}-{self.partition.partition} of source {self.partition.source}"

    def started(self, position: CopyPosition) -> None:
        """Copy from a position on."""
        self.state, self.position = CopyState.COPYING, position

    def moved(self, position: CopyPosition) -> None:
        """Note that the records before a position were committed."""
        self.position = position
        self.failures, self.error = 0, None

    def must_restart(self) -> None:
        """Read the position again, because the end of a transaction is unknown or it was aborted."""
        if self.state is CopyState.COPYING:
            self.state = CopyState.WAITING

    def failed(self, error: OdradekError, now_ms: float, random: float) -> None:
        """Stop until a pause is over. The pause doubles with each failure."""
        self.failures += 1
        self.state, self.error = CopyState.FAILED, error
        pause_ms = _RETRIES.delay_ms(self.failures, random)
        self.retry_at_ms = now_ms + pause_ms
        _LOG.error("%s is not copied, and tried again in %.0f s: %s", self.shown, pause_ms / 1000, error)


class OwnedPartitions:
    """The partitions of this process, by partition of the target."""

    def __init__(self) -> None:
        """There are none at first."""
        self._owned: dict[TopicPartition, OwnedPartition] = {}

    def __iter__(self) -> Iterator[OwnedPartition]:
        """Iterate over the partitions in the order in which they were added."""
        return iter(list(self._owned.values()))

    def add(self, partition: CopiedPartition) -> None:
        """Own a partition."""
        owned = OwnedPartition(partition)
        self._owned[owned.target] = owned

    def get(self, target: TopicPartition) -> OwnedPartition | None:
        """Return the partition that is copied to a partition of the target."""
        return self._owned.get(target)

    def find(self, partition: CopiedPartition) -> OwnedPartition | None:
        """Return a partition, unless it was removed or replaced."""
        owned = self._owned.get(TopicPartition(partition.target_topic, partition.partition))
        return owned if owned is not None and owned.partition == partition else None

    def remove(self, target: TopicPartition) -> OwnedPartition | None:
        """Own a partition no longer. Returns it if it was owned."""
        return self._owned.pop(target, None)

    def in_state(self, state: CopyState, source: str) -> list[OwnedPartition]:
        """Return the partitions of a source that are in a state."""
        return [each for each in self if each.state is state and each.partition.source == source]

    def retry_due(self, now_ms: float) -> None:
        """Let failed partitions start again whose pause is over."""
        for owned in self:
            if owned.state is CopyState.FAILED and owned.retry_at_ms <= now_ms:
                owned.state = CopyState.WAITING
