"""Selects the replica from which a consumer should read (KIP-392), with Kafka's selectors as pure functions.

`reader` passes the leader's view of the replicas that have the requested offset, and gets a broker id. Invariant: the
caller passes only members of the ISR, so that a consumer is never redirected to a replica that falls further behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple


class ReplicaView(NamedTuple):
    """One replica as seen by the leader, ordered by its progress."""

    log_end_offset: int
    caught_up_ms: float
    """Monotonic time at which it last was caught up."""
    broker_id: int
    rack: str | None


ReplicaSelector = Callable[[str, ReplicaView, Iterable[ReplicaView]], int]
"""(rack of the client, leader, followers) -> broker id."""


def rack_aware(rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> int:
    """Return the leader if it is in the client's rack, else the most advanced follower there, else the leader."""
    if not rack or leader.rack == rack:
        return leader.broker_id
    there = [view for view in followers if view.rack == rack]
    return max(there, key=lambda view: view[:3]).broker_id if there else leader.broker_id


RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

SELECTORS: Final[dict[str | None, ReplicaSelector]] = {RACK_AWARE: rack_aware}
"""Selectors that may return a follower, by `replica.selector.class`; otherwise consumers read from leaders."""
