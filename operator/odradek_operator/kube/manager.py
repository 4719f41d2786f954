"""Manages all resources of an operator: a loop for each Cluster, Pipeline and Mirror, and objects without a cluster.

`handlers` passes watch events, `scopes` the namespaces that are served. The manager runs loops only in these
namespaces, writes the statuses of Topics and Users without a Cluster, and deletes cluster-scoped objects of deleted
Clusters, which Kubernetes does not collect.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Container
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_cache import FreshReadNeededError, ListQuery
from odradek_operator.kube.api.object_kinds import Kind, Object, kind_of
from odradek_operator.kube.api.unowned import Key, key_of, present_unowned, remove
from odradek_operator.kube.cluster.cluster_loop import ClusterLoop, Shared
from odradek_operator.kube.cluster.cluster_view import cluster_of, is_paused
from odradek_operator.kube.cluster.finalizers import release_finalizers
from odradek_operator.kube.cluster.status_writer import Statuses
from odradek_operator.kube.mirrors.mirror_loop import MirrorLoop
from odradek_operator.kube.pipelines.pipeline_loop import PipelineLoop
from odradek_operator.kube.resource_loops import ResourceLoops
from odradek_operator.kube.scopes import Alone, Scopes
from odradek_operator.objects import names

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 30.0
"""Maximum seconds between two sweeps."""
SWEEP_DELAY_SECONDS: Final = 1.0
"""Delay of a sweep after an event about a Cluster, or about a Topic or User without one, so that many events cause one
sweep."""


class Manager:
    """Starts and wakes loops, and cleans up objects without a cluster."""

    def __init__(self, shared: Shared, scopes: Scopes | None = None) -> None:
        """Nothing runs before `run`. `scopes` decides which namespaces are served; without it, all are."""
        self._shared = shared
        self._scopes = scopes or Alone()
        self._loops: dict[Key, tuple[ClusterLoop, asyncio.Task[None]]] = {}
        self._clusters: set[Key] = set()
        """Known clusters, including those in namespaces that are not served."""
        self._unowned: list[Object] = []
        """Cluster-scoped objects at the last fresh sweep."""
        self._is_fresh = False
        """Whether the present sweep has fresh lists."""
        self._fresh_at = float("-inf")
        """Time of the loop at which the next sweep with fresh lists is due."""
        self._fenced: dict[str, tuple[Shared, KubernetesClient]] = {}
        self._woken = asyncio.Event()
        self._pipelines = ResourceLoops(PipelineLoop, lambda namespace: self._in(namespace)[0], self._scopes.holds)
        self._mirrors = ResourceLoops(MirrorLoop, lambda namespace: self._in(namespace)[0], self._scopes.holds)

    def gained(self, namespace: str) -> None:
        """Start the loops of a namespace that this operator serves from now on."""
        for key in self._clusters:
            if key[0] == namespace:
                self._start(key)
        self._pipelines.gained(namespace)
        self._mirrors.gained(namespace)
        self._fresh_at = float("-inf")
        self._woken.set()

    async def lost(self, namespace: str) -> None:
        """Stop the loops of a namespace. Returns when none of them runs."""
        await asyncio.gather(self._stop(namespace), self._pipelines.stop(namespace), self._mirrors.stop(namespace))

    def watch_event(self, body: Object, *, deleted: bool, listed: bool) -> None:
        """Update the cache with a watch event about any object. `listed`: whether the watch has begun with a list."""
        if listed:
            self._shared.cache.doubt(kind_of(body))
        self._shared.cache.observe(body, deleted=deleted)

    def cluster_changed(self, body: Object, *, deleted: bool) -> None:
        """Handle a Cluster that was created, changed or deleted."""
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if not deleted:
            self._clusters.add(key)
            self._scopes.add_namespace(key[0])
            self._start(key)
        self._wake(key, body, deleted=deleted)
        self._woken.set()

    def topic_changed(self, body: Object, *, deleted: bool) -> None:
        """Handle a Topic that was created, changed or deleted."""
        key = (body["metadata"]["namespace"], cluster_of(body))
        found = self._loops.get(key)
        if deleted and found is not None:
            found[0].topic_deleted(body)
        if not self._wake(key, body, deleted=deleted):
            self._woken.set()

    def user_changed(self, body: Object, *, deleted: bool) -> None:
        """Handle a User that was created, changed or deleted."""
        if not self._wake((body["metadata"]["namespace"], cluster_of(body)), body, deleted=deleted):
            self._woken.set()

    def pipeline_changed(self, body: Object, *, deleted: bool) -> None:
        """Handle a Pipeline that was created, changed or deleted."""
        self._changed(self._pipelines, body, deleted=deleted)

    def mirror_changed(self, body: Object, *, deleted: bool) -> None:
        """Handle a Mirror that was created, changed or deleted."""
        self._changed(self._mirrors, body, deleted=deleted)

    def _changed(self, loops: ResourceLoops, body: Object, *, deleted: bool) -> None:
        if not deleted:
            self._scopes.add_namespace(body["metadata"]["namespace"])
        loops.changed(body, deleted=deleted)
        if deleted:
            self._woken.set()

    def object_changed(self, body: Object, *, deleted: bool) -> None:
        """Handle an object with a cluster's label that was created, changed or deleted."""
        metadata = body["metadata"]
        cluster = metadata.get("labels", {}).get(names.CLUSTER_LABEL, "")
        found = self._loops.get((metadata.get("namespace", ""), cluster))
        if found is not None:
            found[0].object_changed(body, deleted=deleted)

    def node_readiness_changed(self) -> None:
        """Handle a change of a node: wake all loops."""
        for loop, _ in self._loops.values():
            loop.wake()

    def _wake(self, key: Key, body: Object, *, deleted: bool) -> bool:
        """Wake the loop of a cluster after a change of its resource or of a Topic. Returns whether it has a loop."""
        found = self._loops.get(key)
        if found is None:
            return False
        if deleted or _is_unsettled(body):
            found[0].specification_changed()
        else:
            found[0].wake()
        return True

    def _start(self, key: Key) -> None:
        if key not in self._loops and self._scopes.holds(key[0]):
            loop = ClusterLoop(self._in(key[0])[0], *key)
            task = asyncio.create_task(loop.run(), name=f"cluster {key[0]}/{key[1]}")
            self._loops[key] = (loop, task)
            task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        self._loops.pop(key, None)
        # A Cluster of that name may have been created while this loop ended.
        self._woken.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the loop of cluster %s/%s ended", *key, exc_info=error)

    def _in(self, namespace: str) -> tuple[Shared, KubernetesClient]:
        """Return what loops and sweeps write to a namespace with. Its writes end when it is no longer served."""
        found = self._fenced.get(namespace)
        if found is None:
            client = self._shared.client.fenced(self._scopes.fence(namespace))
            shared = replace(self._shared, client=client, events=self._shared.events.through(client))
            found = self._fenced[namespace] = (shared, client.checked(self._check_write))
        return found

    async def _stop(self, namespace: str | None = None) -> None:
        """End the loops of a namespace, or all loops."""
        tasks = [task for key, (_, task) in self._loops.items() if namespace in (None, key[0])]
        for task in tasks:
            if not task.cancelling():  # A second cancellation would interrupt the end of the ZooKeeper session.
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self) -> None:
        """Run until cancelled. No loop is left then."""
        try:
            while True:
                self._woken.clear()
                try:
                    await self._guarded_sweep()
                except KubernetesError as error:
                    logger.warning("cannot list all resources: %s", error)
                await asyncio.sleep(SWEEP_DELAY_SECONDS)
                try:
                    async with asyncio.timeout(SWEEP_SECONDS):
                        await self._woken.wait()
                except TimeoutError:
                    continue
        finally:
            await asyncio.gather(self._stop(), self._pipelines.stop(), self._mirrors.stop())

    async def _guarded_sweep(self) -> None:
        """Sweep with the cache. If anything has to be written, and regularly in any case, sweep with fresh lists."""
        now, resync = asyncio.get_running_loop().time(), self._shared.settings.resync_seconds
        try:
            await self._sweep(max_age=resync if now < self._fresh_at else 0.0)
        except FreshReadNeededError:
            await self._sweep(max_age=0.0)
        if self._is_fresh:
            self._fresh_at = now + resync

    def _check_write(self) -> None:
        if not self._is_fresh:
            raise FreshReadNeededError

    async def _sweep(self, *, max_age: float) -> None:
        """Look at all resources, to find what belongs to no loop and, with fresh lists, what the watches missed."""
        self._is_fresh = max_age <= 0
        if self._is_fresh:
            self._unowned = await self._present_unowned()
        unowned = self._unowned
        clusters = await self._all(Kind.CLUSTER, max_age=max_age)
        topics = await self._all(Kind.TOPIC, max_age=max_age)
        users = await self._all(Kind.USER, max_age=max_age)
        pipelines = await self._all_optional(Kind.PIPELINE, max_age=max_age)
        mirrors = await self._all_optional(Kind.MIRROR, max_age=max_age)
        keys = {(body["metadata"]["namespace"], body["metadata"]["name"]) for body in clusters}
        self._clusters = set(keys)
        places = {key[0] for key in (*keys, *self._loops)} | {key_of(body)[0] for body in unowned}
        others = (*topics, *users, *pipelines, *mirrors)
        self._scopes.set_namespaces(places | {body["metadata"]["namespace"] for body in others})
        for key in keys:
            self._start(key)
        for loops, bodies in ((self._pipelines, pipelines), (self._mirrors, mirrors)):
            loops.replace((body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies)
        self._count("Cluster", clusters)
        self._count("Topic", topics)
        self._count("User", users)
        self._count("Pipeline", pipelines)
        self._count("Mirror", mirrors)
        for body in (*topics, *users):
            await self._handle_dependent(body, keys)
        for body in unowned:
            namespace = key_of(body)[0]
            if self._scopes.holds(namespace) or self._scopes.is_closing(namespace):
                await remove(self._in(namespace)[1], [body], keep=keys)

    async def _present_unowned(self) -> list[Object]:
        """Return cluster-scoped objects of clusters in watched namespaces."""
        watched = self._shared.settings.namespaces
        return [
            body for body in await present_unowned(self._shared.client) if not watched or key_of(body)[0] in watched
        ]

    async def _handle_dependent(self, body: Object, clusters: Container[Key]) -> None:
        """Write the status of a Topic or User without a Cluster, or remove its finalizer if it is being deleted."""
        namespace, cluster = body["metadata"]["namespace"], cluster_of(body)
        leaving = "deletionTimestamp" in body["metadata"]
        client = self._in(namespace)[1]
        if self._scopes.is_closing(namespace):
            # The whole namespace is deleted and no Lease can be held in it: every operator may remove the finalizer.
            if leaving:
                await release_finalizers(client, [body])
        elif self._scopes.holds(namespace) and (namespace, cluster) not in clusters:
            if leaving:
                await release_finalizers(client, [body])
            else:
                await Statuses(client).without_cluster(body, cluster)

    async def _all_optional(self, kind: Kind, *, max_age: float) -> list[Object]:
        try:
            return await self._all(kind, max_age=max_age)
        except KubernetesError as error:
            # Roles and definitions of an earlier installation do not have this kind. All else works without it.
            if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                raise
            return []

    async def _all(self, kind: Kind, *, max_age: float) -> list[Object]:
        watched = self._shared.settings.namespaces or (None,)
        queries = [ListQuery(kind=kind, namespace=namespace) for namespace in watched]
        return [body for query in queries for body in await self._shared.cache.list(query, max_age=max_age)]

    def _count(self, word: str, bodies: list[Object]) -> None:
        ours = [body for body in bodies if self._scopes.holds(body["metadata"]["namespace"])]
        counts = Counter(body["metadata"]["namespace"] for body in ours)
        paused = Counter(body["metadata"]["namespace"] for body in ours if is_paused(body))
        self._shared.reconciliations.counted(
            word, {namespace: (count, paused[namespace]) for namespace, count in counts.items()}
        )


def _is_unsettled(body: Object) -> bool:
    """Whether a resource was changed since its status was written, or is being deleted."""
    metadata = body["metadata"]
    observed = (body.get("status") or {}).get("observedGeneration")
    return observed != metadata.get("generation") or "deletionTimestamp" in metadata
