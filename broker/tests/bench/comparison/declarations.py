"""The declaration of a scenario and of a table: what the catalog in `scenarios` and the curves consist of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from comparison.workloads.base import Workload

USAGE: Final = ("cpu_s", "rss_max_mb", "rss_after_mb")
"""Metrics of the brokers that the runner measures in every scenario."""
USAGE_PER_RECORD: Final = ("cpu_s", "cpu_us", "rss_max_mb", "rss_after_mb")
"""The same for workloads that count records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """A table of the document: its first metric has separate columns, the others are written as Odradek / Kafka."""

    name: str
    title: str
    text: str
    metrics: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One line of a table."""

    name: str
    theme: str
    title: str
    workload: Workload
    seconds: float
    """Approximate seconds of one run of both systems at full scale, including preparation and cleanup."""
    prepare_seconds: float = 0.0
    """Approximate seconds of the preparation of each system, in addition to its start."""
    brokers: int = 1
    warm_ups: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    tls: bool = False
    """Whether the clients that are measured connect with TLS."""
    same_broker: str | None = None
    """The system whose brokers both sides use, for a comparison of clients; None if each side uses its own."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Absolute bounds for Odradek: metric to the maximum of its median."""


def estimate_seconds(scenario: Scenario, runs: int, scale: float) -> float:
    """Return the duration of a scenario: start and preparation of both systems, and its rounds."""
    work = scenario.prepare_seconds * 2 + scenario.seconds * (runs + scenario.warm_ups)
    return 15.0 * max(1, scenario.brokers / 2) + work * max(scale, 0.15)
