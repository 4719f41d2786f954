"""Metrics of streaming queries for prometheus-client.

The collector makes the families at each scrape, so a query that has ended keeps no stale rate: it only has its state
and its totals.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pyspark_odradek.observation.query_states import QueryState

PREFIX: Final = "odradek_spark_query_"

_GAUGES: Final = {
    "input_rows_per_second": "Rows that arrive per second, of the last micro-batch",
    "processed_rows_per_second": "Rows that the query processes per second, of the last micro-batch",
    "batch_id": "Id of the last micro-batch",
    "last_progress_timestamp_seconds": "Time of the last progress or idle event, in seconds since 1970",
}


@dataclass(slots=True)
class QueryTable:
    """The states of all queries by label, and the lock that guards them: events and scrapes come in threads."""

    states: dict[str, QueryState] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class QueryCollector(Collector):
    """Exports a `QueryTable`. Every metric has the label `query`, the name of the query or its id."""

    def __init__(self, table: QueryTable) -> None:
        """The table is read at each scrape."""
        self._table = table

    def collect(self) -> Iterable[Metric]:
        """Return all metric families."""
        with self._table.lock:
            return list(_families(self._table.states))


def _families(states: Mapping[str, QueryState]) -> Iterable[Metric]:
    running = _gauge("running", "1 if the query runs, 0 if it has ended")
    rows = _counter("input_rows", "Input rows since the listener was added")
    batches = _counter("batches", "Micro-batches since the listener was added")
    failures = _counter("failures", "Runs that ended with an exception since the listener was added")
    durations = _gauge("duration_ms", "Duration of each phase of the last micro-batch in milliseconds", "phase")
    gauges = {name: _gauge(name, text) for name, text in _GAUGES.items()}
    lags = {
        name: _gauge(f"{name}_offsets_behind_latest", f"{text} of unread offsets over the partitions", "source")
        for name, text in (("min", "Minimum"), ("avg", "Average"), ("max", "Maximum"), ("total", "Sum"))
    }
    for label, state in states.items():
        running.add_metric([label], int(state.running))
        rows.add_metric([label], state.input_rows)
        batches.add_metric([label], state.batches)
        failures.add_metric([label], state.failures)
        if state.running:
            _add_progress(label, state, gauges, durations)
            _add_lag(label, state, lags)
    return (running, rows, batches, failures, durations, *gauges.values(), *lags.values())


def _add_progress(
    label: str, state: QueryState, gauges: Mapping[str, GaugeMetricFamily], durations: GaugeMetricFamily
) -> None:
    values = {
        "input_rows_per_second": state.input_rows_per_second,
        "processed_rows_per_second": state.processed_rows_per_second,
        "batch_id": state.batch_id,
        "last_progress_timestamp_seconds": state.last_seen_seconds,
    }
    for name, value in values.items():
        if value is not None:
            gauges[name].add_metric([label], value)
    for phase, duration_ms in state.durations_ms.items():
        durations.add_metric([label, phase], duration_ms)


def _add_lag(label: str, state: QueryState, lags: Mapping[str, GaugeMetricFamily]) -> None:
    for number, source in enumerate(state.sources):
        if source.behind is None:
            continue
        values = zip(("min", "avg", "max", "total"), source.behind, strict=True)
        for name, value in values:
            lags[name].add_metric([label, str(number)], value)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=["query", *labels])


def _counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=["query"])
