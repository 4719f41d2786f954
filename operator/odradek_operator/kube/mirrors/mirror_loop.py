"""The loop of one Mirror: it applies the Deployment and its other objects, and reports lag and errors of the pods."""

from __future__ import annotations

import asyncio
from typing import Final

from odradek_operator.crds import Mirror, read_object, unknown_field
from odradek_operator.crds.problems import ResourceError
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.kube.cluster.status_documents import invalid, paused
from odradek_operator.kube.operator_metrics import ReconciliationOutcome
from odradek_operator.kube.resource_loop import BUSY_SECONDS, RUNNING_SECONDS, ResourceLoop
from odradek_operator.mirrors import mirror_names as names
from odradek_operator.mirrors.mirror_file import MirrorConnections, connection_wishes
from odradek_operator.mirrors.mirror_objects import PRUNED_MIRROR_KINDS, wanted_mirror
from odradek_operator.mirrors.mirror_pods import MirrorPod, mirror_deployment, mirror_pods
from odradek_operator.mirrors.mirror_report import MirrorReport
from odradek_operator.mirrors.mirror_status import (
    MirrorFindings,
    MirrorPhase,
    MirrorState,
    findings,
    mirror_document,
    without_change,
)
from odradek_operator.security.client_connection import ClientConnection, NoConnection
from odradek_operator.topics.topic_status import Condition, Truth, not_ready

MAX_ASKED_AT_ONCE: Final = 10
"""Most pods of a Mirror that are asked at the same time, because each answer may take memory."""


class MirrorLoop(ResourceLoop):
    """Reconciles one Mirror."""

    kind = Kind.MIRROR

    async def _round(self, body: Object, outcome: ReconciliationOutcome) -> float:
        try:
            mirror = read_object(body)
        except ResourceError as error:
            outcome.failed = True
            return await self._hold(body, invalid(str(error)))
        assert isinstance(mirror, Mirror), "it was asked for by this kind"
        if mirror.paused:
            return await self._hold(body, paused(), mirror)
        connections = await self._connections(mirror)
        if isinstance(connections, NoConnection):
            return await self._hold(body, not_ready(connections.reason, connections.message), mirror)
        versions = await self._secret_versions(connections)
        if isinstance(versions, NoConnection):
            return await self._hold(body, not_ready(versions.reason, versions.message), mirror)
        return await self._reconcile(body, mirror, connections, versions)

    def _forget(self) -> None:
        self._shared.mirrors.forget(self.namespace, self.name)

    async def _connections(self, mirror: Mirror) -> MirrorConnections | NoConnection:
        """Return how the pods connect to all clusters, or why they cannot connect to one of them."""
        found: dict[str, ClientConnection] = {}
        for side, wish in connection_wishes(mirror).items():
            connection = await self._connect(wish)
            if isinstance(connection, NoConnection):
                return NoConnection(reason=connection.reason, message=f"{wish.field}: {connection.message}")
            found[side] = connection
        sources = {source.name: found[names.source_side(source.name)] for source in mirror.sources}
        return MirrorConnections(target=found[names.TARGET], sources=sources)

    async def _secret_versions(self, connections: MirrorConnections) -> dict[str, str] | NoConnection:
        """Return the version of each Secret that the pods mount, or which one is missing: no pod would start."""
        found: dict[str, str] = {}
        for name in connections.secrets():
            secret = await self._client.get(Kind.SECRET, self.namespace, name)
            if secret is None:
                return NoConnection(reason="NoSecret", message=f"There is no Secret {name} in this namespace.")
            found[name] = str(secret["metadata"].get("resourceVersion", ""))
        return found

    async def _hold(self, body: Object, condition: Condition, mirror: Mirror | None = None) -> float:
        """Report why nothing is changed. Pods that run go on."""
        state = await self._observe()
        await self._report(body, state, without_change(state, condition), mirror)
        return RUNNING_SECONDS if state.pods else self._shared.settings.idle_seconds

    async def _reconcile(
        self, body: Object, mirror: Mirror, connections: MirrorConnections, versions: dict[str, str]
    ) -> float:
        settings = self._shared.settings
        wanted = wanted_mirror(
            mirror, connections, versions, settings=settings.images, operator_namespace=settings.own_namespace
        )
        labels = names.mirror_object_labels(self.name, self.namespace)
        await self._apply(wanted, pruned=PRUNED_MIRROR_KINDS, labels=labels)
        state = await self._observe()
        found = findings(mirror, state)
        if self._applier.waiting:
            first = self._applier.waiting[0]
            found = without_change(state, not_ready(first.reason, first.message))
        await self._report(body, state, found, mirror)
        if found.phase.is_busy or (mirror.suspend and state.pods):
            return BUSY_SECONDS
        is_idle = found.phase in (MirrorPhase.SUSPENDED, MirrorPhase.WAITING)
        return settings.idle_seconds if is_idle else min(settings.idle_seconds, RUNNING_SECONDS)

    async def _observe(self) -> MirrorState:
        """Return the Deployment, the pods, and what the pods report."""
        name = names.mirror_objects_name(self.name)
        deployment = await self._client.get(Kind.DEPLOYMENT, self.namespace, name)
        selector = f"{names.MIRROR_LABEL}={self.name}"
        pods = mirror_pods(await self._client.list(Kind.POD, self.namespace, selector=selector))
        asked = [pod for pod in pods if pod.is_ready and not pod.is_leaving]
        answers = await self._ask(asked)
        reports = [report for report in answers if report is not None]
        return MirrorState(
            deployment=mirror_deployment(deployment),
            pods=pods,
            report=MirrorReport.of(reports) if reports else None,
            silent=tuple(pod.name for pod, report in zip(asked, answers, strict=True) if report is None),
        )

    async def _ask(self, pods: list[MirrorPod]) -> list[MirrorReport | None]:
        limit = asyncio.Semaphore(MAX_ASKED_AT_ONCE)

        async def ask(pod: MirrorPod) -> MirrorReport | None:
            async with limit:
                return await self._shared.ask_mirror(pod)

        return list(await asyncio.gather(*map(ask, pods)))

    async def _report(self, body: Object, state: MirrorState, found: MirrorFindings, mirror: Mirror | None) -> None:
        """Write the status if it has changed."""
        is_ready = found.condition.status is not Truth.FALSE
        self._shared.mirrors.show_ready(self.namespace, self.name, is_ready=is_ready)
        warnings: list[str] = []
        if mirror is not None:
            unknown = [unknown_field("Mirror", mirror.name, path) for path in mirror.unknown_fields]
            warnings = [*unknown, *self._applier.warnings(), *(one.message for one in self._applier.waiting)]
        await self._write_status(body, found.condition, mirror_document(mirror, state, found.phase, warnings))
