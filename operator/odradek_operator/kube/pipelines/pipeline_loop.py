"""The loop of one Pipeline: it starts and stops drivers, and reports what they do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from odradek_operator.crds import Pipeline, read_object, unknown_field
from odradek_operator.crds.problems import ResourceError
from odradek_operator.kube.api.api_client import KubernetesError
from odradek_operator.kube.api.applier import Applier
from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.kube.cluster.cluster_loop import Shared
from odradek_operator.kube.cluster.kubernetes_events import EventType
from odradek_operator.kube.cluster.status_documents import invalid, paused
from odradek_operator.kube.operator_metrics import ReconciliationOutcome
from odradek_operator.kube.resource_loop import BUSY_SECONDS, RUNNING_SECONDS, ResourceLoop
from odradek_operator.pipelines import pipeline_names as names
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
    connection_wish,
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
from odradek_operator.security.client_connection import ClientConnection, NoConnection
from odradek_operator.topics.topic_status import Condition, Truth, not_ready

_REFUSALS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY)


class PipelineLoop(ResourceLoop):
    """Reconciles one Pipeline."""

    kind = Kind.PIPELINE

    def __init__(self, shared: Shared, namespace: str, name: str) -> None:
        """`name`: name of the Pipeline."""
        super().__init__(shared, namespace, name)
        self._taken = 0
        """The highest number of a driver whose name somebody else's pod has."""

    def _forget(self) -> None:
        self._shared.pipelines.forget(self.namespace, self.name)

    async def _round(self, body: Object, outcome: ReconciliationOutcome) -> float:
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
        connection = await self._connect(connection_wish(pipeline))
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

    async def _hold(
        self, body: Object, state: PipelineState, condition: Condition, pipeline: Pipeline | None = None
    ) -> float:
        """Report why nothing is changed. A driver that runs goes on."""
        present = watch_only(state)
        phase = PipelinePhase.WAITING if present is None else present.phase
        await self._report(body, state, phase, condition, pipeline)
        return RUNNING_SECONDS if state.active else self._shared.settings.idle_seconds

    async def _reconcile(
        self, body: Object, pipeline: Pipeline, connection: ClientConnection, state: PipelineState
    ) -> float:
        settings = self._shared.settings
        wanted = wanted_pipeline(
            pipeline, connection, settings=settings.images, operator_namespace=settings.own_namespace
        )
        decision = decide_pipeline(pipeline, wanted.specification, wanted.run, state)
        used = {pod.specification for pod in state.pods if pod.specification}
        await self._apply(
            wanted.objects,
            pruned=PRUNED_PIPELINE_KINDS,
            labels=names.pipeline_object_labels(self.name, self.namespace),
            kept=[kept_map(pipeline, specification) for specification in sorted(used)],
        )
        condition, started = phase_condition(decision), 0
        if obstacle := self._obstacle(decision):
            condition = obstacle
        else:
            refusal, started = await self._carry_out(body, pipeline, wanted, decision)
            condition = refusal or condition
        await self._report_end(body, state)
        await self._report(body, state, decision.phase, condition, pipeline, decision=decision, started=started)
        return self._pause(decision, state)

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
        self._shared.pipelines.show(self.namespace, self.name, report, is_ready=condition.status is not Truth.FALSE)
        await self._write_status(body, condition, figures(findings, before))

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
