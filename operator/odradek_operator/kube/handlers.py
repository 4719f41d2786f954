"""The kopf handlers: they pass watch events to the manager and decide nothing.

Handlers are coroutines, because kopf runs plain functions in threads. Only `on.event` handlers are used, so that kopf
writes no annotations, finalizers or progress to resources.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import kopf

from odradek_operator.kube.api.object_kinds import Kind
from odradek_operator.kube.cluster.cluster_view import complete
from odradek_operator.kube.manager import Manager
from odradek_operator.objects.names import CLUSTER_LABEL

Handler = Callable[..., Awaitable[None]]

WATCHED: Final = (
    Kind.POD,
    Kind.STATEFUL_SET,
    Kind.DEPLOYMENT,
    Kind.SERVICE,
    Kind.CONFIG_MAP,
    Kind.CLAIM,
    Kind.DISRUPTION_BUDGET,
    Kind.NETWORK_POLICY,
)
"""Kinds whose objects with a cluster's label are watched; other kinds are read at the next resync."""


def registry(manager: Manager) -> kopf.OperatorRegistry:
    """Return the kopf registry of one operator."""
    table = kopf.OperatorRegistry()
    group, version = Kind.CLUSTER.api_version.split("/")

    # The pod's service account, else KUBECONFIG; called again when a token has expired.
    @kopf.on.login(registry=table)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    async def on_cluster(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        manager.heard_of_cluster(dict(body), deleted=type == "DELETED")

    async def on_topic(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        manager.heard_of_topic(dict(body), deleted=type == "DELETED")

    async def on_node(**_: Any) -> None:
        manager.heard_of_node()

    _watch(table, on_cluster, group, version, Kind.CLUSTER.plural)
    _watch(table, on_topic, group, version, Kind.TOPIC.plural)
    _watch(table, on_node, "", "v1", Kind.NODE.plural, when=_readiness_changed())
    for kind in WATCHED:
        group, _, version = kind.api_version.rpartition("/")
        _watch(table, _object_handler(manager, kind), group, version, kind.plural, labels={CLUSTER_LABEL: kopf.PRESENT})
    return table


def _watch(
    table: kopf.OperatorRegistry,
    handler: Callable[..., Awaitable[None]],
    group: str,
    version: str,
    plural: str,
    **filters: Any,
) -> None:
    kopf.on.event(group, version, plural, registry=table, id=f"{handler.__name__}-{plural}", **filters)(handler)


def _object_handler(manager: Manager, kind: Kind) -> Handler:
    async def on_object(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        manager.heard_of_object(complete(kind, dict(body)), deleted=type == "DELETED")

    return on_object


def _readiness_changed() -> Callable[..., bool]:
    """Whether a node was added, removed, or changed its readiness: kubelets update nodes every few seconds."""
    known: dict[str, str] = {}

    def changed(body: Mapping[str, Any], type: str | None, **_: Any) -> bool:  # noqa: A002 - kopf's name
        name = body["metadata"]["name"]
        conditions = (body.get("status") or {}).get("conditions") or []
        ready = "gone" if type == "DELETED" else next((c["status"] for c in conditions if c["type"] == "Ready"), "")
        before, known[name] = known.get(name), ready
        return before != ready

    return changed


def settings() -> kopf.OperatorSettings:
    """Set kopf's settings where its defaults do not fit."""
    tuned = kopf.OperatorSettings()
    # The loops write Events; those of kopf would say that handlers succeeded.
    tuned.posting.enabled = False
    tuned.peering.standalone = True
    # A watch whose connection was lost is noticed after the server's timeout at the latest.
    tuned.watching.server_timeout = 240
    tuned.watching.connect_timeout = 10
    tuned.scanning.disabled = True
    tuned.networking.error_backoffs = (1, 1, 2, 3, 5)
    return tuned
