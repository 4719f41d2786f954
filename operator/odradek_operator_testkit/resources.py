"""The resources that the in-memory API server serves, and their properties. Pure.

The `Resource`s come from the operator's table of kinds. They are found by path, and discovery lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from odradek_operator.kube.api.object_kinds import Kind

Object = dict[str, Any]

VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]
_WITH_STATUS: Final = frozenset(
    {
        Kind.CLUSTER,
        Kind.TOPIC,
        Kind.USER,
        Kind.PIPELINE,
        Kind.MIRROR,
        Kind.POD,
        Kind.NODE,
        Kind.SERVICE,
        Kind.CLAIM,
        Kind.VOLUME,
        Kind.STATEFUL_SET,
        Kind.DEPLOYMENT,
        Kind.DISRUPTION_BUDGET,
    }
)
_WITH_GENERATION: Final = frozenset(
    {
        Kind.CLUSTER,
        Kind.TOPIC,
        Kind.USER,
        Kind.PIPELINE,
        Kind.MIRROR,
        Kind.STATEFUL_SET,
        Kind.DEPLOYMENT,
        Kind.DISRUPTION_BUDGET,
        Kind.NETWORK_POLICY,
        Kind.POD_MONITOR,
        Kind.PROMETHEUS_RULE,
    }
)
_CUSTOM: Final = frozenset(
    {Kind.CLUSTER, Kind.TOPIC, Kind.USER, Kind.PIPELINE, Kind.MIRROR, Kind.POD_MONITOR, Kind.PROMETHEUS_RULE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource type, as in discovery."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    has_status: bool = False
    """Whether the status is a subresource."""
    has_generation: bool = False
    is_custom: bool = False
    """Whether it is a custom resource: items of list responses have a kind, and lists in objects are atomic."""


def _of(kind: Kind) -> Resource:
    return Resource(
        api_version=kind.api_version,
        kind=kind.word,
        plural=kind.plural,
        namespaced=kind.namespaced,
        has_status=kind in _WITH_STATUS,
        has_generation=kind in _WITH_GENERATION,
        is_custom=kind in _CUSTOM,
    )


NAMESPACE: Final = Resource(api_version="v1", kind="Namespace", plural="namespaces", namespaced=False, has_status=True)
DEFINITION: Final = Resource(
    api_version="apiextensions.k8s.io/v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
    has_status=True,
    has_generation=True,
)
RESOURCES: Final = (*map(_of, Kind), NAMESPACE, DEFINITION)
BY_PLURAL: Final = {(one.api_version, one.plural): one for one in RESOURCES}


def discovery(path: str) -> Object | None:
    """Return the response to a discovery path; None for another path, or if the group is not served."""
    if path == "/version":
        return {"major": "1", "minor": "33", "gitVersion": "v1.33.0+memory"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups()}
    api_version = path.removeprefix("/apis/") if path.startswith("/apis/") else path.removeprefix("/api/")
    served = [one for one in RESOURCES if one.api_version == api_version]
    if not served or (api_version == "v1") != path.startswith("/api/"):
        return None
    entries = [entry for one in served for entry in _entries(one)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": entries}


def _groups() -> list[Object]:
    groups = []
    for api_version in sorted({one.api_version for one in RESOURCES if "/" in one.api_version}):
        group, version = api_version.split("/")
        described = {"groupVersion": api_version, "version": version}
        groups.append({"name": group, "versions": [described], "preferredVersion": described})
    return groups


def _entries(one: Resource) -> list[Object]:
    entry: Object = {"kind": one.kind, "singularName": one.kind.lower(), "namespaced": one.namespaced}
    found = [{**entry, "name": one.plural, "verbs": VERBS}]
    if one.has_status:
        found.append({**entry, "name": f"{one.plural}/status", "verbs": ["get", "patch", "update"]})
    return found
