"""What happens to the drivers of a job, as tables of states and decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.crds import Pipeline
from odradek_operator.pipelines.driver_pods import DriverPhase, DriverPod, EndedDriver
from odradek_operator.pipelines.pipeline_plan import (
    STREAMING_RUN,
    PipelineDecision,
    PipelineMemory,
    PipelinePhase,
    PipelineState,
    StartDriver,
    decide_pipeline,
)
from odradek_operator_testkit.pipelines import pipeline

NOW = datetime(2026, 3, 8, 12, 0, tzinfo=UTC)
CREATED = NOW - timedelta(days=7)
STREAMING = pipeline(streaming={})
ONCE = pipeline()
DAILY = pipeline(schedule={"cron": "0 3 * * *"})
TODAY, YESTERDAY = "2026-03-08T03:00:00Z", "2026-03-07T03:00:00Z"
ONLY = "specification-1"


def driver(number: int = 1, phase: DriverPhase = DriverPhase.RUNNING, **changes: Any) -> DriverPod:
    ended = changes.pop("ended", 60)
    pod = DriverPod(
        name=f"departures-driver-{number}",
        uid=f"uid-{number}",
        number=number,
        specification="now",
        run=STREAMING_RUN,
        attempt=1,
        phase=phase,
        is_leaving=False,
        address="10.0.0.1",
        created_at=NOW - timedelta(seconds=100),
        started_at=NOW - timedelta(seconds=100),
        ended_at=NOW - timedelta(seconds=ended) if phase.has_ended else None,
        error="Boom." if phase is DriverPhase.FAILED else "",
    )
    return replace(pod, **changes)


def decide(
    what: Pipeline, *pods: DriverPod, memory: PipelineMemory | None = None, now: datetime = NOW
) -> PipelineDecision:
    state = PipelineState(pods=pods, memory=memory or PipelineMemory(), created_at=CREATED, now=now)
    return decide_pipeline(what, "now", ONLY, state)


FAILED, SUCCEEDED, STARTING = DriverPhase.FAILED, DriverPhase.SUCCEEDED, DriverPhase.STARTING


def test_a_streaming_job_gets_a_driver() -> None:
    found = decide(STREAMING)
    assert found.start == StartDriver(number=1, run=STREAMING_RUN, attempt=1)


@pytest.mark.parametrize(
    ("pod", "phase"),
    [
        (driver(), PipelinePhase.RUNNING),
        (driver(phase=STARTING), PipelinePhase.STARTING),
        (driver(is_leaving=True), PipelinePhase.STOPPING),
    ],
)
def test_a_driver_that_is_as_specified_is_left_alone(pod: DriverPod, phase: PipelinePhase) -> None:
    found = decide(STREAMING, pod)
    assert (found.phase, found.start, found.stops) == (phase, None, ())


@pytest.mark.parametrize("what", [STREAMING, ONCE, DAILY])
def test_a_driver_of_another_specification_is_stopped_before_the_next_starts(what: Pipeline) -> None:
    former = driver(specification="before", run=ONLY)
    found = decide(what, former)
    assert ([stop.pod for stop in found.stops], found.start) == ([former], None)
    assert decide(what, replace(former, is_leaving=True)).start is None


def test_a_changed_streaming_job_starts_at_once_after_failures() -> None:
    found = decide(STREAMING, driver(phase=FAILED, specification="before", attempt=9, ended=1))
    assert found.start == StartDriver(number=2, run=STREAMING_RUN, attempt=1)


@pytest.mark.parametrize(("attempt", "pause"), [(1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (999, 300)])
def test_pauses_double_up_to_the_longest(attempt: int, pause: int) -> None:
    failed = driver(phase=FAILED, attempt=attempt, ended=0, started_at=NOW - timedelta(seconds=5))
    waiting = decide(STREAMING, failed, now=NOW + timedelta(seconds=pause - 1))
    assert (waiting.phase, waiting.next_start) == (PipelinePhase.BACK_OFF, NOW + timedelta(seconds=pause))
    assert "Boom." in waiting.message
    again = decide(STREAMING, failed, now=NOW + timedelta(seconds=pause))
    assert again.start == StartDriver(number=2, run=STREAMING_RUN, attempt=attempt + 1)


def test_a_driver_that_ran_long_begins_a_new_count() -> None:
    failed = driver(phase=FAILED, attempt=9, ended=15, started_at=NOW - timedelta(seconds=700))
    assert decide(STREAMING, failed).start == StartDriver(number=2, run=STREAMING_RUN, attempt=2)


def test_a_streaming_driver_that_ends_without_an_error_is_restarted() -> None:
    assert decide(STREAMING, driver(phase=SUCCEEDED)).start is not None


def test_the_limit_and_the_policy_end_restarts() -> None:
    failed = driver(phase=FAILED, attempt=3, ended=1_000)
    limited = pipeline(streaming={}, restart={"backoffLimit": 2})
    assert decide(limited, failed).phase is PipelinePhase.FAILED
    assert decide(limited, replace(failed, attempt=2)).start is not None
    never = pipeline(streaming={}, restart={"policy": "Never"})
    assert decide(never, driver(phase=FAILED, ended=1_000)).phase is PipelinePhase.FAILED


def test_a_driver_whose_pod_was_deleted_is_followed_at_once() -> None:
    """Such as by a drain of its node. The next number is not used again."""
    memory = PipelineMemory(drivers=7, last=EndedDriver.of(driver(5, FAILED, attempt=4, ended=1)))
    assert decide(STREAMING, memory=memory).start == StartDriver(number=8, run=STREAMING_RUN, attempt=1)


def test_a_suspended_job_has_no_driver() -> None:
    suspended = pipeline(streaming={}, suspend=True)
    stopped = decide(suspended, driver())
    assert [stop.pod.number for stop in stopped.stops] == [1]
    assert decide(suspended).phase is PipelinePhase.SUSPENDED
    assert decide(suspended, driver(phase=FAILED)).phase is PipelinePhase.SUSPENDED


def test_two_drivers_never_stay() -> None:
    found = decide(STREAMING, driver(1), driver(2))
    assert [stop.pod.number for stop in found.stops] == [1]


def test_a_batch_job_runs_once_for_each_specification() -> None:
    assert decide(ONCE).start == StartDriver(number=1, run=ONLY, attempt=1)
    assert decide(ONCE, driver(phase=SUCCEEDED, run=ONLY)).phase is PipelinePhase.SUCCEEDED
    # An upgrade of the operator changes how a driver is made, not what the job does.
    assert decide(ONCE, driver(phase=SUCCEEDED, run=ONLY, specification="before")).start is None
    assert decide(ONCE, driver(phase=SUCCEEDED, run="specification-0")).start is not None


def test_a_run_is_known_after_its_pod_is_gone() -> None:
    memory = PipelineMemory(drivers=1, last=EndedDriver.of(driver(phase=SUCCEEDED, run=ONLY)))
    assert decide(ONCE, memory=memory).phase is PipelinePhase.SUCCEEDED


def test_a_batch_run_is_tried_again_three_times() -> None:
    for attempt in (1, 2, 3):
        found = decide(ONCE, driver(attempt, FAILED, run=ONLY, attempt=attempt, ended=1_000))
        assert found.start == StartDriver(number=attempt + 1, run=ONLY, attempt=attempt + 1)
    assert decide(ONCE, driver(4, FAILED, run=ONLY, attempt=4, ended=1_000)).phase is PipelinePhase.FAILED


def test_a_schedule_waits_for_its_first_time() -> None:
    state = PipelineState(pods=(), memory=PipelineMemory(), created_at=NOW, now=NOW)
    found = decide_pipeline(DAILY, "now", ONLY, state)
    assert (found.phase, found.start) == (PipelinePhase.SCHEDULED, None)
    assert found.next_start == NOW.replace(day=9, hour=3)


def test_of_missed_times_one_run_follows() -> None:
    assert decide(DAILY).start == StartDriver(number=1, run=TODAY, attempt=1)
    done = driver(phase=SUCCEEDED, run=TODAY)
    assert decide(DAILY, done).phase is PipelinePhase.SCHEDULED
    assert decide(DAILY, driver(phase=SUCCEEDED, run=YESTERDAY)).start == StartDriver(number=2, run=TODAY, attempt=1)


def test_a_run_begins_after_the_one_before() -> None:
    assert decide(DAILY, driver(run=YESTERDAY)).phase is PipelinePhase.RUNNING


def test_a_scheduled_run_that_failed_ends_at_the_next_time() -> None:
    failed = driver(4, FAILED, run=YESTERDAY, attempt=4)
    assert decide(DAILY, failed).start == StartDriver(number=5, run=TODAY, attempt=1)
    assert decide(DAILY, replace(failed, run=TODAY)).phase is PipelinePhase.FAILED
    assert decide(DAILY, replace(failed, run=TODAY)).next_start == NOW.replace(day=9, hour=3)


def test_old_pods_are_forgotten() -> None:
    ended = [driver(number, FAILED) for number in range(1, 6)]
    found = decide(pipeline(streaming={}, history=2), *ended)
    assert [pod.number for pod in found.forgotten] == [1, 2, 3]


drivers = st.builds(
    driver,
    st.integers(1, 9),
    st.sampled_from(list(DriverPhase)),
    specification=st.sampled_from(["now", "before"]),
    run=st.sampled_from([STREAMING_RUN, ONLY, TODAY, YESTERDAY, "nonsense"]),
    attempt=st.integers(1, 10_000),
    is_leaving=st.booleans(),
    ended=st.integers(0, 10_000),
)


@given(
    what=st.sampled_from([STREAMING, ONCE, DAILY, pipeline(streaming={}, suspend=True)]),
    pods=st.lists(drivers, max_size=5, unique_by=lambda pod: pod.number),
    known=st.none() | drivers.filter(lambda pod: pod.phase.has_ended),
    count=st.integers(0, 12),
)
def test_invariants(what: Pipeline, pods: list[DriverPod], known: DriverPod | None, count: int) -> None:
    ordered = sorted(pods, key=lambda pod: pod.number)
    memory = PipelineMemory(drivers=count, last=None if known is None else EndedDriver.of(known))
    found = decide(what, *ordered, memory=memory)
    active = [pod for pod in ordered if not pod.phase.has_ended]
    if found.start is not None:
        assert not active and not what.suspend
        assert found.start.number > max([count, *(pod.number for pod in ordered)])
        # The next decision, with this driver, starts nothing.
        started = driver(found.start.number, STARTING, run=found.start.run, attempt=found.start.attempt)
        assert decide(what, *ordered, started, memory=memory).start is None
    assert all(stop.pod in active and not stop.pod.is_leaving for stop in found.stops)
    assert not {pod.number for pod in found.forgotten} & {pod.number for pod in active}
    assert found.message.endswith((".", "…"))
