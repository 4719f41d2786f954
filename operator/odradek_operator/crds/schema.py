"""The CustomResourceDefinitions, generated from the model. Pure.

`generate_crds` writes them as files of the chart. `kubectl apply` refuses what these definitions refuse. The operator
reports in the status what needs Kafka's knowledge, or other objects.
"""

from __future__ import annotations

from typing import Any, Final

from odradek_operator.crds.model import RULES, Schema
from odradek_operator.crds.openapi import published_schema, schema_of
from odradek_operator.crds.status_types import (
    ClusterStatusSchema,
    MirrorStatusSchema,
    PipelineStatusSchema,
    TopicStatusSchema,
    UserStatusSchema,
)
from odradek_operator.crds.types import API_VERSION, Cluster, Mirror, Pipeline, Topic, User

_GROUP, _VERSION = API_VERSION.split("/")
_READY: Final = '.status.conditions[?(@.type=="Ready")]'


def definitions() -> dict[str, dict[str, Any]]:
    """Return the CRDs by plural name."""
    return {
        "clusters": _cluster_definition(),
        "topics": _topic_definition(),
        "users": _user_definition(),
        "pipelines": _pipeline_definition(),
        "mirrors": _mirror_definition(),
    }


def _cluster_definition() -> dict[str, Any]:
    columns = [
        _column("Version", "string", ".status.version", "Version of the brokers."),
        _column(
            "Brokers",
            "string",
            ".status.brokersReady",
            "Numbers of ready and of specified brokers.",
        ),
        _column("Controller", "integer", ".status.controllerId", "Id of the broker that is controller."),
        *_ready_columns(),
        _column("Bootstrap", "string", ".status.listeners[0].bootstrap", "Where clients connect.", priority=1),
        _column("Message", "string", f"{_READY}.message", "Details about the reason, for people.", priority=1),
    ]
    return _definition("Cluster", "odc", _object(Cluster, ClusterStatusSchema), columns)


def _topic_definition() -> dict[str, Any]:
    columns = [
        _column("Cluster", "string", ".spec.cluster", "The Cluster that the topic belongs to."),
        _column("Partitions", "integer", ".status.partitions", "Number of partitions."),
        _column("Replicas", "integer", ".status.replicas", "Number of replicas of each partition."),
        _column(
            "Under-Replicated",
            "integer",
            ".status.underReplicated",
            "Partitions that lack an in-sync replica.",
        ),
        _column("Size", "string", ".status.size", "Size of the logs of the leaders."),
        *_ready_columns(),
        _column("Message", "string", f"{_READY}.message", "Details about the reason, for people.", priority=1),
    ]
    return _definition("Topic", "odt", _object(Topic, TopicStatusSchema), columns)


def _user_definition() -> dict[str, Any]:
    columns = [
        _column("Cluster", "string", ".spec.cluster", "The Cluster that the user belongs to."),
        _column("Authentication", "string", ".spec.authentication.type", "How the user authenticates."),
        *_ready_columns(),
        _column("User", "string", ".status.username", "Name of the user in access rules.", priority=1),
        _column("Message", "string", f"{_READY}.message", "Details about the reason, for people.", priority=1),
    ]
    return _definition("User", "odu", _object(User, UserStatusSchema), columns)


def _pipeline_definition() -> dict[str, Any]:
    columns = [
        _column("Phase", "string", ".status.phase", "What the job does."),
        _column("Rate", "number", ".status.rate", "Records per second that the job processes."),
        _column("Lag", "integer", ".status.lag", "Records that the job has not processed yet."),
        _column("Age", "date", ".metadata.creationTimestamp", "Time since the resource was created."),
        _column("Batch", "integer", ".status.batch", "Number of the last batch.", priority=1),
        _column("Checkpoint", "date", ".status.lastCheckpoint", "Time since the last batch ended.", priority=1),
        _column("Driver", "string", ".status.driver", "Pod of the driver.", priority=1),
        _column("Message", "string", f"{_READY}.message", "Details, for people.", priority=1),
    ]
    return _definition("Pipeline", "odp", _object(Pipeline, PipelineStatusSchema), columns)


def _mirror_definition() -> dict[str, Any]:
    columns = [
        _column("Phase", "string", ".status.phase", "What the mirror does."),
        _column("Sources", "string", ".status.sourceNames", "Names of the sources."),
        _column("Lag", "integer", ".status.lagRecords", "Records that are not copied yet."),
        _column("Age", "date", ".metadata.creationTimestamp", "Time since the resource was created."),
        _column("Seconds", "number", ".status.lagSeconds", "Age of the last copied record.", priority=1),
        _column("Failing", "integer", ".status.failingPartitions", "Partitions that have stopped.", priority=1),
        _column("Pods", "string", ".status.podsReady", "Numbers of ready and of specified pods.", priority=1),
        _column("Message", "string", f"{_READY}.message", "Details, for people.", priority=1),
    ]
    return _definition("Mirror", "odm", _object(Mirror, MirrorStatusSchema), columns)


def _object(resource: Any, status: Any) -> Schema:
    model = published_schema(schema_of(resource))
    name = model["properties"]["metadata"]["properties"]["name"]
    schema: Schema = {
        "description": model["description"],
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"Always {API_VERSION}.", "type": "string"},
            "kind": {"description": "Kind of the resource.", "type": "string"},
            # Of the metadata a definition may bound the name alone, and CEL rules see nothing else of it.
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": name["maxLength"]}},
            },
            "spec": model["properties"]["spec"],
            "status": published_schema(schema_of(status)),
        },
    }
    return schema | {RULES: model[RULES]} if RULES in model else schema


def _column(name: str, kind: str, path: str, description: str, *, priority: int = 0) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "description": description, "priority": priority}


def _ready_columns() -> list[dict[str, Any]]:
    return [
        _column("Ready", "string", f"{_READY}.status", "Whether the resource is as specified."),
        _column("Reason", "string", f"{_READY}.reason", "Reason, in one word."),
        _column("Age", "date", ".metadata.creationTimestamp", "Time since the resource was created."),
    ]


def _definition(kind: str, short: str, schema: Schema, columns: list[dict[str, Any]]) -> dict[str, Any]:
    singular = kind.lower()
    plural = f"{singular}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{_GROUP}",
            # An uninstall of the chart must not delete every cluster.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": _GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": singular,
                "shortNames": [short],
                "categories": ["odradek"],
            },
            "versions": [
                {
                    "name": _VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
