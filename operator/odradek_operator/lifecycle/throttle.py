"""The replication throttle of the operator's reassignments: how it is set, recognised and removed. Pure.

`moves` and `defaults` pass a `Snapshot` and targets, and get entries of configurations.

The rates are in `/config/brokers/<default>`, where one write reaches all brokers and where Kafka's tools never write
them, together with a mark, which brokers ignore. Only rates with the mark are removed, so the throttles of other tools
are left alone. The value of the mark also records whether balancing is in progress: once started, it continues even
if it would not start again (`balance`). So the operator does not have to store anything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from typing import Final

from odradek.base.types import TopicPartition
from odradek.zk.layout import DEFAULT_ENTITY
from odradek_operator.lifecycle.steps import LiftThrottle
from odradek_operator.topics.zookeeper_state import Snapshot

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
MARK: Final = "odradek.reassignment"
ALL_REPLICAS: Final = "*"
"""Value of a topic whose replicas a user always throttles; the operator does not change it."""


class Mark(Enum):
    """Why replicas move."""

    EVEN_OUT = "even-out"
    """Balancing, possibly together with other moves."""
    RESIZE = "resize"
    """Draining of brokers, or changes of replication factors."""


def mark_of(snapshot: Snapshot) -> Mark | None:
    """Return the mark; None if the operator has set no throttle."""
    defaults = snapshot.broker_configs.get(DEFAULT_ENTITY)
    if defaults is None or MARK not in defaults.values:
        return None
    return Mark.EVEN_OUT if defaults.values[MARK] == Mark.EVEN_OUT.value else Mark.RESIZE


def entries(rate: int, mark: Mark) -> dict[str, str]:
    """Return the entries for the defaults of brokers."""
    return dict.fromkeys(RATES, str(rate)) | {MARK: mark.value}


def lists(targets: Mapping[TopicPartition, tuple[int, ...]], snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """Return the entries for each topic: the throttled leaders and followers."""
    found: defaultdict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for name, target in sorted(targets.items()):
        present = snapshot.topics[name.topic].assignment.partitions[name.partition].replicas
        added = [broker for broker in target if broker not in present]
        if added:
            leaders, followers = found[name.topic]
            leaders += [f"{name.partition}:{broker}" for broker in present]
            followers += [f"{name.partition}:{broker}" for broker in added]
    changes = {}
    for topic, both in found.items():
        overrides = snapshot.configs[topic].values if topic in snapshot.configs else {}
        changes[topic] = {
            key: ",".join(listed) for key, listed in zip(LISTS, both, strict=True) if overrides.get(key) != ALL_REPLICAS
        }
    return {topic: change for topic, change in changes.items() if change}


def lift(snapshot: Snapshot) -> LiftThrottle | None:
    """Return the step that removes the operator's throttle; None if there is none."""
    if mark_of(snapshot) is None:
        return None
    present = snapshot.broker_configs[DEFAULT_ENTITY].values
    topics = {
        topic: tuple(key for key in LISTS if config.values.get(key, ALL_REPLICAS) != ALL_REPLICAS)
        for topic, config in sorted(snapshot.configs.items())
        if topic in snapshot.topics and topic not in snapshot.deleting
    }
    return LiftThrottle(
        broker_defaults=tuple(key for key in (*RATES, MARK) if key in present),
        topics={topic: keys for topic, keys in topics.items() if keys},
        reason="no replica is moving",
    )
