"""The delayed operations of admin requests, which wait for a change of this broker's metadata image.

`topic_handlers` and `elections` create them and check them whenever the image has changed. They are apart from the
handlers because a compiled base class requires compiled subclasses (docs/design/0019).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from odradek.base.types import TopicPartition
from odradek.cluster import ClusterImage, MetadataCache
from odradek.timer.purgatory import DelayedOperation


class ImageWait(DelayedOperation):
    """Waits until the metadata image satisfies a condition, or until the timeout."""

    __slots__ = ("_condition", "_view", "outcome")

    def __init__(self, view: MetadataCache, condition: Callable[[ClusterImage], bool], timeout_ms: float) -> None:
        """`outcome` is set at the end of the wait to whether the image satisfies the condition."""
        super().__init__(timeout_ms)
        self._view = view
        self._condition = condition
        self.outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def try_complete(self) -> bool:
        """Return whether the image satisfies the condition."""
        return self._condition(self._view.image)

    def on_complete(self) -> None:
        """Resume the waiting handler, unless it was cancelled."""
        if not self.outcome.done():
            self.outcome.set_result(self._condition(self._view.image))


class LeadersWait(DelayedOperation):
    """Waits until the image has these leaders, or until the timeout."""

    __slots__ = ("_leaders", "_view", "missing")

    def __init__(self, view: MetadataCache, leaders: Mapping[TopicPartition, int], timeout_ms: float) -> None:
        """`missing` is set at the end of the wait to the partitions whose leaders the image does not have."""
        super().__init__(timeout_ms)
        self._view = view
        self._leaders = leaders
        self.missing: asyncio.Future[set[TopicPartition]] = asyncio.get_running_loop().create_future()

    def try_complete(self) -> bool:
        """Return whether the image has all leaders."""
        return not self._missing()

    def on_complete(self) -> None:
        """Resume the waiting handler, unless it was cancelled."""
        if not self.missing.done():
            self.missing.set_result(self._missing())

    def _missing(self) -> set[TopicPartition]:
        image = self._view.image
        states = ((partition, image.partition(partition)) for partition in self._leaders)
        return {part for part, state in states if state is None or state.leader != self._leaders[part]}
