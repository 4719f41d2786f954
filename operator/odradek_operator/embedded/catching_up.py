"""Decides how long a topic may be out of sync after a rolling restart without a report. Pure.

Replicas are in sync some time after their broker has restarted, and other events report the restarts. So `watcher` does
not report a topic as under-replicated while its replicas catch up. A replica that never catches up must be reported:
the topic is excused only while replicas join its ISRs, the last one less than `replica.lag.time.max.ms` ago. That is
also the time after which a leader removes a follower that does not catch up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.base.config import BROKER_SETTINGS
from odradek_operator.crds import Cluster
from odradek_operator.topics.zookeeper_state import ObservedTopic

_LAG_TIME: Final = "replica.lag.time.max.ms"

Replica = tuple[int, int]
"""The number of a partition, and the id of a broker."""


def limit_seconds(cluster: Cluster) -> float:
    """Return how long a topic is excused after a replica has joined an ISR."""
    setting, text = BROKER_SETTINGS[_LAG_TIME], cluster.brokers.config.get(_LAG_TIME)
    value = setting.default if text is None else setting.parse(text)
    assert isinstance(value, int), "the reader of manifests refuses other values"
    return value / 1_000


def outside(topic: ObservedTopic) -> frozenset[Replica]:
    """Return the replicas of a topic that are not in an ISR."""
    return frozenset(
        (number, broker)
        for number, part in topic.assignment.partitions.items()
        for broker in part.replicas
        if number not in topic.states or broker not in topic.states[number].isr
    )


@dataclass(frozen=True, slots=True)
class _Excused:
    since: float
    """When the roll was last seen, or a replica last joined an ISR."""
    outside: frozenset[Replica]


class CatchingUp:
    """The topics that are out of sync since a rolling restart."""

    def __init__(self) -> None:
        self._topics: dict[str, _Excused] = {}

    def excuses(self, topic: str, behind: frozenset[Replica], *, rolling: bool, now: float, limit: float) -> bool:
        """Whether it is not reported yet that these replicas of a topic are out of sync.

        `rolling`: whether a rolling restart is in progress. `now` and `limit` in seconds.
        """
        before = self._topics.get(topic)
        if rolling or (before is not None and before.outside - behind):
            self._topics[topic] = _Excused(now, behind)
            return True
        if before is None:
            return False
        if now - before.since >= limit:
            self.forget(topic)
            return False
        self._topics[topic] = _Excused(before.since, behind)
        return True

    def forget(self, topic: str) -> None:
        """Forget a topic that is in sync, reported or removed."""
        self._topics.pop(topic, None)
