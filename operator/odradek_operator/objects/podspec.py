"""Pod templates of brokers, members of the ensemble and exporter: what they have alike. Pure.

Enters: a `Workload`, which says what differs, and what the user adds to pods. Leaves: a pod template. Every pod obeys
Kubernetes' "restricted" standard and writes to its volumes and /tmp only.
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
"""Longer than the answering process waits for its own event loop."""
_SLOW_START_FAILURES: Final = 720
"""Of a start-up probe each 5 s: an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """Where images come from, as the operator was told."""

    prefix: str = "odradek"
    pull_policy: str = "IfNotPresent"
    operator_version: str = DEFAULT_VERSION
    """Tag of the operator's own image."""
    api_seconds: float | None = None
    """How long a starting broker asks the API server before it uses the last known answers; None: the pod's default."""

    def image(self, name: str, version: str) -> str:
        """The full name of one of our images."""
        return f"{self.prefix}/{name}:{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What makes a component's pods different from others'."""

    component: Component
    container: str
    image: str
    role: str
    """The sub-command of `odradek-pod`."""
    service_account: str
    token: bool = False
    """Whether its pods talk to the API server."""
    config_map: str | None = None
    """Mounted at `names.CONFIG_FOLDER`."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """By name, beside the one of metrics."""
    environment: Sequence[Object] = ()
    mounts: Sequence[Object] = ()
    """Of volume claims, and of `volumes`."""
    volumes: Sequence[Object] = ()
    """That go with the pod, beside /tmp and the ConfigMap."""
    resources: ComputeResources
    grace_seconds: int = 30
    """To end in order, where the user says nothing."""
    rack_topology_key: str | None = None


def variable(name: str, value: str) -> Object:
    """An environment variable."""
    return {"name": name, "value": value}


def variable_from(name: str, path: str) -> Object:
    """An environment variable from a field of the pod."""
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
    """The template. Our labels stand above the user's, since Services and dashboards find pods by them."""
    metadata: Object = {"labels": {**user.labels, **names.pod_labels(cluster.name, workload.component)}}
    if user.annotations:
        metadata["annotations"] = dict(user.annotations)
    return {"metadata": metadata, "spec": _pod_spec(cluster, workload, user, settings)}


def annotated(template: Object, restart_hash: str) -> Object:
    """The template with the hash by which its pods are known to be outdated or not."""
    annotations = {**template["metadata"].get("annotations", {}), names.RESTART_HASH: restart_hash}
    return {**template, "metadata": {**template["metadata"], "annotations": annotations}}


def spread_over_nodes(template: Object, cluster: Cluster, component: Component) -> Object:
    """The template with the rule that a node gets a second pod only when every other one has as many.

    The nodes that count are those that the pod tolerates and may run on. No part of the restart hash: the rule is for
    the scheduler, so a pod that runs need not restart for it.
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
        # Variables for every Service of the namespace: thousands of them would only slow each start.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": workload.grace_seconds if grace is None else grace,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": names.USER_ID,
            "runAsGroup": names.USER_ID,
            "fsGroup": names.USER_ID,
            # Walking through all files of a big log at each start would take minutes.
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
        # The first answer may take long: a load balancer's address must be there before a broker starts. How long the
        # recovery of logs takes does not matter: /livez is answered meanwhile.
        "startupProbe": _probe("/livez", period=5, failures=_SLOW_START_FAILURES),
        # A loop that stands still is ended by the process's own parent much earlier; this is for all else.
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
    """Evenly over racks where that can be. A local disk ties a pod to its node anyway, so that nothing hard helps."""
    return {
        "maxSkew": 1,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": names.selector(cluster.name, workload.component)},
    }


def _affinity(cluster: Cluster, workload: Workload, user: PodTemplate) -> Object:
    """One pod on each node where that can be; what the user says of a sort of affinity replaces ours of that sort."""
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
