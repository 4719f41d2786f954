"""A model of a small cluster for tests of decisions: pods, disks, nodes, in-sync replicas and reassignments.

`World` models Kubernetes, ZooKeeper and the brokers. Public methods are single events, so that a test can combine them
in any order. `observe` and `snapshot` return what the operator sees. `round` decides and carries out the decision,
completely or, to simulate a crash, only its first writes. Assertions in the methods that carry out steps detect
forbidden states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.base.types import Endpoint, TopicPartition
from odradek.zk.layout import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from odradek.zk.ownership import BrokersOwnership, ManagedBrokers
from odradek_operator.crds import Brokers, Cluster, Rebalance, Volume, ZooKeeper
from odradek_operator.lifecycle import cluster_plan as plan
from odradek_operator.lifecycle.observed_cluster import Claim, KubernetesState, Node, Pod, Quorum, Set
from odradek_operator.lifecycle.steps import (
    ClusterDecision,
    LiftThrottle,
    MoveReplicas,
    RecordBrokers,
    ReleaseClaims,
    RestartPod,
    SetBrokerDefaults,
    Step,
)
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.topics.zookeeper_state import ObservedBrokersRecord, ObservedConfig, ObservedTopic, Snapshot

NAME = "demo"
KAFKA, ZOOKEEPER = names.kafka(NAME), names.zookeeper(NAME)
DEFAULTS = "<default>"
MAX_SLOTS = 3  # in these tests


@dataclass(slots=True)
class PodModel:
    uid: str
    hash: str
    node: str | None = None
    """None while the pod is Pending."""
    ready: bool = False
    terminating: bool = False
    pending_since: float | None = None
    slots: int = 1
    """Number of its brokers."""


@dataclass(slots=True)
class PartitionModel:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(slots=True)
class World:
    cluster: Cluster
    racks: Mapping[int, str] = field(default_factory=dict)
    hash: str = "a"
    """The restart hash of the current templates of both sets."""
    now: float = 1_000.0
    pods: dict[int, PodModel] = field(default_factory=dict)
    """The pods of brokers, by ordinal."""
    members: dict[int, PodModel] = field(default_factory=dict)
    sets: dict[str, Set] = field(default_factory=dict)
    claims: dict[int, str] = field(default_factory=dict)
    """The node to which the disk of each broker is tied."""
    member_claims: dict[int, str] = field(default_factory=dict)
    """The node to which the disk of each member of the ensemble is tied."""
    bad_nodes: dict[str, float] = field(default_factory=dict)
    """Nodes that do not answer, and since when."""
    registered: set[int] = field(default_factory=set)
    controller: int | None = None
    leader: int = 0
    """The ordinal of the leader of the ensemble."""
    topics: dict[str, dict[int, PartitionModel]] = field(default_factory=dict)
    asked: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    record: ManagedBrokers | None = field(default_factory=lambda: ManagedBrokers(clusters={"": BrokersOwnership()}))
    """The record in ZooKeeper of the keys and broker ids that each cluster owns."""
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    minimum: dict[str, int] = field(default_factory=dict)
    factors: dict[str, int] = field(default_factory=dict)
    dynamic: dict[str, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    """Restart hashes of templates with which no pod becomes ready."""
    away: set[tuple[Component, int]] = field(default_factory=set)
    """Pods that were serving when the operator deleted them, and whose replacements do not serve yet."""
    made: int = 0

    # Observation

    def observe(self) -> KubernetesState:
        kafka = {broker: self._pod(KAFKA, broker, pod) for broker, pod in sorted(self.pods.items())}
        zookeeper = {number: self._pod(ZOOKEEPER, number, pod) for number, pod in sorted(self.members.items())}
        disks = {KAFKA: self.claims, ZOOKEEPER: self.member_claims}
        nodes = {*self.claims.values(), *self.member_claims.values(), *self.bad_nodes}
        return KubernetesState(
            brokers=kafka,
            ensemble=zookeeper,
            claims={
                claim.name: claim
                for set_name, nodes_of in disks.items()
                for number, node in nodes_of.items()
                for claim in [
                    Claim(
                        name=f"data-{set_name}-{number}",
                        uid=f"claim-{set_name}-{number}-{node}",
                        volume=f"volume-{node}",
                        nodes=(node,),
                        lost=False,
                        terminating=False,
                    )
                ]
            },
            nodes={
                node: Node(name=node, ready=node not in self.bad_nodes, changed_at=self.bad_nodes.get(node, 0.0))
                for node in sorted(nodes)
            },
            sets=dict(self.sets),
        )

    def _pod(self, set_name: str, ordinal: int, pod: PodModel) -> Pod:
        return Pod(
            name=f"{set_name}-{ordinal}",
            uid=pod.uid,
            ordinal=ordinal,
            node=pod.node,
            ready=pod.ready,
            terminating=pod.terminating,
            restart_hash=pod.hash,
            phase="Pending" if pod.node is None else "Running",
            trouble="",
            unscheduled_since=pod.pending_since,
            claims=(f"data-{set_name}-{ordinal}",),
            slots=pod.slots,
        )

    def brokers_hash(self, per_pod: int) -> str:
        """Return the restart hash of the template with this number of brokers in a pod."""
        return self.hash if per_pod == 1 else f"{self.hash}-{per_pod}"

    def group(self, ordinal: int) -> tuple[int, ...]:
        """Return the ids of the brokers that a pod may have."""
        return self.cluster.brokers.ids_of_pod(ordinal, MAX_SLOTS)

    def brokers_of(self, ordinal: int) -> tuple[int, ...]:
        """Return the ids of the brokers that a pod has; none without a pod."""
        return self.cluster.brokers.ids_of_pod(ordinal, self.pods[ordinal].slots) if ordinal in self.pods else ()

    def modes(self) -> dict[int, str]:
        up = [number for number, pod in self.members.items() if pod.ready and not pod.terminating]
        if len(up) <= self.cluster.zookeeper.replicas // 2:
            return {}
        return {number: "leader" if number == self.leader else "follower" for number in up}

    def quorum(self) -> Quorum:
        modes = self.modes()
        return Quorum(modes=modes, followers=len(modes) - 1 if self.leader in modes else None)

    def snapshot(self) -> Snapshot | None:
        if self.leader not in self.modes():
            return None
        return Snapshot(
            controller_id=self.controller,
            controller_epoch=1,
            controller_epoch_version=1,
            brokers={
                broker: BrokerRegistration(
                    broker_id=broker,
                    endpoints=(Endpoint("R", "h", 9091),),
                    rack=self.racks.get(broker % 1000),
                    machine=f"machine-{broker % 1000}",
                )
                for broker in sorted(self.registered)
            },
            topics={topic: self._topic(topic) for topic in self.topics},
            configs={
                topic: ObservedConfig(values=values, version=1)
                for topic in self.topics
                if (
                    values := self.overrides.get(topic, {})
                    | ({"min.insync.replicas": str(self.minimum[topic])} if topic in self.minimum else {})
                )
            },
            broker_configs={DEFAULTS: ObservedConfig(values=dict(self.defaults), version=1)},
            brokers_record=None if self.record is None else ObservedBrokersRecord(record=self.record, version=1),
            reassigning=frozenset(self.asked),
        )

    def _topic(self, topic: str) -> ObservedTopic:
        partitions = self.topics[topic]
        return ObservedTopic(
            assignment=TopicAssignment(
                topic=topic,
                partitions={
                    number: ReplicaAssignment(replicas=one.replicas, adding=one.adding, removing=one.removing)
                    for number, one in partitions.items()
                },
            ),
            version=1,
            states={
                number: PartitionState(leader=one.leader, leader_epoch=0, isr=one.isr, controller_epoch=1)
                for number, one in partitions.items()
            },
        )

    # Operator

    def decide(self) -> ClusterDecision:
        state, snapshot = self.observe(), self.snapshot()
        per_pod = plan.per_pod_now(self.cluster, state, snapshot)
        return plan.decide(
            self.cluster,
            state,
            snapshot,
            wanted_hashes={KAFKA: self.brokers_hash(per_pod), ZOOKEEPER: self.hash},
            wanted_dynamic=self.dynamic,
            wanted_factors=self.factors,
            quorum=self.quorum(),
            now=self.now,
        )

    def round(self, *, dies_after: int | None = None) -> ClusterDecision:
        """Run one round. With `dies_after`, kill it after this many writes. The StatefulSets are the first write."""
        decision = self.decide()
        sizes = (decision.broker_count, decision.per_pod)
        writes: list[Step | tuple[int, int]] = [*(() if dies_after == 0 else (sizes,)), *decision.steps]
        for write in writes[:dies_after]:
            if isinstance(write, tuple):
                self._apply_sets(*write)
            else:
                self._carry_out(write)
        return decision

    def _apply_sets(self, count: int, per_pod: int) -> None:
        before = self.sets[KAFKA]
        kept = self.cluster.brokers.ids(count, per_pod)
        for broker in self.cluster.brokers.ids(before.replicas, before.slots) - kept:
            assert not any(broker in one.replicas for one in self.all_partitions()), (
                f"broker {broker} goes with replicas on it"
            )
        for ordinal in range(count, before.replicas):
            # A removed broker has no replicas and never returns, so nothing may wait for it.
            self.away.discard((Component.KAFKA, ordinal))
        members = self.cluster.zookeeper.replicas
        for name, replicas, slots in ((KAFKA, count, per_pod), (ZOOKEEPER, members, 1)):
            wanted = Set(
                name=name,
                replicas=replicas,
                restart_hash=self.brokers_hash(slots),
                generation_observed=True,
                slots=slots,
            )
            if self.sets.get(name) != wanted:
                self.sets[name] = dataclasses.replace(wanted, generation_observed=False)

    def _carry_out(self, step: Step) -> None:
        match step:
            case RestartPod(component=Component.KAFKA):
                self._check_broker_restart(step.ordinal)
                self._delete(self.pods, step.ordinal, step.uid, force=step.force)
            case RestartPod():
                self._check_member_restart(step.ordinal)
                self._delete(self.members, step.ordinal, step.uid, force=step.force)
            case ReleaseClaims(component=Component.KAFKA):
                self._check_release(step.ordinal)
                del self.claims[step.ordinal]
                if step.pod_uid is not None:
                    self._delete(self.pods, step.ordinal, step.pod_uid, force=step.force)
            case ReleaseClaims():
                self._check_member_release(step.ordinal)
                del self.member_claims[step.ordinal]
                if step.pod_uid is not None:
                    self._delete(self.members, step.ordinal, step.pod_uid, force=step.force)
            case MoveReplicas():
                self._check_moves(step)
                self.defaults |= step.broker_defaults
                for topic, values in step.topic_configs.items():
                    self.overrides.setdefault(topic, {}).update(values)
                self.asked = dict(step.targets)
            case LiftThrottle():
                assert not self.asked
                for key in step.broker_defaults:
                    del self.defaults[key]
                for topic, keys in step.topics.items():
                    for key in keys:
                        del self.overrides[topic][key]
            case SetBrokerDefaults():
                self.defaults = dict(step.config)
                self.record = step.record
            case RecordBrokers():
                self.record = step.record

    def _delete(self, pods: dict[int, PodModel], ordinal: int, uid: str, *, force: bool) -> None:
        assert pods[ordinal].uid == uid
        if force:
            assert pods[ordinal].node in self.bad_nodes, "a pod is killed on a node that is well"
            del pods[ordinal]
        else:
            pods[ordinal].terminating = True

    # Forbidden states

    def _check_broker_restart(self, ordinal: int) -> None:
        pod, group = self.pods[ordinal], set(self.brokers_of(ordinal))
        assert not pod.terminating
        current = self.sets[KAFKA].restart_hash
        assert current.startswith(self.hash), "the template is older"
        assert current != pod.hash, "a restart for nothing"
        if not pod.ready and group.isdisjoint(self.registered):
            return
        assert not self.away, f"{self.away} are away already"
        # A member on a lost node was not stopped by the operator and may never return, so restarts do not wait for it.
        here = [
            member for number, member in self.members.items() if self.member_claims.get(number) not in self.bad_nodes
        ]
        assert all(member.ready for member in here), "brokers and ensemble roll at once"
        for topic, partitions in self.topics.items():
            for number, one in partitions.items():
                if not group.isdisjoint(one.isr):
                    others = [member for member in one.isr if member not in group and member in self.registered]
                    pods = len({member % 1000 for member in [*self.registered, *one.target]})
                    spread = len(one.target) - -(-len(one.target) // pods)
                    needed = min(self.minimum.get(topic, 1), spread)
                    assert len(others) >= needed, f"{topic}-{number} would keep {others} in sync of {one}"
        if pod.ready:
            size = self.sets[KAFKA].replicas
            others_ready = [other for number, other in self.pods.items() if number != ordinal and number < size]
            assert all(other.ready for other in others_ready), "a ready pod goes while another is not ready"
            assert self.registered.issuperset(
                broker for other in self.pods if other < size for broker in self.brokers_of(other)
            )
            if self.controller in group:
                assert all(other.hash == current for other in others_ready), "the controller is not the last"
        self.away.add((Component.KAFKA, ordinal))

    def _check_member_restart(self, number: int) -> None:
        pod = self.members[number]
        assert not pod.terminating
        assert self.sets[ZOOKEEPER].restart_hash == self.hash != pod.hash, "a restart for nothing"
        modes = self.modes()
        if number not in modes:
            return
        assert not self.away, f"{self.away} are away already"
        if self.cluster.zookeeper.replicas > 1:
            assert len(modes) - 1 > self.cluster.zookeeper.replicas // 2, "no majority is left"
            if number == self.leader:
                others = [other for ordinal, other in self.members.items() if ordinal != number]
                assert all(other.hash == self.hash for other in others), "the leader is not the last"
        self.away.add((Component.ZOOKEEPER, number))

    def _check_release(self, ordinal: int) -> None:
        group = set(self.group(ordinal))
        assert group.isdisjoint(self.registered)
        assert self.claims[ordinal] in self.bad_nodes
        assert self.now - self.bad_nodes[self.claims[ordinal]] >= self.cluster.brokers.release_lost_after_seconds > 0
        for one in self.all_partitions():
            if not group.isdisjoint(one.replicas):
                assert (set(one.isr) - group) & self.registered, f"{one} would be lost"

    def _check_member_release(self, member: int) -> None:
        node = self.member_claims[member]
        assert node in self.bad_nodes
        assert self.now - self.bad_nodes[node] >= self.cluster.zookeeper.release_lost_after_seconds > 0
        others = set(range(self.cluster.zookeeper.replicas)) - {member}
        assert others, "the only member"
        assert set(self.modes()) == others, "a disk is given up that may be the only witness of a write"

    def _check_moves(self, step: MoveReplicas) -> None:
        assert not self.asked
        assert not any(one.adding or one.removing for one in self.all_partitions())
        assert 1 <= len(step.targets) <= self.cluster.brokers.rebalance.partitions
        for name, target in step.targets.items():
            present = self.topics[name.topic][name.partition]
            assert len(set(target)) == len(target) >= 1
            assert target != present.replicas, "a move that moves nothing"
            assert set(target) - set(present.replicas) <= self.registered

    def all_partitions(self) -> list[PartitionModel]:
        return [one for partitions in self.topics.values() for one in partitions.values()]

    # Events

    def sets_act(self) -> None:
        """Run the StatefulSet controllers: they observe the templates, create missing pods and delete surplus ones."""
        for name, pods in ((KAFKA, self.pods), (ZOOKEEPER, self.members)):
            found = self.sets[name]
            self.sets[name] = dataclasses.replace(found, generation_observed=True)
            for ordinal in range(found.replicas):
                if ordinal not in pods:
                    self.made += 1
                    pods[ordinal] = PodModel(uid=f"uid-{self.made}", hash=found.restart_hash, slots=found.slots)
            for ordinal in [number for number in pods if number >= found.replicas]:
                pods[ordinal].terminating = True

    def schedule(self) -> None:
        """Assign pending pods to the nodes of their disks, if these are healthy."""
        kinds = ((self.pods, self.claims, "node"), (self.members, self.member_claims, "zoo"))
        for pods, claims, prefix in kinds:
            for ordinal, pod in pods.items():
                if pod.node is not None or pod.terminating:
                    continue
                if ordinal not in claims:
                    self.made += 1
                    claims[ordinal] = f"{prefix}-{self.made}"
                if claims[ordinal] in self.bad_nodes:
                    if pod.pending_since is None:
                        pod.pending_since = self.now
                else:
                    pod.node, pod.pending_since = claims[ordinal], None

    def end(self, component: Component) -> None:
        """Remove the pods that are being deleted, if their node can confirm that they have stopped."""
        pods = self.pods if component is Component.KAFKA else self.members
        for ordinal in [number for number, pod in pods.items() if pod.terminating]:
            if pods[ordinal].node not in self.bad_nodes:
                del pods[ordinal]
                if component is Component.KAFKA:
                    self.registered.difference_update(self.group(ordinal))

    def register(self, broker: int) -> None:
        """Register a broker whose pod runs."""
        slot, ordinal = divmod(broker, 1000)
        pod = self.pods.get(ordinal)
        if pod is not None and slot < pod.slots and self._runs(pod):
            self.registered.add(broker)

    def become_ready(self, component: Component, ordinal: int) -> None:
        """Mark a pod as ready if it runs and all its brokers are registered."""
        pod = (self.pods if component is Component.KAFKA else self.members).get(ordinal)
        known = component is Component.ZOOKEEPER or self.registered.issuperset(self.brokers_of(ordinal))
        if pod is not None and self._runs(pod) and known:
            pod.ready = True
            self.away.discard((component, ordinal))
            if component is Component.ZOOKEEPER and not self._leads():
                self.leader = ordinal

    def _runs(self, pod: PodModel) -> bool:
        on_node = pod.node is not None and pod.node not in self.bad_nodes
        return on_node and not pod.terminating and pod.hash.partition("-")[0] not in self.broken

    def _leads(self) -> bool:
        pod = self.members.get(self.leader)
        return pod is not None and pod.ready and not pod.terminating

    def elect(self) -> None:
        """Elect a leader of the ensemble, a controller and partition leaders, and remove dead brokers from the ISR."""
        if not self._leads():
            ready = [number for number, pod in self.members.items() if pod.ready and not pod.terminating]
            self.leader = max(ready, default=self.leader)
        if self.controller not in self.registered:
            self.controller = max(self.registered, default=None)
        if self.controller is None:
            return
        for one in self.all_partitions():
            live = tuple(member for member in one.isr if member in self.registered)
            if live:
                one.isr = live
                if one.leader not in live:
                    ordered = [member for member in one.replicas if member in live]
                    one.leader = ordered[0] if ordered else live[0]
            else:
                one.leader = -1

    def catch_up(self, pick: int) -> None:
        """Add one replica that has caught up to its ISR."""
        behind = [
            (one, broker)
            for one in self.all_partitions()
            for broker in one.replicas
            if one.leader in self.registered and broker in self.registered and broker not in one.isr
        ]
        if behind:
            one, broker = behind[pick % len(behind)]
            one.isr = (*one.isr, broker)

    def reassign(self) -> None:
        """Start the requested reassignments as the controller does, and complete those whose replicas are in sync."""
        if self.controller not in self.registered:
            return
        for name, target in list(self.asked.items()):
            one = self.topics[name.topic][name.partition]
            if one.target != target:
                origin = tuple(broker for broker in one.replicas if broker not in one.adding)
                one.replicas = tuple(dict.fromkeys([*target, *origin]))
                one.adding = tuple(broker for broker in one.replicas if broker not in origin)
                one.removing = tuple(broker for broker in one.replicas if broker not in target)
            if set(target) <= set(one.isr) and set(target) & self.registered:
                one.replicas, one.adding, one.removing = target, (), ()
                one.isr = tuple(broker for broker in one.isr if broker in target)
                if one.leader not in one.isr:
                    one.leader = next(broker for broker in target if broker in self.registered)
                del self.asked[name]

    def crash(self, broker: int) -> None:
        """The process of a broker exits. Its pod remains and restarts it."""
        if (ordinal := broker % 1000) in self.pods:
            self.pods[ordinal].ready = False
            self.registered.discard(broker)

    def crash_member(self, number: int) -> None:
        """The process of a member of the ensemble exits. Its pod remains and restarts it."""
        if number in self.members:
            self.members[number].ready = False

    def lose_node(self, ordinal: int, *, runs_on: bool = False) -> None:
        """The node with the disk of a pod no longer answers. With `runs_on`, its brokers stay registered."""
        if ordinal in self.claims:
            self.bad_nodes.setdefault(self.claims[ordinal], self.now)
            # From now on, the lost node keeps the brokers down, not the operator.
            self.away.discard((Component.KAFKA, ordinal))
            if not runs_on:
                for broker in self.group(ordinal):
                    self.crash(broker)
            elif ordinal in self.pods:
                self.pods[ordinal].ready = False

    def lose_member_node(self, member: int) -> None:
        """The node with the disk of a member no longer answers, and the member is down."""
        if member in self.member_claims:
            self.bad_nodes.setdefault(self.member_claims[member], self.now)
            self.away.discard((Component.ZOOKEEPER, member))
            self.crash_member(member)

    def regain_nodes(self) -> None:
        """All nodes answer again. The processes that ran on lost nodes have ended."""
        self.bad_nodes.clear()

    def settle(self, *, replicas_too: bool = True) -> None:
        """Run everything that happens sooner or later without faults. Replicas join the ISR last."""
        for _ in range(3):
            self.sets_act()
            for component in Component.KAFKA, Component.ZOOKEEPER:
                self.end(component)
            self.schedule()
            for number in list(self.members):
                self.become_ready(Component.ZOOKEEPER, number)
            for ordinal in list(self.pods):
                for broker in self.brokers_of(ordinal):
                    self.register(broker)
                self.become_ready(Component.KAFKA, ordinal)
            self.elect()
            for one in self.all_partitions():
                if replicas_too and one.leader in self.registered:
                    one.isr += tuple(b for b in one.replicas if b in self.registered and b not in one.isr)
            self.reassign()


def make_world(
    topics: Mapping[str, list[tuple[int, ...]]],
    *,
    brokers: int = 3,
    zookeeper: int = 3,
    racks: Mapping[int, str] | None = None,
    minimum: Mapping[str, int] | None = None,
    portion: int = 2,
    per_pod: int = 1,
) -> World:
    """Return the world of a healthy cluster."""
    cluster = Cluster(
        name=NAME,
        brokers=Brokers(
            replicas=brokers,
            per_pod=per_pod,
            volumes=(Volume(id=0, size="1Gi"),),
            rebalance=Rebalance(partitions=portion, throttle_bytes_per_second=1_000),
        ),
        zookeeper=ZooKeeper(replicas=zookeeper),
    )
    world = World(cluster=cluster, racks=racks or {}, minimum=dict(minimum or {}))
    for name, replicas, slots in ((KAFKA, brokers, per_pod), (ZOOKEEPER, zookeeper, 1)):
        world.sets[name] = Set(
            name=name,
            replicas=replicas,
            restart_hash=world.brokers_hash(slots),
            generation_observed=True,
            slots=slots,
        )
    world.topics = {
        topic: {
            number: PartitionModel(replicas=of_one, isr=of_one, leader=of_one[0])
            for number, of_one in enumerate(partitions)
        }
        for topic, partitions in topics.items()
    }
    world.settle()
    return world
