"""Whose an object is: our cluster's, or somebody else's. Pure.

Enters: an object as the API server has it, and the one that is wanted in its place. Leaves: who owns the object, or
None where it is ours. Called by `applier` before it writes: server-side apply would take the object over, and
Kubernetes would delete it together with our Cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek_operator.crds.types import API_VERSION
from odradek_operator.objects import names

_IDENTITY: Final = (names.MANAGED_BY_LABEL, names.CLUSTER_LABEL, names.NAMESPACE_LABEL)
"""Labels that together say whose object it is."""


def owner_of(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """Who owns `present`, in words, None where it may be replaced by `wanted`.

    Ours is what our Cluster owns. What nobody owns is ours if it has our labels: its Cluster was deleted without its
    objects, or it is of a kind that no Cluster can own.
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
    """Whether `present` goes by itself: it belongs to an earlier Cluster of the same name, or is being deleted."""
    if "deletionTimestamp" in present["metadata"]:
        return True
    references = wanted["metadata"].get("ownerReferences") or []
    earlier = {(API_VERSION, owner["kind"], owner["name"]) for owner in references}
    return any(
        (owner["apiVersion"], owner["kind"], owner["name"]) in earlier
        for owner in present["metadata"].get("ownerReferences") or []
    )


def _named_by_itself(present: Mapping[str, Any]) -> str:
    """What an object without a controller says about where it comes from."""
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
    return "somebody that it does not name"
