"""The Deployment of a Mirror and its pods as values. Pure.

Both are written by users and by controllers of Kubernetes too, so every field may be missing or of another type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek_operator.mirrors import mirror_names as names
from odradek_operator.objects.pod_facts import clean_text, container_status, url_host, why_not_started


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPod:
    """A pod of a Mirror."""

    name: str
    is_ready: bool
    is_leaving: bool
    """Whether the pod is being deleted."""
    address: str | None
    """Its IP address, as in a URL."""
    error: str
    """Why it does not run; empty if nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorDeployment:
    """How far a Deployment is."""

    is_observed: bool = False
    """Whether its controller has seen the present specification. The numbers may be old otherwise."""
    replicas: int = 0
    """Pods that exist, including those of an earlier specification."""
    updated: int = 0
    """Pods of the present specification."""
    ready: int = 0
    error: str = ""
    """Why its controller cannot create pods; empty if nothing is known."""


def mirror_deployment(body: Mapping[str, Any] | None) -> MirrorDeployment:
    """Return the Deployment as a value. None: it does not exist."""
    if body is None:
        return MirrorDeployment()
    status = body.get("status") or {}
    errors = [
        clean_text(condition.get("message"))
        for condition in status.get("conditions") or []
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True"
    ]
    return MirrorDeployment(
        is_observed=_count(status, "observedGeneration") >= _count(body["metadata"], "generation"),
        replicas=_count(status, "replicas"),
        updated=_count(status, "updatedReplicas"),
        ready=_count(status, "readyReplicas"),
        error=next(iter(errors), ""),
    )


def mirror_pods(bodies: Iterable[Mapping[str, Any]]) -> tuple[MirrorPod, ...]:
    """Return the pods that have not ended, by name. `bodies`: those with the label of the Mirror."""
    found = [_mirror_pod(body) for body in bodies if _phase(body) not in ("Succeeded", "Failed")]
    return tuple(sorted(found, key=lambda pod: pod.name))


def _mirror_pod(body: Mapping[str, Any]) -> MirrorPod:
    metadata, status = body["metadata"], body.get("status") or {}
    is_ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or []
    )
    return MirrorPod(
        name=str(metadata["name"]),
        is_ready=is_ready,
        is_leaving="deletionTimestamp" in metadata,
        address=url_host(status.get("podIP")),
        error="" if is_ready else _error(status),
    )


def _error(status: Mapping[str, Any]) -> str:
    """Return how the last process of the pod ended, or else why its container has not started."""
    container = container_status(status, names.CONTAINER)
    for state in ("state", "lastState"):
        ended = (container.get(state) or {}).get("terminated") or {}
        if ended.get("reason") == "OOMKilled":
            return "The process needed more memory than it has: raise spec.resources.limits.memory."
        if ended.get("exitCode"):
            return clean_text(ended.get("message")) or f"The process ended with code {ended['exitCode']}."
    return why_not_started(status, names.CONTAINER)


def _phase(body: Mapping[str, Any]) -> Any:
    return (body.get("status") or {}).get("phase")


def _count(mapping: Mapping[str, Any], key: str) -> int:
    value = mapping.get(key)
    return value if isinstance(value, int) and value > 0 else 0
