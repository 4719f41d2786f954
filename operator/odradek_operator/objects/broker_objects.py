"""The Kubernetes objects of a cluster's brokers, in the order of application. Pure.

ServiceAccount and rights, properties, Services, NetworkPolicy, PodDisruptionBudget, and last the StatefulSet, whose
pods need all the others.
"""

from __future__ import annotations

from odradek_operator.crds.types import Brokers, Cluster, Listener, ListenerType
from odradek_operator.objects import cluster_properties as properties
from odradek_operator.objects import listeners, names, parts, policies, storage
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object
from odradek_operator.objects.podspec import ImageSettings, Workload, identity, pod_template, variable
from odradek_operator.objects.properties_file import render
from odradek_operator.objects.sets import stateful_set

_COMPONENT = Component.KAFKA
_RBAC = "rbac.authorization.k8s.io"
_POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_GRACE_SECONDS = 120
"""Grace period in seconds, to move leadership away and close the logs."""
_SECRET_MODE = 0o440
"""File mode: readable by the pod's group, which is `fsGroup`."""
_HEADER = "Written by the operator from the Cluster resource: change that, not this."


def broker_objects(
    cluster: Cluster,
    *,
    broker_count: int,
    settings: ImageSettings,
    operator_namespace: str,
    spread: bool = False,
) -> list[Object]:
    """Return all objects. With `spread`, pods must be spread over nodes."""
    return [
        *_rights(cluster, broker_count),
        config_map(cluster),
        *_services(cluster, broker_count),
        *policies.broker_policy(cluster, operator_namespace=operator_namespace),
        parts.disruption_budget(cluster, _COMPONENT, names.kafka(cluster.name)),
        _set(cluster, broker_count, settings, spread=spread),
    ]


def restart_hash(cluster: Cluster, settings: ImageSettings) -> str:
    """Return the restart hash of the brokers' current pod template."""
    return properties.restart_hash(properties.split(cluster).static, template(cluster, settings))


def template(cluster: Cluster, settings: ImageSettings) -> Object:
    """Return the brokers' pod template without its restart hash. It does not depend on the number of brokers."""
    brokers = cluster.brokers
    rack = brokers.rack_topology_key
    ports = {f"tcp-{listener.port}": listener.port for listener in listeners.served(cluster)}
    workload = Workload(
        component=_COMPONENT,
        container="kafka",
        image=brokers.image or settings.image("broker", cluster.version),
        role="broker",
        service_account=names.kafka(cluster.name),
        token=listeners.reads_nodes(cluster) or listeners.reads_services(cluster),
        config_map=names.kafka_config(cluster.name),
        ports={**ports, f"tcp-{names.REPLICATION_LISTENER}": names.REPLICATION_PORT},
        environment=[
            *identity(cluster),
            variable("LISTENERS", listeners.for_pods(cluster)),
            *([variable("RACK_TOPOLOGY_KEY", rack)] if rack is not None else []),
            *([] if settings.api_seconds is None else [variable("API_SECONDS", f"{settings.api_seconds:g}")]),
        ],
        mounts=[*storage.broker_mounts(brokers), *_secret_mounts(brokers)],
        volumes=[*storage.broker_pod_volumes(brokers), *_secret_volumes(brokers)],
        resources=brokers.resources,
        grace_seconds=_GRACE_SECONDS,
        rack_topology_key=rack,
    )
    return pod_template(cluster, workload, brokers.template, settings)


def _secret_mounts(brokers: Brokers) -> list[Object]:
    """Return the mount paths of the Secrets in `configFrom`, in the order of the resource."""
    return [
        {"name": f"secret-{number}", "mountPath": f"{names.SECRETS_FOLDER}/{number}", "readOnly": True}
        for number in range(len(brokers.config_secrets))
    ]


def _secret_volumes(brokers: Brokers) -> list[Object]:
    return [
        {"name": f"secret-{number}", "secret": {"secretName": name, "defaultMode": _SECRET_MODE}}
        for number, name in enumerate(brokers.config_secrets)
    ]


def config_map(cluster: Cluster) -> Object:
    """Return the ConfigMap with the brokers' properties, without dynamic ones."""
    text = render(properties.split(cluster).file, header=_HEADER)
    return parts.config_map(cluster, _COMPONENT, names.kafka_config(cluster.name), {names.BROKER_PROPERTIES: text})


def _set(cluster: Cluster, broker_count: int, settings: ImageSettings, *, spread: bool) -> Object:
    return stateful_set(
        cluster,
        _COMPONENT,
        names.kafka(cluster.name),
        service=names.brokers_service(cluster.name),
        replicas=broker_count,
        first_ordinal=cluster.brokers.first_id,
        template=template(cluster, settings),
        restart_hash=restart_hash(cluster, settings),
        claims=storage.broker_claims(cluster),
        delete_claims=cluster.brokers.delete_claims,
        spread=spread,
    )


def _rights(cluster: Cluster, broker_count: int) -> list[Object]:
    """Return the ServiceAccount and its rights to read its external Services and its node, where needed."""
    reads_services, reads_nodes = listeners.reads_services(cluster), listeners.reads_nodes(cluster)
    name = names.kafka(cluster.name)
    objects = [parts.service_account(cluster, _COMPONENT, name, token=reads_services or reads_nodes)]
    if reads_services:
        metadata = parts.metadata(cluster, _COMPONENT, name)
        readable = sorted(
            names.external_broker_service(cluster.name, listener.name, broker)
            for listener in listeners.external(cluster)
            for broker in cluster.brokers.ids(broker_count)
        )
        rules = [{"apiGroups": [""], "resources": ["services"], "resourceNames": readable, "verbs": ["get"]}]
        objects.append({"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
        objects.append(_binding(cluster, "RoleBinding", metadata, role_kind="Role", role=name))
    if reads_nodes:
        # A cluster-scoped object cannot be owned by a namespaced one: the operator deletes it itself.
        metadata = {
            "name": names.node_reader_binding(cluster.namespace, cluster.name),
            "labels": parts.object_labels(cluster, _COMPONENT),
        }
        objects.append(
            _binding(cluster, "ClusterRoleBinding", metadata, role_kind="ClusterRole", role=names.NODE_READER)
        )
    return objects


def _binding(cluster: Cluster, kind: str, metadata: Object, *, role_kind: str, role: str) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [
            {"kind": "ServiceAccount", "name": names.kafka(cluster.name), "namespace": cluster.namespace},
        ],
    }


def _services(cluster: Cluster, broker_count: int) -> list[Object]:
    inside = [parts.port(f"tcp-{listener.name}", listener.port) for listener in listeners.internal(cluster)]
    replication = parts.port(f"tcp-{names.REPLICATION_LISTENER}", names.REPLICATION_PORT)
    brokers, bootstrap = names.brokers_service(cluster.name), names.bootstrap_service(cluster.name)
    objects = [parts.headless_service(cluster, _COMPONENT, brokers, [replication, *inside])]
    if inside:
        objects.append(parts.service(cluster, _COMPONENT, bootstrap, inside))
    for listener in listeners.external(cluster):
        objects.append(_external_bootstrap(cluster, listener))
        objects += [_external_broker(cluster, listener, broker) for broker in cluster.brokers.ids(broker_count)]
    return objects


_SERVICE_TYPES = {ListenerType.NODE_PORT: "NodePort", ListenerType.LOAD_BALANCER: "LoadBalancer"}


def _external_bootstrap(cluster: Cluster, listener: Listener) -> Object:
    """Return the bootstrap Service, which every node serves."""
    return parts.service(
        cluster,
        _COMPONENT,
        names.external_bootstrap_service(cluster.name, listener.name),
        [parts.port(f"tcp-{listener.name}", listener.port)],
        type=_SERVICE_TYPES[listener.type],
        externalTrafficPolicy="Cluster",
    )


def _external_broker(cluster: Cluster, listener: Listener, broker: int) -> Object:
    """Return the Service of one broker. It also serves a pod that is not ready: clients use the cluster's metadata.

    A node port is advertised with the address of the pod's node, so the traffic policy is `Local`: it saves a hop and
    keeps the addresses of clients. A load balancer may use any node and would learn only from health checks that the
    pod has moved, so the policy is `Cluster`.
    """
    node_port = listener.type is ListenerType.NODE_PORT
    return parts.service(
        cluster,
        _COMPONENT,
        names.external_broker_service(cluster.name, listener.name, broker),
        [parts.port(f"tcp-{listener.name}", listener.port)],
        type=_SERVICE_TYPES[listener.type],
        selector={**names.selector(cluster.name, _COMPONENT), _POD_NAME_LABEL: names.broker_pod(cluster.name, broker)},
        externalTrafficPolicy="Local" if node_port else "Cluster",
        publishNotReadyAddresses=True,
    )
