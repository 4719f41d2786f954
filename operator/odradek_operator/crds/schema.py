"""The CustomResourceDefinitions of Cluster and Topic. Pure.

Enters: nothing. Leaves: two objects for the API server; `generate` writes them as files of the chart. What
`kubectl apply` may refuse by itself is refused by these; what needs Kafka's knowledge, or other objects, is said by the
operator in the status.
"""

from __future__ import annotations

from typing import Any, Final

from odradek.base.topics import MAX_NAME_LENGTH as MAX_TOPIC_NAME_LENGTH
from odradek_operator.crds.cluster_reader import (
    CLUSTER_NAME,
    CLUSTER_NAME_PATTERN,
    MAX_CLUSTER_NAME_LENGTH,
    MAX_EXTERNAL_NAMES_LENGTH,
)
from odradek_operator.crds.cluster_schema import cluster_spec
from odradek_operator.crds.openapi import Schema, rule, ruled
from odradek_operator.crds.status_schema import cluster_status_schema, topic_status_schema
from odradek_operator.crds.topic_schema import topic_spec
from odradek_operator.crds.types import API_VERSION

_GROUP, _VERSION = API_VERSION.split("/")
_READY: Final = '.status.conditions[?(@.type=="Ready")]'


def definitions() -> dict[str, dict[str, Any]]:
    """The CRDs by plural name."""
    return {"clusters": _cluster_definition(), "topics": _topic_definition()}


def _cluster_definition() -> dict[str, Any]:
    schema = ruled(
        _object(
            "A cluster of Kafka-compatible brokers with its ZooKeeper ensemble.",
            max_name_length=MAX_CLUSTER_NAME_LENGTH,
            spec=cluster_spec(),
            status=cluster_status_schema(),
        ),
        rule(
            f"self.metadata.name.matches('^{CLUSTER_NAME_PATTERN}$')",
            f"The name of a Cluster must be {CLUSTER_NAME.allowed}, since its Services are named after it.",
        ),
        rule(
            "!has(self.spec.listeners) || self.spec.listeners.all(one, one.type == 'internal' || "
            f"size(self.metadata.name) + size(one.name) <= {MAX_EXTERNAL_NAMES_LENGTH})",
            "The names of the Cluster and of each listener that is reached from outside must have at most "
            f"{MAX_EXTERNAL_NAMES_LENGTH} characters together, since Services are named after both.",
        ),
    )
    columns = [
        _column("Version", "string", ".status.version", "Version of the brokers."),
        _column("Brokers", "string", ".status.brokersReady", "Brokers that are ready, of those specified."),
        _column("Controller", "integer", ".status.controllerId", "Id of the broker that is controller."),
        *_ready_columns(),
        _column("Bootstrap", "string", ".status.listeners[0].bootstrap", "Where clients connect.", priority=1),
        _column("Message", "string", f"{_READY}.message", "Why it is ready or not.", priority=1),
    ]
    return _definition("Cluster", "odc", schema, columns)


def _topic_definition() -> dict[str, Any]:
    schema = _object(
        "A topic of a Cluster; its name is the resource's.",
        max_name_length=MAX_TOPIC_NAME_LENGTH,
        spec=topic_spec(),
        status=topic_status_schema(),
    )
    columns = [
        _column("Cluster", "string", ".spec.cluster", "The Cluster that it belongs to."),
        _column("Partitions", "integer", ".status.partitions", "Partitions that there are."),
        _column("Replicas", "integer", ".status.replicas", "Replicas of each partition."),
        _column("Under-Replicated", "integer", ".status.underReplicated", "Partitions that lack an in-sync replica."),
        _column("Size", "string", ".status.size", "Bytes of the leaders' logs."),
        *_ready_columns(),
        _column("Message", "string", f"{_READY}.message", "Why it is ready or not.", priority=1),
    ]
    return _definition("Topic", "odt", schema, columns)


def _object(description: str, *, max_name_length: int, spec: Schema, status: Schema) -> Schema:
    return {
        "description": description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"description": f"Always {API_VERSION}.", "type": "string"},
            "kind": {"description": "Kind of the resource.", "type": "string"},
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": max_name_length}},
            },
            "spec": spec,
            "status": status,
        },
    }


def _column(name: str, kind: str, path: str, description: str, *, priority: int = 0) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "description": description, "priority": priority}


def _ready_columns() -> list[dict[str, Any]]:
    return [
        _column("Ready", "string", f"{_READY}.status", "Whether it is as specified."),
        _column("Reason", "string", f"{_READY}.reason", "Why it is ready or not, in one word."),
        _column("Age", "date", ".metadata.creationTimestamp", "Time since the resource was made."),
    ]


def _definition(kind: str, short: str, schema: Schema, columns: list[dict[str, Any]]) -> dict[str, Any]:
    singular = kind.lower()
    plural = f"{singular}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{_GROUP}",
            # An uninstall of the chart must not take every cluster with it.
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
