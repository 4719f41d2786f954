"""The loops of all Pipelines of an operator. `manager` says which resources exist and which namespaces are served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.kube.api.unowned import Key
from odradek_operator.kube.cluster.cluster_loop import Shared
from odradek_operator.kube.pipelines.pipeline_loop import PipelineLoop

logger = logging.getLogger(__name__)


class PipelineLoops:
    """Starts, wakes and stops the loops of Pipelines."""

    def __init__(self, shared_in: Callable[[str], Shared], holds: Callable[[str], bool]) -> None:
        """`shared_in` returns what a loop in a namespace uses; `holds`, whether this operator serves the namespace."""
        self._shared_in = shared_in
        self._holds = holds
        self._known: set[Key] = set()
        """Known resources, including those in namespaces that are not served."""
        self._loops: dict[Key, tuple[PipelineLoop, asyncio.Task[None]]] = {}

    def replace(self, keys: Iterable[Key]) -> None:
        """Set the resources that exist, and start their loops."""
        self._known = set(keys)
        for key in sorted(self._known):
            self._start(key)

    def changed(self, body: Object, *, deleted: bool) -> None:
        """Handle a Pipeline that was created, changed or deleted.

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
            loop = PipelineLoop(self._shared_in(key[0]), *key)
            task = asyncio.create_task(loop.run(), name=f"pipeline {key[0]}/{key[1]}")
            self._loops[key] = (loop, task)
            task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        self._loops.pop(key, None)
        if task.cancelled():
            return
        self._known.discard(key)
        if (error := task.exception()) is not None:
            logger.error("the loop of pipeline %s/%s ended", *key, exc_info=error)
