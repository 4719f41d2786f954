"""Metrics of the operator about single Pipelines and Mirrors, for dashboards and alerts.

The loop of a resource sets them in each round, and removes them when it ends, so that only the operator that serves a
namespace has its series.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from odradek_operator.pipelines.job_report import JobReport


class ResourceSeries:
    """The series of all resources of one kind, in one operator: whether they are ready, and what subclasses add."""

    def __init__(self, registry: CollectorRegistry, kind: str) -> None:
        """`kind`: the lower-case kind, of which the names of metrics and labels are made. There is no series before the
        first one is set."""
        self._registry = registry
        self._kind = kind
        # `namespace` is that of the operator, because a scrape adds the namespace of the scraped pod.
        self._labels = (f"{kind}_namespace", kind)
        self._gauges: list[Gauge] = []
        self._ready = self.gauge("ready", "0 if the condition Ready is False, else 1")

    def gauge(self, name: str, what: str) -> Gauge:
        """Register a metric with one series for each resource."""
        made = Gauge(f"odradek_{self._kind}_{name}", what, self._labels, registry=self._registry)
        self._gauges.append(made)
        return made

    def show_ready(self, namespace: str, name: str, *, is_ready: bool) -> None:
        """Set whether a resource is ready."""
        self._ready.labels(namespace, name).set(is_ready)

    def forget(self, namespace: str, name: str) -> None:
        """Remove the series of a resource."""
        known = dict(zip(self._labels, (namespace, name), strict=True))
        for gauge in self._gauges:
            gauge.remove_by_labels(known)


class PipelineMetrics(ResourceSeries):
    """The series of Pipelines: also what their drivers report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics."""
        super().__init__(registry, "pipeline")
        self._lag = self.gauge("lag_records", "Records of the source that are not processed yet")
        self._rate = self.gauge("processed_records_per_second", "Records that the last batch processed in a second")
        self._input_rate = self.gauge("input_records_per_second", "Records that arrive in the source in a second")
        self._batch = self.gauge("batch", "Number of the last batch")

    def show(self, namespace: str, name: str, report: JobReport | None, *, is_ready: bool) -> None:
        """Set the series of a Pipeline. Figures that the driver does not report keep their values."""
        self.show_ready(namespace, name, is_ready=is_ready)
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


class MirrorMetrics(ResourceSeries):
    """The series of Mirrors. The pods of a Mirror serve its figures themselves."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics."""
        super().__init__(registry, "mirror")
