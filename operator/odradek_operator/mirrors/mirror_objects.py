"""The Kubernetes objects of a Mirror: account, file, policies, and the Deployment of its pods. Pure.

`wanted_mirror` returns them in the order of application.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from odradek_operator.crds.types import Mirror
from odradek_operator.mirrors import mirror_names as names
from odradek_operator.mirrors.mirror_file import MirrorConnections, mirror_file
from odradek_operator.objects import policies
from odradek_operator.objects.names import CONFIG_FOLDER, HOSTNAME_LABEL, METRICS_PORT, METRICS_PORT_NAME
from odradek_operator.objects.owned_objects import ResourceOwner, login_volume, pod_monitor, wanted_object
from odradek_operator.objects.parts import Object, restricted_container, restricted_pod
from odradek_operator.objects.podspec import ImageSettings
from odradek_operator.objects.wanted import WantedObject
from odradek_operator.security.client_connection import ClientConnection

PRUNED_MIRROR_KINDS: Final[tuple[tuple[str, str], ...]] = (
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
)
"""API versions and kinds of objects that are deleted when they are no longer needed."""

_IMAGE: Final = "broker"
_PROBE_TIMEOUT_SECONDS: Final = 6
"""Timeout of probes. It is longer than the process waits for its own event loop."""
_SLOW_START_FAILURES: Final = 60
"""Failures of the startup probe before the container restarts. One every 5 s makes five minutes."""


def wanted_mirror(
    mirror: Mirror,
    connections: MirrorConnections,
    secret_versions: Mapping[str, str],
    *,
    settings: ImageSettings,
    operator_namespace: str,
) -> tuple[WantedObject, ...]:
    """Return the objects of a Mirror. The same input always gives the same objects.

    `secret_versions`: the `resourceVersion` of each Secret that the pods mount. `operator_namespace`: the namespace of
    the operator, which reads the metrics of the pods.
    """
    owner = _owner(mirror)
    name = names.mirror_objects_name(mirror.name)
    text = mirror_file(mirror, connections)
    bodies = [
        owner.object("v1", "ServiceAccount", name, automountServiceAccountToken=False),
        owner.object("v1", "ConfigMap", name, data={names.MIRROR_FILE: text}),
        *_network_policy(mirror, owner, operator_namespace),
        *_disruption_budget(mirror, owner),
        *_pod_monitor(mirror, owner),
        _deployment(mirror, owner, connections, settings, _specification(text, secret_versions)),
    ]
    return tuple(wanted_object(body) for body in bodies)


def _owner(mirror: Mirror) -> ResourceOwner:
    return ResourceOwner(
        kind="Mirror",
        name=mirror.name,
        namespace=mirror.namespace,
        uid=mirror.uid,
        labels=names.mirror_object_labels(mirror.name, mirror.namespace),
    )


def _specification(text: str, secret_versions: Mapping[str, str]) -> str:
    """Return the hash of everything that a mirror reads only when it starts.

    The versions of Secrets are not secret. A hash of their content could be used to guess passwords.
    """
    content = json.dumps([text, dict(secret_versions)], sort_keys=True)
    return sha256(content.encode()).hexdigest()


def _network_policy(mirror: Mirror, owner: ResourceOwner, operator_namespace: str) -> list[Object]:
    if not mirror.network_policies:
        return []
    readers = [policies.operator_peer(operator_namespace), policies.PROMETHEUS]
    spec = {
        "podSelector": {"matchLabels": names.mirror_selector(mirror.name)},
        "policyTypes": ["Ingress"],
        "ingress": [policies.allow([METRICS_PORT], readers)],
    }
    return [owner.object("networking.k8s.io/v1", "NetworkPolicy", names.mirror_objects_name(mirror.name), spec=spec)]


def _disruption_budget(mirror: Mirror, owner: ResourceOwner) -> list[Object]:
    """Return the PodDisruptionBudget. With a single pod, it would only block the drain of its node."""
    if mirror.replicas == 1:
        return []
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": names.mirror_selector(mirror.name)}}
    return [owner.object("policy/v1", "PodDisruptionBudget", names.mirror_objects_name(mirror.name), spec=spec)]


def _pod_monitor(mirror: Mirror, owner: ResourceOwner) -> list[Object]:
    """Return the PodMonitor of the pods. Their series get the label `mirror`."""
    if not mirror.pod_monitor:
        return []
    name, selector = names.mirror_objects_name(mirror.name), names.mirror_selector(mirror.name)
    return [pod_monitor(owner, name, selector, "mirror", "odradek_dev_mirror")]


def _deployment(
    mirror: Mirror, owner: ResourceOwner, connections: MirrorConnections, settings: ImageSettings, specification: str
) -> Object:
    """Return the Deployment. A new pod starts before an old one stops, as the consumer group shares the partitions."""
    template = mirror.template
    spec = {
        "replicas": 0 if mirror.suspend else mirror.replicas,
        "revisionHistoryLimit": 3,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "selector": {"matchLabels": names.mirror_selector(mirror.name)},
        "template": {
            "metadata": {
                "labels": {**template.labels, **names.mirror_labels(mirror.name)},
                "annotations": {**template.annotations, names.SPECIFICATION: specification},
            },
            "spec": _pod_spec(mirror, connections, settings),
        },
    }
    return owner.object("apps/v1", "Deployment", names.mirror_objects_name(mirror.name), spec=spec)


def _pod_spec(mirror: Mirror, connections: MirrorConnections, settings: ImageSettings) -> Object:
    template = mirror.template
    name = names.mirror_objects_name(mirror.name)
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}, {"name": "config", "configMap": {"name": name}}]
    mounts: list[Object] = [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
    ]
    # Names of volumes may not have all letters that names of sources have.
    for index, (side, connection) in enumerate(connections.by_side().items()):
        if (volume := _login(f"login-{index}", connection)) is not None:
            volumes.append(volume)
            mounts.append({"name": volume["name"], "mountPath": names.login_folder(side), "readOnly": True})
    optional: Object = {
        "nodeSelector": dict(template.node_selector),
        "tolerations": [dict(toleration) for toleration in template.tolerations],
        "priorityClassName": template.priority_class_name,
        "imagePullSecrets": [{"name": secret} for secret in mirror.image_pull_secrets],
    }
    return {
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.termination_grace_period_seconds,
        "securityContext": restricted_pod(),
        "containers": [_container(mirror, settings, mounts)],
        "volumes": volumes,
        "affinity": _apart(mirror) if template.affinity is None else dict(template.affinity),
        **{key: value for key, value in optional.items() if value},
    }


def _login(name: str, connection: ClientConnection) -> Object | None:
    """Return the volume with the login and the authority of a connection; None if it needs neither."""
    if connection.secret is not None:
        return {"name": name, "secret": {"secretName": connection.secret}}
    if connection.authority is not None:
        return login_volume(name, connection.authority, connection.audience)
    return None


def _container(mirror: Mirror, settings: ImageSettings, mounts: list[Object]) -> Object:
    container: Object = {
        "name": names.CONTAINER,
        "image": mirror.image or settings.image(_IMAGE, settings.operator_version),
        "imagePullPolicy": settings.pull_policy,
        "args": ["mirror", f"--config={names.MIRROR_PATH}", f"--metrics-port={METRICS_PORT}"],
        "ports": [{"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "securityContext": restricted_container(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
        "startupProbe": _probe("/livez", period=5, failures=_SLOW_START_FAILURES),
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=5, failures=3),
    }
    resources = {
        name: dict(quantities)
        for name, quantities in (("limits", mirror.resources.limits), ("requests", mirror.resources.requests))
        if quantities
    }
    return {**container, "resources": resources} if resources else container


def _probe(path: str, *, period: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": METRICS_PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": _PROBE_TIMEOUT_SECONDS,
        "failureThreshold": failures,
    }


def _apart(mirror: Mirror) -> Object:
    term = {
        "topologyKey": HOSTNAME_LABEL,
        "labelSelector": {"matchLabels": names.mirror_selector(mirror.name)},
    }
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
