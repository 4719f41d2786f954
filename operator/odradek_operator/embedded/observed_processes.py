"""Describes the processes of an embedded cluster as the state on which the operator's decisions are based. Pure.

`broker_processes` reports each broker; `lifecycle/cluster_plan` decides from the result as it does on Kubernetes. A
table in docs/design/0014 lists the Kubernetes object for each part of an embedded cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
    stored: Collection[int],
    record: Record,
) -> KubernetesState:
    """Return the state of a `local_cluster`.

    `count`: the number of brokers that `odradek up` runs; None before it has started any. `stored`: the ids of the
    brokers that have volumes in the data folder.
    """
    kafka, zookeeper = names.kafka(cluster.name), names.zookeeper(cluster.name)
    sets = {zookeeper: _set(zookeeper, 1)}
    if count is not None:
        sets[kafka] = _set(kafka, count)
    volumes = cluster.brokers.volumes
    claims = [
        f"{names.volume_claim_template(volume.id, volumes=len(volumes))}-{names.broker_pod(cluster.name, broker)}"
        for broker in stored
        for volume in volumes
    ]
    return KubernetesState(
        brokers={one.broker: _pod(names.broker_pod(cluster.name, one.broker), one) for one in brokers},
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


def _pod(name: str, one: ObservedBroker) -> Pod:
    return Pod(
        name=name,
        uid=str(one.process),
        ordinal=one.broker,
        node=_HOST,
        ready=one.ready,
        terminating=False,
        # A broker that does not run has the current properties as soon as it starts.
        restart_hash=OLDER if one.changed and one.process is not None else CURRENT,
        phase="Failed" if one.process is None else "Running",
        trouble=one.trouble,
        unscheduled_since=None,
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
