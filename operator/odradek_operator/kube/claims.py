"""Volumes that grow: claims are patched to the size that the resource names, and their StatefulSet is made anew.

Enters: what a round has read, and what is wanted. Leaves: claims with larger requests; sets deleted around their pods,
which keep running and are taken over again by the set that is applied next; sentences about claims that Kubernetes
refuses to grow. Called by the loop of a cluster right before it applies. A claim never shrinks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

from odradek_operator.crds import Cluster
from odradek_operator.fields import quantity_value
from odradek_operator.kube.api import Kind, Object, Reference
from odradek_operator.kube.client import KubernetesClient, KubernetesError
from odradek_operator.lifecycle.steps import Waiting
from odradek_operator.objects.storage import claim_sizes, must_be_remade
from odradek_operator.objects.wanted import WantedObject

logger = logging.getLogger(__name__)

GONE_SECONDS: Final = 5.0
"""For so long a set that was deleted is waited for, lest pods be without a set longer than need be."""
_POLL_SECONDS: Final = 0.1
_REFUSED: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)


async def grow_claims(
    client: KubernetesClient, cluster: Cluster, claims: Mapping[str, Object], *, broker_count: int
) -> list[Waiting]:
    """Patch claims that are too small; what Kubernetes refuses. `claims` are those that are there, by name.

    A claim without a volume cannot be changed yet: it is left for a later round.
    """
    refused = []
    for name, size in claim_sizes(cluster, broker_count=broker_count).items():
        body = claims.get(name)
        if body is None or not _can_grow(body) or quantity_value(_requested(body)) >= quantity_value(size):
            continue
        which = Reference(kind=Kind.CLAIM, namespace=cluster.namespace, name=name)
        try:
            await client.merge(which, {"spec": {"resources": {"requests": {"storage": size}}}})
            logger.info("%s grows from %s to %s", which, _requested(body), size)
        except KubernetesError as error:
            if error.status not in _REFUSED:
                raise
            refused.append(_refusal(name, size, error))
    return refused


async def remake_sets(
    client: KubernetesClient, wanted: Iterable[WantedObject], sets: Mapping[str, Object], *, settled_size: bool
) -> frozenset[str]:
    """Delete StatefulSets whose claim templates are of another size; the names of those not to be applied yet.

    `sets` are those that are there, by name. Without `settled_size`, while brokers are being drained, a set stays:
    how many brokers there are is known from it alone.
    """
    held = set()
    for item in wanted:
        present = sets.get(item.name)
        if item.kind != Kind.STATEFUL_SET.word or present is None:
            continue
        leaving = "deletionTimestamp" in present["metadata"]
        if not leaving and not must_be_remade(present, item.body):
            continue
        if not settled_size or not await _go(client, Reference.of(item.body), present):
            held.add(item.name)
    return frozenset(held)


async def _go(client: KubernetesClient, which: Reference, present: Object) -> bool:
    """Delete a set and leave its pods; whether it is gone already."""
    uid = present["metadata"]["uid"]
    if "deletionTimestamp" not in present["metadata"]:
        logger.info("%s is made anew around its pods, since its volumes change in size", which)
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


def _can_grow(body: Object) -> bool:
    bound = (body.get("status") or {}).get("phase") == "Bound"
    return bound and "deletionTimestamp" not in body["metadata"]


def _requested(body: Object) -> str:
    return str(((body["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0"))


def _refusal(name: str, size: str, error: KubernetesError) -> Waiting:
    return Waiting(
        what="claims",
        reason="ClaimCannotGrow",
        sentence=f"Claim {name} cannot grow to {size}: {error.reason.rstrip('.')}.",
        needs_person=True,
    )
