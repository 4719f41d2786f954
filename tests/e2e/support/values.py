"""The fields of pods, nodes and events that tests check, as frozen values; pure.

Parses objects from the JSON output of kubectl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

Object = Mapping[str, Any]


def condition(resource: Object, kind: str) -> bool:
    """Return whether a condition of a resource is True."""
    found: Sequence[Object] = resource.get("status", {}).get("conditions", ())
    return any(entry["type"] == kind and entry["status"] == "True" for entry in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod. `restarts` is the sum over all containers. `node` and `address` are empty until the pod has them."""

    name: str
    namespace: str
    uid: str
    phase: str
    ready: bool
    terminating: bool
    node: str
    address: str
    restarts: int
    containers: tuple[str, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @classmethod
    def parse(cls, pod: Object) -> Self:
        """Return the pod of an API object."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        both = [*spec.get("initContainers", ()), *spec["containers"]]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            phase=status.get("phase", "Unknown"),
            ready=condition(pod, "Ready"),
            terminating="deletionTimestamp" in metadata,
            node=spec.get("nodeName", ""),
            address=status.get("podIP", ""),
            restarts=sum(entry["restartCount"] for entry in status.get("containerStatuses", ())),
            containers=tuple(container["name"] for container in both),
            labels=metadata.get("labels", {}),
            annotations=metadata.get("annotations", {}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster."""

    name: str
    ready: bool
    zone: str
    address: str

    @classmethod
    def parse(cls, node: Object) -> Self:
        """Return the node of an API object."""
        addresses = {entry["type"]: entry["address"] for entry in node.get("status", {}).get("addresses", ())}
        return cls(
            name=node["metadata"]["name"],
            ready=condition(node, "Ready"),
            zone=node["metadata"].get("labels", {}).get("topology.kubernetes.io/zone", ""),
            address=addresses.get("InternalIP", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that was reported about an object."""

    kind: str
    name: str
    reason: str
    message: str
    type: str
    count: int

    @classmethod
    def parse(cls, event: Object) -> Self:
        """Return the event of a v1 API object. Newer reporters count in `series`, older ones in `count`."""
        series = event.get("series") or {}
        return cls(
            kind=event["involvedObject"].get("kind", ""),
            name=event["involvedObject"].get("name", ""),
            reason=event.get("reason") or "",
            message=event.get("message") or "",
            type=event.get("type") or "",
            count=series.get("count") or event.get("count") or 1,
        )
