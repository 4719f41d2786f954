"""Whether a cluster is whole: everybody serves, every partition is led and fully in sync, nothing is half done.

A `World` enters; what is still missing leaves, in words. Called by `verdict` and whoever must wait for a quiet cluster.
It looks into the ensemble's tree and into the brokers, and asks nobody. Invariant: looking changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.base.types import TopicPartition
from odradek.replication.partition import Role
from odradek.replication.partition_table import HostedPartition
from odradek.zk import layout
from odradek_testkit.simulation.world import Machine, World

_TOLD: Final = 12
"""What is missing is told up to this many; the rest has the same cause."""


class Tree:
    """The ensemble's znodes that say what the cluster should be."""

    def __init__(self, world: World) -> None:
        """A look at what is there now."""
        self._tree: Final = world.ensemble.tree

    def data(self, path: str) -> bytes | None:
        """A znode's data; None when there is none."""
        node = self._tree.nodes.get(path)
        return None if node is None else node.data

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted."""
        return self._tree.children(path) if path in self._tree.nodes else []

    def assignments(self) -> dict[TopicPartition, layout.ReplicaAssignment]:
        """The replicas of every partition of every topic."""
        found = {}
        for topic in self.children(layout.TOPICS):
            data = self.data(layout.topic_path(topic))
            if data is not None:
                for number, assignment in layout.TopicAssignment.decode(topic, data).partitions.items():
                    found[TopicPartition(topic, number)] = assignment
        return found

    def state(self, partition: TopicPartition) -> layout.PartitionState | None:
        """Who leads a partition, and who is in sync."""
        data = self.data(layout.partition_state_path(partition))
        return None if data is None else layout.PartitionState.decode(partition, data)

    def controller(self) -> int | None:
        """The broker that `/controller` names."""
        data = self.data(layout.CONTROLLER)
        return None if data is None else layout.ControllerRegistration.decode(data).broker_id


def missing(world: World) -> list[str]:
    """What keeps the cluster from being whole, the first few things; nothing when it is."""
    found = []
    for what in _missing(world, Tree(world)):
        found.append(what)
        if len(found) == _TOLD:
            break
    return found


def _missing(world: World, tree: Tree) -> Iterator[str]:
    yield from _brokers(world, tree)
    yield from _controllers(world, tree)
    for path in (layout.DELETE_TOPICS, layout.ISR_CHANGES):
        if tree.children(path):
            yield f"{path} has {', '.join(tree.children(path))}"
    for path in (layout.REASSIGN_PARTITIONS, layout.PREFERRED_ELECTION):
        if tree.data(path) is not None:
            yield f"{path} is there"
    assignments = tree.assignments()
    for partition, assignment in assignments.items():
        yield from _partition(world, tree.state(partition), partition, assignment)
    for machine in world.machines:
        for partition in machine.partitions():
            if partition not in assignments or machine.broker_id not in assignments[partition].replicas:
                yield f"{machine.name} still has {partition}"


def _brokers(world: World, tree: Tree) -> Iterator[str]:
    for machine in world.machines:
        if not machine.is_serving:
            state = "off" if machine.broker is None else machine.broker.state.name
            yield f"{machine.name} does not serve: {state}"
    registered = tree.children(layout.BROKER_IDS)
    if len(registered) != len(world.machines):
        yield f"only {', '.join(registered)} are registered"


def _controllers(world: World, tree: Tree) -> Iterator[str]:
    named = tree.controller()
    active = [
        machine.broker_id
        for machine in world.machines
        if machine.is_serving and machine.broker is not None and machine.broker.controller.is_active
    ]
    if active != [named]:
        yield f"/controller names {named}, and {active} are active"


def _partition(
    world: World,
    state: layout.PartitionState | None,
    partition: TopicPartition,
    assignment: layout.ReplicaAssignment,
) -> Iterator[str]:
    if assignment.is_being_reassigned:
        yield f"{partition} is being reassigned: {assignment}"
        return
    if state is None or state.leader not in assignment.replicas:
        yield f"{partition} has no leader: {state}"
        return
    if sorted(state.isr) != sorted(assignment.replicas):
        yield f"{partition} has {state.isr} of {assignment.replicas} in sync"
    leader = world.machines[state.leader].partitions().get(partition)
    if leader is None or not leader.is_leader:
        yield f"broker {state.leader} does not lead {partition}"
        return
    for broker in assignment.replicas:
        yield from _replica(world.machines[broker], state, leader)


def _replica(machine: Machine, state: layout.PartitionState, leader: HostedPartition) -> Iterator[str]:
    partition = leader.topic_partition
    replica = machine.partitions().get(partition)
    if replica is None:
        yield f"{machine.name} has no {partition}"
        return
    role = Role.LEADER if machine.broker_id == state.leader else Role.FOLLOWER
    if replica.role is not role or replica.leader_epoch != state.leader_epoch:
        yield (
            f"{machine.name} is {replica.role.value} of {partition} in epoch {replica.leader_epoch}, "
            f"not {role.value} in {state.leader_epoch}"
        )
    if replica is leader and sorted(replica.in_sync.committed) != sorted(state.isr):
        yield f"{machine.name} knows {replica.in_sync} of {partition}, not {state.isr}"
    end = leader.log.log_end_offset
    if not replica.high_watermark == replica.log.log_end_offset == end:
        yield (
            f"{machine.name} is at {replica.high_watermark} of {replica.log.log_end_offset} in {partition}, "
            f"its leader at {end}"
        )
