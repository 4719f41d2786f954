"""The status of a Mirror, from its Deployment, its pods and their reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from odradek_operator.crds.types import Mirror
from odradek_operator.mirrors.mirror_pods import MirrorDeployment, MirrorPod
from odradek_operator.mirrors.mirror_report import MirrorReport, ReportedPartition
from odradek_operator.topics.topic_status import Condition, not_ready, ready, unknown

MAX_FAILING: Final = 20
"""Most failing partitions in a status."""
MAX_SOURCE_NAMES: Final = 128
"""Longest text with the names of the sources, in characters."""


_UNKNOWN: Final = "the logs of the pods say why."


class MirrorPhase(Enum):
    """What a Mirror does."""

    WAITING = "Waiting"
    """Something that it needs does not exist, or the resource is invalid."""
    SUSPENDED = "Suspended"
    STARTING = "Starting"
    UPDATING = "Updating"
    """Pods are replaced by those of a new specification."""
    RUNNING = "Running"
    DEGRADED = "Degraded"
    """It copies, but partitions have stopped, or pods do not run."""
    FAILING = "Failing"
    """No pod runs, and there is an error."""

    @property
    def is_busy(self) -> bool:
        """Whether the next change is expected soon."""
        return self in (MirrorPhase.STARTING, MirrorPhase.UPDATING)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorState:
    """What was observed in a round."""

    deployment: MirrorDeployment = field(default_factory=MirrorDeployment)
    pods: tuple[MirrorPod, ...] = ()
    report: MirrorReport | None = None
    """What the pods report together; None if none does."""
    silent: tuple[str, ...] = ()
    """Ready pods that do not report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFindings:
    """Phase and condition."""

    phase: MirrorPhase
    condition: Condition


def findings(mirror: Mirror, state: MirrorState) -> MirrorFindings:
    """Return phase and condition of a Mirror whose objects are applied."""
    if mirror.suspend:
        left = len(state.pods)
        message = "The mirror is suspended." if not left else f"The mirror is suspended: {_pods(left)} still stop."
        return MirrorFindings(phase=MirrorPhase.SUSPENDED, condition=unknown(MirrorPhase.SUSPENDED.value, message))
    if not _is_settled(mirror, state.deployment):
        return _unsettled(mirror, state)
    if state.report is not None and state.report.stopped:
        message = _stopped(state.report)
        return MirrorFindings(phase=MirrorPhase.DEGRADED, condition=not_ready("PartitionsStopped", message))
    running = MirrorPhase.RUNNING
    return MirrorFindings(phase=running, condition=ready(running.value, f"{_pods(mirror.replicas)} copy records."))


def without_change(state: MirrorState, condition: Condition) -> MirrorFindings:
    """Return phase and condition while nothing is changed, because something is missing, invalid or paused.

    Pods that run continue, so the phase says so.
    """
    runs = any(pod.is_ready for pod in state.pods)
    return MirrorFindings(phase=MirrorPhase.RUNNING if runs else MirrorPhase.WAITING, condition=condition)


def _is_settled(mirror: Mirror, deployment: MirrorDeployment) -> bool:
    """Whether all pods are ready and of the present specification, and no others exist."""
    wanted = mirror.replicas
    return deployment.is_observed and deployment.replicas == deployment.updated == deployment.ready == wanted


def _unsettled(mirror: Mirror, state: MirrorState) -> MirrorFindings:
    ready_pods = [pod for pod in state.pods if pod.is_ready and not pod.is_leaving]
    error = next((f"Pod {pod.name}: {pod.error}" for pod in state.pods if pod.error), state.deployment.error)
    if error:
        phase = MirrorPhase.DEGRADED if ready_pods else MirrorPhase.FAILING
        return MirrorFindings(phase=phase, condition=not_ready("PodsFailing", error))
    phase = MirrorPhase.UPDATING if ready_pods else MirrorPhase.STARTING
    message = f"{len(ready_pods)} of {_pods(mirror.replicas)} ready."
    return MirrorFindings(phase=phase, condition=not_ready(phase.value, message))


def _stopped(report: MirrorReport) -> str:
    which, error = min(report.stopped.items())
    more = len(report.stopped) - 1
    others = f" {more} more partitions have stopped." if more > 1 else " Another partition has stopped." if more else ""
    return f"{which.topic}-{which.partition} of source {which.source} has stopped: {error or _UNKNOWN}{others}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def mirror_document(
    mirror: Mirror | None, state: MirrorState, phase: MirrorPhase, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the status except generation and conditions. `mirror`: None if it cannot be read."""
    present = [pod for pod in state.pods if not pod.is_leaving]
    found: dict[str, Any] = {
        "phase": phase.value,
        "replicas": len(present),
        **_figures(mirror, state.report),
        "warnings": [*warnings, *map(_silence, state.silent)] or None,
    }
    if mirror is not None:
        wanted = 0 if mirror.suspend else mirror.replicas
        found["podsReady"] = f"{sum(pod.is_ready for pod in present)}/{wanted}"
        found["sourceNames"] = _shortened(",".join(source.name for source in mirror.sources))
    return {name: value for name, value in found.items() if value is not None}


def _figures(mirror: Mirror | None, report: MirrorReport | None) -> Mapping[str, Any]:
    if report is None:
        return {}
    return {
        "lagRecords": report.lag_records,
        "lagSeconds": report.lag_seconds,
        "failingPartitions": len(report.stopped),
        "failing": [_failing(*each) for each in sorted(report.stopped.items())[:MAX_FAILING]] or None,
        # Reports may name any source. The status has those of the resource.
        "sources": None if mirror is None else [_source(source.name, report) for source in mirror.sources],
    }


def _failing(which: ReportedPartition, error: str) -> dict[str, Any]:
    found = {"source": which.source, "topic": which.topic, "partition": which.partition}
    return {**found, "error": error} if error else found


def _source(name: str, whole: MirrorReport) -> dict[str, Any]:
    report = whole.of_source(name)
    return {
        "name": name,
        "partitions": report.partitions,
        "lagRecords": report.lag_records,
        "lagSeconds": report.lag_seconds,
        "failingPartitions": len(report.stopped),
    }


def _silence(pod: str) -> str:
    return f"Pod {pod} does not report its metrics, so the lag does not include its partitions."


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SOURCE_NAMES else text[: MAX_SOURCE_NAMES - 1] + "…"
