"""All metrics of the broker: name, kind, labels and description.

The names are those of dashboards made for the JMX exporter rules of Kafka. `collector` rejects other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

Labels = Mapping[str, str]
Reading = tuple[Labels, float]


class Kind(Enum):
    """Type of a series in Prometheus."""

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
            "messagesin_total": "Records appended by producers and coordinators.",
            "bytesin_total": "Bytes appended by producers and coordinators; replication is not counted.",
            "bytesout_total": "Bytes sent to consumers; replication is not counted.",
            "totalproducerequests_total": "Attempts to produce, one for each partition in a request.",
            "failedproducerequests_total": "Attempts to produce that ended in an error.",
            "totalfetchrequests_total": "Attempts to fetch, one for each partition in a request.",
            "failedfetchrequests_total": "Attempts to fetch that ended in an error.",
            "bytesrejected_total": "Bytes of record sets that were refused because a batch exceeds max.message.bytes.",
            "producemessageconversions_total": "Produced records written anew for the topic's format or codec.",
            "fetchmessageconversions_total": "Records converted to the format of an old consumer.",
            "invalidmagicnumberrecords_total": "Record sets refused because they mix message formats.",
            "invalidmessagecrcrecords_total": "Batches or messages refused because their CRC is wrong.",
            "invalidoffsetorsequencerecords_total": "Batches refused for their offsets or their sequence.",
            "nokeycompactedtopicrecords_total": "Records without a key refused by compacted topics.",
            "replicationbytesin_total": "Bytes that this broker copied from leaders.",
            "replicationbytesout_total": "Bytes sent to followers.",
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
            "controllerstate": "What the controller is doing, by Kafka's numbers (0 nothing, 2 brokers changed, ...).",
        },
    ),
    **_series(
        Kind.SUMMARY,
        "kafka_controller_controllerstats_",
        {"leaderelectionrateandtimems": "Milliseconds that the controller took for a change of the live brokers."},
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
    **_series(
        Kind.SUMMARY,
        "kafka_log_logflushstats_",
        {"logflushrateandtimems": "Milliseconds of a log's flush to the disk."},
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
        {
            "requests_total": "Requests answered.",
            "errors_total": "Error codes in answers; NONE for each request that did not fail as a whole.",
        },
    ),
    **_series(
        Kind.SUMMARY,
        "kafka_network_requestmetrics_",
        {
            "totaltimems": "Milliseconds from a request's arrival until its answer was sent.",
            "requestqueuetimems": "Of these: until its handler began.",
            "localtimems": "Of these: of the handler, until it answered or had to wait for others.",
            "remotetimems": "Of these: waiting for replicas, group members, ZooKeeper or new records.",
            "responsequeuetimems": "Of these: of the answer, waiting for those before it.",
            "responsesendtimems": "Of these: until the answer was handed to the system.",
        },
    ),
    **_series(
        Kind.GAUGE, "kafka_network_requestchannel_", {"requestqueuesize": "Requests whose handlers have not begun."}
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
        Kind.GAUGE,
        "kafka_server_fetcherlagmetrics_",
        {"consumerlag": "Records that a replica here is behind its leader's high watermark."},
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
            "zookeepersyncconnects_total": "Connections that were made, or made again.",
        },
    ),
    **_series(
        Kind.GAUGE,
        "jvm_",
        {
            "memory_used_bytes": "Resident memory of the process; this name only fills dashboards made for a JVM.",
            "memory_bytes_used": "The same by the name that dashboards up to 2021 have for it.",
            "threads_current": "Threads of the process; this name only fills dashboards made for a JVM.",
        },
    ),
    **_series(
        Kind.SUMMARY,
        "jvm_",
        {"gc_collection_seconds": "Python's garbage collections; this name only fills dashboards made for a JVM."},
    ),
}
