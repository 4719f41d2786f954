"""All clusters of an operator: one loop for each Cluster resource, and what belongs to no cluster.

Enters: what the watches heard. Leaves: running loops; Topics whose cluster does not exist are told so; objects outside
any namespace whose cluster is gone are deleted, since Kubernetes cannot collect those. Called by `handlers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from odradek_operator.kube.api import Kind, Object
from odradek_operator.kube.client import KubernetesError
from odradek_operator.kube.finalizers import release_finalizers
from odradek_operator.kube.loop import ClusterLoop, Shared
from odradek_operator.kube.statuses import Statuses
from odradek_operator.kube.unowned import Key, key_of, present_unowned, remove
from odradek_operator.kube.view import cluster_of, complete, is_paused
from odradek_operator.objects import names

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 30.0
STIR_SECONDS: Final = 1.0
"""After something was heard of a Cluster or a Topic without one, so that many together are one sweep."""


class Manager:
    """Starts loops, wakes them, and sweeps up what has none."""

    def __init__(self, shared: Shared) -> None:
        """Nothing runs before `run`."""
        self._shared = shared
        self._loops: dict[Key, tuple[ClusterLoop, asyncio.Task[None]]] = {}
        self._statuses = Statuses(shared.client)
        self._stirred = asyncio.Event()

    def heard_of_cluster(self, body: Object, *, deleted: bool) -> None:
        """A Cluster came, changed or went."""
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if not deleted:
            self._start(key)
        self._wake(key)
        self._stirred.set()

    def heard_of_topic(self, body: Object) -> None:
        """A Topic came, changed or went."""
        key = (body["metadata"]["namespace"], cluster_of(body))
        if not self._wake(key):
            self._stirred.set()

    def heard_of_object(self, body: Object, *, deleted: bool) -> None:
        """An object that bears a cluster's label came, changed or went."""
        metadata = body["metadata"]
        cluster = metadata.get("labels", {}).get(names.CLUSTER_LABEL, "")
        found = self._loops.get((metadata.get("namespace", ""), cluster))
        if found is not None:
            found[0].saw(body, deleted=deleted)

    def heard_of_node(self) -> None:
        """A node changed: which clusters that concerns they see for themselves."""
        for loop, _ in self._loops.values():
            loop.wake()

    def _wake(self, key: Key) -> bool:
        found = self._loops.get(key)
        if found is not None:
            found[0].wake()
        return found is not None

    def _start(self, key: Key) -> None:
        if key not in self._loops:
            loop = ClusterLoop(self._shared, *key)
            task = asyncio.create_task(loop.run(), name=f"cluster {key[0]}/{key[1]}")
            self._loops[key] = (loop, task)
            task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        self._loops.pop(key, None)
        # A Cluster of that name may have come while this one ended.
        self._stirred.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the loop of cluster %s/%s ended", *key, exc_info=error)

    async def run(self) -> None:
        """Until cancelled; then no loop is left."""
        try:
            while True:
                self._stirred.clear()
                try:
                    await self._sweep()
                except KubernetesError as error:
                    logger.warning("looking through all resources: %s", error)
                await asyncio.sleep(STIR_SECONDS)
                try:
                    async with asyncio.timeout(SWEEP_SECONDS):
                        await self._stirred.wait()
                except TimeoutError:
                    continue
        finally:
            tasks = [task for _, task in self._loops.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _sweep(self) -> None:
        """Whatever the watches may have missed, from lists."""
        unowned = await present_unowned(self._shared.client)
        clusters = await self._all(Kind.CLUSTER)
        keys = {(body["metadata"]["namespace"], body["metadata"]["name"]) for body in clusters}
        for key in keys:
            self._start(key)
        topics = await self._all(Kind.TOPIC)
        self._count("Cluster", clusters)
        self._count("Topic", topics)
        for topic in topics:
            if (topic["metadata"]["namespace"], cluster_of(topic)) not in keys:
                if "deletionTimestamp" in topic["metadata"]:
                    await release_finalizers(self._shared.client, [topic])
                else:
                    await self._statuses.without_cluster(topic, cluster_of(topic))
        watched = self._shared.settings.namespaces
        ours = [body for body in unowned if not watched or key_of(body)[0] in watched]
        await remove(self._shared.client, ours, keep=keys)

    async def _all(self, kind: Kind) -> list[Object]:
        watched = self._shared.settings.namespaces or (None,)
        lists = [await self._shared.client.list(kind, namespace) for namespace in watched]
        return [complete(kind, body) for found in lists for body in found]

    def _count(self, word: str, bodies: list[Object]) -> None:
        counts = Counter(body["metadata"]["namespace"] for body in bodies)
        paused = Counter(body["metadata"]["namespace"] for body in bodies if is_paused(body))
        self._shared.reconciliations.counted(
            word, {namespace: (count, paused[namespace]) for namespace, count in counts.items()}
        )
