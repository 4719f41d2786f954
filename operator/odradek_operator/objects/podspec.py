"""The common parts of the pod templates of brokers, ensemble members and exporter. Pure.

A `Workload` contains the differences. Every pod conforms to the "restricted" Pod Security Standard of Kubernetes and
writes only to its volumes and /tmp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek_operator.crds.types import DEFAULT_VERSION, Cluster, ComputeResources, PodTemplate
from odradek_operator.objects import names, slots
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object, restricted_container, restricted_pod

_CONFIG_VOLUME: Final = "config"
_CONSTRAINTS: Final = "topologySpreadConstraints"
_PROBE_TIMEOUT_SECONDS: Final = 6
"""Timeout of probes. It is longer than the process waits for its own event loop."""
_SLOW_START_FAILURES: Final = 720
"""Failures of the startup probe before the container restarts. One every 5 s makes one hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """Settings of the operator for the pods that it creates."""

    prefix: str = "odradek"
    pull_policy: str = "IfNotPresent"
    operator_version: str = DEFAULT_VERSION
    """Tag of the operator's image, which the exporter uses."""
    api_seconds: float | None = None
    """How long a starting broker retries requests to the API server before it uses the last known answers, in seconds.
    None: the default of `odradek-pod`."""

    def image(self, name: str, version: str) -> str:
        """Return the full name of an image."""
        return f"{self.prefix}/{name}:{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The parts of a pod template that differ between components."""

    component: Component
    container: str
    image: str
    role: str
    """Subcommand of `odradek-pod`."""
    service_account: str
    token: bool = False
    """Whether pods get a token for the API server."""
    config_map: str | None = None
    """ConfigMap mounted at `names.CONFIG_FOLDER`."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports by name, without the metrics port, which every pod has."""
    environment: Sequence[Object] = ()
    mounts: Sequence[Object] = ()
    """Mounts of claims and of `volumes`. The mounts of /tmp and of the ConfigMap are added."""
    volumes: Sequence[Object] = ()
    """Volumes other than claims. The volumes of /tmp and of the ConfigMap are added."""
    resources: ComputeResources
    grace_seconds: int = 30
    """Default grace period in seconds, which the user can override."""
    rack_topology_key: str | None = None
    slots: int = 1
    """Number of equal containers. The one of slot k has the variable `SLOT`, and each port + 1000 * k."""


def variable(name: str, value: str) -> Object:
    """Return an environment variable."""
    return {"name": name, "value": value}


def variable_from(name: str, path: str) -> Object:
    """Return an environment variable whose value is a field of the pod. `path`: path of the field."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def identity(cluster: Cluster) -> list[Object]:
    """Return the environment variables with the identity of a pod: cluster, name, namespace and node."""
    return [
        variable("CLUSTER", cluster.name),
        variable_from("POD_NAME", "metadata.name"),
        variable_from("POD_NAMESPACE", "metadata.namespace"),
        variable_from("NODE_NAME", "spec.nodeName"),
    ]


def pod_template(cluster: Cluster, workload: Workload, user: PodTemplate, settings: ImageSettings) -> Object:
    """Return the pod template of a workload, with the fields that the user sets in `user`.

    Labels of the operator override those of the user, because Services and dashboards depend on them.
    """
    metadata: Object = {"labels": {**user.labels, **names.pod_labels(cluster.name, workload.component)}}
    if user.annotations:
        metadata["annotations"] = dict(user.annotations)
    return {"metadata": metadata, "spec": _pod_spec(cluster, workload, user, settings)}


def annotated(template: Object, restart_hash: str) -> Object:
    """Return the template with the restart hash as an annotation."""
    annotations = {**template["metadata"].get("annotations", {}), names.RESTART_HASH: restart_hash}
    return {**template, "metadata": {**template["metadata"], "annotations": annotations}}


def spread_over_nodes(template: Object, cluster: Cluster, component: Component) -> Object:
    """Return the template with a mandatory topology spread constraint over nodes.

    Only nodes on which the pod may run are counted. The constraint is not part of the restart hash, because it only
    affects scheduling.
    """
    rule = {
        "maxSkew": 1,
        "topologyKey": names.HOSTNAME_LABEL,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": names.selector(cluster.name, component)},
    }
    spec = template["spec"]
    return {**template, "spec": {**spec, _CONSTRAINTS: [*spec.get(_CONSTRAINTS, []), rule]}}


def _pod_spec(cluster: Cluster, workload: Workload, user: PodTemplate, settings: ImageSettings) -> Object:
    grace = user.termination_grace_period_seconds
    spec: Object = {
        "serviceAccountName": workload.service_account,
        "automountServiceAccountToken": workload.token,
        # Otherwise each Service of the namespace adds environment variables. Thousands of them would slow each start.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": workload.grace_seconds if grace is None else grace,
        "securityContext": restricted_pod(),
        "containers": [_container(workload, settings, slot) for slot in range(workload.slots)],
        "volumes": _volumes(workload),
        "affinity": _affinity(cluster, workload, user),
    }
    if workload.rack_topology_key is not None:
        spec[_CONSTRAINTS] = [_spread(cluster, workload, workload.rack_topology_key)]
    return {**spec, **_user_fields(user)}


def _user_fields(user: PodTemplate) -> Object:
    fields: Object = {
        "nodeSelector": dict(user.node_selector),
        "tolerations": [dict(toleration) for toleration in user.tolerations],
        "priorityClassName": user.priority_class_name,
        "imagePullSecrets": [{"name": name} for name in user.image_pull_secrets],
    }
    return {name: value for name, value in fields.items() if value}


def _container(workload: Workload, settings: ImageSettings, slot: int) -> Object:
    numbers = {
        slots.port_name(name, slot): slots.port(number, slot)
        for name, number in {**workload.ports, names.METRICS_PORT_NAME: names.METRICS_PORT}.items()
    }
    probed = slots.port_name(names.METRICS_PORT_NAME, slot)
    container: Object = {
        "name": slots.suffixed(workload.container, slot),
        "image": workload.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["odradek-pod", workload.role],
        "env": [*workload.environment, *([variable("SLOT", str(slot))] if slot else [])],
        "ports": [
            {"name": name, "containerPort": number, "protocol": "TCP"} for name, number in sorted(numbers.items())
        ],
        "volumeMounts": _mounts(workload, slot),
        "securityContext": restricted_container(),
        # A start can take long, because a broker waits for the address of its load balancer. The time of log recovery
        # does not count, because /livez answers during it.
        "startupProbe": _probe("/livez", probed, period=5, failures=_SLOW_START_FAILURES),
        # The supervisor process detects a blocked event loop much earlier. This probe is for all other failures.
        "livenessProbe": _probe("/livez", probed, period=10, failures=6),
        "readinessProbe": _probe("/readyz", probed, period=5, failures=3),
    }
    resources = {
        name: dict(quantities)
        for name, quantities in (("limits", workload.resources.limits), ("requests", workload.resources.requests))
        if quantities
    }
    return {**container, "resources": resources} if resources else container


def _probe(path: str, port: str, *, period: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "timeoutSeconds": _PROBE_TIMEOUT_SECONDS,
        "failureThreshold": failures,
    }


def _mounts(workload: Workload, slot: int) -> list[Object]:
    mounts: list[Object] = [{"name": slots.suffixed("tmp", slot), "mountPath": "/tmp"}]
    if workload.config_map is not None:
        mounts.append({"name": _CONFIG_VOLUME, "mountPath": names.CONFIG_FOLDER, "readOnly": True})
    return mounts + list(workload.mounts)


def _volumes(workload: Workload) -> list[Object]:
    # Each container writes its properties to /tmp, so each has a volume to itself.
    volumes: list[Object] = [{"name": slots.suffixed("tmp", slot), "emptyDir": {}} for slot in range(workload.slots)]
    if workload.config_map is not None:
        volumes.append({"name": _CONFIG_VOLUME, "configMap": {"name": workload.config_map}})
    return volumes + list(workload.volumes)


def _spread(cluster: Cluster, workload: Workload, topology_key: str) -> Object:
    """Return a preferred spread constraint over racks.

    It is not mandatory, because a pod with a local disk can only run on the disk's node.
    """
    return {
        "maxSkew": 1,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": names.selector(cluster.name, workload.component)},
    }


def _affinity(cluster: Cluster, workload: Workload, user: PodTemplate) -> Object:
    """Return a preferred pod anti-affinity over nodes, and the user's affinity, whose `podAntiAffinity` replaces it."""
    apart: Object = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "podAffinityTerm": {
                    "topologyKey": names.HOSTNAME_LABEL,
                    "labelSelector": {"matchLabels": names.selector(cluster.name, workload.component)},
                },
            }
        ]
    }
    return {"podAntiAffinity": apart, **(user.affinity or {})}
