"""Runs a scenario: starts both systems, runs the rounds in alternating order, measures the brokers, and stops all.

Returns the counted runs of each system, or its error message. The systems never work at the same time: while one runs,
the other is idle.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from comparison.declarations import Scenario, estimate_seconds
from comparison.figures import SYSTEMS, Figures, turns, with_cost
from comparison.processes import Meter
from comparison.systems import running
from comparison.workloads.base import Bench, Workload
from odradek.base.errors import OdradekError

logger = logging.getLogger(__name__)

LEAST_TIMEOUT_SECONDS: Final = 120.0
TIMEOUT_FACTOR: Final = 5.0
"""A step that takes longer than its estimate by this factor counts as hanging."""
SENTENCE_LETTERS: Final = 200

Failure = (OdradekError, OSError, RuntimeError, subprocess.SubprocessError)
"""Errors that end the runs of one system and not the whole benchmark."""

Step = Callable[[str], None]
"""Called with a description of the next step, once for each run and system."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a scenario."""

    runs: Mapping[str, tuple[Figures, ...]]
    failures: Mapping[str, str]


def measure(scenario: Scenario, *, runs: int, scale: float, jars: Path, step: Step) -> Measured:
    """Run one scenario. A system that fails is omitted from later rounds, and its results are dropped."""
    work = scenario.workload.scaled(scale)
    timeout = max(LEAST_TIMEOUT_SECONDS, TIMEOUT_FACTOR * estimate_seconds(scenario, 1, scale))
    benches: dict[str, Bench] = {}
    found: dict[str, list[Figures]] = {}
    failures: dict[str, str] = {}

    def attempt(system: str, what: str, action: Callable[[], None]) -> None:
        if system in failures:
            return
        try:
            action()
        except Failure as error:
            failures[system] = f"{what}: {_sentence(error)}"
            trace = logger.isEnabledFor(logging.DEBUG)
            logger.error("%s, %s failed: %s", scenario.name, system, failures[system], exc_info=trace)

    with ExitStack() as everything:

        def begin(system: str) -> None:
            running_system = everything.enter_context(
                running(
                    scenario.same_broker or system, scenario.brokers, scenario.properties, jars=jars, tls=scenario.tls
                )
            )
            benches[system] = Bench(running_system, jars, timeout, everything.enter_context(ExitStack()), system)
            work.prepare(benches[system])

        def take_turn(system: str, number: int) -> None:
            figures = _one_run(work, benches[system], number)
            if number >= 0:
                found.setdefault(system, []).append(figures)

        for system in SYSTEMS:
            attempt(system, "start and preparation", lambda system=system: begin(system))  # type: ignore[misc]
        for number, order in turns(runs, scenario.warm_ups):
            for system in order:
                step(f"{scenario.name}: {system}, {'warm-up' if number < 0 else f'run {number + 1}'}")
                what = f"run {number + 1}"
                attempt(system, what, lambda system=system, number=number: take_turn(system, number))  # type: ignore[misc]
    kept = {system: tuple(figures) for system, figures in found.items() if system not in failures}
    return Measured(kept, failures)


def _one_run(work: Workload, bench: Bench, number: int) -> Figures:
    work.before(bench, number)
    with Meter(lambda: bench.system.pids) as meter:
        figures = work.run(bench, number)
    work.after(bench, number)
    return with_cost({**figures, **meter.figures()})


def _sentence(error: BaseException) -> str:
    """Return the last line of an error, without paths of this machine."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not within {error.timeout:g} s"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].partition(" (log: ")[0][:SENTENCE_LETTERS]
