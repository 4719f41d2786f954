"""Resizes volumes: patches the claims, then recreates their StatefulSet with the new claim templates.

The loop of a cluster calls it before it applies objects. Kubernetes does not allow changes of the claim templates of a
StatefulSet, so the StatefulSet is deleted without its pods, which keep running, and created again. That happens only
after every claim has accepted the new size. While Kubernetes refuses one, the StatefulSet keeps its sizes and gets
every other change. The size in the resource can be set back as long as no claim is larger. Claims never shrink.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from http import HTTPStatus
from typing import Final

from odradek_operator.crds import Cluster
from odradek_operator.crds.fields import quantity_value
from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.lifecycle.steps import Waiting
from odradek_operator.objects.storage import (
    VolumeSize,
    must_be_remade,
    template_sizes,
    volume_sizes,
    with_sizes_of,
)
from odradek_operator.objects.wanted import WantedObject

logger = logging.getLogger(__name__)

GONE_SECONDS: Final = 5.0
"""Seconds to wait for the deletion of a StatefulSet, so that it is created again as soon as possible."""
_POLL_SECONDS: Final = 0.1
_LONGEST_REASON: Final = 400
"""Maximum characters of Kubernetes' message in a status message."""
_REFUSED: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The state of the claims compared with the sizes in the resource."""

    waiting: tuple[Waiting, ...] = ()
    notices: tuple[str, ...] = ()
    """Messages about claims that are larger than specified."""
    kept: frozenset[str] = frozenset()
    """StatefulSets whose claim templates keep their sizes for now."""


async def grow_claims(
    client: KubernetesClient,
    cluster: Cluster,
    claims: Mapping[str, Object],
    sets: Mapping[str, Object],
    *,
    broker_count: int,
) -> Growth:
    """Patch claims that are too small. `claims` and `sets` are the existing objects, by name.

    If Kubernetes refuses to expand a claim, the other claims of that volume are not tried, so that a storage class
    without expansion costs one request per round and all claims of the volume keep the same size.
    """
    waiting: list[Waiting] = []
    notices: list[str] = []
    kept = set()
    for volume in volume_sizes(cluster, broker_count=broker_count):
        named = (name for name in volume.claims.values() if name in claims)
        present = {name: claims[name] for name in named if not _is_leaving(claims[name])}
        larger = [name for name, body in present.items() if _value(body) > quantity_value(volume.size)]
        if larger and _shrinks(volume, sets):
            waiting.append(_cannot_shrink(volume, larger, present))
            kept.add(volume.stateful_set)
            continue
        notices += [_stays_larger(volume, name, present[name]) for name in larger[:1]]
        obstacle = await _grow(client, cluster.namespace, volume, present)
        if obstacle is not None:
            waiting.append(obstacle)
            kept.add(volume.stateful_set)
    return Growth(waiting=tuple(waiting), notices=tuple(notices), kept=frozenset(kept))


async def _grow(
    client: KubernetesClient, namespace: str, volume: VolumeSize, present: Mapping[str, Object]
) -> Waiting | None:
    """Patch the claims of one volume in order. Returns the reason if a claim cannot be expanded."""
    for name, body in present.items():
        if _value(body) >= quantity_value(volume.size):
            continue
        if (body.get("status") or {}).get("phase") != "Bound":
            return _is_unbound(volume, name)
        which = Reference(kind=Kind.CLAIM, namespace=namespace, name=name)
        try:
            await client.merge(which, {"spec": {"resources": {"requests": {"storage": volume.size}}}})
            logger.info("%s grows from %s to %s", which, _requested(body), volume.size)
        except KubernetesError as error:
            if error.status not in _REFUSED:
                raise
            return _refusal(volume, name, body, error)
    return None


async def remake_sets(
    client: KubernetesClient,
    wanted: Iterable[WantedObject],
    sets: Mapping[str, Object],
    *,
    kept: frozenset[str],
    settled_size: bool,
) -> list[WantedObject]:
    """Delete StatefulSets whose claim templates change, without their pods. Returns the objects to apply now.

    `sets` are the existing StatefulSets, by name. Those in `kept` are applied with their present sizes; without
    `settled_size`, while brokers are drained, all are. A StatefulSet that is still being deleted is omitted.
    """
    ready = []
    for item in wanted:
        present = sets.get(item.name) if item.kind == Kind.STATEFUL_SET.word else None
        if present is not None and (_is_leaving(present) or must_be_remade(present, item.body)):
            if not _is_leaving(present) and (item.name in kept or not settled_size):
                item = replace(item, body=with_sizes_of(present, item.body))
            elif not await _go(client, Reference.of(item.body), present):
                continue
        ready.append(item)
    return ready


async def _go(client: KubernetesClient, which: Reference, present: Object) -> bool:
    """Delete a StatefulSet without its pods. Returns whether it is gone."""
    uid = present["metadata"]["uid"]
    if not _is_leaving(present):
        logger.info("%s is deleted and created again without its pods, because the size of its volumes changes", which)
        await client.delete(which, uid=uid, orphan=True)
    loop = asyncio.get_running_loop()
    until = loop.time() + GONE_SECONDS
    while (found := await client.get(which.kind, which.namespace, which.name)) is not None:
        if found["metadata"]["uid"] != uid:
            break
        if loop.time() >= until:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


def _is_leaving(body: Object) -> bool:
    return "deletionTimestamp" in body["metadata"]


def _requested(body: Object) -> str:
    return str(((body["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0"))


def _value(body: Object) -> Decimal:
    return quantity_value(_requested(body))


def _shrinks(volume: VolumeSize, sets: Mapping[str, Object]) -> bool:
    """Whether the specified size is smaller than that of the StatefulSet's claim template."""
    present = sets.get(volume.stateful_set)
    size = None if present is None else template_sizes(present).get(volume.template)
    return size is not None and quantity_value(volume.size) < quantity_value(size)


def _cannot_shrink(volume: VolumeSize, larger: Sequence[str], present: Mapping[str, Object]) -> Waiting:
    largest = max(larger, key=lambda name: _value(present[name]))
    return _wait(
        "ClaimCannotShrink",
        f"{volume.field} is {volume.size}, but claim {largest} has {_requested(present[largest])}, and a claim never "
        f"shrinks: set the size back to at least {_requested(present[largest])}.",
    )


def _stays_larger(volume: VolumeSize, name: str, body: Object) -> str:
    return f"Claim {name} has {_requested(body)}, more than {volume.field} ({volume.size}): a claim never shrinks."


def _is_unbound(volume: VolumeSize, name: str) -> Waiting:
    return _wait("ClaimNotBound", f"Claim {name} grows to {volume.size} once it has a volume.", needs_person=False)


def _refusal(volume: VolumeSize, name: str, body: Object, error: KubernetesError) -> Waiting:
    storage_class = body["spec"].get("storageClassName")
    of_class = f" of StorageClass {storage_class}" if storage_class else ""
    return _wait(
        "ClaimCannotGrow",
        f"Claim {name}{of_class} cannot grow from {_requested(body)} to {volume.size}: "
        f"{error.reason[:_LONGEST_REASON].rstrip('.')}. Make it possible (allowVolumeExpansion of the class, or a "
        f"quota), or set {volume.field} back.",
    )


def _wait(reason: str, message: str, *, needs_person: bool = True) -> Waiting:
    return Waiting(what="claims", reason=reason, message=message, needs_person=needs_person)
