"""The common parts of the pod templates of brokers, ensemble members and exporter. Pure.

A `Workload` has what differs. Every pod conforms to Kubernetes' "restricted" standard and writes only to its volumes
and /tmp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek_operator.crds.types import DEFAULT_VERSION, Cluster, ComputeResources, PodTemplate
from odradek_operator.objects import names
from odradek_operator.objects.names import Component
from odradek_operator.objects.parts import Object

_CONFIG_VOLUME: Final = "config"
_CONSTRAINTS: Final = "topologySpreadConstraints"
_PROBE_TIMEOUT_SECONDS: Final = 6
"""Probe timeout: longer than the process waits for its event loop."""
_SLOW_START_FAILURES: Final = 720
"""Failures of the startup probe, every 5 s: one hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """The image settings of the operator."""

    prefix: str = "odradek"
    pull_policy: str = "IfNotPresent"
    operator_version: str = DEFAULT_VERSION
    """Tag of the operator's image."""
    api_seconds: float | None = None
    """How long a starting broker asks the API server before it uses the last known answers. None: the pod's default."""

    def image(self, name: str, version: str) -> str:
        """Return the full name of an image."""
        return f"{self.prefix}/{name}:{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The differences between the pods of components."""

    component: Component
    container: str
    image: str
    role: str
    """Subcommand of `odradek-pod`."""
    service_account: str
    token: bool = False
    """Whether its pods use the API server."""
    config_map: str | None = None
    """ConfigMap mounted at `names.CONFIG_FOLDER`."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports by name, besides that of metrics."""
    environment: Sequence[Object] = ()
    mounts: Sequence[Object] = ()
    """Mounts of claims and of `volumes`."""
    volumes: Sequence[Object] = ()
    """Volumes that are deleted with the pod, besides /tmp and the ConfigMap."""
    resources: ComputeResources
    grace_seconds: int = 30
    """Default grace period in seconds."""
    rack_topology_key: str | None = None


def variable(name: str, value: str) -> Object:
    """Return an environment variable."""
    return {"name": name, "value": value}


def variable_from(name: str, path: str) -> Object:
    """Return an environment variable with a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def identity(cluster: Cluster) -> list[Object]:
    """Environment variables with the identity of a pod."""
    return [
        variable("CLUSTER", cluster.name),
        variable_from("POD_NAME", "metadata.name"),
        variable_from("POD_NAMESPACE", "metadata.namespace"),
        variable_from("NODE_NAME", "spec.nodeName"),
    ]


def pod_template(cluster: Cluster, workload: Workload, user: PodTemplate, settings: ImageSettings) -> Object:
    """Return the pod template. Labels of the operator override those of the user: Services and dashboards need them."""
    metadata: Object = {"labels": {**user.labels, **names.pod_labels(cluster.name, workload.component)}}
    if user.annotations:
        metadata["annotations"] = dict(user.annotations)
    return {"metadata": metadata, "spec": _pod_spec(cluster, workload, user, settings)}


def annotated(template: Object, restart_hash: str) -> Object:
    """Return the template with the restart hash."""
    annotations = {**template["metadata"].get("annotations", {}), names.RESTART_HASH: restart_hash}
    return {**template, "metadata": {**template["metadata"], "annotations": annotations}}


def spread_over_nodes(template: Object, cluster: Cluster, component: Component) -> Object:
    """Return the template with a mandatory topology spread constraint over nodes.

    Only nodes on which the pod may run count. It is not part of the restart hash, because it only affects scheduling.
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
        # Environment variables for every Service of the namespace could be thousands, which would slow each start.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": workload.grace_seconds if grace is None else grace,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": names.USER_ID,
            "runAsGroup": names.USER_ID,
            "fsGroup": names.USER_ID,
            # Changing the group of all files of a large log at each start would take minutes.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(workload, settings)],
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


def _container(workload: Workload, settings: ImageSettings) -> Object:
    numbers = {**workload.ports, names.METRICS_PORT_NAME: names.METRICS_PORT}
    container: Object = {
        "name": workload.container,
        "image": workload.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["odradek-pod", workload.role],
        "env": list(workload.environment),
        "ports": [
            {"name": name, "containerPort": number, "protocol": "TCP"} for name, number in sorted(numbers.items())
        ],
        "volumeMounts": _mounts(workload),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        # The start may take long, because a broker waits for the address of its load balancer. Log recovery does not
        # matter: /livez answers meanwhile.
        "startupProbe": _probe("/livez", period=5, failures=_SLOW_START_FAILURES),
        # A blocked event loop is detected by the parent process much earlier; this is for everything else.
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=5, failures=3),
    }
    resources = {
        name: dict(quantities)
        for name, quantities in (("limits", workload.resources.limits), ("requests", workload.resources.requests))
        if quantities
    }
    return {**container, "resources": resources} if resources else container


def _probe(path: str, *, period: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": names.METRICS_PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": _PROBE_TIMEOUT_SECONDS,
        "failureThreshold": failures,
    }


def _mounts(workload: Workload) -> list[Object]:
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]
    if workload.config_map is not None:
        mounts.append({"name": _CONFIG_VOLUME, "mountPath": names.CONFIG_FOLDER, "readOnly": True})
    return mounts + list(workload.mounts)


def _volumes(workload: Workload) -> list[Object]:
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    if workload.config_map is not None:
        volumes.append({"name": _CONFIG_VOLUME, "configMap": {"name": workload.config_map}})
    return volumes + list(workload.volumes)


def _spread(cluster: Cluster, workload: Workload, topology_key: str) -> Object:
    """Return an optional spread constraint over racks. A local disk binds a pod to its node, so it cannot be
    mandatory."""
    return {
        "maxSkew": 1,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": names.selector(cluster.name, workload.component)},
    }


def _affinity(cluster: Cluster, workload: Workload, user: PodTemplate) -> Object:
    """Return a preferred anti-affinity over nodes. The user's affinity of the same kind replaces it."""
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
