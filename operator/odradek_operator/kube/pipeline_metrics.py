"""Metrics of Pipelines: what their drivers report, for dashboards and alerts.

The loop of a Pipeline sets them in each round, and removes them when it ends, so that only the operator that serves a
namespace has its series.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from odradek_operator.pipelines.job_report import JobReport

_LABELS: Final = ("pipeline_namespace", "pipeline")
"""`namespace` is that of the operator, because a scrape adds the namespace of the scraped pod."""


class PipelineMetrics:
    """The series of all Pipelines of an operator."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics. There is no series before the first `show`."""

        def gauge(name: str, what: str) -> Gauge:
            return Gauge(f"odradek_pipeline_{name}", what, _LABELS, registry=registry)

        self._ready = gauge("ready", "0 if the condition Ready is False, else 1")
        self._lag = gauge("lag_records", "Records of the source that are not processed yet")
        self._rate = gauge("processed_records_per_second", "Records that the last batch processed in a second")
        self._input_rate = gauge("input_records_per_second", "Records that arrive in the source in a second")
        self._batch = gauge("batch", "Number of the last batch")

    def show(self, namespace: str, name: str, report: JobReport | None, *, is_ready: bool) -> None:
        """Set the series of a Pipeline. Figures that the driver does not report keep their values."""
        self._ready.labels(namespace, name).set(is_ready)
        if report is None:
            return
        figures = (
            (self._lag, report.lag),
            (self._rate, report.rate),
            (self._input_rate, report.input_rate),
            (self._batch, report.batch),
        )
        for gauge, value in figures:
            if value is not None:
                gauge.labels(namespace, name).set(value)

    def forget(self, namespace: str, name: str) -> None:
        """Remove the series of a Pipeline."""
        known = dict(zip(_LABELS, (namespace, name), strict=True))
        for gauge in (self._ready, self._lag, self._rate, self._input_rate, self._batch):
            gauge.remove_by_labels(known)
