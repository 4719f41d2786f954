"""The Kubernetes objects of a Pipeline, and the pods of its drivers. Pure.

`wanted_pipeline` returns the objects in the order of application. Each specification has a ConfigMap of its own that
never changes, so a driver reads what it was made for, whatever happens to the resource meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek_operator.crds.types import Pipeline
from odradek_operator.objects import policies
from odradek_operator.objects.names import CLIENT_CONFIG_FILE, HOSTNAME_LABEL, METRICS_PORT_NAME
from odradek_operator.objects.owned_objects import (
    ResourceOwner,
    login_volume,
    pod_monitor,
    wanted_object,
)
from odradek_operator.objects.parts import Object, restricted_container, restricted_pod
from odradek_operator.objects.podspec import ImageSettings, variable, variable_from
from odradek_operator.objects.wanted import WantedObject
from odradek_operator.pipelines import pipeline_names as names
from odradek_operator.pipelines.job_file import digest, job_document, run_of_specification
from odradek_operator.security.client_connection import ClientConnection, ConnectionWish

PRUNED_PIPELINE_KINDS: Final[tuple[tuple[str, str], ...]] = (
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "ConfigMap"),
)
"""API versions and kinds of objects that are deleted when they are no longer needed."""

DRIVER_VERBS: Final = ("get", "list", "watch", "create", "patch", "delete", "deletecollection")
"""What a driver may do with pods."""
_IMAGE: Final = "spark"
_CONFIG_VARIABLE: Final = "ODRADEK_COMMAND_CONFIG"
_CLAIM: Final = "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPipeline:
    """What must exist for a Pipeline, besides its driver."""

    objects: tuple[WantedObject, ...]
    specification: str
    """Hash of everything that a driver is made from."""
    run: str
    """The only run of a batch job without a schedule."""
    pod: Object
    """The pod of a driver, without its name and annotations."""

    def driver(self, pipeline: Pipeline, *, number: int, run: str, attempt: int) -> Object:
        """Return the pod of a driver."""
        name = names.driver_pod(pipeline.name, number)
        marks = {names.SPECIFICATION: self.specification, names.RUN: run, names.ATTEMPT: str(attempt)}
        metadata = self.pod["metadata"]
        annotations = {**metadata.get("annotations", {}), **marks}
        return {
            **self.pod,
            "metadata": {**metadata, "name": name, "annotations": annotations},
            "spec": {**self.pod["spec"], "hostname": name},
        }


def wanted_pipeline(
    pipeline: Pipeline, connection: ClientConnection, *, settings: ImageSettings, operator_namespace: str
) -> WantedPipeline:
    """Return the objects of a Pipeline. The same input always gives the same objects."""
    image = pipeline.image or settings.image(_IMAGE, settings.operator_version)
    files = _files(pipeline, connection, settings)
    # The name of the ConfigMap follows from the hash of everything else.
    specification = digest([files, _driver(pipeline, connection, image, settings, config_map="")])
    config_map = names.specification_map(pipeline.name, specification)
    bodies = [
        *_rights(pipeline),
        _service(pipeline),
        *_network_policy(pipeline, operator_namespace),
        *_pod_monitor(pipeline),
        _object(pipeline, "v1", "ConfigMap", config_map, data=files, immutable=True),
    ]
    return WantedPipeline(
        objects=tuple(wanted_object(body) for body in bodies),
        specification=specification,
        run=run_of_specification(pipeline),
        pod=_driver(pipeline, connection, image, settings, config_map=config_map),
    )


def kept_map(pipeline: Pipeline, specification: str) -> WantedObject:
    """Return the ConfigMap of an earlier specification, so that it is kept while a pod uses it."""
    return wanted_object(_object(pipeline, "v1", "ConfigMap", names.specification_map(pipeline.name, specification)))


def connection_wish(pipeline: Pipeline) -> ConnectionWish:
    """Return what the resource says about the connection of its job."""
    return ConnectionWish(
        field="spec",
        account=names.pipeline_objects_name(pipeline.name),
        cluster=pipeline.cluster,
        bootstrap_servers=pipeline.bootstrap_servers,
        user=pipeline.user,
    )


def _owner(pipeline: Pipeline) -> ResourceOwner:
    return ResourceOwner(
        kind="Pipeline",
        name=pipeline.name,
        namespace=pipeline.namespace,
        uid=pipeline.uid,
        labels=names.pipeline_object_labels(pipeline.name, pipeline.namespace),
    )


def _object(pipeline: Pipeline, api_version: str, kind: str, name: str, **content: Any) -> Object:
    return _owner(pipeline).object(api_version, kind, name, **content)


def _files(pipeline: Pipeline, connection: ClientConnection, settings: ImageSettings) -> dict[str, str]:
    job = job_document(pipeline, connection, settings.pull_policy)
    return {
        names.JOB_FILE: json.dumps(job, indent=2, sort_keys=True, ensure_ascii=False) + "\n",
        names.EXECUTOR_FILE: json.dumps(_executor(pipeline, connection), indent=2, sort_keys=True) + "\n",
    }


def _rights(pipeline: Pipeline) -> list[Object]:
    """Return the account of the pods and its rights. Only drivers use them: executors get no token for the API server.

    The driver creates and deletes executors, and marks them. It may do nothing else.
    """
    name = names.pipeline_objects_name(pipeline.name)
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": list(DRIVER_VERBS),
    }
    subject = {"kind": "ServiceAccount", "name": name, "namespace": pipeline.namespace}
    return [
        _object(pipeline, "v1", "ServiceAccount", name, automountServiceAccountToken=False),
        _object(pipeline, f"{group}/v1", "Role", name, rules=[rule]),
        _object(
            pipeline,
            f"{group}/v1",
            "RoleBinding",
            name,
            roleRef={"apiGroup": group, "kind": "Role", "name": name},
            subjects=[subject],
        ),
    ]


def _service(pipeline: Pipeline) -> Object:
    """Return the headless Service by which executors find their driver."""
    ports = {names.DRIVER_PORT_NAME: names.DRIVER_PORT, names.BLOCK_PORT_NAME: names.BLOCK_PORT}
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        # Executors may start before the driver's pod counts as ready.
        "publishNotReadyAddresses": True,
        "selector": names.pipeline_selector(pipeline.name, names.DRIVER),
        "ports": [
            {"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in sorted(ports.items())
        ],
    }
    return _object(pipeline, "v1", "Service", names.pipeline_objects_name(pipeline.name), spec=spec)


def _network_policy(pipeline: Pipeline, operator_namespace: str) -> list[Object]:
    if not pipeline.network_policies:
        return []
    own = [{"podSelector": {"matchLabels": names.pipeline_selector(pipeline.name)}}]
    readers = [policies.operator_peer(operator_namespace), policies.PROMETHEUS]
    spec = {
        "podSelector": {"matchLabels": names.pipeline_selector(pipeline.name)},
        "policyTypes": ["Ingress"],
        "ingress": [
            policies.allow([names.DRIVER_PORT, names.BLOCK_PORT], own),
            policies.allow([names.STATUS_PORT], readers),
        ],
    }
    name = names.pipeline_objects_name(pipeline.name)
    return [_object(pipeline, "networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)]


def _pod_monitor(pipeline: Pipeline) -> list[Object]:
    """Return the PodMonitor of the driver. Its series get the label `pipeline`."""
    if not pipeline.pod_monitor:
        return []
    name, selector = names.pipeline_objects_name(pipeline.name), names.pipeline_selector(pipeline.name, names.DRIVER)
    return [pod_monitor(_owner(pipeline), name, selector, "pipeline", "odradek_dev_pipeline")]


def _driver(
    pipeline: Pipeline, connection: ClientConnection, image: str, settings: ImageSettings, *, config_map: str
) -> Object:
    """Return the pod of a driver without name and annotations of the operator."""
    service = names.pipeline_objects_name(pipeline.name)
    ports = {
        names.DRIVER_PORT_NAME: names.DRIVER_PORT,
        names.BLOCK_PORT_NAME: names.BLOCK_PORT,
        METRICS_PORT_NAME: names.STATUS_PORT,
    }
    container: Object = {
        **_container(pipeline, connection, names.DRIVER),
        "image": image,
        "imagePullPolicy": settings.pull_policy,
        "args": [
            "pipeline",
            f"--spec={names.CONFIG_FOLDER}/{names.JOB_FILE}",
            f"--status-port={names.STATUS_PORT}",
            f"--executor-template={names.CONFIG_FOLDER}/{names.EXECUTOR_FILE}",
            f"--conf=spark.driver.host=$(POD_NAME).{service}.{pipeline.namespace}.svc",
            "--conf=spark.kubernetes.executor.podNamePrefix=$(POD_NAME)",
        ],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in sorted(ports.items())],
        "resources": {
            "requests": {"cpu": pipeline.driver.cpu, "memory": pipeline.driver.memory},
            "limits": {"memory": pipeline.driver.memory},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    container["env"] = [
        *container["env"],
        variable_from("POD_NAME", "metadata.name"),
        variable_from("POD_NAMESPACE", "metadata.namespace"),
        variable_from("POD_IP", "status.podIP"),
        variable("IMAGE", image),
    ]
    spec = _pod_spec(pipeline, connection, container, config_map=config_map)
    spec |= {"subdomain": service, "restartPolicy": "Never", "automountServiceAccountToken": True}
    metadata: Object = {
        "namespace": pipeline.namespace,
        "labels": _labels(pipeline, names.DRIVER),
        "ownerReferences": [_owner(pipeline).reference()],
    }
    if pipeline.template.annotations:
        metadata["annotations"] = dict(pipeline.template.annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _executor(pipeline: Pipeline, connection: ClientConnection) -> Object:
    """Return the template of executors. Spark adds name, owner, image, command, ports, resources and local disks."""
    container = _container(pipeline, connection, names.EXECUTOR)
    spec = _pod_spec(pipeline, connection, container, config_map=None)
    if _claims(pipeline) and pipeline.template.affinity is None:
        # A volume of type ReadWriteOnce can only be used on one node.
        spec["affinity"] = {"podAffinity": _near(names.pipeline_selector(pipeline.name, names.DRIVER))}
    metadata: Object = {"labels": _labels(pipeline, names.EXECUTOR)}
    if pipeline.template.annotations:
        metadata["annotations"] = dict(pipeline.template.annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _labels(pipeline: Pipeline, role: str) -> dict[str, str]:
    return {**pipeline.template.labels, **names.pipeline_labels(pipeline.name), names.ROLE_LABEL: role}


def _near(selector: Mapping[str, str]) -> Object:
    term = {"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": dict(selector)}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}


def _container(pipeline: Pipeline, connection: ClientConnection, role: str) -> Object:
    """Return what the containers of driver and executors have in common."""
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]
    if role == names.DRIVER:
        mounts.append({"name": "specification", "mountPath": names.CONFIG_FOLDER, "readOnly": True})
    if connection.secret is not None:
        mounts.append({"name": "user", "mountPath": names.USER_FOLDER, "readOnly": True})
    if connection.authority is not None:
        mounts.append({"name": "login", "mountPath": names.LOGIN_FOLDER, "readOnly": True})
    volumes = _claim_volumes(pipeline)
    mounts += [
        {"name": volumes[claim], "mountPath": path, **({"readOnly": True} if read_only else {})}
        for claim, path, read_only in _claims(pipeline)
    ]
    return {
        "name": role,
        "env": [*(dict(entry) for entry in pipeline.env), *_client_variables(connection)],
        "securityContext": restricted_container(),
        "volumeMounts": mounts,
    }


def _client_variables(connection: ClientConnection) -> list[Object]:
    if connection.secret is not None:
        return [variable(_CONFIG_VARIABLE, f"{names.USER_FOLDER}/{CLIENT_CONFIG_FILE}")]
    return []


def _claims(pipeline: Pipeline) -> list[tuple[str, str, bool]]:
    """Return claim, path and whether it is only read, of each mounted claim."""
    found = [(volume.claim, volume.mount_path, volume.read_only) for volume in pipeline.volumes]
    if pipeline.checkpoint.claim is not None:
        found.append((pipeline.checkpoint.claim, names.CHECKPOINT_FOLDER, False))
    return found


def _claim_volumes(pipeline: Pipeline) -> dict[str, str]:
    """Return the name of the volume of each claim.

    A claim that is mounted at several paths has one volume: a pod with two volumes of one claim never starts.
    """
    claims = dict.fromkeys(claim for claim, _, _ in _claims(pipeline))
    return {claim: f"{_CLAIM}-{index}" for index, claim in enumerate(claims)}


def _pod_spec(pipeline: Pipeline, connection: ClientConnection, container: Object, *, config_map: str | None) -> Object:
    template = pipeline.template
    spec: Object = {
        "serviceAccountName": names.pipeline_objects_name(pipeline.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.termination_grace_period_seconds,
        "securityContext": restricted_pod(),
        "containers": [container],
        "volumes": _volumes(pipeline, connection, config_map),
    }
    optional: Object = {
        "nodeSelector": dict(template.node_selector),
        "tolerations": [dict(toleration) for toleration in template.tolerations],
        "affinity": None if template.affinity is None else dict(template.affinity),
        "priorityClassName": template.priority_class_name,
        "imagePullSecrets": [{"name": name} for name in pipeline.image_pull_secrets],
    }
    return {**spec, **{name: value for name, value in optional.items() if value}}


def _volumes(pipeline: Pipeline, connection: ClientConnection, config_map: str | None) -> list[Object]:
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    if config_map is not None:
        volumes.append({"name": "specification", "configMap": {"name": config_map}})
    if connection.secret is not None:
        volumes.append({"name": "user", "secret": {"secretName": connection.secret}})
    if connection.authority is not None:
        volumes.append(login_volume("login", connection.authority, connection.audience))
    volumes += [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
        for claim, volume in _claim_volumes(pipeline).items()
    ]
    return volumes
