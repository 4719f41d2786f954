"""States of topics in ZooKeeper, and resources for these topics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

from odradek.base.types import Endpoint
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek.zk.ownership import ManagedTopic
from odradek_operator.crds import Topic
from odradek_operator.topics.zookeeper_state import ObservedConfig, ObservedOwnership, ObservedTopic, Snapshot


def brokers(
    count: int,
    racks: Mapping[int, str] = MappingProxyType({}),
    machines: Mapping[int, str] = MappingProxyType({}),
) -> dict[int, BrokerRegistration]:
    return {
        number: BrokerRegistration(
            broker_id=number,
            endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", 9092 + number),),
            rack=racks.get(number),
            machine=machines.get(number),
        )
        for number in range(count)
    }


def observed(
    name: str, *replicas: tuple[int, ...], version: int = 4, adding: tuple[int, ...] = (), in_sync: bool = True
) -> ObservedTopic:
    assignment = TopicAssignment(
        topic=name,
        partitions={
            number: ReplicaAssignment(replicas=of_one, adding=adding if number == 0 else ())
            for number, of_one in enumerate(replicas)
        },
    )
    states = {
        number: PartitionState(leader=of_one[0], leader_epoch=0, isr=of_one, controller_epoch=1)
        for number, of_one in enumerate(replicas)
    }
    return ObservedTopic(assignment=assignment, version=version, states=states if in_sync else {})


def record(
    owned: Iterable[str], preserved: Iterable[str] = (), *, topic_id: UUID | None = None, resource: str = ""
) -> ObservedOwnership:
    managed = ManagedTopic(
        topic="orders", topic_id=topic_id, resource=resource, owned=frozenset(owned), preserved=frozenset(preserved)
    )
    return ObservedOwnership(record=managed, version=5)


def snapshot(
    topic: ObservedTopic | None = None,
    *,
    config: Mapping[str, str] | None = None,
    live: int = 3,
    owned: Iterable[str] | None = (),
    preserved: Iterable[str] = (),
    **more: object,
) -> Snapshot:
    """Return a snapshot whose ownership record has `owned` and `preserved`. If `owned` is None, there is no record."""
    ownership = {} if topic is None or owned is None else {"orders": record(owned, preserved)}
    base = Snapshot(
        controller_id=0,
        controller_epoch=7,
        controller_epoch_version=7,
        brokers=brokers(live),
        topics={} if topic is None else {topic.assignment.topic: topic},
        configs={} if config is None else {"orders": ObservedConfig(values=config, version=2)},
        ownership=ownership,
    )
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


def desired(partitions: int = 2, replicas: int | None = 2, **config: str) -> Topic:
    named = {key.replace("_", "."): value for key, value in config.items()}
    return Topic(name="orders", cluster="demo", partitions=partitions, replicas=replicas, config=named)


TWO = observed("orders", (0, 1), (1, 2))
