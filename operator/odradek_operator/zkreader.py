"""Reads a `Snapshot` from ZooKeeper.

Enters: a connected client. Leaves: frozen values. Called by `reconcile` before each decision. Only the topics that a
resource names are read in depth, the others by name, so the cost follows the resources and not the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.zk import layout
from odradek.zk.layout import BrokerRegistration, ClusterId, ControllerRegistration, PartitionState, TopicAssignment
from odradek.zk.port import ZkClient, ZnodeStat
from odradek_operator.observed import ObservedConfig, ObservedTopic, Snapshot, state_paths

Znode = tuple[bytes, ZnodeStat]


async def read_snapshot(zk: ZkClient, topics: Iterable[str]) -> Snapshot:
    """The cluster as it is now. Raises `ZkError`, and `LayoutError` for a znode that cannot be understood."""
    wanted = set(topics)
    # First, so that a write which depends on its version depends on all that is read after it.
    epoch = await zk.get_or_none(layout.CONTROLLER_EPOCH)
    single = await zk.get_many([layout.CLUSTER_ID, layout.CONTROLLER, layout.REASSIGN_PARTITIONS])
    names = await zk.children_or_none(layout.TOPICS) or []
    found = await _read_topics(zk, [name for name in names if name in wanted])
    cluster_id, controller = single[layout.CLUSTER_ID], single[layout.CONTROLLER]
    reassignment = single[layout.REASSIGN_PARTITIONS]
    return Snapshot(
        cluster_id=None if cluster_id is None else ClusterId.decode(cluster_id[0]).cluster_id,
        controller_id=None if controller is None else ControllerRegistration.decode(controller[0]).broker_id,
        controller_epoch=0 if epoch is None else layout.decode_controller_epoch(epoch[0]),
        controller_epoch_version=None if epoch is None else epoch[1].version,
        brokers=await _read_brokers(zk),
        topics=found | {name: _bare(name) for name in names if name not in wanted},
        configs=await _read_configs(zk, sorted(wanted)),
        deleting=frozenset(await zk.children_or_none(layout.DELETE_TOPICS) or []),
        reassigning=frozenset() if not reassignment else frozenset(layout.decode_reassignment(reassignment[0])),
    )


def _bare(name: str) -> ObservedTopic:
    """A topic of which only the name is known, since nobody asked for more."""
    return ObservedTopic(assignment=TopicAssignment(topic=name, partitions={}), version=-1)


async def _read_brokers(zk: ZkClient) -> dict[int, BrokerRegistration]:
    ids = await zk.children_or_none(layout.BROKER_IDS) or []
    znodes = await zk.get_many([layout.broker_path(int(broker)) for broker in ids])
    brokers = {}
    for broker in ids:
        znode = znodes[layout.broker_path(int(broker))]
        if znode is not None:
            brokers[int(broker)] = BrokerRegistration.decode(int(broker), znode[0])
    return dict(sorted(brokers.items()))


async def _read_configs(zk: ZkClient, topics: list[str]) -> dict[str, ObservedConfig]:
    paths = {layout.config_path("topics", topic): topic for topic in topics}
    return {
        paths[path]: ObservedConfig(values=layout.decode_config(path, znode[0]), version=znode[1].version)
        for path, znode in (await zk.get_many(paths)).items()
        if znode is not None
    }


async def _read_topics(zk: ZkClient, topics: list[str]) -> dict[str, ObservedTopic]:
    znodes = await zk.get_many([layout.topic_path(topic) for topic in topics])
    there: dict[str, tuple[TopicAssignment, ZnodeStat]] = {}
    for topic in topics:
        znode = znodes[layout.topic_path(topic)]
        if znode is not None:
            there[topic] = (TopicAssignment.decode(topic, znode[0]), znode[1])
    states = await _read_states(zk, {topic: assignment for topic, (assignment, _) in there.items()})
    return {
        topic: ObservedTopic(assignment=assignment, version=stat.version, states=states[topic])
        for topic, (assignment, stat) in there.items()
    }


async def _read_states(
    zk: ZkClient, assignments: Mapping[str, TopicAssignment]
) -> dict[str, dict[int, PartitionState]]:
    paths = state_paths(assignments)
    states: dict[str, dict[int, PartitionState]] = {topic: {} for topic in assignments}
    for path, znode in (await zk.get_many(paths)).items():
        if znode is not None:
            partition = paths[path]
            states[partition.topic][partition.partition] = PartitionState.decode(partition, znode[0])
    return states
