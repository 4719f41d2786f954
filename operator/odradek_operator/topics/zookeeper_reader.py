"""Reads a `Snapshot` from ZooKeeper.

`reconcile` calls it before each decision. Usually it reads the details only of topics with a resource, so that the cost
depends on the number of resources, and only the names of other topics. For decisions about all replicas it reads all
topics. A znode with invalid content does not affect others: a topic with one is marked as unreadable, any other znode
is treated as missing, and a message reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from odradek.zk import layout
from odradek.zk.layout import BrokerRegistration, ClusterId, ControllerRegistration, PartitionState, TopicAssignment
from odradek.zk.ownership import MANAGED_BROKERS, ManagedBrokers, ManagedTopic, managed_topic_path
from odradek.zk.port import ZkClient, ZnodeStat
from odradek.znode import LayoutError
from odradek_operator.topics.zookeeper_state import (
    ObservedBrokersRecord,
    ObservedConfig,
    ObservedOwnership,
    ObservedTopic,
    Snapshot,
    state_paths,
)

Znode = tuple[bytes, ZnodeStat]
_K = TypeVar("_K")
_T = TypeVar("_T")


class _Damage:
    """Collects messages about znodes with invalid content, by topic and for the rest of the cluster."""

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}
        self.others: list[str] = []

    def understood(
        self, decode: Callable[[_K, bytes], _T], key: _K, data: bytes, topic: str | None = None
    ) -> _T | None:
        """Return the decoded data. If it is invalid, add a message and return None."""
        try:
            return decode(key, data)
        except LayoutError as error:
            message = f"A znode is invalid: {error}."
            if topic is None:
                self.others.append(message)
            else:
                self.topics.setdefault(topic, message)
            return None


async def read_snapshot(zk: ZkClient, topics: Iterable[str] | None) -> Snapshot:
    """Read the current state, with the details of `topics`; None stands for all topics. Raises `ZkError`."""
    damage = _Damage()
    # The epoch is read first: a write that requires its version then fails if a new controller took over since.
    epoch = await zk.get_or_none(layout.CONTROLLER_EPOCH)
    single = await zk.get_many([layout.CLUSTER_ID, layout.CONTROLLER, layout.REASSIGN_PARTITIONS, MANAGED_BROKERS])
    names = await zk.children_or_none(layout.TOPICS) or []
    wanted = set(names) if topics is None else set(topics)
    found = await _read_topics(zk, [name for name in names if name in wanted], damage)
    if topics is None:
        # A deleted topic may leave a configuration behind, which matters when a topic of that name is created.
        wanted |= set(await zk.children_or_none(f"{layout.CONFIG}/topics") or [])
    configs = await _read_configs(zk, "topics", sorted(wanted), damage)
    ownership = await _read_ownership(zk, sorted(wanted), damage)
    entities = await zk.children_or_none(f"{layout.CONFIG}/brokers") or []
    broker_configs = await _read_configs(zk, "brokers", entities, damage)
    brokers = await _read_brokers(zk, damage)
    cluster_id = _single(single[layout.CLUSTER_ID], ClusterId.decode, damage)
    controller = _single(single[layout.CONTROLLER], ControllerRegistration.decode, damage)
    controller_epoch = _single(epoch, layout.decode_controller_epoch, damage)
    reassignment = single[layout.REASSIGN_PARTITIONS]
    targets = _single(reassignment, layout.decode_reassignment, damage)
    return Snapshot(
        cluster_id=None if cluster_id is None else cluster_id.cluster_id,
        controller_id=None if controller is None else controller.broker_id,
        controller_epoch=controller_epoch or 0,
        controller_epoch_version=None if epoch is None or controller_epoch is None else epoch[1].version,
        brokers=brokers,
        topics=found | {name: _bare(name, version=-1) for name in names if name not in wanted},
        configs=configs,
        ownership=ownership,
        broker_configs=broker_configs,
        brokers_record=_brokers_record(single[MANAGED_BROKERS], damage),
        deleting=frozenset(await zk.children_or_none(layout.DELETE_TOPICS) or []),
        reassigning=frozenset(targets or ()),
        reassignment_requested=reassignment is not None,
        unreadable=damage.topics,
        damaged=tuple(damage.others),
    )


def _single(znode: Znode | None, decode: Callable[[bytes], _T], damage: _Damage) -> _T | None:
    if znode is None:
        return None
    return damage.understood(lambda _, data: decode(data), None, znode[0])


def _brokers_record(znode: Znode | None, damage: _Damage) -> ObservedBrokersRecord | None:
    """Return the record of brokers. An invalid record counts as empty: then no cluster owns properties, and none are
    removed."""
    if znode is None:
        return None
    return ObservedBrokersRecord(record=_single(znode, ManagedBrokers.decode, damage), version=znode[1].version)


def _bare(name: str, *, version: int) -> ObservedTopic:
    """Return a topic without details, which were not requested or are invalid."""
    return ObservedTopic(assignment=TopicAssignment(topic=name, partitions={}), version=version)


async def _read_brokers(zk: ZkClient, damage: _Damage) -> dict[int, BrokerRegistration]:
    names = await zk.children_or_none(layout.BROKER_IDS) or []
    ids = sorted(int(name) for name in names if name.isdecimal())
    znodes = await zk.get_many([layout.broker_path(broker) for broker in ids])
    brokers = {}
    for broker in ids:
        znode = znodes[layout.broker_path(broker)]
        if znode is not None:
            registration = damage.understood(BrokerRegistration.decode, broker, znode[0])
            if registration is not None:
                brokers[broker] = registration
    return brokers


async def _read_configs(zk: ZkClient, kind: str, names: list[str], damage: _Damage) -> dict[str, ObservedConfig]:
    paths = {layout.config_path(kind, name): name for name in names}
    configs = {}
    for path, znode in (await zk.get_many(paths)).items():
        if znode is not None:
            name = paths[path]
            topic = name if kind == "topics" else None
            values = damage.understood(layout.decode_config, path, znode[0], topic)
            if values is not None:
                configs[name] = ObservedConfig(values=values, version=znode[1].version)
    return configs


async def _read_ownership(zk: ZkClient, topics: list[str], damage: _Damage) -> dict[str, ObservedOwnership]:
    """Return the records by topic. An invalid record counts as missing: the topic is adopted again, which removes
    nothing."""
    found = {}
    paths = {managed_topic_path(topic): topic for topic in topics}
    for path, znode in (await zk.get_many(paths)).items():
        if znode is not None:
            record = damage.understood(ManagedTopic.decode, paths[path], znode[0])
            found[paths[path]] = ObservedOwnership(record=record, version=znode[1].version)
    return found


async def _read_topics(zk: ZkClient, topics: list[str], damage: _Damage) -> dict[str, ObservedTopic]:
    znodes = await zk.get_many([layout.topic_path(topic) for topic in topics])
    there: dict[str, tuple[TopicAssignment, ZnodeStat]] = {}
    found: dict[str, ObservedTopic] = {}
    for topic in topics:
        znode = znodes[layout.topic_path(topic)]
        if znode is None:
            continue
        assignment = damage.understood(TopicAssignment.decode, topic, znode[0], topic)
        if assignment is None:
            found[topic] = _bare(topic, version=znode[1].version)
        else:
            there[topic] = (assignment, znode[1])
    states = await _read_states(zk, {topic: assignment for topic, (assignment, _) in there.items()}, damage)
    return found | {
        topic: ObservedTopic(assignment=assignment, version=stat.version, states=states[topic])
        for topic, (assignment, stat) in there.items()
    }


async def _read_states(
    zk: ZkClient, assignments: Mapping[str, TopicAssignment], damage: _Damage
) -> dict[str, dict[int, PartitionState]]:
    paths = state_paths(assignments)
    states: dict[str, dict[int, PartitionState]] = {topic: {} for topic in assignments}
    for path, znode in (await zk.get_many(paths)).items():
        if znode is not None:
            partition = paths[path]
            state = damage.understood(PartitionState.decode, partition, znode[0], partition.topic)
            if state is not None:
                states[partition.topic][partition.partition] = state
    return states
