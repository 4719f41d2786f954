"""Checks whether a cluster is whole: all brokers serve, partitions have a leader and a full ISR, nothing is pending.

`verdict` uses it, and so does any code that waits for an idle cluster. It reads the tree of the ensemble and the state
of the brokers without requests. Invariant: the check changes nothing.
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
"""Maximum number of reported problems; further ones usually have the same cause."""


class Tree:
    """The znodes with the desired state of the cluster."""

    def __init__(self, world: World) -> None:
        """Read the current tree."""
        self._tree: Final = world.ensemble.tree

    def data(self, path: str) -> bytes | None:
        """Return the data of a znode; None if it does not exist."""
        node = self._tree.nodes.get(path)
        return None if node is None else node.data

    def children(self, path: str) -> list[str]:
        """Return the names of the children, sorted."""
        return self._tree.children(path) if path in self._tree.nodes else []

    def assignments(self) -> dict[TopicPartition, layout.ReplicaAssignment]:
        """Return the replicas of all partitions."""
        found = {}
        for topic in self.children(layout.TOPICS):
            data = self.data(layout.topic_path(topic))
            if data is not None:
                for number, assignment in layout.TopicAssignment.decode(topic, data).partitions.items():
                    found[TopicPartition(topic, number)] = assignment
        return found

    def state(self, partition: TopicPartition) -> layout.PartitionState | None:
        """Return leader and ISR of a partition."""
        data = self.data(layout.partition_state_path(partition))
        return None if data is None else layout.PartitionState.decode(partition, data)

    def controller(self) -> int | None:
        """Return the id of the broker in `/controller`."""
        data = self.data(layout.CONTROLLER)
        return None if data is None else layout.ControllerRegistration.decode(data).broker_id


def missing(world: World) -> list[str]:
    """Return the first few problems of the cluster; empty if it is whole."""
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
            yield f"{path} exists"
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
        yield f"/controller has broker {named}, but the active controllers are {active}"


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
        yield f"{partition} has the ISR {state.isr} of {assignment.replicas}"
    leader = world.machines[state.leader].partitions().get(partition)
    if leader is None or not leader.is_leader:
        yield f"broker {state.leader} is not the leader of {partition}"
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
        yield f"{machine.name} has the ISR {replica.in_sync} of {partition}, not {state.isr}"
    end = leader.log.log_end_offset
    if not replica.high_watermark == replica.log.log_end_offset == end:
        yield (
            f"{machine.name} is at {replica.high_watermark} of {replica.log.log_end_offset} in {partition}, "
            f"its leader at {end}"
        )
