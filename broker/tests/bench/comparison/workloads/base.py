"""The interface of workloads, and the context that the runner passes to them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from comparison.figures import OURS, Figures
from comparison.systems import System

TOPIC_PARTITIONS: Final = 1_000
"""Partitions of each topic in scenarios with thousands of them; the remainder is a smaller topic."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A running system and the tools for a workload."""

    system: System
    jars: Path
    """The folder with Apache Kafka's jars, for its tools."""
    timeout: float
    """Timeout of one step in seconds."""
    until_end: ExitStack
    """Closed at the end of the scenario, before the system stops."""
    side: str = OURS
    """Whose turn it is: the name of the system, or of its client if both sides have the same kind of broker."""
    others: list[System] = field(default_factory=list)
    """Further clusters of this side, which `prepare` has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload. The runner calls `prepare` once, then `before`, `run` and `after` for each run.

    Only `run` is measured. Workloads are immutable: state is on the brokers' disks or in `Bench`.
    """

    def scaled(self, scale: float) -> Self:
        """Return the workload with fewer or more records."""
        return self

    def prepare(self, bench: Bench) -> None:
        """Prepare a system once, for example with topics that every run reads."""

    def before(self, bench: Bench, number: int) -> None:
        """Prepare a run; `number` is unique, and below 0 for warm-ups."""

    def run(self, bench: Bench, number: int) -> Figures:
        """Do the work that is measured."""
        raise NotImplementedError

    def after(self, bench: Bench, number: int) -> None:
        """Remove the data that the run wrote."""


def topics_of(prefix: str, partitions: int) -> dict[str, int]:
    """Return names and sizes of the topics for a number of partitions."""
    sizes = [min(TOPIC_PARTITIONS, partitions - start) for start in range(0, partitions, TOPIC_PARTITIONS)]
    return {f"{prefix}-{number}": size for number, size in enumerate(sizes)}


def at_least(least: int, value: float) -> int:
    """Return a scaled count, with a minimum."""
    return max(least, int(value))


def topic_of(number: int) -> str:
    """Return the name of a run's topic."""
    return f"warm-{-number}" if number < 0 else f"run-{number}"
