"""Pods of tests that are not part of the product. They fit into a namespace with the restricted security standard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def idle_pod(
    name: str,
    image: str,
    *,
    labels: Mapping[str, str] | None = None,
    mounts: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod that does nothing, so that a test can run commands in it.

    `mounts`: volumes by the path at which the container has them, to read. `spec`: further fields of the pod.
    """
    volumes = {f"volume-{number}": (path, volume) for number, (path, volume) in enumerate((mounts or {}).items())}
    container = {
        "name": "main",
        "image": image,
        "command": ["sleep", "3600"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": key, "mountPath": path, "readOnly": True} for key, (path, _) in volumes.items()],
    }
    user = {"runAsUser": 10001, "fsGroup": 10001, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "containers": [container],
            "volumes": [{"name": key, **volume} for key, (_, volume) in volumes.items()],
            "securityContext": user,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }
