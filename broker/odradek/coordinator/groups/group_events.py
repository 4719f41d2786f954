"""Counts of what happens to the groups of a broker, for metrics. All its `__consumer_offsets` partitions share them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupEvents:
    """Numbers since the start of the broker, as in Kafka's `group-coordinator-metrics`."""

    commits: int = 0
    """Offsets that OffsetCommit has stored."""
    expirations: int = 0
    """Offsets that have expired."""
    deletions: int = 0
    """Offsets that OffsetDelete has removed."""
    rebalances: int = 0
    """Rebalances of classic groups that ended with an assignment for the members."""
    consumer_rebalances: int = 0
    """Rebalances of consumer groups: new group epochs, each with a target assignment (KIP-848)."""
