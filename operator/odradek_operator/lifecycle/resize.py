"""Decides where replicas go if there are fewer brokers or other replication factors. Pure.

`moves` and `cluster_plan` pass a cluster, its partitions and the replication factors, and get targets, the size that
the brokers' StatefulSet may have, and what is refused.

The pods with the highest ordinals are removed, and the brokers of the highest slots. Their replicas move to the
remaining brokers: preferably to a rack that the partition does not cover, then to a machine that it does not cover,
then to the broker with the fewest replicas, then to the lowest id. They keep their position in the replica list, so
that leaders stay balanced. Changes of replication factors use the same order. A replica that is dropped is one whose
broker is missing, else one that is not in sync, else one whose rack has another, else one whose machine has another,
else one on the broker with the most replicas; the preferred leader only if no other can be dropped.

A partition waits while a broker of its target is missing, because its move could not complete and would block others.

If one topic does not fit on the remaining brokers, nothing moves. The StatefulSet shrinks from the highest ordinal, by
pods without replicas, and only while no reassignment is in progress, because it may end on them. Its template loses a
slot under the same conditions: when no broker of the slot has replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.base.topic_rules import machine_of_each
from odradek.base.types import TopicPartition
from odradek_operator.crds import Cluster
from odradek_operator.lifecycle.observed_cluster import KubernetesState
from odradek_operator.lifecycle.replicas import Partition, holders, is_moving, listed
from odradek_operator.lifecycle.steps import Waiting
from odradek_operator.objects import names
from odradek_operator.objects.slots import MAX_PER_POD
from odradek_operator.topics.zookeeper_state import Snapshot


def present_size(cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None = None) -> int:
    """Return the number of pods that the cluster has, or the specified number before it has any.

    It is the larger of the size of the StatefulSet and the record; without a StatefulSet, leftover pods count as well.
    A pod beyond these counts if its brokers have replicas in ZooKeeper and it has a claim: it was removed before it was
    drained. A claim alone does not count, because claims of drained pods are kept.
    """
    return max(known_size(cluster, state) or cluster.brokers.replicas, _undrained(cluster, state, snapshot))


def known_size(cluster: Cluster, state: KubernetesState) -> int:
    """Return the number of pods according to Kubernetes and the record; 0 before there are any."""
    found = state.sets.get(names.kafka(cluster.name))
    if found is not None:
        return max(found.replicas, state.record.brokers or 0)
    left = [ordinal + 1 - cluster.brokers.first_id for ordinal, pod in state.brokers.items() if not pod.terminating]
    return max([_recorded(cluster, state), *left])


def _recorded(cluster: Cluster, state: KubernetesState) -> int:
    """Return the recorded number, without pods at the end that are not specified and have no claims any more.

    Their data is gone, so empty brokers with their ids would not restore it.
    """
    count = state.record.brokers or 0
    if cluster.brokers.volumes:
        while count > cluster.brokers.replicas and not has_claim(cluster, state, cluster.brokers.ordinals(count)[-1]):
            count -= 1
    return count


def _undrained(cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None) -> int:
    """Return how many pods are needed to include each broker that has replicas and a claim; 0 for none.

    In a shared ensemble, brokers beyond the cluster's ids belong to others.
    """
    if snapshot is None or cluster.zookeeper.connect is not None:
        return 0
    ordinals = {cluster.brokers.pod_of(broker) for broker in holders(snapshot) if _has_slot(cluster, broker)}
    first = cluster.brokers.first_id
    return max((ordinal + 1 - first for ordinal in ordinals if has_claim(cluster, state, ordinal)), default=0)


def _has_slot(cluster: Cluster, broker: int) -> bool:
    """Whether a broker with this id may belong to the cluster."""
    return 0 <= cluster.brokers.slot_of(broker) < MAX_PER_POD


def has_claim(cluster: Cluster, state: KubernetesState, ordinal: int) -> bool:
    """Whether a claim of the pod exists and is not being deleted."""
    volumes = cluster.brokers.volumes
    pod = names.broker_pod(cluster.name, ordinal)
    claims = (
        state.claims.get(f"{names.volume_claim_template(volume.id, volumes=len(volumes))}-{pod}") for volume in volumes
    )
    return any(claim is not None and not claim.terminating for claim in claims)


def size(cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None) -> int:
    """Return the number of pods that the StatefulSet may have now. It grows at once, and shrinks only if that is
    safe."""
    present, wanted = present_size(cluster, state, snapshot), cluster.brokers.replicas
    if snapshot is None or is_moving(snapshot) or snapshot.unreadable:
        return max(present, wanted)
    per_pod, used = present_per_pod(cluster, state, snapshot), holders(snapshot)
    while present > wanted and used.isdisjoint(
        cluster.brokers.ids_of_pod(cluster.brokers.ordinals(present)[-1], per_pod)
    ):
        present -= 1
    return max(present, wanted)


def known_per_pod(cluster: Cluster, state: KubernetesState) -> int:
    """Return the largest number of brokers that a pod may have, according to Kubernetes and the record, at least 1."""
    found = state.sets.get(names.kafka(cluster.name))
    pods = [pod.slots for pod in state.brokers.values()]
    return max([1, state.record.per_pod or 1, *pods, *([] if found is None else [found.slots])])


def present_per_pod(cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None) -> int:
    """Return the largest number of brokers that a pod may have, including brokers with replicas and those to add."""
    return max(known_per_pod(cluster, state), per_pod(cluster, state, snapshot))


def per_pod(cluster: Cluster, state: KubernetesState, snapshot: Snapshot | None) -> int:
    """Return the number of brokers that the template of the pods may have now. It grows at once, and shrinks only if
    that is safe."""
    wanted = cluster.brokers.per_pod
    found = state.sets.get(names.kafka(cluster.name))
    present = known_per_pod(cluster, state) if found is None else found.slots
    if snapshot is None:
        return max(present, wanted)
    needed = max(wanted, _used_slots(cluster, state, snapshot))
    return max(present, needed) if is_moving(snapshot) or snapshot.unreadable else needed


def _used_slots(cluster: Cluster, state: KubernetesState, snapshot: Snapshot) -> int:
    """Return how many slots are needed to include each broker that has replicas; 0 for none.

    A broker without a pod and a claim has lost its data. In a shared ensemble, brokers beyond those that the cluster is
    known to have belong to others.
    """
    if cluster.zookeeper.connect is not None:
        known = cluster.brokers.ids(known_size(cluster, state), known_per_pod(cluster, state))
        ours = holders(snapshot) & known
    else:
        ours = frozenset(broker for broker in holders(snapshot) if _has_slot(cluster, broker))
    return max(
        (
            cluster.brokers.slot_of(broker) + 1
            for broker in ours
            if (ordinal := cluster.brokers.pod_of(broker)) in state.brokers or has_claim(cluster, state, ordinal)
        ),
        default=0,
    )


def leaving(
    cluster: Cluster, present: int, partitions: Iterable[Partition], *, per_pod: int | None = None
) -> frozenset[int]:
    """Return the brokers that must be drained. `present` and `per_pod`: the pods, and the brokers of each.

    In the cluster's own ensemble, ids beyond its StatefulSet are of brokers that were removed too early. In a shared
    ensemble they belong to others.
    """
    beyond = cluster.brokers.ids(present, per_pod) - cluster.brokers.ids()
    if cluster.zookeeper.connect is not None:
        return beyond
    used = {broker for partition in partitions for broker in partition.target}
    return beyond | (used - cluster.brokers.ids())


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized:
    """The targets of replicas."""

    targets: Mapping[TopicPartition, tuple[int, ...]]
    """Target replicas of partitions that have to move and can move now."""
    stuck: tuple[TopicPartition, ...]
    """Partitions that cannot move: they have no leader, or brokers of their target are missing."""
    waiting: tuple[Waiting, ...]
    """Changes that are refused."""
    drains: bool
    """Whether some of `targets` drain a broker."""


def resized(
    cluster: Cluster,
    snapshot: Snapshot,
    partitions: Sequence[Partition],
    *,
    gone: frozenset[int],
    factors: Mapping[str, int],
) -> Resized:
    """Return the targets without the brokers `gone`, and with these replication factors by topic."""
    staying = sorted(cluster.brokers.ids())
    fitting, waiting = _fitting(partitions, staying, gone, factors)
    misfits = sorted(
        {
            one.name.topic
            for one in partitions
            if _max_replicas(one, staying, gone) < fitting.get(one.name.topic, len(one.target))
        }
    )
    if misfits and gone:
        waiting.append(_does_not_fit(partitions, misfits, cluster, gone))
        gone = frozenset()
    choice = _Choice(
        candidates=[broker for broker in staying if broker in snapshot.brokers],
        racks=snapshot.racks(),
        machines=snapshot.machines(),
        pods={broker: cluster.brokers.pod_of(broker) for broker in staying},
        load=Counter(broker for one in partitions for broker in one.target if broker not in gone),
    )
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    stuck = []
    for one in partitions:
        factor = fitting.get(one.name.topic, len(one.target))
        if len(one.target) == factor and gone.isdisjoint(one.target):
            continue
        target = choice.replicas(one, factor, gone) if one.is_led(snapshot.brokers) else None
        if target is None or not all(broker in snapshot.brokers for broker in target):
            stuck.append(one.name)
        elif target != one.target:
            targets[one.name] = target
    drains = any(not gone.isdisjoint(one.target) for one in partitions if one.name in targets)
    return Resized(targets=targets, stuck=tuple(stuck), waiting=tuple(waiting), drains=drains)


def _max_replicas(partition: Partition, staying: Iterable[int], gone: Collection[int]) -> int:
    """Return the maximum number of replicas of the partition."""
    return len(set(staying) | {broker for broker in partition.target if broker not in gone})


def _fitting(
    partitions: Sequence[Partition], staying: Sequence[int], gone: Collection[int], factors: Mapping[str, int]
) -> tuple[dict[str, int], list[Waiting]]:
    """Return the replication factors that are possible, and a refusal for each other one."""
    fitting = {topic: factor for topic, factor in factors.items() if factor >= 1}
    waiting = []
    for one in partitions:
        factor = fitting.get(one.name.topic, 0)
        if factor > len(one.target) and factor > _max_replicas(one, staying, gone):
            waiting.append(
                Waiting(
                    what="replication-factor",
                    reason="NotEnoughBrokers",
                    message=f"Topic {one.name.topic} cannot have {factor} replicas on {len(staying)} brokers.",
                    needs_person=True,
                )
            )
            del fitting[one.name.topic]
    return fitting, waiting


def _does_not_fit(
    partitions: Iterable[Partition], misfits: Sequence[str], cluster: Cluster, gone: Iterable[int]
) -> Waiting:
    first, remaining = misfits[0], len(cluster.brokers.ids())
    factor = max(len(one.target) for one in partitions if one.name.topic == first)
    others = f" (and {len(misfits) - 1} other topics do not fit either)" if len(misfits) > 1 else ""
    return Waiting(
        what="scale-in",
        reason="ReplicasDoNotFit",
        message=f"{listed(gone).capitalize()} cannot be drained: topic {first} has {factor} replicas, and "
        f"{remaining} brokers would remain{others}. Lower its replication factor, or keep the brokers.",
        needs_person=True,
    )


class _Choice:
    """Chooses brokers for the replicas of one partition after the other, and counts each choice."""

    __slots__ = ("_aware", "_candidates", "_dark", "_load", "_machines", "_pods", "_racks")

    def __init__(
        self,
        *,
        candidates: Sequence[int],
        racks: Mapping[int, str | None],
        machines: Mapping[int, str],
        pods: Mapping[int, int],
        load: Counter[int],
    ) -> None:
        """`pods`: the pod of each broker that stays."""
        self._candidates = candidates
        self._racks = racks
        self._machines = machines
        self._pods = pods
        self._dark = set(pods.values()) - {pods[broker] for broker in candidates}
        """Pods of which no broker is registered."""
        self._load = load
        self._aware = all(racks[broker] is not None for broker in candidates)

    def replicas(self, partition: Partition, factor: int, gone: Collection[int]) -> tuple[int, ...] | None:
        """Return the target replicas, preferred leader first; None while too few brokers are registered."""
        slots: list[int | None] = [None if broker in gone else broker for broker in partition.target]
        while len(slots) > factor and None in slots:
            slots.remove(None)
        while len(slots) > factor:
            slots.remove(self._least_needed([broker for broker in slots if broker is not None], partition))
        slots += [None] * (factor - len(slots))
        for index, broker in enumerate(slots):
            if broker is None:
                slots[index] = self._best([other for other in slots if other is not None])
                if slots[index] is None:
                    return None
        chosen = tuple(broker for broker in slots if broker is not None)
        self._load.update(broker for broker in chosen if broker not in partition.target)
        self._load.subtract(broker for broker in partition.target if broker not in chosen and broker not in gone)
        return chosen

    def _best(self, taken: Collection[int]) -> int | None:
        racks = [self._racks.get(broker) for broker in taken]
        machines = machine_of_each({*taken, *self._candidates}, self._machines)
        used, pods = [machines[broker] for broker in taken], [self._pods.get(broker) for broker in taken]

        def cost(broker: int) -> tuple[int, int, int, int, int]:
            shares_rack = racks.count(self._racks[broker]) if self._aware else 0
            shares_pod = pods.count(self._pods[broker])
            return shares_rack, used.count(machines[broker]), shares_pod, self._load[broker], broker

        best = min((broker for broker in self._candidates if broker not in taken), key=cost, default=None)
        # A pod that is only down for a moment can have the replica soon. Then no pod needs two.
        if best is not None and self._pods[best] in pods and self._dark.difference(pods):
            return None
        return best

    def _least_needed(self, present: Sequence[int], partition: Partition) -> int:
        racks = [self._racks.get(broker) for broker in present]
        machines = machine_of_each(present, self._machines)
        places = list(machines.values())
        pods = [self._pods.get(broker, -1 - broker) for broker in present]

        def need(broker: int) -> tuple[bool, bool, bool, bool, bool, bool, int, int]:
            alone = self._aware and racks.count(self._racks.get(broker)) == 1
            live, in_sync = broker in self._racks, broker in partition.in_sync
            apart = places.count(machines[broker]) == 1
            only = pods.count(self._pods.get(broker, -1 - broker)) == 1
            return live, in_sync, broker == present[0], alone, apart, only, -self._load[broker], -present.index(broker)

        return min(present, key=need)
