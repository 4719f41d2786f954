"""The finalizers of Topics and Users: a deleted resource stays until the operator has removed its
finalizer."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference, kind_of

FINALIZERS: Final = {Kind.TOPIC: "odradek.dev/topic", Kind.USER: "odradek.dev/user"}


def has_finalizer(body: Object) -> bool:
    """Whether a Topic or User has the finalizer."""
    return FINALIZERS[kind_of(body)] in (body["metadata"].get("finalizers") or [])


async def release_finalizers(client: KubernetesClient, bodies: Iterable[Object]) -> None:
    """Remove the finalizer from resources for which nothing is done any more, such as those of a deleted Cluster."""
    for body in bodies:
        if has_finalizer(body):
            await set_finalizer(client, body, needed=False)


async def set_finalizer(client: KubernetesClient, body: Object, *, needed: bool) -> None:
    """Add or remove the finalizer. Does nothing if the resource has changed: the next round reads it again."""
    metadata, finalizer = body["metadata"], FINALIZERS[kind_of(body)]
    others = [name for name in metadata.get("finalizers") or [] if name != finalizer]
    patch = {
        # With the version that was read: the list is replaced as a whole, and another finalizer may have been added.
        "metadata": {
            "finalizers": [*others, finalizer] if needed else others,
            "resourceVersion": metadata["resourceVersion"],
        }
    }
    try:
        await client.merge(Reference.of(body), patch)
    except KubernetesError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
