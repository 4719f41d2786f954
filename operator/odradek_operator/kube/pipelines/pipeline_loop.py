"""The reconciliation loop of one Pipeline. It observes, decides, acts and reports, periodically and after changes.

Each round reads the resource, the pods of its drivers, and the Cluster and the User that it names, from the API server.
It uses no cache, so every decision is based on a fresh view. A round writes only what has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from odradek_operator.crds import Cluster, Pipeline, User, read_metadata, read_object, unknown_field
from odradek_operator.crds.problems import ResourceError
from odradek_operator.kube.api.api_client import KubernetesError
from odradek_operator.kube.api.applier import Applier
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference, kind_named
from odradek_operator.kube.cluster.cluster_loop import Shared
from odradek_operator.kube.cluster.kubernetes_events import EventType
from odradek_operator.kube.cluster.status_documents import conditions, invalid, merge_patch, paused
from odradek_operator.kube.operator_metrics import ReconciliationOutcome
from odradek_operator.pipelines import pipeline_names as names
from odradek_operator.pipelines.connection import JobConnection, NoConnection, job_connection
from odradek_operator.pipelines.driver_pods import (
    DriverPhase,
    driver_pods,
    executors_of,
    former_pods,
    parse_time,
)
from odradek_operator.pipelines.job_report import JobReport
from odradek_operator.pipelines.pipeline_objects import (
    PRUNED_PIPELINE_KINDS,
    WantedPipeline,
    kept_map,
    wanted_pipeline,
)
from odradek_operator.pipelines.pipeline_plan import (
    PipelineDecision,
    PipelinePhase,
    PipelineState,
    StartDriver,
    decide_pipeline,
    seconds_until,
    watch_only,
)
from odradek_operator.pipelines.pipeline_status import PipelineFindings, figures, phase_condition, read_memory
from odradek_operator.topics.topic_status import Condition, Truth, not_ready

logger = logging.getLogger(__name__)

MIN_PAUSE_SECONDS: Final = 0.5
ERROR_PAUSE_SECONDS: Final = 5.0
BUSY_SECONDS: Final = 2.0
"""Pause while a driver starts or stops."""
RUNNING_SECONDS: Final = 10.0
"""Pause while a driver runs: the age of the figures in the status."""

_REFUSALS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)


class PipelineLoop:
    """Reconciles one Pipeline."""

    def __init__(self, shared: Shared, namespace: str, name: str) -> None:
        """`name`: name of the Pipeline."""
        self.namespace: Final = namespace
        self.name: Final = name
        self._shared = shared
        self._client = shared.client
        self._applier = Applier(shared.client, Kind.PIPELINE)
        self._woken = asyncio.Event()
        self._taken = 0
        """The highest number of a driver whose name somebody else's pod has."""
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
            self._shared.pipelines.forget(self.namespace, self.name)

    async def _guarded_round(self, *, periodic: bool) -> float | None:
        """Run one round. Returns the seconds until the next one, or None if the resource is deleted."""
        self._woken.clear()
        with self._shared.reconciliations.one("Pipeline", self.namespace, periodic=periodic) as outcome:
            try:
                return await self._round(outcome)
            except KubernetesError as error:
                logger.warning("pipeline %s/%s: %s", self.namespace, self.name, error)
                outcome.failed = True
            except Exception:
                # A bug that affects one resource must not stop the loops of others.
                logger.exception("pipeline %s/%s: the reconciliation failed", self.namespace, self.name)
                outcome.failed = True
        return ERROR_PAUSE_SECONDS

    async def _round(self, outcome: ReconciliationOutcome) -> float | None:
        body = await self._client.get(Kind.PIPELINE, self.namespace, self.name)
        if body is None:
            return None
        idle = self._shared.settings.idle_seconds
        if "deletionTimestamp" in body["metadata"]:
            return idle  # Somebody's finalizer. Kubernetes deletes all objects afterwards.
        uid = body["metadata"]["uid"]
        bodies = await self._pods()
        state = _state(body, bodies, self._shared.now())
        try:
            pipeline = read_object(body)
        except ResourceError as error:
            outcome.failed = True
            return await self._hold(body, state, invalid(str(error)))
        assert isinstance(pipeline, Pipeline), "it was asked for by this kind"
        if pipeline.paused:
            return await self._hold(body, state, paused(), pipeline)
        if former := former_pods(bodies, uid):
            message = f"Waiting until the drivers of the former Pipeline of this name end: {', '.join(former)}."
            return await self._hold(body, state, not_ready("FormerPipelineGoing", message), pipeline)
        connection = await self._connection(pipeline)
        if isinstance(connection, NoConnection):
            return await self._hold(body, state, not_ready(connection.reason, connection.message), pipeline)
        await self._remove_executors(bodies, state)
        return await self._reconcile(body, pipeline, connection, state)

    async def _remove_executors(self, bodies: list[Object], state: PipelineState) -> None:
        """Delete what is left of the executors of ended drivers, whose pods still exist for their logs."""
        ended = {pod.uid for pod in state.pods if pod.phase.has_ended}
        for name, uid in executors_of(bodies, ended):
            await self._client.delete(Reference(kind=Kind.POD, namespace=self.namespace, name=name), uid=uid)

    async def _pods(self) -> list[Object]:
        """Return the pods of drivers and executors."""
        return await self._client.list(Kind.POD, self.namespace, selector=f"{names.PIPELINE_LABEL}={self.name}")

    async def _connection(self, pipeline: Pipeline) -> JobConnection | NoConnection:
        cluster = await self._named(Kind.CLUSTER, pipeline.cluster)
        user = await self._named(Kind.USER, pipeline.user)
        assert cluster is None or isinstance(cluster, Cluster), "it was asked for by this kind"
        assert user is None or isinstance(user, User), "it was asked for by this kind"
        return job_connection(pipeline, cluster, user)

    async def _named(self, kind: Kind, name: str | None) -> object:
        """Return a resource in the namespace; None if it does not exist, is being deleted, or cannot be read."""
        body = None if name is None else await self._client.get(kind, self.namespace, name)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return None
        try:
            return read_object(body)
        except ResourceError:
            return None  # Its own status says what is wrong with it.

    async def _hold(
        self, body: Object, state: PipelineState, condition: Condition, pipeline: Pipeline | None = None
    ) -> float:
        """Report why nothing is changed. A driver that runs goes on."""
        present = watch_only(state)
        phase = PipelinePhase.WAITING if present is None else present.phase
        await self._report(body, state, phase, condition, pipeline)
        return RUNNING_SECONDS if state.active else self._shared.settings.idle_seconds

    async def _reconcile(
        self, body: Object, pipeline: Pipeline, connection: JobConnection, state: PipelineState
    ) -> float:
        settings = self._shared.settings
        wanted = wanted_pipeline(
            pipeline, connection, settings=settings.images, operator_namespace=settings.own_namespace
        )
        decision = decide_pipeline(pipeline, wanted.specification, wanted.run, state)
        await self._apply(pipeline, wanted, state)
        condition, started = phase_condition(decision), 0
        if obstacle := self._obstacle(decision):
            condition = obstacle
        else:
            refusal, started = await self._carry_out(body, pipeline, wanted, decision)
            condition = refusal or condition
        await self._report_end(body, state)
        await self._report(body, state, decision.phase, condition, pipeline, decision=decision, started=started)
        return self._pause(decision, state)

    async def _apply(self, pipeline: Pipeline, wanted: WantedPipeline, state: PipelineState) -> None:
        """Apply all objects, and delete those that are no longer needed."""
        now = asyncio.get_running_loop().time()
        is_due = now >= self._resync_at
        if is_due:
            self._applier.forget()
        await self._applier.apply(wanted.objects)
        used = {pod.specification for pod in state.pods if pod.specification}
        kept = [*wanted.objects, *(kept_map(pipeline, specification) for specification in sorted(used))]
        present = frozenset((item.kind, item.name) for item in kept)
        if is_due or present != self._present:
            kinds = [kind_named(*kind) for kind in PRUNED_PIPELINE_KINDS]
            labels = names.pipeline_object_labels(self.name, self.namespace)
            selector = ",".join(f"{key}={value}" for key, value in labels.items())
            await self._applier.prune(kept, kinds, namespace=self.namespace, selector=selector)
            self._present = present
        if is_due:
            self._resync_at = now + self._shared.settings.resync_seconds

    def _obstacle(self, decision: PipelineDecision) -> Condition | None:
        """Return why no driver can start: an object that it needs belongs to somebody else, or is refused."""
        if decision.start is None or not self._applier.waiting:
            return None
        first = self._applier.waiting[0]
        return not_ready(first.reason, first.message)

    async def _carry_out(
        self, body: Object, pipeline: Pipeline, wanted: WantedPipeline, decision: PipelineDecision
    ) -> tuple[Condition | None, int]:
        """Start and stop drivers. Returns why Kubernetes refuses a driver, and the number of a started one, else 0."""
        for stop in decision.stops:
            which = Reference(kind=Kind.POD, namespace=self.namespace, name=stop.pod.name)
            if await self._client.delete(which, uid=stop.pod.uid):
                message = f"Stopping driver {stop.pod.name}: {stop.reason}."
                await self._shared.events.write(body, "DriverStopped", message)
        for pod in decision.forgotten:
            which = Reference(kind=Kind.POD, namespace=self.namespace, name=pod.name)
            await self._client.delete(which, uid=pod.uid)
        if decision.start is None:
            return None, 0
        return await self._start(body, pipeline, wanted, decision.start)

    async def _start(
        self, body: Object, pipeline: Pipeline, wanted: WantedPipeline, start: StartDriver
    ) -> tuple[Condition | None, int]:
        number = max(start.number, self._taken + 1)
        pod = wanted.driver(pipeline, number=number, run=start.run, attempt=start.attempt)
        name = pod["metadata"]["name"]
        try:
            await self._client.create(pod)
        except KubernetesError as error:
            if error.status == HTTPStatus.CONFLICT:
                # Another pod has this name, or this operator was killed after it had created the driver: the next round
                # finds the driver, or takes the next number.
                self._taken = number
                message = f"Pod {name} exists already. The driver gets the next number."
                return not_ready("NameTaken", message), 0
            if error.status not in _REFUSALS:
                raise
            # Somebody may have deleted what the driver needs, such as its ServiceAccount.
            self._resync_at = 0.0
            return not_ready("KubernetesRefuses", f"Kubernetes rejects the driver: {error.reason.rstrip('.')}."), 0
        again = f", attempt {start.attempt}" if start.attempt > 1 else ""
        await self._shared.events.write(body, "DriverStarted", f"Started driver {name}{again}.")
        return None, number

    async def _report_end(self, body: Object, state: PipelineState) -> None:
        """Write an Event about a driver that has ended since the status was written."""
        last, known = state.last, state.memory.last
        if last is None or (known is not None and known.number >= last.number):
            return
        if last.succeeded:
            await self._shared.events.write(body, "DriverSucceeded", f"Driver {last.driver} has succeeded.")
        else:
            message = f"Driver {last.driver} has failed: {last.error}"
            await self._shared.events.write(body, "DriverFailed", message, EventType.WARNING)

    async def _report(
        self,
        body: Object,
        state: PipelineState,
        phase: PipelinePhase,
        condition: Condition,
        pipeline: Pipeline | None,
        *,
        decision: PipelineDecision | None = None,
        started: int = 0,
    ) -> None:
        """Write the status if it has changed."""
        running = next((pod for pod in state.active if pod.phase is DriverPhase.RUNNING), None)
        report: JobReport | None = None if running is None else await self._shared.ask_driver(running)
        present = names.driver_pod(self.name, started) if started else None
        if present is None and state.active:
            present = state.active[-1].name
        last = state.last
        findings = PipelineFindings(
            phase=phase,
            condition=condition,
            drivers=max(state.last_number, started),
            driver=present,
            last=last,
            report=report,
            reported_at=None if report is None else state.now,
            error=_error(report, state),
            next_start=None if decision is None else decision.next_start,
            warnings=() if pipeline is None else _warnings(pipeline, self._applier),
        )
        before: Mapping[str, Any] = body.get("status") or {}
        generation = read_metadata(body).generation
        document = {
            "observedGeneration": generation,
            "conditions": conditions([condition], generation, previous=before, now=state.now.timestamp()),
            **figures(findings, before),
        }
        self._shared.pipelines.show(self.namespace, self.name, report, is_ready=condition.status is not Truth.FALSE)
        if patch := merge_patch(before, document):
            await self._client.merge(Reference.of(body), {"status": patch}, sub="status")

    def _pause(self, decision: PipelineDecision, state: PipelineState) -> float:
        idle = self._shared.settings.idle_seconds
        if decision.start is not None or decision.phase in (PipelinePhase.STARTING, PipelinePhase.STOPPING):
            return BUSY_SECONDS
        if decision.phase is PipelinePhase.RUNNING:
            return min(idle, RUNNING_SECONDS)
        until = seconds_until(decision.next_start, state.now)
        return idle if until is None else min(idle, until)


def _state(body: Object, bodies: list[Object], now: datetime) -> PipelineState:
    metadata = body["metadata"]
    return PipelineState(
        pods=driver_pods(bodies, metadata["uid"]),
        memory=read_memory(body.get("status") or {}),
        created_at=parse_time(metadata.get("creationTimestamp")) or now,
        now=now,
    )


def _error(report: JobReport | None, state: PipelineState) -> str:
    """Return what the present driver reports, or why the last one failed, until a driver reports."""
    if report is not None:
        return report.error
    last = state.last
    return "" if last is None or last.succeeded else last.error


def _warnings(pipeline: Pipeline, applier: Applier) -> tuple[str, ...]:
    unknown = (unknown_field("Pipeline", pipeline.name, path) for path in pipeline.unknown_fields)
    return (*unknown, *applier.warnings(), *(one.message for one in applier.waiting))
