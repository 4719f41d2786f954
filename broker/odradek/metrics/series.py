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


class SeriesType(Enum):
    """Type of a series in Prometheus."""

    COUNTER = CounterMetricFamily
    GAUGE = GaugeMetricFamily
    SUMMARY = SummaryMetricFamily


class Series(NamedTuple):
    """Declaration of one metric."""

    name: str
    kind: SeriesType
    help: str


def _series(kind: SeriesType, prefix: str, entries: Mapping[str, str]) -> dict[str, Series]:
    return {prefix + name: Series(prefix + name, kind, text) for name, text in entries.items()}


SERIES: Final[Mapping[str, Series]] = {
    **_series(
        SeriesType.COUNTER,
        "kafka_server_brokertopicmetrics_",
        {
            "messagesin_total": "Records appended by producers and coordinators.",
            "bytesin_total": "Bytes appended by producers and coordinators; replication is not counted.",
            "bytesout_total": "Bytes sent to consumers; replication is not counted.",
            "totalproducerequests_total": "Produce requests, counted for each partition.",
            "failedproducerequests_total": "Produce requests that failed, counted for each partition.",
            "totalfetchrequests_total": "Fetch requests, counted for each partition.",
            "failedfetchrequests_total": "Fetch requests that failed, counted for each partition.",
            "bytesrejected_total": "Bytes of record sets that were rejected because a batch exceeds max.message.bytes.",
            "producemessageconversions_total": "Produced records that were converted to the topic's format or codec.",
            "fetchmessageconversions_total": "Fetched records that were converted to the format of an old consumer.",
            "invalidmagicnumberrecords_total": "Record sets that were rejected because they mix message formats.",
            "invalidmessagecrcrecords_total": "Batches or messages that were rejected because their CRC is wrong.",
            "invalidoffsetorsequencerecords_total": "Batches that were rejected for invalid offsets or sequences.",
            "nokeycompactedtopicrecords_total": "Records without a key that were rejected by compacted topics.",
            "replicationbytesin_total": "Bytes that this broker fetched from leaders.",
            "replicationbytesout_total": "Bytes sent to followers.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_replicamanager_",
        {
            "leadercount": "Partitions that this broker leads.",
            "partitioncount": "Replicas on this broker.",
            "offlinereplicacount": "Replicas in failed log directories.",
            "underreplicatedpartitions": "Partitions led by this broker whose ISR is smaller than the replica set.",
            "underminisrpartitioncount": "Partitions led by this broker whose ISR is smaller than min.insync.replicas.",
            "atminisrpartitioncount": "Partitions led by this broker whose ISR has just min.insync.replicas members.",
            "reassigningpartitions": "Partitions led by this broker that are being reassigned.",
            "produceridcount": "Producer ids that the replicas on this broker know, counted for each replica.",
            "partitionswithlatetransactionscount": "Partitions led by this broker whose oldest transaction hangs.",
        },
    ),
    **_series(
        SeriesType.COUNTER,
        "kafka_server_replicamanager_",
        {
            "isrshrinks_total": "Number of times that the ISR of a partition shrank.",
            "isrexpands_total": "Number of times that the ISR of a partition expanded.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_",
        {
            "leaderreplication_byte_rate": "Bytes per second that this broker sends for throttled replicas.",
            "followerreplication_byte_rate": "Bytes per second that this broker fetches for throttled replicas.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_quota_",
        {
            "byte_rate": "Bytes per second of the clients that share a quota, in Produce requests or Fetch responses.",
            "request_time": "Percentage of the time of one thread of the clients that share a quota.",
            "tokens": "Partitions that the clients that share a quota may still create or delete now.",
            "throttle_time": "Average throttle time of the clients that share a quota, in milliseconds.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_cluster_partition_",
        {
            "replicascount": "Number of replicas; 0 if this broker is a follower.",
            "underminisr": "1 if this broker leads the partition and the ISR is smaller than min.insync.replicas.",
            "atminisr": "1 if this broker leads the partition and the ISR has exactly min.insync.replicas members.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_controller_kafkacontroller_",
        {
            "activecontrollercount": "1 on the active controller, 0 on other brokers.",
            "offlinepartitionscount": "Partitions without a leader; 0 on brokers other than the controller.",
            "preferredreplicaimbalancecount": "Partitions whose leader is not the preferred replica; controller only.",
            "globaltopiccount": "Topics in the cluster; controller only.",
            "globalpartitioncount": "Partitions in the cluster; controller only.",
            "topicstodeletecount": "Topics whose deletion is pending; controller only.",
            "activebrokercount": "Live brokers; controller only.",
            "controllerstate": "State of the controller, numbered as in Kafka (0 idle, 2 broker change, ...).",
        },
    ),
    **_series(
        SeriesType.SUMMARY,
        "kafka_controller_controllerstats_",
        {"leaderelectionrateandtimems": "Milliseconds in which the controller handled a change of the live brokers."},
    ),
    **_series(
        SeriesType.COUNTER,
        "kafka_controller_controllerstats_",
        {"uncleanleaderelections_total": "Elections of a leader outside the ISR."},
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_log_log_",
        {
            "size": "Size of the log in bytes.",
            "logstartoffset": "Log start offset.",
            "logendoffset": "Log end offset.",
            "numlogsegments": "Number of segments of the log.",
        },
    ),
    **_series(
        SeriesType.SUMMARY,
        "kafka_log_logflushstats_",
        {"logflushrateandtimems": "Time of a log flush in milliseconds."},
    ),
    **_series(
        SeriesType.GAUGE, "kafka_log_logmanager_", {"offlinelogdirectorycount": "Number of failed log directories."}
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_log_logcleaner_",
        {
            "cleaner_recopy_percent": "Bytes written by the last cleaning passes as a percentage of the bytes read.",
            "max_buffer_utilization_percent": "Highest fill level of the offset map in the last passes, in percent.",
            "max_clean_time_secs": "Duration of the longest of the last cleaning passes in seconds.",
            "max_compaction_delay_secs": "Seconds by which compaction of the oldest record is overdue.",
            "deadthreadcount": "Cleaners whose last worker process died and that have not completed a pass since.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_log_logcleanermanager_",
        {
            "max_dirty_percent": "Dirty ratio of the dirtiest compacted log in percent.",
            "time_since_last_run_ms": "Milliseconds since the cleaner last checked for logs to clean.",
            "uncleanable_partitions_count": "Logs in the directory that the cleaner skips after an error.",
            "uncleanable_bytes": "Cleanable bytes of the logs that the cleaner skips after an error.",
        },
    ),
    **_series(
        SeriesType.COUNTER,
        "odradek_log_cleaner_",
        {"worker_deaths_total": "Worker processes that died during a cleaning pass."},
    ),
    **_series(
        SeriesType.GAUGE,
        "odradek_log_directory_",
        {
            "free_bytes": "Free bytes of the directory's file system at the last measurement.",
            "reserve_bytes": "Free bytes below which the directory refuses writes (log.dir.min.free.bytes).",
            "writes_refused": "1 while the directory refuses writes.",
            "slow": "1 while a thread writes the appends of the directory, because its disk is slow (log.dir.slow.ms).",
            "queued_bytes": "Bytes of appends that wait until the slow directory has written them.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_replicaalterlogdirsmanager_",
        {"maxlag": "Maximum lag in records of a replica that moves to another log directory."},
    ),
    **_series(
        SeriesType.COUNTER,
        "kafka_network_requestmetrics_",
        {
            "requests_total": "Answered requests.",
            "errors_total": "Error codes in responses; NONE for each request that did not fail as a whole.",
        },
    ),
    **_series(
        SeriesType.SUMMARY,
        "kafka_network_requestmetrics_",
        {
            "totaltimems": "Milliseconds from the arrival of a request until its response was sent.",
            "requestqueuetimems": "Milliseconds until the handler of the request began.",
            "localtimems": "Milliseconds in the handler, until it answered or had to wait.",
            "remotetimems": "Milliseconds of waiting for replicas, group members, ZooKeeper or new records.",
            "responsequeuetimems": "Milliseconds in which the response waited for earlier responses of the connection.",
            "responsesendtimems": "Milliseconds until the response was passed to the operating system.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_network_requestchannel_",
        {"requestqueuesize": "Requests that wait for their handler to begin."},
    ),
    **_series(
        SeriesType.COUNTER,
        "kafka_server_socket_server_metrics_",
        {
            "connection_creation_total": "Connections that a listener has opened.",
            "connection_close_total": "Connections of a listener that have ended.",
            "successful_authentication_total": "Logins with SASL, and handshakes of listeners with the protocol SSL.",
            "failed_authentication_total": "Logins and TLS handshakes that failed.",
            "successful_reauthentication_total": "Clients that authenticated again (KIP-368).",
            "failed_reauthentication_total": "Clients that failed to authenticate again.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_socket_server_metrics_",
        {
            "connection_count": "Open connections of a listener.",
            "expired_connections_killed_count": "Connections whose client did not authenticate again in time.",
            "memorypooldepletedtimetotal": "Milliseconds in which connections waited for queued.max.request.bytes.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_",
        {
            "network_socketserver_networkprocessoravgidle_percent": "Idle share (0..1) of the event loop.",
            "network_socketserver_memorypoolavailable": "Free bytes of queued.max.request.bytes, 2^63-1 without limit.",
            "network_socketserver_memorypoolused": "Bytes of requests that are being received, if there is a limit.",
            "server_kafkarequesthandlerpool_requesthandleravgidle_percent": "Idle share (0..1) of the event loop.",
            "server_kafkaserver_linux_disk_read_bytes": "Bytes that the process read from disks.",
            "server_kafkaserver_linux_disk_write_bytes": "Bytes that the process wrote to disks.",
            "server_kafkaserver_brokerstate": "1 starting, 2 recovering, 3 running, 6 controlled shutdown, 7 stopping.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_delayedoperationpurgatory_",
        {
            "purgatorysize": "Entries in the watch lists, one for each operation and key.",
            "numdelayedoperations": "Operations that wait for their condition or timeout.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_replicafetchermanager_",
        {"maxlag": "Maximum lag in records of a follower replica on this broker."},
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_fetcherlagmetrics_",
        {"consumerlag": "Records by which a follower replica is behind its leader's high watermark."},
    ),
    **_series(
        SeriesType.SUMMARY,
        "kafka_server_zookeeperclientmetrics_",
        {"zookeeperrequestlatencyms": "Milliseconds from sending a ZooKeeper request until its response."},
    ),
    **_series(
        SeriesType.COUNTER,
        "kafka_server_sessionexpirelistener_",
        {
            "zookeeperexpires_total": "Expired ZooKeeper sessions.",
            "zookeeperdisconnects_total": "Lost connections to ZooKeeper.",
            "zookeepersyncconnects_total": "Connections to ZooKeeper, including reconnects.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_coordinator_group_groupmetadatamanager_",
        {
            "numgroups": "Groups that this broker coordinates.",
            "numgroupsempty": "Of these, groups without members.",
            "numgroupspreparingrebalance": "Of these, groups that wait for their members to join.",
            "numgroupscompletingrebalance": "Of these, groups that wait for the assignment of their leader.",
            "numgroupsstable": "Of these, groups whose members have their assignments.",
            "numgroupsdead": "Of these, groups that are being removed.",
            "numoffsets": "Offsets that the groups of this broker have committed.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_group_coordinator_metrics_",
        {
            "offset_commit_count": "Committed offsets, including those in transactions.",
            "offset_expiration_count": "Committed offsets that have expired.",
            "offset_deletion_count": "Committed offsets that OffsetDelete has removed.",
            "group_completed_rebalance_count": "Rebalances of classic groups that ended with an assignment.",
            "consumer_group_rebalance_count": "Rebalances of consumer groups (KIP-848).",
            "offset_commit_rate": "Committed offsets per second, including those in transactions.",
            "offset_expiration_rate": "Committed offsets that expire per second.",
            "offset_deletion_rate": "Committed offsets that OffsetDelete removes per second.",
            "group_completed_rebalance_rate": "Rebalances of classic groups per second that end with an assignment.",
            "consumer_group_rebalance_rate": "Rebalances of consumer groups per second (KIP-848).",
            "group_count": "Groups that this broker coordinates, by their protocol.",
            "consumer_group_count": "Consumer groups (KIP-848) that this broker coordinates, by their state.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_server_",
        {
            f"{kind}_coordinator_metrics_partition_load_time_{which}": f"{adjective} time of the loads of a partition "
            f"of {topic} in the last 30 seconds, in milliseconds."
            for kind, topic in (("group", "__consumer_offsets"), ("transaction", "__transaction_state"))
            for which, adjective in (("max", "Maximum"), ("avg", "Mean"))
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "odradek_group_lag_",
        {"omitted_offsets": "Committed offsets without lag because of group.lag.metrics.max.partitions."},
    ),
    **_series(
        SeriesType.GAUGE,
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_",
        {
            "unknowndestinationqueuesize": "Markers that wait because a partition of their transaction has no leader.",
            "logappendretryqueuesize": "Transactions that have all markers and whose last record is appended again.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "odradek_transaction_coordinator_",
        {
            "prepared": "Prepared transactions of this coordinator, which wait until their owner ends them.",
            "oldest_prepared_ms": "Milliseconds since the start of the oldest of them; 0 without any.",
        },
    ),
    **_series(
        SeriesType.SUMMARY,
        "kafka_server_addpartitionstotxnmanager_",
        {"verificationtimems": "Milliseconds in which a coordinator confirmed that a transaction is open."},
    ),
    **_series(
        SeriesType.COUNTER,
        "kafka_server_addpartitionstotxnmanager_",
        {"verificationfailurerate_total": "Partitions that a transaction did not include, or could not be verified."},
    ),
    **_series(
        SeriesType.GAUGE,
        "jvm_",
        {
            "memory_used_bytes": "Resident memory of the process in bytes; provided for JVM dashboards.",
            "memory_bytes_used": "The same as jvm_memory_used_bytes, with the name that dashboards up to 2021 use.",
            "threads_current": "Threads of the process; provided for JVM dashboards.",
        },
    ),
    **_series(
        SeriesType.SUMMARY,
        "jvm_",
        {"gc_collection_seconds": "Seconds of Python's garbage collections; provided for JVM dashboards."},
    ),
}

RENDERED: Final[Mapping[str, Series]] = {
    **_series(
        SeriesType.GAUGE,
        "kafka_consumergroup_",
        {
            "current_offset": "Offset that a group of this broker has committed (group.lag.metrics.enable).",
            "lag": "Records from the committed offset to the high watermark.",
            "lag_sum": "Records from the committed offsets to the high watermarks of a topic.",
            "members": "Members of the group.",
        },
    ),
    **_series(
        SeriesType.GAUGE,
        "odradek_consumergroup_",
        {"lag_seconds": "Age of the first record that the group has not read, by its timestamp."},
    ),
}
"""Gauges that `metrics/rendered` provides, because they have many samples."""
