"""The Kubernetes objects of a cluster's own ensemble, in the order of application. Pure.

There are none if the cluster uses an existing ensemble.
"""

from __future__ import annotations

from odradek_operator.crds.types import Cluster
from odradek_operator.objects import cluster_properties as properties
from odradek_operator.objects import names, parts, policies, storage
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object
from odradek_operator.objects.podspec import ImageSettings, Workload, identity, pod_template, variable
from odradek_operator.objects.properties_file import render
from odradek_operator.objects.sets import stateful_set

_COMPONENT = Component.ZOOKEEPER
_GRACE_SECONDS = 60
_PEER_PORTS = {"tcp-peer": names.ZOOKEEPER_PEER_PORT, "tcp-election": names.ZOOKEEPER_ELECTION_PORT}
_CLIENT_PORT = {"tcp-client": names.ZOOKEEPER_CLIENT_PORT}
_HEADER = "Written by the operator from the Cluster resource: change that, not this."


def ensemble_objects(
    cluster: Cluster, *, settings: ImageSettings, operator_namespace: str, spread: bool = False, formed: bool = False
) -> list[Object]:
    """Return all objects. With `spread`, pods must be spread over nodes. `formed`: whether the ensemble has held
    data."""
    if cluster.zookeeper.connect is not None:
        return []
    name = names.zookeeper(cluster.name)
    nodes, client = names.zookeeper_nodes_service(cluster.name), names.zookeeper_client_service(cluster.name)
    client_ports = [parts.port(*item) for item in _CLIENT_PORT.items()]
    peer_ports = [parts.port(*item) for item in _PEER_PORTS.items()]
    return [
        parts.service_account(cluster, _COMPONENT, name, token=False),
        config_map(cluster, formed=formed),
        parts.headless_service(cluster, _COMPONENT, nodes, client_ports + peer_ports),
        parts.service(cluster, _COMPONENT, client, client_ports),
        *policies.ensemble_policy(cluster, operator_namespace=operator_namespace),
        parts.disruption_budget(cluster, _COMPONENT, name),
        _set(cluster, settings, spread=spread),
    ]


def restart_hash(cluster: Cluster, settings: ImageSettings) -> str:
    """Return the restart hash of the ensemble's current template, which contains the number of members."""
    return properties.restart_hash(properties.ensemble_properties(cluster), template(cluster, settings))


def template(cluster: Cluster, settings: ImageSettings) -> Object:
    """Return the ensemble's pod template without its restart hash."""
    wanted = cluster.zookeeper
    workload = Workload(
        component=_COMPONENT,
        container="zookeeper",
        image=wanted.image or settings.image("zookeeper", cluster.version),
        role="zookeeper",
        service_account=names.zookeeper(cluster.name),
        config_map=names.zookeeper_config(cluster.name),
        ports={**_CLIENT_PORT, **_PEER_PORTS},
        environment=[*identity(cluster), variable("ENSEMBLE_REPLICAS", str(wanted.replicas))],
        mounts=[{"name": storage.ZOOKEEPER_CLAIM, "mountPath": storage.ZOOKEEPER_DATA}],
        resources=wanted.resources,
        grace_seconds=_GRACE_SECONDS,
        rack_topology_key=cluster.brokers.rack_topology_key,
    )
    return pod_template(cluster, workload, wanted.template, settings)


def config_map(cluster: Cluster, *, formed: bool = False) -> Object:
    """Return the ConfigMap with the ensemble's properties, and whether it has held data. Pods add the list of
    members."""
    text = render(properties.ensemble_properties(cluster), header=_HEADER)
    data = {names.ZOOKEEPER_PROPERTIES: text, names.ENSEMBLE_STATE: names.FORMED if formed else names.FORMING}
    return parts.config_map(cluster, _COMPONENT, names.zookeeper_config(cluster.name), data)


def _set(cluster: Cluster, settings: ImageSettings, *, spread: bool) -> Object:
    wanted = cluster.zookeeper
    return stateful_set(
        cluster,
        _COMPONENT,
        names.zookeeper(cluster.name),
        service=names.zookeeper_nodes_service(cluster.name),
        replicas=wanted.replicas,
        template=template(cluster, settings),
        restart_hash=restart_hash(cluster, settings),
        claims=storage.ensemble_claims(cluster),
        delete_claims=wanted.delete_claims,
        spread=spread,
    )
