"""Decides whether the pods of a component must be spread over nodes, and reports where they are not. Pure.

`cluster_plan` gets the components with mandatory spread constraints, a step for a pod that is unschedulable because of
a constraint that no longer applies, and messages about nodes that run several pods.

The scheduler spreads pods evenly over nodes (`objects/podspec`), whatever the number of nodes. But it ignores volumes:
a pod whose disk is on a node with another pod would be unschedulable while a third node is empty. In that case the
constraint is omitted. It is not part of the restart hash: it affects pods that are being scheduled, not running ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from odradek_operator.crds import Cluster, PodTemplate, Spread
from odradek_operator.lifecycle.observed_cluster import KubernetesState, Pod
from odradek_operator.lifecycle.replicas import listed
from odradek_operator.lifecycle.steps import RestartPod
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.storage import volume_sizes
from odradek_operator.topics.zookeeper_state import Snapshot

MAX_NOTICES = 4
"""Maximum number of nodes of one component, or of topics, that are reported individually."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    component: Component
    set_name: str
    pods: Mapping[int, Pod]
    spread: Spread
    template: PodTemplate
    claims: Mapping[int, tuple[str, ...]]
    """Names of the claims of each pod, by ordinal number."""


def demanded(cluster: Cluster, state: KubernetesState, *, broker_count: int) -> frozenset[Component]:
    """Return the components whose pods must be spread over nodes."""
    return frozenset(
        kind.component
        for kind in _kinds(cluster, state, broker_count)
        if kind.spread is Spread.REQUIRED
        and "podAntiAffinity" not in (kind.template.affinity or {})
        and _volumes_allow(state, kind)
    )


def obsolete(cluster: Cluster, state: KubernetesState, *, broker_count: int) -> RestartPod | None:
    """Return the first pod that is unschedulable because of a constraint that its StatefulSet no longer has."""
    for kind in _kinds(cluster, state, broker_count):
        found = state.sets.get(kind.set_name)
        if found is None or found.spread or not found.generation_observed:
            continue
        for ordinal, pod in sorted(kind.pods.items()):
            if pod.spread and pod.node is None and pod.unscheduled_since is not None and not pod.terminating:
                return RestartPod(
                    component=kind.component,
                    ordinal=ordinal,
                    pod=pod.name,
                    uid=pod.uid,
                    reason=f"{pod.name} fits on no node, and no longer has to be spread over nodes",
                )
    return None


def notices(cluster: Cluster, state: KubernetesState, *, broker_count: int) -> tuple[str, ...]:
    """Return a message about each node that runs several brokers, or several members of the ensemble."""
    found = []
    for kind in _kinds(cluster, state, broker_count):
        shared = list(_shared(kind))
        for node, numbers in shared[:MAX_NOTICES]:
            who = listed(numbers).capitalize()
            if cluster.brokers.per_pod > 1:
                who = f"Pods {' and '.join(kind.pods[number].name for number in numbers)}"
            if kind.component is Component.ZOOKEEPER:
                who = f"ZooKeeper members {' and '.join(map(str, numbers))}"
            bound = " Their volumes are on it, so they stay there." if _are_tied(state, kind, numbers, node) else ""
            loss = "both" if len(numbers) == 2 else f"all {len(numbers)}"
            found.append(f"{who} run on node {node}: its loss takes {loss}.{bound}")
        if len(shared) > MAX_NOTICES:
            found.append(f"{len(shared) - MAX_NOTICES} more nodes run several pods of {kind.set_name}.")
    return tuple(found)


def crowded_topics(cluster: Cluster, snapshot: Snapshot) -> dict[str, str]:
    """Return a message about each topic with more replicas than pods, by topic, if pods have several brokers.

    `odradek up` and the operator report the same message. A broker of others has a pod to itself, so a topic that also
    has replicas on such brokers may have enough pods.
    """
    brokers = cluster.brokers
    if brokers.per_pod == 1:
        return {}
    pods = {broker: brokers.pod_of(broker) for broker in brokers.ids()}

    def share(replicas: tuple[int, ...]) -> bool:
        used = [pods[broker] for broker in replicas if broker in pods]
        return len(set(used)) < len(used)

    return {
        name: _crowded(name, topic.replication_factor, brokers.replicas)
        for name, topic in sorted(snapshot.topics.items())
        if topic.replication_factor > brokers.replicas
        and any(share(part.target) for part in topic.assignment.partitions.values())
    }


def _crowded(topic: str, factor: int, pods: int) -> str:
    return (
        f"Topic {topic} has {factor} replicas, and spec.brokers.replicas is {pods}: several replicas of a partition "
        "fail together with one pod, or with one group of processes of odradek up. Set spec.brokers.replicas to at "
        f"least {factor}, or give the topic at most {pods} {'replica' if pods == 1 else 'replicas'}."
    )


def crowded_notices(crowded: Mapping[str, str]) -> tuple[str, ...]:
    """Return the first messages of `crowded_topics`, and the number of the others."""
    found = list(crowded.values())
    more = len(found) - MAX_NOTICES
    noun = "topic has" if more == 1 else "topics have"
    others = [f"{more} more {noun} more replicas than there are pods."] if more > 0 else []
    return (*found[:MAX_NOTICES], *others)


def _are_tied(state: KubernetesState, kind: _Kind, numbers: list[int], node: str) -> bool:
    claims = [kind.claims[number] for number in numbers if number in kind.claims]
    return any(_reach(state, names_of) == frozenset({node}) for names_of in claims)


def _kinds(cluster: Cluster, state: KubernetesState, broker_count: int) -> list[_Kind]:
    brokers, zookeeper = cluster.brokers, cluster.zookeeper
    sizes = volume_sizes(cluster, broker_count=broker_count)

    def kind(
        component: Component, set_name: str, pods: Mapping[int, Pod], spread: Spread, template: PodTemplate
    ) -> _Kind:
        volumes = [volume.claims for volume in sizes if volume.stateful_set == set_name]
        return _Kind(
            component=component,
            set_name=set_name,
            pods=pods,
            spread=spread,
            template=template,
            claims={number: tuple(each[number] for each in volumes) for number in (volumes[0] if volumes else ())},
        )

    kinds = [kind(Component.KAFKA, names.kafka(cluster.name), state.brokers, brokers.spread, brokers.template)]
    if zookeeper.connect is None:
        name = names.zookeeper(cluster.name)
        kinds.append(kind(Component.ZOOKEEPER, name, state.ensemble, zookeeper.spread, zookeeper.template))
    return kinds


def _volumes_allow(state: KubernetesState, kind: _Kind) -> bool:
    """Whether each pod whose volumes are bound to nodes can run on one of them without another pod of its kind.

    A pod whose nodes are all missing is unschedulable in any case and is ignored.
    """
    reaches = {ordinal: _reach(state, claims) for ordinal, claims in kind.claims.items()}
    places = {ordinal: _place(kind.pods.get(ordinal), reach) for ordinal, reach in reaches.items()}
    for ordinal, reach in reaches.items():
        if reach is None:
            continue
        there = {node for node in reach if node in state.nodes and state.nodes[node].ready}
        if there and there <= {place for other, place in places.items() if other != ordinal}:
            return False
    return True


def _place(pod: Pod | None, reach: frozenset[str] | None) -> str | None:
    """Return the node of a pod: where it runs, or the only node where it can run."""
    if pod is not None and pod.node is not None:
        return pod.node
    return next(iter(reach)) if reach is not None and len(reach) == 1 else None


def _reach(state: KubernetesState, claims: tuple[str, ...]) -> frozenset[str] | None:
    """Return the nodes that can use all volumes of a pod; None for all nodes."""
    reaches = [state.claims[name].reach for name in claims if name in state.claims]
    bounded = [one for one in reaches if one is not None]
    return frozenset.intersection(*bounded) if bounded else None


def _shared(kind: _Kind) -> Iterator[tuple[str, list[int]]]:
    """Yield the nodes with several pods, by name, with the numbers of the pods."""
    by_node: dict[str, list[int]] = {}
    for number, pod in sorted(kind.pods.items()):
        if pod.node is not None and not pod.terminating:
            by_node.setdefault(pod.node, []).append(number)
    return ((node, numbers) for node, numbers in sorted(by_node.items()) if len(numbers) > 1)
