"""Which replica a consumer shall read from (KIP-392): by Kafka's selectors, as pure decisions.

The leader's view of the replicas that hold the wanted offset enters, a broker id leaves; `reader` asks. Invariant: only
replicas of the in-sync set are offered by the caller, so a consumer is never sent to one that falls ever more behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple


class ReplicaView(NamedTuple):
    """One replica as the leader sees it, ordered by how far it has come."""

    log_end_offset: int
    caught_up_ms: float
    """When it last had everything; monotonic."""
    broker_id: int
    rack: str | None


ReplicaSelector = Callable[[str, ReplicaView, Iterable[ReplicaView]], int]
"""(rack of the client, leader, followers) -> broker id."""


def rack_aware(rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> int:
    """The leader if it is in the client's rack, else the follower there that has come farthest, else the leader."""
    if not rack or leader.rack == rack:
        return leader.broker_id
    there = [view for view in followers if view.rack == rack]
    return max(there, key=lambda view: view[:3]).broker_id if there else leader.broker_id


RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

SELECTORS: Final[dict[str | None, ReplicaSelector]] = {RACK_AWARE: rack_aware}
"""Those that may name a follower, by `replica.selector.class`; with any other setting consumers read from leaders."""
