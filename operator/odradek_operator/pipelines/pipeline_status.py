"""The status of a Pipeline, from a decision, the drivers and the last report. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from odradek_operator.pipelines.driver_pods import EndedDriver, time_text
from odradek_operator.pipelines.job_report import JobReport
from odradek_operator.pipelines.pipeline_names import MAX_DRIVERS
from odradek_operator.pipelines.pipeline_plan import PipelineDecision, PipelineMemory, PipelinePhase
from odradek_operator.topics.topic_status import Condition, not_ready, ready, unknown

_FIGURES: Final = ("batch", "rate", "inputRate", "lag", "lastCheckpoint", "reportedAt")
_READY_PHASES: Final = frozenset({PipelinePhase.RUNNING, PipelinePhase.SCHEDULED, PipelinePhase.SUCCEEDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFindings:
    """What is known about a Pipeline after a round."""

    phase: PipelinePhase
    condition: Condition
    drivers: int = 0
    """Number of the last driver."""
    driver: str | None = None
    last: EndedDriver | None = None
    report: JobReport | None = None
    reported_at: datetime | None = None
    error: str = ""
    next_start: datetime | None = None
    warnings: tuple[str, ...] = ()


def read_memory(status: Mapping[str, Any]) -> PipelineMemory:
    """Return what a status remembers, whatever others have written there."""
    drivers: Any = status.get("drivers")
    last = EndedDriver.read(status.get("lastRun"))
    is_number = isinstance(drivers, int) and 0 < drivers <= MAX_DRIVERS
    return PipelineMemory(drivers=int(drivers) if is_number else 0, last=last)


def phase_condition(decision: PipelineDecision) -> Condition:
    """Return the condition `Ready` of a decision."""
    if decision.phase in _READY_PHASES:
        return ready(decision.phase.value, decision.message)
    if decision.phase is PipelinePhase.SUSPENDED:
        return unknown(decision.phase.value, decision.message)
    return not_ready(decision.phase.value, decision.message)


def figures(findings: PipelineFindings, previous: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status except generation and conditions. Figures are kept while the driver reports nothing new."""
    report = findings.report
    kept = {name: previous[name] for name in _FIGURES if name in previous}
    if report is not None:
        fresh = {
            "batch": report.batch,
            "rate": report.rate,
            "inputRate": report.input_rate,
            "lag": report.lag,
            "lastCheckpoint": None if report.last_checkpoint is None else time_text(report.last_checkpoint),
            "reportedAt": None if findings.reported_at is None else time_text(findings.reported_at),
        }
        kept |= {name: value for name, value in fresh.items() if value is not None}
    elif findings.driver is None and "rate" in kept:
        # Nothing is processed while no driver runs. The lag is that of the last report.
        kept |= {"rate": 0.0, "inputRate": 0.0}
    found: dict[str, Any] = {
        "phase": findings.phase.value,
        "driver": findings.driver,
        "drivers": findings.drivers or None,
        **kept,
        "nextStart": None if findings.next_start is None else time_text(findings.next_start),
        "lastRun": None if findings.last is None else findings.last.document(),
        "error": findings.error or None,
        "warnings": list(findings.warnings) or None,
    }
    return {name: value for name, value in found.items() if value is not None}
