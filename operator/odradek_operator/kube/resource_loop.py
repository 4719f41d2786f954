"""The reconciliation loop of one Pipeline or Mirror. It observes, decides, acts and reports.

Each round reads the resource, and the Clusters, Users and pods that it needs, from the API server. It uses no cache, so
every decision is based on a fresh view. A round writes only what has changed.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from odradek_operator.crds import Cluster, User, read_metadata, read_object
from odradek_operator.crds.problems import ResourceError
from odradek_operator.kube.api.api_client import KubernetesError
from odradek_operator.kube.api.applier import Applier
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference, kind_named
from odradek_operator.kube.cluster.cluster_loop import Shared
from odradek_operator.kube.cluster.status_documents import conditions, merge_patch
from odradek_operator.kube.operator_metrics import ReconciliationOutcome
from odradek_operator.objects.wanted import WantedObject
from odradek_operator.security.client_connection import (
    ClientConnection,
    ConnectionWish,
    NoConnection,
    client_connection,
)
from odradek_operator.topics.topic_status import Condition

logger = logging.getLogger(__name__)

MIN_PAUSE_SECONDS: Final = 0.5
ERROR_PAUSE_SECONDS: Final = 5.0
BUSY_SECONDS: Final = 2.0
"""Pause while a pod starts or stops."""
RUNNING_SECONDS: Final = 10.0
"""Pause while pods run: the age of the figures in the status."""


class ResourceLoop(ABC):
    """Reconciles one resource."""

    kind: ClassVar[Kind]

    def __init__(self, shared: Shared, namespace: str, name: str) -> None:
        """`name`: name of the resource."""
        self.namespace: Final = namespace
        self.name: Final = name
        self._shared = shared
        self._client = shared.client
        self._applier = Applier(shared.client, self.kind)
        self._woken = asyncio.Event()
        self._resync_at = 0.0
        self._present: frozenset[tuple[str, str]] = frozenset()
        """Kinds and names of the objects that were kept when others were last deleted."""

    def wake(self) -> None:
        """Start a round soon, because the resource changed."""
        self._woken.set()

    async def run(self) -> None:
        """Run until the resource is deleted."""
        periodic = False
        try:
            while (pause := await self._guarded_round(periodic=periodic)) is not None:
                await asyncio.sleep(MIN_PAUSE_SECONDS)
                try:
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                    periodic = False
                except TimeoutError:
                    periodic = True
        finally:
            self._forget()

    async def _guarded_round(self, *, periodic: bool) -> float | None:
        """Run one round. Returns the seconds until the next one, or None if the resource is deleted."""
        self._woken.clear()
        word = self.kind.word
        with self._shared.reconciliations.one(word, self.namespace, periodic=periodic) as outcome:
            try:
                body = await self._client.get(self.kind, self.namespace, self.name)
                if body is None:
                    return None
                if "deletionTimestamp" in body["metadata"]:
                    # Somebody's finalizer. Kubernetes deletes all objects afterwards.
                    return self._shared.settings.idle_seconds
                return await self._round(body, outcome)
            except KubernetesError as error:
                logger.warning("%s %s/%s: %s", word.lower(), self.namespace, self.name, error)
                outcome.failed = True
            except Exception:
                # A bug that affects one resource must not stop the loops of others.
                logger.exception("%s %s/%s: the reconciliation failed", word.lower(), self.namespace, self.name)
                outcome.failed = True
        return ERROR_PAUSE_SECONDS

    @abstractmethod
    async def _round(self, body: Object, outcome: ReconciliationOutcome) -> float:
        """Reconcile a resource that is not being deleted. Returns the seconds until the next round."""

    @abstractmethod
    def _forget(self) -> None:
        """Remove the metrics of the resource: the loop ends."""

    async def _connect(self, wish: ConnectionWish) -> ClientConnection | NoConnection:
        """Return how the pods connect, or why they cannot."""
        cluster = await self._named(Kind.CLUSTER, wish.cluster)
        user = await self._named(Kind.USER, wish.user)
        assert cluster is None or isinstance(cluster, Cluster), "it was asked for by this kind"
        assert user is None or isinstance(user, User), "it was asked for by this kind"
        return client_connection(wish, cluster, user)

    async def _named(self, kind: Kind, name: str | None) -> object:
        """Return a resource in the namespace; None if it does not exist, is being deleted, or cannot be read."""
        body = None if name is None else await self._client.get(kind, self.namespace, name)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return None
        try:
            return read_object(body)
        except ResourceError:
            return None  # Its own status says what is wrong with it.

    async def _apply(
        self,
        wanted: tuple[WantedObject, ...],
        *,
        pruned: Iterable[tuple[str, str]],
        labels: Mapping[str, str],
        kept: Iterable[WantedObject] = (),
    ) -> None:
        """Apply all objects, and delete those of the `pruned` kinds with the labels that are no longer needed.

        `kept`: objects that are not applied, but still needed.
        """
        now = asyncio.get_running_loop().time()
        is_due = now >= self._resync_at
        if is_due:
            self._applier.forget()
        await self._applier.apply(wanted)
        needed = [*wanted, *kept]
        present = frozenset((item.kind, item.name) for item in needed)
        if is_due or present != self._present:
            kinds = [kind_named(*kind) for kind in pruned]
            selector = ",".join(f"{key}={value}" for key, value in labels.items())
            await self._applier.prune(needed, kinds, namespace=self.namespace, selector=selector)
            self._present = present
        if is_due:
            self._resync_at = now + self._shared.settings.resync_seconds

    async def _write_status(self, body: Object, condition: Condition, figures: Mapping[str, Any]) -> None:
        """Write the status if it has changed. `figures`: all of it except generation and conditions."""
        before: Mapping[str, Any] = body.get("status") or {}
        generation = read_metadata(body).generation
        now = self._shared.now().timestamp()
        document = {
            "observedGeneration": generation,
            "conditions": conditions([condition], generation, previous=before, now=now),
            **figures,
        }
        if patch := merge_patch(before, document):
            await self._client.merge(Reference.of(body), {"status": patch}, sub="status")
