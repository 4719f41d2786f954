"""The loops of all resources of a kind, such as all Pipelines. `manager` says which exist, and which are served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.api.unowned import Key
from odradek_operator.kube.cluster.cluster_loop import Shared
from odradek_operator.kube.resource_loop import ResourceLoop

logger = logging.getLogger(__name__)


class ResourceLoops:
    """Starts, wakes and stops the loops of the resources of one kind."""

    def __init__(
        self, loop_type: type[ResourceLoop], shared_in: Callable[[str], Shared], holds: Callable[[str], bool]
    ) -> None:
        """`shared_in` returns what a loop in a namespace uses; `holds`, whether this operator serves the namespace."""
        self._loop_type = loop_type
        self._word = loop_type.kind.word.lower()
        self._shared_in = shared_in
        self._holds = holds
        self._known: set[Key] = set()
        """Known resources, including those in namespaces that are not served."""
        self._loops: dict[Key, tuple[ResourceLoop, asyncio.Task[None]]] = {}

    def replace(self, keys: Iterable[Key]) -> None:
        """Set the resources that exist, and start their loops."""
        self._known = set(keys)
        for key in sorted(self._known):
            self._start(key)

    def changed(self, body: Object, *, deleted: bool) -> None:
        """Handle a resource that was created, changed or deleted.

        A change of the status alone wakes nothing: the loop has written it.
        """
        metadata = body["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if not deleted:
            self._known.add(key)
            self._start(key)
        found = self._loops.get(key)
        observed = (body.get("status") or {}).get("observedGeneration")
        if found is not None and (deleted or observed != metadata.get("generation")):
            found[0].wake()

    def gained(self, namespace: str) -> None:
        """Start the loops of a namespace that is served from now on."""
        for key in sorted(self._known):
            if key[0] == namespace:
                self._start(key)

    async def stop(self, namespace: str | None = None) -> None:
        """End the loops of a namespace, or all. Returns when none of them runs."""
        tasks = [task for key, (_, task) in self._loops.items() if namespace in (None, key[0])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, key: Key) -> None:
        if key not in self._loops and self._holds(key[0]):
            loop = self._loop_type(self._shared_in(key[0]), *key)
            task = asyncio.create_task(loop.run(), name=f"{self._word} {key[0]}/{key[1]}")
            self._loops[key] = (loop, task)
            task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        self._loops.pop(key, None)
        if task.cancelled():
            return
        self._known.discard(key)
        if (error := task.exception()) is not None:
            logger.error("the loop of %s %s/%s ended", self._word, *key, exc_info=error)
