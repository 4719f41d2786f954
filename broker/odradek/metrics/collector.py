"""Converts the counters and values of a broker into Prometheus metric families at each scrape.

`app/broker` creates the collector, and `app/observation` registers a source for each series.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from odradek.metrics.process import GarbageCollections, IdleShare, ProcessTree, resident_bytes
from odradek.metrics.quantiles import Quantiles
from odradek.metrics.rendered import RenderedGauges
from odradek.metrics.request_stats import PARTS, RequestStats
from odradek.metrics.series import SERIES, Labels, Reading, Series, SeriesType
from odradek.metrics.topic_stats import BrokerTopicStats


class Distribution(NamedTuple):
    """One set of labels of a summary. `happened`: number of events, if only a sample was observed."""

    labels: Labels
    quantiles: Quantiles
    happened: int | None = None


class BrokerCollector(Collector):
    """Collects the metric families of one broker."""

    def __init__(self) -> None:
        """Create a collector that has only the series of the process."""
        self._sources: dict[str, Callable[[], Iterable[Reading]]] = {}
        self._summaries: dict[str, Callable[[], Iterable[Distribution]]] = {}
        self.rendered: Final = RenderedGauges()
        """Gauges that a scrape adds to those that are collected."""
        self._collections = GarbageCollections()
        self.provide_value("jvm_threads_current", threading.active_count)
        for name in ("jvm_memory_used_bytes", "jvm_memory_bytes_used"):
            self.provide(name, lambda: [({"area": "heap"}, resident_bytes())])
        processes = ProcessTree()
        prefix = "kafka_server_kafkaserver_linux_disk_"
        self.provide_value(prefix + "read_bytes", lambda: processes.disk_bytes("read_bytes"))
        self.provide_value(prefix + "write_bytes", lambda: processes.disk_bytes("write_bytes"))
        idle = IdleShare()
        self.provide_value("kafka_network_socketserver_networkprocessoravgidle_percent", idle.read)
        self.provide_value("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", lambda: idle.last)

    def provide(self, name: str, source: Callable[[], Iterable[Reading]]) -> None:
        """Call `source` for the readings of a counter or gauge at each scrape."""
        if SERIES[name].kind is SeriesType.SUMMARY:
            raise ValueError(f"{name} is a summary")
        self._sources[name] = source

    def provide_value(self, name: str, source: Callable[[], float]) -> None:
        """Like `provide`, for a series without labels."""
        self.provide(name, lambda: [({}, source())])

    def provide_summary(self, name: str, source: Callable[[], Iterable[Distribution]]) -> None:
        """Call `source` for the distributions of a summary at each scrape."""
        if SERIES[name].kind is not SeriesType.SUMMARY:
            raise ValueError(f"{name} is not a summary")
        self._summaries[name] = source

    def provide_topics(self, stats: BrokerTopicStats) -> None:
        """Provide the brokertopicmetrics series."""
        for suffix, attribute in _TOPIC_SERIES.items():
            self.provide(
                f"kafka_server_brokertopicmetrics_{suffix}_total",
                lambda attribute=attribute: stats.readings(attribute),  # type: ignore[misc]
            )
        prefix = "kafka_server_brokertopicmetrics_replication"
        self.provide_value(f"{prefix}bytesin_total", lambda: stats.replication_bytes_in)
        self.provide_value(f"{prefix}bytesout_total", lambda: stats.replication_bytes_out)

    def provide_requests(self, stats: RequestStats, *, error_name: Callable[[int], str]) -> None:
        """Provide the requestmetrics series. `error_name` returns the name of an error code."""
        prefix = "kafka_network_requestmetrics_"
        self.provide(
            prefix + "requests_total",
            lambda: [({"request": api, "version": str(version)}, n) for (api, version), n in stats.counts.items()],
        )
        self.provide(
            prefix + "errors_total",
            lambda: [({"request": api, "error": error_name(code)}, n) for api, code, n in stats.error_counts()],
        )
        for index, part in enumerate(PARTS):
            self.provide_summary(
                f"{prefix}{part}timems",
                lambda index=index: _request_times(stats, index),  # type: ignore[misc]
            )

    def collect(self) -> Iterator[Metric]:
        """Return all families, for a scrape."""
        for name, source in self._sources.items():
            declared = SERIES[name]
            family = declared.kind.value(name, declared.help)
            for labels, value in source():
                family.samples.append(Sample(name, dict(labels), float(value), None, None))
            yield family
        for name, summary_source in self._summaries.items():
            yield _summary_family(SERIES[name], summary_source())
        family = SummaryMetricFamily("jvm_gc_collection_seconds", SERIES["jvm_gc_collection_seconds"].help)
        labels = {"gc": "python"}
        family.samples.append(Sample("jvm_gc_collection_seconds_count", labels, self._collections.count, None, None))
        family.samples.append(Sample("jvm_gc_collection_seconds_sum", labels, self._collections.seconds, None, None))
        yield family

    def close(self) -> None:
        """Remove the hook on the garbage collector. Idempotent."""
        self._collections.close()


_TOPIC_SERIES: Final = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "totalproducerequests": "total_produce",
    "failedproducerequests": "failed_produce",
    "totalfetchrequests": "total_fetch",
    "failedfetchrequests": "failed_fetch",
    "bytesrejected": "bytes_rejected",
    "producemessageconversions": "produce_conversions",
    "fetchmessageconversions": "fetch_conversions",
    "invalidmagicnumberrecords": "invalid_magic",
    "invalidmessagecrcrecords": "invalid_crc",
    "invalidoffsetorsequencerecords": "invalid_offset_or_sequence",
    "nokeycompactedtopicrecords": "no_key",
}


def _request_times(stats: RequestStats, part: int) -> Iterator[Distribution]:
    for api, count in stats.answers().items():
        yield Distribution({"request": api}, stats.times_of(api).parts[part], count)


def _summary_family(declared: Series, readings: Iterable[Distribution]) -> Metric:
    family = SummaryMetricFamily(declared.name, declared.help)
    for labels, quantiles, happened in readings:
        for quantile, value in quantiles.quantiles():
            # Dashboards select quantiles by text: 0.50, 0.75, ..., 0.999.
            text = f"{quantile:.3f}" if quantile == 0.999 else f"{quantile:.2f}"
            family.samples.append(Sample(declared.name, {**labels, "quantile": text}, value, None, None))
        count = quantiles.count if happened is None else happened
        family.samples.append(Sample(f"{declared.name}_count", dict(labels), count, None, None))
    return family
