"""The cost curves: how the cost of a record grows with one size, everything else unchanged.

A curve is a declaration: the values of its size, and the workload for each. Each value is a scenario, which only runs
if it is named (`--only curve-`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from comparison.declarations import Scenario
from comparison.workloads.base import Workload
from comparison.workloads.producing import ProduceBusy

PREFIX: Final = "curve-"
_REQUESTS: Final = 300_000
_MOST_BYTES: Final = 2_000_000_000
_COST: Final = ("cpu_us", "records_per_s", "p99_ms", "rss_max_mb")


def _one(value: int) -> int:
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One size that varies, and what is measured at each of its values."""

    name: str
    """The scenario of a value is named `<name>-<value>`."""
    title: str
    text: str
    values: Sequence[int]
    """In ascending order: growth is measured from the first to the last."""
    label: Callable[[int], str]
    """Text for a value."""
    workload: Callable[[int], Workload]
    brokers: Callable[[int], int] = _one
    seconds: float = 20.0
    """Approximate seconds of one run, as in a scenario."""
    prepare_seconds: Callable[[int], float] = _one
    metrics: Sequence[str] = _COST

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios of all values, in order."""
        return tuple(
            Scenario(
                name=f"{self.name}-{value}",
                theme=self.name,
                title=self.label(value),
                workload=self.workload(value),
                seconds=self.seconds,
                prepare_seconds=self.prepare_seconds(value),
                brokers=self.brokers(value),
            )
            for value in self.values
        )


def _count(value: int) -> str:
    return f"{value:,}"


def _size(value: int) -> str:
    for divisor, unit in ((1_000_000, "MB"), (1_000, "kB")):
        if value >= divisor:
            return f"{value // divisor} {unit}"
    return f"{value} B"


CURVES: Final = (
    Curve(
        name=f"{PREFIX}partitions",
        title="Partitions",
        text="200 connections with 5 requests of one 100-byte record in flight on each produce to all "
        "partitions, `acks=1`, one broker. A topic has at most 1,000 partitions. All runs use the same topics.",
        values=(1, 10, 100, 1_000, 10_000),
        label=_count,
        workload=lambda partitions: ProduceBusy(
            requests=_REQUESTS, connections=200, window=5, record_bytes=100, partitions=partitions, keep_topics=True
        ),
        prepare_seconds=lambda partitions: partitions / 100,
    ),
    Curve(
        name=f"{PREFIX}connections",
        title="Connections",
        text="5 requests of one 100-byte record in flight on each connection, 6 partitions, `acks=1`, one broker. In "
        "this closed loop, latency grows with the number of connections by definition; compare the two systems.",
        values=(1, 10, 100, 1_000, 5_000),
        label=_count,
        # The CPU includes the setup of the connections, so each one sends at least 200 requests.
        workload=lambda connections: ProduceBusy(
            requests=min(max(_REQUESTS, 200 * connections), 100_000 * connections),
            connections=connections,
            window=5,
            record_bytes=100,
        ),
    ),
    Curve(
        name=f"{PREFIX}brokers",
        title="Brokers",
        text="36 connections with 5 requests of one 100-byte record in flight on each produce to the leaders of 18 "
        "partitions with 3 replicas, `acks=all`. All brokers share the cores of one machine.",
        values=(3, 6, 9),
        label=_count,
        workload=lambda _: ProduceBusy(
            requests=_REQUESTS // 3,
            connections=36,
            window=5,
            record_bytes=100,
            partitions=18,
            replicas=3,
            acks="all",
        ),
        brokers=lambda brokers: brokers,
        seconds=40.0,
    ),
    Curve(
        name=f"{PREFIX}record-size",
        title="Record size",
        text="20 connections with 5 requests of one record in flight on each, 6 partitions, `acks=1`, one broker.",
        values=(10, 100, 1_000, 10_000, 100_000, 1_000_000),
        label=_size,
        workload=lambda size: ProduceBusy(
            requests=min(_REQUESTS, _MOST_BYTES // size), connections=20, window=5, record_bytes=size
        ),
        metrics=("cpu_us", "cpu_ms_per_mb", "records_per_s", "megabytes_per_s", "p99_ms", "rss_max_mb"),
    ),
)
