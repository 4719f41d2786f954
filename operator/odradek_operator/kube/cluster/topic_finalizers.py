"""Manages the finalizer of Topic resources with `deletion: Delete`, so that the topic is deleted before the resource.

A resource that protects its topic has no finalizer, so that `kubectl delete` never waits for an operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_operator.crds import Deletion, Topic
from odradek_operator.kube.api.api_client import KubernetesClient
from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.cluster.finalizers import has_finalizer, release_finalizers, set_finalizer
from odradek_operator.topics.reconcile import Outcome


class DeletedTopics:
    """Topics with `deletion: Delete` that were deleted before they had the finalizer, by name."""

    def __init__(self) -> None:
        self._bodies: dict[str, Object] = {}

    def add(self, body: Object) -> None:
        """Remember a Topic that a watch reported as deleted.

        A Topic with a deletion timestamp had the finalizer, which someone removed to keep the topic.
        """
        if asks_for_finalizer(body) and "deletionTimestamp" not in body["metadata"]:
            self._bodies[body["metadata"]["name"]] = body

    def missing_in(self, present: Mapping[str, Object]) -> dict[str, Object]:
        """Return the remembered Topics that are not in a list of Topics. A new Topic of the same name replaces the old
        one.

        If the list still contains the same Topic, it was read before the deletion, and the Topic is kept for the next
        list.
        """
        self._bodies = {
            name: body
            for name, body in self._bodies.items()
            if name not in present or present[name]["metadata"]["uid"] == body["metadata"]["uid"]
        }
        return {name: body for name, body in self._bodies.items() if name not in present}

    def settle(self, name: str) -> None:
        """Forget a Topic whose topic does not exist any more."""
        self._bodies.pop(name, None)


async def keep_finalizers(
    client: KubernetesClient, objects: Mapping[str, Object], topics: Mapping[str, Topic], outcome: Outcome
) -> None:
    """Add the finalizer where it is needed, and remove it where it is not."""
    for name, topic in topics.items():
        body = objects[name]
        leaving = "deletionTimestamp" in body["metadata"]
        if leaving:
            gone = name not in outcome.snapshot.topics and name not in outcome.snapshot.deleting
            needed = topic.deletion is Deletion.DELETE and not gone
        else:
            needed = topic.deletion is Deletion.DELETE
        # Kubernetes refuses a new finalizer on an object that is being deleted.
        if needed != has_finalizer(body) and not (needed and leaving):
            await set_finalizer(client, body, needed=needed)


async def release_protected(client: KubernetesClient, bodies: Iterable[Object]) -> None:
    """Remove the finalizer from resources that are being deleted and protect their topic."""
    leaving = [body for body in bodies if "deletionTimestamp" in body["metadata"] and not asks_for_finalizer(body)]
    await release_finalizers(client, leaving)


def asks_for_finalizer(body: Object) -> bool:
    """Whether the topic is deleted with the resource."""
    spec = body.get("spec")
    return isinstance(spec, dict) and spec.get("deletion") == Deletion.DELETE.value


def waits_for_deletion(body: Object) -> bool:
    """Whether the resource is being deleted and waits until its topic is deleted."""
    return "deletionTimestamp" in body["metadata"] and has_finalizer(body) and asks_for_finalizer(body)
