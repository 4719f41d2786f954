"""Decides whether an object belongs to the cluster or to another owner. Pure.

`applier` checks it before it writes: server-side apply would take over an object of another owner, and Kubernetes would
delete it with the Cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek_operator.crds.types import API_VERSION
from odradek_operator.objects import names

_IDENTITY: Final = (names.MANAGED_BY_LABEL, names.CLUSTER_LABEL, names.NAMESPACE_LABEL)
"""Labels that identify the owner of an object."""


def owner_of(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """Describe the owner of `present`; None if it can be replaced by `wanted`.

    An object belongs to the cluster if its Cluster owns it. An object without an owner belongs to it if it has its
    labels: the Cluster was deleted without its objects, or it is of a kind that no Cluster can own.
    """
    controllers = [owner for owner in present["metadata"].get("ownerReferences") or [] if owner.get("controller")]
    ours = {owner["uid"] for owner in wanted["metadata"].get("ownerReferences") or []}
    if controllers:
        owner = controllers[0]
        if owner["uid"] in ours:
            return None
        return f"{owner['kind']} {owner['name']} ({owner['apiVersion']})"
    labels = present["metadata"].get("labels") or {}
    expected = wanted["metadata"].get("labels") or {}
    if all(labels.get(label) == expected.get(label) for label in _IDENTITY):
        return None
    return _named_by_itself(present)


def is_leaving(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether `present` is about to disappear: it belongs to an earlier Cluster of that name, or is being deleted."""
    if "deletionTimestamp" in present["metadata"]:
        return True
    references = wanted["metadata"].get("ownerReferences") or []
    earlier = {(API_VERSION, owner["kind"], owner["name"]) for owner in references}
    return any(
        (owner["apiVersion"], owner["kind"], owner["name"]) in earlier
        for owner in present["metadata"].get("ownerReferences") or []
    )


def _named_by_itself(present: Mapping[str, Any]) -> str:
    """Describe where an object without a controller comes from."""
    metadata = present["metadata"]
    for owner in metadata.get("ownerReferences") or []:
        return f"{owner['kind']} {owner['name']} ({owner['apiVersion']})"
    labels = metadata.get("labels") or {}
    if manager := labels.get(names.MANAGED_BY_LABEL):
        if cluster := labels.get(names.CLUSTER_LABEL):
            return f"{manager}, for Cluster {labels.get(names.NAMESPACE_LABEL, '')}/{cluster}"
        return str(manager)
    for entry in metadata.get("managedFields") or []:
        return f"field manager {entry.get('manager', 'unknown')}"
    return "an unknown owner"
