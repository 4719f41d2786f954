"""Deletes cluster-scoped objects of deleted clusters, which Kubernetes does not collect.

A cluster's loop calls it when its resource is deleted, and `manager` for clusters that were deleted while no operator
ran.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Object, Reference, complete, kind_named
from odradek_operator.objects import names
from odradek_operator.objects.wanted import UNOWNED_KINDS, selector_of

logger = logging.getLogger(__name__)

_OURS: Final = f"{names.CLUSTER_LABEL},{names.NAMESPACE_LABEL},{names.MANAGED_BY_LABEL}={names.FIELD_MANAGER}"

Key = tuple[str, str]
"""Namespace and name of a cluster."""


async def remove_unowned(client: KubernetesClient, key: Key) -> None:
    """Delete the objects of one cluster."""
    await remove(client, await _present(client, selector_of(*key)), keep=())


async def present_unowned(client: KubernetesClient) -> list[Object]:
    """List the objects of all clusters. Call it before the clusters are listed, so that new objects are kept."""
    return await _present(client, _OURS)


async def remove(client: KubernetesClient, bodies: list[Object], *, keep: Container[Key]) -> None:
    """Delete the objects whose cluster is not in `keep`."""
    for body in bodies:
        if key_of(body) not in keep:
            which = Reference.of(body)
            if await client.delete(which, uid=body["metadata"]["uid"]):
                logger.info("%s was deleted with its cluster %s/%s", which, *key_of(body))


def key_of(body: Object) -> Key:
    """Return the cluster of an object, from its labels."""
    labels = body["metadata"]["labels"]
    return labels[names.NAMESPACE_LABEL], labels[names.CLUSTER_LABEL]


async def _present(client: KubernetesClient, selector: str) -> list[Object]:
    kinds = [kind_named(*kind) for kind in UNOWNED_KINDS]
    lists = [(kind, await client.list(kind, None, selector=selector)) for kind in kinds]
    return [complete(kind, body) for kind, found in lists for body in found]
