"""The names, labels, annotations, ports and paths of a Pipeline's Kubernetes objects. Pure."""

from __future__ import annotations

from typing import Final

from odradek_operator.objects.names import COMPONENT_LABEL, FIELD_MANAGER, MANAGED_BY_LABEL, NAMESPACE_LABEL

PIPELINE_LABEL: Final = "odradek.dev/pipeline"
"""Label on every object and pod of a Pipeline. Its objects do not have the label of a Cluster: the Cluster would delete
them as obsolete."""
ROLE_LABEL: Final = "odradek.dev/pipeline-role"
DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
COMPONENT: Final = "pipeline"

SPECIFICATION: Final = "odradek.dev/pipeline-specification"
"""Annotation of a driver: the hash of what it was made from. A driver with another hash is replaced."""
RUN: Final = "odradek.dev/pipeline-run"
"""Annotation of a driver: the run that it does."""
ATTEMPT: Final = "odradek.dev/pipeline-attempt"
"""Annotation of a driver: 1 for the first one of a run, and one more for each restart in a row."""

MAX_DRIVERS: Final = 999_999
"""Highest number of a driver that a status may have: names of pods are limited."""
STATUS_PORT: Final = 9405
DRIVER_PORT: Final = 7078
BLOCK_PORT: Final = 7079
DRIVER_PORT_NAME: Final = "driver-rpc-port"
BLOCK_PORT_NAME: Final = "blockmanager"

CONFIG_FOLDER: Final = "/etc/pipeline"
JOB_FILE: Final = "pipeline.json"
EXECUTOR_FILE: Final = "executor.json"
USER_FOLDER: Final = "/etc/pipeline-user"
LOGIN_FOLDER: Final = "/var/run/secrets/odradek.dev"
"""Where clients find the token of their pod, and the authority of the brokers (`odradek.client.config_files`)."""
CHECKPOINT_FOLDER: Final = "/var/lib/odradek-checkpoint"

_HASH_LENGTH: Final = 10


def pipeline_objects_name(pipeline: str) -> str:
    """Return the name of the ServiceAccount, Role, RoleBinding, Service, NetworkPolicy and PodMonitor.

    The admission policy of the chart recognizes the ServiceAccount by the end of its name, so it must never change.
    """
    return f"{pipeline}-odradek-pipeline"


def driver_pod(pipeline: str, number: int) -> str:
    """Return the name of the pod of a driver."""
    return f"{pipeline}-driver-{number}"


def specification_map(pipeline: str, specification: str) -> str:
    """Return the name of the ConfigMap that a driver reads. Each specification has its own, which never changes."""
    return f"{pipeline}-pipeline-{specification[:_HASH_LENGTH]}"


def pipeline_selector(pipeline: str, role: str | None = None) -> dict[str, str]:
    """Return the labels that select the pods of a Pipeline, or those of one role."""
    return {PIPELINE_LABEL: pipeline, **({} if role is None else {ROLE_LABEL: role})}


def pipeline_labels(pipeline: str) -> dict[str, str]:
    """Return the labels of every object and pod of a Pipeline."""
    return {
        "app.kubernetes.io/name": "odradek",
        "app.kubernetes.io/instance": pipeline,
        MANAGED_BY_LABEL: FIELD_MANAGER,
        COMPONENT_LABEL: COMPONENT,
        PIPELINE_LABEL: pipeline,
    }


def pipeline_object_labels(pipeline: str, namespace: str) -> dict[str, str]:
    """Return the labels of objects other than pods."""
    return {**pipeline_labels(pipeline), NAMESPACE_LABEL: namespace}


PIPELINE_LABELS: Final = frozenset(pipeline_labels("")) | {ROLE_LABEL}
"""Labels of pods that the operator sets."""
