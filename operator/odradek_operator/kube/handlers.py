"""The kopf handlers: they pass watch events to the cache and the manager, and decide nothing.

Handlers are coroutines, because kopf runs plain functions in threads. Only `on.event` handlers are used, so that kopf
writes no annotations, finalizers or progress to resources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import kopf

from odradek_operator.kube.api.object_kinds import Kind, Object, complete
from odradek_operator.kube.manager import Manager
from odradek_operator.objects.names import CLUSTER_LABEL


class EventListener(Protocol):
    """Gets the events of one kind."""

    def __call__(self, body: Object, *, deleted: bool) -> None:
        """Handle an object that was created, changed or deleted."""
        ...


LABELLED: Final = (
    Kind.POD,
    Kind.STATEFUL_SET,
    Kind.DEPLOYMENT,
    Kind.SERVICE,
    Kind.CONFIG_MAP,
    Kind.CLAIM,
    Kind.DISRUPTION_BUDGET,
    Kind.NETWORK_POLICY,
)
"""Kinds of which only objects with a cluster's label are watched. Other kinds are read at the next resync."""


def registry(manager: Manager) -> kopf.OperatorRegistry:
    """Return the kopf registry of one operator."""
    table = kopf.OperatorRegistry()

    # The pod's service account, else KUBECONFIG; called again when a token has expired.
    @kopf.on.login(registry=table)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    readiness_changed = _readiness_changed()

    def on_node(body: Object, *, deleted: bool) -> None:
        if readiness_changed(body, deleted=deleted):
            manager.node_readiness_changed()

    def on_volume(body: Object, *, deleted: bool) -> None:
        """Only the cache needs it: a change of a volume comes with one of its claim."""

    _watch(table, manager, Kind.CLUSTER, manager.cluster_changed)
    _watch(table, manager, Kind.TOPIC, manager.topic_changed)
    _watch(table, manager, Kind.USER, manager.user_changed)
    _watch(table, manager, Kind.PIPELINE, manager.pipeline_changed)
    _watch(table, manager, Kind.MIRROR, manager.mirror_changed)
    _watch(table, manager, Kind.NODE, on_node)
    _watch(table, manager, Kind.VOLUME, on_volume)
    for kind in LABELLED:
        _watch(table, manager, kind, manager.object_changed)
    return table


def _watch(table: kopf.OperatorRegistry, manager: Manager, kind: Kind, listener: EventListener) -> None:
    """Pass the events of a kind to the cache, then to `listener`."""

    async def on_event(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        found, deleted = complete(kind, dict(body)), type == "DELETED"
        # An event has no type if its object comes from a list: the watch has just begun, or begun again.
        manager.watch_event(found, deleted=deleted, listed=type is None)
        listener(found, deleted=deleted)

    group, version = _group_and_version(kind)
    kopf.on.event(group, version, kind.plural, registry=table, id=f"on_event-{kind.plural}")(on_event)


def _group_and_version(kind: Kind) -> tuple[str, str]:
    group, _, version = kind.api_version.rpartition("/")
    return group, version


def _readiness_changed() -> Callable[..., bool]:
    """Whether a node was added, removed, or changed its readiness: kubelets update nodes every few seconds."""
    known: dict[str, str] = {}

    def changed(body: Object, *, deleted: bool) -> bool:
        name = body["metadata"]["name"]
        conditions = (body.get("status") or {}).get("conditions") or []
        ready = "gone" if deleted else next((c["status"] for c in conditions if c["type"] == "Ready"), "")
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
    for kind in LABELLED:
        tuned.watching.label_selectors[*_group_and_version(kind), kind.plural] = CLUSTER_LABEL
    tuned.networking.error_backoffs = (1, 1, 2, 3, 5)
    return tuned
