"""Rows of the cluster dashboard: the brokers' load, disks and ZooKeeper requests. Pure.

A pod may run several brokers, so lines are by pod and container.
"""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.grafana import Panel, PanelType, Query, Row, lines

LEGEND: Final = "{{kubernetes_pod_name}} {{container}}"
"""Legend of lines by broker."""

LOAD: Final = Row(
    title="Load",
    panels=(
        Panel(
            title="Event loop idle",
            description="Share of time in which a broker's event loop is idle. Below 10 %, requests are queued.",
            queries=lines("kafka_network_socketserver_networkprocessoravgidle_percent{PODS}", LEGEND),
            unit="percentunit",
            high=1,
        ),
        Panel(
            title="CPU",
            description="CPU usage of the brokers' containers, in cores.",
            queries=lines(
                'sum by (pod, container) (rate(container_cpu_usage_seconds_total{namespace="$namespace", pod=~"$pod", '
                f'container=~"$container", {queries.OF_BROKERS}}}[$__rate_interval]))',
                "{{pod}} {{container}}",
            ),
            unit="short",
        ),
        Panel(
            title="Memory",
            description="Resident memory of the broker processes.",
            queries=lines(f"sum by ({queries.BY_BROKER}) (jvm_memory_used_bytes{{PODS}})", LEGEND),
            unit="bytes",
        ),
        Panel(
            title="Connections",
            description="Open connections by listener.",
            queries=lines(
                "sum by (listener) (kafka_server_socket_server_metrics_connection_count{PODS})", "{{listener}}"
            ),
            type=PanelType.AREAS,
        ),
        Panel(
            title="Delayed operations",
            description="Produce requests that wait for replication, fetch requests that wait for records, and others.",
            queries=lines(
                "sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_numdelayedoperations{PODS})",
                "{{delayedOperation}}",
            ),
        ),
        Panel(
            title="Open files",
            description=(
                "Open file descriptors by broker: one for each partition, one for each connection, and at most a "
                "quarter of the limit for old segments that are read."
            ),
            queries=lines(f"sum by ({queries.BY_BROKER}) (process_open_fds{{PODS}})", LEGEND),
        ),
    ),
)

DISKS: Final = Row(
    title="Disks",
    panels=(
        Panel(
            title="Free space of volumes",
            description="Free share of each volume claim. A broker rejects writes before its disk is full.",
            queries=lines(queries.CLAIM_FREE.replace("CLAIMS", queries.BROKERS_CLAIM), "{{persistentvolumeclaim}}"),
            unit="percentunit",
            high=1,
        ),
        Panel(
            title="Free space of log directories",
            description="Free bytes of the file system of each log directory, as the broker measured them last.",
            queries=lines("odradek_log_directory_free_bytes{PODS}", f"{LEGEND} {{{{directory}}}}"),
            unit="bytes",
        ),
        Panel(
            title="Log size",
            description="Size of all logs by broker.",
            queries=lines(f"sum by ({queries.BY_BROKER}) (kafka_log_log_size{{PODS}})", LEGEND),
            type=PanelType.AREAS,
            unit="bytes",
        ),
        Panel(
            title="Disk writes and reads",
            description="Bytes that brokers write to and read from disks. The page cache does not count.",
            queries=(
                Query(text="sum(irate(kafka_server_kafkaserver_linux_disk_write_bytes{PODS}[5m]))", legend="written"),
                Query(text="sum(irate(kafka_server_kafkaserver_linux_disk_read_bytes{PODS}[5m]))", legend="read"),
            ),
            unit="Bps",
        ),
        Panel(
            title="Dirtiest compacted log",
            description="Dirty ratio of the dirtiest compacted log. If it stays near 100 %, the cleaner is too slow.",
            queries=lines("kafka_log_logcleanermanager_max_dirty_percent{PODS}", LEGEND),
            unit="percent",
            high=100,
        ),
        Panel(
            title="Logs that cannot be compacted",
            description="Logs that the cleaner skips after an error.",
            queries=lines(
                f"sum by ({queries.BY_BROKER}) (kafka_log_logcleanermanager_uncleanable_partitions_count{{PODS}})",
                LEGEND,
            ),
        ),
    ),
)

ZOOKEEPER: Final = Row(
    title="ZooKeeper requests",
    panels=(
        Panel(
            title="Latency, 99th percentile",
            description="Latency of the brokers' requests to ZooKeeper. Elections and ISR changes depend on it.",
            queries=lines(
                f"max by ({queries.BY_BROKER}) (kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms{{PODS, "
                'quantile="0.99"})',
                LEGEND,
            ),
            unit="ms",
            width=12,
        ),
        Panel(
            title="Lost connections and sessions",
            description="A lost connection is harmless if it is restored within the session timeout. After an expired "
            "session, the broker registers again and its partitions get other leaders.",
            queries=(
                Query(
                    text="sum(increase(kafka_server_sessionexpirelistener_zookeeperdisconnects_total{PODS}[5m]))",
                    legend="connections",
                ),
                Query(
                    text="sum(increase(kafka_server_sessionexpirelistener_zookeeperexpires_total{PODS}[5m]))",
                    legend="sessions",
                ),
            ),
            width=12,
        ),
    ),
)
