"""Describes the processes of an embedded cluster as the state on which the operator's decisions are based. Pure.

`broker_processes` reports each broker; `lifecycle/cluster_plan` decides from the result as it does on Kubernetes. A
table in docs/design/0014 lists the Kubernetes object for each part of an embedded cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from odradek_operator.crds import Cluster, Volume
from odradek_operator.lifecycle.dynamic_listeners import BrokerListeners
from odradek_operator.lifecycle.observed_cluster import Claim, KubernetesState, Node, Pod, Record, Set
from odradek_operator.objects import names

CURRENT: Final = "current"
"""Restart hash of a broker that needs no restart."""
OLDER: Final = "older"

_HOST: Final = "localhost"
_FOLDER_SIZE: Final = "1Gi"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBroker:
    """A broker that `odradek up` runs."""

    broker: int
    process: int | None
    """Process id; None if it does not run."""
    ready: bool
    changed: tuple[str, ...] = ()
    """Names of the properties that differ from those of the running process and take a restart."""
    trouble: str = ""
    """Why it is not ready, as a message; empty if unknown."""
    listeners: BrokerListeners | None = None
    """None if it does not run."""


def local_cluster(cluster: Cluster) -> Cluster:
    """Return the cluster as it runs on one machine: one ZooKeeper server, and a volume for each broker."""
    volumes = cluster.brokers.volumes or (Volume(id=0, size=_FOLDER_SIZE),)
    return replace(
        cluster,
        uid=f"{cluster.namespace}/{cluster.name}",
        brokers=replace(cluster.brokers, volumes=volumes),
        zookeeper=replace(cluster.zookeeper, replicas=1),
    )


def kubernetes_state(
    cluster: Cluster,
    brokers: Iterable[ObservedBroker],
    *,
    count: int | None,
    per_pod: int = 1,
    stored: Collection[int],
    record: Record,
) -> KubernetesState:
    """Return the state of a `local_cluster`. A group of brokers has the place of a pod.

    `count`: the number of groups that `odradek up` runs; None before it has started any. `per_pod`: the number of
    brokers in each. `stored`: the ids of the brokers that have volumes in the data folder.
    """
    kafka, zookeeper = names.kafka(cluster.name), names.zookeeper(cluster.name)
    sets = {zookeeper: _set(zookeeper, 1)}
    if count is not None:
        sets[kafka] = replace(_set(kafka, count), slots=per_pod)
    volumes = cluster.brokers.volumes
    claims = [
        f"{names.volume_claim_template(volume.id, volumes=len(volumes))}-{names.broker_pod(cluster.name, ordinal)}"
        for ordinal in sorted({cluster.brokers.pod_of(broker) for broker in stored})
        for volume in volumes
    ]
    groups: dict[int, list[ObservedBroker]] = {}
    for one in brokers:
        groups.setdefault(cluster.brokers.pod_of(one.broker), []).append(one)
    return KubernetesState(
        brokers={ordinal: _pod(cluster, ordinal, group) for ordinal, group in groups.items()},
        ensemble={0: _member(names.zookeeper_pod(cluster.name, 0))},
        claims={name: _claim(name) for name in claims},
        nodes={_HOST: Node(name=_HOST, ready=True, changed_at=0.0)},
        sets=sets,
        record=record,
    )


def _set(name: str, replicas: int) -> Set:
    return Set(name=name, replicas=replicas, restart_hash=CURRENT, generation_observed=True)


def _claim(name: str) -> Claim:
    return Claim(name=name, uid=name, volume=name, nodes=(), lost=False, terminating=False)


def _pod(cluster: Cluster, ordinal: int, group: Sequence[ObservedBroker]) -> Pod:
    # A broker that does not run has the current properties as soon as it starts.
    is_older = any(one.changed and one.process is not None for one in group)
    return Pod(
        name=names.broker_pod(cluster.name, ordinal),
        uid=",".join(str(one.process) for one in group),
        ordinal=ordinal,
        node=_HOST,
        ready=all(one.ready for one in group),
        terminating=False,
        restart_hash=OLDER if is_older else CURRENT,
        phase="Failed" if all(one.process is None for one in group) else "Running",
        trouble=next((one.trouble for one in group if one.trouble), ""),
        unscheduled_since=None,
        slots=1 + max(cluster.brokers.slot_of(one.broker) for one in group),
    )


def _member(name: str) -> Pod:
    return Pod(
        name=name,
        uid=name,
        ordinal=0,
        node=_HOST,
        ready=True,
        terminating=False,
        restart_hash=CURRENT,
        phase="Running",
        trouble="",
        unscheduled_since=None,
    )
