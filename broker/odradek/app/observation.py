"""Connects the metrics of a running broker with their sources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry

from odradek.app.coordinator_observation import ObservedTransactions, observe_groups, observe_lag, observe_transactions
from odradek.app.logins import TlsReport
from odradek.base.config import BrokerConfig
from odradek.base.error_names import ERROR_NAMES
from odradek.base.ports import Clock
from odradek.base.setting_definitions import INT64_MAX
from odradek.controller.controller_runtime import ControllerRuntime
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.lag.lag_monitor import LagMonitor
from odradek.log.compaction.cleaner import LogCleaner
from odradek.log.directories.space import DirectorySpace, DiskSpace
from odradek.log.log_manager import LogManager
from odradek.metrics.collector import BrokerCollector, Distribution
from odradek.metrics.http import (
    HttpRequest,
    HttpResponse,
    HttpServer,
    Probe,
    Route,
    json_answer,
    metrics_route,
    probe_route,
)
from odradek.metrics.load_times import LoadTimes
from odradek.metrics.process import ProcessTreeCollector
from odradek.metrics.quantiles import Quantiles
from odradek.metrics.request_stats import RequestStats
from odradek.metrics.series import Reading
from odradek.metrics.topic_stats import BrokerTopicStats
from odradek.network.connection_options import NetworkCounters
from odradek.network.listener import Listener
from odradek.network.request_memory import RequestMemory
from odradek.replication.replica_manager import ReplicaManager
from odradek.server.throttling.charges import ChargedRate
from odradek.server.throttling.client_throttle import ClientThrottle
from odradek.timer.purgatory import Purgatory


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The parts of a broker that provide metrics."""

    clock: Clock
    replicas: ReplicaManager
    logs: LogManager
    cleaner: LogCleaner
    controller: ControllerRuntime
    groups: GroupCoordinator
    group_load_times: LoadTimes
    """Loads of partitions of `__consumer_offsets`."""
    lag: LagMonitor
    transactions: ObservedTransactions
    max_transaction_ms: int
    """`transaction.max.timeout.ms`."""
    listeners: Iterable[Listener]
    request_memory: RequestMemory | None
    purgatories: Iterable[Purgatory[Any]]
    topic_stats: BrokerTopicStats
    request_stats: RequestStats
    broker_state: Callable[[], int]
    waiting_requests: Callable[[], int]
    """Number of requests whose handlers have not started."""
    session_counts: Callable[[], tuple[int, int, int]]
    """Numbers of expired ZooKeeper sessions, lost connections and established connections."""
    zookeeper_latency: Quantiles
    throttle: ClientThrottle


def observation(
    config: BrokerConfig,
    *,
    broker_state: Callable[[], int],
    is_healthy: Callable[[], Probe],
    is_ready: Callable[[], Probe],
    certificates: Callable[[], Awaitable[TlsReport]],
) -> tuple[BrokerCollector, HttpServer | None]:
    """Return the collector of a broker's metrics and, unless `metrics.port` is negative, the server for them, for
    probes, and for what TLS uses."""
    registry, collector = CollectorRegistry(), BrokerCollector()
    registry.register(collector)
    ProcessTreeCollector(registry=registry)
    # Registered before the other series, because recovery may take long and this series shows its progress.
    collector.provide_value("kafka_server_kafkaserver_brokerstate", broker_state)
    if config.metrics_port < 0:
        return collector, None
    routes = {
        "/metrics": metrics_route(registry, collector.rendered),
        "/healthz": probe_route(is_healthy),
        "/livez": probe_route(is_healthy),
        "/readyz": probe_route(is_ready),
        "/tls": _tls_route(certificates),
    }
    return collector, HttpServer(host=config.metrics_host, port=config.metrics_port, routes=routes)


def _tls_route(certificates: Callable[[], Awaitable[TlsReport]]) -> Route:
    """Return a route with the fingerprints of the certificates in use, from which an operator sees which pods use a
    renewed one."""

    async def answer(_: HttpRequest) -> HttpResponse:
        return json_answer(asdict(await certificates()))

    return answer


def observe(collector: BrokerCollector, observed: Observed) -> None:
    """Connect every series of `SERIES` with its source, except those of the process and of the transaction coordinator
    (`coordinator_observation`)."""
    collector.provide_topics(observed.topic_stats)
    collector.provide_requests(observed.request_stats, error_name=_error_name)
    collector.provide_value("kafka_network_requestchannel_requestqueuesize", observed.waiting_requests)
    _replicas(collector, observed.replicas)
    _partitions(collector, observed.replicas)
    _producers(collector, observed.replicas, observed.max_transaction_ms)
    observe_groups(collector, observed.groups, observed.group_load_times, observed.clock)
    observe_lag(collector, observed.lag)
    observe_transactions(collector, observed.transactions)
    _logs(collector, observed.logs)
    _cleaner(collector, observed.cleaner)
    _controller(collector, observed.controller)
    _request_memory(collector, observed.request_memory)
    _quotas(collector, observed.throttle)
    collector.provide_value("kafka_server_kafkaserver_brokerstate", observed.broker_state)
    collector.provide_value(
        "kafka_server_sessionexpirelistener_zookeeperexpires_total", lambda: observed.session_counts()[0]
    )
    collector.provide_value(
        "kafka_server_sessionexpirelistener_zookeeperdisconnects_total", lambda: observed.session_counts()[1]
    )
    collector.provide_value(
        "kafka_server_sessionexpirelistener_zookeepersyncconnects_total", lambda: observed.session_counts()[2]
    )
    collector.provide_summary(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        lambda: [Distribution({}, observed.zookeeper_latency)],
    )
    _listeners(collector, observed.listeners)
    prefix = "kafka_server_delayedoperationpurgatory_"
    collector.provide(
        prefix + "purgatorysize",
        lambda: [({"delayedOperation": each.name}, each.watched) for each in observed.purgatories],
    )
    collector.provide(
        prefix + "numdelayedoperations",
        lambda: [({"delayedOperation": each.name}, each.size) for each in observed.purgatories],
    )


def _listeners(collector: BrokerCollector, listeners: Iterable[Listener]) -> None:
    for series, value in _OF_LISTENERS.items():
        collector.provide(
            f"kafka_server_socket_server_metrics_{series}",
            lambda value=value: [  # type: ignore[misc]
                ({"listener": listener.name, "networkProcessor": "0"}, value(listener.counters))
                for listener in listeners
            ],
        )


_OF_LISTENERS: Final[Mapping[str, Callable[[NetworkCounters], int]]] = {
    "connection_count": lambda counters: counters.connections,
    "connection_creation_total": lambda counters: counters.connections_accepted,
    "connection_close_total": lambda counters: counters.connections_accepted - counters.connections,
    "successful_authentication_total": lambda counters: counters.authentications,
    "failed_authentication_total": lambda counters: counters.failed_authentications,
    "successful_reauthentication_total": lambda counters: counters.reauthentications,
    "failed_reauthentication_total": lambda counters: counters.failed_reauthentications,
    "expired_connections_killed_count": lambda counters: counters.sessions_expired,
}


def _request_memory(collector: BrokerCollector, memory: RequestMemory | None) -> None:
    # Without a limit, the values are Kafka's.
    collector.provide_value(
        "kafka_network_socketserver_memorypoolavailable", lambda: memory.available_bytes if memory else INT64_MAX
    )
    collector.provide_value("kafka_network_socketserver_memorypoolused", lambda: memory.used_bytes if memory else 0)
    collector.provide_value(
        "kafka_server_socket_server_metrics_memorypooldepletedtimetotal", lambda: memory.depleted_ms if memory else 0.0
    )


def _quotas(collector: BrokerCollector, throttle: ClientThrottle) -> None:
    def readings(value: Callable[[ChargedRate], float], *resources: str) -> Callable[[], Iterable[Reading]]:
        def read() -> Iterable[Reading]:
            uses = throttle.uses()
            for resource in resources:
                for use in uses[resource]:
                    yield {"resource": resource, "user": use.user, "clientId": use.client_id}, value(use)

        return read

    def rate(use: ChargedRate) -> float:
        return use.rate

    prefix = "kafka_server_quota_"
    collector.provide(prefix + "byte_rate", readings(rate, "Produce", "Fetch"))
    collector.provide(prefix + "request_time", readings(rate, "Request"))
    collector.provide(prefix + "tokens", readings(rate, "ControllerMutation"))
    every = ("Produce", "Fetch", "Request", "ControllerMutation")
    collector.provide(prefix + "throttle_time", readings(lambda use: use.throttle_ms, *every))


def _replicas(collector: BrokerCollector, replicas: ReplicaManager) -> None:
    for series, attribute in {
        "leadercount": "leaders",
        "partitioncount": "partitions",
        "offlinereplicacount": "offline",
        "underreplicatedpartitions": "under_replicated",
        "underminisrpartitioncount": "under_min_isr",
        "atminisrpartitioncount": "at_min_isr",
        "reassigningpartitions": "reassigning",
        "isrshrinks_total": "isr_shrinks",
        "isrexpands_total": "isr_expands",
    }.items():
        collector.provide_value(
            f"kafka_server_replicamanager_{series}",
            lambda attribute=attribute: getattr(replicas.counts(), attribute),  # type: ignore[misc]
        )
    quotas = replicas.quotas
    collector.provide_value("kafka_server_leaderreplication_byte_rate", lambda: quotas.leader.byte_rate)
    collector.provide_value("kafka_server_followerreplication_byte_rate", lambda: quotas.follower.byte_rate)
    collector.provide(
        "kafka_server_replicaalterlogdirsmanager_maxlag",
        lambda: [({"clientId": "ReplicaAlterLogDirs"}, replicas.mover.max_lag())],
    )
    collector.provide(
        "kafka_server_replicafetchermanager_maxlag", lambda: [({"clientId": "Replica"}, replicas.fetchers.max_lag())]
    )
    collector.provide(
        "kafka_server_fetcherlagmetrics_consumerlag",
        lambda: [
            ({"clientId": client_id, "topic": topic, "partition": str(number)}, lag)
            for client_id, (topic, number), lag in replicas.fetchers.lags()
        ],
    )


def _producers(collector: BrokerCollector, replicas: ReplicaManager, max_transaction_ms: int) -> None:
    prefix = "kafka_server_replicamanager_"
    collector.provide_value(prefix + "produceridcount", replicas.producer_count)
    collector.provide_value(
        prefix + "partitionswithlatetransactionscount", lambda: replicas.late_transaction_count(max_transaction_ms)
    )


def _partitions(collector: BrokerCollector, replicas: ReplicaManager) -> None:
    def readings(value: Callable[..., float]) -> Callable[[], Iterable[Reading]]:
        def read() -> Iterable[Reading]:
            for (topic, number), partition in replicas.table.online.items():
                labels = {"topic": topic, "partition": str(number)}
                yield labels, value(partition) if partition.is_leader else 0

        return read

    prefix = "kafka_cluster_partition_"
    collector.provide(prefix + "replicascount", readings(lambda partition: len(partition.replicas)))
    collector.provide(prefix + "underminisr", readings(lambda partition: partition.is_under_min_isr))
    collector.provide(
        prefix + "atminisr", readings(lambda partition: len(partition.in_sync.committed) == partition.min_in_sync)
    )


def _logs(collector: BrokerCollector, logs: LogManager) -> None:
    for series, attribute in {
        "size": "size_bytes",
        "logstartoffset": "log_start_offset",
        "logendoffset": "log_end_offset",
    }.items():
        collector.provide(
            f"kafka_log_log_{series}",
            lambda attribute=attribute: [  # type: ignore[misc]
                (
                    {"topic": log.topic_partition.topic, "partition": str(log.topic_partition.partition)},
                    getattr(log, attribute),
                )
                for log in logs.logs()
            ],
        )
    collector.provide(
        "kafka_log_log_numlogsegments",
        lambda: [
            ({"topic": log.topic_partition.topic, "partition": str(log.topic_partition.partition)}, len(log.segments))
            for log in logs.logs()
        ],
    )
    collector.provide_summary(
        "kafka_log_logflushstats_logflushrateandtimems", lambda: [Distribution({}, logs.flush_ms)]
    )
    collector.provide_value("kafka_log_logmanager_offlinelogdirectorycount", lambda: len(logs.offline_directories))
    _space(collector, logs.space)
    queues = logs.writes.readings
    collector.provide(
        "odradek_log_directory_slow",
        lambda: [({"directory": path}, queue.is_slow) for path, queue in queues().items()],
    )
    collector.provide(
        "odradek_log_directory_queued_bytes",
        lambda: [({"directory": path}, queue.size_bytes) for path, queue in queues().items()],
    )


def _space(collector: BrokerCollector, space: DiskSpace) -> None:
    def readings(value: Callable[[DirectorySpace], float]) -> Callable[[], Iterable[Reading]]:
        return lambda: [({"directory": path}, value(disk)) for path, disk in space.by_path.items()]

    prefix = "odradek_log_directory_"
    collector.provide(prefix + "free_bytes", readings(lambda disk: disk.free_bytes))
    collector.provide(prefix + "reserve_bytes", readings(lambda disk: disk.reserve_bytes))
    collector.provide(prefix + "writes_refused", readings(lambda disk: disk.is_short))


def _cleaner(collector: BrokerCollector, cleaner: LogCleaner) -> None:
    prefix = "kafka_log_logcleaner_"
    collector.provide_value(prefix + "cleaner_recopy_percent", lambda: cleaner.recopy_percent)
    collector.provide_value(prefix + "max_buffer_utilization_percent", lambda: cleaner.max_buffer_utilization_percent)
    collector.provide_value(prefix + "max_clean_time_secs", lambda: cleaner.max_clean_time_seconds)
    collector.provide_value(prefix + "max_compaction_delay_secs", lambda: cleaner.max_compaction_delay_seconds)
    collector.provide_value(prefix + "deadthreadcount", lambda: cleaner.dead_threads)
    collector.provide_value("odradek_log_cleaner_worker_deaths_total", lambda: cleaner.worker_deaths)
    prefix = "kafka_log_logcleanermanager_"
    collector.provide_value(prefix + "max_dirty_percent", lambda: int(100 * cleaner.max_dirty_ratio))
    collector.provide_value(prefix + "time_since_last_run_ms", lambda: cleaner.since_last_run_ms)
    for series, attribute in {"uncleanable_partitions_count": "partitions", "uncleanable_bytes": "size_bytes"}.items():
        collector.provide(
            prefix + series,
            lambda attribute=attribute: [  # type: ignore[misc]
                ({"logDirectory": path}, getattr(found, attribute)) for path, found in cleaner.uncleanable.items()
            ],
        )


def _controller(collector: BrokerCollector, controller: ControllerRuntime) -> None:
    for series, attribute in {
        "activecontrollercount": "active_controllers",
        "offlinepartitionscount": "offline_partitions",
        "preferredreplicaimbalancecount": "preferred_replica_imbalance",
        "globaltopiccount": "topics",
        "globalpartitioncount": "partitions",
        "topicstodeletecount": "topics_to_delete",
        "activebrokercount": "active_brokers",
    }.items():
        collector.provide_value(
            f"kafka_controller_kafkacontroller_{series}",
            lambda attribute=attribute: getattr(controller.counts(), attribute),  # type: ignore[misc]
        )
    collector.provide_value(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        lambda: controller.counts().unclean_elections,
    )
    collector.provide_value("kafka_controller_kafkacontroller_controllerstate", lambda: controller.state)
    collector.provide_summary(
        "kafka_controller_controllerstats_leaderelectionrateandtimems",
        lambda: [Distribution({}, controller.broker_change_ms)],
    )


def _error_name(code: int) -> str:
    """Return the protocol's name of an error, such as NOT_CONTROLLER, or its number if it has no name."""
    return ERROR_NAMES.get(code, str(code))
