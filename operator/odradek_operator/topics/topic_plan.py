"""Compares all Topic resources of one cluster with the state in ZooKeeper. Pure.

`reconcile` calls it after every read. A `Plan` contains a decision for each topic. Its actions have a safe order:
deletions, then creations, then changes. Within each, they are sorted by topic, so that logs are reproducible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from odradek_operator.crds import Wanted as Wanted
from odradek_operator.topics import topic_decisions as topics
from odradek_operator.topics.topic_actions import (
    Action,
    AddPartitions,
    CreateTopic,
    Decision,
    DeleteTopic,
    ForgetOwnership,
    Obstacle,
    RecordOwnership,
    Refusal,
    SetConfig,
)
from odradek_operator.topics.zookeeper_state import Snapshot

_ORDER: Final[tuple[type[Action], ...]] = (
    DeleteTopic,
    ForgetOwnership,
    CreateTopic,
    RecordOwnership,
    AddPartitions,
    SetConfig,
)
"""The order of actions. `RecordOwnership` comes before `AddPartitions`, which changes the version that it checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The decisions about all topics."""

    decisions: Mapping[str, Decision]

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions, in the order of their execution."""
        return tuple(
            action
            for kind in _ORDER
            for decision in self.decisions.values()
            for action in decision.actions
            if isinstance(action, kind)
        )

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """All refusals."""
        return tuple(self._refusals())

    def _refusals(self) -> Iterator[Refusal]:
        for decision in self.decisions.values():
            yield from decision.refusals


def make_plan(wanted: Wanted, snapshot: Snapshot) -> Plan:
    """Decide about every topic that has, or had, a resource. Other topics are not changed."""
    if wanted.cluster.paused:
        return Plan(
            decisions={
                name: Decision(
                    topic=name, refusals=(Refusal(topic=name, obstacle=Obstacle.PAUSED, message=topics.PAUSED),)
                )
                for name in sorted({*wanted.topics, *wanted.removed})
            }
        )
    brokers = wanted.cluster.brokers
    decisions = {
        name: topics.decide_removed(topic, snapshot)
        for name, topic in wanted.removed.items()
        if name not in wanted.topics
    }
    placing = _without_drained_brokers(wanted, snapshot)
    decisions |= {name: topics.decide(topic, placing, brokers=brokers) for name, topic in wanted.topics.items()}
    return Plan(decisions=dict(sorted(decisions.items())))


def _without_drained_brokers(wanted: Wanted, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without brokers that are being drained, so that they get no new replicas.

    With an existing ensemble, nothing is removed, because the brokers may belong to other clusters.
    """
    if wanted.cluster.zookeeper.connect is not None:
        return snapshot
    staying = {
        broker: registration
        for broker, registration in snapshot.brokers.items()
        if broker in wanted.cluster.brokers.ids()
    }
    return replace(snapshot, brokers=staying)
