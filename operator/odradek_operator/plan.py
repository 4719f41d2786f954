"""Everything that is wanted of one cluster against everything that is there. Pure.

Enters: a `Snapshot` and `Wanted`. Leaves: a `Plan`: for each topic a decision, in an order that is safe to carry out:
first what makes room and ends things (deletions), then what makes new ones, then changes; by name within each, so that
logs read the same every time. Called by `reconcile` after every read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek_operator import topics
from odradek_operator.actions import Action, AddPartitions, CreateTopic, Decision, DeleteTopic, Refusal, SetConfig
from odradek_operator.crds import Cluster, Topic
from odradek_operator.observed import Snapshot

_ORDER: Final[tuple[type[Action], ...]] = (DeleteTopic, CreateTopic, AddPartitions, SetConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the resources of one cluster say."""

    cluster: Cluster
    topics: Mapping[str, Topic] = field(default_factory=dict)
    removed: Mapping[str, Topic] = field(default_factory=dict)
    """Topics whose resource is gone and that are not yet dealt with, as their resource was last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done, topic by topic."""

    decisions: Mapping[str, Decision]

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every action, in the order in which they are carried out."""
        return tuple(
            action
            for kind in _ORDER
            for decision in self.decisions.values()
            for action in decision.actions
            if isinstance(action, kind)
        )

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Everything that is not done."""
        return tuple(self._refusals())

    def _refusals(self) -> Iterator[Refusal]:
        for decision in self.decisions.values():
            yield from decision.refusals


def make_plan(wanted: Wanted, snapshot: Snapshot) -> Plan:
    """Decide about every topic that has, or had, a resource; others are nobody's business here."""
    brokers = wanted.cluster.brokers.replicas
    decisions = {
        name: topics.decide_removed(topic, snapshot)
        for name, topic in wanted.removed.items()
        if name not in wanted.topics
    }
    decisions |= {name: topics.decide(topic, snapshot, brokers=brokers) for name, topic in wanted.topics.items()}
    return Plan(decisions=dict(sorted(decisions.items())))
