"""What brokers take of their machines, and how ZooKeeper answers them: rows of the cluster's dashboard. Pure."""

from __future__ import annotations

from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.grafana import Look, Panel, Query, Row, lines

POD: Final = "{{kubernetes_pod_name}}"
"""Legend of lines that are of one broker each."""

LOAD: Final = Row(
    title="Load",
    panels=(
        Panel(
            title="Event loop idle",
            description="Share of time in which a broker's event loop waits for work. Below a tenth, requests queue.",
            queries=lines("kafka_network_socketserver_networkprocessoravgidle_percent{PODS}", POD),
            unit="percentunit",
            high=1,
        ),
        Panel(
            title="CPU",
            description="Processors in use by the brokers' containers.",
            queries=lines(
                'sum by (pod) (rate(container_cpu_usage_seconds_total{namespace="$namespace", pod=~"$pod", '
                'container="kafka"}[$__rate_interval]))',
                "{{pod}}",
            ),
            unit="short",
        ),
        Panel(
            title="Memory",
            description="Resident memory of the broker processes.",
            queries=lines("sum by (kubernetes_pod_name) (jvm_memory_used_bytes{PODS})", POD),
            unit="bytes",
        ),
        Panel(
            title="Connections",
            description="Open connections of each listener.",
            queries=lines(
                "sum by (listener) (kafka_server_socket_server_metrics_connection_count{PODS})", "{{listener}}"
            ),
            look=Look.AREAS,
        ),
        Panel(
            title="Waiting operations",
            description="Produce requests that wait for followers, fetch requests that wait for records, and the like.",
            queries=lines(
                "sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_numdelayedoperations{PODS})",
                "{{delayedOperation}}",
            ),
        ),
        Panel(
            title="Open files",
            description="File descriptors of each broker: two or three for each segment in use, one a connection.",
            queries=lines("sum by (kubernetes_pod_name) (process_open_fds{PODS})", POD),
        ),
    ),
)

DISKS: Final = Row(
    title="Disks",
    panels=(
        Panel(
            title="Free room of claims",
            description="Free share of each volume claim. A full disk stops a broker's writes before it is damaged.",
            queries=lines(queries.CLAIM_FREE.replace("CLAIMS", queries.BROKERS_CLAIM), "{{persistentvolumeclaim}}"),
            unit="percentunit",
            high=1,
        ),
        Panel(
            title="Free room of log directories",
            description="Free bytes of each directory's file system, as the broker last saw it.",
            queries=lines("odradek_log_directory_free_bytes{PODS}", f"{POD} {{{{directory}}}}"),
            unit="bytes",
        ),
        Panel(
            title="Log size",
            description="Bytes of all logs of each broker.",
            queries=lines("sum by (kubernetes_pod_name) (kafka_log_log_size{PODS})", POD),
            look=Look.AREAS,
            unit="bytes",
        ),
        Panel(
            title="Disk writes and reads",
            description="Bytes that the broker processes wrote to disks and read from disks, page cache excluded.",
            queries=(
                Query(text="sum(irate(kafka_server_kafkaserver_linux_disk_write_bytes{PODS}[5m]))", legend="written"),
                Query(text="sum(irate(kafka_server_kafkaserver_linux_disk_read_bytes{PODS}[5m]))", legend="read"),
            ),
            unit="Bps",
        ),
        Panel(
            title="Dirtiest compacted log",
            description="Dirty share of the dirtiest compacted log. Near 100 % for long: the cleaner is behind.",
            queries=lines("kafka_log_logcleanermanager_max_dirty_percent{PODS}", POD),
            unit="percent",
            high=100,
        ),
        Panel(
            title="Logs that cannot be compacted",
            description="Logs that the cleaner leaves alone after an error.",
            queries=lines(
                "sum by (kubernetes_pod_name) (kafka_log_logcleanermanager_uncleanable_partitions_count{PODS})", POD
            ),
        ),
    ),
)

ZOOKEEPER: Final = Row(
    title="Towards ZooKeeper",
    panels=(
        Panel(
            title="Round trips, 99 of 100",
            description="Time of the brokers' requests to ZooKeeper. Elections and in-sync changes wait for these.",
            queries=lines(
                "max by (kubernetes_pod_name) (kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms{PODS, "
                'quantile="0.99"})',
                POD,
            ),
            unit="ms",
            width=12,
        ),
        Panel(
            title="Lost connections and sessions",
            description="A connection may be lost without loss when it comes back within the session; after an expired "
            "session the broker registers anew and its partitions move.",
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
