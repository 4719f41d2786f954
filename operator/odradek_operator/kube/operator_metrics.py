"""The metrics of the operator: `strimzi_*`, which existing operator dashboards use, and the number of ready pods.

All kinds in these dashboards have series with the value 0 from the start, including kinds that do not exist here.
Otherwise `increase()` would miss the first event, and panels would show "No data".
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from odradek_operator.kube.scopes import Standing
from odradek_operator.objects.names import Component

DASHBOARD_KINDS: Final[Mapping[str, str]] = {
    "Cluster": "Kafka",
    "Topic": "KafkaTopic",
    "User": "KafkaUser",
    "Pipeline": "Pipeline",
    "Mirror": "KafkaMirrorMaker2",
}
"""Names of the kinds in Strimzi's dashboards, which have no kind for a Pipeline."""
ABSENT_KINDS: Final = (
    "KafkaConnect",
    "KafkaMirrorMaker",
    "KafkaNodePool",
    "KafkaBridge",
    "KafkaConnector",
    "KafkaRebalance",
)
WINDOW_SECONDS: Final = 180.0
"""Window of the longest reconciliation, in seconds."""
_LABELS: Final = ("kind", "namespace", "selector")
_POD_LABELS: Final = ("cluster_namespace", "strimzi_io_cluster", "component")
"""`namespace` is that of the operator, because a scrape adds the namespace of the scraped pod."""


@dataclass(slots=True)
class ReconciliationOutcome:
    """How a reconciliation ended; set in the body of the context manager."""

    failed: bool = False


class Reconciliations:
    """Counts the reconciliations of the loops."""

    def __init__(self, registry: CollectorRegistry, namespaces: Iterable[str]) -> None:
        """`namespaces`: the watched namespaces; empty for all, which the series call `*`."""

        def counter(name: str, what: str) -> Counter:
            return Counter(f"strimzi_{name}", what, _LABELS, registry=registry)

        self._started = counter("reconciliations", "Reconciliations of any cause")
        self._periodical = counter("reconciliations_periodical", "Reconciliations that the timer started")
        self._successful = counter("reconciliations_successful", "Reconciliations that reached the desired state")
        self._failed = counter("reconciliations_failed", "Reconciliations that failed")
        self._locked = counter("reconciliations_locked", "Reconciliations skipped because of a lock; always 0")
        self._duration = Histogram(
            "strimzi_reconciliations_duration_seconds", "Duration of a reconciliation", _LABELS, registry=registry
        )
        self._resources = Gauge("strimzi_resources", "Custom resources", _LABELS, registry=registry)
        self._paused = Gauge("strimzi_resources_paused", "Paused custom resources", _LABELS, registry=registry)
        self._pods_wanted = Gauge("odradek_pods_wanted", "Desired pods of a cluster", _POD_LABELS, registry=registry)
        self._pods_ready = Gauge("odradek_pods_ready", "Ready pods of a cluster", _POD_LABELS, registry=registry)
        self._longest = _Longest()
        registry.register(self._longest)
        self._namespaces = tuple(namespaces) or ("*",)
        for namespace in self._namespaces:
            for kind in (*DASHBOARD_KINDS.values(), *ABSENT_KINDS):
                self._make(kind, namespace)

    def _make(self, kind: str, namespace: str) -> None:
        for series in (self._started, self._periodical, self._successful, self._failed, self._locked, self._duration):
            series.labels(kind, namespace, "")
        self._resources.labels(kind, namespace, "").set(0)
        self._paused.labels(kind, namespace, "").set(0)
        self._longest.make(kind, namespace)

    def _place(self, namespace: str) -> str:
        return namespace if namespace in self._namespaces else "*"

    @contextmanager
    def one(self, kind: str, namespace: str, *, periodic: bool = False) -> Iterator[ReconciliationOutcome]:
        """Measure a reconciliation."""
        labels = (DASHBOARD_KINDS[kind], self._place(namespace), "")
        self._started.labels(*labels).inc()
        if periodic:
            self._periodical.labels(*labels).inc()
        outcome = ReconciliationOutcome()
        began = time.monotonic()
        try:
            yield outcome
        except BaseException:
            outcome.failed = True
            raise
        finally:
            took = time.monotonic() - began
            self._duration.labels(*labels).observe(took)
            self._longest.note(labels[0], labels[1], took)
            (self._failed if outcome.failed else self._successful).labels(*labels).inc()

    def counted(self, kind: str, found: Mapping[str, tuple[int, int]]) -> None:
        """Set the numbers of resources of a kind and of paused ones, by namespace."""
        sums: dict[str, tuple[int, int]] = dict.fromkeys(self._namespaces, (0, 0))
        for namespace, (count, paused) in found.items():
            place = self._place(namespace)
            before = sums.get(place, (0, 0))
            sums[place] = (before[0] + count, before[1] + paused)
        for namespace, (count, paused) in sums.items():
            self._resources.labels(DASHBOARD_KINDS[kind], namespace, "").set(count)
            self._paused.labels(DASHBOARD_KINDS[kind], namespace, "").set(paused)

    def pods(self, namespace: str, cluster: str, component: Component, *, wanted: int, ready: int) -> None:
        """Set the desired and the ready number of pods of a component."""
        self._pods_wanted.labels(namespace, cluster, component.value).set(wanted)
        self._pods_ready.labels(namespace, cluster, component.value).set(ready)

    def forget(self, namespace: str, cluster: str) -> None:
        """Remove the series of a deleted cluster."""
        known = {"cluster_namespace": namespace, "strimzi_io_cluster": cluster}
        self._pods_wanted.remove_by_labels(known)
        self._pods_ready.remove_by_labels(known)


class Leadership(Collector):
    """Exports which scopes this operator serves and for which it stands by."""

    def __init__(self, registry: CollectorRegistry, standing: Callable[[], Standing]) -> None:
        """`standing` is called at each scrape."""
        self._standing = standing
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Describe the metric without calling `standing`."""
        yield self._family()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the metric, with one series for each scope."""
        family, standing = self._family(), self._standing()
        for scope in standing.serving:
            family.add_metric([scope], 1)
        for scope in standing.standby:
            family.add_metric([scope], 0)
        yield family

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "odradek_operator_leader",
            "1 for a namespace that this operator serves, 0 for one that another operator serves; * is all namespaces",
            labels=["scope"],
        )


class _Longest(Collector):
    """The longest reconciliation of the last minutes, which a histogram does not show."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str], deque[tuple[float, float]]] = {}

    def make(self, kind: str, namespace: str) -> None:
        self._recent.setdefault((kind, namespace), deque())

    def note(self, kind: str, namespace: str, seconds: float) -> None:
        recent = self._recent.setdefault((kind, namespace), deque())
        # A duration before a longer one can never be the longest again, so it is dropped. The kept durations decrease.
        while recent and recent[-1][1] <= seconds:
            recent.pop()
        recent.append((time.monotonic(), seconds))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "strimzi_reconciliations_duration_seconds_max",
            f"Longest reconciliation of the last {WINDOW_SECONDS:g} s",
            labels=_LABELS,
        )
        oldest = time.monotonic() - WINDOW_SECONDS
        for (kind, namespace), recent in self._recent.items():
            while recent and recent[0][0] < oldest:
                recent.popleft()
            family.add_metric([kind, namespace, ""], recent[0][1] if recent else 0.0)
        yield family
