"""Decides what happens to the drivers of a Pipeline: which one starts, which ones stop, and when. Pure.

The decision depends on the pods, on the last driver that the status remembers, and on the time. So an operator that was
killed at any point continues where it stopped. Invariants:

- A driver starts only when no other driver of the Pipeline may still run.
- A streaming job has a driver unless it is suspended, pauses after a failure, or has failed too often.
- Each run of a batch job succeeds at most once, and a run begins after the one before has ended.
- The number of a driver is higher than that of every driver before.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from odradek_operator.crds.types import Pipeline, RestartPolicy
from odradek_operator.pipelines.driver_pods import DriverPhase, DriverPod, EndedDriver, parse_time, time_text
from odradek_operator.pipelines.schedule import latest_time, next_time

BATCH_RESTARTS: Final = 3
"""Restarts of a run of a batch job, if the resource has no limit."""
SETTLED_SECONDS: Final = 600
"""A streaming driver that ran for so long begins a new count of restarts."""
STREAMING_RUN: Final = "streaming"
_MAX_DOUBLINGS: Final = 20


class PipelinePhase(Enum):
    """What a job does, as in the status."""

    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    BACK_OFF = "BackOff"
    SCHEDULED = "Scheduled"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    WAITING = "Waiting"
    """Something else is missing, such as the Cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineMemory:
    """What the status remembers."""

    drivers: int = 0
    """Number of the last driver."""
    last: EndedDriver | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDriver:
    """A driver to start."""

    number: int
    run: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDriver:
    """A driver to stop: its pod is deleted, and gets SIGTERM."""

    pod: DriverPod
    reason: str
    """As the end of a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDecision:
    """What to do now, and what the job does."""

    phase: PipelinePhase
    message: str
    """A sentence about the phase."""
    start: StartDriver | None = None
    stops: tuple[StopDriver, ...] = ()
    forgotten: tuple[DriverPod, ...] = ()
    """Pods of ended drivers that are no longer kept."""
    next_start: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineState:
    """What a decision is based on."""

    pods: tuple[DriverPod, ...]
    """By number."""
    memory: PipelineMemory
    created_at: datetime
    """When the resource was created."""
    now: datetime

    @property
    def active(self) -> list[DriverPod]:
        """Drivers that may still run."""
        return [pod for pod in self.pods if not pod.phase.has_ended]

    @property
    def last(self) -> EndedDriver | None:
        """The last driver that has ended."""
        ended = [EndedDriver.of(pod) for pod in self.pods if pod.phase.has_ended]
        known = [*ended, *([] if self.memory.last is None else [self.memory.last])]
        return max(known, key=lambda driver: driver.number, default=None)

    @property
    def last_number(self) -> int:
        """The number of the last driver; 0 if there was none."""
        last = self.last
        return max(self.memory.drivers, 0 if last is None else last.number, *(pod.number for pod in self.pods), 0)


def decide_pipeline(pipeline: Pipeline, specification: str, only_run: str, state: PipelineState) -> PipelineDecision:
    """Return what to do. `specification`: the hash of what a driver is made from now. `only_run`: see
    `job_file.run_of_specification`."""
    decision = _decide(pipeline, specification, only_run, state)
    ended = [pod for pod in state.pods if pod.phase.has_ended and not pod.is_leaving]
    return PipelineDecision(
        phase=decision.phase,
        message=decision.message,
        start=decision.start,
        stops=decision.stops,
        forgotten=tuple(ended[: -pipeline.history]),
        next_start=decision.next_start,
    )


def watch_only(state: PipelineState) -> PipelineDecision | None:
    """Return what the present driver does, when the resource cannot be served; None without a driver."""
    return _present(state.active[-1]) if state.active else None


def _decide(pipeline: Pipeline, specification: str, only_run: str, state: PipelineState) -> PipelineDecision:
    staying = [pod for pod in state.active if not pod.is_leaving]
    if pipeline.suspend:
        if not state.active:
            return PipelineDecision(phase=PipelinePhase.SUSPENDED, message="spec.suspend is true.")
        return _stopping(staying, "spec.suspend is true")
    if staying:
        *others, newest = staying
        if newest.specification != specification:
            return _stopping(staying, "the specification has changed")
        if others:
            return _stopping(others, "another driver of this job has started")
        return _present(newest)
    if state.active:
        (*_, leaving) = state.active
        return PipelineDecision(
            phase=PipelinePhase.STOPPING,
            message=f"Driver {leaving.name} is stopping. The next one starts when its pod is deleted. If its node is "
            "lost, delete the Node, or force the deletion of the pod.",
        )
    if pipeline.is_streaming:
        return _streaming(pipeline, specification, state)
    return _batch(pipeline, specification, only_run, state)


def _stopping(pods: list[DriverPod], reason: str) -> PipelineDecision:
    stops = tuple(StopDriver(pod=pod, reason=reason) for pod in pods)
    return PipelineDecision(phase=PipelinePhase.STOPPING, message=f"The driver is stopping: {reason}.", stops=stops)


def _present(pod: DriverPod) -> PipelineDecision:
    if pod.is_leaving:
        return PipelineDecision(phase=PipelinePhase.STOPPING, message=f"Driver {pod.name} is stopping.")
    if pod.phase is DriverPhase.RUNNING:
        return PipelineDecision(phase=PipelinePhase.RUNNING, message=f"Driver {pod.name} runs.")
    why = f": {pod.error.rstrip('.')}" if pod.error else ""
    return PipelineDecision(phase=PipelinePhase.STARTING, message=f"Driver {pod.name} starts{why}.")


def _start(state: PipelineState, run: str, attempt: int) -> PipelineDecision:
    start = StartDriver(number=state.last_number + 1, run=run, attempt=attempt)
    return PipelineDecision(phase=PipelinePhase.STARTING, message="A driver starts.", start=start)


def _streaming(pipeline: Pipeline, specification: str, state: PipelineState) -> PipelineDecision:
    last = state.last
    if last is None or last.specification != specification or last.run != STREAMING_RUN:
        return _start(state, STREAMING_RUN, 1)
    if last.number < state.last_number:
        # The driver after it was deleted with its pod, such as by a drain of its node.
        return _start(state, STREAMING_RUN, 1)
    is_settled = last.ended_at - last.started_at >= timedelta(seconds=SETTLED_SECONDS)
    return _again(pipeline, state, last, failures=1 if is_settled else last.attempt)


def _batch(pipeline: Pipeline, specification: str, only_run: str, state: PipelineState) -> PipelineDecision:
    following = None
    run = only_run
    if (schedule := pipeline.schedule) is not None:
        following = next_time(schedule.cron, schedule.time_zone, after=state.now)
        due = latest_time(schedule.cron, schedule.time_zone, after=state.created_at, now=state.now)
        if due is None:
            return _scheduled(following, "The first run")
        run = time_text(due)
    last = state.last
    if last is not None and _is_done(pipeline, last, run):
        if pipeline.schedule is not None:
            return _scheduled(following, f"The run of {last.run} has succeeded. The next one")
        return PipelineDecision(phase=PipelinePhase.SUCCEEDED, message=f"Driver {last.driver} has succeeded.")
    if last is None or last.run != run or last.specification != specification or last.number < state.last_number:
        return _start(state, run, 1)
    return _again(pipeline, state, last, failures=last.attempt, following=following)


def _is_done(pipeline: Pipeline, last: EndedDriver, run: str) -> bool:
    """Whether a run has succeeded. A later one, from before a change of the schedule, counts as well."""
    if pipeline.schedule is None:
        return last.succeeded and last.run == run
    done, due = parse_time(last.run), parse_time(run)
    return last.succeeded and done is not None and due is not None and done >= due


def _scheduled(following: datetime | None, what: str) -> PipelineDecision:
    message = f"{what} is never." if following is None else f"{what} is at {time_text(following)}."
    return PipelineDecision(phase=PipelinePhase.SCHEDULED, message=message, next_start=following)


def _again(
    pipeline: Pipeline, state: PipelineState, last: EndedDriver, *, failures: int, following: datetime | None = None
) -> PipelineDecision:
    """Return the restart after `failures` in a row, or its time, or that there is none."""
    restart = pipeline.restart
    limit = restart.backoff_limit
    if limit is None and not pipeline.is_streaming:
        limit = BATCH_RESTARTS
    how = last.error or ("It ended without an error." if last.succeeded else "It failed.")
    if restart.policy is RestartPolicy.NEVER or (limit is not None and failures > limit):
        message = f"Driver {last.driver} has ended, and is not started again: {how}"
        return PipelineDecision(phase=PipelinePhase.FAILED, message=message, next_start=following)
    pause = min(restart.max_backoff_seconds, restart.backoff_seconds * 2 ** min(failures - 1, _MAX_DOUBLINGS))
    at = last.ended_at + timedelta(seconds=pause)
    if at > state.now:
        message = f"Driver {last.driver} has ended. The next one starts at {time_text(at)}: {how}"
        return PipelineDecision(phase=PipelinePhase.BACK_OFF, message=message, next_start=at)
    return _start(state, last.run, failures + 1)


def seconds_until(time: datetime | None, now: datetime) -> float | None:
    """Return the seconds until a time, at least 0; None without a time."""
    return None if time is None else max(0.0, (time.astimezone(UTC) - now).total_seconds())
