"""The exporter's series about itself, and its probes.

`service` reports the end of each collection. Times are in seconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from odradek.metrics.http import Probe
from odradek_operator.exporter.exporter_settings import ExporterSettings


class Health(Collector):
    """Counts collections, and decides whether the exporter is live and ready."""

    STUCK_AFTER: Final = 3.0
    """The liveness probe fails if no collection has ended for this multiple of `stale_after`."""

    def __init__(self, settings: ExporterSettings, now: Callable[[], float]) -> None:
        """`now` returns the current time."""
        self._settings: Final = settings
        self._now: Final = now
        self._ended = now()
        self._succeeded: float | None = None
        self._good, self._bad, self._seconds, self._failed_brokers = 0, 0, 0.0, 0
        self._reason = "no collection has ended yet"

    def succeeded(self, seconds: float, *, failed_brokers: int = 0) -> None:
        """Record that a collection succeeded. `seconds`: its duration. `failed_brokers`: how many brokers failed in
        it."""
        self._failed_brokers = failed_brokers
        self._good += 1
        self._seconds = seconds
        self._ended = self._succeeded = self._now()

    def failed(self, reason: str) -> None:
        """Record that a collection failed. `reason`: a message without a full stop."""
        self._bad += 1
        self._reason = reason
        self._ended = self._now()

    def live(self) -> Probe:
        """Return the result of the liveness probe: whether collections still end, successfully or not."""
        age = self._now() - self._ended
        if age > self.STUCK_AFTER * self._settings.stale_after:
            return Probe(False, f"No collection has ended for {age:.0f} s.")
        return Probe(True, "Collections are running.")

    def ready(self) -> Probe:
        """Return the result of the readiness probe: whether the values are current."""
        if self._succeeded is None:
            return Probe(False, f"The brokers do not answer: {self._reason}.")
        age = self._now() - self._succeeded
        if age > self._settings.stale_after:
            return Probe(False, f"The last successful collection ended {age:.0f} s ago. Last error: {self._reason}.")
        return Probe(True, "The brokers answer.")

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families for a scrape."""
        counts = CounterMetricFamily("odradek_exporter_collections", "Collections by outcome.", labels=["outcome"])
        counts.add_metric(["succeeded"], self._good)
        counts.add_metric(["failed"], self._bad)
        yield counts
        took = GaugeMetricFamily("odradek_exporter_collection_seconds", "Duration of the last collection.")
        took.add_metric([], self._seconds)
        yield took
        missing = GaugeMetricFamily(
            "odradek_exporter_failed_brokers", "Brokers that did not answer everything in the last collection."
        )
        missing.add_metric([], self._failed_brokers)
        yield missing
