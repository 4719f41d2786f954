"""What the runner asks of every workload, and what it gives to it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from comparison.figures import Figures
from comparison.systems import System


@dataclass(frozen=True, slots=True)
class Bench:
    """A running system and what a workload needs beside it."""

    system: System
    jars: Path
    """Apache Kafka's, for its tools."""
    timeout: float
    """Seconds that one step may take."""
    until_end: ExitStack
    """Closed when the scenario is over, before the system stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A description of work. The runner calls `prepare` once, then for each run `before`, `run`, `after`.

    Only `run` is metered. Descriptions are frozen: what must be remembered is on the brokers' disks or in `Bench`.
    """

    def scaled(self, scale: float) -> Self:
        """The same with fewer or more records."""
        return self

    def prepare(self, bench: Bench) -> None:
        """Once for each system: topics that every run reads."""

    def before(self, bench: Bench, number: int) -> None:
        """Before each run; `number` is below 0 in warm-ups and differs from run to run."""

    def run(self, bench: Bench, number: int) -> Figures:
        """The work that is measured."""
        raise NotImplementedError

    def after(self, bench: Bench, number: int) -> None:
        """After each run: take away what it wrote."""


def at_least(least: int, value: float) -> int:
    """A scaled count, not so small that it would measure nothing."""
    return max(least, int(value))


def topic_of(number: int) -> str:
    """The topic of one run."""
    return f"warm-{-number}" if number < 0 else f"run-{number}"
