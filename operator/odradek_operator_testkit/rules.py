"""The rules by which the API server rejects changes, as far as the operator depends on them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek_operator.crds.fields import quantity_value
from odradek_operator_testkit.resources import Object, Resource

_CHANGEABLE: Final = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)
"""Mutable fields in the specification of a StatefulSet."""


def check_update(resource: Resource, before: Object, after: Object) -> str:
    """Return why a change is rejected; empty if it is accepted."""
    added = set(_finalizers(after)) - set(_finalizers(before))
    if added and "deletionTimestamp" in before["metadata"]:
        return "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
    old, new = before.get("spec") or {}, after.get("spec") or {}
    match resource.kind:
        case "StatefulSet":
            return _stateful_set(old, new)
        case "PersistentVolumeClaim":
            bound = (before.get("status") or {}).get("phase") == "Bound"
            return _claim(old, new, bound=bound)
        case _:
            return ""


def _finalizers(body: Object) -> list[str]:
    return body["metadata"].get("finalizers") or []


def _stateful_set(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    fixed = (old.keys() | new.keys()) - _CHANGEABLE
    changed = sorted(field for field in fixed if old.get(field) != new.get(field))
    return f"spec: Forbidden: updates to statefulset spec for {', '.join(changed)} are forbidden" if changed else ""


def _claim(old: Mapping[str, Any], new: Mapping[str, Any], *, bound: bool) -> str:
    before, after = _size(old), _size(new)
    if _without_size(old) != _without_size(new) or (before != after and not bound):
        return "spec: Forbidden: spec is immutable after creation except resources.requests of bound claims"
    if quantity_value(after) < quantity_value(before):
        return "spec.resources.requests.storage: Forbidden: field can not be less than previous value"
    return ""


def _size(spec: Mapping[str, Any]) -> str:
    return str(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def _without_size(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in spec.items() if field != "resources"}
