"""The throttle of our reassignments: what it writes, how it is known again, how it is lifted. Pure.

Enters: a `Snapshot` and targets. Leaves: entries of configurations. Called by `moves` and `defaults`.

The rates stand in `/config/brokers/<default>`, where one write reaches all brokers and where Kafka's own tools never
put them; beside them stands a mark. A broker ignores the mark, as every key that it does not know. It makes the rates
ours: only rates with the mark are lifted, so a throttle of another tool is left alone. Its value also carries the one
thing that replicas cannot show: whether the spread is being evened out, which has to go on beyond the point where it
would not have been begun (`balance`). So nothing needs to be remembered by the operator.
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
"""A topic whose replicas somebody throttles always; we leave that as it is."""


class Mark(Enum):
    """Why replicas move."""

    EVEN_OUT = "even-out"
    """Brokers get their share; other moves may be among these."""
    RESIZE = "resize"
    """Brokers are drained, or replication factors change."""


def mark_of(snapshot: Snapshot) -> Mark | None:
    """Ours, or None where no throttle of ours is in force."""
    defaults = snapshot.broker_configs.get(DEFAULT_ENTITY)
    if defaults is None or MARK not in defaults.values:
        return None
    return Mark.EVEN_OUT if defaults.values[MARK] == Mark.EVEN_OUT.value else Mark.RESIZE


def entries(rate: int, mark: Mark) -> dict[str, str]:
    """What the brokers' defaults get."""
    return dict.fromkeys(RATES, str(rate)) | {MARK: mark.value}


def lists(targets: Mapping[TopicPartition, tuple[int, ...]], snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """What each topic's overrides get: those that have the records as leaders, those that get them as followers."""
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
    """Take our throttle away; None where there is none."""
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
        reason="nothing moves any more",
    )
