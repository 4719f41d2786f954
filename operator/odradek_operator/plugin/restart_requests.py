"""Asks the operator to restart a pod, or all brokers of a cluster.

The operator restarts every pod whose restart hash is not that of its StatefulSet's template (`lifecycle/rolling`). So a
request is another hash in the annotation of the pod. The operator then restarts the pods one at a time, under its usual
rules: no partition falls below its minimum ISR. The specification of the Cluster does not change.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from odradek.base.errors import OdradekError
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.objects import names
from odradek_operator.objects.names import Component

RESTARTABLE = (Component.KAFKA.value, Component.ZOOKEEPER.value)


class PluginError(OdradekError):
    """A command of the plugin cannot do what was asked. The text says why, and what to do."""


class Target(NamedTuple):
    """The pods to restart."""

    cluster: str
    pods: tuple[str, ...]


def selector(cluster: str, component: Component) -> str:
    """Return the label selector of the pods of a component."""
    return ",".join(f"{label}={value}" for label, value in names.selector(cluster, component).items())


async def existing_cluster(client: KubernetesClient, namespace: str, name: str) -> Object:
    """Return a Cluster. Raises `PluginError` if it does not exist, and `KubernetesError`."""
    found = await client.get(Kind.CLUSTER, namespace, name)
    if found is None:
        raise PluginError(
            f"There is no Cluster {name} in namespace {namespace}: `kubectl odradek status -A` shows all Clusters."
        )
    return found


async def find_target(client: KubernetesClient, namespace: str, name: str, component: Component) -> Target:
    """Return the pod of this name, or else the pods of a component of the Cluster of this name.

    Raises `PluginError` if there is neither, or the Cluster is paused, and `KubernetesError`.
    """
    pod = await client.get(Kind.POD, namespace, name)
    if pod is not None:
        labels = pod["metadata"].get("labels") or {}
        cluster = labels.get(names.CLUSTER_LABEL)
        if cluster is None or labels.get(names.COMPONENT_LABEL) not in RESTARTABLE:
            raise PluginError(f"Pod {name} is neither a broker nor a ZooKeeper member of a Cluster: name one of these.")
        target = Target(cluster, (name,))
    else:
        pods = await client.list(Kind.POD, namespace, selector=selector(name, component))
        target = Target(name, tuple(sorted((one["metadata"]["name"] for one in pods), key=names.ordinal)))
    body = await existing_cluster(client, namespace, target.cluster)
    if (body["metadata"].get("annotations") or {}).get(names.PAUSED) == "true":
        raise PluginError(
            f"Cluster {target.cluster} is paused, so the operator restarts nothing: first remove its annotation "
            f"{names.PAUSED}."
        )
    if not target.pods:
        raise PluginError(f"Cluster {name} has no pods of {component.value}.")
    return target


async def request_restart(client: KubernetesClient, namespace: str, target: Target, *, now: datetime) -> None:
    """Mark the pods. Raises `KubernetesError`, and `PluginError` if a pod no longer exists."""
    mark = f"requested-{now.strftime('%Y%m%dT%H%M%SZ')}"
    for pod in target.pods:
        which = Reference(kind=Kind.POD, namespace=namespace, name=pod)
        if await client.merge(which, {"metadata": {"annotations": {names.RESTART_HASH: mark}}}) is None:
            raise PluginError(f"Pod {pod} no longer exists. If it is restarting, wait and repeat the command.")
