"""Every metric of the broker: name, kind, labels and meaning; nothing else defines one.

Rooms count in plain integers that they own (`TopicStats`, `RequestStats`) or answer questions (`provide`); a scrape
turns them into Prometheus families. So counting costs an addition on the data path, and no room imports a metrics
library. Names are those that dashboards made for Kafka's JMX exporter rules ask for.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from odradek.metrics.process import GarbageCollections, resident_bytes

Labels = Mapping[str, str]
Reading = tuple[Labels, float]


class Kind(Enum):
    """What a series is to Prometheus."""

    COUNTER = CounterMetricFamily
    GAUGE = GaugeMetricFamily
    SUMMARY = SummaryMetricFamily


class Series(NamedTuple):
    """Declaration of one metric."""

    name: str
    kind: Kind
    help: str


def _series(kind: Kind, prefix: str, entries: Mapping[str, str]) -> dict[str, Series]:
    return {prefix + name: Series(prefix + name, kind, text) for name, text in entries.items()}


SERIES: Final[Mapping[str, Series]] = {
    **_series(
        Kind.COUNTER,
        "kafka_server_brokertopicmetrics_",
        {
            "messagesin_total": "Records appended by producers.",
            "bytesin_total": "Bytes appended by producers; replication is not counted.",
            "bytesout_total": "Bytes sent to consumers; replication is not counted.",
            "totalproducerequests_total": "Attempts to produce, one for each partition in a request.",
            "failedproducerequests_total": "Attempts to produce that ended in an error.",
            "totalfetchrequests_total": "Attempts to fetch, one for each partition in a request.",
            "failedfetchrequests_total": "Attempts to fetch that ended in an error.",
        },
    ),
    **_series(
        Kind.GAUGE,
        "kafka_server_replicamanager_",
        {
            "leadercount": "Partitions that this broker leads.",
            "partitioncount": "Replicas on this broker.",
            "offlinereplicacount": "Replicas in failed log directories.",
            "underreplicatedpartitions": "Partitions led here whose in-sync set is smaller than the replica set.",
            "underminisrpartitioncount": "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
            "atminisrpartitioncount": "Partitions led here with just min.insync.replicas in-sync replicas.",
            "reassigningpartitions": "Partitions led here whose replicas come or go by a reassignment.",
        },
    ),
    **_series(
        Kind.COUNTER,
        "kafka_server_replicamanager_",
        {"isrshrinks_total": "Times an in-sync set shrank.", "isrexpands_total": "Times an in-sync set grew."},
    ),
    **_series(
        Kind.GAUGE,
        "kafka_server_",
        {
            "leaderreplication_byte_rate": "Bytes a second sent of replicas whose leaders are throttled.",
            "followerreplication_byte_rate": "Bytes a second fetched of replicas whose followers are throttled.",
        },
    ),
    **_series(
        Kind.GAUGE,
        "kafka_cluster_partition_",
        {
            "replicascount": "Size of the replica set, 0 where this broker follows.",
            "underminisr": "1 if led here and below min.insync.replicas.",
            "atminisr": "1 if led here and exactly at min.insync.replicas.",
        },
    ),
    **_series(
        Kind.GAUGE,
        "kafka_controller_kafkacontroller_",
        {
            "activecontrollercount": "1 on the controller, 0 elsewhere.",
            "offlinepartitionscount": "Partitions without a leader; 0 on all but the controller.",
            "preferredreplicaimbalancecount": "Partitions not led by their preferred replica; controller only.",
            "globaltopiccount": "Topics of the cluster; controller only.",
            "globalpartitioncount": "Partitions of the cluster; controller only.",
            "topicstodeletecount": "Topics that are to be deleted and are still there; controller only.",
            "activebrokercount": "Brokers that are alive; controller only.",
        },
    ),
    **_series(
        Kind.COUNTER,
        "kafka_controller_controllerstats_",
        {"uncleanleaderelections_total": "Leaders chosen from outside the in-sync set."},
    ),
    **_series(
        Kind.GAUGE,
        "kafka_log_log_",
        {
            "size": "Bytes of the partition's log on this broker.",
            "logstartoffset": "First offset of the log.",
            "logendoffset": "Offset of the next record.",
            "numlogsegments": "Segments of the log.",
        },
    ),
    **_series(Kind.GAUGE, "kafka_log_logmanager_", {"offlinelogdirectorycount": "Log directories that failed."}),
    **_series(
        Kind.GAUGE,
        "kafka_log_logcleaner_",
        {
            "cleaner_recopy_percent": "Share of the bytes read by the last passes of compaction that stayed.",
            "max_buffer_utilization_percent": "How full the map of keys was in the last passes.",
            "max_clean_time_secs": "Time of the longest of the last passes.",
            "max_compaction_delay_secs": "How long ago the oldest record should have been compacted.",
            "deadthreadcount": "Cleaners whose last worker process died and that finished no pass since.",
        },
    ),
    **_series(
        Kind.GAUGE,
        "kafka_log_logcleanermanager_",
        {
            "max_dirty_percent": "Dirty share of the dirtiest compacted log.",
            "time_since_last_run_ms": "Time since a cleaner looked for work.",
            "uncleanable_partitions_count": "Logs of a directory that are left alone after an error.",
            "uncleanable_bytes": "Bytes of those logs that should be cleaned.",
        },
    ),
    **_series(Kind.COUNTER, "odradek_log_cleaner_", {"worker_deaths_total": "Worker processes that died in a pass."}),
    **_series(
        Kind.GAUGE,
        "odradek_log_directory_",
        {
            "free_bytes": "Free bytes of the directory's file system at the last look.",
            "reserve_bytes": "Bytes that are kept free (log.dir.min.free.bytes): below, writes are refused.",
            "writes_refused": "1 while the directory refuses writes.",
        },
    ),
    **_series(
        Kind.GAUGE,
        "kafka_server_replicaalterlogdirsmanager_",
        {"maxlag": "Records that the hindmost replica on its way to another log directory is behind."},
    ),
    **_series(
        Kind.COUNTER,
        "kafka_network_requestmetrics_",
        {"requests_total": "Requests answered.", "errors_total": "Error codes in answers to whole requests."},
    ),
    **_series(
        Kind.SUMMARY,
        "kafka_network_requestmetrics_",
        {"totaltimems": "Milliseconds from a request's arrival to its answer."},
    ),
    **_series(
        Kind.GAUGE,
        "kafka_server_socket_server_metrics_",
        {"connection_count": "Open connections of a listener."},
    ),
    **_series(
        Kind.GAUGE,
        "kafka_",
        {
            "network_socketserver_networkprocessoravgidle_percent": "Idle share (0..1) of the event loop.",
            "server_kafkarequesthandlerpool_requesthandleravgidle_percent": "Idle share (0..1) of the event loop.",
            "server_kafkaserver_linux_disk_read_bytes": "Bytes that the process read from disks.",
            "server_kafkaserver_linux_disk_write_bytes": "Bytes that the process wrote to disks.",
            "server_kafkaserver_brokerstate": "1 starting, 2 recovering, 3 running, 6 handing over, 7 stopping.",
        },
    ),
    **_series(
        Kind.GAUGE,
        "kafka_server_delayedoperationpurgatory_",
        {"purgatorysize": "Watched operations.", "numdelayedoperations": "Operations that wait for their time."},
    ),
    **_series(
        Kind.GAUGE,
        "kafka_server_replicafetchermanager_",
        {"maxlag": "Largest lag of a replica that follows here, in records."},
    ),
    **_series(
        Kind.SUMMARY,
        "kafka_server_zookeeperclientmetrics_",
        {"zookeeperrequestlatencyms": "Milliseconds of a ZooKeeper request, from its sending to its answer."},
    ),
    **_series(
        Kind.COUNTER,
        "kafka_server_sessionexpirelistener_",
        {
            "zookeeperexpires_total": "ZooKeeper sessions that expired.",
            "zookeeperdisconnects_total": "Lost connections.",
        },
    ),
    **_series(
        Kind.GAUGE,
        "jvm_",
        {
            "memory_used_bytes": "Resident memory of the process; this name only fills dashboards made for a JVM.",
            "threads_current": "Threads of the process; this name only fills dashboards made for a JVM.",
        },
    ),
    **_series(
        Kind.SUMMARY,
        "jvm_",
        {"gc_collection_seconds": "Python's garbage collections; this name only fills dashboards made for a JVM."},
    ),
}

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class TopicStats:
    """What the data path counts for one topic."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch",
        "failed_produce",
        "messages_in",
        "total_fetch",
        "total_produce",
    )

    def __init__(self) -> None:
        """All zero."""
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.total_produce = 0
        self.failed_produce = 0
        self.total_fetch = 0
        self.failed_fetch = 0

    def add(self, other: TopicStats) -> None:
        """Add another topic's counts to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTopicStats:
    """`TopicStats` of every topic seen; the broker-wide sums never fall when a topic goes."""

    __slots__ = ("_retired", "topics")

    def __init__(self) -> None:
        """No topic yet."""
        self.topics: dict[str, TopicStats] = {}
        self._retired = TopicStats()

    def of(self, topic: str) -> TopicStats:
        """The counts of a topic, to be added to."""
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = TopicStats()
        return stats

    def retire(self, topic: str) -> None:
        """The topic was deleted: its series ends, its counts stay in the sums."""
        stats = self.topics.pop(topic, None)
        if stats is not None:
            self._retired.add(stats)

    def readings(self, name: str) -> Iterator[Reading]:
        """One count for the broker and for each topic."""
        yield {}, getattr(self._retired, name) + sum(getattr(stats, name) for stats in self.topics.values())
        for topic, stats in self.topics.items():
            yield {"topic": topic}, getattr(stats, name)


class Quantiles:
    """Distribution of the last few minutes: counts in buckets that grow by a tenth, two windows turned in turn.

    A fixed 190 integers whatever the rate; the error of a quantile is at most 10 %.
    """

    __slots__ = ("_buckets", "_older", "_turn_at", "count", "total")

    GROWTH: Final = 1.1
    SMALLEST: Final = 0.01
    SIZE: Final = 190
    WINDOW_SECONDS: Final = 150.0

    def __init__(self) -> None:
        """Nothing observed."""
        self._buckets = [0] * self.SIZE
        self._older = [0] * self.SIZE
        self._turn_at = time.monotonic() + self.WINDOW_SECONDS
        self.count = 0
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value, in the unit of the series."""
        self.count += 1
        self.total += value
        self._buckets[bisect_left(_BUCKET_LIMITS, value)] += 1

    def quantiles(self) -> list[tuple[float, float]]:
        """(quantile, value) for each of `QUANTILES`; zeros when nothing was observed lately."""
        now = time.monotonic()
        if now >= self._turn_at:
            self._older, self._buckets = self._buckets, [0] * self.SIZE
            self._turn_at = now + self.WINDOW_SECONDS
        counts = [new + old for new, old in zip(self._buckets, self._older, strict=True)]
        total, seen, index, found = sum(counts), 0, -1, []
        for quantile in QUANTILES:
            while index < self.SIZE - 1 and seen < quantile * total:
                index += 1
                seen += counts[index]
            found.append((quantile, self.SMALLEST * self.GROWTH**index if index >= 0 else 0.0))
        return found


_BUCKET_LIMITS: Final = tuple(Quantiles.SMALLEST * Quantiles.GROWTH**index for index in range(Quantiles.SIZE - 1))
"""Upper ends; the last bucket has none."""


class RequestStats:
    """Requests by API: how many, how long, and which errors a whole request ended with."""

    __slots__ = ("counts", "errors", "times")

    def __init__(self) -> None:
        """Nothing served yet."""
        self.counts: dict[tuple[str, int], int] = {}
        self.errors: dict[tuple[str, str], int] = {}
        self.times: dict[str, Quantiles] = {}

    def answered(self, api: str, version: int, elapsed_ms: float) -> None:
        """A request was answered."""
        key = (api, version)
        self.counts[key] = self.counts.get(key, 0) + 1
        times = self.times.get(api)
        if times is None:
            times = self.times[api] = Quantiles()
        times.observe(elapsed_ms)

    def failed(self, api: str, error: str) -> None:
        """A whole request ended in an error."""
        key = (api, error)
        self.errors[key] = self.errors.get(key, 0) + 1


class BrokerCollector(Collector):
    """Turns the readings that rooms provide into Prometheus families."""

    def __init__(self) -> None:
        """Nothing is provided yet; the process's own series are."""
        self._sources: dict[str, Callable[[], Iterable[Reading]]] = {}
        self._summaries: dict[str, Callable[[], Iterable[tuple[Labels, Quantiles]]]] = {}
        self._collections = GarbageCollections()
        self.provide_value("jvm_threads_current", threading.active_count)
        self.provide("jvm_memory_used_bytes", lambda: [({"area": "heap"}, resident_bytes())])
        self.provide_value("kafka_server_kafkaserver_linux_disk_read_bytes", lambda: _disk_bytes("read_bytes"))
        self.provide_value("kafka_server_kafkaserver_linux_disk_write_bytes", lambda: _disk_bytes("write_bytes"))
        idle = IdleShare()
        self.provide_value("kafka_network_socketserver_networkprocessoravgidle_percent", idle.read)
        self.provide_value("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", lambda: idle.last)

    def provide(self, name: str, source: Callable[[], Iterable[Reading]]) -> None:
        """Ask `source` for the readings of a counter or gauge at each scrape."""
        if SERIES[name].kind is Kind.SUMMARY:
            raise ValueError(f"{name} is a summary")
        self._sources[name] = source

    def provide_value(self, name: str, source: Callable[[], float]) -> None:
        """The same for a series without labels."""
        self.provide(name, lambda: [({}, source())])

    def provide_summary(self, name: str, source: Callable[[], Iterable[tuple[Labels, Quantiles]]]) -> None:
        """Ask `source` for the distributions of a summary at each scrape."""
        if SERIES[name].kind is not Kind.SUMMARY:
            raise ValueError(f"{name} is not a summary")
        self._summaries[name] = source

    def provide_topics(self, stats: BrokerTopicStats) -> None:
        """The brokertopicmetrics series."""
        for suffix, attribute in _TOPIC_SERIES.items():
            self.provide(
                f"kafka_server_brokertopicmetrics_{suffix}_total",
                lambda attribute=attribute: stats.readings(attribute),  # type: ignore[misc]
            )

    def provide_requests(self, stats: RequestStats) -> None:
        """The requestmetrics series."""
        prefix = "kafka_network_requestmetrics_"
        self.provide(
            prefix + "requests_total",
            lambda: [({"request": api, "version": str(version)}, n) for (api, version), n in stats.counts.items()],
        )
        self.provide(
            prefix + "errors_total",
            lambda: [({"request": api, "error": error}, n) for (api, error), n in stats.errors.items()],
        )
        self.provide_summary(
            prefix + "totaltimems", lambda: [({"request": api}, times) for api, times in stats.times.items()]
        )

    def collect(self) -> Iterator[Metric]:
        """All families, for a scrape."""
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
        """Take the hook on the garbage collector away; idempotent."""
        self._collections.close()


_TOPIC_SERIES: Final = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "totalproducerequests": "total_produce",
    "failedproducerequests": "failed_produce",
    "totalfetchrequests": "total_fetch",
    "failedfetchrequests": "failed_fetch",
}


def _summary_family(declared: Series, readings: Iterable[tuple[Labels, Quantiles]]) -> Metric:
    family = SummaryMetricFamily(declared.name, declared.help)
    for labels, quantiles in readings:
        for quantile, value in quantiles.quantiles():
            # Dashboards select quantiles by text: 0.50, 0.75, ..., 0.999.
            text = f"{quantile:.3f}" if quantile == 0.999 else f"{quantile:.2f}"
            family.samples.append(Sample(declared.name, {**labels, "quantile": text}, value, None, None))
        family.samples.append(Sample(f"{declared.name}_count", dict(labels), quantiles.count, None, None))
    return family


class IdleShare:
    """Idle share of the thread that reads it, between two readings at least a second apart."""

    def __init__(self) -> None:
        """Begin now."""
        self._wall, self._busy = time.monotonic(), time.thread_time()
        self.last = 1.0

    def read(self) -> float:
        """1 − CPU time / elapsed time of the calling thread since the last reading."""
        wall, busy = time.monotonic(), time.thread_time()
        if wall - self._wall >= 1.0:
            self.last = min(1.0, max(0.0, 1.0 - (busy - self._busy) / (wall - self._wall)))
            self._wall, self._busy = wall, busy
        return self.last


def _disk_bytes(key: str) -> float:
    with open("/proc/self/io", encoding="ascii") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == key:
                return float(value)
    return 0.0
